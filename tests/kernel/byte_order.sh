#!/bin/bash
# Superblocks 0.90 of the other byte order: mdspace writes the array and leaves that order, and md takes what it wrote.
#
#   byte_order.sh MDSPACE
#
# Runs in a guest (tests/kernel/init.sh). No kernel of that order is here: tests/cases/superblock.py turns superblocks that
# the driver made, and mdadm's own `--update=byteorder` turns back those that mdspace wrote, also of an array that it left
# without a member and dirty. `mdspace update --byteorder` writes what mdadm's writes. mdadm and the driver refuse a wrong checksum, and events that do not agree.
set -euo pipefail
mdspace=$1 turn=$(realpath "${BASH_SOURCE[0]%/*}/../cases/superblock.py")
. "$(dirname "$0")/common.sh"

MEMBER_BYTES=$((8 << 20)) level=5 count=3
PIECE_AT=12345 PIECE_BYTES=300000
head -c $((24 << 20)) /dev/urandom >pool
scene=

where() { echo "$scene"; }
evidence() { "$mdspace" examine "${members[@]}"; }

# make OPTION...: by the driver, with superblocks of the other order.
make() {
    blank $count
    mdadm --create /dev/md0 --quiet --run --metadata=0.90 --level=5 --chunk=64 --raid-devices=$count --assume-clean "$@" \
        "${members[@]}"
    fill
    take_model
    stop_md
    flushed
    for number in 0 1 2; do "$turn" --swap m$number; done
    flushed
    ! mdadm --assemble --quiet --run /dev/md0 "${members[@]}" 2>/dev/null || fail "md takes the other order"
}
# magic MEMBER: the first word of its superblock, as bytes.
magic() { od -A n -t x1 -j $((MEMBER_BYTES - 65536)) -N 4 "$1" | tr -d ' '; }
are_turned() {
    flushed
    local member
    for member in "$@"; do [ "$(magic "$member")" = a92b4efc ] || fail "$member: another order after $scene"; done
}
writes() { # MEMBER...
    hand copy pool $((RANDOM * 300)) piece 0 $PIECE_BYTES || fail "no piece: $told"
    "$mdspace" write "$@" --offset $PIECE_AT <piece || fail "mdspace write"
    hand copy piece 0 model $PIECE_AT $PIECE_BYTES
    are_turned "$@"
}
reads() {
    rm -f got
    "$mdspace" read "$@" --output got
    cmp model got || fail "mdspace reads other bytes"
}
md_takes() { # MEMBER...
    local update=(--update=byteorder) number
    if ! $mdadm_turns; then
        update=()
        flushed
        for number in 0 1 2; do "$turn" --swap m$number; done
        flushed
    fi
    mdadm --assemble --quiet --run "${update[@]}" /dev/md0 "$@" || fail "md does not assemble them"
    allow_writes
    cmp model /dev/md0 || fail "md reads other bytes"
}

# mdadm 4.4 finds no superblock of the other order, whatever wrote it. The script turns them for it.
make
mdadm_turns=true
mdadm --assemble --quiet --run --update=byteorder /dev/md0 "${members[@]}" 2>/dev/null || mdadm_turns=false
! $mdadm_turns || stop_md

scene="a write"
make
reads "${members[@]}"
writes "${members[@]}"
reads "${members[@]}"
"$mdspace" scrub "${members[@]}"
are_turned "${members[@]}"
md_takes "${members[@]}"
is $md/degraded 0 || fail "md finds slots that are not current"
checked
stop_md

scene="a write without a member"
make
writes "${members[@]:0:2}"
"$mdspace" examine "${members[@]}" >examined || true
md_takes "${members[@]}"
is $md/degraded 1 || fail "md takes a member that missed a write"
stop_md

scene="update --byteorder"
make
for number in 0 1 2; do hand copy m$number 0 kept$number 0 -1; done
"$mdspace" update --byteorder "${members[@]}"
flushed
for number in 0 1 2; do
    hand copy m$number 0 turned 0 -1
    "$turn" --swap turned
    cmp kept$number turned || fail "m$number is not what it was before the turn"
done
md_reads_it() {
    assemble "${members[@]}"
    cmp model /dev/md0 || fail "md reads other bytes"
    is $md/degraded 0 || fail "md finds slots that are not current"
    checked
    stop_md
}
md_reads_it
make --bitmap=internal
"$mdspace" update --byteorder "${members[@]}" | grep --quiet "bitmap: removed" || fail "no word of the bitmap"
flushed
md_reads_it

scene="a bitmap"
make --bitmap=internal
for number in 0 1 2; do hand copy m$number 0 kept$number 0 -1; done
status=0
"$mdspace" write "${members[@]}" <piece 2>refusal || status=$?
[ $status = 2 ] || fail "status $status: $(<refusal)"
grep --quiet "other byte order, with a bitmap" refusal || fail "another refusal: $(<refusal)"
flushed
for number in 0 1 2; do cmp kept$number m$number || fail "a refusal changed a member"; done
reads "${members[@]}"
$mdadm_turns && by=mdadm || by="the script, as this mdadm finds none"
echo "Linux $(uname -r): superblocks 0.90 of the other byte order are written in that order, and turned by $by"
