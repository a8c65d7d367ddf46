#!/bin/bash
# A newcomer's way: in a bare Debian, the commands from nothing to the first file of a NAS, to a served volume, and to a virtual
# machine that boots from one.
#
#   newcomer.sh SUITE PACKAGE DISKS DIRECTORY    as root; the system and its packages come from Debian's archive
#
# DISKS has disk1.img to disk4.img (tests/kernel/disks.sh). The last lines are a table: for each goal the commands of the newcomer,
# their number and seconds. The archive's answers are among the seconds, the making of the bare system is not.
set -euo pipefail
suite=$1 package=$(realpath "$2") disks=$(realpath "$3") directory=$4
cd "$directory"
# Mounts and servers end with this script, however it ends: what removes its directory must not meet the machine's /dev.
[ -n "${NEWCOMER:-}" ] || NEWCOMER=1 exec unshare --mount --pid --fork --kill-child "$0" "$suite" "$package" "$disks" "$PWD"

mmdebstrap --quiet --mode=root --variant=minbase "$suite" "$suite" http://deb.debian.org/debian
# As a person's system reaches the archive.
cp /etc/resolv.conf "$suite/etc/"
cp -r /etc/apt/apt.conf.d/. "$suite/etc/apt/apt.conf.d/"
mkdir -p "$suite/srv"
cp "$package" "$suite/srv/mdspace.deb"
cp --sparse=always "$disks"/disk?.img "$suite/srv/"
mount -t proc proc "$suite/proc"
mount --rbind /dev "$suite/dev"

lines=()
goal() { # WORDS: of the table's row
    words=$1 commands=0 seconds=0 typed=
}
inside() { env -i HOME=/srv PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive chroot "$suite" sh -euc "cd /srv; $1"; }
type() { # COMMAND [BEHIND]: what is typed, and what only this script adds to it
    local begin=$EPOCHREALTIME
    echo "# $1"
    inside "$1 ${2:-}"
    seconds=$(awk "BEGIN { print $seconds + $EPOCHREALTIME - $begin }")
    commands=$((commands + 1)) typed="$typed${typed:+<br>}\`${1//|/\\|}\`"
}
reached() { lines+=("| $suite | $words | $commands | $(printf '%.0f' "$seconds") | $typed |"); }

goal "the package"
type "apt-get update"
type "apt-get install --yes ./mdspace.deb e2fsprogs"
reached

goal "files of a NAS's four disks"
type "mdspace detect disk?.img"
type "mdspace read disk?.img --name 2 --inner vg1/volume_1 --output volume.img"
type "debugfs -R 'ls -l /' volume.img"
reached

goal "a volume that is served"
serving() { echo ">$1 </dev/null & until grep -q nbd+unix: $1; do sleep 0.1; done"; }
type "mdspace up" "$(serving up.said)"
reached
inside "mdspace stop"

goal "a virtual machine that boots from a volume"
type "apt-get install --yes --no-install-recommends qemu-system-x86 linux-image-cloud-amd64 busybox-static"
# What the machine boots: a system of one program, in the place of a real one.
inside 'mkdir -p root/bin root/sbin root/dev root/proc; cp /bin/busybox root/bin/; ln -s busybox root/bin/sh
printf "#!/bin/sh\necho booted from /dev/vda\n/bin/busybox poweroff -f\n" >root/sbin/init; chmod +x root/sbin/init
mke2fs -q -t ext4 -d root root.img 48M'
type "mdspace create --level 5 --size 32M a.img b.img c.img"
type "mdspace write '[abc].img' -i root.img"
type "mdspace serve '[abc].img' --nbd unix:vm.sock" "$(serving serve.said)"
type "qemu-system-x86_64 -m 512M -nographic -no-reboot -kernel /vmlinuz -initrd /initrd.img -append 'root=/dev/vda rw console=ttyS0' -drive 'file=nbd+unix:///?socket=vm.sock,format=raw,if=virtio'" "| tee console"
inside "grep -q 'booted from /dev/vda' console"
reached
inside "mdspace stop"
inside "mdspace scrub '[abc].img'"

printf '%s\n' "${lines[@]}"
