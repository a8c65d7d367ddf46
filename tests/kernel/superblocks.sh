#!/bin/bash
# Does the real md driver take what mdspace-format writes?
#
#   superblocks.sh CHANGE_SUPERBLOCKS
#
# Runs in a guest (tests/kernel/init.sh). CHANGE_SUPERBLOCKS is the example of that name of mdspace-format, built. It
# changes superblocks that mdadm made, of every version, and makes new ones; mdadm must assemble them without --force
# and the driver must make of them what was meant. Prints a line for each array; ends with status 1 at the first
# that is not as it should be.
set -euo pipefail
change=$(realpath "$1")
export MDADM_NO_UDEV=1
for module in loop linear raid0 raid1 raid10 raid456; do modprobe "$module"; done
md=/sys/block/md0/md
loops=(/dev/loop{0,1,2,3})

fail() {
  echo "FAILED: $*" >&2
  cat /proc/mdstat >&2
  for device in "${members[@]}"; do mdadm --examine "$device" >&2 || :; done
  dmesg | tail -20 >&2
  exit 1
}

# empty SIZE...: members of these lengths.
empty() {
  local size number=0
  losetup -D
  members=()
  for size in "$@"; do
    rm -f "$SCRATCH/$number"
    truncate -s "$size" "$SCRATCH/$number"
    losetup "${loops[number]}" "$SCRATCH/$number"
    members+=("${loops[number]}") number=$((number + 1))
  done
}

change() {
  "$change" "$@" "${members[@]}" || fail "$*"
  blockdev --flushbufs "${members[@]}"
}


# assemble ARGUMENT...: started, and ready to be written. The kernel's messages since are in dmesg.
assemble() {
  dmesg --clear
  mdadm --assemble --quiet /dev/md0 "$@" "${members[@]}" || return
  [ "$(<$md/array_state)" != read-auto ] || mdadm --readwrite --quiet /dev/md0
}

stop() { mdadm --stop --quiet /dev/md0; }

# expect FILE VALUE: of the array's directory in sysfs.
expect() { [ "$(<"$md/$1")" = "$2" ] || fail "$what: $1 is $(<"$md/$1"), not $2"; }

# finished: no sweep is under way any more.
finished() { until [ "$(<$md/sync_action)" = idle ]; do mdadm --wait --quiet /dev/md0 || :; done; }

# resynced: the driver found the array dirty when it was assembled, and has put it right.
resynced() {
  until [ "$(<$md/resync_start)" = none ]; do mdadm --wait --quiet /dev/md0 || :; done
  finished
  dmesg | grep -q 'md: resync of RAID array md0' || fail "$what: no resync"
  expect degraded 0
}

# checked: the array's copies and parity agree.
checked() {
  echo check >$md/sync_action
  finished
  expect mismatch_cnt 0
}

# changed VERSION BITMAP: what mdadm made, changed in every way.
changed() {
  what="changed, metadata $1, bitmap $2"
  empty 8M 8M 8M
  mdadm --create /dev/md0 --quiet --run --metadata="$1" --level=5 --chunk=64 --raid-devices=3 --bitmap="$2" --assume-clean "${members[@]}"
  stop
  change touch
  assemble || fail "$what: touch"
  expect resync_start none
  expect degraded 0
  checked
  stop
  change dirty
  assemble || fail "$what: dirty"
  resynced
  stop
  if [ "$1" != 0.90 ]; then
    change bad-block 2
    assemble || fail "$what: bad-block"
    [ "$(<$md/dev-loop2/bad_blocks)" = "64 8" ] || fail "$what: bad blocks are $(<$md/dev-loop2/bad_blocks)"
    stop
  fi
  if [ "$2" = internal ]; then
    change set-bits 0 1
    assemble || fail "$what: set-bits"
    resynced
    stop
  fi
  change fail 1
  assemble --run || fail "$what: fail"
  expect degraded 1
  [ ! -e $md/dev-loop1 ] || fail "$what: the failed member was taken"
  stop
  # No longer clean either: now the driver must refuse to start it.
  members=(/dev/loop0 /dev/loop2)
  change dirty
  if assemble --run &>/dev/null && [ "$(<$md/array_state)" != inactive ]; then fail "$what: dirty and degraded, but started"; fi
  stop 2>/dev/null || :
  echo "$what: ok"
}

# made VERSION LEVEL LAYOUT CHUNK_KIB BITMAP SIZE...: an array that mdadm never saw.
made() {
  what="made, metadata $1, level $2, layout $3, bitmap $5"
  empty "${@:6}"
  change create "${@:1:5}"
  assemble || fail "$what"
  [ "$(<$md/metadata_version)" = "$1" ] || fail "$what: $(<$md/metadata_version)"
  expect level "$([ "$2" = linear ] && echo linear || echo "raid$2")"
  if [ "$2" != linear ] && [ "$2" != 0 ]; then
    expect degraded 0
    checked
    dd if=/dev/urandom of=/dev/md0 bs=64k count=16 oflag=direct status=none
    checked
    if [ "$5" = none ]; then [ "$(<$md/bitmap/location)" = none ]; else [ "$(<$md/bitmap/location)" != none ]; fi || fail "$what: bitmap"
  fi
  stop
  echo "$what: ok"
}

for version in 0.90 1.0 1.1 1.2; do
  changed $version none
  changed $version internal
done
for version in 0.90 1.0 1.1 1.2; do
  made $version linear 0 0 none 8M 9M
  if [ $version = 0.90 ]; then made $version 0 0 64 none 8M 8M 8M; else made $version 0 2 64 none 8M 9M 12M; fi
  made $version 1 0 0 internal 8M 8M
  made $version 4 0 64 none 8M 8M 8M
  made $version 5 2 64 64 8M 9M 8M
  made $version 6 2 4 internal 8M 8M 8M 8M
  made $version 10 258 32 4 8M 8M 8M
done
