#!/bin/bash
# How fast the real driver checks an array over RAM disks.
#
#   check_speed.sh LEVEL MEMBERS MEMBER_MIB ROUNDS
#
# Prints a line for each round: bytes read of all members, and nanoseconds.
set -euo pipefail
level=$1 count=$2 mib=$3 rounds=$4
export MDADM_NO_UDEV=1
modprobe brd rd_nr="$count" rd_size=$((mib << 10))
modprobe raid456
md=/sys/block/md0/md
members=(/dev/ram{0..31})
members=("${members[@]:0:count}")
for member in "${members[@]}"; do dd if=/dev/zero of="$member" bs=1M status=none 2>/dev/null || true; done # until it is full
mdadm --create /dev/md0 --quiet --run --level="$level" --chunk=64 --raid-devices="$count" --bitmap=none \
    --assume-clean "${members[@]}"
echo 100000000 >$md/sync_speed_max
echo 100000000 >$md/sync_speed_min
echo 4096 >$md/stripe_cache_size
bytes=$(($(<$md/component_size) * 1024 * count))
now() { date +%s%N; }
exec {silence}<> <(:)
for ((round = 0; round < rounds; round++)); do
    begun=$(now)
    echo check >$md/sync_action
    while [ "$(<$md/sync_action)" != idle ]; do read -rt 0.005 -u "$silence" || true; done
    echo "$bytes $(($(now) - begun))"
    [ "$(<$md/mismatch_cnt)" = 0 ]
done
mdadm --stop --quiet /dev/md0
