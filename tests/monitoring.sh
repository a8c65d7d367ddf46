#!/bin/bash
# What watches arrays, by the tools that will: promtool takes the metrics and lets each alert fire, and systemd takes the
# units.
#
#   monitoring.sh MDSPACE PROMTOOL DIRECTORY
set -euo pipefail
mdspace=$(realpath "$1") promtool=$(realpath "$2")
root=$(realpath "$(dirname "$0")/..")
cd "$3"
export XDG_RUNTIME_DIR=$PWD XDG_STATE_HOME=$PWD/state

"$promtool" check rules "$root/dist/prometheus-rules.yml"
"$promtool" test rules "$root/tests/alerts.yml"

"$mdspace" create --level 5 --chunk 64K --bitmap internal --integrity --size 16M --name watched a b c
"$mdspace" serve a b c --nbd unix:nbd --control control >greeting &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
until grep -q '^  control' greeting; do kill -0 $server; done
head -c 1M /dev/urandom >data
nbdcopy --flush data 'nbd+unix:///?socket=nbd'
"$mdspace" scrub --control control
"$mdspace" set sync-speed-min=64K sync-speed-max=64K --control control
"$mdspace" scrub --no-wait --control control
until curl --silent --fail --unix-socket control http://mdspace/metrics | tee metrics | grep -q '^mdspace_sweep_held'; do :; done
"$promtool" check metrics <metrics
"$mdspace" stop --control control
wait $server

# The units in a tree as the package installs it: every line is known, and the exposure is below 3 of 10.
units=tree/usr/lib/systemd/system
mkdir -p tree/usr/bin $units
ln "$mdspace" tree/usr/bin/mdspace 2>/dev/null || cp "$mdspace" tree/usr/bin/mdspace
cp "$(command -v flock)" tree/usr/bin/
cp "$root"/dist/*.{service,socket,timer} $units
count=0
for unit in $units/*; do
    name=$(basename "${unit/@/@watched}")
    systemd-analyze verify --root="$PWD/tree" --man=no --recursive-errors=no "$name" >verified 2>&1 && [ ! -s verified ] || { cat verified; exit 1; }
    case $unit in
    *.service) systemd-analyze security --offline=yes --threshold=29 "$unit" >exposure || { tail -1 exposure; exit 1; } ;;
    esac
    count=$((count + 1))
done
echo "promtool: $(grep -c '^ *- alert:' "$root/dist/prometheus-rules.yml") alerts fire, $(grep -c '^# TYPE' metrics) metrics; systemd: $count units"
