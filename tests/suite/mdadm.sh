#!/bin/bash
# mdadm for mdadm's own suite: `mdspace mdadm`, and then a block device of the kernel for each served array (devices.sh).
#
# Before arrays are stopped, or served read-only, their devices are taken away, as mdspace counts the kernel as a client.
# The output and the exit status are those of `mdspace mdadm`. A line that it refuses as "not yet" or "not here" is noted:
# such a test does not count as passed, whatever it goes on to check.
. "$ADAPTER/devices.sh"

case "$# $* " in
*" -S"* | *" --stop"* | "2 -o "* | "2 -ro "* | "2 -w "* | "2 --read"*)
    # The suite lets sweeps run fast while it stops an array, so that md's thread notices. That would be a second here,
    # which is a sweep of the whole array: limits stay.
    carry # before the files go
    case " $* " in
    *scan* | *" -Ss"*) for file in "$ADAPTER"/*.nbd; do [ ! -e "$file" ] || detach "$(basename "$file" .nbd)"; done ;;
    *)
        for word in "$@"; do
            case $word in
            -*) ;;
            *) for file in "$ADAPTER"/*.nbd; do ! is_of "$word" "$file" || detach "$(basename "$file" .nbd)"; done ;;
            esac
        done
        ;;
    esac
    ;;
*) limit ;;
esac

said=$(mktemp -p "$ADAPTER")
"$MDSPACE" mdadm "$@" 2>"$said"
status=$?
cat "$said" >&2
[ $status != 2 ] || ! grep -q ': not yet\|: not here' "$said" || refused "mdadm $*: $(head -n 1 "$said")"
rm -f "$said"

# What changes no array needs no device.
case " $* " in
*" --zero"* | *" -E"* | *" --examine"* | *" -X"* | *" -D"* | *" --detail"* | *" -V"*) ;;
*) follow ;;
esac
exit $status
