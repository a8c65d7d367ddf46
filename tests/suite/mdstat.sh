#!/bin/bash
# /proc/mdstat for mdadm's own suite: what `mdspace mdstat` prints, once devices and files follow the arrays (devices.sh).
#
# It is asked before new limits on sweeps take effect: the suite looks for a sweep that it just let run fast, and that
# would be over before a process starts here.
. "$ADAPTER/devices.sh"
carry
text=$("$MDSPACE" mdstat)
follow
printf '%s\n' "$text"
