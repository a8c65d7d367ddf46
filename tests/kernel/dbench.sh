#!/bin/bash
# dbench on ext4, over the real kernel's nbd to an array of ours and over the kernel's own md, in the same guest: RAID-5
# of four members, by stripe size.
#
#   dbench.sh MDSPACE [SECONDS [CLIENTS]]
#
# Prints throughput and the worst latency. Members are loop devices over the guest's memory, so nothing waits for a
# drive: what is compared is the way that a write takes. One processor, User Mode Linux's; take ratios.
set -euo pipefail
mdspace=$1 seconds=${2:-20} clients=${3:-10}
modprobe nbd
modprobe loop max_loop=8
modprobe raid456
cd "$SCRATCH"
mkdir mnt
members=(/dev/loop{0,1,2,3})
for member in 0 1 2 3; do
    truncate -s 160M m$member
    losetup /dev/loop$member m$member
done

# on DEVICE NAME: runs dbench there.
on() {
    mkfs.ext4 -q -F "$1"
    mount "$1" mnt
    dbench -D mnt -t "$seconds" "$clients" >dbench.log 2>&1 || { tail dbench.log; exit 1; }
    umount mnt
    e2fsck -fn "$1" >/dev/null 2>&1
    echo "$2: $(grep '^Throughput' dbench.log)"
}

# Waits until the server answers; fails when it has ended instead.
wait_for_server() {
    until nbdinfo --size "nbd+unix:///?socket=$PWD/nbd.socket" >/dev/null 2>&1; do
        kill -0 "$server" || { echo "the server ended"; exit 1; }
    done
}

ours() {
    local size=$1
    "$mdspace" create --force --assume-clean --level 5 --chunk 64K "${members[@]}" >/dev/null
    "$mdspace" serve "${members[@]}" --stripe-size "$size" --nbd "unix:$PWD/nbd.socket" --control control.socket >/dev/null &
    server=$!
    wait_for_server
    nbd-client -unix "$PWD/nbd.socket" /dev/nbd0 -block-size 4096 >/dev/null
    on /dev/nbd0 "mdspace, stripe size $size"
    nbd-client -d /dev/nbd0 >/dev/null
    "$mdspace" stop --control control.socket >/dev/null 2>&1
    wait "$server"
}

# The kernel's stripe_size is that of its pages, 4 KiB here.
theirs() {
    mdadm --create /dev/md0 --quiet --run --level=5 --chunk=64 --raid-devices=4 --bitmap=none --assume-clean \
        "${members[@]}"
    on /dev/md0 "md"
    mdadm --stop --quiet /dev/md0
    mdadm --zero-superblock "${members[@]}"
}

for round in 1 2 3; do
    echo "round $round$([ $round != 1 ] || echo ", which warms up")"
    for size in auto 4K 64K; do ours $size; done
    theirs
done
losetup --detach-all
