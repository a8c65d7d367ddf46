#!/bin/bash
# Reshapes to more members: begun by mdspace and ended by the driver, and begun by the driver and ended by mdspace.
#
#   more_slots.sh MDSPACE CUTS CASES...   CUTS: what crates/sim/examples/reshape_cuts.rs has written; CASES: numbers in it
#
# Runs in a guest (tests/kernel/init.sh). Each member set of CUTS is of a reshape that lost power at another write. The driver
# must assemble it, end the reshape if one is under way, and have the bytes from before. Then its check finds nothing.
# mdadm refuses members whose superblocks differ in the number of slots, as in the round that begins a reshape, its own or
# ours: the driver alone takes them. Ends with status 1 at the first that is otherwise.
set -euo pipefail
mdspace=$1 cuts=$2
shift 2
. "$(dirname "$0")/common.sh"

MEMBER_BYTES=$((14 << 20))
scene=
old=0 amid=0 new=0 alone=0 taken=0

where() { echo "$scene"; }
evidence() {
    cat notes
    mdadm --examine "${members[@]}" | grep -E "Reshape|Delta|Position|Offset|Events|Raid Devices|Role|Feature" || true
}
is_done() { is $md/reshape_position none; }
# What mdadm has left in the background watches for what no longer comes.
end_mdadm() {
    pkill -KILL --exact mdadm || true
    until_true ended
}
ended() { ! pgrep --exact mdadm >/dev/null; }
goes_to_its_end() {
    echo max >$md/sync_max
    is_done
}

# judged MODEL: md has these bytes first, and nothing is amiss.
judged() {
    local bytes
    bytes=$(stat --format %s "$1")
    cmp -n "$bytes" "$1" /dev/md0 || fail "md has other bytes"
    allow_writes
    until_true goes_to_its_end
    end_mdadm
    finished
    cmp -n "$bytes" "$1" /dev/md0 || fail "md has other bytes at the end of the reshape"
    checked
}

# cut DIRECTORY MODEL: the driver takes these members, and ends what they are in.
cut() {
    local taken is_amid=
    hand attach "$1"/m? || fail "$told"
    read -ra taken <<<"$told"
    members=("${taken[@]}")
    # An announced reshape is at md's largest position, and is none.
    ! mdadm --examine "${taken[@]}" | grep --quiet "Reshape pos'n : [0-9]\{1,15\}\( \|$\)" || is_amid=yes
    if ! mdadm --assemble --run /dev/md0 "${taken[@]}" >notes 2>&1 && grep --quiet "doesn't match others" notes; then
        without_mdadm
    fi
    [ -e $md/reshape_position ] && ! is $md/array_state inactive || fail "md does not assemble them: $(<notes)"
    judged "$2"
    if [ -n "$is_amid" ]; then ((++amid)); elif is $md/raid_disks ${#taken[@]}; then ((++new)); else ((++old)); fi
    stop_md
    losetup --detach "${taken[@]}"
}

without_mdadm() {
    local member
    [ -e $md ] || echo md0 >/sys/module/md_mod/parameters/new_array
    echo 1.2 >$md/metadata_version
    for member in "${members[@]}"; do cat "/sys/block/${member#/dev/}/dev" >$md/new_dev; done
    echo active >$md/array_state || fail "the driver does not start it"
    ((++alone))
}

# begun_by_md SLOTS STEP CREATE-ARGUMENTS: the driver stops at that many KiB of each member, and mdspace goes on.
begun_by_md() {
    local slots=$1 step=$2 status=0
    shift 2
    scene="begun by md: $*, to $slots members, at $step KiB"
    blank "$slots"
    mdadm --create /dev/md0 --quiet --run --assume-clean --raid-devices=$((slots - 1)) "$@" "${members[@]:0:slots-1}"
    fill
    take_model
    mdadm --quiet /dev/md0 --add "${members[slots - 1]}"
    until_true is $md/array_state clean
    echo 1 >$md/sync_speed_max
    mdadm --grow --quiet /dev/md0 --raid-devices="$slots" >notes 2>&1 || fail "$(<notes)"
    echo 2000 >$md/sync_speed_max
    until_true has_come "$step"
    end_mdadm
    echo frozen >$md/sync_action
    stop_md
    until_true released
    "$mdspace" grow --continue "${members[@]}" >notes 2>&1 || status=$?
    [ $status = 0 ] || fail "status $status: $(<notes)"
    flushed
    assemble "${members[@]}"
    is $md/degraded 0 && is $md/raid_disks "$slots" || fail "md finds $(<$md/raid_disks) slots, $(<$md/degraded) of them empty"
    finished
    cmp -n "$(stat --format %s model)" model /dev/md0 || fail "md has other bytes"
    checked
    stop_md
    ((++taken))
}
has_come() { # so many KiB on each member
    local line
    line=$(</proc/mdstat)
    [[ $line =~ reshape\ =.*\(([0-9]+)/ ]] && [ "${BASH_REMATCH[1]}" -ge "$1" ]
}

head -c $((40 << 20)) /dev/urandom >pool
for case in "$@"; do
    for place in $(printf '%s\n' "$cuts/$case"/*/ | sort -V); do
        scene="power cut, $place"
        rm -rf now
        mkdir now
        cp "$place"m? now/
        cut now "$cuts/$case/model"
    done
done
begun_by_md 4 3000 --level=5 --chunk=64
begun_by_md 5 2000 --level=6 --chunk=32 --bitmap=internal
echo "$((old + amid + new)) power cuts amid reshapes of mdspace taken by the driver: $old in the old shape, $amid amid the reshape, \
$new in the new shape, $alone without mdadm; $taken reshapes of the driver ended by mdspace; all with their bytes, and clean"
