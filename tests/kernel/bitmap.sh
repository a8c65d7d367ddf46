#!/bin/bash
# Write-intent bitmaps that mdspace and the real driver take from each other: on the members and in a file, cleared
# lazily, added to an array in use and removed from it.
#
#   bitmap.sh MDSPACE
#
# Runs in a guest (tests/kernel/init.sh); what happens when a server is killed is in interrupted.sh, but for files.
set -euo pipefail
export MDADM_NO_UDEV=1
mdspace=$1
modprobe loop max_loop=8
for module in nbd ext4 raid1 raid10 raid456; do modprobe $module; done
md=/sys/block/md0/md
MEMBER_BYTES=$((16 << 20))
cd "$SCRATCH"

fail() {
    echo "FAILED: $what: $*"
    cat /proc/mdstat
    for member in "${members[@]}"; do mdadm --examine "$member" || true; done
    dmesg | tail -n 15
    exit 1
}

exec {silence}<> <(:) # reading from it with a time limit waits without starting a program

# until_true COMMAND...: waits for a state that something else brings about; a minute at most.
until_true() {
    local tries=0
    until "$@"; do
        read -rt 0.05 -u "$silence" || true
        ((++tries < 1200)) || fail "never came true: $*"
    done
}

is() { [ "$(<"$1")" = "$2" ]; }

# fresh COUNT: empty members.
fresh() {
    losetup --detach-all
    members=()
    for ((number = 0; number < $1; number++)); do
        truncate -s 0 m$number
        truncate -s $MEMBER_BYTES m$number
        losetup /dev/loop$number m$number
        members+=(/dev/loop$number)
    done
}

# field PLACE NAME: what mdadm says of the bitmap there.
field() { mdadm --examine-bitmap "$1" | sed -n "s/^ *$2 : //p"; }
# As counted by mdadm in what is on stable storage now.
dirty() { field "$1" Bitmap | sed 's/.* \([0-9]*\) dirty.*/\1/'; }
bits() { field "$1" Bitmap | sed 's/ bits.*//'; }
is_clean() { [ "$(dirty "$1")" = 0 ]; }
is_dirty() { ! is_clean "$1"; }

released() { perl -MFcntl -e 'sysopen(my $f, $_, O_RDWR | O_EXCL) or exit 1 for @ARGV' "${members[@]}"; }

# serve ARGUMENT...: with /dev/nbd0 connected.
serve() {
    "$mdspace" serve "${members[@]}" --nbd "unix:$PWD/nbd.socket" --control control.socket "$@" >serving 2>&1 &
    server=$!
    until nbdinfo --size "nbd+unix:///?socket=$PWD/nbd.socket" >/dev/null 2>&1; do
        kill -0 $server || { cat serving; fail "the server ended"; }
    done
    nbd-client -unix "$PWD/nbd.socket" /dev/nbd0 -block-size 4096 >/dev/null
}

# ended: the server has let go of everything.
ended() {
    nbd-client -d /dev/nbd0 >/dev/null
    kill -TERM $server
    wait $server || fail "the server ended with status $?"
    until_true released
}

killed() {
    kill -KILL $server
    nbd-client -d /dev/nbd0 >/dev/null
    wait $server 2>/dev/null || true
    until_true released
}

# put AT DEVICE: a MiB, noted in `model` as well.
put() {
    head -c $((1 << 20)) /dev/urandom >mib
    dd if=mib of="$2" bs=64K oflag=direct,seek_bytes seek="$1" conv=notrunc status=none
    dd if=mib of=model bs=64K oflag=seek_bytes seek="$1" conv=notrunc status=none
}

# taken ARGUMENT...: md takes the array, finds nothing to resync, no mismatch, and the model's bytes.
taken() {
    dmesg --clear
    mdadm --assemble --quiet /dev/md0 "$@" "${members[@]}" || fail "not assembled"
    is $md/degraded 0 || fail "degraded"
    if is $md/array_state read-auto; then mdadm --readwrite --quiet /dev/md0; fi
    until_true is $md/sync_action idle
    if dmesg | grep -q 'resync of RAID'; then fail "resynced"; fi
    checked
}

checked() {
    echo check >$md/sync_action
    until_true is $md/sync_action idle
    is $md/mismatch_cnt 0 || fail "mismatch_cnt is $(<$md/mismatch_cnt)"
    cmp -n "$(stat -c %s model)" model /dev/md0 || fail "other bytes"
}

stopped() { mdadm --stop --quiet /dev/md0; }

# agrees PLACE CHUNK_KIB BITS: a bitmap as mdadm makes it, with no bit set.
agrees() {
    [ "$(field "$1" State)" = OK ] || fail "state is $(field "$1" State)"
    [ "$(field "$1" Chunksize)" = "$2" ] || fail "chunk is $(field "$1" Chunksize)"
    [ "$(bits "$1")" = "$3" ] || fail "$(bits "$1") bits, not $3"
    is_clean "$1" || fail "$(dirty "$1") bits are set"
}

# Added to an array in use, taken by md, and removed again.
added_and_removed() {
    what="level $1, metadata $2: added and removed"
    local chunk=() size
    [ "$1" = 1 ] || chunk=(--chunk 64K)
    fresh 4
    "$mdspace" create --level "$1" --metadata "$2" "${chunk[@]}" --assume-clean "${members[@]}" >/dev/null
    truncate -s 0 model
    truncate -s 4M model
    serve
    put 0 /dev/nbd0
    "$mdspace" set bitmap=internal:64K --control control.socket | grep -q '64 KiB chunk' || fail "no bitmap in the status"
    put $((1 << 20)) /dev/nbd0
    is_dirty "${members[0]}" || fail "no bit is set"
    ended
    size=$(field "${members[0]}" 'Sync Size' | sed 's/ .*//')
    for member in "${members[@]}"; do agrees "$member" '64 KB' $(((size + 63) / 64)); done
    taken
    grep -q 'bitmap: ' /proc/mdstat || fail "md has no bitmap"
    put $((2 << 20)) /dev/md0
    stopped
    serve
    put $((3 << 20)) /dev/nbd0
    "$mdspace" set bitmap=none --control control.socket >/dev/null
    put 0 /dev/nbd0
    ended
    for member in "${members[@]}"; do
        if mdadm --examine "$member" | grep -q 'Internal Bitmap'; then fail "$member still has one"; fi
    done
    taken
    stopped
}

# What md made and left full of ones is cleared while it is served, after md's own delay.
cleared_lazily() {
    what="cleared lazily"
    fresh 2
    mdadm --create /dev/md0 --quiet --run --level=1 --raid-devices=2 --assume-clean --bitmap=internal \
        --bitmap-chunk=64K --delay=1 "${members[@]}"
    truncate -s 0 model
    truncate -s 4M model
    put $((1 << 20)) /dev/md0
    stopped
    serve
    put 0 /dev/nbd0
    put $((3 << 20)) /dev/nbd0
    until_true is_clean "${members[1]}"
    killed # an array at rest is clean, and so is its bitmap
    agrees "${members[0]}" '64 KB' "$(bits "${members[1]}")"
    taken
    stopped
}

# A file that we made is md's, and the other way round; one that missed writes is not believed.
in_a_file() {
    what="in a file"
    fresh 3
    truncate -s 16M filesystem
    mke2fs -q -t ext2 filesystem # where md can find a file's blocks
    mkdir -p mounted
    mount -o loop filesystem mounted
    local file=$PWD/mounted/bitmap theirs=$PWD/mounted/theirs read
    "$mdspace" create --level 5 --chunk 64K --assume-clean --bitmap "$file" --bitmap-chunk 64K "${members[@]}" >/dev/null
    agrees "$file" '64 KB' 240
    truncate -s 0 model
    truncate -s 4M model
    serve --bitmap "$file"
    put 0 /dev/nbd0
    ended
    taken --bitmap="$file"
    grep -q "file: $file" /proc/mdstat || fail "md has no file"
    put $((1 << 20)) /dev/md0
    stopped

    # Killed in the middle: md resyncs what the file names.
    serve --bitmap "$file"
    # Without a pause, in which the array would become clean.
    perl -MFcntl=:DEFAULT,:seek -e 'sysopen(my $f, "/dev/nbd0", O_WRONLY | O_SYNC) or die; my $b = "x" x 65536;
        for (my $i = 0; ; $i++) { sysseek($f, (2 << 20) + $i % 16 * 65536, SEEK_SET); syswrite($f, $b) or exit }' &
    writer=$!
    until_true is_dirty "$file"
    killed
    wait $writer || true
    dmesg --clear
    read=$(awk '{ print $3 }' /sys/block/loop0/stat)
    mdadm --assemble --quiet /dev/md0 --bitmap="$file" "${members[@]}" || fail "not assembled"
    if is $md/array_state read-auto; then mdadm --readwrite --quiet /dev/md0; fi
    until_true is $md/sync_action idle
    dmesg | grep -q 'resync of RAID' || fail "not resynced"
    read=$((($(awk '{ print $3 }' /sys/block/loop0/stat) - read) / 2))
    ((read < MEMBER_BYTES / 2048)) || fail "$read KiB were read for a MiB of bits"
    put $((2 << 20)) /dev/md0
    checked
    stopped

    # Written to without its file: that is out of date then, for md and for us.
    head -c $((1 << 20)) /dev/urandom >mib
    "$mdspace" write "${members[@]}" <mib
    dd if=mib of=model conv=notrunc status=none
    (($(field "$file" Events) < $(mdadm --examine "${members[0]}" | sed -n 's/.*Events : //p'))) || fail "up to date"
    "$mdspace" write "${members[@]}" --bitmap "$file" <mib
    taken --bitmap="$file"
    stopped

    # One that md made, shorter than a block.
    fresh 2
    mdadm --create /dev/md0 --quiet --run --level=1 --raid-devices=2 --assume-clean --bitmap="$theirs" \
        --bitmap-chunk=64K "${members[@]}"
    put 0 /dev/md0
    stopped
    truncate -s 0 model
    truncate -s 1M model
    dd if=mib of=model conv=notrunc status=none
    serve --bitmap "$theirs"
    "$mdspace" status --control control.socket | grep -q "file: $theirs" || fail "no file in the status"
    put 0 /dev/nbd0
    ended
    agrees "$theirs" '64 KB' "$(bits "$theirs")"
    taken --bitmap="$theirs"
    stopped
    umount mounted
}

for metadata in 1.0 1.1 1.2; do added_and_removed 5 $metadata; done
added_and_removed 1 1.2
added_and_removed 10 1.2
cleared_lazily
in_a_file
losetup --detach-all
echo "bitmaps added, removed, cleared lazily and kept in files, by mdspace and md in turn"
