#!/bin/bash
# Metadata 0.90 becomes 1.0: by `mdspace update --metadata 1.0`, which the real driver takes, and by mdadm's own
# `--update=metadata`, which mdspace takes. Both write the same.
#
#   conversion.sh MDSPACE [LEVEL...]
#
# Runs in a guest (tests/kernel/init.sh). The superblocks are compared as mdadm prints them, but for what is each one's own:
# the member's random uuid, the checksum, and the events, which mdadm sets to 0 and mdspace keeps.
set -euo pipefail
mdspace=$1
shift
[ $# -gt 0 ] || set -- 0 1 5 6 10
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/members.sh"
modprobe raid0

MEMBER_BYTES=$((12 << 20)) scene=
head -c $((48 << 20)) /dev/urandom >pool

where() { echo "level $level, $scene"; }
evidence() { "$mdspace" examine "${members[@]}"; }

create() { # MEMBERS OPTION...
    blank "$1"
    local chunk=(--chunk=64)
    [ "$level" != 1 ] || chunk=()
    if [ "$level" = 0 ]; then # mdadm makes none with 0.90 any more
        "$mdspace" create --level 0 --chunk 64K --metadata 0.90 "${members[@]}"
        flushed
        assemble "${members[@]}"
    else
        mdadm --create /dev/md0 --quiet --run --metadata=0.90 --level="$level" "${chunk[@]}" --assume-clean \
            --raid-devices="$1" "${@:2}" "${members[@]}"
    fi
    fill
    [ "$level" = 0 ] || sweep repair
    take_model
    stop_md
    flushed
}
keep() {
    for number in "${!members[@]}"; do hand copy "m$number" 0 "kept$number" 0 -1 || fail "not kept: $told"; done
}
restore() {
    for number in "${!members[@]}"; do hand copy "kept$number" 0 "m$number" 0 -1 || fail "not restored: $told"; done
    flushed
}
# fields: of all superblocks.
fields() {
    local member
    for member in "${members[@]}"; do mdadm --examine "$member" | grep -Ev 'Device UUID|Checksum|Events|Update Time'; done
}
reads() {
    rm -f got
    "$mdspace" read "${members[@]}" --output got
    cmp model got || fail "mdspace reads other bytes"
}
md_reads() {
    assemble "${members[@]}"
    cmp model /dev/md0 || fail "md reads other bytes"
    [ "$level" = 0 ] || is $md/degraded 0 || fail "md finds slots that are not current"
    [ "$level" = 0 ] || checked
    [ "$(<$md/metadata_version)" = 1.0 ] || fail "md finds $(<$md/metadata_version)"
    stop_md
    flushed
}
# refused_by_both WORDS: and no member is changed.
refused_by_both() {
    keep
    local status=0
    "$mdspace" update --metadata 1.0 "${members[@]}" 2>refusal || status=$?
    [ $status = 2 ] || fail "status $status: $(<refusal)"
    grep --quiet "$1" refusal || fail "another refusal: $(<refusal)"
    flushed
    for number in "${!members[@]}"; do cmp "kept$number" "m$number" || fail "a refusal changed a member"; done
    ! mdadm --assemble --quiet /dev/md0 --update=metadata "${members[@]}" 2>/dev/null || fail "mdadm converts it"
    stop_md 2>/dev/null || true
}

for level in "$@"; do
    count=${MEMBERS[$level]:-3}
    scene="mdspace converts"
    create "$count"
    keep
    "$mdspace" update --metadata 1.0 "${members[@]}"
    flushed
    fields >ours
    for number in "${!members[@]}"; do
        ! mdadm --examine --metadata=0.90 "m$number" >old 2>&1 || fail "m$number: the old superblock is left: $(<old)"
    done
    reads
    md_reads
    reads

    scene="mdadm converts"
    restore
    mdadm --assemble --quiet --run /dev/md0 --update=metadata "${members[@]}" || fail "mdadm does not convert it"
    stop_md
    flushed
    fields >theirs
    diff ours theirs || fail "mdadm writes other superblocks"
    reads
    # What mdadm leaves of 0.90 goes, and nothing else.
    "$mdspace" update --metadata 1.0 "${members[@]}"
    flushed
    fields >without
    diff theirs without || fail "more than the old superblocks went"
    md_reads

    [ "$level" != 0 ] || continue
    scene="a conversion that was interrupted, and md goes on"
    restore
    "$mdspace" update --metadata 1.0 "${members[@]}"
    hand copy kept1 0 m1 0 -1 || fail "not restored: $told"
    flushed
    reads
    put_mib_here() { hand copy pool 0 piece 0 65536 && "$mdspace" write "${members[@]}" <piece && hand copy piece 0 model 0 65536; }
    put_mib_here || fail "mdspace does not write"
    flushed
    md_reads
    echo "level $level: 0.90 becomes 1.0 by either"
done

level=5
scene="a bitmap"
create 3 --bitmap=internal
refused_by_both "has a bitmap"
scene="not clean"
create 3
mdadm --assemble --quiet --run /dev/md0 --update=resync "${members[@]}" || fail "md does not assemble them"
slow_md_down
stop_md
flushed
refused_by_both "not clean"
echo "Linux $(uname -r): metadata 0.90 becomes 1.0, and is the same by mdspace and by mdadm"
