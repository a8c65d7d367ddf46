#!/bin/bash
# Containers of firmware RAID that mdadm makes, DDF and IMSM, with volumes of each level that the real driver fills and sums.
#
#   containers.sh DIRECTORY
#
# Leaves, for each case, DIRECTORY/CASE with the disks' images, and `reads`: the sha256 of the volume as md reads it, with the
# disks that suffice; `refuses`: disks that do not, and a word of the refusal.
set -euo pipefail
# A guest has neither udev nor systemd. IMSM wants Intel's firmware, and takes the serial numbers of drives from their names here.
export MDADM_NO_UDEV=1 MDADM_NO_SYSTEMCTL=1 IMSM_NO_PLATFORM=1 IMSM_DEVNAME_AS_SERIAL=1 IMSM_TEST_OROM=1
cd "$1"
modprobe loop max_loop=8
for module in raid0 raid1 raid10 raid456; do modprobe $module; done

# Stops an array. mdmon, which writes the metadata, may still hold it for a moment.
stop() {
    local tries
    for ((tries = 0; tries < 50; tries++)); do
        mdadm --stop "/dev/$1" || true
        grep -q "^$1 " /proc/mdstat || return 0
        sleep 0.2
    done
    return 1
}

# Waits until mdmon, which has the say on the volume, has looked at it: a volume is read-only before that.
writable() {
    local tries
    for ((tries = 0; tries < 50; tries++)); do
        case $(cat /sys/block/md0/md/array_state) in
        read-auto | clean | active | active-idle | write-pending) return 0 ;;
        esac
        sleep 0.2
    done
    return 1
}

# case_of NAME METADATA LEVEL COUNT [OPTION...]: a container of COUNT disks with one volume.
case_of() {
    local name=$1 metadata=$2 level=$3 count=$4
    shift 4
    mkdir "$name"
    local loops=() index
    for ((index = 0; index < count; index++)); do
        truncate -s 96M "$name/loop$index.img"
        losetup "/dev/loop$index" "$name/loop$index.img"
        loops+=("/dev/loop$index")
    done
    mdadm --create /dev/md127 --run --metadata "$metadata" --raid-devices "$count" "${loops[@]}"
    # The disks are zeros, so that copies and parity agree.
    mdadm --create /dev/md0 --run --assume-clean --level "$level" --raid-devices "$count" --size 8M --name volume "$@" /dev/md127
    writable
    dd if=/dev/urandom of=/dev/md0 bs=1M iflag=count_bytes,fullblock oflag=direct status=none \
        count="$(blockdev --getsize64 /dev/md0)"
    if [ -n "${FAIL:-}" ]; then
        mdadm /dev/md0 --fail "/dev/loop$FAIL"
        dd if=/dev/urandom of=/dev/md0 bs=1M count=2 oflag=direct status=none
    fi
    sync
    local sum all=() without
    sum=$(sha256sum </dev/md0 | cut -d' ' -f1)
    for ((index = 0; index < count; index++)); do all+=("loop$index.img"); done
    echo "$sum ${all[*]}" >"$name/reads"
    for ((index = 0; index < count; index++)); do
        without=$(echo "${all[*]}" | sed "s/loop$index.img//")
        if [ "$level" != 0 ] && [ "${FAIL:-$index}" = "$index" ]; then
            echo "$sum $without" >>"$name/reads"
        else
            echo "missing $without" >>"$name/refuses"
        fi
    done
    stop md0
    stop md127
    losetup --detach-all
}

case_of ddf-0 ddf 0 3 --chunk 64
case_of ddf-1 ddf 1 2
case_of ddf-5 ddf 5 4 --chunk 64
FAIL=1 case_of ddf-5-degraded ddf 5 4 --chunk 64
case_of ddf-6 ddf 6 4 --chunk 32
case_of ddf-10 ddf 10 4 --chunk 64
case_of imsm-0 imsm 0 2 --chunk 64
case_of imsm-1 imsm 1 2
case_of imsm-5 imsm 5 3 --chunk 64
FAIL=1 case_of imsm-5-degraded imsm 5 3 --chunk 64
case_of imsm-10 imsm 10 4 --chunk 64
echo "containers of $(ls -d ddf-* imsm-* | wc -l) kinds"
