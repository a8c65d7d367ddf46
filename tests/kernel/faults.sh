#!/bin/bash
# A member that really fails while it is used: the same faults, on the same devices, met by the real driver and by
# mdspace, and what became of each. Level 5 by default; 1, 6 and 10 can be asked for.
#
#   faults.sh MDSPACE [LEVEL...]
#
# Runs in a guest (tests/kernel/init.sh). Prints "LEVEL|FAULT|md: OUTCOME|ours: OUTCOME" for each. Of both sides is demanded
# that no byte which was answered is lost or wrong, while the member fails and afterwards; that md assembles what is
# left without --force and, once the member is whole again, finds no mismatch; and that an outcome is one of those that the fault allows.
set -euo pipefail
mdspace=$1
shift
[ $# -gt 0 ] || set -- 5
declare -A MEMBERS=([1]=2 [5]=4 [6]=5 [10]=4)
export MDADM_NO_UDEV=1 DM_DISABLE_UDEV=1
modprobe loop max_loop=8
for module in dm-mod dm-dust dm-flakey raid1 raid10 raid456; do modprobe $module; done
md=/sys/block/md0/md
cd "$SCRATCH"

MEMBER_BYTES=$((16 << 20))
SECTORS=$((MEMBER_BYTES / 512))
DATA_OFFSET=2048
# Sectors of the first member's data that go bad where only some do.
BAD=$((128 + 24)) COUNT=8
head -c $MEMBER_BYTES /dev/urandom >pool

fail() {
    echo "FAILED: level $level, $fault, $side: $*"
    cat /proc/mdstat
    status || :
    cat serve.log client.log || :
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
url() { echo "nbd+unix:///?socket=$PWD/nbd.socket"; }

# The first member's device: what it is made of can be changed while it is used.
load() { # TABLE
    dmsetup suspend --nolockfs --noflush hurt
    dmsetup load hurt --table "$1"
    dmsetup resume --noudevsync hurt
}
whole() { echo "0 $SECTORS linear $sound 0"; }
table() {
    local from=$((DATA_OFFSET + BAD))
    case $fault in
        "reads of some sectors fail until written") echo "0 $SECTORS dust $sound 0 512" ;;
        "some sectors fail")
            printf '%s\n' "0 $from linear $sound 0" "$from $COUNT error" \
                "$((from + COUNT)) $((SECTORS - from - COUNT)) linear $sound $((from + COUNT))"
            ;;
        "everything fails") echo "0 $SECTORS flakey $sound 0 0 1000" ;;
        "writes fail") echo "0 $SECTORS flakey $sound 0 0 1000 1 error_writes" ;;
    esac
}
hurt_it() {
    load "$(table)"
    [[ $fault == *"until written" ]] || return 0
    local sector from=$((DATA_OFFSET + BAD))
    for ((sector = from; sector < from + COUNT; sector++)); do dmsetup message hurt 0 addbadblock $sector; done
    dmsetup message hurt 0 enable
}

is_all_written() { [[ "$(dmsetup message hurt 0 countbadblocks)" == *" 0 badblock"* ]]; }

create() {
    losetup -D
    members=()
    local number chunk=(--chunk=64)
    [ "$level" != 1 ] || chunk=()
    for ((number = 0; number < count; number++)); do
        rm -f "m$number"
        truncate -s $MEMBER_BYTES "m$number"
        members+=("$(losetup --find --show "m$number")")
    done
    sound=${members[0]}
    dmsetup create hurt --noudevsync --table "$(whole)"
    dmsetup mknodes hurt
    members[0]=/dev/mapper/hurt
    mdadm --create /dev/md0 --quiet --run --metadata=1.2 --level="$level" "${chunk[@]}" --bitmap=none \
        --data-offset=$((DATA_OFFSET / 2))K --raid-devices="$count" --assume-clean "${members[@]}"
    dd if=pool of=/dev/md0 bs=1M conv=fsync status=none 2>/dev/null || : # until it is full
    echo repair >$md/sync_action
    finished
    head -c "$(blockdev --getsize64 /dev/md0)" /dev/md0 >model
    bytes=$(stat --format=%s model)
    mdadm --stop --quiet /dev/md0
}

assemble() {
    mdadm --assemble --quiet --run /dev/md0 "$@" || fail "md does not assemble them"
    [ "$(<$md/array_state)" != read-auto ] || mdadm --readwrite --quiet /dev/md0
    finished
}

begin() {
    case $side in
        md) assemble "${members[@]}" ;;
        ours)
            blockdev --flushbufs "${members[@]}"
            "$mdspace" serve "${members[@]}" --nbd "unix:$PWD/nbd.socket" --control control.socket >serve.log 2>&1 &
            server=$!
            until_true status >/dev/null
            ;;
    esac
}
# By a client, past the page cache; then every copy and parity, and by a client again.
read_all() {
    read_by_client || return 1
    case $side in
        md)
            echo repair >$md/sync_action
            finished
            ;;
        ours)
            "$mdspace" set sync-action=repair --control control.socket >/dev/null
            until_true says '.sync_action == "idle"'
            ;;
    esac
    read_by_client
}
read_by_client() {
    case $side in
        md) dd if=/dev/md0 of=found bs=1M iflag=direct status=none 2>client.log ;;
        ours) qemu-img convert -f raw -O raw "$(url)" found 2>client.log ;;
    esac || return 1
    cmp --silent --bytes="$bytes" model found || fail "other bytes are read"
}
write_all() {
    case $side in
        md) dd if=next of=/dev/md0 bs=256k oflag=direct conv=fsync status=none 2>client.log ;;
        ours) qemu-io -f raw -c "write -q -s next 0 $bytes" -c flush "$(url)" >client.log 2>&1 ;;
    esac || return 1
    cp next model
}
end() {
    case $side in
        md) mdadm --stop --quiet /dev/md0 ;;
        ours)
            "$mdspace" stop --control control.socket >/dev/null
            wait $server || fail "the server did not end well"
            blockdev --flushbufs "${members[@]}"
            ;;
    esac
}

# What became of the first member: in the array, in it with bad blocks, or out of it.
outcome() {
    case $side in
        md)
            if [ ! -e $md/rd0 ] || grep -q faulty $md/rd0/state; then echo "leaves"; return; fi
            [ -z "$(<$md/rd0/bad_blocks)" ] || { echo "has bad blocks"; return; }
            ;;
        ours)
            status | jq -r '[.members[] | select(.slot == 0 and .state != "faulty")][0] |
                if . == null then "leaves" elif .bad_bytes > 0 then "has bad blocks" else "stays" end'
            return
            ;;
    esac
    echo "stays"
}

# The member is sound again. What left is added anew; then md finds all well.
judged() {
    [[ $fault != *"until written" ]] || is_all_written || fail "the bad sectors were never met"
    load "$(whole)"
    local rest=("${members[@]}")
    [ "$1" != leaves ] || rest=("${members[@]:1}")
    assemble "${rest[@]}"
    head -c "$bytes" /dev/md0 | cmp --silent - model || fail "md reads other bytes afterwards"
    if [ "$1" = leaves ]; then
        mdadm --zero-superblock --quiet "${members[0]}"
        mdadm --add --quiet /dev/md0 "${members[0]}"
        until_true is $md/degraded 0
        finished
    fi
    dd if=model of=/dev/md0 bs=1M conv=notrunc,fsync status=none # what is bad is written again
    local action
    for action in repair check; do
        echo $action >$md/sync_action
        finished
    done
    [ -z "$(<$md/rd0/bad_blocks)" ] || fail "bad blocks are left: $(<$md/rd0/bad_blocks)"
    is $md/mismatch_cnt 0 || fail "mismatch_cnt is $(<$md/mismatch_cnt)"
    is $md/degraded 0 || fail "md finds slots that are not current"
    head -c "$bytes" /dev/md0 | cmp --silent - model || fail "md reads other bytes at last"
    mdadm --stop --quiet /dev/md0
    dmsetup remove --noudevsync hurt
}

# What happens while the member fails: all is read, or all is written and read.
meet() {
    create
    cp model next
    dd if=pool of=next bs=1M skip=3 conv=notrunc status=none
    begin
    hurt_it
    local answer="all answered"
    case $fault in
        *"until written") read_all || answer="NOT READ" ;;
        *) write_all && read_all || answer="NOT ANSWERED" ;;
    esac
    result[$side]=$(outcome)
    end
    [ "$answer" = "all answered" ] || fail "$answer, the member ${result[$side]}"
    judged "${result[$side]}"
}

# What a fault allows.
allowed() {
    case $fault in
        *"until written") [ "$1" = stays ] ;;
        "some sectors fail") [ "$1" = "has bad blocks" ] ;;
        "writes fail" | "everything fails") [ "$1" = leaves ] ;; # nor can it keep a log of bad blocks
    esac
}

count_of_faults=0
for level in "$@"; do
    count=${MEMBERS[$level]}
    for fault in "reads of some sectors fail until written" "some sectors fail" "writes fail" \
        "everything fails"; do
        declare -A result=()
        for side in md ours; do
            meet
            allowed "${result[$side]}" || fail "the member ${result[$side]}"
        done
        echo "RAID-$level|$fault|md: ${result[md]}|ours: ${result[ours]}"
        count_of_faults=$((count_of_faults + 1))
    done
done
echo "$count_of_faults faults met by both, no byte lost, each clean afterwards"
