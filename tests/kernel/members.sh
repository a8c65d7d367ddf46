# What scenes share in which members of a served array, or of the driver's, leave and come while it is written to.
#
# Sourced behind common.sh. Needs the files `pool`, of 16 MiB or more, and `model`.

SLOWLY=2M SLOWLY_KIB=2000 # a second: what is begun is not over before it is left

# poke OFFSET_KIB: what is written there next, of the model and of the array.
POKE_BYTES=$((160 << 10))
poke_model() { hand copy pool $((($1 / 4 * 7 + 13) % 4000 * 4096)) model $(($1 << 10)) $POKE_BYTES; }
poke_md() {
    poke_model "$1"
    hand copy model $(($1 << 10)) /dev/md0 $(($1 << 10)) $POKE_BYTES sync || fail "md does not take it: $told"
}
poke_served() {
    poke_model "$1"
    hand send model $(($1 << 10)) $POKE_BYTES || fail "our server does not take it: $told"
}

slow_md_down() {
    echo $SLOWLY_KIB >$md/sync_speed_max
    echo $SLOWLY_KIB >$md/sync_speed_min
}
md_lets_go_of() { # MEMBER...
    mdadm --fail --quiet /dev/md0 "$@"
    until_true mdadm --remove --quiet /dev/md0 "$@" 2>/dev/null
}
is_beyond() { [ "$(sed -n 's/ \/.*//p' $md/sync_completed)" != "" ] && [ "$(sed 's/ .*//' $md/sync_completed)" -gt "$1" ]; }

control() { "$mdspace" "$@" --control control.socket >said 2>&1 || fail "refused: $*: $(<said)"; }
is_whole() { says 'in_sync == raid_disks'; }

# The verdict: md assembles what is given, all slots current, nothing to do, nothing amiss.
judged() { # MEMBER...
    found_whole "$@"
    stop_md
}
