#!/bin/bash
# Both ways between mdspace and this kernel's md at every level, on small members: each side takes what the other made,
# and what the other wrote into it.
#
#   both_ways.sh MDSPACE [DIRECTORY]
#
# Runs in a guest (tests/kernel/init.sh), also of other processors and with larger pages, where MDSPACE is built for it. It
# never says which bytes are right: the side that wrote them does. What a kernel lacks or refuses is printed: a level
# without a module, and chunks below a page. DIRECTORY receives the members of an array of this kernel's, recorded.0 to
# recorded.2, their contents as `recorded.model`, and `page`, the bytes of a page.
set -euo pipefail
mdspace=$1 directory=${2:-}
. "$(dirname "$0")/common.sh"
modprobe raid0
has_linear=1
modprobe linear 2>/dev/null || has_linear=

MEMBER_BYTES=$((12 << 20))
head -c $((48 << 20)) /dev/urandom >pool
PIECE_AT=12345 PIECE_BYTES=300000
page=$(python3 -c 'import mmap; print(mmap.PAGESIZE)')
scenes=0

where() { echo "$scene"; }
evidence() {
    cat said
    mdadm --examine "${members[0]}"
}

# Ours, with its output in `said`.
ours() { "$mdspace" "$@" >said 2>&1 || fail "mdspace $1: status $?: $(<said)"; }
# reads WHEN: ours, all of the array, as the model says.
reads() {
    rm -f got
    ours read "${members[@]}" --output got
    cmp model got || fail "mdspace reads other bytes $1"
}
scrubs() { [ "$level" = 0 ] || [ "$level" = linear ] || ours scrub "${members[@]}"; }
# writes: ours, a piece of the pool that no unit is aligned with, noted in `model` too.
writes() {
    hand copy pool $((RANDOM * 500)) piece 0 $PIECE_BYTES || fail "no piece: $told"
    "$mdspace" write "${members[@]}" --offset $PIECE_AT <piece >said 2>&1 || fail "mdspace write: $(<said)"
    hand copy piece 0 model $PIECE_AT $PIECE_BYTES
    flushed
}
# md_takes WHEN: without force, with every slot current, and the model's bytes.
md_takes() {
    flushed
    assemble "${members[@]}"
    if [ -e $md/sync_action ]; then
        is $md/degraded 0 || fail "md finds slots that are not current $1"
        finished
        checked "$1"
    fi
    cmp model /dev/md0 || fail "md reads other bytes $1"
}

# scene LEVEL LAYOUT COUNT METADATA [OPTION...]: options are for mdadm alone, and so is metadata 0.90.
scene() {
    level=$1 layout=$2 count=$3 metadata=$4
    chunk=(--chunk 64K) shape=(--metadata "$metadata") bare=(--assume-clean)
    case $level in 1 | linear) chunk=() ;; esac
    case $level in 0 | linear) bare=() ;; esac
    [ -z "$layout" ] || shape+=(--layout "$layout")
    [ "$metadata" = 0.90 ] || made_by_mdspace
    made_by_md "${@:5}"
    scenes=$((scenes + 1))
}

made_by_mdspace() {
    scene="level $level $layout, metadata $metadata, made by mdspace"
    blank $count
    ours create --level "$level" "${chunk[@]}" "${shape[@]}" "${members[@]}"
    flushed
    assemble "${members[@]}"
    [ ! -e $md/sync_action ] || finished
    take_model
    stop_md
    flushed
    writes
    md_takes "after mdspace wrote"
    put_mib $((2 << 20)) /dev/md0
    stop_md
    flushed
    scrubs
    reads "after md wrote"
}

made_by_md() {
    scene="level $level $layout, metadata $metadata, made by md"
    blank $count
    mdadm --create /dev/md0 --quiet --run --level="$level" "${chunk[@]/%K/}" "${shape[@]}" --raid-devices=$count \
        "${bare[@]}" "$@" "${members[@]}"
    fill $((RANDOM % 8))
    take_model
    stop_md
    flushed
    ours examine "${members[@]}"
    scrubs
    reads "as md made it"
    writes
    reads "after mdspace wrote"
    md_takes "after mdspace wrote"
    stop_md
    flushed
}

: >said
if [ "$has_linear" ]; then
    scene linear "" 3 1.2
else
    echo "not tried: level linear, which this kernel lacks"
fi
scene 0 "" 3 1.2
scene 1 "" 2 1.0
scene 4 "" 3 1.2
scene 5 "" 4 1.1
scene 5 ra 3 0.90
scene 6 "" 5 1.2 --bitmap=internal
for layout in n2 f2 o2; do scene 10 $layout 4 1.2; done

# A chunk of 4 KiB: md takes it where it is a whole page.
level=5 count=3 scene="a chunk of 4 KiB"
blank 3
ours create --level 5 --chunk 4K "${members[@]}"
writes
flushed
if mdadm --assemble --quiet --run /dev/md0 "${members[@]}" 2>/dev/null; then
    [ "$page" = 4096 ] || fail "md takes a chunk below its page"
    stop_md
    flushed
else
    [ "$page" -gt 4096 ] || fail "md refuses a chunk of its page"
    echo "refused by md: a chunk of 4 KiB, with pages of $page bytes"
fi
"$mdspace" read "${members[@]}" --offset $PIECE_AT --length $PIECE_BYTES | cmp - piece || fail "mdspace reads other bytes"

if [ "$directory" ]; then
    scene="a recorded logical block"
    blank 3
    mdadm --create /dev/md0 --quiet --run --level=5 --chunk=64 --raid-devices=3 --assume-clean "${members[@]}"
    fill
    take_model
    stop_md
    flushed
    for number in 0 1 2; do hand copy m$number 0 "$directory/recorded.$number" 0 -1 sync; done
    hand copy model 0 "$directory/recorded.model" 0 -1 sync
    echo "$page" >"$directory/page"
fi
echo "Linux $(uname -r), $(mdadm --version 2>&1 | sed 's/ - /, /g'), pages of $page bytes: $scenes shapes, both ways"
