#!/bin/bash
# How fast btrfs scrubs, and mdspace with checksums, in turn over loop devices of the same kind on the same machine.
#
#   btrfs.sh MDSPACE LEVEL MEMBERS MEMBER_MIB     LEVEL: raid5 or raid10
#
# Both were filled with the same random bytes. Prints a line for each round of each: its name, seconds, bytes of file or array
# that were verified, bytes that members read (by the block layer's count), and processor seconds of the whole machine,
# as btrfs and loop devices work in threads of the kernel. Needs root, btrfs-progs, and a kernel with btrfs.
set -euo pipefail
mdspace=$1 level=$2 count=$3 mib=$4
rounds=5

scratch=$(mktemp -d -p /dev/shm)
devices=()
clean_up() {
    ! mountpoint -q "$scratch/btrfs" || umount "$scratch/btrfs"
    for device in "${devices[@]}"; do losetup --detach "$device"; done
    rm -rf "$scratch"
}
trap clean_up EXIT
mkdir "$scratch/btrfs"
head -c 64M /dev/urandom >"$scratch/random"
random() { # MIB
    head -c "${1}M" < <(while cat "$scratch/random"; do :; done 2>/dev/null)
}

for ((number = 0; number < count; number++)); do
    truncate -s "${mib}M" "$scratch/member$number"
    devices+=("$(losetup --find --show --direct-io=off "$scratch/member$number")")
done

read_bytes() {
    local sum=0 sectors
    for device in "${devices[@]}"; do
        read -r _ _ sectors _ <"/sys/block/${device#/dev/}/stat"
        sum=$((sum + sectors * 512))
    done
    echo $sum
}

# Hundredths of a second that processors worked: all but idle and waiting.
busy() {
    awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }' /proc/stat
}

measure() { # NAME VERIFIED_BYTES COMMAND...
    local name=$1 verified=$2 start end read_before busy_before
    shift 2
    for ((round = 0; round < rounds; round++)); do
        read_before=$(read_bytes) busy_before=$(busy) start=$EPOCHREALTIME
        "$@" >/dev/null
        end=$EPOCHREALTIME
        awk -v name="$name" -v verified="$verified" -v read=$(($(read_bytes) - read_before)) \
            -v seconds="$(awk "BEGIN { print $end - $start }")" -v busy=$(($(busy) - busy_before)) \
            'BEGIN { print name, seconds, verified, read, busy / 100 }'
    done
}

# What fits: three quarters of what the members offer for data.
case $level in
raid5) data_mib=$((mib * (count - 1) * 3 / 4)) ;;
raid10) data_mib=$((mib * count / 2 * 3 / 4)) ;;
esac

mkfs.btrfs --quiet --force --data "$level" --metadata raid1 "${devices[@]}" >/dev/null 2>&1
mount "${devices[0]}" "$scratch/btrfs"
random "$data_mib" >"$scratch/btrfs/file"
sync -f "$scratch/btrfs/file"
measure btrfs $((data_mib << 20)) btrfs scrub start -B "$scratch/btrfs"
umount "$scratch/btrfs"
for device in "${devices[@]}"; do blkdiscard --force "$device"; done

# Of nothing but zeros parity and copies are right.
created=$("$mdspace" create --json --level "${level#raid}" --chunk 64K --integrity --bitmap none --assume-clean "${devices[@]}")
array_bytes=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["array_bytes"])' <<<"$created")
random $((array_bytes >> 20)) | "$mdspace" write "${devices[@]}" >/dev/null
measure mdspace "$array_bytes" "$mdspace" scrub "${devices[@]}"
