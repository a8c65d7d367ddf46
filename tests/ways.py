#!/usr/bin/python3
"""How fast the ways in are: those that are served beside qemu-storage-daemon's own exports of a block device of the same kind,
`read` and `write` beside dd.

    ways.py MDSPACE DIRECTORY [SECONDS [offline | nbd | served]]

It prints rows of docs/bench.md's table: way, load, what mdspace does in a second, the other program and what that does, and the
median of the ratios of each round.

`offline` copies the same bytes out of and into a RAID-5 of three files by `mdspace read` and `write`, and one plain file by dd
with blocks of 1 MiB. All of them are in tmpfs, so nobody waits for a disk; each command is timed whole, with what it does to
start and stop the array.

`nbd` serves a RAID-5 of four files in tmpfs over a unix socket, beside nbdkit's memory plugin, which has no array below it.
Both are filled before. `fio` asks them.

`served` is root's, for its loop devices over tmpfs: one is exported by qemu-storage-daemon as it is, the other is the only member of a
linear array. Both are served at the same time and asked in turns by the same client: fio for SECONDS, 2, a time; nbdcopy where
there is TLS; for vhost-user the bench of that name, which links libblkio.

Everything is done five times in turns, and medians are printed. A figure says something beside its neighbour alone. By hand,
not in CI: it measures, and judges nothing.
"""

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time

BYTES = 512 << 20
ROUNDS = 5
NBD_LOADS = [(f"{verb} 4 KiB random, depth {depth}", f"rand{verb}", "4k", depth) for depth in (32, 1) for verb in ("read", "write")] + [
    (f"{verb} 1 MiB linear, depth 4", verb, "1M", 4) for verb in ("read", "write")]
FUSE_LOADS = [("read 4 KiB random", "randread", "4k", 1), ("write 4 KiB random", "randwrite", "4k", 1),
              ("read 4 KiB random", "randread", "4k", 32), ("write 4 KiB random", "randwrite", "4k", 32),
              ("read 1 MiB linear", "read", "1M", 4), ("write 1 MiB linear", "write", "1M", 4)]


def run(*words, **options):
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def in_memory(stack, name):
    """The name of a file in tmpfs, which need not be there yet."""
    path = f"/dev/shm/ways-{os.getpid()}-{name}"
    stack.callback(lambda: os.path.exists(path) and os.unlink(path))
    return path


def loop_device(stack, name):
    """A loop device over a file in memory, which transfers pass without the page cache's help."""
    path = in_memory(stack, name)
    with open(path, "wb") as file:
        file.truncate(BYTES)
    device = run("losetup", "--find", "--show", "--direct-io=on", path).strip()
    stack.callback(run, "losetup", "--detach", device)
    return device


def started(stack, words, is_ready):
    """A server that runs until the end; `is_ready` is asked of each line that it prints."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    if not any(is_ready(line) for line in process.stdout):
        sys.exit(f"{' '.join(words)}: ended with {process.wait()}")


def certificates():
    """An authority, and a server of that authority."""
    os.mkdir("tls")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
    run("openssl", "req", "-x509", *new, "-subj", "/CN=authority", "-keyout", "ca-key.pem", "-out", "tls/ca-cert.pem",
        "-addext", "keyUsage=keyCertSign", stderr=subprocess.DEVNULL)
    run("openssl", "req", "-x509", *new, "-CA", "tls/ca-cert.pem", "-CAkey", "ca-key.pem", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
        "-keyout", "tls/server-key.pem", "-out", "tls/server-cert.pem", stderr=subprocess.DEVNULL)


def serve_ours(stack, mdspace, device):
    run(mdspace, "create", "--level", "linear", device)
    os.mkdir("ours")
    # A server prints its ways in line by line, control last.
    lines = []
    words = [mdspace, "serve", device, "--fuse", "ours", "--vhost-user", "ours.vhost", "--control", "control",
             "--nbd", "tcp:localhost:0", "--tls", "require", "--tls-certificates", "tls"]
    started(stack, words, lambda line: lines.append(line) or line.startswith("  control"))
    port = re.search(r"nbds://[^:/]+:(\d+)", "".join(lines)).group(1)
    return {"FUSE": os.path.abspath("ours/array"), "NBD through TLS": port, "vhost-user": os.path.abspath("ours.vhost")}


def serve_theirs(stack, device, device_of_fuse):
    """Its FUSE shares a device with nothing else."""
    open("theirs", "w").close()
    disk = "driver=host_device,cache.direct=on,aio=io_uring"
    words = ["qemu-storage-daemon", "--object", "tls-creds-x509,id=tls,dir=tls,endpoint=server,verify-peer=off",
             "--blockdev", f"{disk},node-name=disk,filename={device}",
             "--blockdev", f"{disk},node-name=alone,filename={device_of_fuse}",
             "--nbd-server", "addr.type=inet,addr.host=localhost,addr.port=29899,tls-creds=tls",
             "--export", "type=nbd,id=nbd,node-name=disk,name=,writable=on",
             "--export", "type=fuse,id=fuse,node-name=alone,mountpoint=theirs,writable=on",
             "--export", "type=vhost-user-blk,id=vhost,node-name=disk,addr.type=unix,addr.path=theirs.vhost,writable=on",
             "--chardev", "stdio,id=said", "--monitor", "said"]
    started(stack, words, lambda line: '"QMP"' in line)
    return {"FUSE": os.path.abspath("theirs"), "NBD through TLS": "29899", "vhost-user": os.path.abspath("theirs.vhost")}


def by_fio(target, rw, block, depth, seconds, size=BYTES - (64 << 20)):
    """Requests a second within `size` bytes; `target` are fio's words for a file or an NBD server. Without `seconds` all bytes
    are asked for once."""
    words = ["fio", "--name=ways", *target, f"--rw={rw}", f"--bs={block}", f"--iodepth={depth}", f"--size={size}",
             *(["--time_based", f"--runtime={seconds}"] if seconds else []), "--norandommap", "--randrepeat=0", "--output-format=json"]
    text = run(*words)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    return job["write" if "write" in rw else "read"]["iops"]


def file_of(path):
    return ["--ioengine=io_uring", "--direct=1", f"--filename={path}"]


def by_nbdcopy(port, source, destination):
    """Times that everything is copied in a second; fio's NBD client knows no certificates."""
    uri = f"nbds://localhost:{port}/?tls-certificates={os.path.abspath('tls')}"
    began = time.monotonic()
    run("nbdcopy", "--no-extents", "--connections=1", source or uri, destination or uri)
    return 1 / (time.monotonic() - began)


def by_command(words):
    """Times that it can be run in a second."""
    began = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 1 / (time.monotonic() - began)


def by_libblkio(places):
    """What the bench prints: rows of reads a second of each size and depth, of either server in turns."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    return run("cargo", "bench", "--quiet", "--package", "mdspace-export", "--bench", "vhost_user", "--", *places, cwd=root)


def number(rate):
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def compare(way, name, rate, ours, theirs, other="qemu-storage-daemon"):
    rounds = [[rate(side) for side in (ours, theirs)] for _ in range(ROUNDS)]
    own, its = (statistics.median(rates) for rates in zip(*rounds))
    ratio = statistics.median(a / b for a, b in rounds)
    print(f"| {way} | {name} | {number(own)} | {other} | {number(its)} | {ratio:.2f} |", flush=True)


def measure_offline(mdspace, stack):
    """The files are written once before, so that no page of theirs is new."""
    members = [in_memory(stack, f"member{index}") for index in range(3)]
    plain, source = in_memory(stack, "plain"), in_memory(stack, "source")
    copied = ["bs=1M", "status=none", "conv=notrunc,fsync"]
    run(mdspace, "create", "--level", "5", "--size", str((BYTES >> 1) + (16 << 20)), *members, stderr=subprocess.DEVNULL)
    run("dd", "if=/dev/urandom", f"of={source}", f"count={BYTES >> 20}", *copied)
    ours, theirs = [mdspace, "write", *members, "--input", source], ["dd", f"if={source}", f"of={plain}", *copied]
    for words in ours, theirs:
        by_command(words)
    compare("offline", "write", by_command, ours, theirs, "dd")
    ours = [mdspace, "read", *members, "--length", str(BYTES)]
    compare("offline", "read", by_command, ours, ["dd", f"if={plain}", "bs=1M", "status=none"], "dd")


def measure_nbd(mdspace, seconds, stack):
    members = [in_memory(stack, f"nbd{index}") for index in range(4)]
    run(mdspace, "create", "--level", "5", "--chunk", "64K", "--size", f"{BYTES // 3 + (8 << 20)}", *members, stderr=subprocess.DEVNULL)
    ours, theirs = os.path.abspath("ours.nbd"), os.path.abspath("theirs.nbd")
    words = [mdspace, "serve", *members, "--nbd", f"unix:{ours}", "--control", "nbd.control"]
    started(stack, words, lambda line: line.startswith("  control"))
    kit = subprocess.Popen(["nbdkit", "--foreground", "--unix", theirs, "memory", str(BYTES)])
    stack.callback(kit.wait)
    stack.callback(kit.terminate)
    while not os.path.exists(theirs):
        if kit.poll() is not None:
            sys.exit(f"nbdkit ended with {kit.returncode}")
        time.sleep(0.01)
    targets = [["--ioengine=nbd", f"--uri=nbd+unix:///?socket={socket}"] for socket in (ours, theirs)]
    for target in targets:
        by_fio(target, "write", "1M", 4, None)
    for name, *load in NBD_LOADS:
        compare("NBD, RAID-5 of 4", name, lambda target: by_fio(target, *load, seconds), *targets, "nbdkit memory")
    busy = lambda target: by_fio(target, "randwrite", "4k", 32, seconds, 512 << 10)
    compare("NBD, RAID-5 of 4", "write 4 KiB random in 512 KiB, depth 32", busy, *targets, "nbdkit memory")


def measure_served(mdspace, seconds, stack):
    certificates()
    ours = serve_ours(stack, mdspace, loop_device(stack, "ours"))
    theirs = serve_theirs(stack, loop_device(stack, "theirs"), loop_device(stack, "alone"))
    for name, *load in FUSE_LOADS:
        compare("FUSE", f"{name}, depth {load[2]}", lambda side: by_fio(file_of(side["FUSE"]), *load, seconds), ours, theirs)
    run("dd", "if=/dev/urandom", "of=random", "bs=1M", f"count={(BYTES >> 20) - 16}", "status=none")
    for name, *ends in [("copied out", None, "null:"), ("copied in", "random", None)]:
        compare("NBD through TLS", name, lambda side: by_nbdcopy(side["NBD through TLS"], *ends), ours, theirs)
    print(by_libblkio([ours["vhost-user"], theirs["vhost-user"]]))


def main():
    mdspace, directory = os.path.abspath(sys.argv[1]), sys.argv[2]
    seconds = sys.argv[3] if len(sys.argv) > 3 else "2"
    part = sys.argv[4] if len(sys.argv) > 4 else None
    os.chdir(directory)
    parts = {"offline": lambda stack: measure_offline(mdspace, stack), "nbd": lambda stack: measure_nbd(mdspace, seconds, stack),
             "served": lambda stack: measure_served(mdspace, seconds, stack)}
    for name, measure in parts.items():
        if part in (None, name):
            with contextlib.ExitStack() as stack:
                measure(stack)


main()
