#!/bin/bash
# /proc/mdstat for mdadm's own suite: what `mdspace mdstat` prints, once devices and files follow the arrays (devices.sh).
. "$ADAPTER/devices.sh"
follow
exec "$MDSPACE" mdstat
