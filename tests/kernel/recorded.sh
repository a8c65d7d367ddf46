#!/bin/bash
# Does this kernel take an array whose superblocks recorded its logical block?
#
#   recorded.sh refused|taken DIRECTORY
#
# Runs in a guest (tests/kernel/init.sh). DIRECTORY has the members recorded.0 to recorded.2 and their contents, as
# both_ways.sh leaves them; they are used as copies. `refused` demands that the kernel calls the superblock invalid.
set -euo pipefail
expected=$1 directory=$2
mdspace= MEMBER_BYTES=0
. "$(dirname "$0")/common.sh"

where() { echo "a recorded logical block, $expected"; }
evidence() { mdadm --examine "${members[0]}"; }

for number in 0 1 2; do hand copy "$directory/recorded.$number" 0 m$number 0 -1; done
hand attach m0 m1 m2 || fail "no loop devices: $told"
read -ra members <<<"$told"
if mdadm --assemble --quiet --run /dev/md0 "${members[@]}"; then
    [ "$expected" = taken ] || fail "md takes them"
    allow_writes
    finished
    checked
    cmp "$directory/recorded.model" /dev/md0 || fail "md reads other bytes"
    stop_md
    record=$(od -A n -t u4 -j $((4096 + 224)) -N 4 m0)
    echo "taken by Linux $(uname -r), which leaves a record of ${record// /} bytes"
else
    [ "$expected" = refused ] || fail "md refuses them"
    dmesg | grep --quiet "does not have a valid v1.2 superblock" || fail "md refuses them for another reason"
    echo "refused by Linux $(uname -r)"
fi
