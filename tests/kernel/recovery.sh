#!/bin/bash
# Recovery begun by one side and finished by the other, members taken back by their bitmap, spares that took over, and
# members replaced while they stay in use: mdspace and the real driver on the same members, levels 1, 4, 5, 6 and 10. The one
# that begins is stopped in the middle, or killed, or loses a member there.
#
#   recovery.sh MDSPACE [LEVEL...]
#
# Runs in a guest (tests/kernel/init.sh). After each scene the driver assembles the members without --force, finds
# every slot current, its `check` counts no mismatch, and the array's bytes are those of `model`.
set -euo pipefail
mdspace=$1
shift
[ $# -gt 0 ] || set -- 1 4 5 6 10
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/members.sh"

MEMBER_BYTES=$((12 << 20))
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

# written_by_us MEMBER: so many bytes, in $told.
written_by_us() { said "member('$1').written_bytes" || fail "no word of $1: $told"; }

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
    md_lets_go_of "${members[1]}"
    slow_md_down
    mdadm --add --quiet /dev/md0 "${members[count]}"
    until_true is_beyond 2048
    echo frozen >$md/sync_action
    poke_md 1024
    stop_md
    local offset
    offset=$(superblock_number "${members[count]}" "Recovery Offset")
    [ "${offset:-0}" -gt 0 ] || fail "md left no recovery offset"
    "$mdspace" read "${members[0]}" "${members[@]:2}" -o ours --overwrite && cmp model ours || fail "read otherwise"
    serve "${members[0]}" "${members[@]:2}"
    poke_served 4096
    until_true is_whole
    written_by_us "${members[count]}"
    local written=$told
    ((written < MEMBER_BYTES - offset * 512)) || fail "$written bytes were written from sector $offset on"
    stop_serving
    judged "${members[0]}" "${members[@]:2}"
}

we_begin() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    stop_md
    serve "${members[@]:0:count}"
    control set sync-speed-min=$SLOWLY sync-speed-max=$SLOWLY
    control fail "${members[1]}"
    control remove "${members[1]}"
    control add "${members[count]}"
    until_true says 'sweep.percent > 10'
}
RECOVERY='md: recover\(y\|\)' # Linux 6.12 says `recover`
md_finishes() { # MEMBER...
    dmesg --clear
    assemble "$@"
    recovered
    dmesg | grep -q "$RECOVERY of RAID array md0" || fail "md had nothing to recover"
    stop_md
    judged "$@"
}

we_begin_and_md_finishes() {
    we_begin
    control set sync-action=frozen
    poke_served 1024
    poke_served 8192
    stop_serving
    half_recovered "${members[count]}"
    md_finishes "${members[0]}" "${members[@]:2}"
}
# half_recovered MEMBER...: each has a slot, and a position from which to go on.
half_recovered() {
    local member offset
    for member in "$@"; do
        mdadm --examine "$member" | grep -q 'Device Role : Active device' || fail "$member has no slot"
        offset=$(superblock_number "$member" "Recovery Offset")
        ((${offset:-0} > 0)) || fail "no recovery offset is left on $member"
    done
}

# A position is noted when 8 MiB are done, and the sweep goes on behind it.
LARGE_ENOUGH_FOR_A_CHECKPOINT=$((24 << 20))
go_on_after_a_checkpoint() {
    until_true has_noted_a_position "${members[count]}"
    local percent
    said sweep.percent
    percent=$told
    until_true says "sweep.percent > $percent + 5"
}
has_noted_a_position() { (($(superblock_number "$1" "Recovery Offset") > 0)); }

# md starts no array that is dirty, has parity and lacks a member: so it has to be at rest when the server is killed.
we_are_killed_and_md_finishes() {
    local MEMBER_BYTES=$LARGE_ENOUGH_FOR_A_CHECKPOINT SLOWLY=4M
    we_begin
    go_on_after_a_checkpoint
    poke_served 1024
    poke_served 8192
    case $level in
        4 | 5 | 6) until_true says 'state == "clean, degraded"' ;;
    esac
    kill_server
    half_recovered "${members[count]}"
    md_finishes "${members[0]}" "${members[@]:2}"
}

two_are_half_recovered_by_us() {
    blank $((count + 2))
    create "${members[@]:0:count}"
    stop_md
    serve "${members[@]:0:count}"
    control set sync-speed-min=$SLOWLY sync-speed-max=$SLOWLY
    local member
    for member in "${members[1]}" "${members[3]}"; do
        control fail "$member"
        control remove "$member"
    done
    control set sync-action=frozen
    control add "${members[count]}"
    control add "${members[count + 1]}"
    control set sync-action=idle
    until_true says 'sweep.percent > 10'
    control set sync-action=frozen
    poke_served 1024
    poke_served 8192
    stop_serving
    half_recovered "${members[@]:count}"
    md_finishes "${members[0]}" "${members[2]}" "${members[@]:4}"
}

two_are_half_recovered_by_md() {
    blank $((count + 2))
    create "${members[@]:0:count}"
    md_lets_go_of "${members[1]}" "${members[3]}"
    slow_md_down
    echo frozen >$md/sync_action
    mdadm --add --quiet /dev/md0 "${members[@]:count}"
    echo idle >$md/sync_action
    until_true is_beyond 2048
    echo frozen >$md/sync_action
    poke_md 1024
    stop_md
    half_recovered "${members[@]:count}"
    "$mdspace" read "${members[0]}" "${members[2]}" "${members[@]:4}" -o ours --overwrite && cmp model ours || fail "read otherwise"
    serve "${members[0]}" "${members[2]}" "${members[@]:4}"
    poke_served 4096
    until_true is_whole
    stop_serving
    judged "${members[0]}" "${members[2]}" "${members[@]:4}"
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
    md_lets_go_of "${members[1]}"
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

# A replacement that one side left half done: $left is how many bytes it still has to get, at the most.
left_half_done() { # OLD NEW
    mdadm --examine "$2" | grep -q 'Device Role : Replacement device 1$' || fail "no replacement of slot 1 is left"
    mdadm --examine "$1" | grep -q 'Device Role : Active device 1$' || fail "the member has lost its slot"
    local offset
    offset=$(superblock_number "$2" "Recovery Offset")
    [ "${offset:-0}" -gt 0 ] || fail "no recovery offset is left"
    left=$((MEMBER_BYTES - offset * 512))
}
has_place() { says "member('$1').state == 'in_sync'"; }
has_md_place() { # a member that md calls in sync and no replacement
    local state
    state=$(<"$md/dev-${1#/dev/}/state")
    [[ ,$state, == *,in_sync,* && ,$state, != *,replacement,* ]]
}

# md_is_replacing [NUMBER]: a member, while it has lost that one.
md_is_replacing() {
    blank $((count + 2))
    create "${members[@]:0:count}"
    finished
    [ $# = 0 ] || md_lets_go_of "${members[$1]}"
    slow_md_down
    echo frozen >$md/sync_action # or a spare would take the place of who is lost
    mdadm --add --quiet /dev/md0 "${members[count]}"
    mdadm --replace /dev/md0 "${members[1]}" --with "${members[count]}" 2>mdadm.log || fail "$(<mdadm.log)"
    echo idle >$md/sync_action
    until_true is_beyond 2048
}
md_begins_to_replace() {
    md_is_replacing "$@"
    echo frozen >$md/sync_action
    poke_md 1024
    stop_md
    unset "members[count + 1]" # for who takes a lost one's place
}

md_begins_to_replace_and_we_finish() {
    md_begins_to_replace
    left_half_done "${members[1]}" "${members[count]}"
    "$mdspace" read "${members[@]}" -o ours --overwrite && cmp model ours || fail "read otherwise"
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

md_begins_to_replace_and_the_new_one_fails() {
    md_is_replacing
    mdadm --fail --quiet /dev/md0 "${members[count]}"
    poke_md 1024
    stop_md
    unset "members[count + 1]"
    serve "${members[@]}"
    says "in_sync == raid_disks and len(members) == $count" || fail "the failed replacement is used, or not all else"
    poke_served 4096
    stop_serving
    judged "${members[@]}" # the replacement is known to be stale
}

md_begins_to_replace_and_the_old_one_fails() {
    md_is_replacing
    mdadm --fail --quiet /dev/md0 "${members[1]}"
    until_true has_become_a_member "${members[count]}"
    until_true is_beyond 2048
    echo frozen >$md/sync_action
    poke_md 1024
    stop_md
    unset "members[count + 1]"
    half_recovered "${members[count]}"
    serve "${members[0]}" "${members[@]:2}"
    poke_served 4096
    until_true is_whole
    stop_serving
    judged "${members[@]}" # the old one is known to be faulty
    judged "${members[0]}" "${members[@]:2}"
}
has_become_a_member() { [[ ",$(<"$md/dev-${1#/dev/}/state")," != *,replacement,* ]]; }

# Of five, one is lost and one half replaced.
md_begins_to_replace_while_another_is_lost() {
    md_begins_to_replace 3
    "$mdspace" read "${members[@]}" -o ours --overwrite && cmp model ours || fail "read otherwise"
    local rest=("${members[@]:0:3}" "${members[@]:4}")
    serve "${rest[@]}"
    poke_served 4096
    until_true has_place "${members[count]}"
    says 'in_sync == raid_disks - 1' || fail "somebody has taken the place of who is lost"
    stop_serving
    assemble "${rest[@]}"
    is $md/degraded 1 || fail "$(<$md/degraded) are missing, not one"
    mdadm --zero-superblock "${members[3]}"
    mdadm --add --quiet /dev/md0 "${members[3]}"
    recovered
    stop_md
    judged "${members[0]}" "${members[@]:2}"
}

# we_are_replacing [NUMBER]: a member, while it has lost that one.
we_are_replacing() {
    blank $((count + 1))
    create "${members[@]:0:count}"
    stop_md
    serve "${members[@]:0:count}"
    control set sync-speed-min=$SLOWLY sync-speed-max=$SLOWLY
    if [ $# = 1 ]; then
        control fail "${members[$1]}"
        control remove "${members[$1]}"
    fi
    control replace "${members[1]}" "${members[count]}"
    until_true says 'sweep.percent > 10'
}
we_begin_to_replace() {
    we_are_replacing "$@"
    control set sync-action=frozen
    poke_served 1024
    poke_served 8192
}

we_begin_to_replace_while_another_is_lost() {
    we_begin_to_replace 3
    stop_serving
    left_half_done "${members[1]}" "${members[count]}"
    assemble "${members[@]:0:3}" "${members[@]:4}"
    until_true has_md_place "${members[count]}"
    is $md/degraded 1 || fail "$(<$md/degraded) are missing, not one"
    mdadm --zero-superblock "${members[3]}"
    mdadm --add --quiet /dev/md0 "${members[3]}"
    recovered
    stop_md
    judged "${members[0]}" "${members[@]:2}"
}

# In the middle of writes as well: the array is dirty then, and lacks nothing.
we_are_killed_while_we_replace() {
    local MEMBER_BYTES=$LARGE_ENOUGH_FOR_A_CHECKPOINT SLOWLY=4M
    we_are_replacing
    go_on_after_a_checkpoint
    poke_served 1024
    poke_served 8192
    kill_server
    left_half_done "${members[1]}" "${members[count]}"
    assemble "${members[@]}"
    until_true has_md_place "${members[count]}"
    finished
    stop_md
    judged "${members[0]}" "${members[@]:2}"
}

we_begin_to_replace_and_md_finishes() {
    we_begin_to_replace
    stop_serving
    left_half_done "${members[1]}" "${members[count]}"
    dmesg --clear
    local before
    before=$(sectors_written "${members[count]}")
    assemble "${members[@]}"
    until_true has_md_place "${members[count]}"
    finished
    dmesg | grep -q "$RECOVERY of RAID array md0" || fail "md had nothing to recover"
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
    beginnings=(we_recover_onto_a_new_member md_begins_and_we_finish we_begin_and_md_finishes)
    [ "$level" = 4 ] || # which has the engine of level 5, and is told of by other numbers alone
        beginnings+=(a_spare_takes_over we_replace_a_member we_are_killed_and_md_finishes we_are_killed_while_we_replace
            md_begins_to_replace_and_we_finish md_begins_to_replace_and_the_new_one_fails
            md_begins_to_replace_and_the_old_one_fails md_begins_to_replace_and_the_old_one_is_gone
            we_begin_to_replace_and_md_finishes we_begin_to_replace_and_the_old_one_fails
            we_begin_to_replace_and_the_old_one_fails_with_md we_begin_to_replace_and_the_new_one_fails)
    [ "$level" != 6 ] ||
        beginnings+=(two_are_half_recovered_by_us two_are_half_recovered_by_md
            md_begins_to_replace_while_another_is_lost we_begin_to_replace_while_another_is_lost)
    for scene in "${beginnings[@]}"; do
        bitmap=none
        ((level % 5)) || bitmap=internal
        $scene
        scenes=$((scenes + 1))
    done
    bitmap=internal
    returns=(md_takes_back_what_missed_our_writes we_take_back_what_missed_mds_writes we_take_back_what_we_let_go)
    [ "$level" != 4 ] || returns=()
    for scene in "${returns[@]}"; do
        $scene
        scenes=$((scenes + 1))
    done
    echo "level $level: done"
done
echo "$scenes scenes of recovery, each taken over by md, checked clean"
