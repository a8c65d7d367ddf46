#!/bin/bash
# Arrays that the real driver left with something unfinished, which is read without writing: what mdspace reads of them, and
# what the driver does.
#
#   unfinished.sh MDSPACE SAMPLE [PART]...    PART: logs, own, journaled, own_journaled, shapes; all without one
#
# One of SAMPLE states is tried, chosen by a fixed seed; with 1 all are.
#
# Runs in a guest (tests/kernel/init.sh). Each state is one that a loss of power can leave: the members are mixed of what they
# were before a write and after it. The driver's own start says which bytes are right. Of mdspace is demanded that it reads the
# same, changes no member, and returns no block that is neither from before the write nor from after it, unless a warning says
# that the log cannot give it. Ends with status 1 at the first that is otherwise.
set -euo pipefail
mdspace=$1
sample=$2
[[ $sample =~ ^[1-9][0-9]*$ ]] || { echo "SAMPLE is $sample, not a number from 1 on" >&2 && exit 2; }
[ $# != 2 ] || set -- "$1" "$2" logs own journaled own_journaled shapes
. "$(dirname "$0")/common.sh"

MEMBER_BYTES=$((6 << 20))
head -c $((16 << 20)) /dev/urandom >pool
scene=
RANDOM=26
tried=0 lost=0
after=(after0 after1 after2 after3 after4)

where() { echo "$scene"; }

# sampled: whether this state is among those to try.
sampled() { [ $((RANDOM % sample)) = 0 ]; }
evidence() {
    cat notes
    "$mdspace" examine now? cut? || true
}

# kept NAME: the members as they are now are NAME0, NAME1, ...
kept() {
    local number
    for number in "${!members[@]}"; do hand copy "m$number" 0 "$1$number" 0 -1 || fail "$told"; done
}

# power_cut MISSING: the files cut0, cut1, ... are the members as a loss of power during the write leaves them; without the
# missing one they are `cut`.
power_cut() {
    local number
    cut=()
    for number in "${!members[@]}"; do
        hand cut "before$number" "after$number" "cut$number" $((data_at * 512)) $RANDOM "${ranges[@]}" || fail "$told"
        [ "$number" = "$1" ] || cut+=("cut$number")
    done
}

# compare: what is read of `cut`, which the driver then changes.
compare() {
    local before
    hand digest 0 "${cut[@]}"
    before=$told
    "$mdspace" read --force --output got --overwrite "${cut[@]}" 2>notes || fail "read --force: $(<notes)"
    "$mdspace" read --output sure --overwrite "${cut[@]}" 2>notes || fail "read: $(<notes)"
    if grep --quiet "may have been under way" notes; then
        ((++lost))
    else
        hand either sure was is || fail "$told"
    fi
    hand digest 0 "${cut[@]}"
    [ "$told" = "$before" ] || fail "reading has changed a member"
    hand attach "${cut[@]}"
    local taken
    read -ra taken <<<"$told"
    assemble "${taken[@]}"
    cmp got /dev/md0 || fail "md reads other bytes"
    finished
    stop_md
    losetup --detach "${taken[@]}"
    ((++tried))
}

# ---------------------------------------------------------------- the partial parity log of RAID-5

# cut_each COUNT: the write that the logs name, cut short, with each of the members missing afterwards, or none.
cut_each() {
    local missing
    hand logged $((16 << 10)) $(($1 - 1)) "${after[@]:0:$1}" || fail "$told"
    read -ra ranges <<<"$told"
    [ ${#ranges[@]} != 0 ] || fail "nothing is in the logs"
    for missing in $(seq -1 $(($1 - 1))); do
        sampled || continue
        power_cut "$missing"
        compare
    done
}

# cuts COUNT: writes that power cuts short, with each of the members missing afterwards, or none.
cuts() {
    local count=$1 write
    rm -f was is before? after?
    blank "$count"
    mdadm --create /dev/md0 --quiet --run --level=5 --chunk=16 --raid-devices="$count" --consistency-policy=ppl --assume-clean \
        "${members[@]}"
    fill
    stop_md
    data_at=$(superblock_number "${members[0]}" 'Data Offset')
    for write in 4:1 8:3 21:4 34:5 53:9 64:$(((count - 1) * 4)) 101:6 200:2; do
        scene="a partial parity log on $count members, $((${write#*:} * 4)) KiB at block ${write%:*}"
        assemble "${members[@]}"
        echo 1000 >$md/safe_mode_delay # it stays dirty
        hand copy pool 0 /dev/md0 0 4096 direct || fail "$told"
        kept before
        hand copy /dev/md0 0 was 0 -1 afresh
        hand copy pool $((RANDOM % 2000 * 4096)) /dev/md0 $((${write%:*} * 4096)) $((${write#*:} * 4096)) direct || fail "$told"
        is $md/array_state active || fail "it is not dirty: $(<$md/array_state)"
        kept after
        hand copy /dev/md0 0 is 0 -1 afresh
        stop_md
        cut_each "$count"
    done
}

# ours POLICY LEVEL COUNT: an array that mdspace makes and fills.
ours() {
    rm -f was is before? after?
    blank "$3"
    "$mdspace" create --level "$2" --chunk 16K --consistency-policy "$1" --assume-clean "${members[@]}" >/dev/null
    data_at=$(superblock_number "${members[0]}" 'Data Offset')
    serve "${members[@]}"
    hand send pool 0 $((8 << 20)) || fail "$told"
    stop_serving
}

# killed_write WRITE: mdspace's server is killed after this write, so that the log names it last. What was there before is in
# `was` and before?, what is there now in `is` and after?.
killed_write() {
    head -c $((8 << 20)) /dev/urandom >other
    serve "${members[@]}"
    hand send other 0 4096 || fail "$told"
    flushed
    kept before
    hand receive was || fail "$told"
    hand send other $((${1%:*} * 4096)) $((${1#*:} * 4096)) || fail "$told"
    kill_server
    mdadm --examine "${members[0]}" | grep --quiet 'State : active' || fail "it is not dirty"
    kept after
    serve "${members[@]}" --read-only
    hand receive is || fail "$told"
    stop_serving
}

# own_cuts COUNT: as `cuts`, of an array that mdspace made and wrote to.
own_cuts() {
    local count=$1 write
    ours ppl 5 "$count"
    for write in 4:1 8:3 53:9 64:$(((count - 1) * 4)) 101:6; do
        scene="our partial parity log on $count members, $((${write#*:} * 4)) KiB at block ${write%:*}"
        killed_write "$write"
        cut_each "$count"
        stop_by_md
    done
}

# ---------------------------------------------------------------- our stripe log, which the driver ignores

# same_beside WRITE: what is read is `was`, but for what was being written.
same_beside() {
    local first=$((${1%:*} * 4096)) bytes=$((${1#*:} * 4096))
    cmp -n $first was sure && cmp --ignore-initial=$((first + bytes)) was sure || fail "a block that nothing wrote is read wrong"
}

# replayed_cut WRITE IS_WHOLE MISSING...: as `power_cut` and `compare`, of an array with a stripe log: mdspace writes to it
# first. A write to whole stripes (IS_WHOLE is 1) is not logged: what a missing member held of it may be anything.
replayed_cut() {
    local write=$1 is_whole=$2 number gone=" ${*:3} " taken
    cut=()
    for number in "${!members[@]}"; do
        hand cut "before$number" "after$number" "cut$number" $((data_at * 512)) $RANDOM 0:$((1 << 40)) || fail "$told"
        [[ "$gone" = *" $number "* ]] || cut+=("cut$number")
    done
    hand digest 0 "${cut[@]}"
    local before=$told
    "$mdspace" read --output sure --overwrite "${cut[@]}" 2>notes || fail "read: $(<notes)"
    grep --quiet "its stripe log was replayed" notes || fail "no log was replayed: $(<notes)"
    if [ "$is_whole" = 1 ] && [ ${#cut[@]} != ${#members[@]} ]; then
        same_beside "$write"
    elif grep --quiet "may have been under way" notes; then
        ((++lost))
    else
        hand either sure was is || fail "$told"
    fi
    hand digest 0 "${cut[@]}"
    [ "$told" = "$before" ] || fail "reading has changed a member"
    serve "${cut[@]}"
    until_true says in_agreement # a RAID-6 that lacks one member is resynced
    hand receive got || fail "$told"
    stop_serving
    cmp got sure || fail "once the log is replayed on the members, other bytes are read"
    hand attach "${cut[@]}"
    read -ra taken <<<"$told"
    assemble "${taken[@]}"
    cmp sure /dev/md0 || fail "md reads other bytes"
    finished
    checked "once resynced"
    stop_md
    losetup --detach "${taken[@]}"
    ((++tried))
}

# log_cuts LEVEL COUNT WRITE...: writes to an array with a stripe log, which power cuts short, with as many members missing
# afterwards as the level bears. mdspace replays the log, and stops the array. The driver then has the same bytes.
log_cuts() {
    local level=$1 count=$2 write missing stripe is_whole
    stripe=$(((count - 1 - (level == 6)) * 4))
    shift 2
    ours log "$level" "$count"
    for write in "$@"; do
        scene="our stripe log at level $level on $count members, $((${write#*:} * 4)) KiB at block ${write%:*}"
        is_whole=$((${write%:*} % stripe == 0 && ${write#*:} % stripe == 0))
        killed_write "$write"
        for missing in $(seq -1 $((count - 1))); do
            sampled || continue
            replayed_cut "$write" $is_whole "$missing"
            [ "$level" != 6 ] || [ "$missing" -lt 0 ] ||
                replayed_cut "$write" $is_whole "$missing" $(((missing + 1) % count))
        done
        void_after_md
    done
}

# void_after_md: the driver writes to the array whose log names a write. Power is cut then, with a member missing: mdspace
# replays nothing, and refuses what may be wrong.
void_after_md() {
    stop_by_md
    assemble "${members[@]}"
    echo 1000 >$md/safe_mode_delay # it stays dirty
    hand copy pool 0 /dev/md0 0 4096 direct || fail "$told"
    kept now
    stop_md
    ! "$mdspace" read --output sure --overwrite now[1-9] 2>notes || fail "the log of an earlier use was believed"
    grep --quiet "dirty and degraded" notes || fail "$(<notes)"
    grep --quiet "other software has written" notes || fail "it is not said that the log is void: $(<notes)"
}

# stop_by_md: the driver takes the members as they are, and stops the array cleanly.
stop_by_md() {
    assemble "${members[@]}"
    allow_writes
    finished
    stop_md
}

# ---------------------------------------------------------------- write journals

# journals LEVEL COUNT MODE: writes that are in the journal, and on the members in part, with each of the members missing.
journals() {
    local level=$1 count=$2 mode=$3 number missing write
    scene="a journal of level $level on $count members, $mode"
    rm -f was is before? after?
    blank $((count + 1))
    mdadm --create /dev/md0 --quiet --run --level="$level" --chunk=16 --raid-devices="$count" --assume-clean \
        --write-journal "${members[count]}" "${members[@]:0:count}"
    fill
    stop_md
    data_at=$(superblock_number "${members[0]}" 'Data Offset')
    assemble "${members[@]}"
    echo "$mode" >$md/journal_mode
    kept before
    hand copy /dev/md0 0 was 0 -1 afresh
    for write in 4:1 8:3 21:4 53:9 64:$(((count + 3 - level) * 8)) 101:6 101:2 200:2; do
        hand copy pool $((RANDOM % 2000 * 4096)) /dev/md0 $((${write%:*} * 4096)) $((${write#*:} * 4096)) direct || fail "$told"
    done
    kept after
    hand copy /dev/md0 0 is 0 -1 afresh
    stop_md
    for missing in $(seq -1 $((count - 1))); do
        [ "$missing" = $((level - 6)) ] || sampled || continue
        cut=()
        for number in "${!members[@]}"; do
            hand cut "before$number" "after$number" "cut$number" $((data_at * 512)) $RANDOM \
                $([ "$number" = "$count" ] || echo "0:$MEMBER_BYTES") || fail "$told"
            [ "$number" = "$missing" ] || cut+=("cut$number")
        done
        [ "$missing" != $((level - 6)) ] || taken_over
        compare
        cmp got is || fail "what the journal holds is not read"
    done
}

# taken_over: mdspace replays the journal of `cut` on copies of the members, writes, and is killed. The driver goes on.
taken_over() {
    local file taken copies=()
    for file in "${cut[@]}"; do
        hand copy "$file" 0 "own-$file" 0 -1 || fail "$told"
        copies+=("own-$file")
    done
    serve "${copies[@]}"
    hand receive sure || fail "$told"
    cmp is sure || fail "once the journal is replayed on the members, other bytes are read"
    hand send pool $((5 * 4096)) $((11 * 4096)) || fail "$told"
    hand receive sure || fail "$told"
    kill_server
    hand attach "${copies[@]}"
    read -ra taken <<<"$told"
    assemble "${taken[@]}"
    is $md/consistency_policy journal || fail "md does not use the journal"
    cmp sure /dev/md0 || fail "md reads other bytes once mdspace has used the journal"
    finished
    ! is $md/degraded 0 || checked
    stop_md
    losetup --detach "${taken[@]}"
    rm "${copies[@]}"
    ((++tried))
}

# examined: what mdadm says of the members, but for what differs with each array.
examined() { for member in "${members[@]}"; do mdadm --examine "$member" | sed '/UUID\|Time\|Checksum\|Name\|Events/d'; done; }

# own_journal LEVEL COUNT MISSING...: as `journals`, of an array that mdspace made and wrote to until it was killed, without
# each of these members, or any if it is -1.
own_journal() {
    local level=$1 count=$2 number missing write
    scene="our journal of level $level on $count members"
    shift 2
    rm -f was is before? after?
    blank $((count + 1))
    mdadm --create /dev/md0 --quiet --run --level="$level" --chunk=16 --raid-devices="$count" --assume-clean \
        --write-journal "${members[count]}" "${members[@]:0:count}"
    stop_md
    examined >theirs
    "$mdspace" create --force --level "$level" --chunk 16K --assume-clean --write-journal "${members[count]}" \
        "${members[@]:0:count}" >/dev/null 2>&1
    examined >ours
    cmp theirs ours || fail "its superblocks are not mdadm's: $(diff theirs ours)"
    data_at=$(superblock_number "${members[0]}" 'Data Offset')
    head -c $((8 << 20)) /dev/urandom >other
    serve "${members[@]}"
    hand send pool 0 $((8 << 20)) || fail "$told"
    flushed
    kept before
    hand receive was || fail "$told"
    for write in 4:1 21:4 64:$(((count + 3 - level) * 4)) 101:6; do
        hand send other $((${write%:*} * 4096)) $((${write#*:} * 4096)) || fail "$told"
    done
    hand receive is || fail "$told"
    kill_server
    kept after
    for missing in "$@"; do
        cut=()
        for number in "${!members[@]}"; do
            hand cut "before$number" "after$number" "cut$number" $((data_at * 512)) $RANDOM \
                $([ "$number" = "$count" ] || echo "0:$MEMBER_BYTES") || fail "$told"
            [ "$number" = "$missing" ] || cut+=("cut$number")
        done
        taken_over
        compare
        cmp got is || fail "what our journal holds is not read"
    done
}

# journal_changes LEVEL COUNT: mdspace gives md's array a journal, takes it away, and has the array go on without one that is
# lost. md uses the array in between.
journal_changes() {
    local level=$1 count=$2
    local -a rest
    scene="a journal that an array of level $level gets and gives up"
    rm -f was is
    blank $((count + 1))
    rest=("${members[@]:0:count}")
    mdadm --create /dev/md0 --quiet --run --level="$level" --chunk=16 --raid-devices="$count" --assume-clean --bitmap=none \
        "${rest[@]}"
    fill
    hand copy /dev/md0 0 is 0 -1 afresh
    stop_md

    "$mdspace" update --write-journal "${members[count]}" "${rest[@]}" >/dev/null 2>notes || fail "a new journal: $(<notes)"
    used_by_md journal "${members[@]}"
    "$mdspace" update --write-journal none "${members[@]}" >/dev/null 2>notes || fail "without a journal: $(<notes)"
    ! mdadm --examine "${members[count]}" >notes 2>&1 || fail "a journal that was given up has a superblock: $(<notes)"
    used_by_md resync "${rest[@]}"

    # It comes back over its own old blocks.
    "$mdspace" update --write-journal "${members[count]}" "${rest[@]}" >/dev/null 2>notes || fail "a new journal: $(<notes)"
    used_by_md journal "${members[@]}"
    if "$mdspace" update --write-journal none "${rest[@]}" >/dev/null 2>notes; then fail "a lost journal is no question"; fi
    grep --quiet "force gives it up" notes || fail "a lost journal: $(<notes)"
    "$mdspace" update --force --write-journal none "${rest[@]}" >/dev/null 2>notes || fail "a lost journal: $(<notes)"
    used_by_md resync "${rest[@]}"
    if "$mdspace" read --output got --overwrite "${members[@]}" 2>notes; then fail "the lost journal is taken back"; fi
    grep --quiet "stale journal" notes || fail "the lost journal: $(<notes)"
    ((++tried))
}

# used_by_md POLICY MEMBER...: md assembles them, reads `is`, has this policy, and writes; then `is` is what it holds.
used_by_md() {
    local policy=$1
    shift
    assemble "$@"
    is $md/consistency_policy "$policy" || fail "md's policy is $(<$md/consistency_policy), not $policy"
    cmp is /dev/md0 || fail "md reads other bytes"
    finished
    is $md/degraded 0 || fail "md lacks a member"
    checked
    hand copy pool $((RANDOM % 2000 * 4096)) /dev/md0 $((9 * 4096)) $((70 * 4096)) direct || fail "$told"
    hand copy /dev/md0 0 is 0 -1 afresh
    stop_md
}

# ---------------------------------------------------------------- reshapes

paused() { # paused AT: md has come so far, in sectors, and waits there
    local line
    line=$(</proc/mdstat)
    [[ $line =~ reshape\ =.*\(([0-9]+)/ ]] && [ $((BASH_REMATCH[1] * 2)) -ge "$1" ]
}

# keeps_count: md's reshape with parity keeps the number of members. The position may then be behind, in general; here it is
# not, as md writes it where it pauses.
keeps_count() { ! is $md/level raid10 && [[ $(<$md/raid_disks) != *"("* ]]; }

# reads_all MISSING: what is read of the members as they are, without that one, is the model.
reads_all() {
    local here=() number status=0 force=()
    for number in "${!members[@]}"; do [ "$number" = "$1" ] || here+=("now$number"); done
    if keeps_count; then
        "$mdspace" read --output got --overwrite "${here[@]}" 2>notes || status=$?
        [ $status = 2 ] || fail "not refused without $1: $(<notes)"
        grep --quiet "beyond the recorded position" notes && grep --quiet -e "--force" notes || fail "no reason: $(<notes)"
        force=(--force)
        ((++doubted))
    fi
    "$mdspace" read "${force[@]}" --output got --overwrite "${here[@]}" 2>notes || fail "read without $1: $(<notes)"
    grep --quiet "in the middle of a reshape" notes || fail "not said to be reshaped: $(<notes)"
    cmp -n "$array_bytes" model got || fail "other bytes without $1"
    ((++reshapes))
}

# reshape SPARES BEARS CREATE-ARGUMENTS -- GROW-ARGUMENTS: the members are copied where the driver pauses; it goes on each time.
reshape() {
    local spares=$1 bears=$2 creating=() number at missing before
    shift 2
    while [ "$1" != -- ]; do
        creating+=("$1")
        shift
    done
    shift
    scene="${creating[*]}, then $*"
    local all=${creating[0]#--raid-devices=}
    blank $((all + spares))
    mdadm --create /dev/md0 --quiet --run --bitmap=none --assume-clean "${creating[@]}" "${members[@]:0:all}"
    fill
    stop_md
    assemble "${members[@]:0:all}"
    [ "$spares" = 0 ] || mdadm --quiet /dev/md0 --add "${members[@]:all}"
    take_model
    echo 512 >$md/sync_max
    mdadm --grow --quiet /dev/md0 "$@" >notes 2>&1 || fail "$(<notes)"
    array_bytes=$(($(</sys/block/md0/size) * 512))
    for at in 512 1536 4096 6144; do
        echo $at >$md/sync_max
        until_true paused $at
        kept now
        for number in "${!members[@]}"; do before[$number]=$(b2sum <"now$number"); done
        for missing in $(seq -1 $((bears > 0 ? ${#members[@]} - 1 : -1))); do
            ! sampled || reads_all "$missing"
        done
        for number in "${!members[@]}"; do [ "${before[number]}" = "$(b2sum <"now$number")" ] || fail "reading has changed now$number"; done
    done
    echo max >$md/sync_max
    finished
    cmp -n "$array_bytes" model /dev/md0 || fail "md has lost it"
    stop_md
}
reshapes=0 doubted=0
logs() {
    cuts 3
    cuts 4
    own_cuts 3
    own_cuts 5
}
own() {
    log_cuts 4 3 4:1
    log_cuts 5 3 53:6
    log_cuts 6 4 4:1 53:6 64:8
}
journaled() {
    local mode
    for mode in write-through write-back; do
        journals 5 3 $mode
        journals 6 4 $mode
    done
}
own_journaled() {
    own_journal 4 3 -1 1
    own_journal 6 4 -1 0
    journal_changes 5 3
    journal_changes 6 4
}
shapes() {
    reshape 1 1 --raid-devices=3 --level=5 --chunk=64 -- --raid-devices=4
    reshape 1 1 --raid-devices=4 --level=6 --chunk=64 -- --raid-devices=5
    reshape 0 1 --raid-devices=4 --level=5 --chunk=64 -- --chunk=128
    reshape 0 1 --raid-devices=4 --level=5 --chunk=64 -- --layout=right-asymmetric
    reshape 1 1 --raid-devices=4 --level=10 --chunk=64 -- --raid-devices=5
    reshape 0 1 --raid-devices=4 --level=10 --chunk=64 -- --chunk=32
    reshape 1 1 --raid-devices=4 --level=5 --chunk=64 -- --level=6 --raid-devices=5
}
for part in "${@:3}"; do $part; done
[ "$sample" != 1 ] || [ $((tried + reshapes)) != 0 ] || fail "no state was tried"

echo "$tried states after a loss of power and $reshapes in the middle of a reshape ($doubted only by --force) read as the \
driver reads them; $lost times with the warning that a block was being written"
