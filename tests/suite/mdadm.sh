#!/bin/bash
# mdadm for mdadm's own suite: `mdspace mdadm`, and then a block device of the kernel for each served array.
#
# Before arrays are stopped their devices are taken away, as mdspace counts the kernel as a client. Afterwards links
# /dev/mdN lead to NBD devices, and the speed limits of run.sh are set. The output and the exit status are those of
# `mdspace mdadm`.

# detach NAME: takes the device of the array away, unless it is in use.
detach() {
    local file=$ADAPTER/$1.nbd device
    [ -e "$file" ] || return 0
    read -r device _ <"$file"
    grep -q "^$device " /proc/mounts && return 0
    blockdev --flushbufs "$device" 2>/dev/null
    nbd-client -d "$device" >/dev/null 2>&1
    rm -f "$file" "/dev/$1"
}

# is_of WORD FILE: whether a word names the array whose device FILE notes: /dev/md0, /dev/md/name, or /dev/md/0.
is_of() {
    local name device
    name=$(basename "$2" .nbd)
    read -r device _ <"$2" 2>/dev/null || return 1
    [ "$1" = "/dev/$name" ] || [ "$1" = "$name" ] || [ "$1" = "/dev/md/${name#md}" ] || [ "$(readlink -f "$1")" = "$device" ]
}

# attach NAME SOCKET BYTES
attach() {
    local number device
    for number in {0..15}; do
        device=/dev/nbd$number
        [ -e "/sys/block/nbd$number/pid" ] || break
    done
    nbd-client -unix "$2" "$device" >/dev/null 2>&1 || return
    rm -rf "/dev/$1"
    ln -s "$device" "/dev/$1"
    echo "$device $2 $3" >"$ADAPTER/$1.nbd"
}

# What changes no array needs no device.
case " $* " in
*" --zero"* | *" -E"* | *" --examine"* | *" -X"* | *" -D"* | *" --detail"* | *" -V"*) exec "$MDSPACE" mdadm "$@" ;;
esac

case " $* " in
*" -S"* | *" --stop"* | *" -Ss"*)
    case " $* " in
    *scan* | *" -Ss"*) for file in "$ADAPTER"/*.nbd; do [ ! -e "$file" ] || detach "$(basename "$file" .nbd)"; done ;;
    *)
        for word in "$@"; do
            case $word in
            -*) ;;
            *) for file in "$ADAPTER"/*.nbd; do is_of "$word" "$file" && detach "$(basename "$file" .nbd)"; done ;;
            esac
        done
        ;;
    esac
    ;;
esac

"$MDSPACE" mdadm "$@"
status=$?

map=$XDG_RUNTIME_DIR/mdspace/mdadm.map
min=$(<"$ADAPTER/raid/speed_limit_min") max=$(<"$ADAPTER/raid/speed_limit_max")
for file in "$ADAPTER"/*.nbd; do
    [ -e "$file" ] || continue
    read -r device socket bytes <"$file"
    [ -S "$socket" ] || detach "$(basename "$file" .nbd)"
done
if [ -e "$map" ]; then
    while read -r name _ uuid path; do
        told=$("$MDSPACE" status --json --array "$uuid" 2>/dev/null)
        if [ -z "$told" ]; then
            # Of metadata 0.90 mdadm reverses each word of the uuid, and `--array` takes mdspace's form.
            uuid=$(sed -E 's/(..)(..)(..)(..)/\4\3\2\1/g' <<<"$uuid")
            told=$("$MDSPACE" status --json --array "$uuid" 2>/dev/null) || continue
        fi
        socket=$(jq -r '.served.nbd // empty | sub("^.*socket="; "")' <<<"$told")
        bytes=$(jq -r .array_bytes <<<"$told")
        if [ -e "$ADAPTER/$name.nbd" ]; then
            read -r _ old_socket old_bytes <"$ADAPTER/$name.nbd"
            [ "$old_socket" = "$socket" ] && [ "$old_bytes" = "$bytes" ] || detach "$name"
        fi
        [ -e "$ADAPTER/$name.nbd" ] || attach "$name" "$socket" "$bytes"
        if [ "$path" != "/dev/$name" ]; then mkdir -p "$(dirname "$path")" && ln -sfn "/dev/$name" "$path"; fi
        "$MDSPACE" set --array "$uuid" "sync-speed-min=${min}K" "sync-speed-max=${max}K" >/dev/null 2>&1
    done <"$map"
fi
exit $status
