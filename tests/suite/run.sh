#!/bin/bash
# One test of mdadm's own suite, against `mdspace mdadm`: the scripts as they are, but for the places where they look.
#
#   run.sh MDSPACE SUITE MINUTES LOGS TEST...
#
# SUITE is a copy of mdadm's repository, MINUTES the time of a test. Runs in a guest (tests/kernel/init.sh) without the md
# driver. For each test a line is printed: its name, how it ended (passed, skipped, failed, late), and where it ended.
# Each test's log goes to the directory LOGS. What stands between the suite and mdspace is here and in mdadm.sh beside this
# file, and judges nothing:
# * /dev/mdN is a link to an NBD device of the kernel, which is a client of the served array.
# * /proc/mdstat is what `mdspace mdstat` prints, and /sys/block/mdN/md are files that say the same as `mdspace status`.
# * /proc/sys/dev/raid, which comes with the md driver, is a directory of files there.
# * udev, SELinux and systemd are not there: the programs that the suite calls for them do nothing.
set -uo pipefail
export MDSPACE=$1
suite=$2 minutes=$3 logs=$4 here=$(cd "$(dirname "$0")" && pwd)
shift 4
hostname suite # the guest has none, and the suite looks for it in names
modprobe loop max_loop=14
modprobe nbd nbds_max=16 max_part=0

export ADAPTER=$SCRATCH/adapter XDG_RUNTIME_DIR=$SCRATCH/run
mkdir -p "$ADAPTER/bin" "$ADAPTER/block" "$ADAPTER/shown" "$XDG_RUNTIME_DIR" "$logs" "$SCRATCH/files" "$SCRATCH/suite"
cp -r "$suite/test" "$suite/tests" "$SCRATCH/suite"
mount -t tmpfs tmpfs /proc/sys/dev
mkdir /proc/sys/dev/raid
echo 1000 >/proc/sys/dev/raid/speed_limit_min
echo 200000 >/proc/sys/dev/raid/speed_limit_max

for program in udevadm systemctl setenforce modprobe getenforce; do
    printf '#!/bin/sh\nexit 0\n' >"$ADAPTER/bin/$program"
done
cat >"$ADAPTER/bin/is_there" <<'END'
#!/bin/sh
[ -d "$ADAPTER/block/$1/md" ] || echo "/sys/block/$1/md is not there" >>"$ADAPTER/refused"
END
cp "$here/devices.sh" "$ADAPTER"
cp "$here/mdadm.sh" "$ADAPTER/bin/mdadm"
cp "$here/mdstat.sh" "$ADAPTER/bin/mdstat"
chmod +x "$ADAPTER"/bin/*
# What is not built notes that it was called for. raid6check is called through a script.
for program in raid6check swap_super test_stripe; do
    if [ -e "$suite/$program" ]; then
        cp "$suite/$program" "$SCRATCH/suite"
    elif [ $program != test_stripe ]; then # without that one, its test skips
        printf '#!/bin/sh\necho "%s is not built" >>"$ADAPTER/refused"\nexit 1\n' "$program" >"$SCRATCH/suite/$program"
        chmod +x "$SCRATCH/suite/$program"
    fi
done
if [ -e "$suite/raid6check" ]; then
    mv "$SCRATCH/suite/raid6check" "$ADAPTER"
    cp "$here/raid6check.sh" "$SCRATCH/suite/raid6check"
    chmod +x "$SCRATCH/suite/raid6check"
fi
export dir=. # where some tests look for these programs, and which they do not set
export PATH=$ADAPTER/bin:$PATH
unset -f modprobe

cd "$SCRATCH/suite"
sed -i "s#^targetdir=.*#targetdir=$SCRATCH/files#; s#^config=.*#config=$SCRATCH/mdadm.conf#" test
# A new file of that length is enough, and has no superblock.
sed -i 's#dd if=/dev/zero of=$targetdir/mdtest$d count=$sz bs=1K#truncate -s ${sz}K $targetdir/mdtest$d#' tests/func.sh
sed -i '/start_ro/d; /mdadm --zero $targetdir\/mdtest$d/d' tests/func.sh
# A look that finds nothing would end no test.
sed -i 's#\[ -d /sys/class/block/\(.*\)/md \]#is_there "\1"#' tests/00names
find test tests -maxdepth 1 -type f -print0 | xargs -0 sed -i \
    "s#/proc/mdstat#<(mdstat)#g; s#/var/tmp/\|/tmp/#$SCRATCH/files/#g; s#/sys/block/\(md\|\$dev/md\)#$ADAPTER/block/\1#g"

for test; do
    rm -rf "$SCRATCH/files" "$ADAPTER/refused" && mkdir "$SCRATCH/files"
    log=$logs/$test began=$SECONDS
    timeout --kill-after=10 "$((minutes * 60))" ./test --tests="$test" --keep-going --logdir="$SCRATCH/files" \
        >"$log" 2>&1
    status=$?
    cat "$SCRATCH/files/log" "$SCRATCH/files/$test.log" >>"$log" 2>/dev/null
    ended=failed
    grep -q succeeded "$log" && ended=passed
    # Some tests end well where they skip, with that word alone.
    grep -q '\.\.\. .*skipping\|^skipping\.\.\. ' "$log" && ended=skipped
    [ $status = 124 ] || [ $status = 137 ] && ended=late
    # Where it ended: the suite's own word, or else the last command and what was said to it.
    last=$(sed -n 's/^\t*ERROR: /ERROR: /p' "$log" | tail -n 1)
    [ -n "$last" ] || last=$(grep -hE '^\++ |^mdadm: ' "$log" | grep -vE 'save_log|^\++ (cat|rv=|return|status=|logfile=|echo|dmesg|cp|array=)' | tail -n 3 | tr '\n' ' ')
    if [ $ended = passed ] && [ -s "$ADAPTER/refused" ]; then
        ended=failed last="not done here: $(sort -u "$ADAPTER/refused" | head -n 3 | tr '\n' ' ')"
    fi
    [ ! -s "$ADAPTER/refused" ] || sed 's/^/REFUSED: /' "$ADAPTER/refused" >>"$log"
    echo "$test|$ended|$((SECONDS - began)) s|$last"
    "$ADAPTER/bin/mdadm" --stop --scan >/dev/null 2>&1
    for device in /dev/loop{0..13}; do losetup -d "$device" 2>/dev/null; done
done
