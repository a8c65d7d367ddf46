#!/bin/bash
# Four whole disks of a NAS: GPT with three partitions, three arrays of mdadm over them, and in the third LVM with ext4.
#
#   disks.sh DIRECTORY
#
# Leaves DIRECTORY/disks with disk1.img to disk4.img, and `reads`: the sha256 of the volume as the drivers read it. `lists` is
# the list of a directory in it, as the kernel's ext4 shows it.
set -euo pipefail
export MDADM_NO_UDEV=1 DM_DISABLE_UDEV=1 LVM_SUPPRESS_FD_WARNINGS=1
mkdir "$1/disks"
cd "$1/disks"
modprobe loop max_loop=16
for module in raid1 raid456 dm_mod; do modprobe $module; done
mkdir -p "$SCRATCH/lvm"
cat >"$SCRATCH/lvm/lvm.conf" <<'CONF'
devices { use_devicesfile = 0 obtain_device_list_from_udev = 0 external_device_info_source = "none"
          filter = [ "a|/dev/md|", "r|.*|" ] }
activation { udev_sync = 0 udev_rules = 0 monitoring = 0 }
global { use_lvmpolld = 0 locking_dir = "/run/lvm-lock" event_activation = 0 }
backup { backup = 0 archive = 0 }
CONF
export LVM_SYSTEM_DIR=$SCRATCH/lvm

loop=0
parts=("" "" "") # the devices of each partition
for disk in disk1.img disk2.img disk3.img disk4.img; do
    truncate -s 64M $disk
    sfdisk --quiet --no-reread --no-tell-kernel $disk <<'TABLE'
label: gpt
start=1MiB, size=8MiB, type=R
start=9MiB, size=8MiB, type=R
start=17MiB, size=40MiB, type=R
TABLE
    for part in "0 1 8" "1 9 8" "2 17 40"; do
        read -r number at size <<<"$part"
        losetup --offset $((at << 20)) --sizelimit $((size << 20)) /dev/loop$loop $disk
        parts[number]+=" /dev/loop$loop"
        loop=$((loop + 1))
    done
done
make() { # NUMBER OPTION...
    # shellcheck disable=SC2086 # words
    mdadm --create /dev/md$1 --run --assume-clean --raid-devices 4 --homehost nas --name $1 "${@:2}" ${parts[$1]}
}
make 0 --level 1 --metadata 0.90
make 1 --level 1 --metadata 1.0
make 2 --level 5 --metadata 1.2 --chunk 64
vgcreate --quiet --physicalextentsize 1M vg1 /dev/md2
lvcreate --quiet --yes --wipesignatures n --extents 80 --name volume_1 vg1
mke2fs -q -t ext4 /dev/vg1/volume_1
mkdir "$SCRATCH/mnt"
mount /dev/vg1/volume_1 "$SCRATCH/mnt"
mkdir "$SCRATCH/mnt/photos"
for name in summer winter; do head -c 300000 /dev/urandom >"$SCRATCH/mnt/photos/$name"; done
ls "$SCRATCH/mnt/photos" >lists
umount "$SCRATCH/mnt"
echo "$(sha256sum </dev/vg1/volume_1 | cut -d' ' -f1) disk1.img disk2.img disk3.img disk4.img --inner vg1/volume_1" >reads
vgchange --activate n vg1
for number in 0 1 2; do mdadm --stop /dev/md$number; done
losetup --detach-all
echo "four disks of a NAS"
