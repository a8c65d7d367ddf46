#!/bin/bash
# A RAID-5 as the disk of a real guest: Linux's virtio_blk over vhost-user-blk, with four queues, indirect descriptors and
# the event index. While the guest verifies what it writes, the server is killed and another one goes on. qemu's arguments
# are those of docs/vhost-user.md, but for less memory and, as not every machine has KVM, emulation.
#
#   vhost_user.sh MDSPACE DIRECTORY
set -euo pipefail
mdspace=$1 directory=$2 here=$(cd "$(dirname "$0")" && pwd)
cd "$directory"

step() { echo "--- $*"; }

serve() {
    exec {said}< <(exec "$mdspace" serve m0 m1 m2 --vhost-user vm.sock --nbd unix:nbd.socket --control control.socket)
    server=$!
    while read -r line <&"$said"; do
        if [[ $line == *control* ]]; then return; fi
    done
    exit 1
}

cat >guest.sh <<'GUEST'
disk=/sys/block/vda
[ "$(cat $disk/serial)" = machine ]
[ "$(ls $disk/mq | wc -l)" = 4 ]
[ "$(cat $disk/queue/write_cache)" = "write back" ]
[ "$(cat $disk/queue/discard_max_bytes)" -gt 0 ]
[ "$(cat $disk/queue/write_zeroes_max_bytes)" -gt 0 ]
features=$(cat /sys/bus/virtio/devices/virtio0/features)
# Bits 28 and 29: indirect descriptors, event index.
[ "$(echo "$features" | cut -c 29-30)" = 11 ]
run() { /host/fio --filename=/dev/vda --ioengine=libaio --direct=1 --verify_fatal=1 --verify_state_save=0 --minimal "$@" >/tmp/fio; }
run --name=random --rw=randrw --bsrange=512-256k --iodepth=16 --numjobs=2 --size=4M --offset_increment=8M --verify=crc32c
/host/blkdiscard -o 0 -l 1048576 /dev/vda
/host/blkdiscard -z -o 1048576 -l 1048576 /dev/vda
head -c 2097152 /dev/vda | tail -c 1048576 | cmp -n 1048576 - /dev/zero
echo "guest: begin"
run --name=restarted --rw=randwrite --bs=4k --iodepth=32 --size=16M --loops=2 --fsync=64 --verify=crc32c
/host/mke2fs -q -t ext4 /dev/vda 24M
mkdir /tmp/mounted
mount -t ext4 -o discard /dev/vda /tmp/mounted
cp /host/fio /tmp/mounted/
umount /tmp/mounted
GUEST

step "an array, served twice over"
"$mdspace" create --level 5 --chunk 64K --size 16M --name machine m0 m1 m2
serve
trap 'kill $server 2>/dev/null || true' EXIT

step "a guest"
machine=$("$here/../console.sh" "$here/../../docs/vhost-user.md")
[[ $machine == "qemu-system-x86_64 -accel kvm "*"-m 4G"*"size=4G"*" ..." ]]
machine=${machine#qemu-system-x86_64 }
machine=${machine% ...}
machine=${machine/-accel kvm/-accel tcg,thread=single}
echo "${machine//4G/512M}"
MACHINE=${machine//4G/512M} "$here/boot.sh" "$directory" guest.sh virtio_blk "fio blkdiscard mke2fs" | {
    while read -r line; do
        echo "$line"
        if [[ $line == *"guest: begin"* ]]; then
            touch begun
        fi
    done
} &
guest=$!
until [ -e begun ]; do
    kill -0 $guest 2>/dev/null || { wait $guest || true; cat console; exit 1; }
    read -rt 0.2 <> <(:) || true
done

step "the server is killed, and another goes on"
"$mdspace" status --json --control control.socket | jq --exit-status '.served.ways[] | select(.kind == "vhost-user") | .clients == 1'
for _ in 1 2 3; do
    written=$("$mdspace" status --json --control control.socket | jq '[.members[].written_bytes] | add')
    # It has begun to write, so that requests are under way.
    until [ "$("$mdspace" status --json --control control.socket | jq '[.members[].written_bytes] | add')" -gt "$written" ]; do
        kill -0 $guest || { echo "the guest has ended"; exit 1; }
    done
    kill -KILL "$server"
    wait "$server" || true
    serve
done
wait $guest

step "what the guest wrote, through the other way in"
nbdcopy "nbd+unix:///?socket=$PWD/nbd.socket" copy
e2fsck -fn copy
[ "$(debugfs -R 'cat fio' copy 2>/dev/null | sha256sum)" = "$(sha256sum <"$(command -v fio)")" ]
"$mdspace" stop --control control.socket
wait "$server"
echo "a guest verified its disk across three kills of the server"
