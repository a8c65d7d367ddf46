#!/bin/bash
# Makes the members of tests/cases/cases.py, each as the real driver leaves them in a situation that people have reported.
#
#   kernel.sh DIRECTORY CASE...        in a guest (tests/kernel/init.sh); first-half and second-half stand for so many of them
#
# DIRECTORY/CASE/mN.img   the members as the driver left them
# DIRECTORY/CASE/truth    the sha256 of the whole array, as the driver read it while it was well
# DIRECTORY/CASE/md       what md itself does with these members, an attempt a line: "LABEL<tab>OUTCOME"
#
# It judges nothing: what is right is in cases.py. The members are saved before md tries its hand at them.
set -Eeuo pipefail
export MDADM_NO_UDEV=1 # a guest has none that could answer
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
shift
modprobe loop max_loop=64
for module in raid0 raid1 raid10 raid456 dm-mod; do modprobe $module; done
# Resyncs as fast as they go; a round of the clock that md waits before it calls an array clean, as short as it can be.
echo 2000000 >/proc/sys/dev/raid/speed_limit_max
echo 1000000 >/proc/sys/dev/raid/speed_limit_min
md=/sys/block/md0/md

loop() { # loop NUMBER FILE [OPTION...]: FILE is /dev/loopNUMBER
    losetup "${@:3}" "/dev/loop$1" "$2"
}
detach() { losetup --detach-all; }
devices() { # devices NUMBER...
    local number
    for number in "$@"; do echo "/dev/loop$number"; done
}
blank() { # blank COUNT MIB: new members m0.img ..., attached
    local number
    for ((number = 0; number < $1; number++)); do
        truncate -s "$2M" "m$number.img"
        loop "$number" "m$number.img"
    done
}
reattach() { # the members as they are saved, for md to try
    local file number
    for file in "$@"; do
        number=${file#m}
        cp --sparse=always "saved/$file.img" "try$number.img"
        loop "$number" "try$number.img"
    done
}
create() { mdadm --create /dev/md0 --quiet --run "$@" && rest; }
rest() { # until md is at nothing; levels without redundancy never are at anything
    [ -e $md/sync_action ] || return 0
    until [ "$(<$md/sync_action)" = idle ]; do read -rt 0.02 -u "$silence" || true; done
}
# reshape OPTION...: a recovery that has not begun yet as the array looks idle holds it up.
reshape() {
    local tries=0
    until mdadm --quiet --grow /dev/md0 "$@" 2>/dev/null; do
        ((++tries < 200))
        read -rt 0.1 -u "$silence" || true
    done
}
exec {silence}<> <(:) # reading from it with a time limit waits without starting a program
until_is() { # until_is FILE VALUE
    until [ "$(<"$1")" = "$2" ]; do read -rt 0.02 -u "$silence" || true; done
}
clean() { until_is $md/array_state clean; }
fill() { # the whole array, with bytes of this case's own
    local key
    key=$(md5sum <<<"$case")
    openssl enc -aes-128-ctr -nosalt -K "${key:0:32}" -iv 00000000000000000000000000000000 </dev/zero 2>/dev/null |
        dd of="${1:-/dev/md0}" bs=1M oflag=direct iflag=fullblock status=none count=$(($(blockdev --getsize64 "${1:-/dev/md0}") >> 20)) || true
}
sum() { dd if="${1:-/dev/md0}" bs=1M iflag=direct status=none | sha256sum | cut -d' ' -f1; }
truth() { sum "${1:-/dev/md0}" >"truth${2:-}"; }
stop() { mdadm --stop --quiet /dev/md0 2>/dev/null || true; }
save() { # the members as they are now
    sync
    local file
    for file in m*.img; do cp --sparse=always "$file" "save.$file"; done
}
saved() { # the end of the making: what was saved, or the members themselves
    detach
    mkdir -p saved
    local file
    for file in m*.img; do
        if [ -e "save.$file" ]; then mv "save.$file" "saved/$file"; else cp --sparse=always "$file" "saved/$file"; fi
    done
    rm -f m*.img
}
# tries LABEL MDADM-ARGUMENT...: what md does with the members that are attached.
tries() {
    local outcome=refuses
    mdadm --assemble /dev/md0 --readonly "${@:2}" >/dev/null 2>&1 || true
    if [ -e $md/array_state ] && ! grep -qE 'clear|inactive' $md/array_state; then
        outcome="wrong bytes"
        case $(sum 2>/dev/null || echo error) in
            "$(<truth)") outcome="right bytes" ;;
            *error) outcome="a read error" ;;
        esac
    fi
    stop
    printf '%s\t%s\n' "$1" "$outcome" >>md
}
superblock() { python3 "$here/superblock.py" "$@"; }
absent() { # what a start without the other leaves: used and stopped again. absent MEMBER AT: writes there
    mdadm --assemble --quiet --run /dev/md0 "$1"
    write "$2"
    clean
}
write() { dd if=/dev/urandom of=/dev/md0 bs=64k count=4 seek="$1" oflag=direct status=none; }

# ---------------------------------------------------------------- the situations

second_failed() { # a RAID-5 whose third member left long ago, the fourth just now
    blank 4 24
    create --level=5 --raid-devices=4 --chunk=64 --bitmap=none $(devices 0 1 2 3)
    fill
    mdadm --quiet /dev/md0 --fail /dev/loop3
    write 64
    clean
    truth
    # It fails, and md says that it is busy. mdadm 4.4 does not even ask md.
    echo faulty 2>/dev/null >/sys/block/md0/md/dev-loop2/state || true
    until_is /sys/block/md0/md/degraded 2
    stop
    saved
    reattach m0 m1 m2 m3
    tries "plain" $(devices 0 1 2 3)
    tries "--force" --force $(devices 0 1 2 3)
}

raid0_events() { # a RAID-0 one of whose members is a dozen events behind
    blank 2 16
    create --level=0 --raid-devices=2 --chunk=64 $(devices 0 1)
    fill
    truth
    stop
    detach
    superblock m0.img events=+12
    saved
    reattach m0 m1
    tries "plain" $(devices 0 1)
    tries "--force" --force $(devices 0 1)
}

halves_even() { # a RAID-1 whose halves were used apart, equally often
    blank 2 16
    create --level=1 --raid-devices=2 $(devices 0 1)
    fill
    stop
    absent /dev/loop0 0
    truth
    stop
    absent /dev/loop1 64
    truth /dev/md0 .1
    stop
    saved
    reattach m0 m1
    tries "plain" $(devices 0 1)
}

halves_one_apart() { # the same with one event between them: power was lost on the one
    blank 2 16
    create --level=1 --raid-devices=2 $(devices 0 1)
    fill
    stop
    mdadm --assemble --quiet --run /dev/md0 /dev/loop0
    echo 100 >$md/safe_mode_delay
    write 10
    sync
    cp --sparse=always m0.img save.m0.img
    stop
    absent /dev/loop1 100
    truth
    stop
    saved
    reattach m0 m1
    tries "plain" $(devices 0 1)
}

halves_bitmap() { # with bitmaps, the one half used longer than the other
    blank 2 24
    create --level=1 --raid-devices=2 --bitmap=internal --bitmap-chunk=64K $(devices 0 1)
    fill
    clean
    stop
    absent /dev/loop0 20
    stop
    mdadm --assemble --quiet --run /dev/md0 /dev/loop1
    for at in 100 110 120; do
        write $at
        clean
    done
    truth
    stop
    saved
    reattach m0 m1
    tries "plain" $(devices 0 1)
}

absent_at_start() { # the control for these: one member was absent at a start, the other used, then power was lost
    blank 2 16
    create --level=1 --raid-devices=2 $(devices 0 1)
    fill
    stop
    mdadm --assemble --quiet --run /dev/md0 /dev/loop1
    echo 100 >$md/safe_mode_delay
    write 100
    truth
    save
    stop
    saved
    reattach m0 m1
    tries "plain" $(devices 0 1)
}

map_of() { # map_of FILE SECTOR COUNT: ddrescue's map of an image that lacks these sectors
    local bytes=$(($(stat -c %s "$1") / 512)) end=$(($2 + $3))
    printf '0 - 1\n0 %d +\n%d %d -\n%d %d +\n' $(($2 * 512)) $(($2 * 512)) $(($3 * 512)) \
        $((end * 512)) $(((bytes - end) * 512)) >"${1%.img}.map"
}

holes() { # images of two members that ddrescue could not read in places, with its maps
    blank 3 24
    create --level=5 --raid-devices=3 --chunk=64 $(devices 0 1 2)
    fill
    truth
    stop
    detach
    dd if=/dev/zero of=m1.img bs=512 seek=10000 count=64 conv=notrunc status=none
    dd if=/dev/zero of=m2.img bs=512 seek=20000 count=64 conv=notrunc status=none
    map_of m1.img 10000 64
    map_of m2.img 20000 64
    saved
    reattach m0 m1 m2
    tries "plain" $(devices 0 1 2)
}

partial_parity() { # a RAID-5 with a PPL: power was lost between data and parity, and a member with it
    blank 3 16
    create --level=5 --raid-devices=3 --chunk=64 --consistency-policy=ppl $(devices 0 1 2)
    fill
    clean
    cp --sparse=always m1.img old1.img
    echo 100 >$md/safe_mode_delay
    dd if=/dev/urandom of=/dev/md0 bs=4k count=1 seek=512 oflag=direct status=none
    truth
    save
    stop
    dd if=old1.img of=save.m1.img bs=4096 skip=768 seek=768 count=1 conv=notrunc status=none
    rm old1.img
    saved
    rm saved/m0.img
    reattach m1 m2
    tries "plain" --run $(devices 1 2)
    detach
    reattach m1 m2
    tries "--force" --force --run $(devices 1 2)
}

journal_lost() { # a RAID-5 with a journal, stopped clean; the journal is gone
    blank 4 40
    create --level=5 --raid-devices=3 --chunk=64 --write-journal /dev/loop3 $(devices 0 1 2)
    fill
    sync
    truth
    stop
    saved
    rm saved/m3.img
    reattach m0 m1 m2
    tries "plain" $(devices 0 1 2)
    tries "--force" --force $(devices 0 1 2)
}

logged_bad() { # a stripe in the bad-block logs of two members, whose medium is fine
    blank 3 24
    create --level=5 --raid-devices=3 --chunk=64 $(devices 0 1 2)
    fill
    truth
    for member in loop0 loop1; do echo "4096 8" >$md/dev-$member/bad_blocks; done
    dd if=/dev/md0 of=first bs=4k count=1 iflag=direct status=none
    dd if=first of=/dev/md0 bs=4k count=1 oflag=direct status=none # a write, with which md writes the logs
    rm first
    clean
    stop
    saved
    reattach m0 m1 m2
    tries "plain" $(devices 0 1 2)
}

disk_error_flag() { # the last copy of a RAID-1, which a NAS maker's flag calls disk error
    blank 2 16
    create --level=1 --raid-devices=2 $(devices 0 1)
    fill
    truth
    mdadm --quiet /dev/md0 --fail /dev/loop0
    until_is $md/degraded 1
    stop
    detach
    superblock m1.img role1=0x8001
    saved
    rm saved/m0.img
    reattach m1
    tries "plain" --run /dev/loop1
    tries "--force" --force --run /dev/loop1
}

huge_and_old() { # superblocks 0.90 on members above 2 TiB; truth is of the last 2 MiB
    blank 3 $((3 << 20))
    create --assume-clean --metadata=0.90 --level=5 --chunk=64 --raid-devices=3 $(devices 0 1 2)
    local last=$((($(blockdev --getsize64 /dev/md0) >> 20) - 2))
    dd if=/dev/urandom of=/dev/md0 bs=1M count=2 seek=$last oflag=direct status=none
    dd if=/dev/md0 bs=1M skip=$last count=2 iflag=direct status=none | sha256sum | cut -d' ' -f1 >truth
    stop
    detach
    mkdir -p saved
    mv m*.img saved
}

other_byte_order() { # superblocks 0.90 of a big-endian NAS
    blank 3 16
    create --metadata=0.90 --level=5 --chunk=64 --raid-devices=3 $(devices 0 1 2)
    fill
    truth
    stop
    detach
    for number in 0 1 2; do superblock --swap "m$number.img"; done
    saved
    reattach m0 m1 m2
    tries "plain" $(devices 0 1 2)
    tries "--update=byteorder" --update=byteorder $(devices 0 1 2)
}

logical_blocks() { # Linux 6.19 notes the size of a logical block
    blank 3 16
    create --level=5 --chunk=64 --raid-devices=3 $(devices 0 1 2)
    fill
    truth
    stop
    detach
    for number in 0 1 2; do superblock "m$number.img" logical_block_size=4096; done
    saved
    reattach m0 m1 m2
    tries "plain" $(devices 0 1 2)
}

became_spares() { # a RAID-6 three of whose members were made spares by a hasty --add; their data is intact
    blank 4 24
    create --level=6 --raid-devices=4 --chunk=64 $(devices 0 1 2 3)
    fill
    truth
    stop
    detach
    for number in 1 2 3; do superblock "m$number.img" "role$number=0xffff"; done
    saved
    reattach m0 m1 m2 m3
    tries "--force" --force $(devices 0 1 2 3)
}

truncated() { # a USB bridge shows a member 1 MiB shorter; metadata 1.0
    blank 3 32
    create --metadata=1.0 --level=5 --raid-devices=3 --chunk=64 $(devices 0 1 2)
    fill
    truth
    stop
    detach
    truncate -s -1M m1.img
    saved
    reattach m0 m1 m2
    tries "plain" --run $(devices 0 1 2)
}

zones() { # a RAID-0 of unequal members that does not say which layout it has
    local number
    for number in 0 1 2; do
        truncate -s $((8 + 5 * number))M "m$number.img"
        loop "$number" "m$number.img"
    done
    mdadm --create /dev/md0 --quiet --run --level=0 --raid-devices=3 --chunk=64 --layout=dangerous $(devices 0 1 2) || true
    echo 2 >/sys/module/raid0/parameters/default_layout
    stop
    mdadm --assemble --quiet /dev/md0 $(devices 0 1 2)
    fill
    truth
    stop
    saved
    echo 0 >/sys/module/raid0/parameters/default_layout
    reattach m0 m1 m2
    tries "plain" $(devices 0 1 2)
}

many_slots() { # a NAS's system array: 24 slots, two of them taken
    blank 2 20
    mdadm --create /dev/md0 --quiet --run --metadata=1.0 --level=1 --raid-devices=24 --bitmap=internal $(devices 0 1) \
        $(printf 'missing %.0s' {1..22})
    rest
    fill
    truth
    stop
    saved
    reattach m0 m1
    tries "plain" $(devices 0 1)
}

forty_members() {
    blank 40 6
    create --level=6 --chunk=16 --raid-devices=40 $(devices $(seq 0 39))
    fill
    truth
    stop
    saved
}

replace_cut_off() { # a RAID-6 whose replacement was cut off
    blank 6 24
    create --level=6 --raid-devices=5 --chunk=64 $(devices 0 1 2 3 4)
    fill
    truth
    mdadm --quiet /dev/md0 --add /dev/loop5
    echo 20096 >$md/sync_max
    mdadm --quiet /dev/md0 --replace /dev/loop1 --with /dev/loop5
    until [ "$(<$md/sync_completed)" != none ] && [ "$(cut -d' ' -f1 $md/sync_completed)" -ge 20000 ]; do
        read -rt 0.02 -u "$silence" || true
    done
    echo frozen >$md/sync_action
    stop
    saved
    reattach m0 m1 m2 m3 m4 m5
    tries "plain" $(devices 0 1 2 3 4 5)
}

grown() { # a RAID-5 that was reshaped to its end, and then had a member added with another data offset
    blank 5 40
    create --level=5 --raid-devices=3 --chunk=64 $(devices 0 1 2)
    mdadm --quiet /dev/md0 --add /dev/loop3
    reshape --raid-devices=4
    mdadm --wait --quiet /dev/md0 || true
    rest
    mdadm --quiet /dev/md0 --fail /dev/loop1
    until mdadm --quiet /dev/md0 --remove /dev/loop1 2>/dev/null; do read -rt 0.05 -u "$silence" || true; done
    mdadm --quiet /dev/md0 --add /dev/loop4
    until_is $md/degraded 0
    rest
    fill
    truth
    stop
    rm -f m1.img
    saved
    reattach m0 m2 m3 m4
    tries "plain" $(devices 0 2 3 4)
}

clustered() { # a bitmap of a cluster
    blank 2 16
    create --level=1 --raid-devices=2 --bitmap=internal $(devices 0 1)
    fill
    truth
    stop
    detach
    for number in 0 1; do superblock "m$number.img" feature_map=0x101; done
    saved
    reattach m0 m1
    tries "plain" $(devices 0 1)
}

stale_table() { # members that an old partition table begins
    local number
    for number in 0 1; do
        truncate -s 16M "m$number.img"
        printf 'label: gpt\nstart=2048,size=8192\n' | sfdisk --quiet "m$number.img"
        loop "$number" "m$number.img"
    done
    create --level=1 --raid-devices=2 $(devices 0 1)
    fill
    truth
    stop
    saved
    reattach m0 m1
    tries "plain" $(devices 0 1)
}

damaged_checksum() { # a superblock with a few bytes changed
    blank 3 16
    create --level=5 --raid-devices=3 --chunk=64 $(devices 0 1 2)
    fill
    truth
    stop
    detach
    printf 'XYZ' | dd of=m1.img bs=1 seek=$((4096 + 32)) conv=notrunc status=none
    saved
    reattach m0 m1 m2
    tries "plain" --run $(devices 0 1 2)
}

whole_disks() { # three whole disks of a NAS: a GPT, a small array in the first partition and a large one in the third
    local number
    for number in 0 1 2; do
        truncate -s 64M "m$number.img"
        printf 'label: gpt\nstart=2048,size=16384\nstart=18432,size=16384\nstart=34816,size=94208\n' | sfdisk --quiet "m$number.img"
        loop "$number" "m$number.img" --offset $((2048 * 512)) --sizelimit $((16384 * 512))
        loop $((number + 4)) "m$number.img" --offset $((34816 * 512)) --sizelimit $((94208 * 512))
    done
    create --metadata=0.90 --level=1 --raid-devices=3 $(devices 0 1 2)
    stop
    create --metadata=1.2 --name=2 --homehost=nas --level=5 --raid-devices=3 --chunk=64 $(devices 4 5 6)
    fill
    truth
    stop
    saved
}

reshape_cut_off() { # a RAID-5 that was stopped while it grew from three members to four
    blank 4 48
    create --level=5 --raid-devices=3 --chunk=64 --bitmap=none $(devices 0 1 2)
    fill
    truth
    mdadm --quiet /dev/md0 --add /dev/loop3
    echo 12288 >$md/sync_max # the reshape stops there, in the middle
    reshape --raid-devices=4
    until [[ $(<$md/reshape_position) != none && $(<$md/reshape_position) -ge 12288 ]]; do read -rt 0.05 -u "$silence" || true; done
    stop
    saved
}

superblocks_zeroed() { # a mainboard's firmware zeroed the place of each superblock
    blank 4 24
    create --level=6 --raid-devices=4 --chunk=128 --bitmap=internal $(devices 0 1 2 3)
    fill
    truth
    stop
    detach
    for number in 0 1 2 3; do dd if=/dev/zero of="m$number.img" bs=4096 seek=1 count=3 conv=notrunc status=none; done
    saved
    reattach m0 m1 m2 m3
    tries "plain" $(devices 0 1 2 3)
}

created_over() { # mdadm --create by accident: another chunk, another order, another data offset
    blank 3 32
    create --data-offset=3M --level=5 --raid-devices=3 --chunk=64 $(devices 0 1 2)
    fill
    truth
    stop
    create --assume-clean --level=5 --raid-devices=3 --chunk=512 $(devices 1 0 2)
    stop
    saved
    reattach m0 m1 m2
    tries "plain" $(devices 0 1 2)
}

unequal_offsets() { # data offsets that differ from member to member
    blank 3 32
    mdadm --create /dev/md0 --quiet --run --data-offset=variable --level=5 --raid-devices=3 --chunk=64 \
        /dev/loop0:2048 /dev/loop1:3072 /dev/loop2:4096
    rest
    fill
    truth
    stop
    saved
    reattach m0 m1 m2
    tries "plain" $(devices 0 1 2)
}

no_superblocks() { # mdadm --build: a RAID-0 without superblocks
    blank 3 8
    mdadm --build /dev/md0 --quiet --level=0 --raid-devices=3 --chunk=64 $(devices 0 1 2)
    fill
    truth
    stop
    saved
}

nested() { # a RAID-0 of two RAID-1
    blank 4 16
    mdadm --create /dev/md1 --quiet --run --level=1 --raid-devices=2 $(devices 0 1)
    mdadm --create /dev/md2 --quiet --run --level=1 --raid-devices=2 $(devices 2 3)
    create --level=0 --chunk=64 --raid-devices=2 /dev/md1 /dev/md2
    fill
    truth
    stop
    mdadm --wait --quiet /dev/md1 /dev/md2 || true
    mdadm --stop --quiet /dev/md1 /dev/md2
    saved
}

reshaped_raid10() { # a RAID-10 that grew from four members to six, to its end
    blank 6 24
    create --level=10 --raid-devices=4 --chunk=64 $(devices 0 1 2 3)
    mdadm --quiet /dev/md0 --add /dev/loop4 /dev/loop5
    reshape --raid-devices=6
    mdadm --wait --quiet /dev/md0 || true
    rest
    fill
    truth
    stop
    saved
    reattach m0 m1 m2 m3 m4 m5
    tries "plain" $(devices 0 1 2 3 4 5)
}

all=(second_failed raid0_events halves_even halves_one_apart halves_bitmap absent_at_start holes partial_parity journal_lost
    logged_bad disk_error_flag huge_and_old other_byte_order logical_blocks became_spares truncated zones many_slots forty_members
    replace_cut_off grown clustered stale_table damaged_checksum whole_disks reshape_cut_off
    superblocks_zeroed created_over unequal_offsets no_superblocks nested reshaped_raid10)
half=$((${#all[@]} / 2))
case ${1-} in
    first-half) set -- "${all[@]:0:half}" ;;
    second-half) set -- "${all[@]:half}" ;;
esac
directory=$PWD
trap 'echo "FAILED: the situation $case could not be made"' ERR
for case in "$@"; do
    rm -rf "${directory:?}/$case"
    mkdir "$directory/$case"
    cd "$directory/$case"
    "$case"
    detach
    rm -f try*.img
    mv saved/m*.img .
    rmdir saved
done
echo "$# situations"
