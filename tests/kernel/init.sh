#!/bin/bash
# The first and only process of a guest: mounts what a script needs, runs it, stops the guest.
#
# The guest's root is the host's file system (hostfs), read-write. In emulation it is the tree of another system,
# read-only, with the host's workspace in it (initrd.sh). The launcher (xtask/src/guest.rs) names its
# working directory in $mdspace_guest, which the kernel passes on from its command line:
#   argv    NUL-separated: directory to start in, then the script and its arguments
#   out     receives what the script prints
#   status  receives its exit status; its absence means that the guest did not get that far
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

mountpoint -q /proc || mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd # bash's process substitution
ip link set lo up 2>/dev/null

# Debian keeps UML's modules beside those of the host's kernel, and the launcher knows where; modprobe wants them under
# lib/modules.
mkdir -p /run/uml/lib/modules
ln -s "$mdspace_modules/$(uname -r)" "/run/uml/lib/modules/$(uname -r)"
# It would not look there by itself, and md has it look for a level's at each start of an array.
echo >/proc/sys/kernel/modprobe
modprobe() { command modprobe -d /run/uml "$@"; }
export -f modprobe

# Several guests share the host's /tmp: what a script needs only while it runs goes to this one.
export SCRATCH=/run/scratch
mkdir -p "$SCRATCH"

# Disks given by -d, in order.
DISKS=$(find /dev -maxdepth 1 \( -name 'ubd[a-p]' -o -name 'vd[a-p]' \) | sort | tr '\n' ' ')
export DISKS=${DISKS% }

mapfile -d '' -t argv <"$mdspace_guest/argv"
if cd "${argv[0]}"; then
    bash "${argv[@]:1}" >"$mdspace_guest/out" 2>&1 </dev/null
    echo $? >"$mdspace_guest/status"
fi
sync
# A guest in emulation has no halt(8), and would not end by it.
if command -v halt >/dev/null; then halt -f; else busybox poweroff -f; fi
