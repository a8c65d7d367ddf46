#!/bin/bash
# The README's first command, as a newcomer types it: `cargo run --release -- up`, twice, in an empty directory.
#
#   readme.sh DIRECTORY
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$1"
export XDG_RUNTIME_DIR=$PWD XDG_STATE_HOME=$PWD/state

# Starts it and waits until it has said where it listens.
up() {
    exec {said}< <(exec cargo run --quiet --release --manifest-path "$root/Cargo.toml" -- up)
    server=$!
    uri=
    while [ -z "$uri" ] && read -r line <&"$said"; do
        echo "$line"
        if [[ $line =~ nbd\+unix:[^\ \'\"]* ]]; then uri=${BASH_REMATCH[0]}; fi
    done
    [ -n "$uri" ]
}

stop() {
    "$root/target/release/mdspace" stop
    cat <&"$said"
    wait "$server"
}

up
nbdinfo "$uri"
head -c 10M /dev/urandom >bytes
nbdcopy bytes "$uri"
stop
up
nbdcopy "$uri" out
cmp -n "$(stat -c %s bytes)" bytes out
stop
echo "made, written, stopped, and found again"
