#!/bin/bash
# Boots Debian's cloud kernel in qemu, by software emulation: a guest with real drivers for what is served to it.
#
#   boot.sh DIRECTORY SCRIPT "MODULE..." "PROGRAM..." QEMU-ARGUMENT...
#
# SCRIPT is run by busybox in the guest, with the modules loaded in that order and the host's programs in /host. The guest's
# console goes to standard output; a guest that does not end with the line `guest: done` is a failure.
# $MACHINE are qemu's arguments for the machine itself, whose memory must be shared; there is one if it is not given.
# The emulator runs the guest's processors in turn (thread=single): side by side, it lets the kernel see its own code half
# patched ("Oops: int3"), and a spinning processor takes a core from the other.
# The kernel is downloaded as a package by apt-get, not installed, and kept in target/xtask/vm-kernel.
set -euo pipefail
directory=$1 script=$2 modules=$3 programs=$4
shift 4
kernel=$(cd "$(dirname "$0")/../.." && pwd)/target/xtask/vm-kernel

# Another guest may begin at the same time.
exec {lock}>"$kernel.lock"
flock "$lock"
if [ ! -d "$kernel" ]; then
    # The meta-package names the newest kernel.
    for meta in linux-image-6.12-cloud-amd64 linux-image-cloud-amd64; do # Debian 12's and Debian 13's
        package=$(apt-cache depends $meta 2>/dev/null | awk '/Depends:.*linux-image/ { print $2; exit }' || true)
        [ -z "$package" ] || break
    done
    [ -n "$package" ] || { echo "apt knows no kernel for clouds"; exit 1; }
    rm -rf "$kernel.part" && mkdir -p "$kernel.part"
    (cd "$kernel.part" && apt-get -q download "$package" && dpkg-deb -x ./*.deb . && rm ./*.deb)
    mv "$kernel.part" "$kernel"
fi
exec {lock}>&-

root=$directory/root
rm -rf "$root" && mkdir -p "$root"/{bin,host,proc,sys,dev,tmp,modules}
cp /bin/busybox "$root/bin/"
echo "$modules" >"$root/modules/order"
for module in $modules; do
    found=$(find "$kernel" -name "$module.ko*" | head -1)
    case $found in
    *.xz) xz -dc "$found" >"$root/modules/$module.ko" ;;
    *) cp "$found" "$root/modules/$module.ko" ;;
    esac
done
for program in $programs; do
    path=$(command -v "$program")
    cp -L "$path" "$root/host/${program##*/}"
    # What it is linked with, at the same places.
    for library in $(ldd "$path" | grep -o '/[^ )]*'); do
        mkdir -p "$root${library%/*}" && cp -L "$library" "$root$library"
    done
done
cp "$script" "$root/script"
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev && mount -t tmpfs tmp /tmp
for module in $(cat /modules/order); do insmod "/modules/$module.ko"; done
sh -eu /script && echo "guest: done" || echo "guest: FAILED"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 >../initrd)

# shellcheck disable=SC2086 # words
qemu-system-x86_64 ${MACHINE:--accel tcg,thread=single -smp 2 -m 512M -machine q35,memory-backend=memory \
    -object memory-backend-memfd,id=memory,size=512M,share=on} -cpu max -nodefaults -display none -serial stdio -no-reboot \
    -kernel "$kernel"/boot/vmlinuz-* -initrd "$directory/initrd" -append "console=ttyS0 quiet panic=-1" "$@" |
    tee "$directory/console"
grep -q "guest: done" "$directory/console"
