#!/bin/bash
# Arrays that grow where they stand, by mdspace and by the real driver: the one goes on with what the other has begun. And
# arrays that mdspace has made smaller, which the driver finds so.
#
#   grow.sh MDSPACE
#
# Runs in a guest (tests/kernel/init.sh).
set -euo pipefail
mdspace=$1
. "$(dirname "$0")/common.sh"
modprobe nbd
SMALL_BYTES=$((6 << 20)) LARGE_BYTES=$((14 << 20)) # of a member
USED_KIB=$((5 << 10))                              # of md's members, before it grows
MODEL_BYTES=$((3 << 20))                           # is written, and has to be there ever after
MEMBER_BYTES=$SMALL_BYTES
echo 1000000 >/proc/sys/dev/raid/speed_limit_min # nobody else is here

where() { echo "$what"; }
evidence() { "$mdspace" examine "${members[@]}"; }

new_model() {
    : >model
    hand noise model 0 $MODEL_BYTES
}

# longer: the members' files are, and the devices over them.
longer() {
    local member
    for member in "${!members[@]}"; do
        truncate -s $LARGE_BYTES "m$member"
        losetup --set-capacity "${members[$member]}"
    done
}

# What lies in the new part is anything, and differs from member to member.
litter() {
    local member
    for member in "${!members[@]}"; do
        hand noise "m$member" $SMALL_BYTES $((4 << 20))
    done
}

grow() {
    until_true released
    "$mdspace" grow "${members[@]}" --size max >grown 2>&1 || fail "not grown: $(<grown)"
    grep -q '^next:' grown || fail "said: $(<grown)"
    flushed
}

# KiB that the superblocks say are used of each member.
component() {
    "$mdspace" examine --json "${members[@]}" >examined.json
    hand found examined.json 'members[0].component_bytes // 1024' && echo "$told"
}

# resynced_rest OLD_KIB [WRITTEN_KIB]: md finds the size it should, resyncs what is new and that alone, but for what was
# being written when the server ended, and then all agrees.
resynced_rest() {
    local size before read
    size=$(component)
    ((size > $1)) || fail "$size KiB of each member are used, it was $1"
    before=$(sectors_read "${members[0]}")
    dmesg --clear
    assemble_and_finish "${members[@]}"
    read=$((($(sectors_read "${members[0]}") - before) / 2))
    is $md/component_size "$size" || fail "component_size is $(<$md/component_size), not $size"
    is $md/degraded 0 || fail "degraded"
    dmesg | grep -q 'resync of RAID array md0' || fail "no resync"
    ((read < size - $1 + ${2:-0} + 2048)) || fail "$read KiB of the first member read, of $size, of which $1 agreed"
    checked "after the resync"
    cmp -n $MODEL_BYTES model /dev/md0 || fail "other bytes"
}

# Ours, made on members that were shorter then.
ours() {
    what="level $1, metadata $2, bitmap $3: made here"
    level=$1
    local chunk=(--chunk 64K) bitmap=(--bitmap none)
    [ "$1" != 1 ] || chunk=()
    [ "$3" = none ] || bitmap=(--bitmap internal --bitmap-chunk "$3")
    blank "${MEMBERS[$1]:-4}"
    "$mdspace" create --level "$1" --metadata "$2" "${bitmap[@]}" "${chunk[@]}" "${members[@]}" >/dev/null
    local old
    old=$(component)
    new_model
    "$mdspace" write "${members[@]}" <model
    longer
    litter
    grow
    resynced_rest "$old"
    put_mib $((1 << 20)) /dev/md0
    # As far as it goes: all of the array can be written.
    hand noise rest 0 "$(blockdev --getsize64 /dev/md0)"
    hand copy rest 0 /dev/md0 $((3 << 20)) -1 direct fits || fail "not all of it can be written: $told"
    take_model
    checked "full"
    stop_md
    until_true released
    rm -f found
    "$mdspace" read "${members[@]}" -o found --overwrite && cmp found model || fail "other bytes here"
}

# md's, of members that are longer than what it uses of them.
made_by_md() {
    what="level $1, metadata $2, bitmap $3: made by md"
    level=$1 MEMBER_BYTES=$LARGE_BYTES
    local chunk=(--chunk=64) bitmap=(--bitmap="$3")
    [ "$1" != 1 ] || chunk=()
    [ "$3" = none ] || bitmap+=(--bitmap-chunk=64K)
    blank "${MEMBERS[$1]:-4}"
    litter
    mdadm --create /dev/md0 --quiet --run --metadata="$2" --level="$1" "${chunk[@]}" "${bitmap[@]}" \
        --raid-devices=${#members[@]} --size=$USED_KIB --assume-clean "${members[@]}"
    sweep repair
    new_model
    hand copy model 0 /dev/md0 0 -1 direct || fail "md does not take it: $told"
    stop_md
    MEMBER_BYTES=$SMALL_BYTES
}
theirs() {
    made_by_md "$@"
    grow
    resynced_rest $USED_KIB
    stop_md
    until_true released
    rm -f found
    "$mdspace" read "${members[@]}" --length $MODEL_BYTES -o found --overwrite && cmp found model || fail "other bytes here"
}

# md grows it and is stopped in the middle: the rest is ours. Without a bitmap: with one, Linux 6.1 calls the new part
# resynced at once, and its own check finds that it is not.
grown_by_md() {
    made_by_md "$@"
    what="$what, and grown by it"
    assemble "${members[@]}"
    echo 200 >$md/sync_speed_max
    echo 100 >$md/sync_speed_min
    mdadm --grow --quiet /dev/md0 --size=max || fail "md does not grow it"
    local size
    size=$(<$md/component_size)
    stop_md
    until_true released
    "$mdspace" examine "${members[@]}" | grep -q 'state  *dirty from byte' || fail "md was not in the middle"
    [ "$(component)" = "$size" ] || fail "$size KiB for md, $(component) here"
    "$mdspace" scrub "${members[@]}" --repair >scrubbed 2>&1 || fail "not resynced here: $(<scrubbed)"
    rm -f found
    "$mdspace" read "${members[@]}" --length $MODEL_BYTES -o found --overwrite && cmp found model || fail "other bytes here"
    "$mdspace" grow "${members[@]}" --size max >grown || fail "refused: $(<grown)"
    grep -q ^unchanged grown || fail "not used whole by md: $(<grown)"
    assemble_and_finish "${members[@]}"
    checked "after our resync"
    stop_md
}

# one_round_back MEMBER KIB: its superblock, of metadata 1.2, as it was before the round that told of the new size.
one_round_back() {
    python3 - "$1" $(($2 * 2)) <<'END'
import struct, sys
with open(sys.argv[1], "r+b") as member:
    member.seek(4096)
    block = bytearray(member.read(4096))
    struct.pack_into("<Q", block, 80, int(sys.argv[2]))
    struct.pack_into("<Q", block, 200, struct.unpack_from("<Q", block, 200)[0] - 1)
    struct.pack_into("<Q", block, 208, 2**64 - 1)
    struct.pack_into("<I", block, 216, 0)
    words = (256 + 2 * struct.unpack_from("<I", block, 220)[0]) // 4
    total = sum(struct.unpack_from(f"<{words}I", block))
    struct.pack_into("<I", block, 216, ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF)
    member.seek(4096)
    member.write(block)
END
}

# md's, made smaller here, used by md, made larger by it again.
SHRUNK_KIB=$((4 << 10))
shrunk() {
    made_by_md "$@"
    what="$what, and made smaller here"
    until_true released
    "$mdspace" grow "${members[@]}" --size ${SHRUNK_KIB}K >refused 2>&1 && fail "made smaller unasked"
    grep -q -- '--shrink' refused || fail "said: $(<refused)"
    "$mdspace" grow "${members[@]}" --size ${SHRUNK_KIB}K --shrink >grown 2>&1 || fail "not made smaller: $(<grown)"
    blockdev --flushbufs "${members[@]}"
    dmesg --clear
    assemble_and_finish "${members[@]}"
    is $md/component_size $SHRUNK_KIB || fail "component_size is $(<$md/component_size)"
    is $md/degraded 0 || fail "degraded"
    [ "$3" = none ] || [ "$(<$md/bitmap/location)" != none ] || fail "without its bitmap"
    if dmesg | grep -q 'resync of RAID array md0'; then fail "a resync, of what agreed"; fi
    checked "made smaller"
    cmp -n $MODEL_BYTES model /dev/md0 || fail "other bytes"
    dd if=/dev/urandom of=/dev/md0 bs=1M oflag=direct status=none 2>/dev/null || true
    dd if=model of=/dev/md0 bs=1M oflag=direct status=none
    checked "full"
    mdadm --grow --quiet /dev/md0 --bitmap=none 2>/dev/null || true # Linux 6.1 leaves what it grows unsynced beside one
    mdadm --grow --quiet /dev/md0 --size=max || fail "md does not grow it"
    finished
    checked "grown by md"
    cmp -n $MODEL_BYTES model /dev/md0 || fail "other bytes"
    stop_md
}

# half_told NUMBER...: these members of four were not told of the new size when the power went. The driver goes by the others;
# mdadm, without which it is asked here, takes them once `grow` was run again.
half_told() {
    what="half told of a growth, not: $*" level=5
    local old member number
    blank 4
    "$mdspace" create --level 5 --chunk 64K "${members[@]}" >/dev/null
    old=$(component)
    new_model
    "$mdspace" write "${members[@]}" <model
    longer
    litter
    grow
    for number in "$@"; do one_round_back "m$number" "$old"; done
    taken_by_the_driver $((old * 2))
    ((size_of_driver > old)) || fail "the old size for the driver"
    until_true released
    "$mdspace" grow "${members[@]}" --size max | grep -q 'all members record it' || fail "not told by us"
    flushed
    resynced_rest "$old"
    stop_md
    until_true released
}

# The same of one that was made smaller.
half_told_less() {
    what="half told of less, not: $*" level=5
    local old number
    blank 4
    "$mdspace" create --level 5 --chunk 64K "${members[@]}" >/dev/null
    old=$(component)
    head -c $MODEL_BYTES /dev/urandom >model
    "$mdspace" write "${members[@]}" <model
    until_true released
    "$mdspace" grow "${members[@]}" --size ${SHRUNK_KIB}K --shrink >grown 2>&1 || fail "not made smaller: $(<grown)"
    for number in "$@"; do one_round_back "m$number" "$old"; done
    taken_by_the_driver none
    ((size_of_driver == SHRUNK_KIB)) || fail "$size_of_driver KiB for the driver"
    until_true released
    "$mdspace" grow "${members[@]}" --size ${SHRUNK_KIB}K --shrink | grep -q 'all members record it' || fail "not told by us"
    flushed
    assemble_and_finish "${members[@]}"
    is $md/component_size $SHRUNK_KIB || fail "component_size is $(<$md/component_size)"
    checked
    cmp -n $MODEL_BYTES model /dev/md0 || fail "other bytes"
    stop_md
    until_true released
}

# taken_by_the_driver AGREED: without mdadm it takes members that were half told, all of them; they are as before then.
taken_by_the_driver() {
    local number member
    flushed
    for number in 0 1 2 3; do hand copy "m$number" 0 "kept$number" 0 -1; done
    [ -e /sys/block/md9 ] || echo md9 >/sys/module/md_mod/parameters/new_array
    echo 1.2 >/sys/block/md9/md/metadata_version
    for member in "${members[@]}"; do cat "/sys/block/${member#/dev/}/dev" >/sys/block/md9/md/new_dev; done
    echo active >/sys/block/md9/md/array_state || fail "the driver does not start it"
    is /sys/block/md9/md/degraded 0 || fail "the driver leaves members out"
    is /sys/block/md9/md/resync_start "$1" || fail "in agreement to $(</sys/block/md9/md/resync_start)"
    size_of_driver=$(</sys/block/md9/md/component_size)
    echo clear >/sys/block/md9/md/array_state
    for number in 0 1 2 3; do hand copy "kept$number" 0 "m$number" 0 -1; done
    flushed
}

# Copies: a third slot by us, which md fills; the first two copies are given up by md, and two slots by us: so the
# one that is left moves.
copies() {
    what="copies, bitmap $1" level=1
    local third
    blank 3
    third=${members[2]}
    members=("${members[@]:0:2}")
    "$mdspace" create --level 1 --bitmap "$1" "${members[@]}" >/dev/null
    new_model
    "$mdspace" write "${members[@]}" <model
    until_true released
    "$mdspace" grow "${members[@]}" --raid-devices 3 >/dev/null || fail "no third copy"
    flushed
    assemble "${members[@]}"
    is $md/raid_disks 3 || fail "$(<$md/raid_disks) slots for md"
    is $md/degraded 1 || fail "no empty slot for md"
    mdadm --quiet /dev/md0 --add "$third"
    recovered
    checked "with three copies"
    mdadm --quiet /dev/md0 --fail "${members[0]}"
    mdadm --quiet /dev/md0 --remove "${members[0]}"
    put_mib $((1 << 20)) /dev/md0
    stop_md
    mdadm --zero-superblock "${members[0]}"
    members=("${members[1]}" "$third")
    until_true released
    "$mdspace" grow "${members[@]}" --raid-devices 2 >/dev/null || fail "not two copies"
    flushed
    assemble_and_finish "${members[@]}"
    is $md/raid_disks 2 || fail "$(<$md/raid_disks) slots for md"
    is $md/degraded 0 || fail "md finds a copy missing"
    checked "with two copies"
    cmp -n $MODEL_BYTES model /dev/md0 || fail "other bytes"
    # And by md, for us to read.
    mdadm --grow --quiet /dev/md0 --raid-devices=3 --force || fail "md makes no third copy"
    stop_md
    until_true released
    "$mdspace" examine --json "${members[@]}" >examined.json
    hand found examined.json 'arrays[0].status.raid_disks == 3 and arrays[0].status.in_sync == 2' && [ "$told" = True ] ||
        fail "not as md left it"
    rm -f found
    "$mdspace" read "${members[@]}" --length $MODEL_BYTES -o found --overwrite && cmp found model || fail "other bytes here"
}

# served LEVEL METADATA BITMAP SIGNAL: grown by us while it is served and a client writes; another client finds the new size and uses
# it. The server ends by SIGNAL before it has resynced anything, so md does, and by the bitmap alone where there is one.
served() {
    what="level $1, metadata $2, bitmap $3: grown while it was served, until SIG$4"
    level=$1
    local old old_bytes new_bytes chunk=(--chunk 64K) bitmap=(--bitmap none) writer
    local MODEL_BYTES=$((1 << 20)) # which may have to be resynced too
    [ "$1" != 1 ] || chunk=()
    [ "$3" = none ] || bitmap=(--bitmap internal --bitmap-chunk "$3")
    blank "${MEMBERS[$1]:-4}"
    "$mdspace" create --level "$1" --metadata "$2" "${bitmap[@]}" "${chunk[@]}" "${members[@]}" >/dev/null
    old=$(component)
    new_model
    until_true released
    serve_as_nbd0 "${members[@]}"
    hand copy model 0 /dev/nbd0 0 -1 direct sync || fail "not taken: $told"
    old_bytes=$(blockdev --getsize64 /dev/nbd0)
    "$mdspace" set --control control.socket sync-action=frozen >/dev/null
    longer
    litter
    rm -f enough
    while [ ! -e enough ]; do dd if=model of=/dev/nbd0 bs=16K oflag=direct conv=notrunc status=none || exit 1; done &
    writer=$!
    "$mdspace" grow --size max --control control.socket >grown 2>&1 || fail "not grown: $(<grown)"
    touch enough
    wait $writer || fail "the client that wrote meanwhile was refused"
    hand size_served || fail "no size: $told"
    new_bytes=$told
    ((new_bytes > old_bytes)) || fail "$new_bytes bytes for a new client, it was $old_bytes"
    [ "$(blockdev --getsize64 /dev/nbd0)" = "$old_bytes" ] || fail "another size for a client that was there"
    nbd-client -d /dev/nbd0 >/dev/null
    nbd-client -unix "$PWD/nbd.socket" /dev/nbd0 -block-size 4096 >/dev/null
    hand noise mib 0 $((1 << 20))
    hand copy mib 0 /dev/nbd0 $((new_bytes - (1 << 20))) -1 direct sync || fail "not taken at the end: $told"
    if [ "$4" = TERM ]; then end_nbd0; else kill_nbd0; fi
    flushed
    # Without a bitmap, md resyncs all of an array that was not stopped.
    if [ "$3$4" = noneKILL ]; then assemble_and_finish "${members[@]}"; else resynced_rest "$old" $((MODEL_BYTES >> 10)); fi
    checked "after the resync"
    cmp -n $MODEL_BYTES model /dev/md0 || fail "other bytes"
    hand alike mib /dev/md0 $((1 << 20)) 0 $((new_bytes - (1 << 20))) || fail "other bytes in what is new"
    stop_md
    until_true released
}

# A third copy of an array that is served: the slot by `grow`, what is in it by `add`; md finds it whole.
served_copies() {
    what="copies while it is served, bitmap $1" level=1
    local third
    blank 3
    third=${members[2]}
    members=("${members[@]:0:2}")
    "$mdspace" create --level 1 --bitmap "$1" "${members[@]}" >/dev/null
    until_true released
    serve_as_nbd0 "${members[@]}"
    "$mdspace" grow --raid-devices 3 --control control.socket >/dev/null || fail "no third copy"
    "$mdspace" add "$third" --control control.socket >/dev/null || fail "not taken in"
    new_model
    hand copy model 0 /dev/nbd0 0 -1 direct sync || fail "not taken: $told"
    until_true says 'in_sync == 3'
    end_nbd0
    members+=("$third")
    until_true released
    flushed
    assemble_and_finish "${members[@]}"
    is $md/raid_disks 3 || fail "$(<$md/raid_disks) slots for md"
    is $md/degraded 0 || fail "md finds a copy missing"
    checked "with three copies"
    cmp -n $MODEL_BYTES model /dev/md0 || fail "other bytes"
    stop_md
    until_true released
}

for signal in TERM KILL; do
    for bitmap in none 64K; do
        served 5 1.2 $bitmap $signal
        served 1 1.1 $bitmap $signal
    done
    served 6 1.2 64K $signal
    # The superblocks move to the new end.
    served 5 1.0 none $signal
    served 1 1.0 64K $signal
    served 6 1.0 64K $signal
    served 10 1.2 64K $signal
done
for bitmap in none internal; do served_copies $bitmap; done
half_told 1 2 3
half_told 0
half_told_less 1 2 3
half_told_less 0
shrunk 1 1.2 internal
shrunk 4 1.1 none
shrunk 5 1.0 internal
shrunk 6 1.2 none
shrunk 10 1.2 internal
for bitmap in none internal; do copies $bitmap; done
for bitmap in none 64K; do
    ours 1 1.2 $bitmap
    ours 5 1.2 $bitmap
    ours 6 1.1 $bitmap
done
ours 4 1.2 none
ours 10 1.2 64K
for bitmap in none internal; do
    theirs 5 1.0 $bitmap
    theirs 1 1.0 $bitmap
done
theirs 6 1.2 internal
theirs 10 1.0 none
grown_by_md 5 1.2 none
grown_by_md 1 1.2 none
losetup --detach-all
echo "arrays grown by mdspace, served or not, and by md: the other one resyncs what is new, and finds all that was there"
