#!/bin/bash
# Metadata 0.90 in use: members that are added, rebuilt, taken back by the bitmap, and arrays that grow, by mdspace and by the
# real driver. The one goes on with what the other has begun or has done.
#
#   old.sh MDSPACE [LEVEL...]
#
# Runs in a guest (tests/kernel/init.sh). After each scene the driver assembles the members without --force, finds every slot
# current, its `check` counts no mismatch, and the array's bytes are those of `model`; and mdadm finds an active member's
# number to be its slot.
set -euo pipefail
mdspace=$1
shift
[ $# -gt 0 ] || set -- 1 5 6 10
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/members.sh"

MEMBER_BYTES=$((12 << 20)) LONGER_BYTES=$((16 << 20))
head -c $((32 << 20)) /dev/urandom >pool

where() { echo "level $level, bitmap $bitmap, $scene"; }
evidence() {
    status || :
    mdadm --examine "${members[@]}"
}

create() { # MEMBER...
    local chunk=(--chunk=64) with=(--bitmap=none)
    [ "$level" != 1 ] || chunk=()
    [ "$bitmap" != internal ] || with=(--bitmap=internal --bitmap-chunk=256)
    mdadm --create /dev/md0 --quiet --run --metadata=0.90 --level="$level" "${chunk[@]}" "${with[@]}" --assume-clean \
        --raid-devices="$count" "$@"
    fill
    sweep repair
    take_model
    stop_md
}

# Every member's list has that many active, in the order of their slots, and so many devices in all.
is_listed() { # ACTIVE TOTAL MEMBER...
    local member
    for member in "${@:3}"; do
        mdadm --examine "$member" >examined
        local active
        active=$(sed -n '/^this/d; s/^ *[0-9]* *\([0-9]*\) *[0-9]* *[0-9]* *\([0-9]*\) *active sync.*/\1 \2/p' examined)
        [ "$active" = "$(seq 0 $(($1 - 1)) | sed 's/.*/& &/')" ] || fail "$member lists as active: $active"
        grep -q "^ *Total Devices : $2\$" examined || fail "$member: $(grep 'Total Devices' examined), not $2"
    done
}

we_add_a_member() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    serve "${members[@]:0:count}"
    control fail "${members[1]}"
    control remove "${members[1]}"
    poke_served 1024
    control add "${members[count]}"
    poke_served 2048
    until_true is_whole
    poke_served 3072
    stop_serving
    is_listed "$count" "$count" "${members[0]}" "${members[@]:2}"
    judged "${members[0]}" "${members[@]:2}"
    # The one that left calls itself what the new one is. It is known to be stale, to both.
    serve "${members[@]}"
    is_whole || fail "with the member that left, the array is not whole"
    stop_serving
    judged "${members[@]}"
}

mds_spare_takes_over() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    assemble "${members[@]:0:count}"
    mdadm --add --quiet /dev/md0 "${members[count]}"
    stop_md
    serve "${members[@]}"
    control fail "${members[0]}"
    poke_served 512
    until_true is_whole
    stop_serving
    is_listed "$count" "$count" "${members[@]:1}"
    judged "${members[@]:1}"
}

our_spare_takes_over() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    serve "${members[@]:0:count}"
    control add "${members[count]}"
    stop_serving
    is_listed "$count" $((count + 1)) "${members[@]}"
    assemble "${members[@]}"
    md_lets_go_of "${members[0]}"
    poke_md 512
    recovered
    stop_md
    judged "${members[@]:1}"
}

we_are_killed_and_md_finishes() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    serve "${members[@]:0:count}"
    control set sync-speed-min=$SLOWLY sync-speed-max=$SLOWLY
    control fail "${members[1]}"
    control remove "${members[1]}"
    control add "${members[count]}"
    poke_served 1024
    until_true says 'sweep.percent > 10'
    # md starts no array that is dirty, has parity and lacks a member. What is on the members counts, not what is to be.
    until_true is_marked_clean
    kill_server
    assemble "${members[0]}" "${members[@]:2}"
    recovered
    stop_md
    judged "${members[0]}" "${members[@]:2}"
}

is_marked_clean() {
    local member
    for member in "${members[0]}" "${members[@]:2}"; do mdadm --examine "$member" | grep -q 'State : clean' || return 1; done
}

md_begins_and_we_finish() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    assemble "${members[@]:0:count}"
    md_lets_go_of "${members[1]}"
    slow_md_down
    mdadm --add --quiet /dev/md0 "${members[count]}"
    until_true is_beyond 2048
    echo frozen >$md/sync_action
    poke_md 1024
    stop_md
    serve "${members[0]}" "${members[@]:2}"
    poke_served 4096
    until_true is_whole
    stop_serving
    is_listed "$count" "$count" "${members[0]}" "${members[@]:2}"
    judged "${members[0]}" "${members[@]:2}"
}

we_take_back_what_missed_mds_writes() {
    blank "$count"
    create "${members[@]}"
    assemble "${members[@]}"
    md_lets_go_of "${members[1]}"
    poke_md 2048
    stop_md
    serve "${members[0]}" "${members[@]:2}"
    poke_served 4096
    control re-add "${members[1]}"
    poke_served 1024
    until_true is_whole
    said "member('${members[1]}').written_bytes" || fail "no word of it"
    ((told < MEMBER_BYTES / 2)) || fail "$told bytes were written"
    stop_serving
    is_listed "$count" "$count" "${members[@]}"
    judged "${members[@]}"
}

md_takes_back_what_missed_our_writes() {
    blank "$count"
    create "${members[@]}"
    serve "${members[@]}"
    control fail "${members[1]}"
    poke_served 2048
    stop_serving
    assemble "${members[0]}" "${members[@]:2}"
    local before written
    before=$(sectors_written "${members[1]}")
    mdadm --re-add --quiet /dev/md0 "${members[1]}" || fail "md does not take it back"
    recovered
    written=$(($(sectors_written "${members[1]}") - before))
    ((written < MEMBER_BYTES / 512 / 2)) || fail "$written sectors were written"
    stop_md
    judged "${members[@]}"
}

# The superblock moves to the new end of each member while the array is used.
we_grow() {
    [ "$level" != 10 ] || return 0 # its bitmap and size are tested with 1.x
    blank "$count"
    create "${members[@]}"
    serve "${members[@]}"
    local member before
    said array_bytes && before=$told
    for member in "${!members[@]}"; do
        truncate -s $LONGER_BYTES "m$member"
        losetup --set-capacity "${members[$member]}"
    done
    control grow --size max
    poke_served 1024
    until_true says 'in_agreement and sweep is None'
    said array_bytes && ((told > before)) || fail "no larger than it was"
    local bytes=$told
    stop_serving
    assemble "${members[@]}"
    [ "$(blockdev --getsize64 /dev/md0)" = "$bytes" ] || fail "md finds another size"
    is $md/degraded 0 || fail "md finds slots that are not current"
    checked "grown"
    cmp -n "$(stat -c %s model)" model /dev/md0 || fail "other bytes"
    fill # to its new end
    checked "filled"
    take_model
    stop_md
    judged "${members[@]}"
}

# A spare has the number that the new slot gets.
we_add_a_copy() {
    [ "$level" = 1 ] || return 0
    blank 3
    create "${members[@]:0:2}"
    assemble "${members[@]:0:2}"
    mdadm --add --quiet /dev/md0 "${members[2]}"
    stop_md
    serve "${members[@]}"
    control grow --raid-devices 3
    poke_served 1024
    until_true says 'in_sync == 3'
    stop_serving
    is_listed 3 3 "${members[@]}"
    judged "${members[@]}"
    # And one fewer, from the middle.
    serve "${members[@]}"
    control fail "${members[0]}"
    control remove "${members[0]}"
    control grow --raid-devices 2
    poke_served 2048
    stop_serving
    is_listed 2 2 "${members[@]:1}"
    judged "${members[@]:1}"
}

for level in "$@"; do
    count=${MEMBERS[$level]}
    for bitmap in none internal; do
        scenes=(we_add_a_member mds_spare_takes_over our_spare_takes_over we_are_killed_and_md_finishes \
            md_begins_and_we_finish we_grow we_add_a_copy)
        [ $bitmap = none ] || scenes+=(we_take_back_what_missed_mds_writes md_takes_back_what_missed_our_writes)
        for scene in "${scenes[@]}"; do
            "$scene"
            echo "level $level, bitmap $bitmap: $scene"
        done
    done
done
echo "Linux $(uname -r): members of metadata 0.90 are added, rebuilt, taken back and grown, levels $*"
