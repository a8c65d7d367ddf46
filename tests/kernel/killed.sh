#!/bin/bash
# The arrays of tests/killed.py as their servers' last kill left them, taken by the real driver: it resyncs them, a check
# finds no mismatch, and every block is one that it may be.
#
#   killed.sh JUDGE DIRECTORY      the members are the guest's disks, in the order of the arrays
#
# JUDGE is tests/killed.py.
set -euo pipefail
export MDADM_NO_UDEV=1
judge=$1 directory=$2
for module in raid10 raid456; do modprobe $module; done
md=/sys/block/md0/md

fail() {
    echo "$array: $*; $(<$md/sync_action)"
    exit 1
}
. "${BASH_SOURCE[0]%/*}/until.sh"
idle() { [ "$(<$md/sync_action)" = idle ]; }
check() { { echo check >$md/sync_action; } 2>/dev/null; } # refused while a sweep is about to begin or to end

read -ra disks <<<"$DISKS"
arrays=(raid5:3 raid6:4 raid10:4 checked:4)
dirty=0
for entry in "${arrays[@]}"; do
    array=${entry%:*} count=${entry#*:}
    members=("${disks[@]:0:count}") disks=("${disks[@]:count}")
    dmesg --clear
    mdadm --assemble --run --quiet /dev/md0 "${members[@]}"
    [ "$(<$md/degraded)" = 0 ] || { echo "$array: $(<$md/degraded) members missing"; exit 1; }
    if [ "$(<$md/array_state)" = read-auto ]; then mdadm --readwrite --quiet /dev/md0; fi
    until_true idle
    until_true check
    until_true idle
    [ "$(<$md/mismatch_cnt)" = 0 ] || { echo "$array: mismatch_cnt is $(<$md/mismatch_cnt)"; exit 1; }
    if dmesg | grep -q 'md: resync of RAID array md0'; then dirty=$((dirty + 1)); fi
    "$judge" judge "$directory" "$array" /dev/md0
    mdadm --stop --quiet /dev/md0
done
((dirty > 0)) || { echo "none of them had to be resynced: nothing was shown"; exit 1; }
echo "the driver resynced $dirty of ${#arrays[@]} arrays, and finds them whole"
