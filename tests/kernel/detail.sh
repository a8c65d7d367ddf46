#!/bin/bash
# mdadm's words for a running array: the same members under the real driver, with mdadm, and served by `mdspace mdadm`. The
# lines of --detail, its --export and --brief, of --query and of /proc/mdstat are compared.
#
#   detail.sh MDSPACE [SCENE...]
#
# Every level, metadata 0.90, 1.0 and 1.2, with a bitmap, with a spare, and with a member missing; or the scenes of these
# numbers. Left out are times and event counts, as the two sides write superblocks at other moments; how many pages of
# counters the driver has in memory; and the hash of the host's name in a uuid of 0.90. Runs in a guest
# (tests/kernel/init.sh).
set -euo pipefail
mdspace=$1
shift
. "$(dirname "$0")/common.sh"
modprobe raid0
modprobe linear

MEMBER_BYTES=$((8 << 20))
export XDG_RUNTIME_DIR=$SCRATCH
scene=
where() { echo "$scene"; }
evidence() { cat "$SCRATCH"/mdspace/*.log; }

# said_by PROGRAM...: all that is compared, of /dev/md0.
said_by() {
    "$@" --detail --homehost=nas /dev/md0 | sed '/Update Time\|Events/d; /UUID/s/ (local to host nas)//'
    "$@" --detail --export /dev/md0 | sort
    "$@" --detail --brief --verbose /dev/md0
    "$@" --query /dev/md0
}
# The lines of the one array in /proc/mdstat.
lines() { sed -n 's/bitmap: .*pages \[.*\]/bitmap: pages/;/^md0 :/,/^$/p;/^unused/p' "$1"; }

# Whether scene $number is wanted.
wanted=" $* " number=0 tried=0
is_wanted() { [ "$wanted" = "  " ] || [[ $wanted = *" $number "* ]]; }

# try NAME COUNT ARGUMENT...: an array of so many devices, made by mdadm; $spoil changes it before it is shown.
try() {
    number=$((number + 1)) scene=$1
    is_wanted || return 0
    blank "$2"
    present=("${members[@]}")
    mdadm --create /dev/md0 --quiet --run --homehost=nas "${@:3}" "${members[@]}" 2>/dev/null || fail "not created"
    $spoil
    until_true settled mdadm
    said_by mdadm >theirs
    lines /proc/mdstat >theirs.mdstat
    stop_md
    flushed
    "$mdspace" mdadm --assemble --run /dev/md0 "${present[@]}" 2>said || fail "not assembled: $(<said)"
    until_true settled "$mdspace" mdadm
    said_by "$mdspace" mdadm >ours
    "$mdspace" mdstat >ours.all
    lines ours.all >ours.mdstat
    "$mdspace" mdadm --stop --quiet /dev/md0 || fail "not stopped"
    until_true released
    # mdadm 4.4 leaves the name out.
    grep -q '^ARRAY .* name=' theirs || sed -i '/^ARRAY /s/ name=[^ ]*//' ours
    diff theirs ours || fail "other lines"
    diff theirs.mdstat ours.mdstat || fail "other lines of mdstat"
    tried=$((tried + 1))
}
settled() { ! "$@" --detail /dev/md0 | grep -q 'State : active'; }
spoil=:
fail_one() {
    mdadm --quiet /dev/md0 --fail "${members[1]}" --remove "${members[1]}"
    present=("${members[0]}" "${members[@]:2}")
}

try "linear" 2 --level=linear --raid-devices=2
try "raid0" 2 --level=0 --chunk=64 --raid-devices=2
try "raid1, a bitmap" 2 --level=1 --assume-clean --bitmap=internal --raid-devices=2
try "raid1, metadata 0.90" 2 --level=1 --assume-clean --metadata=0.90 --raid-devices=2
try "raid4, metadata 1.0" 3 --level=4 --chunk=64 --assume-clean --metadata=1.0 --raid-devices=3
try "raid5" 3 --level=5 --chunk=64 --assume-clean --raid-devices=3
try "raid5, a spare" 4 --level=5 --chunk=64 --assume-clean --raid-devices=3 --spare-devices=1
try "raid6" 4 --level=6 --chunk=64 --assume-clean --layout=ra --raid-devices=4
try "raid10" 4 --level=10 --chunk=64 --assume-clean --raid-devices=4
try "raid10, far" 3 --level=10 --chunk=64 --assume-clean --layout=f2 --raid-devices=3
spoil=fail_one
try "raid1, a member missing" 2 --level=1 --assume-clean --raid-devices=2
try "raid6, a member missing" 4 --level=6 --chunk=64 --assume-clean --bitmap=internal --raid-devices=4
echo "$tried arrays have the same lines in mdadm's --detail and in /proc/mdstat, by both sides"
