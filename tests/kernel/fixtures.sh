#!/bin/bash
# Makes the samples of metadata under crates/format/tests/fixtures anew, by the real md driver and mdadm:
#
#   cargo xtask kernel tests/kernel/fixtures.sh crates/format/tests/fixtures
#
# One directory for each array. Of each member that is kept:
#   N.superblock    the 4 KiB at its superblock's place
#   N.examine       what `mdadm --examine` says of it: the oracle; its first line is the member's length in bytes
#   N.bitmap        the first 4 KiB of its bitmap, if it has one; N.examine-bitmap what mdadm says of that
#   N.bad_blocks    its bad-block log, if in use; N.examine-bad_blocks likewise
#   N.ppl           the first 4 KiB of its partial parity log, if it has one
set -euo pipefail
out=$(realpath "$1")
export MDADM_NO_UDEV=1
for module in loop linear raid0 raid1 raid10 raid456; do modprobe "$module"; done
md=/sys/block/md0/md

# members SIZE...: loop devices of these lengths, empty.
members() {
  local size number=0
  losetup -D
  for size in "$@"; do
    rm -f "$SCRATCH/$number"
    truncate -s "$size" "$SCRATCH/$number"
    losetup ${blocks:+-b "$blocks"} "/dev/loop$number" "$SCRATCH/$number"
    number=$((number + 1))
  done
}

# create ARGUMENT...: an array of them, started.
create() {
  mdadm --create /dev/md0 --quiet --run --homehost=fixture --uuid=00112233:44556677:8899aabb:ccddeeff "$@" 2>/dev/null
}

stop() { mdadm --stop --quiet /dev/md0; }

# sectors_at FILE SECTOR COUNT: what stands there now, past any cache.
sectors_at() { dd if="$1" iflag=direct,skip_bytes,count_bytes skip=$(($2 * 512)) count=$(($3 * 512)) bs=4096 status=none; }

# keep NAME MEMBER...: the metadata of these members.
keep() {
  local name=$1 member device bytes at examine place log
  mkdir -p "$out/$name"
  for member in "${@:2}"; do
    device=/dev/loop$member file=$out/$name/$member
    blockdev --flushbufs "$device"
    bytes=$(blockdev --getsize64 "$device")
    examine=$(mdadm --examine "$device")
    printf '%s bytes\n%s\n' "$bytes" "$examine" >"$file.examine"
    at=$(sed -n 's/^ *Super Offset : \([0-9]*\) sectors/\1/p' <<<"$examine")
    at=${at:-$(((bytes / 65536 - 1) * 128))}
    sectors_at "$device" "$at" 8 >"$file.superblock"
    place=$(sed -n 's/^ *Internal Bitmap : \(-\?[0-9]*\) sectors from superblock/\1/p;s/^ *Internal Bitmap : present/8/p' <<<"$examine")
    if [ -n "$place" ]; then
      sectors_at "$device" $((at + place)) 8 >"$file.bitmap"
      mdadm --examine-bitmap "$device" >"$file.examine-bitmap"
    fi
    if grep -q 'bad blocks present' <<<"$examine"; then
      log=$(sed -n 's/^ *Bad Block Log : .* offset \(-\?[0-9]*\) sectors.*/\1/p' <<<"$examine")
      sectors_at "$device" $((at + log)) 8 >"$file.bad_blocks"
      mdadm --examine-badblocks "$device" >"$file.examine-bad_blocks"
    fi
    place=$(sed -n 's/^ *PPL : .* at offset \(-\?[0-9]*\) sectors from superblock/\1/p' <<<"$examine")
    # mdadm 4.2 prints the offset without its sign.
    if [ -n "$place" ]; then sectors_at "$device" $((at + (place > 32767 ? place - 65536 : place))) 8 >"$file.ppl"; fi
  done
}

# until_at SECTORS: waits until the sweep that was told to stop there has come so far.
until_at() {
  until [ "$(sed 's/ .*//' $md/sync_completed)" = "$1" ]; do read -rt 0.1 <> <(:) || :; done
}

shapes() {
  members 8M 8M 9M 8M
  create --metadata=1.2 --level=5 --chunk=64 --raid-devices=4 --name=plain --assume-clean /dev/loop{0,1,2,3}
  stop; keep raid5-1.2 0 3
  members 8M 8M 9M 8M
  create --metadata=1.1 --level=6 --layout=ddf-zero-restart --chunk=4 --raid-devices=4 --assume-clean /dev/loop{0,1,2,3}
  stop; keep raid6-1.1 1
  members 8M 8M 8M
  create --metadata=1.0 --level=10 --layout=o2 --chunk=32 --raid-devices=3 --name=other:host --assume-clean /dev/loop{0,1,2}
  stop; keep raid10-1.0 2
  members 8M 16M 24M
  create --metadata=1.2 --level=0 --chunk=512 --raid-devices=3 /dev/loop{0,1,2}
  stop; keep raid0-unequal 2
  members 8M 9M
  create --metadata=1.0 --level=linear --raid-devices=2 /dev/loop{0,1}
  stop; keep linear-1.0 1
  members 8M 8M 8M
  create --metadata=1.2 --level=4 --chunk=1024 --raid-devices=3 --assume-clean /dev/loop{0,1,2}
  stop; keep raid4-1.2 2
  members 8M 8M
  create --metadata=1.2 --level=1 --raid-devices=140 --assume-clean /dev/loop{0,1} $(printf 'missing %.0s' {3..140})
  stop; keep raid1-140-slots 1
  blocks=4096 members 8M 8M 8M
  create --metadata=1.2 --level=5 --chunk=64 --raid-devices=3 --bitmap=internal --assume-clean /dev/loop{0,1,2}
  stop; keep raid5-4k-blocks 0
}

old() {
  members 8M 8M 8M
  create --metadata=0.90 --level=5 --layout=ra --chunk=64 --raid-devices=3 --assume-clean /dev/loop{0,1,2}
  stop; keep raid5-0.90 2
  members 8M 9M 8M
  create --metadata=0.90 --level=1 --raid-devices=2 --spare-devices=1 --bitmap=internal --assume-clean /dev/loop{0,1,2}
  stop; keep raid1-0.90-bitmap 0 2
  members 8M 8M 8M 8M
  create --metadata=0.90 --level=6 --chunk=64 --raid-devices=4 --assume-clean /dev/loop{0,1,2,3}
  mdadm --quiet /dev/md0 --fail /dev/loop1 2>/dev/null
  keep raid6-0.90-failed 0
  mdadm --quiet /dev/md0 --remove /dev/loop1
  stop; keep raid6-0.90-removed 0 1
  members 8M 8M 8M
  create --metadata=0.90 --level=10 --layout=f2 --chunk=64 --raid-devices=3 --assume-clean /dev/loop{0,1,2}
  echo 0 >$md/safe_mode_delay
  dd if=/dev/zero of=/dev/md0 bs=4k count=1 oflag=direct status=none
  keep raid10-0.90-dirty 0
  stop
}

bitmaps() {
  local kib
  for kib in 4 64 1024; do
    members 8M 8M
    create --metadata=1.2 --level=1 --raid-devices=2 --bitmap=internal --bitmap-chunk=${kib}K --assume-clean /dev/loop{0,1}
    # mdadm sets every bit; stopping clears them. Then one write, to what bit 5 covers if a chunk is in bytes.
    stop
    mdadm --assemble --quiet /dev/md0 /dev/loop{0,1}
    echo 0 >$md/safe_mode_delay
    dd if=/dev/zero of=/dev/md0 bs=${kib}k seek=5 count=1 oflag=direct status=none
    keep bitmap-${kib}k-bit-5 0
    stop
  done
  members 8M 8M 8M
  create --metadata=1.0 --level=5 --chunk=64 --raid-devices=3 --bitmap=internal --assume-clean /dev/loop{0,1,2}
  stop; keep raid5-1.0-bitmap 1
  members 8M 8M 8M
  create --metadata=1.1 --level=10 --layout=n2 --chunk=64 --raid-devices=3 --bitmap=internal --bitmap-chunk=64K --assume-clean /dev/loop{0,1,2}
  stop; keep raid10-1.1-bitmap 1
  members 8M 8M 8M
  create --metadata=1.2 --level=5 --chunk=64 --raid-devices=3 --bitmap=internal --bitmap-chunk=64K --assume-clean /dev/loop{0,1,2}
  mdadm --quiet /dev/md0 --fail /dev/loop2 2>/dev/null
  dd if=/dev/zero of=/dev/md0 bs=64k seek=8 count=4 oflag=direct status=none
  mdadm --quiet /dev/md0 --remove /dev/loop2
  stop; keep raid5-bitmap-degraded 0 2
}

states() {
  members 8M 8M 8M 8M
  create --metadata=1.2 --level=5 --chunk=64 --raid-devices=3 --spare-devices=1 --assume-clean /dev/loop{0,1,2,3}
  stop; keep raid5-spare 0 3
  members 8M 8M 8M 8M
  create --metadata=1.2 --level=6 --chunk=64 --raid-devices=4 --assume-clean /dev/loop{0,1,2,3}
  mdadm --quiet /dev/md0 --fail /dev/loop1 2>/dev/null
  keep raid6-failed 0 1
  stop
  members 8M 8M 8M
  create --metadata=1.2 --level=5 --chunk=64 --raid-devices=3 --assume-clean /dev/loop{0,1,2}
  echo 0 >$md/safe_mode_delay
  dd if=/dev/zero of=/dev/md0 bs=4k count=1 oflag=direct status=none
  keep raid5-dirty 0
  echo 80 4 >$md/dev-loop1/bad_blocks
  echo 1000 600 >$md/dev-loop1/bad_blocks
  dd if=/dev/zero of=/dev/md0 bs=4k count=1 oflag=direct status=none
  stop; keep raid5-bad-blocks 1
  members 8M 8M
  create --metadata=1.2 --level=1 --raid-devices=2 --assume-clean --failfast /dev/loop0 --write-mostly /dev/loop1
  stop; keep raid1-device-flags 0 1
}

sweeps() {
  members 32M 32M 32M 32M
  create --metadata=1.2 --level=5 --chunk=64 --raid-devices=3 --spare-devices=1 --assume-clean /dev/loop{0,1,2,3}
  echo 8192 >$md/sync_max
  mdadm --quiet /dev/md0 --fail /dev/loop0 2>/dev/null
  until_at 8192
  stop; keep raid5-recovering 1 3
  members 32M 32M 32M
  create --metadata=1.2 --level=1 --raid-devices=2 --spare-devices=1 --assume-clean /dev/loop{0,1,2}
  echo 8192 >$md/sync_max
  mdadm --quiet /dev/md0 --replace /dev/loop0
  until_at 8192
  stop; keep raid1-replacing 0 2
  members 32M 32M 32M 32M
  create --metadata=1.2 --level=5 --chunk=64 --raid-devices=3 --assume-clean /dev/loop{0,1,2}
  mdadm --quiet /dev/md0 --add /dev/loop3
  echo 8192 >$md/sync_max
  echo 4 >$md/raid_disks
  echo reshape >$md/sync_action
  keep raid5-reshaping 3
  echo frozen >$md/sync_action
  stop
}

logs() {
  members 16M 16M 16M
  create --metadata=1.2 --level=5 --chunk=64 --raid-devices=3 --consistency-policy=ppl --assume-clean /dev/loop{0,1,2}
  dd if=/dev/zero of=/dev/md0 bs=4k count=1 oflag=direct status=none
  keep raid5-ppl-active 0 2
  stop; keep raid5-ppl 0
  members 16M 16M 16M
  create --metadata=1.0 --level=5 --chunk=64 --raid-devices=3 --consistency-policy=ppl --assume-clean /dev/loop{0,1,2}
  stop; keep raid5-1.0-ppl 0
  members 32M 32M 32M 32M
  create --metadata=1.2 --level=5 --chunk=64 --raid-devices=3 --write-journal=/dev/loop3 --assume-clean /dev/loop{0,1,2}
  stop; keep raid5-journal 0 3
}

shapes
old
bitmaps
states
sweeps
logs
losetup -D
du -sh "$out"
