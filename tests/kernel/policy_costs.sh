#!/bin/bash
# What each consistency policy costs in writes of 4 KiB at random places, 32 at a time, to a RAID-5 of 8 members.
#
#   policy_costs.sh MDSPACE SECONDS ROUNDS
#
# Prints lines of words separated by tabs:
#   counts md POLICY REQUESTS READS WRITES FLUSHES SECTORS    of the real driver's members (loop devices, which count), with the journal
#   speed ENGINE POLICY REQUESTS_PER_SECOND                   on RAM disks, which need no flush: one line for each round
set -euo pipefail
mdspace=$1 seconds=$2 rounds=$3
export MDADM_NO_UDEV=1
COUNT=8 CHUNK_KIB=64 COMPONENT_KIB=4096 MEMBER_KIB=24576 REQUESTS=4096
modprobe loop max_loop=$((COUNT + 1))
modprobe brd rd_nr=$((COUNT + 1)) rd_size=$MEMBER_KIB
modprobe raid456
cd "$SCRATCH"

# started POLICY DEVICE...: by the driver; the last device is for a journal.
started() {
    local policy=$1 devices=("${@:2}") kept=()
    case $policy in
        resync) kept=(--bitmap=none) ;;
        bitmap) kept=(--bitmap=internal) ;;
        ppl) kept=(--consistency-policy=ppl) ;;
        journal) kept=(--write-journal "${devices[COUNT]}") ;;
    esac
    mdadm --create /dev/md0 --quiet --run --level=5 --chunk=$CHUNK_KIB --size=$COMPONENT_KIB --raid-devices=$COUNT --assume-clean \
        "${kept[@]}" "${devices[@]:0:COUNT}"
    # It stays marked dirty, so that no superblock is written while anything is counted.
    echo 0 >/sys/block/md0/md/safe_mode_delay
    dd if=/dev/zero of=/dev/md0 bs=1M oflag=direct status=none 2>/dev/null || true # until it is full
}
stopped() { # DEVICE...: they belong to no array any more
    mdadm --stop --quiet /dev/md0
    mdadm --zero-superblock "$@" 2>/dev/null || true
}
random_writes() { # ARGUMENT...
    fio --name=random --filename=/dev/md0 --direct=1 --ioengine=libaio --bs=4096 --iodepth=32 --rw=randwrite --zero_buffers \
        --output=fio.log --output-format=json "$@" || { cat fio.log; exit 1; }
}

loops=()
for ((number = 0; number <= COUNT; number++)); do
    truncate -s ${MEMBER_KIB}K m$number
    losetup /dev/loop$number m$number
    loops+=(/dev/loop$number)
done
sums() { # reads, writes, flushes and sectors written until now
    cat /sys/block/loop*/stat | awk '{ reads += $1; writes += $5; flushes += $16; sectors += $7 } END { print reads, writes, flushes, sectors }'
}
for policy in resync bitmap ppl journal; do
    started $policy "${loops[@]}"
    random_writes --io_size=4096 # its bit is set
    read -r reads writes flushes sectors <<<"$(sums)"
    random_writes --io_size=$((REQUESTS * 4096))
    read -r reads_after writes_after flushes_after sectors_after <<<"$(sums)"
    printf 'counts\tmd\t%s\t%d\t%d\t%d\t%d\t%d\n' $policy $REQUESTS $((reads_after - reads)) $((writes_after - writes)) \
        $((flushes_after - flushes)) $((sectors_after - sectors))
    stopped "${loops[@]}"
done
losetup --detach-all

rams=(/dev/ram{0..8}) ours=()
for ram in "${rams[@]}"; do ours+=(--member "$ram"); done
per_second() { python3 -c 'import json, sys; found = json.load(open(sys.argv[1])); print(round(eval(sys.argv[2], found)))' "$@"; }
for ((round = 0; round < rounds; round++)); do
    for policy in resync bitmap ppl journal; do
        started $policy "${rams[@]}"
        random_writes --time_based --runtime="$seconds"
        printf 'speed\tmd\t%s\t%s\n' $policy "$(per_second fio.log 'jobs[0]["write"]["iops"]')"
        stopped "${rams[@]}"
    done
    for policy in resync bitmap ppl journal log; do
        devices=$((COUNT * 2))
        [ $policy != journal ] || devices=${#ours[@]} # the last one is the journal
        for ram in "${rams[@]}"; do dd if=/dev/zero of="$ram" bs=1M count=4 status=none; done
        "$mdspace" bench --level 5 --chunk ${CHUNK_KIB}K --depth 32 --seconds "$seconds" --only 'write 4 KiB random' --json \
            --consistency-policy $policy "${ours[@]:0:devices}" >bench.json
        printf 'speed\tmdspace\t%s\t%s\n' $policy "$(per_second bench.json 'levels[0]["figures"][0]["array_per_second"]')"
    done
done
