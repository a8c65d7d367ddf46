#!/bin/bash
# Arrays with a lockless bitmap that mdspace and the real driver take from each other: made by either without a sync, written
# in turn, degraded, and killed.
#
#   lockless.sh MDSPACE MDADM    MDADM: the directory where mdadm and its libraries are unpacked
#
# Runs in a guest (tests/kernel/init.sh) whose kernel has such bitmaps (xtask/src/lockless.rs). What was never written may be
# anything; so only what was is compared. Ends with status 1 at the first that is otherwise.
set -euo pipefail
mdspace=$1 tools=$2
mdadm() {
    "$tools/usr/lib64/ld-linux-x86-64.so.2" --library-path "$tools/usr/lib/x86_64-linux-gnu" "$tools/usr/sbin/mdadm" "$@"
}
. "$(dirname "$0")/common.sh"
scene=
compared=0

where() { echo "$scene"; }
evidence() {
    "$mdspace" examine "${members[@]}" || true
    cat $md/llbitmap/bits notes serve.log 2>/dev/null || true
}

# number MEMBER AT BYTES: a field of the bitmap, which is behind the superblock's page.
number() { od -An -v -t "u$3" -j $((8192 + $2)) -N "$3" "$1" | tr -d ' '; }
# states MEMBER: how many chunks there are in each state, as STATE=COUNT.
states() {
    local chunk sectors
    [ "$(number "$1" 4 4)" = 6 ] || fail "$1 has no lockless bitmap"
    chunk=$(number "$1" 52 4) sectors=$(number "$1" 40 8)
    od -An -v -t u1 -w1 -j $((8192 + 1024)) -N $(((sectors + chunk - 1) / chunk)) "$1" | sort -n | uniq -c |
        while read -r count state; do echo -n "$state=$count "; done
}
# settled: every chunk of every member is clean, or was never written.
settled() {
    local member
    for member in "${members[@]}"; do
        [[ " $(states "$member")" =~ ^(\ [01]=[0-9]+)+\ $ ]] || fail "$member has the states $(states "$member")"
    done
}
counts_are() { [ "$(md_counts "$2")" = "$1" ]; }
# stop_built: once md has built what it named. It names more than is written, and stops without building it.
stop_built() {
    until_true counts_are 0 'need sync'
    until_true counts_are 0 syncing
    finished
    stop_md
}
md_counts() { sed -n "s/^$1 \([0-9]*\)$/\1/p" $md/llbitmap/bits; }

# new COUNT: so many blank members, with noise in them, and nothing written.
new() {
    local member
    blank "$1"
    for member in "${members[@]}"; do hand copy pool $((RANDOM * 4096)) "$member" $((2 << 20)) $((12 << 20)) direct || fail "$told"; done
    written=() lost=()
    rm -f model
}
# put BY AT KIB: at that KiB of the array.
put() {
    local at=$(($2 << 10)) bytes=$(($3 << 10))
    hand noise model $at $bytes
    case $1 in
        md) hand copy model $at /dev/md0 $at $bytes direct || fail "not written: $told" ;;
        ours) hand send model $at $bytes || fail "not written: $told" ;;
    esac
    written+=("$at:$bytes")
}
# holds SOURCE: what was written.
holds() {
    local range
    for range in "${written[@]}"; do
        hand alike model "$1" "${range#*:}" "${range%:*}" "${range%:*}" || fail "$1: ${range#*:} bytes from ${range%:*} on are others"
    done
    ((++compared))
}
# read_without_each: mdspace reads the members as they are, and without each of them, and changes none.
read_without_each() {
    local missing rest before
    for missing in -1 "${!members[@]}"; do
        rest=("${members[@]}")
        [ "$missing" = -1 ] || unset "rest[missing]"
        flushed
        hand digest 0 "${members[@]}"
        before=$told
        "$mdspace" read --output got --overwrite "${rest[@]}" 2>notes || fail "read without $missing: $(<notes)"
        holds got
        hand digest 0 "${members[@]}"
        [ "$before" = "$told" ] || fail "reading has changed a member"
    done
}
ours() { # ours RANGE...: served, written, stopped
    local range
    serve "${members[@]}"
    hand receive got || fail "$told"
    holds got
    for range in "$@"; do put ours "${range%:*}" "${range#*:}"; done
    hand receive got || fail "$told"
    holds got
    stop_serving
    settled
}
theirs() { # theirs RANGE...: taken by md, written; it goes on
    local range
    dmesg --clear
    assemble "${members[@]}"
    is $md/degraded 0 || fail "degraded"
    finished
    if dmesg | grep -q 'resync of RAID'; then fail "md resyncs"; fi
    [ "$(md_counts 'need sync')" = 0 ] || fail "md finds chunks to sync"
    holds /dev/md0
    for range in "$@"; do put md "${range%:*}" "${range#*:}"; done
    finished
    holds /dev/md0
}

# made_by_md LEVEL COUNT: md makes it without a sync, and mdspace goes on.
made_by_md() {
    scene="level $1, made by md"
    new "$2"
    mdadm --create /dev/md0 --quiet --run --level="$1" --raid-devices="$2" $([ "$1" = 1 ] || echo --chunk=64) --bitmap=lockless \
        --data-offset=2M "${members[@]}" 2>notes
    finished
    [ "$(md_counts clean)" = 0 ] || fail "md has written something"
    put md 1024 4
    put md 4096 256
    put md 8999 2
    stop_built
    read_without_each
    ours 1028:4 2048:64 6000:700 8990:8 12287:1
    read_without_each
    theirs 3000:4 5000:40
    mdadm --quiet /dev/md0 --fail "${members[1]}" --remove "${members[1]}"
    put md 7000 100
    hand copy pool 0 "${members[1]}" 0 $((12 << 20)) direct
    mdadm --quiet /dev/md0 --add "${members[1]}"
    recovered
    holds /dev/md0
    stop_built
    read_without_each
}

# made_by_us LEVEL COUNT: the other way round. Where mdspace has written, md's check finds nothing.
made_by_us() {
    scene="level $1, made by mdspace"
    new "$2"
    "$mdspace" create --level "$1" $([ "$1" = 1 ] || echo --chunk 64K) --bitmap lockless --force "${members[@]}" >notes
    [[ "$(states "${members[0]}")" =~ ^0=[0-9]+\ $ ]] || fail "it begins with $(states "${members[0]}")"
    ours 0:4 100:1000 9000:12
    read_without_each
    theirs
    checked
    put md 2000 8
    put md 2500 300
    stop_built
    read_without_each
    serve "${members[@]}"
    "$mdspace" fail "${members[0]}" --control control.socket >/dev/null || fail "not failed"
    "$mdspace" remove "${members[0]}" --control control.socket >/dev/null || fail "not removed"
    put ours 10000 20
    put ours 2001 1
    hand receive got && holds got
    hand copy pool 0 "${members[0]}" 0 $((12 << 20)) direct
    "$mdspace" add --force "${members[0]}" --control control.socket >/dev/null || fail "not added"
    until_true says "missing == [] and sweep is None"
    hand receive got && holds got
    stop_serving
    settled
    read_without_each
    theirs 11000:4
    stop_md
}

# killed LEVEL COUNT: what mdspace leaves when it is killed, md resyncs: the named chunks alone.
killed() {
    scene="level $1, mdspace killed"
    new "$2"
    "$mdspace" create --level "$1" $([ "$1" = 1 ] || echo --chunk 64K) --bitmap lockless --force "${members[@]}" >notes
    ours 0:64 5000:500
    serve "${members[@]}"
    put ours 5100 20
    put ours 8000 4
    kill_server
    local named
    named=$(states "${members[0]}")
    [[ " $named" =~ \ [23]= ]] || fail "no chunk is named: $named"
    assemble_and_finish "${members[@]}"
    holds /dev/md0
    until_true counts_are 0 'need sync'
    # md calls all chunks in a block of states dirty once one is. It builds them where there is parity; copies it leaves.
    [[ $1 = 1* ]] || checked
    put md 9000 4
    # What md leaves when power goes: copies of the members while it is active.
    scene="level $1, md interrupted"
    echo 1000 >$md/safe_mode_delay
    put md 5200 4
    put md 10000 4
    local number copies=()
    for number in "${!members[@]}"; do
        hand copy "${members[number]}" 0 "now$number" 0 -1 afresh || fail "$told"
        copies+=("now$number")
    done
    stop_md
    hand attach "${copies[@]}"
    read -ra members <<<"$told"
    named=$(states "${members[0]}")
    [[ " $named" =~ \ [234]= ]] || fail "no chunk is named: $named"
    serve "${members[@]}"
    until_true says "in_agreement and sweep is None"
    hand receive got && holds got
    stop_serving
    settled
    read_without_each
    theirs
    stop_md
}

# large: mdadm puts the bad-block log where the states of a larger bitmap go on; mdspace gives up the log.
large() {
    scene="a bitmap that goes on where the bad-block log is"
    MEMBER_BYTES=$((200 << 20))
    new 2
    mdadm --create /dev/md0 --quiet --run --level=1 --raid-devices=2 --bitmap=lockless "${members[@]}" 2>notes
    put md $((180 << 10)) 64
    stop_built
    read_without_each
    ours $((181 << 10)):64 0:4
    if mdadm --examine "${members[0]}" | grep -q 'Bad Block Log'; then fail "its superblock still names the log"; fi
    theirs
    stop_md
    MEMBER_BYTES=$((16 << 20))
}

MEMBER_BYTES=$((16 << 20))
head -c $((144 << 20)) /dev/urandom >pool
RANDOM=27
for level in 1:2 4:3 5:3 6:4 10:4; do
    made_by_md "${level%:*}" "${level#*:}"
    made_by_us "${level%:*}" "${level#*:}"
    killed "${level%:*}" "${level#*:}"
done
large
echo "arrays of 5 levels with lockless bitmaps go from mdspace to md and back; what was written is right in $compared looks"
