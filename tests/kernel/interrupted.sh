#!/bin/bash
# What is left when one side stops in the middle, and the other goes on: levels 1, 5, 6 and 10.
#
#   interrupted.sh ours MDSPACE          in one guest: our server is killed, fails a member, writes beside a recovery
#   interrupted.sh no-room MDSPACE       a member of ours cannot take what is written
#   interrupted.sh crash DIRECTORY       the real driver writes, then its kernel panics: this never ends
#   interrupted.sh taken-over DIRECTORY  the real driver takes what mdspace made of that
#
# Between `crash` and `taken-over` the members are the guest's disks, in the order of $LEVELS.
set -euo pipefail
. "$(dirname "$0")/common.sh"
modprobe nbd

LEVELS=(1 5 6 10)
MEMBER_BYTES=$((16 << 20))

# The file `pool` holds random bytes; what is written at a place of the array is found there, shifted by one of these.
new=$((8 << 20)) other=$((16 << 20))
POOL_BYTES=$((64 << 20))
BITMAP_CHUNK_KIB=256

where() { echo "level $level"; }
evidence() { cat serve.log; }

has_written() { [ "$(sectors_written "$1")" -ge "$2" ]; }

# The array's bytes are the model's.
same() { cmp -n "$array_bytes" model "$2" || fail "$1: other bytes"; }

# assemble_lacking DEGRADED: of all members, so many of which are not current.
assemble_lacking() {
    mdadm --assemble --run --quiet /dev/md0 "${members[@]}" || fail "not assembled"
    is $md/degraded "$1" || fail "$(<$md/degraded) members missing, not $1"
    allow_writes
}

# ---------------------------------------------------------------- ours

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

# No loop device is left: one that is still held by whoever has just ended stays a while, under its number.
detached() {
    losetup --detach-all
    [ -z "$(losetup --all)" ]
}

# feed WRITER: what it is to write, from `begin` on. The first one's feeder kills the server halfway.
feed() {
    local killed_after=$((records / 2 * record))
    pooled $((new + begin)) $killed_after
    [ "$1" != 0 ] || kill -KILL $server
    pooled $((new + begin + killed_after)) $((records * record - killed_after))
} 2>/dev/null # the writer ends first
pooled() { dd if=pool bs=4K skip="$1" count="$2" iflag=skip_bytes,count_bytes status=none; }

# Our server is killed while four clients write; md resyncs what our bitmap names, and nothing that was answered
# is lost. However far they get, they write to less than half of the array.
killed_server() {
    local writer begin record=12288 records=120 answered before dirty read
    serve_as_nbd0 "${members[@]}"
    for writer in 0 1 2 3; do
        begin=$((writer * array_bytes / 4 / 4096 * 4096 + 8192))
        dd of=/dev/nbd0 bs=$record count=$records seek=$begin iflag=fullblock oflag=direct,seek_bytes \
            < <(feed $writer) 2>writer.$writer &
        writers[writer]=$!
    done
    nbd0_lost
    for writer in 0 1 2 3; do
        ! wait "${writers[writer]}" || fail "a writer had ended before the server was killed"
    done

    dirty=$(dirty_bits "${members[0]}")
    ((dirty > 0 && dirty < bits / 2)) || fail "$dirty of $bits bits are set after writes here and there"
    before=$(sectors_read "${members[0]}")
    assemble_lacking 0
    finished
    dmesg | grep -q 'md: resync of RAID array md0' || fail "no resync"
    read=$((($(sectors_read "${members[0]}") - before) / 2))
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
    stop_md
    echo "level $level: killed; $dirty of $bits bits, $read KiB read"
}

# A member that we left behind is left out by md, and re-added by our bitmap.
left_behind() {
    local before written
    serve_as_nbd0 "${members[@]}"
    put $new 40960 50 20480 /dev/nbd0 >/dev/null
    "$mdspace" fail "${members[1]}" --control control.socket
    put $new 4096000 100 4096 /dev/nbd0 >/dev/null
    put $new $((array_bytes - 409600)) 100 4096 /dev/nbd0 >/dev/null
    end_nbd0
    note $new 40960 1024000
    note $new 4096000 409600
    note $new $((array_bytes - 409600)) 409600

    assemble_lacking 1
    same "without the member left behind" /dev/md0
    before=$(sectors_written "${members[1]}")
    mdadm --re-add --quiet /dev/md0 "${members[1]}" || fail "not re-added"
    recovered
    written=$((($(sectors_written "${members[1]}") - before) / 2))
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
    before=$(sectors_written "${members[0]}")
    mdadm --quiet --add /dev/md0 "${members[0]}"
    until_true has_written "${members[0]}" $((before + MEMBER_BYTES / 512 / 4))
    stop_md
    offset=$(superblock_number "${members[0]}" "Recovery Offset")
    [ -n "$offset" ] || fail "md left no recovery offset"

    for at in 0 1 2 3 4 5 6 7; do
        at=$((at * array_bytes / 8 + 5000))
        dd if=pool bs=99999 count=1 skip=$((other + at)) iflag=skip_bytes status=none |
            "$mdspace" write "${members[@]}" --offset $at
        note $other $at 99999
    done
    "$mdspace" read "${members[@]}" -o out --overwrite
    same "half recovered, read by us" out

    before=$(sectors_written "${members[0]}")
    assemble_lacking 1
    recovered
    written=$(($(sectors_written "${members[0]}") - before))
    ((written < MEMBER_BYTES / 512 - offset)) || fail "begun anew: $written sectors written, offset was $offset"
    checked "after the recovery"
    same "after the recovery" /dev/md0
    stop_md
    echo "level $level: recovery continued from $((offset / 2)) KiB; $((written / 2)) KiB written"
}

# A member that cannot take what is written keeps a log of it, as md does it; md goes by that log. For Linux 6.1: newer
# loop devices (6.12) say that there is no space, and a member without space leaves the array.
no_room() {
    mdspace=$1 level=5 members=(/dev/loop{0,1,2,3})
    array_bytes=$((30 << 20))
    head -c $array_bytes /dev/urandom >model
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
    assemble_lacking 0
    [ -n "$(<$md/rd1/bad_blocks)" ] || fail "md knows of no bad block"
    same "after a member had no more room" /dev/md0
    stop_md
    losetup --detach-all
    umount small
    echo "a member without room: md goes by its log"
}

ours() {
    mdspace=$1
    head -c $POOL_BYTES /dev/urandom >pool
    for level in "${LEVELS[@]}"; do
        dmesg --clear
        writers=()
        blank "${MEMBERS[$level]}"
        local chunk=(--chunk 64K)
        [ "$level" != 1 ] || chunk=()
        "$mdspace" create --level "$level" "${chunk[@]}" --bitmap internal --bitmap-chunk ${BITMAP_CHUNK_KIB}K \
            --assume-clean "${members[@]}"
        array_bytes=$("$mdspace" read "${members[@]}" | wc -c)
        bits=$(all_bits "${members[0]}")
        head -c "$array_bytes" pool >model
        "$mdspace" write "${members[@]}" <model
        killed_server
        left_behind
        half_recovered
        until_true detached
    done
    echo "4 levels: server killed, member left behind, recovery interrupted"
}

# ---------------------------------------------------------------- the driver's

# disks_of LEVEL: sets `members` to its disks.
disks_of() {
    local all other
    read -ra all <<<"$DISKS"
    for other in "${LEVELS[@]}"; do
        members=("${all[@]:0:MEMBERS[$other]}")
        all=("${all[@]:MEMBERS[$other]}")
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
        assemble_lacking 0
        finished
        ! dmesg | grep -q 'md: resync of RAID array md0' || fail "md has found it dirty"
        checked "after our resync"
        cmp -n "$array_bytes" "$PWD/model.$level" /dev/md0 || fail "other bytes than we read"
        stop_md
    done
    echo "4 levels: the kernel panicked, mdspace resynced, md agrees"
}

"${1//-/_}" "${@:2}"
