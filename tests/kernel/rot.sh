#!/bin/bash
# Silent corruption of several kinds, repaired by the real driver, and by mdspace: in how many cases the array's bytes are
# what they were.
#
#   rot.sh MDSPACE CASES
#
# Prints a line for each level and kind: "LEVEL|KIND|CASES|right after md's repair|right after ours|of ours undecidable".
set -euo pipefail
mdspace=$1 cases=$2
export MDADM_NO_UDEV=1
modprobe loop max_loop=8
for module in raid1 raid10 raid456; do modprobe $module; done
md=/sys/block/md0/md
cd "$SCRATCH"
export XDG_STATE_HOME=$SCRATCH/state
RANDOM=1

MEMBER_BYTES=$((6 << 20))
head -c $((24 << 20)) /dev/urandom >pool
exec {silence}<> <(:)
until_true() { until "$@"; do read -rt 0.01 -u "$silence" || true; done; }
is() { [ "$(<"$1")" = "$2" ]; }

assemble() {
    mdadm --assemble --quiet --run /dev/md0 "${members[@]}"
    [ "$(<$md/array_state)" != read-auto ] || mdadm --readwrite --quiet /dev/md0
    until_true is $md/sync_action idle
}
stop() {
    mdadm --stop --quiet /dev/md0
    blockdev --flushbufs "${members[@]}"
}

# Two generations of contents: what a lost write leaves behind is the older.
create() {
    members=()
    losetup -D
    local number chunk=(--chunk=16)
    [ "$level" != 1 ] || chunk=()
    for ((number = 0; number < count; number++)); do
        rm -f "m$number"
        truncate -s $MEMBER_BYTES "m$number"
        members+=("$(losetup --find --show "m$number")")
    done
    mdadm --create /dev/md0 --quiet --run --metadata=1.2 --level="$level" "${chunk[@]}" --bitmap=none \
        ${layout:+--layout=$layout} --raid-devices="$count" --assume-clean "${members[@]}"
    dd if=pool of=/dev/md0 bs=1M conv=fsync status=none 2>/dev/null || true # until it is full
    stop
    for ((number = 0; number < count; number++)); do cp "m$number" "older$number"; done
    assemble
    dd if=pool of=/dev/md0 bs=1M skip=1 conv=fsync status=none 2>/dev/null || true
    head -c "$(blockdev --getsize64 /dev/md0)" /dev/md0 >model
    stop
    for ((number = 0; number < count; number++)); do cp "m$number" "right$number"; done
    data_at=$("$mdspace" examine --json "${members[@]}" | jq '.members[0].data_at')
}

restore() {
    local number
    for ((number = 0; number < count; number++)); do dd if="right$number" of="m$number" bs=1M conv=notrunc status=none; done
}

# spoil KIND: in member $victim, in block $block of its data.
spoil() {
    local at=$((data_at / 4096 + block)) other=$((data_at / 4096 + (block + 37) % 1000))
    put() { dd of="m$victim" bs=4k conv=notrunc status=none "$@"; }
    case $1 in
        bits)
            local byte=$((at * 4096 + noise % 4096))
            printf "\\x$(printf %02x $((0x$(xxd -s $byte -l 1 -p "right$victim") ^ (1 << noise % 8))))" |
                dd of="m$victim" bs=1 seek=$byte conv=notrunc status=none
            ;;
        "a block") put if=pool skip=$((noise % 6000)) seek=$at count=1 ;;
        "a range")
            dd if=pool of="m$victim" bs=1M iflag=skip_bytes,count_bytes oflag=seek_bytes skip=$noise \
                seek=$((at * 4096 + 33)) count=20000 conv=notrunc status=none
            ;;
        "two blocks swapped")
            put if="right$victim" skip=$other seek=$at count=1
            put if="right$victim" skip=$at seek=$other count=1
            ;;
        "a stale block") put if="older$victim" skip=$at seek=$at count=1 ;;
    esac
    blockdev --flushbufs "${members[@]}"
}

is_right() {
    assemble
    local same=1
    cmp -s model /dev/md0 || same=0
    stop
    echo $same
}

for shape in "1 3 -" "5 4 -" "6 6 -" "10 4 n3"; do
    read -r level count layout <<<"$shape"
    [ "$layout" != - ] || layout=
    create
    for kind in bits "a block" "a range" "two blocks swapped" "a stale block"; do
        theirs=0 ours=0 undecidable=0
        for ((number = 0; number < cases; number++)); do
            victim=$((RANDOM % count)) block=$((RANDOM % 950)) noise=$RANDOM
            restore
            spoil "$kind"
            assemble
            echo repair >$md/sync_action
            until_true is $md/sync_action idle
            stop
            theirs=$((theirs + $(is_right)))
            restore
            spoil "$kind"
            "$mdspace" scrub --repair --json "${members[@]}" >report.json 2>scrub.log || [ $? = 1 ]
            blockdev --flushbufs "${members[@]}"
            ours=$((ours + $(is_right)))
            [ "$(jq .counts.undecidable report.json)" = 0 ] || undecidable=$((undecidable + 1))
        done
        echo "$level|$kind|$cases|$theirs|$ours|$undecidable"
    done
done
