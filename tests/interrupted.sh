#!/bin/bash
# Between two guests of tests/kernel/interrupted.sh: arrays whose kernel panicked while it wrote are resynced here, as
# far as their bitmaps say, and read.
#
#   interrupted.sh MDSPACE DIRECTORY
#
# DIRECTORY holds the guests' disks m00, m01, ... and what `crash` left; model.LEVEL, the arrays' bytes, are added.
set -euo pipefail
mdspace=$1
cd "$2"
BITMAP_CHUNK=$((256 << 10))

# Bits set in a member's bitmap; the superblock of a bitmap has 256 bytes.
bits_set() {
    local at
    at=$("$mdspace" examine --json "$1" 2>/dev/null | jq '.. | .bitmap_at? // empty')
    perl -e 'open(my $f, "<", $ARGV[0]); seek($f, $ARGV[1] + 256, 0); read($f, my $bits, 7); print unpack("%32b*", $bits)' \
        "$1" "$at"
}

status() { "$mdspace" status --json --control control.socket; }

disks=(m??)
while read -r level count; do
    members=("${disks[@]:0:count}") disks=("${disks[@]:count}")
    bits=0
    for member in "${members[@]}"; do
        set=$(bits_set "$member")
        ((bits >= set)) || bits=$set
    done
    ((bits > 0 && bits < 30)) || { echo "level $level: $bits bits are set"; exit 1; }

    "$mdspace" serve "${members[@]}" --nbd "unix:$PWD/nbd.socket" --control control.socket &
    server=$!
    until status 2>&1 | jq -e .in_agreement; do
        kill -0 $server || { echo "level $level: the server ended"; exit 1; }
    done >/dev/null 2>&1
    read_bytes=$(status | jq '[.members[].read_bytes] | max')
    "$mdspace" stop --control control.socket
    wait $server
    ((read_bytes > 0 && read_bytes <= 4 * bits * BITMAP_CHUNK)) ||
        { echo "level $level: $bits bits are set, $read_bytes bytes were read"; exit 1; }

    "$mdspace" read "${members[@]}" -o model.$level --overwrite
    perl -e '
        my ($model, $size) = @ARGV;
        my ($new, $record, $records, $block) = (8 << 20, 12288, 60, 4096);
        open(my $pool, "<", "pool") or die;
        open(my $array, "<", $model) or die;
        my @begins = map { int($size * $_ / 4 / $block) * $block } 1 .. 3;
        my @written = (0) x 3;
        for (my $at = 0; $at < $size; $at += $block) {
            read($array, my $found, $block);
            my ($writer) = grep { $at >= $begins[$_] && $at < $begins[$_] + $records * $record } 0 .. 2;
            my ($old) = map { seek($pool, $_, 0); read($pool, my $bytes, length $found); $bytes } $at;
            my ($late) = map { seek($pool, $_, 0); read($pool, my $bytes, length $found); $bytes } $new + $at;
            my $right = $at < 1 << 20 ? $found eq $late : $found eq $old;
            if (defined $writer && $found eq $late) { $right = 1; $written[$writer]++ }
            die "byte $at of $model is wrong\n" unless $right;
        }
        print "blocks that were overwritten: @written\n";' model.$level "$(<size.$level)"
    echo "level $level: $bits bits, $((read_bytes >> 10)) KiB read of each member"
done <<'LEVELS'
1 2
5 4
6 5
10 4
LEVELS
