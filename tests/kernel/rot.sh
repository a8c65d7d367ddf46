#!/bin/bash
# Silent corruption of several kinds, repaired by the real driver, and by mdspace: in how many cases the array's bytes are
# what they were.
#
#   rot.sh MDSPACE CASES
#
# Prints a line for each level and kind: "LEVEL|KIND|CASES|right after md's repair|right after ours|of ours undecidable".
set -euo pipefail
mdspace=$1 cases=$2
. "$(dirname "$0")/common.sh"
export XDG_STATE_HOME=$SCRATCH/state
RANDOM=1

MEMBER_BYTES=$((6 << 20))
head -c $((24 << 20)) /dev/urandom >pool

where() { echo "RAID-$level"; }
evidence() { cat scrub.log; }

stop() {
    stop_md
    flushed
}

# Two generations of contents: what a lost write leaves behind is the older.
create() {
    local number
    blank "$count"
    create_by_md 16 --bitmap=none ${layout:+--layout=$layout} "${members[@]}"
    fill
    stop
    for ((number = 0; number < count; number++)); do cp "m$number" "older$number"; done
    assemble_and_finish "${members[@]}"
    fill 1
    take_model
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
    flushed
}

is_right() {
    assemble_and_finish "${members[@]}"
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
            assemble_and_finish "${members[@]}"
            sweep repair
            stop
            theirs=$((theirs + $(is_right)))
            restore
            spoil "$kind"
            "$mdspace" scrub --repair --json "${members[@]}" >report.json 2>scrub.log || [ $? = 1 ]
            flushed
            ours=$((ours + $(is_right)))
            [ "$(jq .counts.undecidable report.json)" = 0 ] || undecidable=$((undecidable + 1))
        done
        echo "$level|$kind|$cases|$theirs|$ours|$undecidable"
    done
done
