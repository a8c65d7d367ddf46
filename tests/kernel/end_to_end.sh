#!/bin/bash
# The kernel's part of tests/end_to_end.sh: md assembles what mdspace left, without --force.
#
#   end_to_end.sh DIRECTORY
set -euo pipefail
cd "$1"
modprobe loop max_loop=8
modprobe raid456
md=/sys/block/md0/md

loops=()
for member in m0 m1 m2 m3; do
    loops+=("$(losetup --find --show $member)")
done

check() {
    echo check >$md/sync_action
    mdadm --wait /dev/md0 || true # 1: there was nothing to wait for
    [ "$(<$md/sync_action)" = idle ]
    [ "$(<$md/mismatch_cnt)" = 0 ]
    cmp -n "$(stat -c %s image)" image /dev/md0
    e2fsck -fn /dev/md0
}

mdadm --assemble --run /dev/md0 "${loops[@]}"
[ "$(<$md/degraded)" = 1 ] # m2 is known to be stale
check
mkdir "$SCRATCH/mnt"
mount -o ro /dev/md0 "$SCRATCH/mnt"
diff --recursive --no-dereference --exclude=lost+found tree "$SCRATCH/mnt"
umount "$SCRATCH/mnt"

mdadm --zero-superblock "${loops[2]}"
mdadm --add /dev/md0 "${loops[2]}"
until [ "$(<$md/degraded)" = 0 ]; do mdadm --wait /dev/md0 || true; done
check
mdadm --stop /dev/md0
losetup --detach-all
echo "md took the array, recovered the failed member, and checked it clean"
