#!/bin/bash
# The story of one array: a file system with real files goes in over NBD, a member is failed, the bytes come out
# identical, and the kernel's md takes the result (tests/kernel/end_to_end.sh does that part).
#
#   end_to_end.sh MDSPACE DIRECTORY
#
# Leaves in DIRECTORY: members m0 ... m3, the file system `image` as it was written last, and the files in `tree`.
set -euo pipefail
mdspace=$1 directory=$2
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$directory"
uri="nbd+unix:///?socket=$PWD/nbd.socket"
members=(m0 m1 m2 m3)

step() { echo "--- $*"; }

# Waits until the server answers; fails when it has ended instead.
wait_for_server() {
    until nbdinfo --size "$uri" >/dev/null 2>&1; do
        kill -0 "$server" || { echo "the server ended"; exit 1; }
    done
}

step "real files in an ext4 image"
mkdir tree
cp -r "$root/crates" "$root/tests" "$root/Cargo.lock" tree/
cp -L /usr/bin/bash /usr/bin/perl tree/
ln -s bash tree/link
mkdir tree/empty && : >tree/empty/nothing
mke2fs -q -t ext4 -d tree image 40M

step "an array of four members, served"
"$mdspace" create --level 5 --chunk 64K --size 24M "${members[@]}"
"$mdspace" serve "${members[@]}" --nbd "unix:$PWD/nbd.socket" --control control.socket &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
wait_for_server
[ "$(stat -c %a nbd.socket)" = 600 ]

step "in through nbdcopy, and out again"
nbdcopy image "$uri"
nbdcopy "$uri" out && cmp -n "$(stat -c %s image)" image out
qemu-img compare -f raw -F raw "$uri" out

step "a member fails"
"$mdspace" fail m2 --control control.socket
"$mdspace" status --json --control control.socket | tee status.json | jq .
jq -e '.. | strings | select(. == "faulty")' status.json >/dev/null
nbdcopy "$uri" out && cmp -n "$(stat -c %s image)" image out

step "written while degraded"
qemu-io -f raw -c 'write -P 0x5a 30M 3M' -c 'write -P 0xa5 39000064 1024' -c flush "$uri"
qemu-io -f raw -c 'read -P 0x5a 30M 3M' -c 'read -P 0xa5 39000064 1024' "$uri" | tee patterns
! grep -q 'verification failed' patterns
mke2fs -q -F -t ext4 -d tree image 40M # a whole new file system over it
nbdcopy image "$uri"
nbdcopy "$uri" out && cmp -n "$(stat -c %s image)" image out

step "stopped; the failed member is left out when all are given"
"$mdspace" stop --control control.socket
wait "$server"
trap - EXIT
"$mdspace" read "${members[@]}" -o out --overwrite && cmp -n "$(stat -c %s image)" image out
e2fsck -fn out
rm out patterns
