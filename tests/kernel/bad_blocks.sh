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
. "$(dirname "$0")/common.sh"
export DM_DISABLE_UDEV=1
for module in dm-mod dm-dust; do modprobe $module; done

MEMBER_BYTES=$((16 << 20))
head -c $MEMBER_BYTES /dev/urandom >pool

where() { echo "level $level, $scene"; }
evidence() {
    status || :
    cat serve.log
}

# An array whose first member is bad in places.
create_spoiled() { # KIND
    blank $((count + 1))
    another=${members[count]} # which is in no array yet
    members=("${members[@]:0:count}")
    create_full
    cover "$1" 0
    [ "$1" != dust ] || make_dust_bad 0
}
# The member as it was, with other bytes where it was bad.
unspoil() {
    uncover
    hand copy pool $((77 * 512)) "${members[0]}" $(((DATA_OFFSET + BAD) * 512)) $((BAD_COUNT * 512)) sync
}

# Of the first member: FIRST COUNT, from its data on; md counts from its start.
bad_by_md() { awk -v offset=$DATA_OFFSET '{ print $1 - offset, $2 }' $md/rd0/bad_blocks | xargs; }

is_bad_to_md() { [ -n "$(<$md/rd0/bad_blocks)" ]; }
has_bad_blocks() { [ -n "$(<"$md/dev-${1#/dev/}/bad_blocks")" ]; } # MEMBER, to md

# All is read, as often as it takes for every copy to be asked.
we_read_all() {
    until_true reads_until "$1"
}
reads_until() {
    hand receive found || fail "not read: $told"
    says "$1"
}
# ours FIELD: of what is in the first slot, in $told.
ours() { said "member(0).$1" || fail "no word of it: $told"; }
corrected() { od --address-radix=n --format=u4 --skip-bytes=$((4096 + 164)) --read-bytes=4 "$1" | tr -d ' '; }

we_write_over_it() {
    hand copy pool $((3 << 20)) model 0 $((8 << 20))
    hand send model 0 -1 || fail "not written: $told"
}

# The verdict: md has all slots, nothing amiss, the bytes, and these bad blocks.
judged() {
    found_whole "${members[@]}"
    [ "$(bad_by_md)" = "${1:-}" ] || fail "md's bad blocks: $(bad_by_md)"
    stop_md
}

both_count_what_they_put_right() {
    local side
    declare -A counted
    for side in md ours; do
        create_spoiled dust
        if [ $side = md ]; then
            assemble_and_finish "${members[@]}"
            sweep repair
            stop_md
        else
            serve "${members[@]}"
            we_read_all "members[0].corrected_sectors > 0"
            stop_serving
        fi
        counted[$side]=$(corrected "${sound[0]}")
        uncover
        judged
    done
    [ "${counted[ours]}" = $BAD_COUNT ] || fail "we counted ${counted[ours]} sectors"
    [ "${counted[md]}" = $BAD_COUNT ] || echo "note: level $level: md counted ${counted[md]} sectors, we ${counted[ours]}"
}

we_honour_mds_bad_blocks() {
    create_spoiled error
    assemble_and_finish "${members[@]}"
    sweep repair
    local bad
    bad=$(bad_by_md)
    [ -n "$bad" ] || fail "md has no bad blocks"
    stop_md
    unspoil
    serve "${members[@]}"
    ours bad_bytes
    [ "$told" = $((${bad#* } * 512)) ] || fail "we see $told bad bytes, md had $bad"
    we_read_all True
    stop_serving
    "$mdspace" read "${members[@]}" -o found --overwrite && cmp model found || fail "we read otherwise"
    serve "${members[@]}"
    we_write_over_it
    until_true says 'members[0].bad_bytes == 0'
    stop_serving
    judged ""
}

md_honours_our_bad_blocks() {
    create_spoiled error
    serve "${members[@]}"
    we_read_all "members[0].bad_bytes > 0"
    ours bad_bytes
    [ "$told" = $((BAD_COUNT * 512)) ] || fail "we have $told bad bytes"
    ours state
    [ "$told" = in_sync ] || fail "it is $told"
    stop_serving
    unspoil
    assemble_and_finish "${members[@]}"
    [ "$(bad_by_md)" = "$BAD $BAD_COUNT" ] || fail "md's bad blocks: $(bad_by_md)"
    cmp model /dev/md0 || fail "md reads other bytes"
    # What md writes there is good again, for both.
    hand copy model 0 /dev/md0 0 -1 sync
    sweep repair
    [ "$(bad_by_md)" = "" ] || fail "md's bad blocks are still: $(bad_by_md)"
    stop_md
    judged ""
    "$mdspace" read "${members[@]}" -o found --overwrite && cmp model found || fail "we read otherwise"
}

our_failed_writes_are_bad_blocks_to_md() {
    create_spoiled error
    serve "${members[@]}"
    we_write_over_it
    says 'members[0].bad_bytes > 0' || fail "we have no bad blocks"
    stop_serving
    unspoil
    assemble_and_finish "${members[@]}"
    [ -n "$(bad_by_md)" ] || fail "md sees no bad blocks"
    cmp model /dev/md0 || fail "md reads other bytes"
    checked
    stop_md
}

mds_failed_writes_are_bad_blocks_to_us() {
    create_spoiled error
    assemble_and_finish "${members[@]}"
    # A page at a time: after a buffered write of all of it Linux 6.1's raid5 had no bad block (docs/decisions/1010).
    hand copy pool $((3 << 20)) model 0 $((1 << 20))
    dd if=model of=/dev/md0 bs=4k count=256 oflag=direct status=none || fail "md does not take it"
    until_true is_bad_to_md # noted beside the write
    stop_md
    unspoil
    "$mdspace" read "${members[@]}" -o found --overwrite && cmp model found || fail "we read otherwise"
    serve "${members[@]}"
    we_read_all True
    we_write_over_it
    until_true says 'members[0].bad_bytes == 0'
    stop_serving
    judged ""
}

# What a recovery could not have is a bad block of its target's too. So many blocks of the array are lost by that, where the
# second member is recovered and the first is bad: of copies one, of a row of RAID-5 both.
declare -A LOST=([1]=1 [5]=2 [10]=1)
# lost_of SOURCE: exactly those, and all else is the model's.
lost_of() {
    hand lost "$1" model || fail "other bytes where it can be read"
    [ "$told" = "${LOST[$level]}" ] || fail "$told blocks are lost of $1, not ${LOST[$level]}"
}

md_recovers_from_a_bad_member() {
    create_spoiled error
    assemble_and_finish "${members[@]}"
    mdadm --fail --quiet /dev/md0 "${members[1]}"
    until_true mdadm --remove --quiet /dev/md0 "${members[1]}" 2>/dev/null
    mdadm --add --quiet /dev/md0 "$another"
    recovered
    has_bad_blocks "$another" || fail "md has recovered what nobody holds"
    stop_md
    unspoil
    members[1]=$another
    flushed
    serve "${members[@]}"
    lost_of served
    we_write_over_it
    until_true says 'sum(m.bad_bytes for m in members) == 0'
    stop_serving
    judged ""
}

# Of the source we note nothing: it may be read some day, and holds the only copy.
we_recover_from_a_bad_member() {
    create_spoiled dust
    serve "${members[@]}"
    "$mdspace" fail "${members[1]}" --control control.socket >/dev/null
    "$mdspace" remove "${members[1]}" --control control.socket >/dev/null
    "$mdspace" add "$another" --control control.socket >/dev/null
    until_true says 'in_sync == raid_disks'
    says 'member(1).bad_bytes > 0' || fail "we have recovered what nobody holds"
    stop_serving
    members[1]=$another
    assemble_and_finish "${members[@]}"
    is $md/degraded 0 || fail "md finds slots that are not current"
    has_bad_blocks "$another" || fail "md knows of no bad blocks"
    lost_of /dev/md0
    stop_md
    # By us: of a row that has lost two, md takes what fills it, and refuses parts of it.
    flushed
    serve "${members[@]}"
    we_write_over_it
    until_true says 'sum(m.bad_bytes for m in members) == 0'
    stop_serving
    uncover
    judged ""
}

# Others have what a member with bad blocks has not: what replaces it has none.
md_replaces_a_bad_member() {
    create_spoiled error
    assemble_and_finish "${members[@]}"
    sweep repair
    [ -n "$(bad_by_md)" ] || fail "md has no bad blocks"
    mdadm --add --quiet /dev/md0 "$another" # what has failed to write is replaced by itself
    until_true replaced_by_md
    finished
    ! has_bad_blocks "$another" || fail "bad blocks have come along"
    stop_md
    uncover
    members[0]=$another
    flushed
    serve "${members[@]}"
    we_read_all 'sum(m.bad_bytes for m in members) == 0'
    cmp model found || fail "we read otherwise"
    stop_serving
    judged ""
}
replaced_by_md() {
    local state
    state=$(<"$md/dev-${another#/dev/}/state")
    [[ ,$state, == *,in_sync,* && ,$state, != *,replacement,* ]]
}

we_replace_a_bad_member() {
    create_spoiled error
    serve "${members[@]}"
    we_read_all 'members[0].bad_bytes > 0'
    "$mdspace" replace "${members[0]}" "$another" --control control.socket >/dev/null || fail "not replaced"
    until_true says "member('$another').state == 'in_sync'"
    stop_serving
    uncover
    members[0]=$another
    judged ""
}

scenes=0
for level in "$@"; do
    count=${MEMBERS[$level]}
    for scene in both_count_what_they_put_right we_honour_mds_bad_blocks md_honours_our_bad_blocks \
        our_failed_writes_are_bad_blocks_to_md mds_failed_writes_are_bad_blocks_to_us md_replaces_a_bad_member \
        we_replace_a_bad_member md_recovers_from_a_bad_member we_recover_from_a_bad_member; do
        # RAID-6 has what it takes to recover with one member bad.
        [[ $scene != *_from_a_bad_member ]] || [ -n "${LOST[$level]:-}" ] || continue
        $scene
        scenes=$((scenes + 1))
    done
    echo "level $level: done"
done
echo "$scenes scenes of bad blocks, each taken over by md, checked clean"
