#!/bin/bash
# Reshapes that write over data in place, stopped halfway: what mdspace reads with mdadm's backup of the critical section, and
# what mdadm and the driver make of the same members and the same backup.
#
#   in_place.sh MDSPACE [PART]...    PART: chunk, layout, level, spare, early; all without one
#
# Runs in a guest (tests/kernel/init.sh). The members are copied while the driver is inside of the critical section, and what
# it may have been writing there is overwritten with noise. Of mdspace is demanded that it reads the bytes from before the
# reshape, with any member missing that the level can do without; that it returns no byte of the critical section without the
# backup; and that it changes nothing. Then mdadm restores the backup, and the driver ends the reshape: the same bytes.
#
# Since 4.2 mdadm lets the driver run before it makes the first backup, which may then be wrong. So `max` in `sync_max` is
# kept from the driver at first, as older mdadm never wrote it, except in the part `early`: there mdspace may refuse, but
# must not read other bytes. Ends with status 1 at the first that is otherwise.
set -euo pipefail
mdspace=$1
[ $# != 1 ] || set -- "$1" chunk layout level spare early
. "$(dirname "$0")/common.sh"

MEMBER_BYTES=$((14 << 20)) # a part of the backup is two of the steps in which the driver heeds its speed
head -c $((40 << 20)) /dev/urandom >pool
scene=
tried=0 forced=0 torn=0 refused=0

where() { echo "$scene"; }
evidence() {
    cat notes
    "$mdspace" examine now? || true
}

# look: `progress` is how far md is on each member, in KiB, and what its superblocks say of that.
look() {
    local line position
    line=$(</proc/mdstat)
    [[ $line =~ reshape\ =.*\(([0-9]+)/ ]] || return 1
    position=$(<$md/reshape_position)
    progress=("${BASH_REMATCH[1]}" "$position")
}
has_come() { look && [ "${progress[0]}" -ge "$1" ]; }
# begin GROW-ARGUMENTS: the driver waits at the start until mdadm has made its first backup.
begin() {
    : >held
    echo 0 >$md/sync_max
    mount --bind held $md/sync_max
    mdadm --grow --quiet /dev/md0 "$@" >notes 2>&1 || fail "$(<notes)"
    until_true allowed
    echo 1 >$md/sync_speed_min # mdadm has set a high one
    umount $md/sync_max
    echo "$(<held)" >$md/sync_max
}
allowed() { # mdadm has said how far the driver may go, by a number that is not 0
    local line
    read -r line <held || true
    [[ $line =~ ^[1-9][0-9]*$ ]]
}
pace() { echo "$1" >$md/sync_speed_max; }
is_done() { is $md/reshape_position none; }

# copied: the members and the backup at one time, as `nowN` and `saved`: md waits between two steps meanwhile.
copied() {
    local before number
    look || return 1
    before="${progress[*]}"
    rm -f now? saved
    [ ! -e backup ] || hand copy backup 0 saved 0 -1 || fail "$told"
    for number in "${!members[@]}"; do hand copy "${members[number]}" 0 "now$number" 0 -1 afresh || fail "$told"; done
    look && [ "$before" = "${progress[*]}" ]
}

# section: the bytes of the critical section, `from` and `to`, as the warnings name them.
section() {
    local line
    from= to=
    while read -r line; do
        [[ $line =~ "in place".*"bytes "([0-9]+)" to "([0-9]+) ]] || continue
        [ -n "$from" ] && [ "$from" -le "${BASH_REMATCH[1]}" ] || from=${BASH_REMATCH[1]}
        [ -n "$to" ] && [ "$to" -ge "${BASH_REMATCH[2]}" ] || to=${BASH_REMATCH[2]}
    done <notes
    [ -n "$from" ] && [ "$from" -lt "$to" ]
}

# read_here ARGUMENT...: by `here` and the backup, if it is in a file.
read_here() {
    local backup=()
    [ ! -e saved ] || backup=(--backup-file saved)
    "$mdspace" read "${backup[@]}" --output got --overwrite "$@" "${here[@]}" 2>notes
}

# is_unproven: mdspace has refused, as nothing shows that the backup was made in time.
is_unproven() { grep --quiet "begin a reshape before its first backup" notes; }

# reads MISSING: with the backup, all is the model. Where the driver has not finished the first stripe since the backup was
# made, that takes --force.
reads() {
    local number
    here=()
    for number in "${!members[@]}"; do [ "$number" = "$1" ] || here+=("now$number"); done
    if ! read_here; then
        is_unproven || fail "read without $1: $(<notes)"
        read_here --force || fail "read --force without $1: $(<notes)"
        ((++forced))
    fi
    cmp -n "$array_bytes" model got || fail "other bytes without $1"
    ((++tried))
}

# doubts: without the backup, the section is an error, and the rest is the model.
doubts() {
    local from to status=0
    "$mdspace" read --output got --overwrite "${here[@]}" 2>notes || status=$?
    [ $status = 1 ] || fail "status $status without the backup: $(<notes)"
    section || fail "no bytes named: $(<notes)"
    [ "$from" -le "$1" ] && [ "$to" -ge "$2" ] || fail "$from to $to are named, but it is $1 to $2"
    "$mdspace" read --offset "$from" --length 1 --output got --overwrite "${here[@]}" 2>notes && fail "byte $from is read"
    [ "$from" = 0 ] || part_is_right 0 "$from"
    [ "$to" -ge "$array_bytes" ] || part_is_right "$to" $((array_bytes - to))
}
part_is_right() {
    "$mdspace" read --offset "$1" --length "$2" --output got --overwrite "${here[@]}" 2>notes || fail "from $1: $(<notes)"
    hand alike got model "$2" 0 "$1" || fail "other bytes from $1"
}

# tear DATA_CHUNKS: noise where the driver may have been writing, behind what it has ended.
tear() {
    local number at bytes start=$((from / $1)) end=$((to / $1))
    if [ $((progress[0] * 1024)) -gt $start ]; then start=$((progress[0] * 1024)); fi
    [ $start -lt $end ] || return 0
    at=$((data_at * 512 + start)) bytes=$((end - start))
    rm -f noise
    hand noise noise 0 $bytes
    for number in "${!members[@]}"; do hand copy noise 0 "now$number" $at $bytes || fail "$told"; done
}

# judge DATA_CHUNKS: the copies are read; then mdadm goes on with them, if this is the last time.
judge() {
    local missing before from to saved=$scene
    hand digest 0 now? && before=$told
    reads -1
    if section; then
        ((++torn))
        tear "$1"
        hand digest 0 now? && before=$told
        for missing in $(seq -1 $((${#members[@]} - 1))); do
            scene="$saved, $from to $to torn"
            # The backup of the scene `spare` is on the last member.
            [ -e saved ] || [ "$missing" != $((${#members[@]} - 1)) ] || continue
            reads "$missing"
        done
        reads -1
        [ ! -e saved ] || doubts "$from" "$to"
    fi
    hand digest 0 now?
    [ "$told" = "$before" ] || fail "reading has changed a member"
}

# goes_on: mdadm and the driver, with the copies.
goes_on() {
    local taken
    hand attach now? || fail "$told"
    read -ra taken <<<"$told"
    # Where the driver is at its end before mdadm looks again, mdadm 4.2 ends by SIGSEGV.
    mdadm --assemble --run /dev/md0 ${saved_file:+--backup-file="$PWD/$saved_file"} "${taken[@]}" >notes 2>&1 || true
    [ -e $md/reshape_position ] || fail "mdadm: $(<notes)"
    allow_writes
    until_true goes_to_its_end
    cmp -n "$array_bytes" model /dev/md0 || fail "md has other bytes"
    end_mdadm
    stop_md
    losetup --detach "${taken[@]}"
}
# mdadm may wait for a driver that is further than mdadm knows; no power fails here, so that it needs no backup.
goes_to_its_end() {
    echo max >$md/sync_max
    is_done
}
# What mdadm has left in the background watches for what no longer comes.
end_mdadm() {
    pkill -KILL --exact mdadm || true
    until_true ended
}
ended() { ! pgrep --exact mdadm >/dev/null; }

# reshape SPARES DATA_CHUNKS CREATE-ARGUMENTS -- AT... -- GROW-ARGUMENTS: copied at these steps, in KiB of a member.
reshape() {
    local spares=$1 chunks=$2 creating=() steps=() at before_torn=$torn all saved_file=
    shift 2
    while [ "$1" != -- ]; do
        creating+=("$1")
        shift
    done
    shift
    while [ "$1" != -- ]; do
        steps+=("$1")
        shift
    done
    shift
    all=${creating[0]#--raid-devices=}
    scene="${creating[*]}, then $*"
    rm -f backup saved
    blank $((all + spares))
    mdadm --create /dev/md0 --quiet --run --bitmap=none --assume-clean "${creating[@]}" "${members[@]:0:all}"
    fill
    [ "$spares" = 0 ] || mdadm --quiet /dev/md0 --add "${members[@]:all}"
    array_bytes=$(($(</sys/block/md0/size) * 512))
    take_model
    until_true is $md/array_state clean # else the superblocks call the array dirty all the while
    data_at=$(superblock_number "${members[0]}" 'Data Offset')
    : "${data_at:=0}" # 0.90 has none
    pace 1
    begin "$@"
    for at in "${steps[@]}"; do
        scene="${creating[*]}, then $* at $at KiB"
        [ "$at" = 0 ] || pace 2000
        until_true has_come "$at"
        pace 1
        until_true copied
        judge "$chunks"
    done
    [ $torn -gt "$before_torn" ] || fail "never inside of the critical section"
    end_mdadm
    echo frozen >$md/sync_action
    stop_md
    [ ! -e saved ] || saved_file=saved
    goes_on
}

chunk() { reshape 0 3 --raid-devices=4 --level=5 --chunk=16 -- 0 3000 -- --chunk=32 --backup-file="$PWD/backup"; }
layout() { reshape 0 2 --raid-devices=4 --level=6 --chunk=64 -- 2000 -- --layout=right-asymmetric --backup-file="$PWD/backup"; }
level() { reshape 1 2 --raid-devices=3 --level=5 --chunk=64 -- 1000 -- --level=6 --raid-devices=4 --backup-file="$PWD/backup"; }
copied_early() {
    echo 1 >$md/sync_speed_min # mdadm sets a high one at some time
    copied || is_done
}
# early: mdadm as it is, and copies from the start on.
early() {
    local at number status
    scene="mdadm lets the driver run before its first backup"
    rm -f backup saved
    blank 4
    mdadm --create /dev/md0 --quiet --run --bitmap=none --assume-clean --raid-devices=4 --level=5 --chunk=16 "${members[@]}"
    fill
    take_model
    pace 1
    mdadm --grow --quiet /dev/md0 --chunk=32 --backup-file="$PWD/backup" >notes 2>&1 || fail "$(<notes)"
    until_true copied_early
    here=(now?) status=0
    read_here || status=$?
    if [ $status = 0 ]; then
        cmp model got || fail "other bytes, and no word of it"
    else
        # Or the copy was made before mdadm had written anything to its backup.
        [ $status = 2 ] && { is_unproven || grep --quiet "no backup of mdadm's begins here" notes; } ||
            fail "status $status: $(<notes)"
        ((++refused))
    fi
    end_mdadm
    stop_md
}
spare() { reshape 1 3 --raid-devices=3 --level=5 --chunk=512 --metadata=0.90 -- 0 -- --raid-devices=4; }
for part in "${@:2}"; do $part; done

echo "$tried times members in a reshape in place read as they were before it ($forced only by --force), $torn times with a torn critical section; \
mdadm and the driver ended each with the same bytes; $refused backups that mdadm made too late were refused"
