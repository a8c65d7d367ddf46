#!/bin/bash
# What the kernel does with a file system on a disk while search.py makes its arrays.
#
#   change.sh DISK change FILE...    adds the files, removes some others, and unmounts it
#   change.sh DISK crash FILE...     the same, but it ends without being unmounted (ext4, XFS)
#   change.sh DISK replay            mounts it, which replays its log or journal, and unmounts it
set -euo pipefail
disk=$1 what=$2
shift 2
for module in ext4 xfs btrfs; do modprobe $module; done
mnt=$SCRATCH/mnt
mkdir -p "$mnt"
mount "$disk" "$mnt"
if [ "$what" != replay ]; then
    later=$(mktemp -d -p "$mnt")
    number=0
    for file in "$@"; do cp "$file" "$later/$((number += 1))"; done
    rm -f "$mnt"/d0/f*3
    sync
    # Of these only the log knows.
    rm -f "$mnt"/d0/f*7
    mkdir "$later/last"
fi
if [ "$what" = crash ]; then xfs_io -x -c "shutdown -f" "$mnt"; fi
umount "$mnt"
