#!/bin/bash
# Where mdadm puts things on members of many lengths: makes crates/format/tests/fixtures/placements.txt anew.
#
#   cargo xtask kernel --timeout 900 tests/kernel/placements.sh crates/format/tests/fixtures/placements.txt
#
# For each array one line of what was asked,
#   version level chunk_kib bitmap data_offset_kib member_sectors,...
# then, indented, the lines of `mdadm --examine` and `--examine-bitmap` on places and lengths, or "refused". They are
# of the first member, or, where the members differ, of each, begun by its name.
# The members are sparse; nothing but metadata is written to them.
set -euo pipefail
out=$(realpath "$1")
export MDADM_NO_UDEV=1
for module in loop linear raid0 raid1 raid10 raid456; do modprobe "$module"; done
told='Dev Size|Data Offset|Super Offset|Internal Bitmap|Bad Block Log|Chunksize|Sync Size|Bitmap :'

# placed VERSION LEVEL CHUNK_KIB BITMAP DATA_OFFSET SIZE...: an array of members of these lengths, as sectors.
# BITMAP: none, auto, internal, or a chunk in KiB. DATA_OFFSET: - or KiB.
placed() {
  local version=$1 level=$2 chunk=$3 bitmap=$4 offset=$5 sizes=("${@:6}") devices=() told_of size arguments device
  for size in "${sizes[@]}"; do
    device=/dev/loop${#devices[@]}
    rm -f "$SCRATCH/${device#/dev/}"
    truncate -s $((size * 512)) "$SCRATCH/${device#/dev/}"
    losetup "$device" "$SCRATCH/${device#/dev/}"
    devices+=("$device")
  done
  told_of=("${devices[0]}")
  for size in "${sizes[@]}"; do [ "$size" = "${sizes[0]}" ] || told_of=("${devices[@]}"); done
  arguments=(--metadata="$version" --level="$level" --raid-devices="${#sizes[@]}")
  case $level in linear | 1) ;; *) arguments+=(--chunk="$chunk") ;; esac
  case $level in linear | 0) ;; *) arguments+=(--assume-clean) ;; esac
  case $bitmap in auto) ;; none | internal) arguments+=(--bitmap="$bitmap") ;; *) arguments+=(--bitmap=internal --bitmap-chunk="${bitmap}K") ;; esac
  [ "$offset" = - ] || arguments+=(--data-offset="${offset}K")
  echo "$version $level $chunk $bitmap $offset $(IFS=,; echo "${sizes[*]}")"
  if mdadm --create /dev/md0 --quiet --run "${arguments[@]}" "${devices[@]}" 2>"$SCRATCH/errors"; then
    mdadm --stop --quiet /dev/md0
    for device in "${told_of[@]}"; do
      [ "${#told_of[@]}" = 1 ] || echo "  $device"
      { mdadm --examine "$device"; [ "$bitmap" = none ] || mdadm --examine-bitmap "$device" 2>/dev/null || :; } | grep -E "$told"
    done
  else
    echo "  refused"
  fi
  losetup -d "${devices[@]}"
}

all() {
  local mib=2048 gib=$((2048 * 1024)) size version kib offset chunk
  # Lengths on both sides of every threshold, round and not.
  for size in $((5 * mib)) $((8 * mib + 7)) $((100 * mib + 1)) $((256 * mib)) $((gib - 1)) $gib $((3 * gib + 12345)) \
    $((8 * gib)) $((8 * gib + 8)) $((8 * gib + 9)) $((33 * gib)) $((100 * gib)) $((100 * gib + 300 * mib)) \
    $((200 * gib)) $((200 * gib + 128)) $((931 * gib + 1)) $((16384 * gib + 100)); do
    for version in 1.0 1.2; do
      placed $version 1 0 auto - $size $size
      placed $version 5 512 none - $size $size $size
      placed $version 5 64 internal - $size $size $size
    done
    placed 1.1 5 64 auto - $size $size $size
    placed 1.2 10 64 internal - $size $size $size
  done
  # Members of different lengths: the first decides.
  placed 1.2 5 512 auto - $((64 * mib)) $((8 * gib)) $((300 * gib))
  placed 1.2 5 512 auto - $((300 * gib)) $((400 * gib)) $((300 * gib + 1))
  placed 1.0 1 0 auto - $((64 * mib)) $((65 * mib + 3))
  placed 1.2 linear 0 auto - $((64 * mib)) $((8 * gib))
  placed 1.2 0 64 auto - $((64 * mib)) $((300 * mib))
  placed 1.0 0 64 auto - $((64 * mib)) $((300 * mib + 5))
  # Bitmap chunks that fit, barely fit, and do not.
  for kib in 4 64 128 256 65536; do
    for version in 1.0 1.2; do
      placed $version 1 0 $kib - $((gib)) $gib
      placed $version 5 64 $kib - $((9 * gib)) $((9 * gib)) $((9 * gib))
    done
  done
  # Data offsets that were asked for: too small, just right, large.
  for offset in 4 8 12 16 20 24 32 128 3072 200000; do
    placed 1.2 1 0 none $offset $gib $gib
    placed 1.1 1 0 internal $offset $gib $gib
  done
  # Large chunks keep the headroom large.
  for chunk in 4 1024 65536; do placed 1.2 5 $chunk none - $((512 * mib)) $((512 * mib)) $((512 * mib)); done
}

all >"$out"
grep -c '^[0-9]' "$out"
