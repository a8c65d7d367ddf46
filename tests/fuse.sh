#!/bin/bash
# An array as a file: real file systems through a loop device on it, with NBD open at the same time; afterwards fsck, and
# the same bytes whichever member is left out, which is to say that parity is right. And all of it without root, but the
# loop device. At the end the commands that docs/fuse.md has for root.
#
#   fuse.sh MDSPACE DIRECTORY
set -euo pipefail
# In a mount namespace of its own: one that another test makes meanwhile would hold a copy of what is mounted here, and the
# file system would stay in use when it is unmounted.
if [ -z "${ALONE:-}" ]; then exec env ALONE=1 unshare --mount --propagation private "$0" "$@"; fi
command=$1 mdspace=$1 directory=$2 root=$(cd "$(dirname "$0")/.." && pwd)
cd "$directory"
members=(m0 m1 m2)
loop=

step() { echo "--- $*"; }

end() {
    if mountpoint -q mounted 2>/dev/null; then umount mounted; fi
    if [ -n "$loop" ]; then detach; fi
    kill "$server" 2>/dev/null || true
}

# Detaches the loop device, and waits until its driver has let go of the file: it does so when the device is last closed.
detach() {
    losetup -d "$loop"
    for _ in {1..300}; do
        if ! [ -e "/sys/block/${loop#/dev/}/loop/backing_file" ]; then
            loop=
            return
        fi
        sleep 0.1
    done
    echo "$loop is still attached half a minute after it was detached: $(fuser -v "$loop" 2>&1)"
    return 1
}

# Runs a checker, of which only a complaint is worth reading.
sound() {
    if ! "$@" >said 2>&1; then
        echo "$*:"
        cat said
        return 1
    fi
}

# Starts the server as $1, and waits until it says that it serves.
serve() {
    exec {said}< <(exec "$@" "$mdspace" serve "${members[@]}" --fuse fuse --nbd unix:nbd.socket --control control.socket)
    server=$!
    while read -r line <&"$said"; do
        if [[ $line == *control* ]]; then return; fi
    done
    exit 1
}

stop() {
    "$mdspace" stop --control control.socket
    wait "$server"
    [ -z "$(ls fuse)" ]
}

step "the file, read and written like any other"
mkdir fuse mounted
"$mdspace" create --level 5 --chunk 64K --size 168M "${members[@]}"
serve env
trap end EXIT
file=fuse/array
bytes=$(stat -c %s $file)
[ "$bytes" = "$(nbdinfo --size "nbd+unix:///?socket=$PWD/nbd.socket")" ]
head -c 3000001 /dev/urandom >random
dd if=random of=$file bs=1M seek=12345 oflag=seek_bytes conv=notrunc,fsync status=none
cmp -n 3000001 -i 12345:0 $file random
# Every range within the file can be zeroed; nothing beyond its end is there, and its size is what it is.
fallocate --punch-hole --offset 20000 --length 100001 $file
cmp -n 100001 -i 20000:0 $file /dev/zero
fallocate --zero-range --keep-size --offset 200000 --length 10 $file
cmp -n 10 -i 200000:0 $file /dev/zero
if truncate -s 1M $file 2>/dev/null; then exit 1; fi
if dd if=random of=$file bs=1 count=1 seek="$bytes" conv=notrunc status=none 2>/dev/null; then exit 1; fi
if touch fuse/other 2>/dev/null; then exit 1; fi
fio --name=verify --filename=$file --ioengine=io_uring --direct=1 --rw=randrw --bsrange=512-256k --iodepth=16 --numjobs=2 \
    --size=8M --offset_increment=16M --verify=crc32c --verify_fatal=1 --verify_state_save=0 --minimal >/dev/null

for type in ext4 xfs btrfs; do
    step "$type through a loop device"
    loop=$(losetup --show --find --direct-io=on $file)
    case $type in
    ext4) mkfs.ext4 -q -F -E nodiscard "$loop" ;;
    xfs) mkfs.xfs -q -f -K "$loop" ;;
    btrfs) mkfs.btrfs -q -f -K "$loop" ;;
    esac
    mount -t $type "$loop" mounted
    cp -r "$root/crates" "$root/docs" mounted/
    rm -r mounted/crates/parity
    fstrim mounted 2>/dev/null || echo "no trim here"
    sync
    umount mounted
    case $type in
    ext4) sound e2fsck -fn "$loop" ;;
    xfs) sound xfs_repair -n "$loop" ;;
    btrfs) sound btrfs check "$loop" ;;
    esac
    detach
    # What the loop device wrote is what the other way in reads.
    nbdcopy "nbd+unix:///?socket=$PWD/nbd.socket" copy
    cmp copy $file
done
stop

step "parity"
sum=$("$mdspace" read "${members[@]}" | sha256sum)
[ "$sum" = "$(sha256sum <copy)" ]
for out in "${members[@]}"; do
    [ "$("$mdspace" read $(printf '%s\n' "${members[@]}" | grep -vx "$out") | sha256sum)" = "$sum" ]
done

# Not as nobody: memory that a user may lock is one account, and tests/unprivileged.py has nobody's to the last page.
step "without root"
as_daemon() { setpriv --reuid daemon --regid daemon --clear-groups "$@"; }
place=$(mktemp -d)
cp --sparse=always "$mdspace" "${members[@]}" "$place"
mdspace=$place/${mdspace##*/}
cd "$place"
mkdir fuse
chown -R daemon .
serve setpriv --reuid daemon --regid daemon --clear-groups
[ "$(as_daemon sha256sum $file | cut -d" " -f1)" = "${sum%% *}" ]
# What it shows is its owner's alone.
if ls fuse >/dev/null 2>&1; then exit 1; fi
as_daemon "$mdspace" stop --control control.socket
wait "$server"
cd "$directory"
rm -r "$place"

step "the page's commands for root"
mdspace=$command
export XDG_RUNTIME_DIR=$PWD
mkdir here
# What the page calls /dev/sd[b-e], /srv/here and /mnt is here: the members, which hold btrfs, and two directories.
"$root/tests/console.sh" "$root/docs/fuse.md" >page
[ "$(wc -l <page)" = 3 ]
while read -r line <&4; do
    line=${line//'/dev/sd[b-e]'/$PWD/m?}
    line=${line//'/srv/here'/$PWD/here}
    line=${line//'/mnt'/$PWD/mounted}
    line=${line//'/dev/loop0'/$loop}
    if [[ $line == */dev/sd* ]]; then exit 1; fi
    echo "$line"
    case $line in
    mdspace*' &')
        read -ra words <<<"${line% &}"
        exec {said}< <(exec "$mdspace" ${words[@]:1})
        server=$!
        while read -r said_line <&"$said"; do
            if [[ $said_line == *control* ]]; then break; fi
        done
        ;;
    losetup*) loop=$($line) ;;
    *) $line ;;
    esac
done 4<page
cmp mounted/docs/fuse.md "$root/docs/fuse.md"
umount mounted
detach
"$mdspace" stop
wait "$server"
[ -z "$(ls here)" ]
echo "ext4, xfs and btrfs through a loop device, the file without root, and the page's commands"
