#!/bin/bash
# Members that the real driver used without the others. Halves of an array that were used apart, 0 to 3 events from each
# other: no byte of the earlier half is written, and at the same events both are refused. And members that merely stayed
# away, up to 3 events: they become spares, or return by the bitmap, as they always did.
#
#   halves.sh MDSPACE [LEVEL...]
#
# Levels 1, 5, 6 and 10; superblocks 0.90, 1.0 and 1.2; with a bitmap that both halves believe, and without. Runs in a guest
# (tests/kernel/init.sh). What mdspace leaves the driver assembles without --force, and its `check` counts no mismatch.
set -euo pipefail
mdspace=$1
shift
[ $# -gt 0 ] || set -- 1 5 6 10
. "$(dirname "$0")/common.sh"

MEMBER_BYTES=$((3 << 20))
POOL_BYTES=$((4 << 20))
APART_MAX=3
LAST=4 # events of the later half beyond what both had; it is clean then
head -c $POOL_BYTES /dev/urandom >pool

where() { echo "level $level, metadata $metadata, bitmap $bitmap, $scene"; }
evidence() {
    status || :
    [ ! -e serve.log ] || cat serve.log
    mdadm --examine "${members[@]}"
}

# The numbers of each half's members.
halves() {
    case $level in
        1 | 5) later=(0) earlier=(1) ;;
        6) later=(0 1) earlier=(2 3) ;;
        10) later=(0 2) earlier=(1 3) ;; # near copies: 0 and 1 hold the same, and 2 and 3
    esac
    count=$((${#later[@]} + ${#earlier[@]}))
}
of() { for number in "$@"; do echo "${members[number]}"; done; }
events() { superblock_number "${members[$1]}" Events; }
is_old() { [ "$metadata" = 0.90 ]; }
has_parity() { [ "$level" = 5 ] || [ "$level" = 6 ]; }

# keep NAME NUMBER...: their images, as they are now; bring NAME NUMBER...: back again.
keep() { for number in "${@:2}"; do hand copy "m$number" 0 "$1.$number" 0 -1 || fail "not kept: $told"; done; }
bring() {
    for number in "${@:2}"; do hand copy "$1.$number" 0 "m$number" 0 -1 || fail "not brought back: $told"; done
    flushed
}
unchanged() { # NAME NUMBER...
    flushed
    for number in "${@:2}"; do cmp "m$number" "$1.$number" || fail "member $number was written to"; done
}

has_moved() { [ "$(events "$1")" -gt "$2" ]; }

# used_alone NAME NUMBER...: the driver uses these members alone. NAME.K holds how they are when their events are K beyond those
# before, and NAME.K.model what the array holds then: dirty for an odd K, with data written in it, and clean for an even one.
used_alone() {
    local name=$1 base beyond
    shift
    base=$(events "$1")
    # Left to begin by itself with the first write: to be told to takes an event of its own.
    mdadm --assemble --quiet --run /dev/md0 $(of "$@") || fail "md does not assemble them"
    for ((beyond = 1; beyond <= LAST; beyond++)); do
        if ((beyond % 2 == 1)); then
            echo 1000 >$md/safe_mode_delay # seconds: it becomes clean when it is told to
            hand noise piece 0 65536
            hand copy piece 0 /dev/md0 $((RANDOM % 20 * 65536)) 65536 direct || fail "md does not take it: $told"
        else
            echo 0.01 >$md/safe_mode_delay
        fi
        until_true has_moved "$1" $((base + beyond - 1))
        [ "$(events "$1")" = $((base + beyond)) ] || fail "its events are $(events "$1"), not $beyond beyond $base"
        keep "$name.$beyond" "$@"
        take_model /dev/md0
        mv model "$name.$beyond.model"
    done
    stop_md
}

prepared() {
    rm -f apart.* away.*
    blank "$count"
    local with=(--bitmap=none) chunk=(--chunk=64)
    [ "$bitmap" = none ] || with=(--bitmap=internal --bitmap-chunk=64K)
    [ "$level" != 1 ] || chunk=()
    [ "$metadata" != 1.2 ] || with+=(--data-offset=1024K)
    mdadm --create /dev/md0 --quiet --run --metadata="$metadata" --level="$level" "${chunk[@]}" --raid-devices="$count" \
        --assume-clean "${with[@]}" "${members[@]}"
    fill
    sweep repair # a parity that was never made
    take_model
    mv model common.model
    stop_md
    keep common $(seq 0 $((count - 1)))
    used_alone later "${later[@]}"
    used_alone earlier "${earlier[@]}"
}

served() { serve "${members[@]}"; }
reads_as() { # MODEL
    hand receive ours || fail "not read: $told"
    cmp "$1" ours || fail "our server gives other bytes"
}
is_whole() { says 'in_sync == raid_disks'; }
judged() { # MODEL MEMBER...
    cp "$1" model
    found_whole "${@:2}"
    stop_md
}

# ask COMMAND... MEMBER: our server's answer is in `answer`, and the status that of the command. What it left out it lets go of a
# moment later.
ask() {
    until_true has_answered "$@"
    return "$code"
}
has_answered() {
    code=0
    "$mdspace" "$@" --control control.socket >answer 2>&1 || code=$?
    [ $code = 0 ] || ! grep -q 'in use: ' answer
}

# Both at the same events.
refused() {
    local code=0
    "$mdspace" serve "${members[@]}" --nbd "unix:$PWD/nbd.socket" >refusal 2>&1 || code=$?
    [ $code = 2 ] && grep -q 'used apart' refusal || fail "status $code: $(<refusal)"
    ! grep -Eq 'Slot\(|Spare|Faulty' refusal || fail "not in people's words: $(<refusal)"
}

# halves_apart EVENTS: the earlier half so many behind the later.
halves_apart() {
    scene="halves $1 events apart"
    local number
    bring "later.$LAST" "${later[@]}"
    bring "earlier.$((LAST - $1))" "${earlier[@]}"
    [ $(($(events "${later[0]}") - $(events "${earlier[0]}"))) = "$1" ] || fail "they are not"
    if [ "$bitmap" != none ]; then
        for number in "${later[0]}" "${earlier[0]}"; do
            [ "$(bitmap_field "${members[number]}" Events)" = "$(events "$number")" ] || fail "$number: not believed"
        done
    fi
    if [ "$1" = 0 ]; then
        refused
        unchanged "later.$LAST" "${later[@]}"
        unchanged "earlier.$LAST" "${earlier[@]}"
        return
    fi
    served
    says "in_sync == ${#later[@]} and len(left_out) == ${#earlier[@]}" || fail "others are in use"
    says "all('used apart' in one.reason for one in left_out)" || fail "left out for another reason"
    reads_as "later.$LAST.model"
    hand send ours 0 65536 || fail "not written: $told" # what was there: so that superblocks are told of it
    for number in "${earlier[@]}"; do
        ! ask re-add "${members[number]}" || fail "a half was taken back"
        is_old || grep -q 'used without' answer || fail "refused otherwise: $(<answer)"
    done
    unchanged "earlier.$((LAST - $1))" "${earlier[@]}"
    if is_old; then
        stop_serving
        unchanged "earlier.$((LAST - $1))" "${earlier[@]}"
        return
    fi
    for number in "${earlier[@]}"; do
        ask add --force "${members[number]}" || fail "not added: $(<answer)"
    done
    until_true is_whole
    stop_serving
    judged "later.$LAST.model" "${members[@]}"
}

# stayed_away EVENTS: the others went on for so many.
stayed_away() {
    scene="away for $1 events"
    local number
    bring "later.$1" "${later[@]}"
    bring common "${earlier[@]}"
    if has_parity && (($1 % 2 == 1)); then
        return # dirty and degraded: refused as ever
    fi
    served
    if [ "$1" -gt 1 ]; then
        says "all('stale' in one.reason for one in left_out)" || fail "left out for another reason"
        for number in "${earlier[@]}"; do
            if is_old; then
                break
            elif [ "$bitmap" = none ]; then
                ask add --force "${members[number]}" || fail "not added: $(<answer)"
            else
                ask re-add "${members[number]}" || fail "not taken back: $(<answer)"
            fi
        done
    fi
    is_old || until_true is_whole
    reads_as "later.$1.model"
    stop_serving
    is_old || judged "later.$1.model" "${members[@]}"
}

scenes=0
for level in "$@"; do
    halves
    for metadata in 0.90 1.2; do # 1.0 in the simulated world: its superblock is 1.2's elsewhere
        for bitmap in none internal; do
            scene="making the halves"
            prepared
            for apart in $(seq 0 $APART_MAX); do
                halves_apart "$apart"
                scenes=$((scenes + 1))
            done
            for away in $(seq 1 $APART_MAX); do
                stayed_away "$away"
                scenes=$((scenes + 1))
            done
        done
    done
    echo "level $level: halves are never written over, and members that stayed away return"
done
echo "$scenes scenes of members that the driver used without the others"
