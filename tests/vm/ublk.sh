#!/bin/bash
# A RAID-5 as a block device of the machine that serves it, by a real kernel's ublk driver: what is verified on it while
# a member fails, a file system, an orderly stop with unwritten pages, a kill in the middle, and the kernel's own md. Then the
# commands of docs/ublk.md as they stand there, and who is not root.
#
#   ublk.sh MDSPACE DIRECTORY
set -euo pipefail
mdspace=$1 directory=$2 here=$(cd "$(dirname "$0")" && pwd)
cd "$directory"

cat >guest.sh <<'GUEST'
step() { echo "--- $*"; }
# busybox prefers its own programs of the same name.
for program in /host/*; do alias "${program##*/}=$program"; done
cd /tmp
# Progress is drawn on a terminal.
exec 2>said.to.people
trap 'cat said.to.people' EXIT

# Serves "$@"; $device is the block device.
serve() {
    rm -f said
    mkfifo said
    mdspace serve "$@" --ublk --nbd unix:nbd --control control >said &
    server=$!
    exec 3<said
    device=
    while read -r kind address <&3; do
        case $kind in ublk) device=$address ;; control) break ;; esac
    done
    [ -b "$device" ] || { echo "no device: $device"; exit 1; }
}
status() { mdspace status --json --control control | jq "$@"; }
fails() { if "$@"; then echo "no error: $*"; exit 1; fi; }
is_gone() { fails ls /dev/ublk[bc]*; }
run() { fio --filename=$device --ioengine=libaio --direct=1 --verify_fatal=1 --verify_state_save=0 --minimal "$@" >fio.said; }

step "what the kernel is told"
# What smartd would note of a drive.
mkdir -p /var/lib/smartmontools
printf 'mail.1.count = 1\nata-smart-attribute.0.id = 5\nata-smart-attribute.0.raw = 17\n' \
    >/var/lib/smartmontools/smartd.QEMU-label_c.ata.state
mdspace create --level 5 --chunk 64K --name ublk /dev/vda /dev/vdb /dev/vdc
serve /dev/vda /dev/vdb /dev/vdc
queue=/sys/block/${device#/dev/}/queue
[ "$(cat $queue/logical_block_size) $(cat $queue/physical_block_size) $(cat $queue/minimum_io_size)" = "512 4096 131072" ]
[ "$(cat $queue/write_cache) $(cat $queue/fua)" = "write back 1" ]
[ "$(cat $queue/discard_max_bytes)" -gt 0 ]
[ "$(cat $queue/write_zeroes_max_bytes)" -gt 0 ]
[ "$(blockdev --getsize64 $device)" = "$(status .array_bytes)" ]
status --exit-status ".served.ways[] | select(.kind == \"ublk\") | .address == \"$device\"" >/dev/null

step "several writers, of 512 bytes to 256 KiB"
run --name=random --rw=randrw --bsrange=512-256k --iodepth=16 --numjobs=2 --size=2M --offset_increment=8M --verify=crc32c
blkdiscard -o 0 -l 1048576 $device
blkdiscard -z -o 1048576 -l 1048576 $device
head -c 2097152 $device | tail -c 1048576 | cmp -n 1048576 - /dev/zero

step "a member fails meanwhile, and another takes its place"
written=$(status '[.members[].written_bytes] | add')
run --name=failing --rw=randwrite --bs=4k --iodepth=32 --size=4M --loops=2 --fsync=64 --verify=crc32c &
writer=$!
# It has begun to write, so that requests are under way.
until [ "$(status '[.members[].written_bytes] | add')" -gt "$written" ]; do kill -0 $writer; done
mdspace fail --control control /dev/vdc
wait $writer
# The label of its drive is told without a look at the drive.
mdspace status --control control | grep -q "^/dev/vdc: serial label-c, SMART: failing, 17 sectors reallocated$"
status --exit-status '[.members[].smart.failing] == [null, null, true]' >/dev/null
mdspace remove --control control /dev/vdc
mdspace add --control control /dev/vdd
[ "$(status -r '[.members[].serial] | sort | join(" ")')" = "label-a label-b label-d" ]
until status --exit-status '.in_sync == 3' >/dev/null; do sleep 0.2; done

step "a file system"
mke2fs -q -t ext4 $device 24M
mkdir mounted
mount -t ext4 -o discard $device mounted
cp /host/fio mounted/
umount mounted
e2fsck -fn $device

step "an orderly stop, with pages that are not written yet"
dd if=/host/fio of=$device bs=64k seek=512
kill -TERM $server
wait $server
is_gone
bytes=$(stat -Lc %s /host/fio)
mdspace read /dev/vda /dev/vdb /dev/vdd --offset 33554432 --length $bytes | cmp - /host/fio
mdspace scrub /dev/vda /dev/vdb /dev/vdd

step "a kill in the middle"
serve /dev/vda /dev/vdb /dev/vdd
run --name=killed --rw=randwrite --bs=4k --iodepth=32 --size=8M --loops=1000 &
writer=$!
written=$(status '[.members[].written_bytes] | add')
until [ "$(status '[.members[].written_bytes] | add')" -gt "$written" ]; do kill -0 $writer; done
kill -KILL $server
fails wait $writer
until [ ! -e $device ]; do sleep 0.2; done
ls /dev/ublkc*

step "a server after it, which clears up"
serve /dev/vda /dev/vdb /dev/vdd
dd if=/host/fio of=$device bs=64k seek=512 conv=fsync
until status --exit-status '.sync_action == "idle"' >/dev/null; do sleep 0.2; done
mdspace stop --control control
wait $server
is_gone
mdspace scrub /dev/vda /dev/vdb /dev/vdd

step "a server that is refused something else leaves no device"
fails mdspace serve /dev/vda /dev/vdb /dev/vdd --ublk --nbd unix:nbd --control said.to.people
is_gone

step "a device that cannot be written"
serve --read-only /dev/vda /dev/vdb /dev/vdd
[ "$(blockdev --getro $device)" = 1 ]
fails dd if=/dev/zero of=$device bs=4k count=1
dd if=$device bs=64k skip=512 | cmp -n $bytes - /host/fio
mdspace stop --control control
wait $server
is_gone

step "the kernel's own md"
mdadm --assemble --run /dev/md0 /dev/vda /dev/vdb /dev/vdd
dd if=/dev/md0 bs=64k skip=512 | cmp -n $bytes - /host/fio
echo check >/sys/block/md0/md/sync_action
until [ "$(cat /sys/block/md0/md/sync_action)" = idle ]; do sleep 0.2; done
[ "$(cat /sys/block/md0/md/mismatch_cnt)" = 0 ]
mdadm --stop /dev/md0

step "the page's commands"
# The disks are called as there. boot.sh has loaded the modules, in an order that modprobe would find.
ln -s vda /dev/sdb && ln -s vdb /dev/sdc && ln -s vdc /dev/sdd && ln -s vdd /dev/sde
modprobe() { [ -d /sys/module/$1 ]; }
mkdir -p /mnt tree
echo "from the page" >tree/note
mke2fs -q -t ext4 -d tree fs.img 24M
mdspace create --force --level 5 --chunk 64K --name data /dev/sd[b-e]
mdspace write /dev/sd[b-e] -i fs.img
commands=0
while IFS= read -r line <&4; do
    case $line in
    "# "*" &")
        line=${line#\# }
        rm -f said
        mkfifo said
        eval "${line% &} >said &"
        server=$!
        exec 3<said
        told=
        while IFS= read -r told_line <&3; do
            told="$told$told_line|"
            case $told_line in *" control "*) break ;; esac
        done
        ;;
    "# "*) eval "${line#\# }" ;;
    *) case "|$told" in *"|${line%...}"*) continue ;; *) echo "not printed: $line: $told"; exit 1 ;; esac ;;
    esac
    commands=$((commands + 1))
done 4<page
[ "$commands" = 3 ]
[ "$(cat /mnt/note)" = "from the page" ]
umount /mnt
mdspace stop
wait $server
is_gone

step "who is not root"
chmod 755 /host /host/*
mkdir own
chown 65534:65534 own
cd own
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
as_nobody /host/mdspace create --level 1 --size 16M a b
sha256sum a b >before
status=0
as_nobody /host/mdspace serve a b --ublk --control control 2>refusal || status=$?
[ "$status" = 2 ]
grep -q "run it as root; or use --fuse" refusal
sha256sum -c before
cd ..
is_gone
GUEST
{
    echo "cat >/tmp/page <<'PAGE'"
    "$here/../console.sh" "$here/../../docs/ublk.md" --all
    echo PAGE
    cat guest.sh
} >with_page.sh

strip -o ./mdspace "$mdspace"
disks=()
for member in a b c d; do
    truncate -s 32M $member
    disks+=(-drive "file=$member,format=raw,if=none,id=$member" -device "virtio-blk,drive=$member,serial=label-$member")
done
PATH=$PWD:$PATH "$here/boot.sh" "$directory" with_page.sh \
    "ublk_drv virtio_blk xor raid6_pq libcrc32c async_tx async_memcpy async_xor async_pq async_raid6_recov md-mod raid456" \
    "mdspace fio jq mdadm blkdiscard blockdev mke2fs e2fsck setpriv" "${disks[@]}"
echo "a block device of a real kernel lost a member, its server, and nothing that was promised"
