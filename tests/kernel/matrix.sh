#!/bin/bash
# The kernel's side of the interop matrix (xtask/src/matrix/), inside a guest.
#
#   matrix.sh make|check DIRECTORY POOL CELL...
#
# Each CELL is a directory in DIRECTORY with member images m0, m1, ... and the file `cell` of shell variables:
#   members  how many there are
#   create   array: mdadm's options                                                              (make)
#   fill     where in POOL the bytes to write begin                                              (make)
#   absent   members that missed a write: the array must start without them and then recover     (check)
#   checked  1 if the level has copies or parity that `check` compares                           (check)
#   patches  array of POS:FROM:LENGTH, bytes of POOL to write at the end                         (check)
#
# make    creates the array over zeroed images, fills it, writes its size in bytes to the file `size`.
# check   assembles without --force, `check`s, compares with the file `model`; lets absent members recover and
#         checks and compares again; writes the patches.
# Prints `ok CELL`, or `failed CELL` after the cell's log.

phase=$1 directory=$2 pool=$3
shift 3
modprobe loop max_loop=40
for module in linear raid0 raid1 raid10 raid456; do modprobe $module; done
echo 2000000 >/proc/sys/dev/raid/speed_limit_min

die() {
    echo "$*"
    exit 1
}

# Writes LENGTH bytes of the pool, from FROM on, at POS of the array: POS FROM LENGTH.
write_from_pool() {
    dd if="$pool" iflag=skip_bytes,count_bytes skip="$2" count="$3" \
        of="$array" oflag=seek_bytes seek="$1" bs=1M conv=notrunc,fsync status=none
}

# Waits until the array has nothing to do and no member is missing.
wait_until_whole() {
    local tries=0
    until [ "$(cat "$sysfs/degraded")" = 0 ] && [ "$(cat "$sysfs/sync_action")" = idle ]; do
        mdadm --wait "$array" >/dev/null 2>&1 || true # 1: nothing to wait for
        ((++tries < 1000)) || die "recovery does not end: $(cat /proc/mdstat)"
    done
}

expect_no_mismatch() {
    echo check >"$sysfs/sync_action"
    until [ "$(cat "$sysfs/sync_action")" = idle ]; do mdadm --wait "$array" >/dev/null 2>&1 || true; done
    local count
    count=$(cat "$sysfs/mismatch_cnt")
    [ "$count" = 0 ] || die "check $1: mismatch_cnt is $count"
}

expect_model() {
    cmp "$cell/model" "$array" || die "the bytes differ $1"
}

make_cell() {
    mdadm --create "$array" --run "${create[@]}" --raid-devices="$members" "${loops[@]}"
    local size
    size=$(blockdev --getsize64 "$array")
    write_from_pool 0 "$fill" "$size"
    echo "$size" >"$cell/size"
}

check_cell() {
    mdadm --assemble --run "$array" "${loops[@]}"
    [ "$(cat "$sysfs/array_state")" != inactive ] || die "the array is not active"
    [ "$(blockdev --getsize64 "$array")" = "$(stat -c %s "$cell/model")" ] || die "the size differs"
    if [ "$checked" = 1 ]; then
        local missing=($absent)
        local degraded
        degraded=$(cat "$sysfs/degraded")
        [ "$degraded" = ${#missing[@]} ] || die "$degraded members missing, not ${#missing[@]} ($absent)"
        expect_no_mismatch "after assembly"
        expect_model "after assembly"
        for member in "${missing[@]}"; do
            mdadm --zero-superblock --force "${loops[member]}" 2>/dev/null || true # absent since it was made: has none
            mdadm --add "$array" "${loops[member]}"
        done
        if [ ${#missing[@]} -gt 0 ]; then
            wait_until_whole
            expect_no_mismatch "after recovery"
            expect_model "after recovery"
        fi
    else
        expect_model "after assembly"
    fi
    local patch
    for patch in "${patches[@]}"; do
        IFS=: read -r position from length <<<"$patch"
        write_from_pool "$position" "$from" "$length"
    done
    if [ "$checked" = 1 ]; then expect_no_mismatch "after the kernel's writes"; fi
}

run_cell() {
    set -eu
    . "$cell/cell"
    loops=()
    for ((i = 0; i < members; i++)); do
        losetup "/dev/loop$i" "$cell/m$i"
        loops+=("/dev/loop$i")
    done
    "${phase}_cell"
    mdadm --stop "$array"
}

number=0
for name in "$@"; do
    cell=$directory/$name
    array=/dev/md$((number++ % 100))
    sysfs=/sys/block/${array#/dev/}/md
    dmesg --clear
    (run_cell) >"$cell/$phase.log" 2>&1
    status=$?
    if [ $status != 0 ]; then
        { cat /proc/mdstat; dmesg | tail -n 20; } >>"$cell/$phase.log"
        mdadm --stop "$array" >>"$cell/$phase.log" 2>&1
    fi
    losetup --detach-all
    if [ $status = 0 ]; then
        echo "ok $name"
    else
        cat "$cell/$phase.log"
        echo "failed $name"
    fi
done
