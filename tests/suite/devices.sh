# What stands for /dev/mdN and /sys/block/mdN/md: sourced by mdadm.sh and mdstat.sh.
#
# It shows what `mdspace status` says, and carries on what a test writes where mdspace has it. A file that a test makes or
# changes and that mdspace does not have is noted in $ADAPTER/refused: such a test does not count as passed.
#
#   $ADAPTER/mdN.nbd         the NBD device of a served array, its socket and its size
#   $ADAPTER/block/mdN/md    files with the names that md has in /sys/block/mdN/md
#   $ADAPTER/shown/mdN       the same files, as they were shown last

refused() { echo "$*" >>"$ADAPTER/refused"; }

# detach NAME: takes the device of the array away, unless it is in use.
detach() {
    local file=$ADAPTER/$1.nbd device
    [ -e "$file" ] || return 0
    read -r device _ <"$file"
    grep -q "^$device " /proc/mounts && return 0
    blockdev --flushbufs "$device" 2>/dev/null
    nbd-client -d "$device" >/dev/null 2>&1
    rm -rf "$file" "/dev/$1" "$ADAPTER/block/$1" "$ADAPTER/shown/$1"
}

# is_of WORD FILE: whether a word names the array whose device FILE notes: /dev/md0, md0, or a link to its device.
is_of() {
    local name device
    name=$(basename "$2" .nbd)
    [ -e "$2" ] && read -r device _ <"$2" || return 1
    [ "$1" = "/dev/$name" ] || [ "$1" = "$name" ] || [ "$1" = "/dev/md/${name#md}" ] ||
        [ "$(readlink -f "$1")" = "$device" ] || [ "$(readlink -f "/dev/md/${1#md_}")" = "$device" ]
}

# attach NAME SOCKET BYTES: the array's device becomes an NBD device of the kernel.
attach() {
    local number device
    for number in {0..15}; do
        device=/dev/nbd$number
        [ -e "/sys/block/nbd$number/pid" ] || break
    done
    if ! nbd-client -unix "$2" "$device" >/dev/null 2>"$ADAPTER/attach" </dev/null; then
        refused "$1: $(<"$ADAPTER/attach")"
        return
    fi
    rm -rf "/dev/$1"
    ln -s "$device" "/dev/$1"
    echo "$device $2 $3" >"$ADAPTER/$1.nbd"
}

# written NAME SOCKET: carries out what a test wrote since the files were shown. Few processes: each takes its time here.
written() {
    local files=$ADAPTER/block/$1/md file name now before
    for file in "$files"/* "$files"/*/*; do
        [ -f "$file" ] || continue
        name=${file#"$files/"} now='' before=''
        read -r now <"$file"
        [ ! -e "$ADAPTER/shown/$1/$name" ] || read -r before <"$ADAPTER/shown/$1/$name"
        [ "$now" != "$before" ] || continue
        case $name in
        sync_action)
            "$MDSPACE" set --control "$2" "sync-action=$now" >/dev/null 2>"$ADAPTER/set" || refused "$1: $(<"$ADAPTER/set")"
            ;;
        *) refused "/sys/block/$1/md/$name is written: ${now:0:80}" ;;
        esac
        rm "$file"
    done
}

# carry: carries out what was written, for all arrays.
carry() {
    local file socket
    for file in "$ADAPTER"/*.nbd; do
        [ -e "$file" ] || continue
        read -r _ socket _ <"$file"
        written "$(basename "$file" .nbd)" "${socket%nbd.sock}control.sock"
    done
}

# show NAME: makes the files anew, from the status on standard input.
show() {
    local name value
    rm -rf "$ADAPTER/block/$1" "$ADAPTER/shown/$1"
    mkdir -p "$ADAPTER/shown/$1"
    while IFS=$'\t' read -r name value; do
        [ "$name" = "${name%/*}" ] || mkdir -p "$ADAPTER/shown/$1/${name%/*}"
        printf '%s\n' "$value" >"$ADAPTER/shown/$1/$name"
    done < <(jq -r '
        def state: (if .state == "in_sync" or .state == "faulty" then .state else "spare" end) as $state
            | [$state, (if .write_mostly then "write_mostly" else empty end), (if .failfast then "failfast" else empty end)];
        def sectors: . / 512 | floor;
        (["array_state",
            if .read_only then "readonly" elif (.state | startswith("clean")) then "clean" else "active" end],
         ["sync_action", # md names a sweep from the moment on that it is due
            if .sweep then .sweep.action elif .sync_action == "frozen" then "frozen"
            elif any(.members[]; .state == "recovering") then "recover"
            elif .in_agreement or .read_only then .sync_action else "resync" end],
         ["sync_completed",
            if .sweep then "\(.sweep.done_bytes | sectors) / \(.sweep.total_bytes | sectors)" else "none" end],
         ["level", .level], ["raid_disks", .raid_disks], ["chunk_size", .chunk_bytes],
         ["degraded", .raid_disks - .in_sync],
         (.members[] | ["dev-\(.name | split("/") | last)/state", (state | join(","))]),
         (.members[] | select(.slot) | ["rd\(.slot)/state", (state | join(","))])) | map(tostring) | join("\t")')
    mkdir -p "$ADAPTER/block/$1"
    cp -r "$ADAPTER/shown/$1" "$ADAPTER/block/$1/md"
}

# limit: the limits on sweeps are md's files, whose numbers each served array gets when they change.
limit() {
    local min max limits before='' file socket
    read -r min </proc/sys/dev/raid/speed_limit_min
    read -r max </proc/sys/dev/raid/speed_limit_max
    limits="sync-speed-min=${min}K sync-speed-max=${max}K"
    [ ! -e "$ADAPTER/limits" ] || read -r before <"$ADAPTER/limits"
    [ "$limits" != "$before" ] || return 0
    for file in "$ADAPTER"/*.nbd; do
        [ -e "$file" ] || continue
        read -r _ socket _ <"$file"
        # shellcheck disable=SC2086 # two words
        "$MDSPACE" set --control "${socket%nbd.sock}control.sock" $limits >/dev/null 2>&1
    done
    echo "$limits" >"$ADAPTER/limits"
}

# follow: devices and files of all arrays as they are now.
follow() {
    local map=$XDG_RUNTIME_DIR/mdspace/mdadm.map file name metadata uuid path device socket bytes old_socket old_bytes
    limit
    for file in "$ADAPTER"/*.nbd; do
        [ -e "$file" ] || continue
        read -r device socket bytes <"$file"
        file=${file##*/}
        [ -S "$socket" ] || detach "${file%.nbd}"
    done
    [ -e "$map" ] || return 0
    while read -r name metadata uuid path <&3; do
        if [ -e "$ADAPTER/$name.nbd" ]; then
            read -r _ old_socket old_bytes <"$ADAPTER/$name.nbd"
            written "$name" "${old_socket%nbd.sock}control.sock"
        fi
        "$MDSPACE" status --json --array "$uuid" >"$ADAPTER/status" 2>/dev/null || continue
        read -r socket bytes < <(jq -r '[(.served.nbd | sub("^.*socket="; "")), .array_bytes] | join(" ")' "$ADAPTER/status")
        if [ -e "$ADAPTER/$name.nbd" ]; then
            [ "$old_socket" = "$socket" ] && [ "$old_bytes" = "$bytes" ] || detach "$name"
        fi
        [ -e "$ADAPTER/$name.nbd" ] || attach "$name" "$socket" "$bytes"
        if [ "$path" != "/dev/$name" ]; then mkdir -p "${path%/*}" && ln -sfn "/dev/$name" "$path"; fi
        show "$name" <"$ADAPTER/status"
    done 3<"$map"
}
