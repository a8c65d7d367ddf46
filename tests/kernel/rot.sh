#!/bin/bash
# Members that were silently corrupted in many places: repaired by the real driver; and, after mdspace has repaired the
# same ones, checked and read by it.
#
#   rot.sh DIRECTORY COUNT      the guest's disks are COUNT members for the driver to repair, and as many that were
#
# Leaves what it reads of the arrays in DIRECTORY/md and DIRECTORY/ours, and prints the mismatch_cnt of a check of the latter.
# What is right is not its business: crates/lab/examples/rot_files.rs knows.
set -euo pipefail
directory=$1 count=$2
. "$(dirname "$0")/common.sh"

where() { echo "$side"; }
evidence() { :; }

read -ra disks <<<"$DISKS"

side=md
assemble_and_finish "${disks[@]:0:count}"
sweep repair
hand copy /dev/md0 0 "$directory/md" 0 -1 || fail "not read: $told"
stop_md

side=ours
assemble_and_finish "${disks[@]:count}"
sweep check
mismatches=$(<$md/mismatch_cnt)
hand copy /dev/md0 0 "$directory/ours" 0 -1 || fail "not read: $told"
stop_md
echo "$mismatches"
