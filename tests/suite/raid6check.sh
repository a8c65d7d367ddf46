#!/bin/bash
# raid6check of mdadm's repository, as it was built. It reads an array's shape in /sys/block, and then the members.
#
# The files that it looks for are made from what mdspace says of the array and its members, and are in the place of
# /sys/block for this program alone. Before it reads or writes a stripe it has md hold back requests for it
# (suspend_lo, suspend_hi). mdspace cannot do that, so the array is read-only meanwhile: a test that writes to it at the
# same time fails.
. "$ADAPTER/devices.sh"
follow
device=$(readlink -f "$1") name=''
for file in "$ADAPTER"/*.nbd; do ! is_of "$1" "$file" || name=$(basename "$file" .nbd); done
if [ -z "$name" ]; then
    echo "raid6check: no array at $1" >&2
    exit 2
fi
read -r _ socket _ <"$ADAPTER/$name.nbd"
control=${socket%nbd.sock}control.sock
blockdev --flushbufs "$device" # what is in the kernel's cache could not be written later
"$MDSPACE" set --control "$control" read-only=on >/dev/null 2>"$ADAPTER/set" || refused "raid6check: $(<"$ADAPTER/set")"

files=$ADAPTER/checked/${device##*/}/md
rm -rf "$ADAPTER/checked"
mkdir -p "${files%/*}"
cp -r "$ADAPTER/shown/$name" "$files"
echo 0 | tee "$files/suspend_lo" >"$files/suspend_hi"
"$MDSPACE" status --json --control "$control" >"$ADAPTER/status"
"$MDSPACE" mdstat | sed -n "/^$name :/,/^ *\$/s/.* algorithm \([0-9]*\) .*/\1/p" >"$files/layout"
jq '.component_bytes / 1024' "$ADAPTER/status" >"$files/component_size"
while IFS=$'\t' read -r member slot; do
    place=$files/dev-${member##*/}
    mkdir "$place/block"
    echo "$slot" >"$place/slot"
    cat "/sys/block/${member##*/}/dev" >"$place/block/dev"
    "$MDSPACE" examine --json "$member" >"$ADAPTER/examined" 2>/dev/null
    jq '.members[0].data_at / 512' "$ADAPTER/examined" >"$place/offset"
    jq '.members[0].data_bytes / 1024 | floor' "$ADAPTER/examined" >"$place/size"
done < <(jq -r '.members[] | [.name, .slot // "none"] | map(tostring) | join("\t")' "$ADAPTER/status")

# shellcheck disable=SC2016 # the inner shell's words
unshare --mount bash -c 'mount --bind "$0" /sys/block && exec "$@"' "$ADAPTER/checked" "$ADAPTER/raid6check" "$@"
status=$?
# What it finds is on its output. It ends with 3 for a wrong level, and by a signal where a reader has seen enough;
# another status says that it could not look.
case $status in 0 | 3 | 141) ;; *) refused "raid6check $*: status $status" ;; esac
"$MDSPACE" set --control "$control" read-only=off >/dev/null 2>"$ADAPTER/set" || refused "raid6check: $(<"$ADAPTER/set")"
exit $status
