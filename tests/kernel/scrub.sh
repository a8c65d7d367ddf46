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
. "$(dirname "$0")/common.sh"
export XDG_STATE_HOME=$SCRATCH/state

MEMBER_BYTES=$((8 << 20))
head -c $((36 << 20)) /dev/urandom >pool

where() { echo "$name, $scene"; }
evidence() { cat report.json scrub.log 2>/dev/null; }

# Made by the driver, or by mdspace; filled by the driver, and stopped.
create() {
    blank "$count"
    if [ "$by" = md ]; then
        create_by_md 64 --bitmap=none ${layout:+--layout=$layout} "${members[@]}"
    else
        local chunk=(--chunk 64K)
        [ "$level" != 1 ] || chunk=()
        "$mdspace" create --level "$level" "${chunk[@]}" ${layout:+--layout $layout} "${members[@]}" >create.log
        flushed
        assemble_and_finish "${members[@]}"
    fi
    fill
    take_model
    stop_md
    "$mdspace" examine --json "${members[@]}" >examined.json
    hand found examined.json 'members[0].data_at' || fail "$told"
    data_at=$told
}

# md ACTION: assembles, lets the driver check or repair; what it counted is in $mismatches.
md() {
    assemble_and_finish "${members[@]}"
    sweep "$1"
    read -r mismatches <$md/mismatch_cnt
    stop_md
    flushed
}

keeps_model() {
    assemble_and_finish "${members[@]}"
    local same=0
    hand alike model /dev/md0 -1 || same=1
    stop_md
    return $same
}

# spoil MEMBER KIB BYTES: noise, so far into its data.
spoil() {
    hand copy pool $((RANDOM * 300)) "m$1" $((data_at + ($2 << 10) + 77)) "$3" || fail "not spoiled: $told"
}
spoil_all() {
    local number kib=128
    for ((number = 0; number < count; number++, kib += 640)); do
        spoil $number $kib 100
        spoil $number $((kib + 260)) 6000
    done
    spoil 1 6000 150000
    flushed
}

# scrub STATUS ARGUMENT...: ours, offline; its report in report.json.
scrub() {
    local expected=$1 status=0
    shift
    "$mdspace" scrub "${members[@]}" --json "$@" >report.json 2>scrub.log || status=$?
    [ $status = "$expected" ] || fail "scrub $*: status $status, not $expected"
    flushed
}
# counts NAME: what the report has of it, in $told.
counts() { hand found report.json "counts.$1" || fail "no count: $told"; }
# untouched: no member's data is other than at the last `sums`.
sums() {
    hand digest "$data_at" "${members[@]}" || fail "no sums: $told"
    sums=$told
}
untouched() {
    local before=$sums
    sums
    [ "$before" = "$sums" ]
}

both_count_the_same() {
    create
    scrub 0
    md check
    [ "$mismatches" = 0 ] || fail "md finds something in a healthy array"
    spoil_all
    sums
    scrub 1
    counts mismatch_cnt
    local ours=$told
    md check
    [ "$ours" = "$mismatches" ] || fail "mismatch_cnt: ours $ours, md's $mismatches"
    untouched || fail "a check changed a member"
    echo "$name: mismatch_cnt $ours, as the driver's"
}

we_repair_and_md_agrees() {
    create
    spoil_all
    sums
    scrub 1 --repair
    local healed undecidable
    counts healed
    healed=$told
    counts undecidable
    undecidable=$told
    if [ "$decidable" = yes ]; then
        counts decided
        [ "$healed" = "$told" ] && [ "$undecidable" = 0 ] || fail "not all was healed"
        md check
        [ "$mismatches" = 0 ] || fail "md still finds something"
        keeps_model || fail "the array's bytes are others"
        echo "$name: repair healed $healed rows, the driver's check counts 0, no byte is lost"
    else
        [ "$healed" = 0 ] && ((undecidable > 0)) || fail "somebody was accused"
        untouched || fail "what is undecidable was touched"
        scrub 1 --repair=parity
        counts rewritten
        ((told > 0)) || fail "nothing was rewritten"
        md check
        [ "$mismatches" = 0 ] || fail "md still finds something"
        echo "$name: $undecidable rows are undecidable; rewritten as md does, its check counts 0"
    fi
}

md_repairs_and_we_agree() {
    create
    spoil_all
    md repair
    scrub 0
    counts mismatch_cnt
    [ "$told" = 0 ] || fail "we still find something"
    if keeps_model; then kept="all data is right"; else kept="wrong data is there for good"; fi
    echo "$name: after the driver's own repair it counts 0, and $kept"
}

# With a member missing one equation is left of RAID-6: that something is wrong is seen, not who.
degraded_both_count_the_same() {
    create
    spoil_all
    local last=${members[count - 1]} ours
    members=("${members[@]:0:count-1}")
    sums
    scrub 1 --repair
    counts mismatch_cnt
    ours=$told
    counts decided
    [ "$told" = 0 ] || fail "somebody was accused"
    untouched || fail "what is undecidable was touched"
    md check
    [ "$ours" = "$mismatches" ] || fail "mismatch_cnt: ours $ours, md's $mismatches"
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
