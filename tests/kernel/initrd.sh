#!/bin/busybox sh
# The first process of a guest in emulation (xtask/src/systems/): mounts the tree of the system as its root, and the
# workspace of the host at the same place as there, in which tests/kernel/init.sh goes on.
#
# The kernel passes on $mdspace_workspace from its command line. What the guest writes is on the host once it has synced.
/bin/busybox mount -t devtmpfs dev /dev
while read -r module; do /bin/busybox insmod "/modules/$module"; done </modules/order
mount_9p() { /bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose "$1" "$2"; }
mount_9p root /new
mount_9p workspace "/new$mdspace_workspace"
/bin/busybox mount -t devtmpfs dev /new/dev
/bin/busybox mount -t tmpfs tmp /new/tmp
exec /bin/busybox switch_root /new /bin/bash "$mdspace_workspace/tests/kernel/init.sh"
