#!/bin/bash
# What the real driver has its members do for the writes of `mdspace bench --count`.
#
#   counts.sh LEVEL MEMBERS CHUNK_KIB ORDER:BYTES:DEPTH:REQUESTS...
#
# Prints a line for each workload: reads, sectors read, writes and sectors written, of all members together. Members are
# loop devices over the guest's memory, which count transfers after merging.
set -euo pipefail
level=$1 count=$2 chunk=$3
shift 3
modprobe loop max_loop="$count"
modprobe raid456
cd "$SCRATCH"

members=()
for ((number = 0; number < count; number++)); do
    truncate -s 16M m$number
    losetup /dev/loop$number m$number
    members+=(/dev/loop$number)
done
mdadm --create /dev/md0 --quiet --run --level="$level" --chunk="$chunk" --raid-devices="$count" --bitmap=none \
    --assume-clean "${members[@]}"
# The array stays marked dirty, so that no superblock is written while anything is counted.
echo 0 >/sys/block/md0/md/safe_mode_delay
dd if=/dev/zero of=/dev/md0 bs=1M oflag=direct status=none 2>/dev/null || true # until it is full

# Reads, sectors read, writes and sectors written until now.
sums() {
    cat /sys/block/loop*/stat |
        awk '{ reads += $1; read += $3; writes += $5; written += $7 } END { print reads, read, writes, written }'
}

for workload in "$@"; do
    IFS=: read -r order bytes depth requests <<<"$workload"
    case $order in
        linear) how=(--rw=write --size=$((requests * bytes))) ;;
        random) how=(--rw=randwrite --io_size=$((requests * bytes))) ;;
    esac
    read -r reads read writes written <<<"$(sums)"
    fio --name="$workload" --filename=/dev/md0 --direct=1 --ioengine=libaio --bs="$bytes" --iodepth="$depth" \
        --zero_buffers "${how[@]}" --output=fio.log || { cat fio.log; exit 1; }
    read -r reads_after read_after writes_after written_after <<<"$(sums)"
    echo "$workload $((reads_after - reads)) $((read_after - read)) $((writes_after - writes)) $((written_after - written))"
done
mdadm --stop --quiet /dev/md0
losetup --detach-all
