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
