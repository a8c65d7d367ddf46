#!/bin/bash
# Arrays of every level and layout, made and filled by the real md driver.
#
#   geometry.sh OUTDIR
#
# Runs in a guest (tests/kernel/init.sh). The example `verify_kernel_images` of mdspace-format then holds the
# geometry against what is in OUTDIR:
#
#   slot.0 ... slot.31   what is on the members: an array's member of slot n has its data area in slot.n
#   manifest             a line for each array, in words of the form KEY=VALUE after the first:
#     filled             made, and written from end to end: line n of 16 bytes holds the number 10^14 + n
#     collides           the same, but then md's own check found copies that differ: it overwrote data
#     refused            md refused to start it
#     named              not filled: mdadm made it with --layout=NAME, and md calls that LAYOUT
#   level, layout, chunk (bytes), component (bytes; 0 if not set), members (bytes of each one's data area),
#   at (where the data area begins in slot.n), bytes (of the array, as md says)
#
# Most arrays have no superblock: they are set up through sysfs, which reaches layouts that mdadm has no words
# for and lets all of them share one set of loop devices. What mdadm itself writes is examined elsewhere.
set -euo pipefail
out=$1
slots_max=32
at=0
made=0 arrays=0
K=1024

for module in raid0 raid1 raid10 raid456; do modprobe "$module"; done
has_linear=1
modprobe linear 2>/dev/null || has_linear=
modprobe loop max_loop=64
mkdir -p "$out"
: >"$out/manifest"

cd "$SCRATCH"
. "${BASH_SOURCE[0]%/*}/hand.sh"
exec {silence}<> <(:) # reading from it with a time limit waits without starting a program

# attach FILE...: what they are then is in $told.
attach() { hand attach "$@" || { echo "no loop devices: $told" && exit 1; }; }

# They are in the guest's memory, where md is quicker, and what an array has left there goes to OUTDIR.
files=()
for ((slot = 0; slot < slots_max; slot++)); do files+=("slot.$slot"); done
rm -f "${files[@]/#/$out/}"
truncate -s 4G "${files[@]}" "${files[@]/#/$out/}"
attach "${files[@]}"
read -ra loops <<<"${told//\/dev\//}"
numbers=()
for loop in "${loops[@]}"; do
    read -r number <"/sys/block/$loop/dev"
    numbers+=("$number")
done

# What arrays are filled with; none is larger.
lines=$SCRATCH/lines
seq 100000000000000 $((100000000000000 + (32 << 20) / 16 - 1)) >"$lines"

# Writes the array's line to the manifest.
record() {
    echo "$*" >>"$out/manifest"
    made=$((made + 1))
}

# array LEVEL LAYOUT CHUNK COMPONENT MEMBER...: sizes in bytes; COMPONENT 0 where md takes it from the members.
array() {
    local level=$1 layout=$2 chunk=$3 component=$4 slot=0 member largest=0 sectors bytes device mismatches=0 sysfs kind=filled
    shift 4
    local members=$* shape
    shape="level=$level layout=$layout chunk=$chunk component=$component members=${members// /,}"
    arrays=$((arrays + 1))
    device=md_geometry$arrays
    echo "$device" >/sys/module/md_mod/parameters/new_array
    sysfs=/sys/block/$device/md
    echo "$level" >"$sysfs/level"
    echo $# >"$sysfs/raid_disks"
    echo "$layout" >"$sysfs/layout"
    echo "$chunk" >"$sysfs/chunk_size"
    [ "$component" = 0 ] || echo $((component / 1024)) >"$sysfs/component_size"
    for member in "$@"; do
        echo "${numbers[slot]}" >"$sysfs/new_dev"
        echo $((at / 512)) >"$sysfs/dev-${loops[slot]}/offset"
        echo $((member / 1024)) >"$sysfs/dev-${loops[slot]}/size"
        echo "$slot" >"$sysfs/dev-${loops[slot]}/slot"
        if ((member > largest)); then largest=$member; fi
        slot=$((slot + 1))
    done
    echo none >"$sysfs/resync_start"
    if ! { echo active >"$sysfs/array_state"; } 2>/dev/null; then
        echo clear >"$sysfs/array_state"
        record refused "$shape"
        return
    fi
    read -r sectors <"/sys/block/$device/size"
    bytes=$((sectors * 512))
    hand copy "$lines" 0 "/dev/$device" 0 $bytes sync || { echo "$shape: not filled: $told" && exit 1; }
    if [ "$level" = raid10 ]; then
        echo check >"$sysfs/sync_action"
        until [ "$(<"$sysfs/sync_action")" = idle ]; do read -rt 0.01 -u "$silence" || true; done
        read -r mismatches <"$sysfs/mismatch_cnt"
    fi
    echo clear >"$sysfs/array_state"
    [ "$mismatches" = 0 ] || kind=collides
    record $kind "$shape at=$at bytes=$bytes"
    hand move_out "$out" $at $largest "${files[@]:0:slot}" || { echo "$shape: not kept: $told" && exit 1; }
    at=$((at + ((largest >> 20) + 1 << 20)))
}

# alike LEVEL LAYOUT CHUNK COMPONENT COUNT: COUNT members, each somewhat larger than the component.
alike() {
    local level=$1 layout=$2 chunk=$3 component=$4 count=$5 members=()
    while ((${#members[@]} < count)); do members+=($((component + 8 * K))); done
    array "$level" "$layout" "$chunk" "$component" "${members[@]}"
}

# named LEVEL NAME: what md calls the layout that mdadm calls NAME.
named() {
    local level=$1 name=$2 layout redundant=()
    [ "$level" = 0 ] || redundant=(--size=4M --assume-clean --bitmap=none)
    mdadm --create /dev/md0 --run --quiet --level="$level" --layout="$name" --raid-devices=4 --chunk=64 \
        --data-offset=1M "${redundant[@]}" "${small[@]}" >"$SCRATCH/mdadm" 2>&1 || { cat "$SCRATCH/mdadm"; return 1; }
    read -r layout _ </sys/block/md0/md/layout
    mdadm --stop --quiet /dev/md0
    record named "level=raid$level name=$name layout=$layout"
}

# RAID-4 and RAID-5. 66 stripes and a bit: twice round the largest array.
for count in 2 3 4 5 8 32; do
    alike raid4 0 $((4 * K)) $((265 * K)) $count
    for layout in 0 1 2 3 4 5; do alike raid5 $layout $((4 * K)) $((265 * K)) $count; done
done
for chunk in 64 1024; do
    for layout in 0 1 2 3 4 5; do alike raid5 $layout $((chunk * K)) $((7 * chunk * K + 4 * K)) 3; done
done

# RAID-6
raid6_layouts=(0 1 2 3 4 5 8 9 10 16 17 18 19 20)
for count in 4 5 6 8 32; do
    for layout in "${raid6_layouts[@]}"; do alike raid6 "$layout" $((4 * K)) $((265 * K)) $count; done
done
for layout in "${raid6_layouts[@]}"; do alike raid6 "$layout" $((64 * K)) $((11 * 64 * K + 4 * K)) 5; done
alike raid6 2 $((1024 * K)) $((7 * 1024 * K)) 5

# RAID-10: near, far and offset, and both, with each variant of far sets.
near=(0x102 0x103 0x104)
far=(0x201 0x301 0x202 0x10201 0x10301 0x10202)
for count in 2 3 4 5 6 9; do
    for layout in "${near[@]}" "${far[@]}"; do
        (((layout & 255) * (layout >> 8 & 255) <= count)) || continue
        alike raid10 $((layout)) $((4 * K)) $((149 * K)) $count
        ((layout >> 9 & 127)) || continue # far sets need far copies
        alike raid10 $((layout | 1 << 17)) $((4 * K)) $((149 * K)) $count
        alike raid10 $((layout | 2 << 17)) $((4 * K)) $((149 * K)) $count
    done
done
for layout in 0x102 0x103 0x201 0x10201; do
    alike raid10 $((layout)) $((64 * K)) $((900 * K)) 5
    alike raid10 $((layout)) $((1024 * K)) $((9000 * K)) 3
    alike raid10 $((layout)) $((4 * K)) $((101 * K)) 32
done

# RAID-1
for count in 1 2 3 4 8 32; do alike raid1 0 0 $((333 * K)) $count; done

# RAID-0: one zone; zones of which only the first has several members; several zones, both layouts.
raid0() {
    local layout=$1 chunk=$2 member members=()
    shift 2
    for member in "$@"; do members+=($((member * K))); done
    array raid0 "$layout" $((chunk * K)) 0 "${members[@]}"
}
for chunk in 4 12 64 1024; do
    size=$((5 * chunk + 4))
    raid0 0 $chunk $size
    raid0 0 $chunk $size $size
    raid0 0 $chunk $size $size $size
    raid0 0 $chunk $size $size $size $size $size
done
raid0 0 4 100 100 300
raid0 0 4 700 5
raid0 0 64 130 190 170 # alike after rounding
for layout in 1 2; do
    raid0 $layout 4 100 200 300
    raid0 $layout 4 300 200 100
    raid0 $layout 4 204 100 308 204 308
    raid0 $layout 4 52 104 160 212 264 320 372 424
    raid0 $layout 12 100 210 333 222 333
    raid0 $layout 20 100 210 333 222 333
    raid0 $layout 64 500 1000 1600 1000
    raid0 $layout 64 500 40 1600 1000 # the second is smaller than a chunk
    raid0 $layout 1024 2048 5000 4096 5120
done

# Linear, with and without rounding, where the kernel has it.
[ "$has_linear" ] || echo "not tried: level linear, which this kernel lacks"
for chunk in ${has_linear:+0 4 12 64}; do
    array linear 0 $((chunk * K)) 0 $((333 * K)) $((100 * K)) $((217 * K))
    array linear 0 $((chunk * K)) 0 $((131 * K))
    array linear 0 $((chunk * K)) 0 $((333 * K)) $((48 * K)) $((217 * K)) $((50 * K))
done

# What md refuses.
for layout in 6 7 8 16; do alike raid5 $layout $((4 * K)) $((265 * K)) 5; done
for layout in 6 7 11 15 21; do alike raid6 $layout $((4 * K)) $((265 * K)) 5; done
for chunk in 0 512 2048 12288; do
    alike raid5 2 $chunk $((264 * K)) 5
    alike raid10 258 $chunk $((264 * K)) 5
done
alike raid6 2 $((4 * K)) $((264 * K)) 3
for layout in 0x101 0x002 0x200 0x106 0x10001 0x60201; do alike raid10 $((layout)) $((4 * K)) $((264 * K)) 5; done
alike raid0 0 0 0 3
raid0 0 4 100 200 300
raid0 3 4 100 200 300

# mdadm's names. Members of unequal size, so that md looks at the layout of RAID-0.
for slot in 0 1 2 3; do truncate -s $((8 + 2 * slot))M "$SCRATCH/small.$slot"; done
attach "$SCRATCH"/small.{0,1,2,3}
read -ra small <<<"$told"
for name in left-asymmetric right-asymmetric left-symmetric right-symmetric parity-first parity-last la ra ls rs; do
    named 5 $name
    named 6 $name
done
for name in left-asymmetric right-asymmetric left-symmetric right-symmetric parity-first; do named 6 $name-6; done
for name in ddf-zero-restart ddf-N-restart ddf-N-continue; do named 6 $name; done
for name in n2 n3 f2 f3 o2 o3; do named 10 $name; done
for name in original alternate; do named 0 $name; done

losetup --detach "${small[@]}" "${loops[@]/#//dev/}"
cut -d' ' -f1 "$out/manifest" | sort | uniq -c
echo "$made arrays in $out"
