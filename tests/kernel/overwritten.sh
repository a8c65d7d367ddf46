#!/bin/bash
# Superblocks that `mdadm --create` wrote over those of an older array: `detect --search` finds the older shape in the data.
#
#   overwritten.sh MDSPACE DIRECTORY
#
# Runs in a guest (tests/kernel/init.sh). mdadm makes an array with an ext4 and, on its members, another array of another
# shape. The members, in another order, are searched; what is found has to read what the first array held, but for
# the blocks that the report calls lost. Prints a line for each pair; ends with status 1 at the first that is not so.
set -euo pipefail
export MDADM_NO_UDEV=1 # a guest has none that could answer
mdspace=$(realpath "$1")
cd "$2"
modprobe loop max_loop=8
for module in raid0 raid10 raid456; do modprobe $module; done
echo 1000000 >/proc/sys/dev/raid/speed_limit_min
md=/sys/block/md0/md

fail() {
    echo "FAILED: $what: $*"
    cat found.json || :
    exit 1
}

mkdir tree
for number in {1..240}; do
    head -c $((number * 4700)) /bin/bash | tail -c $((number * 713)) >tree/$number
done

# create LEVEL ARGUMENT... MEMBER...: an array, clean and started.
create() {
    mdadm --create /dev/md0 --quiet --run --level "$@" || fail "mdadm did not create it"
    while [ -e $md/sync_action ] && [ "$(<$md/sync_action)" != idle ]; do mdadm --wait --quiet /dev/md0 || :; done
}

# scene WHAT COUNT LOST OLD NEW: arrays of COUNT members by these arguments of mdadm, the second over the first, with members
# in the opposite order. LOST says whether superblocks of the second are in the data of the first: yes or no.
scene() {
    what=$1
    local loops=() backwards=() members=() number lost blocks count=$2
    losetup -D
    rm -f disk*.img found.json truth.img read.img
    for ((number = 0; number < count; number++)); do
        truncate -s 52M disk$number.img
        loops+=("$(losetup --find --show disk$number.img)")
        backwards=("${loops[number]}" "${backwards[@]}")
        members=("disk$(((number * 3 + 1) % count)).img" "${members[@]}")
    done
    # shellcheck disable=SC2086
    create $4 --raid-devices "$count" "${loops[@]}"
    mke2fs -q -F -t ext4 -b 4096 -d tree /dev/md0
    cat /dev/md0 >truth.img
    mdadm --stop --quiet /dev/md0
    # shellcheck disable=SC2086
    create $5 --raid-devices "$count" "${backwards[@]}"
    mdadm --stop --quiet /dev/md0
    losetup -D
    sha256sum disk*.img >before
    "$mdspace" detect --search --json "${members[@]}" >found.json || fail "nothing is found, or it is not decided"
    sha256sum --quiet --check before || fail "the search changed a member"
    "$mdspace" read --geometry "$(jq -r '.shapes[0].geometry' found.json)" --length "$(stat -c %s truth.img)" --output read.img
    lost=$(jq '[.shapes[0].overwritten[].bytes] | add // 0' found.json)
    blocks=$({ cmp -l truth.img read.img || :; } | awk '{ seen[int(($1 - 1) / 4096)] = 1 } END { print length(seen) }')
    [ $((blocks * 4096)) -le "$lost" ] || fail "$blocks blocks differ, and $lost bytes are said to be lost"
    [ "$3" = yes ] || [ "$lost" = 0 ] || fail "$lost bytes are said to be lost"
    [ "$3" = no ] || [ "$blocks" -gt 0 ] || fail "no block differs, so that the scene shows nothing"
    echo "$what: $(jq -r '.shapes[0].geometry' found.json), $blocks blocks lost"
}

old="--metadata 1.2 --assume-clean"
scene "another chunk and order" 4 no "5 $old --chunk 64" "5 --metadata 1.2 --assume-clean --chunk 512"
scene "another order, resynced" 4 no "5 $old --chunk 64" "5 --metadata 1.2 --chunk 64"
scene "another level and data offset" 5 no "6 $old --layout ra --chunk 32" "0 --metadata 1.2 --chunk 64 --data-offset 3M"
scene "far copies" 5 no "10 $old --layout f2 --chunk 64" "5 --metadata 1.2 --assume-clean --chunk 64"
scene "behind the data, then before it" 4 yes "5 --metadata 1.0 --assume-clean --layout la --chunk 16" \
    "5 --metadata 1.2 --assume-clean --bitmap internal"
scene "0.90, then 1.2" 5 yes "6 --metadata 0.90 --assume-clean --chunk 64" "5 --metadata 1.2 --assume-clean"
losetup -D
rm -rf tree disk*.img found.json truth.img read.img before
