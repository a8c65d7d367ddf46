#!/bin/bash
# What the scripts share that put mdspace beside the real driver: members, both sides, and waiting for what they do.
#
#   . "$(dirname "$0")/common.sh"        after `set -euo pipefail`, in a guest (tests/kernel/init.sh)
#
# It never says what should come out of a scene: that is each script's own. It never goes on where something has failed,
# but ends the script by `fail`; never waits for a fixed time; and writes no file outside $SCRATCH.
#
# A script that sources it defines two functions for `fail`, and sets $mdspace, the command, and MEMBER_BYTES:
#   where       prints what is being tried
#   evidence    prints what helps to see why it failed
export MDADM_NO_UDEV=1 # a guest has none that could answer
modprobe loop max_loop=8
for module in raid1 raid10 raid456; do modprobe $module; done
md=/sys/block/md0/md
cd "$SCRATCH"
. "${BASH_SOURCE[0]%/*}/hand.sh"
. "${BASH_SOURCE[0]%/*}/until.sh"
url="nbd+unix:///?socket=$PWD/nbd.socket" # of what `serve` has started
# How many of them an array of each level usually has.
declare -A MEMBERS=([1]=2 [4]=4 [5]=4 [6]=5 [10]=4)

fail() {
    echo "FAILED: $(where): $*"
    cat /proc/mdstat
    evidence || true
    dmesg | tail -n 15
    exit 1
}

set -E # functions as well
trap 'echo "line $LINENO: $BASH_COMMAND: status $?: ${told-}" >&2' ERR # `set -e` ends a script without a word

is() { [ "$(<"$1")" = "$2" ]; }

# cmp ARGUMENT...: as ever. Itself it reads a page at a time, for which a guest takes four times as long as for more at a
# time: so it is asked only where files differ, or are not two, or it is to leave out something.
cmp() {
    local bytes=-1
    [ $# != 4 ] || [ "$1" != -n ] || bytes=$2
    if [[ $# = [23] || $bytes != -1 ]] && [[ " $* " != *" - "* ]] && hand alike "${@: -2}" "$bytes"; then return 0; fi
    command cmp "$@"
}

# ---------------------------------------------------------------- members

# blank COUNT: `members` are so many loop devices, over the new files m0, m1, ...
blank() {
    hand blank "$1" "$MEMBER_BYTES" || fail "no loop devices: $told"
    read -ra members <<<"$told"
}

# The members are free again: the kernel takes an io_uring apart some time after its process has ended.
released() { hand released "${members[@]}"; }
flushed() { hand flush "${members[@]}" || fail "not flushed: $told"; } # what the kernel has cached of them

# superblock_number MEMBER NAME: that number in a superblock, as mdadm prints it.
superblock_number() { mdadm --examine "$1" | sed -n "s/^ *$2 : \([0-9]*\).*/\1/p"; }

# bitmap_field PLACE NAME: what mdadm says of the bitmap that is there, on stable storage.
bitmap_field() { mdadm --examine-bitmap "$1" | sed -n "s/^ *$2 : //p"; }
all_bits() { bitmap_field "$1" Bitmap | sed 's/ bits.*//'; }
dirty_bits() { bitmap_field "$1" Bitmap | sed 's/.* \([0-9]*\) dirty.*/\1/'; }

# device_statistic DEVICE NUMBER, counted from 0.
device_statistic() {
    local fields
    read -ra fields <"/sys/block/${1#/dev/}/stat"
    echo "${fields[$2]}"
}
sectors_read() { device_statistic "$1" 2; }
sectors_written() { device_statistic "$1" 6; }

# ---------------------------------------------------------------- the real driver: /dev/md0

# create_by_md CHUNK_KIB ARGUMENT...: of $level with $count members, all taken for in sync.
create_by_md() {
    local chunk=(--chunk="$1")
    [ "$level" != 1 ] || chunk=()
    mdadm --create /dev/md0 --quiet --run --metadata=1.2 --level="$level" "${chunk[@]}" --raid-devices="$count" \
        --assume-clean "${@:2}"
}
fill() { hand copy pool $((${1:-0} << 20)) /dev/md0 0 -1 sync fits || fail "not filled: $told"; } # from that MiB of the pool on, until either is at its end
take_model() { # of all of it
    : >model
    hand copy "${1:-/dev/md0}" 0 model 0 -1 || fail "not read: $told"
}

# zeros FILE BYTES: so many.
zeros() {
    rm -f "$1"
    truncate -s "$2" "$1"
}

# put_mib AT DEVICE: a new one, noted in `model` as well.
put_mib() {
    hand noise mib 0 $((1 << 20)) && hand copy mib 0 "$2" "$1" -1 direct || fail "not written: $told"
    hand copy mib 0 model "$1" -1
}

# An array that was assembled is left alone until it is written to: no resync begins, nor a recovery.
allow_writes() { ! is $md/array_state read-auto || mdadm --readwrite --quiet /dev/md0; }
# assemble MEMBER...: never with --force.
assemble() {
    mdadm --assemble --quiet --run /dev/md0 "$@" || fail "md does not assemble them"
    allow_writes
}
assemble_and_finish() {
    assemble "$@"
    finished
}
stop_md() { mdadm --stop --quiet /dev/md0; }

finished() { until_true is $md/sync_action idle; } # with whatever md is at
recovered() {
    until_true is $md/degraded 0
    finished
}
sweep() { # check or repair
    echo "$1" >$md/sync_action
    finished
}
# checked [WHEN]: md's check finds nothing.
checked() {
    sweep check
    is $md/mismatch_cnt 0 || fail "${1:+$1: }mismatch_cnt is $(<$md/mismatch_cnt)"
}
# found_whole MEMBER...: md assembles them with every slot current and nothing amiss; the array's bytes are the model's.
found_whole() {
    assemble "$@"
    is $md/degraded 0 || fail "md finds slots that are not current"
    finished
    checked
    cmp model /dev/md0 || fail "the array's bytes are others"
}

# ---------------------------------------------------------------- our server

# said EXPRESSION: its value is in $told, where the names are those of `mdspace status --json`, and member(NAME), or SLOT.
said() { hand said "$1"; }
says() { said "$1" && [ "$told" = True ]; }
# What the server says, for `evidence`.
status() { hand status && echo "$told"; }

# serve ARGUMENT...: in the background, until it answers.
serve() {
    flushed
    "$mdspace" serve "$@" --nbd "unix:$PWD/nbd.socket" --control control.socket >serve.log 2>&1 &
    server=$!
    until_true answers
}
answers() {
    kill -0 $server 2>/dev/null || fail "the server ended: $(<serve.log)"
    hand status
}
stop_serving() {
    "$mdspace" stop --control control.socket >/dev/null || fail "the server does not stop"
    wait $server || fail "the server did not end well: $(<serve.log)"
    flushed
}

kill_server() {
    kill -KILL $server
    wait $server 2>/dev/null || true
    until_true released
    flushed
}

# The same with /dev/nbd0 connected; it ends by SIGTERM, or by SIGKILL.
serve_as_nbd0() {
    serve "$@"
    until_true takes_clients
    nbd-client -unix "$PWD/nbd.socket" /dev/nbd0 -block-size 4096 >/dev/null
}
takes_clients() { hand greets nbd.socket; }
end_nbd0() {
    nbd-client -d /dev/nbd0 >/dev/null
    kill -TERM $server
    wait $server || fail "the server ended with status $?: $(<serve.log)"
    until_true released
}
kill_nbd0() {
    kill -KILL $server
    nbd0_lost
}
nbd0_lost() { # its server was killed
    wait $server 2>/dev/null || true
    nbd-client -d /dev/nbd0 >/dev/null # what waits for an answer fails
    until_true released
}

# ---------------------------------------------------------------- members that are bad in places

DATA_OFFSET=2048
# Sectors of their data that go bad: a page of a chunk that holds data at every level.
BAD=$((128 + 24)) BAD_COUNT=8

# An array of `members`, full and stopped.
create_full() {
    create_by_md 64 --bitmap=none --data-offset=$((DATA_OFFSET / 2))K "${members[@]}"
    fill
    sweep repair
    take_model
    stop_md
}

# By a member's number: the device under the one, `hurtNUMBER`, by which a member that is covered is reached.
declare -A sound=()

# table KIND NUMBER: of a device over that member. `dust` has sectors that cannot be read until they are written, `error`
# has some that can be neither, `linear` has none.
table() {
    local under=${sound[$2]} from=$((DATA_OFFSET + BAD)) sectors=$((MEMBER_BYTES / 512))
    local to=$((from + BAD_COUNT))
    case $1 in
        linear) echo "0 $sectors linear $under 0" ;;
        dust) echo "0 $sectors dust $under 0 512" ;;
        error)
            echo "0 $from linear $under 0"
            echo "$from $BAD_COUNT error"
            echo "$to $((sectors - to)) linear $under $to"
            ;;
    esac
}
# cover KIND NUMBER...: these members are reached through such devices from now on.
cover() {
    local number
    for number in "${@:2}"; do
        sound[$number]=${members[number]}
        dmsetup create "hurt$number" --noudevsync --table "$(table "$1" "$number")"
        dmsetup mknodes "hurt$number"
        members[number]=/dev/mapper/hurt$number
    done
}
uncover() {
    local number
    for number in "${!sound[@]}"; do
        dmsetup remove --noudevsync "hurt$number"
        members[number]=${sound[$number]}
    done
    sound=()
}
# make_dust_bad NUMBER: a new dust device has no bad sectors yet.
make_dust_bad() {
    local sector from=$((DATA_OFFSET + BAD))
    for ((sector = from; sector < from + BAD_COUNT; sector++)); do dmsetup message "hurt$1" 0 addbadblock $sector; done
    dmsetup message "hurt$1" 0 enable
}
