#!/bin/bash
# What is left when one side stops in the middle, and the other goes on: levels 1, 5, 6 and 10.
#
#   interrupted.sh ours MDSPACE          in one guest: our server is killed, fails a member, writes beside a recovery
#   interrupted.sh crash DIRECTORY       the real driver writes, then its kernel panics: this never ends
#   interrupted.sh taken-over DIRECTORY  the real driver takes what mdspace made of that
#
# Between `crash` and `taken-over` the members are the guest's disks, in the order of $LEVELS.
set -euo pipefail
export MDADM_NO_UDEV=1
modprobe loop max_loop=8
modprobe nbd
for module in raid1 raid10 raid456; do modprobe $module; done
md=/sys/block/md0/md

LEVELS=(1 5 6 10)
declare -A COUNT=([1]=2 [5]=4 [6]=5 [10]=4)
MEMBER_BYTES=$((16 << 20))

# The file `pool` holds random bytes; what is written at a place of the array is found there, shifted by one of these.
new=$((8 << 20)) other=$((16 << 20))
POOL_BYTES=$((64 << 20))
BITMAP_CHUNK_KIB=256

fail() {
    echo "FAILED: level $level: $*"
    cat /proc/mdstat
    dmesg | tail -n 15
    exit 1
}

# until_true COMMAND...: waits for a state that something else brings about; a minute at most.
until_true() {
    local tries=0
    until "$@"; do
        read -rt 0.01 -u "$silence" || true
        ((++tries < 6000)) || fail "never came true: $*"
    done
}
exec {silence}<> <(:) # reading from it with a time limit waits without starting a program

is() { [ "$(<"$1")" = "$2" ]; }
finished() { until_true is $md/sync_action idle; }

# The field NUMBER of a disk's statistics: 2 is sectors read, 6 sectors written.
stat_of() {
    local fields
    read -ra fields <"/sys/block/${1#/dev/}/stat"
    echo "${fields[$2]}"
}
has_written() { [ "$(stat_of "$1" 6)" -ge "$2" ]; }

# Bits set in a member's bitmap.
dirty_bits() { mdadm --examine-bitmap "$1" | sed -n 's/.* \([0-9]*\) dirty.*/\1/p'; }

checked() {
    finished
    echo check >$md/sync_action
    finished
    is $md/mismatch_cnt 0 || fail "$1: mismatch_cnt is $(<$md/mismatch_cnt)"
}

# The array's bytes are the model's.
same() { cmp -n "$array_bytes" model "$2" || fail "$1: other bytes"; }

# assemble DEGRADED: without --force, of all members.
assemble() {
    mdadm --assemble --run --quiet /dev/md0 "${members[@]}" || fail "not assembled"
    is $md/degraded "$1" || fail "$(<$md/degraded) members missing, not $1"
    if is $md/array_state read-auto; then mdadm --readwrite --quiet /dev/md0; fi
}

# ---------------------------------------------------------------- ours

serve() {
    "$mdspace" serve "${members[@]}" --nbd "unix:$PWD/nbd.socket" --control control.socket &
    server=$!
    until nbdinfo --size "nbd+unix:///?socket=$PWD/nbd.socket" >/dev/null 2>&1; do
        kill -0 "$server" || fail "the server ended"
    done
    nbd-client -unix "$PWD/nbd.socket" /dev/nbd0 -block-size 4096 >/dev/null
}

# put SHIFT AT COUNT RECORD DEVICE: COUNT records of RECORD bytes of the pool.
put() {
    dd if=pool of="$5" bs="$4" count="$3" skip=$(($1 + $2)) seek="$2" iflag=skip_bytes oflag=direct,seek_bytes 2>&1
}

# note SHIFT AT BYTES: what the array should hold.
note() { note_from pool $(($1 + $2)) "$2" "$3"; }
note_from() {
    dd if="$1" of=model bs=64K count="$4" skip="$2" seek="$3" iflag=skip_bytes,count_bytes oflag=seek_bytes \
        conv=notrunc status=none
}

# The members are free again: the kernel takes an io_uring apart some time after its process has ended.
released() { perl -MFcntl -e 'sysopen(my $f, $_, O_RDWR | O_EXCL) or exit 1 for @ARGV' "${members[@]}"; }

# No loop device is left: one that is still held by whoever has just ended stays a while, under its number.
detached() {
    losetup --detach-all
    [ -z "$(losetup --all)" ]
}

# Our server is killed while four clients write; md resyncs what our bitmap names, and nothing that was answered
# is lost.
killed_server() {
    serve
    local writer begin record=12288 answered before dirty read
    before=$(stat_of nbd0 6)
    for writer in 0 1 2 3; do
        put $new $((writer * array_bytes / 4 / 4096 * 4096 + 8192)) 300 $record /dev/nbd0 >writer.$writer &
        writers[writer]=$!
    done
    until_true has_written nbd0 $((before + 3072))
    kill -KILL $server
    nbd-client -d /dev/nbd0 >/dev/null # what waits for an answer fails
    for writer in 0 1 2 3; do
        ! wait "${writers[writer]}" || fail "a writer had ended before the server was killed"
    done
    wait $server 2>/dev/null || true
    until_true released

    dirty=$(dirty_bits "${members[0]}")
    ((dirty > 0 && dirty < bits / 2)) || fail "$dirty of $bits bits are set after writes here and there"
    before=$(stat_of "${members[0]}" 2)
    assemble 0
    finished
    dmesg | grep -q 'md: resync of RAID array md0' || fail "no resync"
    read=$((($(stat_of "${members[0]}" 2) - before) / 2))
    # Beside the resync md reads its metadata.
    ((read <= (dirty + 2) * BITMAP_CHUNK_KIB)) || fail "$dirty bits of $BITMAP_CHUNK_KIB KiB, but $read KiB were read"
    checked "after the server was killed"
    for writer in 0 1 2 3; do
        answered=$(sed -n 's/\([0-9]*\)+0 records out/\1/p' writer.$writer)
        begin=$((writer * array_bytes / 4 / 4096 * 4096 + 8192))
        note $new $begin $((answered * record))
        begin=$((begin + answered * record))
        note_from /dev/md0 $begin $begin $record # was under way: may be there or not
    done
    same "after the server was killed" /dev/md0
    mdadm --stop --quiet /dev/md0
    echo "level $level: killed; $dirty of $bits bits, $read KiB read"
}

# A member that we left behind is left out by md, and re-added by our bitmap.
left_behind() {
    local before written
    serve
    put $new 40960 50 20480 /dev/nbd0 >/dev/null
    "$mdspace" fail "${members[1]}" --control control.socket
    put $new 4096000 100 4096 /dev/nbd0 >/dev/null
    put $new $((array_bytes - 409600)) 100 4096 /dev/nbd0 >/dev/null
    nbd-client -d /dev/nbd0 >/dev/null
    kill -TERM $server
    wait $server || fail "the server ended with status $?"
    note $new 40960 1024000
    note $new 4096000 409600
    note $new $((array_bytes - 409600)) 409600

    assemble 1
    same "without the member left behind" /dev/md0
    before=$(stat_of "${members[1]}" 6)
    mdadm --re-add --quiet /dev/md0 "${members[1]}" || fail "not re-added"
    until_true is $md/degraded 0
    finished
    written=$((($(stat_of "${members[1]}" 6) - before) / 2))
    ((written > 400 && written < MEMBER_BYTES / 2048)) || fail "re-added with $written KiB written"
    checked "after the re-add"
    same "after the re-add" /dev/md0
    echo "level $level: re-added; $written KiB written"
}

# A recovery that the kernel began goes on after we have written beside and behind it.
half_recovered() {
    local offset before written at
    mdadm --quiet /dev/md0 --fail "${members[0]}"
    mdadm --quiet /dev/md0 --remove "${members[0]}"
    mdadm --zero-superblock "${members[0]}"
    echo 2000 >$md/sync_speed_max
    echo 1000 >$md/sync_speed_min
    before=$(stat_of "${members[0]}" 6)
    mdadm --quiet --add /dev/md0 "${members[0]}"
    until_true has_written "${members[0]}" $((before + MEMBER_BYTES / 512 / 4))
    mdadm --stop --quiet /dev/md0
    offset=$(mdadm --examine "${members[0]}" | sed -n 's/.*Recovery Offset : \([0-9]*\) sectors/\1/p')
    [ -n "$offset" ] || fail "md left no recovery offset"

    for at in 0 1 2 3 4 5 6 7; do
        at=$((at * array_bytes / 8 + 5000))
        dd if=pool bs=99999 count=1 skip=$((other + at)) iflag=skip_bytes status=none |
            "$mdspace" write "${members[@]}" --offset $at
        note $other $at 99999
    done
    "$mdspace" read "${members[@]}" -o out
    same "half recovered, read by us" out

    before=$(stat_of "${members[0]}" 6)
    assemble 1
    until_true is $md/degraded 0
    finished
    written=$(($(stat_of "${members[0]}" 6) - before))
    ((written < MEMBER_BYTES / 512 - offset)) || fail "begun anew: $written sectors written, offset was $offset"
    checked "after the recovery"
    same "after the recovery" /dev/md0
    mdadm --stop --quiet /dev/md0
    echo "level $level: recovery continued from $((offset / 2)) KiB; $((written / 2)) KiB written"
}

# A member that cannot take what is written keeps a log of it, as md does it; md goes by that log.
failed_write() {
    level=5 members=(/dev/loop{0,1,2,3})
    mkdir small
    mount -t tmpfs -o size=4M small small
    local member number=0
    for member in n0 small/n1 n2 n3; do
        truncate -s $MEMBER_BYTES "$member"
        losetup /dev/loop$((number++)) "$member"
    done
    "$mdspace" create --level 5 --assume-clean "${members[@]}" >/dev/null
    "$mdspace" write "${members[@]}" <model 2>said
    grep -m 1 "/dev/loop1: bytes .* of its data are bad blocks now" said || fail "said: $(<said)"
    assemble 0
    [ -s $md/rd1/bad_blocks ] || fail "md knows of no bad block"
    same "after a member had no more room" /dev/md0
    mdadm --stop --quiet /dev/md0
    losetup --detach-all
    umount small
}

ours() {
    mdspace=$1
    cd "$SCRATCH"
    head -c $POOL_BYTES /dev/urandom >pool
    local member
    for level in "${LEVELS[@]}"; do
        dmesg --clear
        members=() writers=()
        for ((member = 0; member < COUNT[$level]; member++)); do
            truncate -s 0 m$member
            truncate -s $MEMBER_BYTES m$member
            losetup /dev/loop$member m$member
            members+=(/dev/loop$member)
        done
        local chunk=(--chunk 64K)
        [ "$level" != 1 ] || chunk=()
        "$mdspace" create --level "$level" "${chunk[@]}" --bitmap internal --bitmap-chunk ${BITMAP_CHUNK_KIB}K \
            --assume-clean "${members[@]}"
        array_bytes=$("$mdspace" read "${members[@]}" | wc -c)
        bits=$(mdadm --examine-bitmap "${members[0]}" | sed -n 's/.*: \([0-9]*\) bits.*/\1/p')
        head -c "$array_bytes" pool >model
        "$mdspace" write "${members[@]}" <model
        killed_server
        left_behind
        half_recovered
        until_true detached
    done
    failed_write
    echo "4 levels: server killed, member left behind, recovery interrupted"
}

# ---------------------------------------------------------------- the driver's

# disks_of LEVEL: sets `members` to its disks.
disks_of() {
    local all other
    read -ra all <<<"$DISKS"
    for other in "${LEVELS[@]}"; do
        members=("${all[@]:0:COUNT[$other]}")
        all=("${all[@]:COUNT[$other]}")
        [ "$other" != "$1" ] || return 0
    done
}

# overwrite AT DEVICE: without end, by turns with what was not there before and with what was.
overwrite() {
    while true; do
        put $new "$1" 60 12288 "$2" >/dev/null
        put 0 "$1" 60 12288 "$2" >/dev/null
    done
}

# Arrays filled with the pool; then `new` written to their first MiB and flushed, and three other places overwritten
# until the kernel panics. DIRECTORY holds the pool; the arrays' sizes are left there.
crash() {
    cd "$1"
    local array chunk at
    for level in "${LEVELS[@]}"; do
        disks_of "$level"
        array=/dev/md$level chunk=(--chunk=64)
        [ "$level" != 1 ] || chunk=()
        mdadm --create $array --quiet --run --level="$level" "${chunk[@]}" --raid-devices=${#members[@]} \
            --bitmap=internal --bitmap-chunk=${BITMAP_CHUNK_KIB}K --assume-clean "${members[@]}"
        array_bytes=$(blockdev --getsize64 $array)
        dd if=pool of=$array bs=1M count="$array_bytes" iflag=count_bytes oflag=direct status=none
        echo "$array_bytes" >size.$level
        mdadm --stop --quiet $array
        mdadm --assemble --quiet $array "${members[@]}" # with no bit set
        echo 60 >/sys/block/md$level/md/safe_mode_delay # however slowly the writers go: not clean when it crashes
        dd if=pool of=$array bs=1M count=1 skip=$new iflag=skip_bytes conv=fsync status=none
    done
    sync
    for level in "${LEVELS[@]}"; do
        array_bytes=$(<size.$level)
        for at in 1 2 3; do overwrite $((array_bytes * at / 4 / 4096 * 4096)) /dev/md$level & done
    done
    for level in "${LEVELS[@]}"; do until_true has_written md$level $(((1 << 20) / 512 + 1024)); done
    echo "crashing"
    echo c >/proc/sysrq-trigger
}

taken_over() {
    cd "$1"
    for level in "${LEVELS[@]}"; do
        disks_of "$level"
        dmesg --clear
        array_bytes=$(<size.$level)
        assemble 0
        finished
        ! dmesg | grep -q 'md: resync of RAID array md0' || fail "md has found it dirty"
        checked "after our resync"
        cmp -n "$array_bytes" model.$level /dev/md0 || fail "other bytes than we read"
        mdadm --stop --quiet /dev/md0
    done
    echo "4 levels: the kernel panicked, mdspace resynced, md agrees"
}

"${1//-/_}" "${@:2}"
