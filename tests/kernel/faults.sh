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
. "$(dirname "$0")/common.sh"
export DM_DISABLE_UDEV=1
for module in dm-mod dm-dust dm-flakey; do modprobe $module; done

MEMBER_BYTES=$((16 << 20))
SECTORS=$((MEMBER_BYTES / 512))
head -c $MEMBER_BYTES /dev/urandom >pool

where() { echo "level $level, $fault, $side"; }
evidence() {
    status || :
    cat serve.log client.log
}

# The first member's device: what it is made of can be changed while it is used.
load() { # TABLE
    dmsetup suspend --nolockfs --noflush hurt
    dmsetup load hurt --table "$1"
    dmsetup resume --noudevsync hurt
}
hurt_it() {
    case $fault in
        "reads of some sectors fail until written")
            load "$(table dust)"
            make_dust_bad
            ;;
        "some sectors fail") load "$(table error)" ;;
        "everything fails") load "0 $SECTORS flakey $sound 0 0 1000" ;;
        "writes fail") load "0 $SECTORS flakey $sound 0 0 1000 1 error_writes" ;;
    esac
}

is_all_written() { [[ "$(dmsetup message hurt 0 countbadblocks)" == *" 0 badblock"* ]]; }

create() {
    blank "$count"
    create_full
    cover linear
    bytes=$(stat --format=%s model)
}

begin() {
    case $side in
        md) assemble_and_finish "${members[@]}" ;;
        ours) serve "${members[@]}" ;;
    esac
}
# By a client, past the page cache; then every copy and parity, and by a client again.
read_all() {
    read_by_client || return 1
    case $side in
        md) sweep repair ;;
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
        ours) qemu-img convert -f raw -O raw "$url" found 2>client.log ;;
    esac || return 1
    cmp --silent --bytes="$bytes" model found || fail "other bytes are read"
}
write_all() {
    case $side in
        md) dd if=next of=/dev/md0 bs=256k oflag=direct conv=fsync status=none 2>client.log ;;
        ours) qemu-io -f raw -c "write -q -s next 0 $bytes" -c flush "$url" >client.log 2>&1 ;;
    esac || return 1
    cp next model
}
end() {
    case $side in
        md) stop_md ;;
        ours) stop_serving ;;
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
    load "$(table linear)"
    local rest=("${members[@]}")
    [ "$1" != leaves ] || rest=("${members[@]:1}")
    assemble_and_finish "${rest[@]}"
    head -c "$bytes" /dev/md0 | cmp --silent - model || fail "md reads other bytes afterwards"
    if [ "$1" = leaves ]; then
        mdadm --zero-superblock --quiet "${members[0]}"
        mdadm --add --quiet /dev/md0 "${members[0]}"
        recovered
    fi
    dd if=model of=/dev/md0 bs=1M conv=notrunc,fsync status=none # what is bad is written again
    sweep repair
    checked
    [ -z "$(<$md/rd0/bad_blocks)" ] || fail "bad blocks are left: $(<$md/rd0/bad_blocks)"
    is $md/degraded 0 || fail "md finds slots that are not current"
    head -c "$bytes" /dev/md0 | cmp --silent - model || fail "md reads other bytes at last"
    stop_md
    uncover
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
