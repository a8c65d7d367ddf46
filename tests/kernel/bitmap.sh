#!/bin/bash
# Write-intent bitmaps that mdspace and the real driver take from each other: on the members and in a file, cleared
# lazily, added to an array in use and removed from it, also in exchange for a partial parity log.
#
#   bitmap.sh MDSPACE
#
# Runs in a guest (tests/kernel/init.sh); what happens when a server is killed is in interrupted.sh, but for files.
set -euo pipefail
mdspace=$1
. "$(dirname "$0")/common.sh"
for module in nbd ext4; do modprobe $module; done
MEMBER_BYTES=$((16 << 20))

where() { echo "$what"; }
evidence() { for member in "${members[@]}"; do mdadm --examine "$member" || true; done; }

is_clean() { [ "$(dirty_bits "$1")" = 0 ]; }
is_dirty() { ! is_clean "$1"; }

# taken ARGUMENT...: md takes the array, finds nothing to resync, no mismatch, and the model's bytes.
taken() {
    dmesg --clear
    mdadm --assemble --quiet /dev/md0 "$@" "${members[@]}" || fail "not assembled"
    is $md/degraded 0 || fail "degraded"
    allow_writes
    finished
    if dmesg | grep -q 'resync of RAID'; then fail "resynced"; fi
    found_well
}

found_well() {
    checked
    cmp -n "$(stat -c %s model)" model /dev/md0 || fail "other bytes"
}

# agrees PLACE CHUNK_KIB BITS: a bitmap as mdadm makes it, with no bit set.
agrees() {
    [ "$(bitmap_field "$1" State)" = OK ] || fail "state is $(bitmap_field "$1" State)"
    [ "$(bitmap_field "$1" Chunksize)" = "$2" ] || fail "chunk is $(bitmap_field "$1" Chunksize)"
    [ "$(all_bits "$1")" = "$3" ] || fail "$(all_bits "$1") bits, not $3"
    is_clean "$1" || fail "$(dirty_bits "$1") bits are set"
}

# Added to an array in use, taken by md, and removed again.
added_and_removed() {
    what="level $1, metadata $2: added and removed"
    local chunk=() size
    [ "$1" = 1 ] || chunk=(--chunk 64K)
    blank 4
    "$mdspace" create --level "$1" --metadata "$2" "${chunk[@]}" --assume-clean "${members[@]}" >/dev/null
    zeros model 4M
    serve_as_nbd0 "${members[@]}"
    put_mib 0 /dev/nbd0
    "$mdspace" set bitmap=internal:64K --control control.socket | grep -q '64 KiB chunk' || fail "no bitmap in the status"
    put_mib $((1 << 20)) /dev/nbd0
    is_dirty "${members[0]}" || fail "no bit is set"
    end_nbd0
    size=$(bitmap_field "${members[0]}" 'Sync Size' | sed 's/ .*//')
    for member in "${members[@]}"; do agrees "$member" '64 KB' $(((size + 63) / 64)); done
    taken
    grep -q 'bitmap: ' /proc/mdstat || fail "md has no bitmap"
    put_mib $((2 << 20)) /dev/md0
    stop_md
    serve_as_nbd0 "${members[@]}"
    put_mib $((3 << 20)) /dev/nbd0
    "$mdspace" set bitmap=none --control control.socket >/dev/null
    put_mib 0 /dev/nbd0
    end_nbd0
    for member in "${members[@]}"; do
        if mdadm --examine "$member" | grep -q 'Internal Bitmap'; then fail "$member still has one"; fi
    done
    taken
    stop_md
}

# policy_is NAME: on each member, by mdadm's words.
policy_is() {
    local member found
    for member in "${members[@]}"; do
        found=$(mdadm --examine "$member")
        case $1 in
            ppl) [[ $found == *" PPL : "* && $found != *"Internal Bitmap"* ]] ;;
            bitmap) [[ $found == *"Internal Bitmap"* && $found != *" PPL : "* ]] ;;
            resync) [[ $found != *"Internal Bitmap"* && $found != *" PPL : "* ]] ;;
        esac || fail "$member does not say $1"
    done
}

# policies_change MD|OURS METADATA POLICY...: an array that md or mdspace made, with a bitmap, gets one policy after the other
# while it is served. md takes it with each, writes to it, and finds nothing amiss.
policies_change() {
    local maker=$1 metadata=$2 policy at=0
    what="a bitmap by $maker, metadata $metadata, then ${*:3}"
    blank 4
    if [ "$maker" = MD ]; then
        mdadm --create /dev/md0 --quiet --run --level=5 --chunk=16 --raid-devices=4 --metadata="$metadata" \
            --assume-clean --bitmap=internal "${members[@]}"
        stop_md
    else
        "$mdspace" create --level 5 --chunk 16K --metadata "$metadata" --assume-clean --bitmap internal "${members[@]}" >/dev/null
    fi
    zeros model 6M
    for policy in "${@:3}"; do
        serve_as_nbd0 "${members[@]}"
        put_mib $((at++ % 6 << 20)) /dev/nbd0
        "$mdspace" set consistency-policy="$policy" --control control.socket >/dev/null || fail "$policy is refused"
        put_mib $((at++ % 6 << 20)) /dev/nbd0
        end_nbd0
        policy_is "$policy"
        taken
        is $md/consistency_policy "$policy" || fail "md's policy is $(<$md/consistency_policy), not $policy"
        put_mib $((at++ % 6 << 20)) /dev/md0
        found_well
        stop_md
    done
    # What mdspace turned on, mdadm turns off.
    serve_as_nbd0 "${members[@]}"
    "$mdspace" set consistency-policy=ppl --control control.socket >/dev/null
    end_nbd0
    taken
    mdadm --grow --quiet --consistency-policy=resync /dev/md0
    is $md/consistency_policy resync || fail "mdadm does not turn it off"
    put_mib 0 /dev/md0
    stop_md
    serve_as_nbd0 "${members[@]}"
    "$mdspace" set consistency-policy=bitmap --control control.socket >/dev/null
    end_nbd0
    policy_is bitmap
    taken
    stop_md
}

# state SUPERBLOCK...: the members with superblocks from `before` or `after`, and their events, as before:EVENTS.
state() {
    local number=0 file
    what="while a log is turned on: $*"
    for file in "$@"; do
        hand copy "${file%:*}$number" 0 now 0 -1 && hand events now 4096 "${file#*:}" || fail "$told"
        hand copy now 0 "${members[number]}" 0 -1 direct || fail "$told"
        ((++number))
    done
}

# interrupted_log: what a loss of power may leave of the superblocks while mdspace turns a log on. Two superblocks are made of
# each member's: the one before the change, and the one after, with the events that they have in each step.
interrupted_log() {
    local number e states
    blank 3
    "$mdspace" create --level 5 --chunk 16K --assume-clean --bitmap none "${members[@]}" >/dev/null
    zeros model 1M
    serve_as_nbd0 "${members[@]}"
    put_mib 0 /dev/nbd0
    end_nbd0
    for number in 0 1 2; do hand copy "${members[number]}" 0 "before$number" 0 -1 afresh || fail "$told"; done
    e=$(superblock_number "${members[0]}" Events)
    serve_as_nbd0 "${members[@]}"
    "$mdspace" set consistency-policy=ppl --control control.socket >/dev/null
    end_nbd0
    for number in 0 1 2; do hand copy "${members[number]}" 0 "after$number" 0 -1 afresh || fail "$told"; done
    # What the order avoids: md starts no array of which the newest superblock alone names a log.
    state after:$((e + 1)) before:$e before:$e
    if mdadm --assemble --quiet --run /dev/md0 "${members[@]}"; then fail "md takes it"; fi
    mdadm --stop --quiet /dev/md0 2>/dev/null || true
    dmesg | grep -q 'PPL space too small' || fail "md refuses it for another reason"
    for states in "resync before:$((e + 1)) before:$e before:$e" "resync before:$((e + 1)) after:$e before:$e" \
        "resync before:$((e + 1)) after:$e after:$e" "ppl after:$((e + 1)) after:$e after:$e" \
        "ppl after:$((e + 1)) after:$((e + 1)) after:$e" "ppl after:$((e + 2)) after:$((e + 1)) after:$((e + 1))"; do
        state ${states#* }
        serve "${members[@]}"
        says "consistency_policy == '${states%% *}' and in_sync == 3" || fail "we find $(status)"
        stop_serving
        state ${states#* }
        taken
        is $md/consistency_policy "${states%% *}" || fail "md's policy is $(<$md/consistency_policy)"
        stop_md
    done
}

# What md made and left full of ones is cleared while it is served, after md's own delay.
cleared_lazily() {
    what="cleared lazily"
    blank 2
    mdadm --create /dev/md0 --quiet --run --level=1 --raid-devices=2 --assume-clean --bitmap=internal \
        --bitmap-chunk=64K --delay=1 "${members[@]}"
    zeros model 4M
    put_mib $((1 << 20)) /dev/md0
    stop_md
    serve_as_nbd0 "${members[@]}"
    put_mib 0 /dev/nbd0
    put_mib $((3 << 20)) /dev/nbd0
    until_true is_clean "${members[1]}"
    kill_nbd0 # an array at rest is clean, and so is its bitmap
    agrees "${members[0]}" '64 KB' "$(all_bits "${members[1]}")"
    taken
    stop_md
}

mount_filesystem() { # KIND, where md can find a file's blocks
    rm -f filesystem
    truncate -s 16M filesystem
    mke2fs -q -t "$1" filesystem
    mkdir -p mounted
    mount -o loop filesystem mounted
}

# Added in a new file to an array in use, which md takes with the file; removed, the file says that it is out of date.
added_in_a_file() {
    what="level $1, added in a file on $2"
    local chunk=() size file=$PWD/mounted/added
    [ "$1" = 1 ] || chunk=(--chunk 64K)
    mount_filesystem "$2"
    blank 4
    "$mdspace" create --level "$1" "${chunk[@]}" --assume-clean "${members[@]}" >/dev/null
    zeros model 4M
    serve_as_nbd0 "${members[@]}"
    put_mib 0 /dev/nbd0
    "$mdspace" set "bitmap=$file:64K" --control control.socket | grep -q -- "--bitmap $file" || fail "no word of it"
    put_mib $((1 << 20)) /dev/nbd0
    is_dirty "$file" || fail "no bit is set"
    end_nbd0
    size=$(bitmap_field "$file" 'Sync Size' | sed 's/ .*//')
    agrees "$file" '64 KB' $(((size + 63) / 64))
    taken --bitmap="$file"
    grep -q "file: $file" /proc/mdstat || fail "md has no file"
    put_mib $((2 << 20)) /dev/md0
    stop_md
    serve_as_nbd0 "${members[@]}" --bitmap "$file"
    says 'bitmap.set < bitmap.bits' || fail "md's bits are not believed"
    put_mib $((3 << 20)) /dev/nbd0
    "$mdspace" set bitmap=none --control control.socket >/dev/null
    put_mib 0 /dev/nbd0
    end_nbd0
    bitmap_field "$file" State | grep -q 'Out of date' || fail "state is $(bitmap_field "$file" State)"
    taken
    stop_md
    umount mounted
}

# A file that we made is md's, and the other way round; one that missed writes is not believed.
in_a_file() {
    what="in a file"
    blank 3
    mount_filesystem ext2
    local file=$PWD/mounted/bitmap theirs=$PWD/mounted/theirs read
    "$mdspace" create --level 5 --chunk 64K --assume-clean --bitmap "$file" --bitmap-chunk 64K "${members[@]}" >/dev/null
    agrees "$file" '64 KB' 240
    zeros model 4M
    serve_as_nbd0 "${members[@]}" --bitmap "$file"
    put_mib 0 /dev/nbd0
    end_nbd0
    taken --bitmap="$file"
    grep -q "file: $file" /proc/mdstat || fail "md has no file"
    put_mib $((1 << 20)) /dev/md0
    stop_md

    # Killed in the middle: md resyncs what the file names.
    serve_as_nbd0 "${members[@]}" --bitmap "$file"
    # Without a pause, in which the array would become clean.
    perl -MFcntl=:DEFAULT,:seek -e 'sysopen(my $f, "/dev/nbd0", O_WRONLY | O_SYNC) or die; my $b = "x" x 65536;
        for (my $i = 0; ; $i++) { sysseek($f, (2 << 20) + $i % 16 * 65536, SEEK_SET); syswrite($f, $b) or exit }' &
    writer=$!
    until_true is_dirty "$file"
    kill_nbd0
    wait $writer || true
    dmesg --clear
    read=$(sectors_read "${members[0]}")
    mdadm --assemble --quiet /dev/md0 --bitmap="$file" "${members[@]}" || fail "not assembled"
    allow_writes
    finished
    dmesg | grep -q 'resync of RAID' || fail "not resynced"
    read=$((($(sectors_read "${members[0]}") - read) / 2))
    ((read < MEMBER_BYTES / 2048)) || fail "$read KiB were read for a MiB of bits"
    put_mib $((2 << 20)) /dev/md0
    found_well
    stop_md

    # Written to without its file: that is out of date then, for md and for us.
    head -c $((1 << 20)) /dev/urandom >mib
    "$mdspace" write "${members[@]}" <mib
    dd if=mib of=model conv=notrunc status=none
    (($(bitmap_field "$file" Events) < $(superblock_number "${members[0]}" Events))) || fail "up to date"
    "$mdspace" write "${members[@]}" --bitmap "$file" <mib
    taken --bitmap="$file"
    stop_md

    # One that md made, shorter than a block.
    blank 2
    mdadm --create /dev/md0 --quiet --run --level=1 --raid-devices=2 --assume-clean --bitmap="$theirs" \
        --bitmap-chunk=64K "${members[@]}"
    put_mib 0 /dev/md0
    stop_md
    truncate -s 0 model
    truncate -s 1M model
    dd if=mib of=model conv=notrunc status=none
    serve_as_nbd0 "${members[@]}" --bitmap "$theirs"
    "$mdspace" status --control control.socket | grep -q "file: $theirs" || fail "no file in the status"
    put_mib 0 /dev/nbd0
    end_nbd0
    agrees "$theirs" '64 KB' "$(all_bits "$theirs")"
    taken --bitmap="$theirs"
    stop_md
    umount mounted
}

for metadata in 1.0 1.1 1.2; do added_and_removed 5 $metadata; done
added_and_removed 1 1.2
added_and_removed 10 1.2
policies_change MD 1.2 ppl bitmap
policies_change OURS 1.1 ppl resync
interrupted_log
cleared_lazily
# Debian 13's mdadm gives the driver no bitmap files any more.
told=$(mdadm --assemble --bitmap=/nowhere /dev/md0 "${members[@]}" 2>&1 || true)
if [[ $told == *"bitmap file is not supported"* ]]; then
    files="not kept in files, for which this mdadm has no support"
else
    files="kept in files"
    added_in_a_file 5 ext2
    added_in_a_file 1 ext4
    added_in_a_file 10 ext2
    in_a_file
fi
losetup --detach-all
echo "bitmaps added, removed, exchanged for logs, cleared lazily and $files, by mdspace and md in turn"
