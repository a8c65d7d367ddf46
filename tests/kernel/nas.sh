#!/bin/bash
# What a NAS leaves: a RAID-5 of mdadm's making with a file system, out of which one disk has fallen before the last files came.
# docs/rescue.md is then read on its members.
#
#   nas.sh DIRECTORY
#
# Leaves disk1.img ... disk4.img in DIRECTORY; disk2.img is out of date.
set -euo pipefail
export MDADM_NO_UDEV=1 # a guest has none that could answer
cd "$1"
modprobe loop max_loop=8
modprobe raid456

loops=()
for disk in disk1.img disk2.img disk3.img disk4.img; do
    truncate -s 16M $disk
    loops+=("$(losetup --find --show $disk)")
done
mdadm --create /dev/md0 --run --assume-clean --level 5 --raid-devices 4 --metadata 1.2 --chunk 64 --homehost nas --name data "${loops[@]}"
mkdir tree tree/photos
echo summer >tree/photos/list
mke2fs -q -t ext4 -d tree /dev/md0
mdadm /dev/md0 --fail "${loops[1]}"
mkdir "$SCRATCH/mnt"
mount /dev/md0 "$SCRATCH/mnt"
echo winter >>"$SCRATCH/mnt/photos/list"
umount "$SCRATCH/mnt"
mdadm --stop /dev/md0
losetup --detach-all
rm -r tree
echo "an array of four members, one of them out of date"
