#!/bin/bash
# What the real drivers left in layers, read by mdspace: containers (tests/kernel/containers.sh), volume groups (tests/kernel/lvm.sh).
#
#   layers.sh MDSPACE DIRECTORY
#
# Each directory there has `reads`: a line for each volume, the sha256 of its bytes as the driver read them and mdspace's
# arguments. `refuses` has a word of the refusal and the arguments. No image may change. Ends with status 1 at the first that fails.
set -euo pipefail
mdspace=$(realpath "$1")
count=0
fail() {
    echo "$(basename "$PWD"): $*"
    exit 1
}
for case in "$2"/*/; do
    cd "$case"
    sha256sum ./*.img >before
    while read -r sum arguments; do
        # shellcheck disable=SC2086 # arguments are words
        got=$("$mdspace" read $arguments 2>notes | sha256sum | cut -d' ' -f1) || fail "read $arguments: $(<notes)"
        [ "$got" = "$sum" ] || fail "read $arguments: other bytes than the driver's"
        count=$((count + 1))
    done <reads
    if [ -e refuses ]; then
        while read -r word arguments; do
            status=0
            # shellcheck disable=SC2086
            "$mdspace" read $arguments --output /dev/null 2>notes || status=$?
            [ $status = 2 ] || fail "read $arguments: status $status: $(<notes)"
            grep --quiet -- "$word" notes || fail "read $arguments: no '$word' in: $(<notes)"
            count=$((count + 1))
        done <refuses
    fi
    # From whole disks to a list of files, by an ordinary user, in two commands.
    if [ -e lists ]; then
        as=()
        if [ "$(id -u)" = 0 ]; then as=(setpriv --reuid nobody --regid nogroup --clear-groups); fi
        # A place that such a user reaches.
        place=$(mktemp -d)
        cp --sparse=always ./disk?.img "$mdspace" "$place"
        chmod a+rwx "$place"
        (
            cd "$place"
            "${as[@]}" ./mdspace read disk?.img --inner vg1/volume_1 --output volume_1.out || fail "the first command"
            "${as[@]}" "$(command -v debugfs || echo /usr/sbin/debugfs)" -R 'ls -p /photos' volume_1.out 2>/dev/null |
                awk -F/ '$6 !~ /^[.]/ && NF > 1 { print $6 }' | sort >listed
        )
        cmp lists "$place/listed" || fail "the second command lists other files"
        rm -r "$place"
        count=$((count + 2))
    fi
    "$mdspace" detect --json ./*.img >detected || fail "detect: $(<detected)"
    sha256sum --check --quiet before || fail "an image was changed"
    cd - >/dev/null
done
echo "$count reads and refusals, as the drivers have it"
