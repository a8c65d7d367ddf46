#!/bin/bash
# How fast the real driver resyncs, recovers and checks an idle array, in the same minute and on the same machine as
# `mdspace bench`.
#
#   sweeps.sh LEVEL MEMBERS CHUNK_KIB MEMBER_MIB
#
# Prints `resync`, `recover` and `check`, each with bytes of each member and seconds. Members are RAM disks.
set -euo pipefail
level=$1 count=$2 chunk=$3 mib=$4
modprobe brd rd_nr="$count" rd_size=$((mib * 1024))
modprobe raid456
echo 10000000 >/proc/sys/dev/raid/speed_limit_min
echo 10000000 >/proc/sys/dev/raid/speed_limit_max

members=()
for ((number = 0; number < count; number++)); do
    dd if=/dev/zero of=/dev/ram$number bs=1M status=none 2>/dev/null || true # until it is full: every page is there
    members+=(/dev/ram$number)
done

md=/sys/block/md0/md
# A recovery that is about to begin looks idle.
is_over() { # WORD
    if [ "$1" = recover ]; then [ "$(cat $md/degraded)" = 0 ]; else [ "$(cat $md/sync_action)" = idle ]; fi
}

# The time from COMMAND, which begins a sweep, to its end.
sweep() { # WORD COMMAND...
    local word=$1 start end
    shift
    start=$EPOCHREALTIME
    "$@"
    until is_over "$word"; do sleep 0.01; done
    end=$EPOCHREALTIME
    echo "$word $(($(cat $md/component_size) * 1024)) $(awk "BEGIN { print $end - $start }")"
}

create() { # MORE...
    mdadm --create /dev/md0 --quiet --run --level="$level" --chunk="$chunk" --raid-devices="$count" --bitmap=none \
        "$@" "${members[@]}"
}

check() { echo check >$md/sync_action; }
replace() {
    echo frozen >$md/sync_action
    mdadm --quiet /dev/md0 --fail "${members[0]}" --remove "${members[0]}"
    mdadm --quiet --zero-superblock "${members[0]}"
    mdadm --quiet /dev/md0 --add "${members[0]}"
}
thaw() { echo idle >$md/sync_action; }

# --force makes a resync of the whole array, instead of recovering its last member.
sweep resync create --force
sweep check check
replace
sweep recover thaw
mdadm --stop --quiet /dev/md0
