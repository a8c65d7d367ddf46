#!/bin/bash
# Members that really fail while they are used: the same faults, on the same devices, met by the real driver and by
# mdspace, and what became of each.
#
#   faults.sh MDSPACE [ARRAY...]
#
# Runs in a guest (tests/kernel/init.sh). Prints "ARRAY|FAULT|md: OUTCOME|ours: OUTCOME" for each of ARRAYS below. Of both
# sides is demanded that all is answered, and no byte that was answered is lost or wrong, while members fail and afterwards;
# that md assembles what is left without --force and, once the members are whole again, finds no mismatch; and that each
# of them came to what the fault allows. There is one such outcome for each fault, so the sides never differ in it.
set -euo pipefail
mdspace=$1
shift
# ARRAY: its level, how many members it has, and the numbers of those that fail. Where they are as many as it can do
# without, what the sound ones hold is all there is.
declare -A ARRAYS=(
    [raid1]="1 2 0"
    [raid1-two-of-three]="1 3 0 1"
    [raid5]="5 4 0"
    [raid6]="6 5 0"
    [raid6-two]="6 5 0 1"
    [raid10-one-of-each-pair]="10 4 0 2"
)
[ $# -gt 0 ] || set -- raid1 raid1-two-of-three raid5 raid6 raid6-two raid10-one-of-each-pair
. "$(dirname "$0")/common.sh"
export DM_DISABLE_UDEV=1
for module in dm-mod dm-dust dm-flakey; do modprobe $module; done

MEMBER_BYTES=$((4 << 20))
SECTORS=$((MEMBER_BYTES / 512))
head -c $((12 << 20)) /dev/urandom >pool # more than any of the arrays holds, by as much as `next` is further on

where() { echo "$array, $fault, $side"; }
evidence() {
    status || :
    cat serve.log
}

# load NUMBER TABLE: what a member's device is made of can be changed while it is used.
load() {
    dmsetup load "hurt$1" --table "$2"
    dmsetup resume --nolockfs --noflush --noudevsync "hurt$1"
}
hurt() { # NUMBER
    local flaky="0 $SECTORS flakey ${sound[$1]} 0 0 1000"
    case $fault in
        "reads of some sectors fail until written")
            load "$1" "$(table dust "$1")"
            make_dust_bad "$1"
            ;;
        "some sectors fail") load "$1" "$(table error "$1")" ;;
        "everything fails") load "$1" "$flaky" ;;
        "writes fail") load "$1" "$flaky 1 error_writes" ;;
    esac
}

is_all_written() { [[ "$(dmsetup message "hurt$1" 0 countbadblocks)" == *" 0 badblock"* ]]; } # NUMBER

create() {
    blank "$count"
    create_full
    cover linear "${hurt[@]}"
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
            until_true says 'sync_action == "idle"'
            ;;
    esac
    read_by_client
}
read_by_client() {
    : >found
    case $side in
        md) hand copy /dev/md0 0 found 0 -1 afresh ;;
        ours) hand receive found ;;
    esac || return 1
    hand alike model found -1 || fail "other bytes are read"
}
write_all() {
    case $side in
        md) hand copy next 0 /dev/md0 0 -1 direct sync ;;
        ours) hand send next 0 -1 ;;
    esac || return 1
    hand copy next 0 model 0 -1
}
end() {
    case $side in
        md) stop_md ;;
        ours) stop_serving ;;
    esac
}

# What became of a member: in the array, in it with bad blocks, or out of it.
outcome() { # NUMBER
    local slot=$md/rd$1
    case $side in
        md)
            if [ ! -e "$slot" ] || grep -q faulty "$slot/state"; then
                echo leaves
            elif [ -n "$(<"$slot/bad_blocks")" ]; then
                echo "has bad blocks"
            else
                echo stays
            fi
            ;;
        ours)
            said "next((m.bad_bytes for m in members if m.slot == $1 and m.state != 'faulty'), 'none')"
            case $told in
                none) echo leaves ;;
                0) echo stays ;;
                *) echo "has bad blocks" ;;
            esac
            ;;
    esac
}

# The members are sound again. Those that left are added anew; then md finds all well.
judged() {
    local number rest=("${members[@]}")
    for number in "${hurt[@]}"; do
        [[ $fault != *"until written" ]] || is_all_written "$number" || fail "the bad sectors of $number were never met"
        load "$number" "$(table linear "$number")"
        [ "$allowed" != leaves ] || unset "rest[number]"
    done
    assemble_and_finish "${rest[@]}"
    hand alike model /dev/md0 -1 || fail "md reads other bytes afterwards"
    if [ "$allowed" = leaves ]; then
        for number in "${hurt[@]}"; do
            mdadm --zero-superblock --quiet "${members[number]}"
            mdadm --add --quiet /dev/md0 "${members[number]}"
        done
        recovered
    fi
    hand copy model 0 /dev/md0 0 -1 sync # what is bad is written again
    sweep repair
    checked
    is $md/degraded 0 || fail "md finds slots that are not current"
    for ((number = 0; number < count; number++)); do
        [ -z "$(<$md/rd$number/bad_blocks)" ] || fail "bad blocks of $number are left: $(<$md/rd$number/bad_blocks)"
    done
    hand alike model /dev/md0 -1 || fail "md reads other bytes at last"
    stop_md
    uncover
}

# What happens while members fail: all is read, or all is written and read.
meet() {
    create
    : >next
    hand copy pool $((3 << 20)) next 0 "$bytes"
    begin
    local number
    for number in "${hurt[@]}"; do hurt "$number"; done
    local answer="all answered"
    case $fault in
        *"until written") read_all || answer="NOT READ: $told" ;;
        *) write_all && read_all || answer="NOT ANSWERED: $told" ;;
    esac
    result[$side]=$(for number in "${hurt[@]}"; do outcome "$number"; done | uniq | paste --serial --delimiters=/)
    end
    [ "$answer" = "all answered" ] || fail "$answer, member ${hurt[*]}: ${result[$side]}"
    [ "${result[$side]}" = "$allowed" ] || fail "member ${hurt[*]}: ${result[$side]}, not: $allowed"
    judged
}

# What a fault comes to. A member that takes no writes can keep no log of bad blocks either.
declare -A OUTCOMES=(
    ["reads of some sectors fail until written"]="stays"
    ["some sectors fail"]="has bad blocks"
    ["writes fail"]="leaves"
    ["everything fails"]="leaves"
)

count_of_faults=0
for array in "$@"; do
    read -r level count numbers <<<"${ARRAYS[$array]}"
    read -ra hurt <<<"$numbers"
    for fault in "reads of some sectors fail until written" "some sectors fail" "writes fail" "everything fails"; do
        allowed=${OUTCOMES[$fault]}
        declare -A result=()
        for side in md ours; do meet; done
        echo "$array|$fault|md: ${result[md]}|ours: ${result[ours]}"
        count_of_faults=$((count_of_faults + 1))
    done
done
echo "$count_of_faults faults met by both, no byte lost, each clean afterwards"
