#!/bin/bash
# The package of the static command, installed by dpkg into Debian 11, 12 and 13, which have C libraries of three ages; the
# command is used there.
#
#   places.sh PACKAGE DIRECTORY    as root; the systems come from Debian's archive
set -euo pipefail
package=$1
cd "$2"
count=0
for suite in bullseye bookworm trixie; do
    # As much of the system as dpkg needs. Nothing of it runs before.
    mmdebstrap --quiet --mode=root --variant=extract --include=base-files,dpkg,dash,coreutils,tar,diffutils,libc-bin \
        "$suite" "$suite" http://deb.debian.org/debian
    cp "$package" "$suite/mdspace.deb"
    inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$suite" "$@"; }
    inside dpkg --install /mdspace.deb
    inside dpkg --status mdspace | grep -qx 'Status: install ok installed'
    inside mdspace create --level 5 --chunk 64K --size 8M a b c
    head -c 1000000 /dev/urandom >data
    inside mdspace write a b c <data
    inside mdspace read a c --length 1000000 | cmp - data
    inside mdspace examine a b c | grep -q 'array: raid5, .*, clean'
    count=$((count + 1))
    echo "--- $suite: $(inside /lib/x86_64-linux-gnu/libc.so.6 | sed -n 1p)"
    rm -r "$suite"
done
echo "installed and used in $count versions of Debian"
