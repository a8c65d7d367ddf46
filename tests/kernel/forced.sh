#!/bin/bash
# Arrays that start by force alone: members that the real driver left behind, and what mdspace makes of them.
#
#   forced.sh MDSPACE
#
# Runs in a guest (tests/kernel/init.sh). The driver's own `--force` says which bytes are right. Of mdspace is demanded that it
# refuses without --force, that `read --force` gives these bytes and changes no member, and that the driver assembles what
# `serve --force` and `write --force` leave without --force. Ends with status 1 at the first scene where that fails.
set -euo pipefail
mdspace=$1
. "$(dirname "$0")/common.sh"
modprobe raid0

MEMBER_BYTES=$((8 << 20))
head -c $((32 << 20)) /dev/urandom >pool
scenes=0

where() { echo "$scene"; }
evidence() {
    cat serve.log
    mdadm --examine "${members[@]}"
}

# keep: the members as they are now; back: they are so again; unchanged: they still are.
keep() {
    flushed
    local number
    for number in "${!members[@]}"; do dd if="${members[number]}" of="kept$number" bs=1M iflag=direct status=none; done
}
back() {
    local number
    for number in "${!members[@]}"; do dd if="kept$number" of="${members[number]}" bs=1M oflag=direct status=none; done
    flushed
}
unchanged() {
    flushed
    local number
    for number in "${!members[@]}"; do
        cmp "kept$number" "${members[number]}" || fail "${members[number]} was changed by $1"
    done
}

refuses() { # WORD MEMBER...: by `read`, with status 2 and that word, and nothing is changed.
    local status=0
    "$mdspace" read --output got --overwrite "${@:2}" 2>refusal || status=$?
    [ $status = 2 ] || fail "read ${*:2}: status $status: $(<refusal)"
    grep --quiet -- "$1" refusal || fail "read ${*:2}: no '$1' in: $(<refusal)"
    unchanged "a refusal"
}
reads() { # ARGUMENT...: right, and nothing is changed
    "$mdspace" read --output got --overwrite "$@" 2>notes || fail "read $*: $(<notes)"
    cmp model got || fail "read $*: other bytes than the driver's"
}
md_reads() { # WHEN MEMBER...: without --force
    mdadm --assemble --quiet --run /dev/md0 "${@:2}" || fail "md does not assemble what $1 left"
    cmp model /dev/md0 || fail "md reads other bytes of what $1 left"
    [ ! -e $md/sync_action ] || finished
    stop_md
    flushed
}
md_reads_by_force() {
    mdadm --assemble --quiet --force --run /dev/md0 "$@" || fail "md does not assemble them by force"
    cmp model /dev/md0 || fail "md reads other bytes by force"
    stop_md
}

# by_force TAKEN MEMBER...: both sides start these by --force alone, mdspace with TAKEN of those that fell behind.
by_force() {
    local taken=$1
    shift
    keep
    refuses "--force takes $taken " "$@"
    reads --force "$@"
    grep --quiet "taken by --force: $taken " notes || fail "not said to be taken: $(<notes)"
    unchanged "read --force"
    md_reads_by_force "$@"
    back
    serve --force "$@"
    stop_serving
    reads "$@"
    md_reads "serve --force" "$@"
    back
    hand noise mib 0 $((1 << 20))
    "$mdspace" write --force --input mib "$@" 2>notes || fail "write --force: $(<notes)"
    hand copy mib 0 model 0 -1
    reads "$@"
    md_reads "write --force" "$@"
    ((++scenes))
}

# lose LEVEL COUNT ARGUMENT...: the last member fails, is written without, and then as many as the level cannot do without.
lose() {
    local level=$1 count=$2
    blank "$count"
    mdadm --create /dev/md0 --quiet --run --level="$level" --chunk=64 --raid-devices="$count" --assume-clean "${@:3}" \
        "${members[@]}"
    fill
    sweep repair
    local number lost=$((level - 3)) # one more than it bears
    mdadm --fail --quiet /dev/md0 "${members[count - 1]}"
    finished
    fill 9
    until_true is $md/array_state clean
    take_model
    for ((number = count - 2; number >= count - lost; number--)); do
        # "Busy", as the array is lost, and yet it is done. mdadm 4.4 does not even ask for it.
        echo faulty 2>/dev/null >"$md/dev-${members[number]##*/}/state" || :
    done
    stop_md
}

for arguments in "--metadata=1.2 --bitmap=none" "--metadata=1.2 --bitmap=internal" "--metadata=0.90 --bitmap=none"; do
    scene="RAID-5 whose second member failed, $arguments"
    read -ra with <<<"$arguments"
    lose 5 4 "${with[@]}"
    by_force "${members[2]}" "${members[@]}"
done
scene="RAID-6 whose third member failed"
lose 6 5 --metadata=1.2 --bitmap=none
by_force "${members[2]}" "${members[@]}"

scene="RAID-0 of unequal events"
blank 2
mdadm --create /dev/md0 --quiet --run --level=0 --chunk=64 --raid-devices=2 "${members[@]}"
fill
take_model
stop_md
flushed
python3 - "${members[1]}" <<'END'
import struct, sys
with open(sys.argv[1], "r+b") as member:
    member.seek(4096)
    block = bytearray(member.read(4096))
    struct.pack_into("<Q", block, 200, struct.unpack_from("<Q", block, 200)[0] + 12)
    struct.pack_into("<I", block, 216, 0)
    own = bytes(block[:256 + 2 * struct.unpack_from("<I", block, 220)[0]])
    total = sum(struct.unpack(f"<{len(own) // 4}I", own[:len(own) // 4 * 4]))
    if len(own) % 4:
        total += struct.unpack("<H", own[-2:])[0]
    struct.pack_into("<I", block, 216, (total & 0xffffffff) + (total >> 32) & 0xffffffff)
    member.seek(4096)
    member.write(block)
END
by_force "${members[0]}" "${members[@]}"

scene="a RAID-5 without its journal"
blank 4
mdadm --create /dev/md0 --quiet --run --level=5 --chunk=64 --raid-devices=3 --write-journal "${members[3]}" "${members[@]:0:3}"
finished
fill
take_model
stop_md
keep
refuses "not given" "${members[@]:0:3}"
reads "${members[@]}"
reads --force "${members[@]:0:3}"
unchanged "read --force"
md_reads_by_force "${members[@]:0:3}"
back
serve --read-only --force "${members[@]:0:3}"
stop_serving
unchanged "serve --read-only --force"
status=0
"$mdspace" write --force --input mib "${members[@]:0:3}" 2>refusal || status=$?
[ $status = 2 ] || fail "written without its journal"
unchanged "a write that is refused"
((++scenes))

scene="a partial parity log that is needed"
blank 3
mdadm --create /dev/md0 --quiet --run --level=5 --chunk=64 --raid-devices=3 --consistency-policy=ppl "${members[@]}"
finished
fill
echo 100 >/sys/block/md0/md/safe_mode_delay
keep # member 1 as it was, for the parity that the power did not let be written
hand noise page 0 4096
dd if=page of=/dev/md0 bs=4k seek=512 oflag=direct status=none
is $md/array_state active || fail "it is not dirty: $(<$md/array_state)"
take_model
for number in 1 2; do dd if="${members[number]}" of="now$number" bs=1M iflag=direct status=none; done
stop_md
dd if=kept1 of=now1 bs=4096 skip=768 seek=768 count=1 conv=notrunc status=none
for number in 1 2; do mv now$number kept$number; done
back
rest=("${members[@]:1}")
for how in "" --force; do
    reads $how "${rest[@]}"
    grep --quiet "was replayed in memory" notes || fail "not said to be replayed: $(<notes)"
    unchanged "read $how"
done
md_reads "a loss of power, by its log," "${rest[@]}"
((++scenes))

scene="a dirty and degraded array that was stopped after --force"
for touch in untouched written; do
    blank 3
    "$mdspace" create --level 5 --chunk 64K "${members[@]}" >/dev/null
    serve "${members[@]}"
    "$mdspace" fail "${members[2]}" --control control.socket >/dev/null
    head -c $((1 << 20)) pool >model
    hand send model 0 $((1 << 20))
    kill_server
    rest=("${members[@]:0:2}")
    keep
    refuses "dirty and degraded" "${rest[@]}"
    serve --force "${rest[@]}"
    [ $touch = untouched ] || hand send model 0 4096 || fail "not written: $told"
    stop_serving
    "$mdspace" read --output got --overwrite "${rest[@]}" || fail "refused again"
    cmp -n $((1 << 20)) model got || fail "other bytes"
    mdadm --assemble --quiet --run /dev/md0 "${rest[@]}" || fail "md refuses it"
    cmp -n $((1 << 20)) model /dev/md0 || fail "md reads other bytes"
    stop_md
    ((++scenes))
done

echo "$scenes arrays started by force as the driver starts them, and by the driver without force afterwards"
