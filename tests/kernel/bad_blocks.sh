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
    blank "$count"
    create_full
    cover "$1" 0
    [ "$1" != dust ] || make_dust_bad 0
}
# The member as it was, with other bytes where it was bad.
unspoil() {
    uncover
    dd if=pool of="${members[0]}" bs=512 seek=$((DATA_OFFSET + BAD)) count=$BAD_COUNT skip=77 conv=notrunc,fsync status=none
}

# Of the first member: FIRST COUNT, from its data on; md counts from its start.
bad_by_md() { awk -v offset=$DATA_OFFSET '{ print $1 - offset, $2 }' $md/rd0/bad_blocks | xargs; }

# All is read, as often as it takes for every copy to be asked.
we_read_all() {
    until_true reads_until "$1"
}
reads_until() {
    qemu-io -f raw -c "read -q 0 $(stat --format=%s model)" "$url" >/dev/null || fail "not read"
    says "$1"
}
ours() { status | jq ".members[] | select(.slot == 0) | .$1"; }
corrected() { od --address-radix=n --format=u4 --skip-bytes=$((4096 + 164)) --read-bytes=4 "$1" | tr -d ' '; }

we_write_over_it() {
    cp model patch
    dd if=pool of=model bs=1M count=8 skip=3 seek=0 conv=notrunc status=none
    truncate -s "$(stat --format=%s patch)" model
    qemu-io -f raw -c "write -q -s model 0 $(stat --format=%s model)" -c flush "$url" >/dev/null || fail "not written"
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
            we_read_all ".members[0].corrected_sectors > 0"
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
    [ "$(ours bad_bytes)" = $((${bad#* } * 512)) ] || fail "we see $(ours bad_bytes) bad bytes, md had $bad"
    we_read_all true
    stop_serving
    "$mdspace" read "${members[@]}" -o found && cmp model found || fail "we read otherwise"
    serve "${members[@]}"
    we_write_over_it
    until_true says '.members[0].bad_bytes == 0'
    stop_serving
    judged ""
}

md_honours_our_bad_blocks() {
    create_spoiled error
    serve "${members[@]}"
    we_read_all ".members[0].bad_bytes > 0"
    [ "$(ours bad_bytes)" = $((BAD_COUNT * 512)) ] || fail "we have $(ours bad_bytes) bad bytes"
    [ "$(ours state)" = '"in_sync"' ] || fail "it is $(ours state)"
    stop_serving
    unspoil
    assemble_and_finish "${members[@]}"
    [ "$(bad_by_md)" = "$BAD $BAD_COUNT" ] || fail "md's bad blocks: $(bad_by_md)"
    cmp model /dev/md0 || fail "md reads other bytes"
    # What md writes there is good again, for both.
    dd if=model of=/dev/md0 bs=1M conv=notrunc,fsync status=none
    sweep repair
    [ "$(bad_by_md)" = "" ] || fail "md's bad blocks are still: $(bad_by_md)"
    stop_md
    judged ""
    "$mdspace" read "${members[@]}" -o found && cmp model found || fail "we read otherwise"
}

our_failed_writes_are_bad_blocks_to_md() {
    create_spoiled error
    serve "${members[@]}"
    we_write_over_it
    says '.members[0].bad_bytes > 0' || fail "we have no bad blocks"
    stop_serving
    unspoil
    assemble_and_finish "${members[@]}"
    [ -n "$(bad_by_md)" ] || fail "md sees no bad blocks"
    cmp model /dev/md0 || fail "md reads other bytes"
    checked
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
