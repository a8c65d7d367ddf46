#!/bin/bash
# File systems on /dev/nbd0 of a real kernel, over an array that mdspace serves in the same guest; then the kernel's
# md takes the members over.
#
#   filesystem.sh MDSPACE
set -euo pipefail
mdspace=$1
modprobe nbd
modprobe loop max_loop=8
for module in raid10 raid456; do modprobe $module; done
md=/sys/block/md0/md

# Members in the guest's memory; a tmpfs does not reach the host, and is gone with the guest.
directory=$SCRATCH/members
mkdir -p "$directory" "$SCRATCH/mnt"
cd "$directory"

# Waits until the server answers; fails when it has ended instead.
wait_for_server() {
    until nbdinfo --size "nbd+unix:///?socket=$PWD/nbd.socket" >/dev/null 2>&1; do
        kill -0 "$server" || { echo "the server ended"; exit 1; }
    done
}

# fill DIRECTORY: files of many sizes, holes, renames and removals.
fill() {
    cp -r "/run/uml/lib/modules/$(uname -r)/kernel/drivers/md" "$1/modules"
    cp -L /usr/bin/bash /usr/bin/perl "$1/"
    for i in {1..40}; do head -c $((i * 997)) /usr/bin/bash >"$1/small.$i"; done
    truncate -s 10M "$1/hole" && echo end >>"$1/hole"
    rm "$1"/small.*3 && mv "$1/small.8" "$1/renamed"
}

# on_nbd LEVEL LAYOUT MEMBERS MAKE CHECK: a file system on an array of that shape.
on_nbd() {
    local level=$1 layout=$2 count=$3 make=$4 check=$5 members=() loops=() number
    echo "--- $make on RAID-$level $layout of $count members"
    rm -f m*
    for ((number = 0; number < count; number++)); do members+=("m$number"); done
    "$mdspace" create --level "$level" --layout "$layout" --chunk 16K --size 160M "${members[@]}"
    "$mdspace" serve "${members[@]}" --nbd "unix:$PWD/nbd.socket" --control control.socket &
    server=$!
    wait_for_server
    nbd-client -unix "$PWD/nbd.socket" /dev/nbd0 -block-size 4096
    $make /dev/nbd0
    mount /dev/nbd0 "$SCRATCH/mnt"
    fill "$SCRATCH/mnt"
    sync
    "$mdspace" fail m1 --control control.socket
    fill "$(mktemp -d -p "$SCRATCH/mnt")"
    (cd "$SCRATCH/mnt" && find . -type f -exec b2sum {} + | sort) >sums
    umount "$SCRATCH/mnt"
    $check /dev/nbd0
    nbd-client -d /dev/nbd0
    "$mdspace" stop --control control.socket
    wait "$server"

    echo "--- md takes it over"
    for member in "${members[@]}"; do loops+=("$(losetup --find --show "$member")"); done
    mdadm --assemble --run /dev/md0 "${loops[@]}" || { dmesg | tail -n 15; exit 1; }
    [ "$(<$md/degraded)" = 1 ]
    mdadm --zero-superblock "${loops[1]}"
    mdadm --add /dev/md0 "${loops[1]}"
    until [ "$(<$md/degraded)" = 0 ]; do mdadm --wait /dev/md0 || true; done
    echo check >$md/sync_action
    mdadm --wait /dev/md0 || true # 1: there was nothing to wait for
    [ "$(<$md/mismatch_cnt)" = 0 ]
    $check /dev/md0
    mount -o ro /dev/md0 "$SCRATCH/mnt"
    (cd "$SCRATCH/mnt" && find . -type f -exec b2sum {} + | sort) | cmp - sums
    umount "$SCRATCH/mnt"
    mdadm --stop /dev/md0
    losetup --detach-all
}

on_nbd 5 left-symmetric 4 "mkfs.ext4 -q" "e2fsck -fn"
on_nbd 6 left-symmetric 5 "mkfs.xfs -q -f" "xfs_repair -n"
on_nbd 10 n2 4 "mkfs.ext4 -q" "e2fsck -fn"
echo "3 file systems"
