#!/bin/bash
# A volume group over five arrays, with volumes of each kind that lvm2 makes and the real drivers fill and read.
#
#   lvm.sh DIRECTORY
#
# Leaves in DIRECTORY/lvm the arrays' members disk0.img to disk4.img, as they were when the group was closed, and `reads`: the
# sha256 of each volume as device-mapper reads it, with the arguments that name it.
set -euo pipefail
export MDADM_NO_UDEV=1 DM_DISABLE_UDEV=1 LVM_SUPPRESS_FD_WARNINGS=1
mkdir "$1/lvm"
cd "$1/lvm"
modprobe loop max_loop=8
for module in raid0 raid1 raid10 raid456 dm_mod dm_mirror dm_raid dm_snapshot dm_thin_pool; do modprobe $module; done

mkdir -p "$SCRATCH/etc"
cat >"$SCRATCH/etc/lvm.conf" <<'CONF'
devices { dir = "/dev" scan = [ "/dev" ] use_devicesfile = 0 external_device_info_source = "none" md_component_detection = 0
          obtain_device_list_from_udev = 0 filter = [ "a|/dev/md|", "r|.*|" ] }
activation { udev_sync = 0 udev_rules = 0 monitoring = 0 verify_udev_operations = 1 }
global { use_lvmpolld = 0 locking_dir = "/run/lvm-lock" thin_check_executable = "" event_activation = 0 }
backup { backup = 0 archive = 0 }
CONF
export LVM_SYSTEM_DIR=$SCRATCH/etc

# As on a NAS that has one disk of each size: arrays of one member.
for index in 0 1 2 3 4; do
    truncate -s 64M disk$index.img
    losetup /dev/loop$index disk$index.img
    mdadm --create /dev/md$index --run --force --level 1 --raid-devices 1 --metadata 1.2 --homehost nas --name $index /dev/loop$index
done
vgcreate --physicalextentsize 1M vg1 /dev/md{0,1,2,3,4}

made=()
volume() { # NAME ARGUMENT...: a logical volume, filled
    lvcreate --yes --wipesignatures n --zero n --name "$@" vg1
    made+=("$1")
}
lvcreate --yes --wipesignatures n --zero n --name linear --extents 7 vg1 /dev/md0:0-3 /dev/md1:0-2
made+=(linear)
volume striped --size 6M --stripes 3 --stripesize 64k
volume raid0 --type raid0 --size 6M --stripes 3 --stripesize 64k
volume raid1 --type raid1 --mirrors 1 --size 4M
volume raid4 --type raid4 --size 4M --stripes 2 --stripesize 16k
volume raid5 --type raid5 --size 6M --stripes 3 --stripesize 64k
volume raid5_ra --type raid5_ra --size 6M --stripes 2 --stripesize 32k
volume raid6 --type raid6 --size 6M --stripes 3 --stripesize 64k
volume raid6_nr --type raid6_nr --size 6M --stripes 3 --stripesize 64k
volume raid10 --type raid10 --size 6M --stripes 2 --mirrors 1 --stripesize 64k
volume mirror --type mirror --mirrors 1 --mirrorlog core --size 4M
lvcreate --yes --type thin-pool --size 24M --chunksize 64k --poolmetadatasize 4M --name pool vg1
for thin in thin1 thin2; do
    lvcreate --yes --wipesignatures n --type thin --virtualsize 40M --thinpool pool --name $thin vg1
    made+=($thin)
done

for name in "${made[@]}"; do
    case $name in
    thin1) # scattered, with holes
        for at in 0 3 4 5 17 30 39; do dd if=/dev/urandom of=/dev/vg1/thin1 bs=64k seek=$((at * 16)) count=7 oflag=direct status=none; done ;;
    thin2) dd if=/dev/urandom of=/dev/vg1/thin2 bs=1M seek=20 count=5 oflag=direct status=none ;;
    *) dd if=/dev/urandom of=/dev/vg1/$name bs=1M oflag=direct status=none || true ;;
    esac
done
# A snapshot, and what its origin has since got.
lvcreate --yes --snapshot --name snap vg1/thin1 --setactivationskip n
made+=(snap)
dd if=/dev/urandom of=/dev/vg1/thin1 bs=64k seek=48 count=5 oflag=direct status=none
lvcreate --yes --snapshot --size 4M --name old vg1/striped
dd if=/dev/urandom of=/dev/vg1/striped bs=64k seek=8 count=5 oflag=direct status=none
for name in "${made[@]}"; do lvchange --activate y --ignoreactivationskip vg1/$name; done
sync
for name in "${made[@]}"; do
    echo "$(sha256sum </dev/vg1/$name | cut -d' ' -f1) disk0.img disk1.img disk2.img disk3.img disk4.img --inner vg1/$name" >>reads
done
# Volumes with redundancy also without an array, and others not.
without() { echo "disk0.img disk1.img disk2.img disk3.img disk4.img --inner vg1/$1" | sed "s/disk$2.img//"; }
for name in raid1 raid4 raid5 raid5_ra raid6 raid6_nr raid10; do
    echo "$(grep " vg1/$name\$" reads | cut -d' ' -f1) $(without $name 1)" >>reads
done
for name in linear striped raid0; do echo "physical $(without $name 0)" >>refuses; done
echo "snapshot disk0.img disk1.img disk2.img disk3.img disk4.img --inner vg1/snapshot0" >>refuses
echo "pool disk0.img disk1.img disk2.img disk3.img disk4.img --inner vg1/pool" >>refuses
lvs --all --options lv_name,segtype,lv_size,sync_percent vg1
vgchange --activate n vg1
for index in 0 1 2 3 4; do mdadm --stop /dev/md$index; done
losetup --detach-all
echo "a group with ${#made[@]} volumes"
