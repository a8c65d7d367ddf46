#!/bin/bash
# Read errors and bad blocks: the same faults met by the real driver and by mdspace, and each one's bad-block log
# honoured by the other. Levels 1, 5, 6 and 10; members on device-mapper's `dust` (sectors that cannot be read until
# they are written) and `error` (sectors that can be neither).
#
#   bad_blocks.sh MDSPACE [LEVEL...]
#
# Runs in a guest (tests/kernel/init.sh). Before one side takes over what the other left, what lies in the bad sectors is
# overwritten with other bytes: whoever reads them is found out.
set -euo pipefail
mdspace=$1
shift
[ $# -gt 0 ] || set -- 1 5 6 10
declare -A MEMBERS=([1]=2 [5]=4 [6]=5 [10]=4)
export MDADM_NO_UDEV=1 DM_DISABLE_UDEV=1
modprobe loop max_loop=8
for module in dm-mod dm-dust raid1 raid10 raid456; do modprobe $module; done
md=/sys/block/md0/md
cd "$SCRATCH"

MEMBER_BYTES=$((16 << 20))
SECTORS=$((MEMBER_BYTES / 512))
DATA_OFFSET=2048
# Sectors of the first member's data that go bad: a page of a chunk that holds data at every level.
BAD=$((128 + 24)) COUNT=8
head -c $MEMBER_BYTES /dev/urandom >pool

fail() {
    echo "FAILED: level $level, $scene: $*"
    cat /proc/mdstat
    status || :
    cat serve.log || :
    dmesg | tail -n 15
    exit 1
}

# until_true COMMAND...: waits for a state that something else brings about; a minute at most.
until_true() {
    local tries=0
    until "$@"; do
        read -rt 0.02 -u "$silence" || true
        ((++tries < 3000)) || fail "never came true: $*"
    done
}
exec {silence}<> <(:) # reading from it with a time limit waits without starting a program

is() { [ "$(<"$1")" = "$2" ]; }
status() { "$mdspace" status --json --control control.socket 2>/dev/null; }
says() { status | jq -e "$1" >/dev/null; }
finished() { until_true is $md/sync_action idle; }
stop_md() { mdadm --stop --quiet /dev/md0; }

# Blank members; the first can be swapped for a faulty one.
blank() {
    losetup -D
    members=()
    local number
    for ((number = 0; number < count; number++)); do
        rm -f "m$number"
        truncate -s $MEMBER_BYTES "m$number"
        members+=("$(losetup --find --show "m$number")")
    done
    sound=${members[0]}
}

create() {
    local chunk=(--chunk=64)
    [ "$level" != 1 ] || chunk=()
    mdadm --create /dev/md0 --quiet --run --metadata=1.2 --level="$level" "${chunk[@]}" --bitmap=none \
        --data-offset=$((DATA_OFFSET / 2))K --raid-devices="$count" --assume-clean "${members[@]}"
    dd if=pool of=/dev/md0 bs=1M conv=fsync status=none || : # it is longer than the array
    echo repair >$md/sync_action
    finished
    head -c "$(blockdev --getsize64 /dev/md0)" /dev/md0 >model
    stop_md
}

# A device over the first member, on which its bad sectors are: dust or error.
spoil() {
    local from=$((DATA_OFFSET + BAD))
    case $1 in
        dust) echo "0 $SECTORS dust $sound 0 512" | dmsetup create hurt --noudevsync ;;
        error)
            dmsetup create hurt --noudevsync <<TABLE
0 $from linear $sound 0
$from $COUNT error
$((from + COUNT)) $((SECTORS - from - COUNT)) linear $sound $((from + COUNT))
TABLE
            ;;
    esac
    dmsetup mknodes hurt
    members[0]=/dev/mapper/hurt
    [ "$1" = error ] && return
    local sector
    for ((sector = from; sector < from + COUNT; sector++)); do dmsetup message hurt 0 addbadblock $sector; done
    dmsetup message hurt 0 enable
}

# The member as it was, with other bytes where it was bad.
unspoil() {
    dmsetup remove --noudevsync hurt
    members[0]=$sound
    dd if=pool of="$sound" bs=512 seek=$((DATA_OFFSET + BAD)) count=$COUNT skip=77 conv=notrunc,fsync status=none
}

assemble() {
    mdadm --assemble --quiet --run /dev/md0 "${members[@]}" || fail "md does not assemble them"
    [ "$(<$md/array_state)" != read-auto ] || mdadm --readwrite --quiet /dev/md0
    finished
}
# md reads everything there is.
md_reads_all() {
    echo "${1:-check}" >$md/sync_action
    finished
}
# Of the first member: FIRST COUNT, from its data on; md counts from its start.
bad_by_md() { awk -v offset=$DATA_OFFSET '{ print $1 - offset, $2 }' $md/rd0/bad_blocks | xargs; }

serve() {
    blockdev --flushbufs "${members[@]}"
    "$mdspace" serve "${members[@]}" --nbd "unix:$PWD/nbd.socket" --control control.socket >serve.log 2>&1 &
    server=$!
    until_true status >/dev/null
}
stop_serving() {
    "$mdspace" stop --control control.socket >/dev/null
    wait $server || fail "the server did not end well: $(<serve.log)"
    blockdev --flushbufs "${members[@]}"
}
# All is read, as often as it takes for every copy to be asked.
we_read_all() {
    until_true reads_until "$1"
}
reads_until() {
    qemu-io -f raw -c "read -q 0 $(stat --format=%s model)" "nbd+unix:///?socket=$PWD/nbd.socket" >/dev/null || fail "not read"
    says "$1"
}
ours() { status | jq ".members[] | select(.slot == 0) | .$1"; }
corrected() { od --address-radix=n --format=u4 --skip-bytes=$((4096 + 164)) --read-bytes=4 "$1" | tr -d ' '; }

we_write_over_it() {
    cp model patch
    dd if=pool of=model bs=1M count=8 skip=3 seek=0 conv=notrunc status=none
    truncate -s "$(stat --format=%s patch)" model
    qemu-io -f raw -c "write -q -s model 0 $(stat --format=%s model)" -c flush \
        "nbd+unix:///?socket=$PWD/nbd.socket" >/dev/null || fail "not written"
}

# The verdict: md has all slots, nothing amiss, and the bytes.
judged() {
    assemble
    is $md/degraded 0 || fail "md finds slots that are not current"
    cmp model /dev/md0 || fail "the array's bytes are others"
    md_reads_all check
    is $md/mismatch_cnt 0 || fail "mismatch_cnt is $(<$md/mismatch_cnt)"
    [ "$(bad_by_md)" = "${1:-}" ] || fail "md's bad blocks: $(bad_by_md)"
    stop_md
}

both_count_what_they_put_right() {
    local side
    declare -A counted
    for side in md ours; do
        blank
        create
        spoil dust
        if [ $side = md ]; then
            assemble
            md_reads_all repair
            stop_md
        else
            serve
            we_read_all ".members[0].corrected_sectors > 0"
            stop_serving
        fi
        counted[$side]=$(corrected "$sound")
        dmsetup remove --noudevsync hurt
        members[0]=$sound
        judged
    done
    [ "${counted[ours]}" = $COUNT ] || fail "we counted ${counted[ours]} sectors"
    [ "${counted[md]}" = $COUNT ] || echo "note: level $level: md counted ${counted[md]} sectors, we ${counted[ours]}"
}

we_honour_mds_bad_blocks() {
    blank
    create
    spoil error
    assemble
    md_reads_all repair
    local bad
    bad=$(bad_by_md)
    [ -n "$bad" ] || fail "md has no bad blocks"
    stop_md
    unspoil
    serve
    [ "$(ours bad_bytes)" = $((${bad#* } * 512)) ] || fail "we see $(ours bad_bytes) bad bytes, md had $bad"
    we_read_all true
    stop_serving
    "$mdspace" read "${members[@]}" -o found && cmp model found || fail "we read otherwise"
    serve
    we_write_over_it
    until_true says '.members[0].bad_bytes == 0'
    stop_serving
    judged ""
}

md_honours_our_bad_blocks() {
    blank
    create
    spoil error
    serve
    we_read_all ".members[0].bad_bytes > 0"
    [ "$(ours bad_bytes)" = $((COUNT * 512)) ] || fail "we have $(ours bad_bytes) bad bytes"
    [ "$(ours state)" = '"in_sync"' ] || fail "it is $(ours state)"
    stop_serving
    unspoil
    assemble
    [ "$(bad_by_md)" = "$BAD $COUNT" ] || fail "md's bad blocks: $(bad_by_md)"
    cmp model /dev/md0 || fail "md reads other bytes"
    # What md writes there is good again, for both.
    dd if=model of=/dev/md0 bs=1M conv=notrunc,fsync status=none
    md_reads_all repair
    [ "$(bad_by_md)" = "" ] || fail "md's bad blocks are still: $(bad_by_md)"
    stop_md
    judged ""
    "$mdspace" read "${members[@]}" -o found && cmp model found || fail "we read otherwise"
}

our_failed_writes_are_bad_blocks_to_md() {
    blank
    create
    spoil error
    serve
    we_write_over_it
    says '.members[0].bad_bytes > 0' || fail "we have no bad blocks"
    stop_serving
    unspoil
    assemble
    [ -n "$(bad_by_md)" ] || fail "md sees no bad blocks"
    cmp model /dev/md0 || fail "md reads other bytes"
    md_reads_all check
    is $md/mismatch_cnt 0 || fail "mismatch_cnt is $(<$md/mismatch_cnt)"
    stop_md
}

scenes=0
for level in "$@"; do
    count=${MEMBERS[$level]}
    for scene in both_count_what_they_put_right we_honour_mds_bad_blocks md_honours_our_bad_blocks \
        our_failed_writes_are_bad_blocks_to_md; do
        $scene
        scenes=$((scenes + 1))
    done
    echo "level $level: done"
done
echo "$scenes scenes of bad blocks, each taken over by md, checked clean"
