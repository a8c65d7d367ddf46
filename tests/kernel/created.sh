#!/bin/bash
# mdadm's create options: the same arguments for mdadm with the real driver, and for `mdspace mdadm`. What --examine and
# --examine-bitmap print of each member is compared.
#
#   created.sh MDSPACE [SCENE...]
#
# The driver assembles what mdspace made, without force, and writes its own superblocks over it, before the lines are
# compared. Left out are times, event counts, checksums, random uuids, and the device numbers in metadata 0.90, which the
# driver itself writes only where there is redundancy. All arguments, or the scenes of these numbers.
# Runs in a guest (tests/kernel/init.sh).
set -euo pipefail
mdspace=$1
shift
. "$(dirname "$0")/common.sh"
modprobe raid0
modprobe linear

MEMBER_BYTES=$((24 << 20))
export XDG_RUNTIME_DIR=$SCRATCH
scene=
where() { echo "$scene"; }
evidence() { cat said "$SCRATCH"/mdspace/*.log || :; }

UUID=01020304:05060708:090a0b0c:0d0e0f10

# told: what is compared of each member. Random uuids are left out; $UUID is not random.
told() {
    local member
    for member in "${present[@]}"; do
        mdadm --examine "$member"
        mdadm --examine-bitmap "$member" 2>/dev/null || :
    done | sed -E 's/^(this| +[0-9]+) +([0-9]+) +[0-9]+ +[0-9]+ +([0-9]+ +[a-z -]*).*/\1 \2 \3/; s/ +$//' | sed "/Update Time\|Creation Time\|Device UUID\|Events\|Checksum/d; /UUID :/{/$UUID/!d}"
}

# taken_by_md: without force, with every slot current. The driver rounds some sizes when it assembles.
taken_by_md() {
    flushed
    assemble "${present[@]}"
    [ ! -e $md/sync_action ] || finished
    [ ! -e $md/degraded ] || is $md/degraded 0 || fail "md does not take all members"
    stop_md
    flushed
}

# Whether scene $number is wanted.
wanted=" $* " number=0 tried=0
is_wanted() { [ "$wanted" = "  " ] || [[ $wanted = *" $number "* ]]; }

# try COUNT ARGUMENT...: an array of so many devices, for which FIRST, SECOND and OTHERS stand.
try() {
    number=$((number + 1)) scene="${*:2}"
    is_wanted || return 0
    local words=() word
    blank "$1"
    for word in "${@:2}"; do
        case $word in
        FIRST) words+=("${members[0]}") ;;
        SECOND) words+=("${members[1]}") ;;
        OTHERS) words+=("${members[@]:2}") ;;
        *) words+=("$word") ;;
        esac
    done
    present=("${members[@]}")
    mdadm --create /dev/md0 --quiet --run --homehost=nas "${words[@]}" 2>said || fail "mdadm does not create it: $(<said)"
    [ ! -e $md/sync_action ] || finished
    stop_md
    taken_by_md
    told >theirs
    losetup -D
    blank "$1"
    "$mdspace" mdadm --create /dev/md0 --quiet --run --homehost=nas "${words[@]}" 2>said || fail "not created: $(<said)"
    "$mdspace" mdadm --stop --quiet /dev/md0 2>said || fail "not stopped: $(<said)"
    until_true released
    taken_by_md
    told >ours
    diff theirs ours || fail "other lines"
    tried=$((tried + 1))
}

three=(FIRST SECOND OTHERS)
try 3 -l5 -n3 -c64 --assume-clean --size=10000 "${three[@]}"
try 2 -l1 -n2 --assume-clean --size=10001 FIRST SECOND
try 3 -l5 -n3 -c64 --assume-clean -e1.0 -z10000K --uuid=$UUID "${three[@]}"
try 4 -l10 -n4 -c64 --assume-clean -b internal -z 8M -u $UUID "${three[@]}"
try 2 -l1 -n2 --assume-clean --failfast FIRST --write-mostly SECOND
try 3 -l1 -n2 -x1 --assume-clean -e0.90 -u $UUID "${three[@]}"
try 2 -l linear -n2 -e0.90 FIRST SECOND
try 2 -l1 -n2 --assume-clean -e0.90 -b internal --bitmap-chunk=64K FIRST SECOND
try 3 -l4 -n3 -c64 --assume-clean -e0.90 -z 10000 "${three[@]}"
try 4 -l5 -n4 -c64 --assume-clean -e0.90 -b internal "${three[@]}"
try 4 -l6 -n4 -c64 -p ra --assume-clean -e0.90 "${three[@]}"
try 3 -l10 -n3 -c64 -p f2 --assume-clean -e0.90 "${three[@]}"
# Without --assume-clean: mdspace leaves a resync, which md ends.
try 2 -l1 -n2 FIRST SECOND
try 3 -l5 -n3 -c64 --force -b internal "${three[@]}"
try 4 -l6 -n4 -c64 -e0.90 "${three[@]}"
echo "$tried arrays have the same superblocks and bitmaps, by mdadm's arguments to both sides"
