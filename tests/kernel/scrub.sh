#!/bin/bash
# Checks and repairs of mdspace and of the real driver on the same corrupted members, levels 1, 5, 6 and 10.
#
#   scrub.sh MDSPACE
#
# Runs in a guest (tests/kernel/init.sh). What must hold: both count the same mismatch_cnt; what mdspace calls decided it
# heals, the array's bytes are then those of `model`, and the driver's check counts 0; what it calls undecidable stays as
# it is until --repair=parity. Beside it, what the driver's own repair makes of the same members.
set -euo pipefail
mdspace=$1
export MDADM_NO_UDEV=1
modprobe loop max_loop=8
for module in raid1 raid10 raid456; do modprobe $module; done
md=/sys/block/md0/md
cd "$SCRATCH"
export XDG_STATE_HOME=$SCRATCH/state

MEMBER_BYTES=$((8 << 20))
head -c $((36 << 20)) /dev/urandom >pool

fail() {
    echo "FAILED: $name, $scene: $*"
    cat /proc/mdstat
    cat report.json scrub.log 2>/dev/null || :
    dmesg | tail -n 15
    exit 1
}

until_true() {
    local tries=0
    until "$@"; do
        read -rt 0.02 -u "$silence" || true
        ((++tries < 3000)) || fail "never came true: $*"
    done
}
exec {silence}<> <(:) # reading from it with a time limit waits without starting a program
is() { [ "$(<"$1")" = "$2" ]; }

blank() {
    losetup -D
    members=()
    local number
    for ((number = 0; number < $1; number++)); do
        rm -f "m$number"
        truncate -s $MEMBER_BYTES "m$number"
        members+=("$(losetup --find --show "m$number")")
    done
}

# Made by the driver, or by mdspace; filled by the driver, and stopped.
create() {
    local chunk=(--chunk=64)
    [ "$level" != 1 ] || chunk=()
    blank "$count"
    if [ "$by" = md ]; then
        mdadm --create /dev/md0 --quiet --run --metadata=1.2 --level="$level" "${chunk[@]}" --bitmap=none \
            ${layout:+--layout=$layout} --raid-devices="$count" --assume-clean "${members[@]}"
    else
        [ "$level" = 1 ] || chunk=(--chunk 64K)
        "$mdspace" create --level "$level" "${chunk[@]}" ${layout:+--layout $layout} "${members[@]}" >create.log
        blockdev --flushbufs "${members[@]}"
        assemble
    fi
    dd if=pool of=/dev/md0 bs=1M conv=fsync status=none 2>/dev/null || true # until it is full
    head -c "$(blockdev --getsize64 /dev/md0)" /dev/md0 >model
    mdadm --stop --quiet /dev/md0
    data_at=$("$mdspace" examine --json "${members[@]}" | jq '.members[0].data_at')
}

assemble() {
    mdadm --assemble --quiet --run /dev/md0 "${members[@]}" || fail "md does not assemble them"
    [ "$(<$md/array_state)" != read-auto ] || mdadm --readwrite --quiet /dev/md0
    until_true is $md/sync_action idle
}

# md ACTION: assembles, lets the driver check or repair, and says what it counted.
md() {
    assemble
    echo "$1" >$md/sync_action
    until_true is $md/sync_action idle
    cat $md/mismatch_cnt
    mdadm --stop --quiet /dev/md0
    blockdev --flushbufs "${members[@]}"
}

keeps_model() {
    assemble
    local same=0
    cmp -s model /dev/md0 || same=1
    mdadm --stop --quiet /dev/md0
    return $same
}

# spoil MEMBER KIB BYTES: noise, so far into its data.
spoil() {
    dd if=pool of="m$1" bs=1M iflag=skip_bytes,count_bytes oflag=seek_bytes seek=$((data_at + ($2 << 10) + 77)) \
        skip=$((RANDOM * 300)) count="$3" conv=notrunc status=none
}
spoil_all() {
    local number kib=128
    for ((number = 0; number < count; number++, kib += 640)); do
        spoil $number $kib 100
        spoil $number $((kib + 260)) 6000
    done
    spoil 1 6000 150000
    blockdev --flushbufs "${members[@]}"
}

# scrub STATUS ARGUMENT...: ours, offline; its report in report.json.
scrub() {
    local expected=$1 status=0
    shift
    "$mdspace" scrub "${members[@]}" --json "$@" >report.json 2>scrub.log || status=$?
    [ $status = "$expected" ] || fail "scrub $*: status $status, not $expected"
    blockdev --flushbufs "${members[@]}"
}
counts() { jq ".counts.$1" report.json; }
sums() { local member; for member in "${members[@]}"; do tail -c +$((data_at + 1)) "$member" | md5sum; done; }

both_count_the_same() {
    create
    scrub 0
    [ "$(md check)" = 0 ] || fail "md finds something in a healthy array"
    spoil_all
    local before ours theirs
    before=$(sums)
    scrub 1
    ours=$(counts mismatch_cnt)
    theirs=$(md check)
    [ "$ours" = "$theirs" ] || fail "mismatch_cnt: ours $ours, md's $theirs"
    [ "$before" = "$(sums)" ] || fail "a check changed a member"
    echo "$name: mismatch_cnt $ours, as the driver's"
}

we_repair_and_md_agrees() {
    create
    spoil_all
    local before
    before=$(sums)
    scrub 1 --repair
    if [ "$decidable" = yes ]; then
        [ "$(counts healed)" = "$(counts decided)" ] && [ "$(counts undecidable)" = 0 ] || fail "not all was healed"
        [ "$(md check)" = 0 ] || fail "md still finds something"
        keeps_model || fail "the array's bytes are others"
        echo "$name: repair healed $(counts healed) rows, the driver's check counts 0, no byte is lost"
    else
        [ "$(counts healed)" = 0 ] && [ "$(counts undecidable)" -gt 0 ] || fail "somebody was accused"
        [ "$before" = "$(sums)" ] || fail "what is undecidable was touched"
        scrub 1 --repair=parity
        [ "$(counts rewritten)" -gt 0 ] || fail "nothing was rewritten"
        [ "$(md check)" = 0 ] || fail "md still finds something"
        echo "$name: $(counts undecidable) rows are undecidable; rewritten as md does, its check counts 0"
    fi
}

md_repairs_and_we_agree() {
    create
    spoil_all
    md repair >/dev/null
    scrub 0
    [ "$(counts mismatch_cnt)" = 0 ] || fail "we still find something"
    if keeps_model; then kept="all data is right"; else kept="wrong data is there for good"; fi
    echo "$name: after the driver's own repair it counts 0, and $kept"
}

# With a member missing one equation is left of RAID-6: that something is wrong is seen, not who.
degraded_both_count_the_same() {
    create
    spoil_all
    local last=${members[count - 1]} ours theirs before
    members=("${members[@]:0:count-1}")
    before=$(sums)
    scrub 1 --repair
    ours=$(counts mismatch_cnt)
    [ "$(counts decided)" = 0 ] || fail "somebody was accused"
    [ "$before" = "$(sums)" ] || fail "what is undecidable was touched"
    theirs=$(md check)
    [ "$ours" = "$theirs" ] || fail "mismatch_cnt: ours $ours, md's $theirs"
    echo "$name, without $last: mismatch_cnt $ours, as the driver's; nobody is accused"
}

for shape in "1 3 - yes md" "1 2 - no mdspace" "5 4 - no md" "6 6 - yes mdspace" "6 5 ddf-zero-restart yes mdspace" \
    "10 4 n3 yes md" "10 4 n2 no md" "10 5 f3 yes mdspace" "10 4 o2 no md"; do
    read -r level count layout decidable by <<<"$shape"
    name="RAID-$level, $count members${layout:+ $layout}"
    [ "$layout" != - ] || { layout='' && name="RAID-$level, $count members"; }
    for scene in both_count_the_same we_repair_and_md_agrees md_repairs_and_we_agree; do $scene; done
    scene=degraded_both_count_the_same
    [ "$level" != 6 ] || $scene
done
echo "9 shapes, each checked and repaired by both"
