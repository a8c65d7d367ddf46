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
#   never    those of them that were missing already when the array was made: they have no superblock yet   (check)
#   checked  1 if the level has copies or parity that `check` compares                           (check)
#   patches  array of POS:FROM:LENGTH, bytes of POOL to write at the end                         (check)
#
#   size     the array's size in bytes                                                           (check)
#   hash     b2sum of the array's bytes; they are also in the file `model`                       (check)
#
# make    creates the array over zeroed images, fills it, writes its size in bytes to the file `size`.
# check   assembles without --force, `check`s and compares; lets absent members recover, checks and compares again;
#         writes the patches.
# Prints `ok CELL`, or `failed CELL` after the cell's log.
#
# A cell's images are brought into the guest's memory while it is worked on: md's sweeps over loop devices on the host's
# files take some twenty times as long, even where all is cached.
#
# A guest needs 20 ms to start a program: what bash can do itself, or hand.py, is not left to one.

phase=$1 directory=$2 pool=$3
shift 3
for module in raid0 raid1 raid10 raid456; do modprobe $module; done
[[ " $* " != *-linear-* ]] || modprobe linear # which newer kernels have not
echo 2000000 >/proc/sys/dev/raid/speed_limit_min

die() {
    echo "$*"
    exit 1
}

# Writes LENGTH bytes of the pool, from FROM on, at POS of the array: POS FROM LENGTH.
write_from_pool() {
    hand copy "$pool" "$2" "$array" "$1" "$3" sync || die "not written: $told"
}

# Waits until the array's attribute $1 is $2; a minute at most.
wait_for() {
    local value tries=0
    until read -r value <"$sysfs/$1" && [ "$value" = "$2" ]; do
        read -rt 0.01 -u "$silence" || true
        ((++tries < 6000)) || die "$1 stays $value: $(</proc/mdstat)"
    done
}

expect_no_mismatch() {
    local count
    echo check >"$sysfs/sync_action"
    wait_for sync_action idle
    read -r count <"$sysfs/mismatch_cnt"
    [ "$count" = 0 ] || die "check $1: mismatch_cnt is $count"
}

expect_model() {
    hand digest 0 "$array" || die "not read $1: $told"
    [ "$told" = "$hash" ] || die "the bytes differ $1: $(cmp "$cell/model" "$array")"
}

# The array's size is in $bytes.
array_bytes() {
    local sectors
    read -r sectors <"${sysfs%/md}/size"
    bytes=$((sectors * 512))
}

make_cell() {
    mdadm --create "$array" --run "${create[@]}" --raid-devices="$members" "${loops[@]}"
    array_bytes
    write_from_pool 0 "$fill" "$bytes"
    echo "$bytes" >"$cell/size"
}

check_cell() {
    local offered=("${loops[@]}") member
    for member in $never; do unset "offered[member]"; done
    mdadm --assemble --run "$array" "${offered[@]}"
    array_bytes
    [ "$bytes" = "$size" ] || die "the size is $bytes, not $size"
    if [ "$checked" = 1 ]; then
        local missing degraded returning=() stale=()
        read -ra missing <<<"$absent"
        read -r degraded <"$sysfs/degraded"
        [ "$degraded" = ${#missing[@]} ] || die "$degraded members missing, not ${#missing[@]} ($absent)"
        expect_no_mismatch "after assembly"
        expect_model "after assembly"
        for member in "${missing[@]}"; do
            returning+=("${loops[member]}")
            [[ " $never " = *" $member "* ]] || stale+=("${loops[member]}")
        done
        [ ${#stale[@]} = 0 ] || mdadm --zero-superblock "${stale[@]}"
        if [ ${#returning[@]} -gt 0 ]; then
            mdadm --add "$array" "${returning[@]}"
            wait_for degraded 0
            wait_for sync_action idle
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
}

run_cell() {
    set -eu
    . "$cell/cell"
    local how=()
    [ "$phase" != make ] || how=(empty)
    hand take "$cell" "$members" "${how[@]}" || die "no loop devices: $told"
    read -ra loops <<<"$told"
    "${phase}_cell"
    mdadm --stop "$array"
    hand give "$cell" "$members" || die "not given back: $told"
}

modprobe loop max_loop=32
cd "$SCRATCH"
. "${BASH_SOURCE[0]%/*}/hand.sh"
exec {silence}<> <(:) # reading from it with a time limit waits without starting a program

number=0
for name in "$@"; do
    cell=$directory/$name
    array=/dev/md$((number++ % 100))
    sysfs=/sys/block/${array#/dev/}/md
    (run_cell) >"$cell/$phase.log" 2>&1
    status=$?
    if [ $status = 0 ]; then
        echo "ok $name"
    else
        cat "$cell/$phase.log" /proc/mdstat
        dmesg | grep -v 'operational as raid disk' | tail -n 10
        mdadm --stop "$array" 2>&1
        . "$cell/cell"
        hand give "$cell" "$members"
        echo "failed $name"
    fi
done
