#!/bin/bash
# Arrays of md and of mdspace, with each consistency policy, that are written to all at once until the guest's kernel panics.
#
#   crashes.sh MDSPACE DIRECTORY STATE LIFE first|next|last [ARRAY...]
#
# STATE is `whole`, or `lacking`: then as many members are missing as the level bears, before anything is written. The
# first life makes the arrays. Each later one starts them, judges what the life before it has left (crashes.py), and writes; the
# last only judges. Disks are write-through: what was handed to them is there afterwards, what was not is lost.
#
# The disks are $DISKS: 5 with members, one with journals, one that is the ledger. Each array has a part of each.
set -euo pipefail
mdspace=$1 directory=$2 state=$3 life=$4 which=$5
export MDADM_NO_UDEV=1
beside=${BASH_SOURCE[0]%/*}
for module in raid456 nbd dm-delay; do modprobe $module; done
cd "$SCRATCH"
read -ra disks <<<"$DISKS"
ledger=${disks[6]}

# Engine, level, policy.
ARRAYS=("${@:6}")
[ ${#ARRAYS[@]} != 0 ] || ARRAYS=(md:5:resync md:5:bitmap md:5:ppl md:5:journal md:6:resync md:6:bitmap md:6:journal
    mdspace:5:resync mdspace:5:bitmap mdspace:5:ppl mdspace:5:journal mdspace:5:log
    mdspace:6:resync mdspace:6:bitmap mdspace:6:journal mdspace:6:log)
declare -A COUNT=([5]=3 [6]=5)
# Slots that are missing in the state `lacking`.
declare -A GONE=([5]=" 1 " [6]=" 1 3 ")
CHUNK_KIB=16

fail() {
    echo "FAILED: ${array:-}: $*"
    tail -n 30 served.* 2>/dev/null || true
    cat /proc/mdstat
    dmesg | tail -n 20
    exit 1
}
. "$beside/until.sh"

# The slices of all disks. A write takes its time, on each disk another: some of its stripe's writes are on their disks then,
# and others are not. (Below 50 ms the target waits busily.)
DELAYS=(50 80 60 90 70 55)
SLICE_SECTORS=$((4 << 11))
slices() {
    local number slot at tables=
    for number in "${!ARRAYS[@]}"; do
        at=$((number * SLICE_SECTORS))
        for slot in "${!DELAYS[@]}"; do
            tables+=";slice$number.$slot,,,rw,0 $SLICE_SECTORS delay ${disks[slot]} $at 0 ${disks[slot]} $at ${DELAYS[slot]} ${disks[slot]} $at 0"
        done
    done
    dmsetup create --noudevsync --concise "${tables#;}"
    dmsetup mknodes
}

# members_of NUMBER LEVEL: `all` slots, `here` those that are there, `gone` those that are not.
members_of() {
    local slot
    all=() here=() gone=()
    for ((slot = 0; slot < COUNT[$2]; slot++)); do
        all+=("/dev/mapper/slice$1.$slot")
        if [[ $state = lacking && ${GONE[$2]} = *" $slot "* ]]; then gone+=("${all[-1]}"); else here+=("${all[-1]}"); fi
    done
    journal=/dev/mapper/slice$1.5
}

# ---------------------------------------------------------------- the real driver

create_by_md() { # NUMBER LEVEL POLICY
    local kept=() missing
    case $3 in
        resync) kept=(--bitmap=none) ;;
        bitmap) kept=(--bitmap=internal) ;;
        ppl) kept=(--consistency-policy=ppl) ;;
        journal) kept=(--write-journal "$journal") ;;
    esac
    mdadm --create "/dev/md$1" --quiet --run --metadata=1.2 --level="$2" --chunk=$CHUNK_KIB --raid-devices=${#all[@]} \
        --assume-clean "${kept[@]}" "${all[@]}" || fail "not created"
    for missing in "${gone[@]}"; do mdadm --quiet "/dev/md$1" --fail "$missing" --remove "$missing" || fail "not removed"; done
}

start_by_md() { # NUMBER POLICY: by force where it must be
    local offered=("${here[@]}")
    [ "$2" != journal ] || offered+=("$journal")
    if ! mdadm --assemble --run --quiet "/dev/md$1" "${offered[@]}" 2>"said.$1"; then
        mdadm --stop --quiet "/dev/md$1" 2>/dev/null || true
        forced=1
        mdadm --assemble --run --force --quiet "/dev/md$1" "${offered[@]}" || fail "not started by force: $(<"said.$1")"
    fi
    [ "$(<"/sys/block/md$1/md/array_state")" != read-auto ] || mdadm --readwrite --quiet "/dev/md$1"
}

# ---------------------------------------------------------------- mdspace

create_by_us() { # LEVEL POLICY
    local kept=(--consistency-policy "$2")
    [ "$2" != journal ] || kept=(--write-journal "$journal")
    "$mdspace" create --level "$1" --chunk ${CHUNK_KIB}K --assume-clean "${kept[@]}" "${all[@]}" >/dev/null || fail "not created"
}

serve() { # NUMBER ARGUMENT...
    local offered=("${here[@]}")
    [ "$policy" != journal ] || offered+=("$journal")
    : >"served.$1"
    "$mdspace" serve "${offered[@]}" --nbd "unix:$PWD/nbd.$1" --control "control.$1" "${@:2}" >"served.$1" 2>&1 &
    until_true decided "$1"
}
decided() { is_refused "$1" || { [ -S "nbd.$1" ] && [ -S "control.$1" ]; }; }
is_refused() { [[ $(<"served.$1") = *refused:*next:* ]]; }

start_by_us() { # NUMBER: by force where it must be
    serve "$1"
    if is_refused "$1"; then
        grep --quiet 'dirty and degraded' "served.$1" || fail "not served: $(<"served.$1")"
        forced=1
        until_true forces "$1"
    fi
    until_true connects "$1"
}
# The kernel takes the io_uring of the refused server apart some time after its process has ended.
forces() {
    serve "$1" --force
    [[ $(<"served.$1") != *"in use by"* ]] || return 1
    ! is_refused "$1" || fail "not served by force: $(<"served.$1")"
}
connects() { nbd-client -unix "$PWD/nbd.$1" "/dev/nbd$1" -block-size 4096 >"connected.$1" 2>&1; }

# ---------------------------------------------------------------- a life

# start NUMBER: makes that array, or starts it. In text.NUMBER is then whether it had to be forced, and its device.
start() {
    array=${ARRAYS[$1]} forced=0
    IFS=: read -r engine level policy <<<"$array"
    members_of "$1" "$level"
    if [ "$engine" = md ]; then
        if [ "$which" = first ]; then create_by_md "$1" "$level" "$policy"; else start_by_md "$1" "$policy"; fi
        echo "$forced=/dev/md$1" >"text.$1"
    else
        [ "$which" != first ] || create_by_us "$level" "$policy"
        start_by_us "$1"
        echo "$forced=/dev/nbd$1" >"text.$1"
    fi
}

slices
starting=() texts=()
for number in "${!ARRAYS[@]}"; do
    start "$number" & # most of the time they wait for disks
    starting+=($!)
done
for number in "${!ARRAYS[@]}"; do
    wait "${starting[number]}" || exit 1
    echo "life $life: ${ARRAYS[number]} is started" # should the guest hang, this says where
    texts+=("${ARRAYS[number]}=$(<"text.$number")")
done
[ "$which" = first ] || "$beside/crashes.py" judge "$directory" $((life - 1)) "$ledger" "${texts[@]}"
[ "$which" != last ] || exit 0
sync
exec "$beside/crashes.py" write "$directory" "$life" "$ledger" "${texts[@]}"
