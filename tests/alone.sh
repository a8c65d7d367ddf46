#!/bin/bash
# The static command where nothing else is: in the root of its container image. That root is read-only, and the user is
# nobody. Members and sockets are in /disks, which the host shares; clients are the host's.
#
#   alone.sh ARCHIVE DIRECTORY    with the image, as an OCI archive; as root
#
# The same story is told three times: with what the kernel allows, with io_uring refused as in containers, and without
# any system call that Linux 3.10 lacks.
set -euo pipefail
archive=$1
tests=$(cd "$(dirname "$0")" && pwd)
cd "$2"
step() { echo "--- $*"; }

step "the image holds the command and nothing else"
store=(--root "$PWD/store" --runroot "$PWD/run" --storage-driver vfs)
image=$(buildah "${store[@]}" pull --quiet "oci-archive:$archive")
container=$(buildah "${store[@]}" from "$image")
place=$(buildah "${store[@]}" mount "$container")
[ "$(cd "$place" && find . -mindepth 1 | sort | xargs)" = "./disks ./mdspace" ]
[ "$(buildah "${store[@]}" inspect --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.WorkingDir}}' "$container")" \
    = "[/mdspace] /disks" ]

# Runs the command inside, behind the filter of this story: a user without rights or groups, in a root that is read-only.
mkdir disks
chown 65534:65534 disks
enter='mount --bind "$1" "$1" && mount --bind "$2" "$1/disks"
if [ -d "$1/dev" ]; then mount --bind /dev "$1/dev"; fi
mount -o remount,bind,ro "$1"
exec env -i /usr/sbin/chroot --groups= --userspec=65534:65534 "$1" /mdspace "${@:3}"'
inside() {
    "${filter[@]}" unshare --mount --propagation private bash -ec "$enter" enter "$place" "$PWD/disks" "$@"
}

# Waits until the server answers; fails when it has ended instead.
wait_for_server() {
    until nbdinfo --size "$1" >/dev/null 2>&1; do
        kill -0 "$server" || { echo "the server ended"; exit 1; }
    done
}

head -c 3000000 /dev/urandom >data
bytes=$(stat -c %s data)
uri="nbd+unix:///?socket=$PWD/disks/nbd"
members=(/disks/a /disks/b /disks/c /disks/d)

# One story; "$1" is what `status` has to say about the way to the members.
story() {
    inside create --level 6 --chunk 64K --size 16M "${members[@]}"
    [ "$(stat -c %u disks/a)" = 65534 ]
    inside write "${members[@]}" --offset 12345 <data
    inside read /disks/a /disks/d --offset 12345 --length "$bytes" | cmp - data
    inside examine "${members[@]}" | grep 'raid6, 4 slots' | wc -l | grep -qx 4
    inside detect "${members[@]}" | grep -q raid6
    inside scrub "${members[@]}" 2>&1 | tee scrubbed
    grep -q 'all that was compared agrees' scrubbed

    inside serve "${members[@]}" --nbd unix:/disks/nbd --control /disks/control 2>log &
    server=$!
    wait_for_server "$uri"
    nbdcopy data "$uri"
    inside fail /disks/b --control /disks/control
    nbdcopy "$uri" out
    cmp -n "$bytes" data out
    inside status --control /disks/control | tee status
    grep -q "$1" status
    inside stop --control /disks/control
    wait "$server"
    # Nothing is written outside of /disks, as nothing there can be.
    inside read /disks/a /disks/d --length "$bytes" | cmp - data
    rm -f disks/* out
}

server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true' EXIT

filter=(env)
step "as the kernel allows"
inside --version
story "io by"

step "through TLS"
mkdir certificates
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=localhost -days 2 \
    -addext subjectAltName=DNS:localhost -keyout certificates/server-key.pem -out certificates/server-cert.pem 2>/dev/null
cp certificates/server-cert.pem certificates/ca-cert.pem
cp -r certificates disks/
chown -R 65534:65534 disks
inside create --level 1 --size 16M /disks/a /disks/b
inside serve /disks/a /disks/b --nbd tcp:127.0.0.1:0 --control /disks/control --tls require \
    --tls-certificates /disks/certificates 2>log &
server=$!
until inside status --json --control /disks/control >status 2>/dev/null; do
    kill -0 "$server" || { cat log; exit 1; }
done
port=$(jq --raw-output '.served.nbd | split(":") | last' status)
uri_tls="nbds://localhost:$port/?tls-certificates=$PWD/certificates"
nbdcopy data "$uri_tls"
nbdcopy "$uri_tls" out
cmp -n "$bytes" data out
inside stop --control /disks/control
wait "$server"
rm -rf disks/* out

step "io_uring refused"
filter=("$tests/refused.py" EPERM io_uring_setup,io_uring_enter,io_uring_register)
story "io by threads"

step "the system calls of Linux 3.10"
filter=("$tests/refused.py" ENOSYS since-linux-3.10)
# It has no getrandom, so random bytes are read from a device, which a system with such a kernel has. Without it the
# command panics, and that unwinds as it should: the status is a panic's.
status=0
inside create --level 1 --size 16M /disks/a /disks/b 2>panicked || status=$?
cat panicked
[ "$status" = 101 ]
mkdir "$place/dev"
story "io by threads"

buildah "${store[@]}" rm "$container" >/dev/null
echo "$(stat -c %s "$archive" | numfmt --to=si)B of image; three stories as nobody in a read-only root"
