#!/bin/bash
# hand.py at hand, for a script in a guest that is in the directory where it works.
#
#   . "${BASH_SOURCE[0]%/*}/hand.sh"
#
# Its requests are made by one process of the script's at a time; what goes on beside it starts programs of its own.
coproc "${BASH_SOURCE[0]%/*}/hand.py"
exec {answers_of_hand}<&"${COPROC[0]}" {requests_to_hand}>&"${COPROC[1]}" # subshells have these as well

# hand REQUEST WORD...: what there is to say is in $told, and the status the request's.
hand() {
    local IFS=$'\t' code
    echo "$*" >&"$requests_to_hand"
    IFS=' ' read -r -u "$answers_of_hand" code told || { echo "the hand has let go: $*" && exit 1; }
    return "$code"
}
