#!/bin/bash
# Arrays with checksums of mdspace's own, given to the real driver and taken back: healthy, degraded, written to and after
# a crash. What the driver wrote is unknown then, and nothing is called wrong; what rots meanwhile is noticed.
#
#   checksums.sh MDSPACE
#
# Runs in a guest (tests/kernel/init.sh).
set -euo pipefail
mdspace=$1
. "$(dirname "$0")/common.sh"
modprobe nbd
MEMBER_BYTES=$((24 << 20))

where() { echo "$what"; }
evidence() { "$mdspace" examine "${members[@]}"; }

# current COUNT: on so many members nobody has written without checksums.
current() {
    until_true released
    "$mdspace" examine "${members[@]}" >examined || fail "not examined"
    [[ "$(<examined)"$'\n' = *"checksums: on ${#members[@]} members, current on $1"$'\n'* ]] || fail "not current on $1"
}

# put AT: a MiB through mdspace, noted in `model` as well.
put() {
    until_true released
    hand noise mib 0 $((1 << 20))
    "$mdspace" write "${members[@]}" --offset "$1" <mib || fail "not written"
    hand copy mib 0 model "$1" -1
}

# right MEMBER...: mdspace reads the model's bytes from them.
right() {
    until_true released
    rm -f found
    "$mdspace" read "$@" --length $((4 << 20)) -o found --overwrite || fail "not read"
    cmp model found || fail "other bytes for mdspace"
}

found_well() {
    checked
    cmp -n $((4 << 20)) model /dev/md0 || fail "other bytes for md"
}

stopped() {
    stop_md
    until_true released
}

# rotten: blocks of the second member's data change behind everybody's back; every read is right all the same.
rotten() {
    local at rotten=$((32 << 12))
    until_true released
    at=$(($(superblock_number "${members[1]}" "Data Offset") * 512))
    hand copy m1 "$at" kept 0 $rotten
    hand noise m1 "$at" $rotten
    right "${members[@]}"
    hand copy kept 0 m1 "$at" $rotten
}

made_here() {
    what="level $1, metadata $2, bitmap $3"
    local chunk=()
    [ "$1" = 1 ] || chunk=(--chunk 64K)
    blank 4
    "$mdspace" create --level "$1" --metadata "$2" --bitmap "$3" "${chunk[@]}" --integrity "${members[@]}" >/dev/null
    zeros model 4M
}

# By md, with less than all of each member in use, and too little room before it.
made_behind() {
    what="level $1, bitmap $3, checksums behind the data"
    local chunk=()
    [ "$1" = 1 ] || chunk=(--chunk=64)
    blank 4
    mdadm --create /dev/md0 --quiet --run --metadata="$2" --level="$1" "${chunk[@]}" --bitmap="$3" --raid-devices=4 \
        --data-offset=32K --size=20480 --assume-clean "${members[@]}"
    stopped
    serve "${members[@]}"
    "$mdspace" set integrity=on --control control.socket >/dev/null || fail "not added"
    stop_serving
    zeros model 4M
}

# MADE LEVEL METADATA BITMAP
taken_and_given_back() {
    local without
    "$@"
    put 0
    mdadm --examine "${members[@]}" >/dev/null || fail "mdadm does not examine them"
    current 4
    rotten

    # Looked at by md, nothing written.
    mdadm --assemble --quiet --readonly /dev/md0 "${members[@]}" || fail "not assembled"
    cmp -n $((4 << 20)) model /dev/md0 || fail "other bytes for md"
    stopped
    current 4

    # Written to by md, which leaves events as they were where it can.
    assemble_and_finish "${members[@]}"
    is $md/degraded 0 || fail "degraded"
    put_mib $((1 << 20)) /dev/md0
    found_well
    stopped
    current 0
    right "${members[@]}"

    # Ours again: what is written is known, the rest is not.
    put $((2 << 20))
    put 0
    current 4
    rotten
    right "${members[@]}"

    # Degraded in md's hands, and written to.
    without=("${members[@]:0:3}")
    assemble_and_finish "${without[@]}"
    put_mib $((3 << 20)) /dev/md0
    cmp -n $((4 << 20)) model /dev/md0 || fail "other bytes for md"
    stopped
    right "${without[@]}"
}

# killed_while_written_to LEVEL [NUMBER]: having lost that member, if one is named.
killed_while_written_to() {
    local chunk=(--chunk 64K) writer
    [ "$1" != 1 ] || chunk=()
    blank 4
    "$mdspace" create --level "$1" "${chunk[@]}" --bitmap internal --bitmap-chunk 64K --integrity "${members[@]}" >/dev/null
    zeros model 4M
    put 0
    serve_as_nbd0 "${members[@]}"
    [ $# = 1 ] || "$mdspace" fail "${members[$2]}" --control control.socket >/dev/null || fail "it is not let go"
    perl -MFcntl=:DEFAULT,:seek -e 'sysopen(my $f, "/dev/nbd0", O_WRONLY | O_SYNC) or die; my $b = "x" x 20480;
        for (my $i = 0; $i < 100000; $i++) { sysseek($f, (4 << 20) + $i % 16 * 65536, SEEK_SET); syswrite($f, $b) or exit;
            if ($i == 50) { open(my $o, ">", "under_way") } }' &
    writer=$!
    until_true test -e under_way
    kill_nbd0
    wait $writer || true
    rm under_way
}

# Killed in the middle of writes: md resyncs, and takes what it finds.
crashed() {
    what="level $1: crashed"
    killed_while_written_to "$1"
    right "${members[@]}"
    assemble_and_finish "${members[@]}"
    found_well
    stopped
    right "${members[@]}"
    put 0 # what was near the writes is unknown until it is written
    rotten
}

# The same with a member missing: dirty, degraded and with parity, it is started by nobody who is not told to; md is then
# where nothing was being written as right as ever, and what it recovers agrees.
crashed_and_degraded() {
    what="level $1: crashed without a member"
    killed_while_written_to "$1" 3
    local rest=("${members[@]:0:3}") refused=0 state
    mdadm --assemble --run --quiet /dev/md0 "${rest[@]}" 2>refusal && fail "md starts it"
    state=$(cat $md/array_state 2>/dev/null) || state=gone # what was refused may be taken away just now
    [[ ${state:-gone} = @(inactive|clear|gone) ]] || fail "md has started it: $state"
    mdadm --stop --quiet /dev/md0 2>refusal || true
    until_true released
    "$mdspace" write "${rest[@]}" --offset 0 <mib >refusal 2>&1 || refused=$?
    ((refused > 0)) && grep -q -- --force refusal || fail "status $refused, not refused by us: $(<refusal)"
    mdadm --assemble --run --force --quiet /dev/md0 "${rest[@]}" 2>said || fail "not with --force either: $(<said)"
    allow_writes
    is $md/degraded 1 || fail "$(<$md/degraded) are missing, not one"
    cmp -n $((4 << 20)) model /dev/md0 || fail "other bytes for md"
    mdadm --zero-superblock "${members[3]}"
    mdadm --add --quiet /dev/md0 "${members[3]}"
    recovered
    sweep repair # what was being written
    found_well
    stopped
    right "${members[@]}"
}

# Added to an array that md made.
added() {
    what="added to an array of md's, level $1"
    blank 4
    mdadm --create /dev/md0 --quiet --run --level="$1" --raid-devices=4 --data-offset=4M --assume-clean "${members[@]}"
    zeros model 4M
    put_mib 0 /dev/md0
    cmp -n $((1 << 20)) model /dev/md0
    dd if=/dev/zero of=/dev/md0 bs=1M seek=1 count=3 oflag=direct status=none
    stopped
    serve "${members[@]}"
    "$mdspace" set integrity=on --control control.socket >/dev/null || fail "not added"
    stop_serving
    put 0
    current 4
    rotten
    assemble_and_finish "${members[@]}"
    found_well
    stopped
}

# What md takes for itself is no place for them any more.
grown_over() {
    made_behind "$@"
    what="$what, and grown over them"
    local old
    put 0
    current 4
    assemble_and_finish "${members[@]}"
    old=$(blockdev --getsize64 /dev/md0)
    mdadm --grow --quiet /dev/md0 --size=max || fail "md does not grow it"
    finished
    dd if=/dev/urandom of=/dev/md0 bs=1M oflag=direct,seek_bytes seek="$old" status=none 2>/dev/null || true
    found_well
    dd if=/dev/md0 of=whole bs=1M status=none
    stopped
    "$mdspace" examine "${members[@]}" | grep checksums && fail "they are believed"
    "$mdspace" read "${members[@]}" | cmp - whole || fail "other bytes"
    put 0
    "$mdspace" scrub "${members[@]}" >/dev/null || fail "not all agrees"
    assemble_and_finish "${members[@]}"
    found_well
    cmp -i "$old:$old" whole /dev/md0 || fail "other bytes in what is new"
    stopped
}

# md's array, whose members are used whole: made smaller here by the command that the refusal names.
made_room_for() {
    what="room made in an array of md's, level $1"
    local chunk=() command
    [ "$1" = 1 ] || chunk=(--chunk=64)
    blank 4
    mdadm --create /dev/md0 --quiet --run --level="$1" "${chunk[@]}" --raid-devices=4 --data-offset=32K --bitmap=none \
        --assume-clean "${members[@]}"
    zeros model 4M
    dd if=model of=/dev/md0 bs=1M oflag=direct status=none
    put_mib $((1 << 20)) /dev/md0
    sweep repair
    stopped
    serve "${members[@]}"
    "$mdspace" set integrity=on --control control.socket >refused 2>&1 && fail "there was room"
    stop_serving
    command=$(sed -n 's/.*`mdspace \(grow [^`]*\)`.*/\1/p' refused)
    [ -n "$command" ] || fail "said: $(<refused)"
    until_true released
    # shellcheck disable=SC2086 # its words
    "$mdspace" $command >grown 2>&1 || fail "$command: $(<grown)"
    serve "${members[@]}"
    "$mdspace" set integrity=on --control control.socket >/dev/null || fail "not added"
    stop_serving
    put 0
    current 4
    rotten
    assemble_and_finish "${members[@]}"
    found_well
    stopped
}

for metadata in 1.1 1.2; do taken_and_given_back made_here 5 $metadata none; done
taken_and_given_back made_here 1 1.2 internal
taken_and_given_back made_here 4 1.2 none
taken_and_given_back made_here 6 1.2 internal
taken_and_given_back made_here 10 1.2 none
taken_and_given_back made_behind 5 1.1 none
taken_and_given_back made_behind 1 1.2 internal
for level in 1 4 5 6 10; do crashed $level; done
crashed_and_degraded 6
added 5
added 1
grown_over 5 1.2 none
grown_over 1 1.2 none
made_room_for 6
made_room_for 1
losetup --detach-all
echo "arrays with checksums used by md and mdspace in turn: nothing is called wrong that is right, and no rot is read"
