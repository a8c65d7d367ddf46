#!/bin/bash
# How scripts in a guest wait for what something else brings about. None waits for a fixed time.
#
#   . "${BASH_SOURCE[0]%/*}/until.sh"    in a script that defines `fail WORD...`, which ends it
exec {silence}<> <(:) # reading from it with a time limit waits without starting a program

# until_true COMMAND...: returns once COMMAND succeeds; a minute at most, beside what COMMAND itself takes.
until_true() {
    local tries=0
    until "$@"; do
        read -rt 0.01 -u "$silence" || true
        ((++tries < 6000)) || fail "never came true: $*"
    done
}
