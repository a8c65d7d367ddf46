#!/bin/bash
# Recovery begun by one side and finished by the other, members taken back by their bitmap, spares that took over, and
# members replaced while they stay in use: mdspace and the real driver on the same members, levels 1, 5, 6 and 10.
#
#   recovery.sh MDSPACE [LEVEL...]
#
# Runs in a guest (tests/kernel/init.sh). After each scene the driver assembles the members without --force, finds
# every slot current, its `check` counts no mismatch, and the array's bytes are those of `model`.
set -euo pipefail
mdspace=$1
shift
[ $# -gt 0 ] || set -- 1 5 6 10
. "$(dirname "$0")/common.sh"

MEMBER_BYTES=$((24 << 20))
POOL_BYTES=$((16 << 20))
head -c $POOL_BYTES /dev/urandom >pool

where() { echo "level $level, $scene"; }
evidence() {
    status || :
    mdadm --examine "${members[@]}"
}

create() { # MEMBER...
    local with=(--bitmap=none)
    [ "$bitmap" != internal ] || with=(--bitmap=internal --bitmap-chunk=256)
    create_by_md 64 "${with[@]}" "$@"
    fill
    take_model
}

# poke OFFSET_KIB: what is written there next, of the model and of the array.
POKE_BYTES=$((160 << 10))
poke_model() { hand copy pool $((($1 / 4 * 7 + 13) % 4000 * 4096)) model $(($1 << 10)) $POKE_BYTES; }
poke_md() {
    poke_model "$1"
    hand copy model $(($1 << 10)) /dev/md0 $(($1 << 10)) $POKE_BYTES sync || fail "md does not take it: $told"
}
poke_served() {
    poke_model "$1"
    hand send model $(($1 << 10)) $POKE_BYTES || fail "our server does not take it: $told"
}

control() { "$mdspace" "$@" --control control.socket >/dev/null || fail "refused: $*"; }
# written_by_us MEMBER: so many bytes, in $told.
written_by_us() { said "member('$1').written_bytes" || fail "no word of $1: $told"; }
is_whole() { says 'in_sync == raid_disks'; }

# The verdict: md assembles what is given, all slots current, nothing to do, nothing amiss.
judged() { # MEMBER...
    found_whole "$@"
    stop_md
}

we_recover_onto_a_new_member() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    stop_md
    serve "${members[@]:0:count}"
    control fail "${members[1]}"
    control remove "${members[1]}"
    poke_served 1024
    control add "${members[count]}"
    poke_served 2048
    until_true is_whole
    stop_serving
    judged "${members[0]}" "${members[@]:2}"
}

a_spare_takes_over() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    mdadm --add --quiet /dev/md0 "${members[count]}"
    stop_md
    serve "${members[@]}"
    control fail "${members[0]}"
    poke_served 512
    until_true is_whole
    stop_serving
    judged "${members[@]}" # the failed one is known to be stale
}

md_begins_and_we_finish() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    mdadm --fail --quiet /dev/md0 "${members[1]}"
    until_true mdadm --remove --quiet /dev/md0 "${members[1]}" 2>/dev/null
    echo 1000 >$md/sync_speed_max
    echo 1000 >$md/sync_speed_min
    mdadm --add --quiet /dev/md0 "${members[count]}"
    until_true is_beyond 2048
    echo frozen >$md/sync_action
    poke_md 1024
    stop_md
    local offset
    offset=$(superblock_number "${members[count]}" "Recovery Offset")
    [ "${offset:-0}" -gt 0 ] || fail "md left no recovery offset"
    "$mdspace" read "${members[0]}" "${members[@]:2}" -o ours && cmp model ours || fail "read otherwise"
    serve "${members[0]}" "${members[@]:2}"
    poke_served 4096
    until_true is_whole
    written_by_us "${members[count]}"
    local written=$told
    ((written < MEMBER_BYTES - offset * 512)) || fail "$written bytes were written from sector $offset on"
    stop_serving
    judged "${members[0]}" "${members[@]:2}"
}
is_beyond() { [ "$(sed -n 's/ \/.*//p' $md/sync_completed)" != "" ] && [ "$(sed 's/ .*//' $md/sync_completed)" -gt "$1" ]; }

we_begin_and_md_finishes() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    stop_md
    serve "${members[@]:0:count}"
    control set sync-speed-min=1M sync-speed-max=1M
    control fail "${members[1]}"
    control remove "${members[1]}"
    control add "${members[count]}"
    until_true says 'sweep.percent > 5'
    control set sync-action=frozen
    poke_served 1024
    poke_served 8192
    stop_serving
    mdadm --examine "${members[count]}" | grep -q 'Recovery Offset' || fail "no recovery offset is left"
    dmesg --clear
    assemble "${members[0]}" "${members[@]:2}"
    recovered
    dmesg | grep -q 'md: recovery of RAID array md0' || fail "md had nothing to recover"
    stop_md
    judged "${members[0]}" "${members[@]:2}"
}

md_takes_back_what_missed_our_writes() {
    blank "$count"
    create "${members[@]}"
    stop_md
    serve "${members[@]}"
    control fail "${members[1]}"
    poke_served 2048
    stop_serving
    assemble "${members[0]}" "${members[@]:2}"
    local before
    before=$(sectors_written "${members[1]}")
    mdadm --re-add --quiet /dev/md0 "${members[1]}" || fail "md does not take it back"
    recovered
    local written=$(($(sectors_written "${members[1]}") - before))
    ((written < MEMBER_BYTES / 512 / 2)) || fail "$written sectors were written"
    stop_md
    judged "${members[@]}"
}

we_take_back_what_missed_mds_writes() {
    blank "$count"
    create "${members[@]}"
    finished
    stop_md
    assemble "${members[@]}"
    mdadm --fail --quiet /dev/md0 "${members[1]}"
    until_true mdadm --remove --quiet /dev/md0 "${members[1]}" 2>/dev/null
    poke_md 2048
    stop_md
    serve "${members[0]}" "${members[@]:2}"
    poke_served 4096
    control re-add "${members[1]}"
    poke_served 1024
    until_true is_whole
    written_by_us "${members[1]}"
    local written=$told
    ((written < MEMBER_BYTES / 2)) || fail "$written bytes were written"
    stop_serving
    judged "${members[@]}"
}

we_take_back_what_we_let_go() {
    blank "$count"
    create "${members[@]}"
    stop_md
    serve "${members[@]}"
    control fail "${members[1]}"
    control remove "${members[1]}"
    poke_served 2048
    # Before Linux 6.13 the ring lets go of a member only after a second, and then of what the refused `add` opened.
    until_true is_refused_as_used "${members[1]}"
    until_true is_taken_back "${members[1]}"
    poke_served 1024
    until_true is_whole
    written_by_us "${members[1]}"
    local written=$told
    ((written < MEMBER_BYTES / 2)) || fail "$written bytes were written"
    stop_serving
    judged "${members[@]}"
}

we_replace_a_member() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    stop_md
    serve "${members[@]:0:count}"
    poke_served 512
    control replace "${members[1]}" "${members[count]}"
    poke_served 2048
    until_true has_place "${members[count]}"
    poke_served 4096
    stop_serving
    judged "${members[@]}" # the old one is known to be faulty
    judged "${members[0]}" "${members[@]:2}"
}

# A replacement that one side left half done: prints how many bytes it still has to get, at the most.
left_half_done() { # OLD NEW
    mdadm --examine "$2" | grep -q 'Device Role : Replacement device 1$' || fail "no replacement of slot 1 is left"
    mdadm --examine "$1" | grep -q 'Device Role : Active device 1$' || fail "the member has lost its slot"
    local offset
    offset=$(superblock_number "$2" "Recovery Offset")
    [ "${offset:-0}" -gt 0 ] || fail "no recovery offset is left"
    echo $((MEMBER_BYTES - offset * 512))
}
has_place() { says "member('$1').state == 'in_sync'"; }
has_md_place() { # a member that md calls in sync and no replacement
    local state
    state=$(<"$md/dev-${1#/dev/}/state")
    [[ ,$state, == *,in_sync,* && ,$state, != *,replacement,* ]]
}

md_begins_to_replace() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    finished
    mdadm --add --quiet /dev/md0 "${members[count]}"
    echo 1000 >$md/sync_speed_max
    echo 1000 >$md/sync_speed_min
    mdadm --replace /dev/md0 "${members[1]}" --with "${members[count]}" 2>mdadm.log || fail "$(<mdadm.log)"
    until_true is_beyond 2048
    echo frozen >$md/sync_action
    poke_md 1024
    stop_md
}

md_begins_to_replace_and_we_finish() {
    md_begins_to_replace
    local left
    left=$(left_half_done "${members[1]}" "${members[count]}") || { echo "$left"; exit 1; }
    "$mdspace" read "${members[@]}" -o ours && cmp model ours || fail "read otherwise"
    serve "${members[@]}"
    poke_served 4096
    until_true has_place "${members[count]}"
    written_by_us "${members[count]}"
    local written=$told
    ((written < left)) || fail "$written bytes were written, where $left were left"
    stop_serving
    judged "${members[@]}" # the old one is known to be faulty
    judged "${members[0]}" "${members[@]:2}"
}

md_begins_to_replace_and_the_old_one_is_gone() {
    md_begins_to_replace
    serve "${members[0]}" "${members[@]:2}"
    poke_served 4096
    until_true has_place "${members[count]}"
    stop_serving
    judged "${members[0]}" "${members[@]:2}"
}

we_begin_to_replace() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    stop_md
    serve "${members[@]:0:count}"
    control set sync-speed-min=1M sync-speed-max=1M
    control replace "${members[1]}" "${members[count]}"
    until_true says 'sweep.percent > 10'
    control set sync-action=frozen
    poke_served 1024
    poke_served 8192
}

we_begin_to_replace_and_md_finishes() {
    we_begin_to_replace
    stop_serving
    local left
    left=$(left_half_done "${members[1]}" "${members[count]}") || { echo "$left"; exit 1; }
    dmesg --clear
    local before
    before=$(sectors_written "${members[count]}")
    assemble "${members[@]}"
    until_true has_md_place "${members[count]}"
    finished
    dmesg | grep -q 'md: recovery of RAID array md0' || fail "md had nothing to recover"
    local written=$((($(sectors_written "${members[count]}") - before) * 512))
    ((written < left + (1 << 20))) || fail "md wrote $written bytes, where $left were left"
    stop_md
    judged "${members[0]}" "${members[@]:2}"
}

we_begin_to_replace_and_the_old_one_fails() {
    we_begin_to_replace
    control fail "${members[1]}"
    poke_served 4096
    stop_serving
    assemble "${members[0]}" "${members[@]:2}"
    recovered
    stop_md
    judged "${members[0]}" "${members[@]:2}"
}

we_begin_to_replace_and_the_old_one_fails_with_md() {
    we_begin_to_replace
    stop_serving
    local limit=/proc/sys/dev/raid/speed_limit_max before
    before=$(<$limit)
    echo 1000 >$limit # or it would be over before the member fails
    assemble "${members[@]}"
    until_true is $md/sync_action recover
    mdadm --fail --quiet /dev/md0 "${members[1]}"
    poke_md 4096
    ! has_md_place "${members[count]}" || fail "it was over before the member failed"
    echo "$before" >$limit
    recovered
    stop_md
    judged "${members[0]}" "${members[@]:2}"
}

we_begin_to_replace_and_the_new_one_fails() {
    we_begin_to_replace
    control fail "${members[count]}"
    poke_served 4096
    stop_serving
    judged "${members[@]}" # the replacement is known to be stale
    judged "${members[@]:0:count}"
}

is_taken_back() { "$mdspace" re-add "$1" --control control.socket >re-add.log 2>&1; }
is_refused_as_used() {
    local refused=0
    "$mdspace" add "$1" --control control.socket >/dev/null 2>refusal || refused=$?
    [ $refused = 2 ] && grep -q re-add refusal
}

scenes=0
for level in "$@"; do
    count=${MEMBERS[$level]}
    beginnings=(we_recover_onto_a_new_member a_spare_takes_over md_begins_and_we_finish we_begin_and_md_finishes
        we_replace_a_member)
    case $level in # replacements that change hands
        6 | 10) beginnings+=(md_begins_to_replace_and_we_finish we_begin_to_replace_and_md_finishes) ;;
        1 | 5)
            beginnings+=(md_begins_to_replace_and_we_finish md_begins_to_replace_and_the_old_one_is_gone
                we_begin_to_replace_and_the_old_one_fails_with_md)
            ;;&
        5)
            beginnings+=(we_begin_to_replace_and_md_finishes we_begin_to_replace_and_the_old_one_fails
                we_begin_to_replace_and_the_new_one_fails)
            ;;
    esac
    for scene in "${beginnings[@]}"; do
        bitmap=none
        ((level % 5)) || bitmap=internal
        $scene
        scenes=$((scenes + 1))
    done
    bitmap=internal
    for scene in md_takes_back_what_missed_our_writes we_take_back_what_missed_mds_writes we_take_back_what_we_let_go; do
        $scene
        scenes=$((scenes + 1))
    done
    echo "level $level: done"
done
echo "$scenes scenes of recovery, each taken over by md, checked clean"
