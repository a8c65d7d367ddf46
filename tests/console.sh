#!/bin/bash
# The commands of a page of the book that are for a terminal, so that a test that has what they need runs them as they stand:
# of each block `console` the lines behind a prompt (# of root, $ of anybody), a continued one as one line. It runs nothing.
#
#   console.sh PAGE [--all]    with --all also what is printed there, and the prompts
set -euo pipefail
block='/^```console$/,/^```$/{/^```/d;p}'
if [ "${2:-}" = --all ]; then
    sed -n "$block" "$1"
else
    sed -n "$block" "$1" | sed ':join; /\\$/{N; s/ *\\\n */ /; b join}' | sed -n 's/^[#$] //p'
fi
