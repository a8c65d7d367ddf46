#!/bin/bash
# How fast the block device of ublk is, beside the same array through the kernel's nbd driver and beside the kernel's own md.
#
#   ublk_speed.sh MDSPACE DIRECTORY [SECONDS]
#
# Two RAID-5 of three virtio disks each, all in one guest and one run: one is served by mdspace, as ublk and over a unix
# socket to the nbd driver at the same time, the other is md's. fio asks them in turns, for SECONDS (2) a time, five times;
# medians are printed, of the rates and of ublk's over the others' in the same turn. Processor and disks are emulated: of
# what is printed only the ratios mean something, and they weigh computing more than real hardware does. By hand, not in
# CI: it measures, and judges nothing.
set -euo pipefail
mdspace=$(realpath "$1") directory=$(realpath "$2") seconds=${3:-2} here=$(cd "$(dirname "$0")" && pwd)
cd "$directory"

{ echo "seconds=$seconds" && cat <<'GUEST'; } >guest.sh
for program in /host/*; do alias "${program##*/}=$program"; done
cd /tmp
# Progress is drawn on a terminal.
exec 2>said.to.people
trap 'cat said.to.people' EXIT

for members in "/dev/vda /dev/vdb /dev/vdc" "/dev/vdd /dev/vde /dev/vdf"; do
    mdspace create --level 5 --chunk 64K $members
done
mkfifo said
mdspace serve /dev/vda /dev/vdb /dev/vdc --ublk --nbd unix:nbd --control control >said &
server=$!
exec 3<said
while read -r kind address <&3; do
    case $kind in ublk) ublk=$address ;; control) break ;; esac
done
nbd-client -unix nbd /dev/nbd0
mdadm --assemble --run /dev/md0 /dev/vdd /dev/vde /dev/vdf

# Requests a second of device $1 with fio's words after it.
rate() {
    device=$1
    shift
    fio --name=ublk --filename=$device --ioengine=libaio --direct=1 --time_based --runtime=$seconds --randrepeat=0 \
        --output-format=json "$@" | jq '.jobs[0] | .read.iops + .write.iops'
}
median() { sort -n | sed -n 3p; }
# Columns of what each round measured: ublk, md, nbd.
compare() {
    name=$1
    shift
    for round in 1 2 3 4 5; do
        echo $(rate $ublk "$@") $(rate /dev/md0 "$@") $(rate /dev/nbd0 "$@")
    done >rounds
    of() { awk "{ print $1 }" rounds | median; }
    printf '%-16s ublk %6.0f /s   md %6.0f /s   nbd %6.0f /s   ublk/md %5.2f   ublk/nbd %5.2f\n' \
        $name $(of '$1') $(of '$2') $(of '$3') $(of '$1/$2') $(of '$1/$3')
}
compare read-4K-random --rw=randread --bs=4k --iodepth=32
compare write-4K-random --rw=randwrite --bs=4k --iodepth=32
compare read-1M-linear --rw=read --bs=1M --iodepth=4

mdadm --stop /dev/md0
nbd-client -d /dev/nbd0
mdspace stop --control control
wait $server
GUEST

strip -o ./mdspace "$mdspace"
disks=()
for member in a b c d e f; do
    truncate -s 64M $member
    disks+=(-drive "file=$member,format=raw,if=virtio")
done
PATH=$PWD:$PATH "$here/boot.sh" "$directory" guest.sh \
    "ublk_drv nbd virtio_blk xor raid6_pq libcrc32c async_tx async_memcpy async_xor async_pq async_raid6_recov md-mod raid456" \
    "mdspace fio jq mdadm nbd-client" "${disks[@]}"
