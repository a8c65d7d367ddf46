#!/usr/bin/python3
"""The two backends of input and output beside each other: the same program, the same run, by turns.

    backends.py MDSPACE DIRECTORY [ROUNDS] [SECONDS] [loop]

Two servers of a RAID-5 of four files in DIRECTORY, one by io_uring and one by threads, each with members of its own. With
`loop`, which needs root, the members are loop devices over such files, without the page cache in between. fio loads the
servers by turns over NBD. Then `mdspace read` and `write` copy the array by either backend, offline. Prints a table in
Markdown: medians of the rounds, the ratio of threads to io_uring in the same round, and the server's processor time for
each request. It measures only, and judges no figure.
"""

import json
import os
import statistics
import subprocess
import sys
import time

BACKENDS = ["io_uring", "threads"]
ARRAY_BYTES = 384 << 20
MEMBERS = 4
# Name, fio's kind of request, bytes, depth.
LOADS = [
    ("4 KiB reads, 32 at a time", "randread", "4k", 32),
    ("4 KiB writes, 32 at a time", "randwrite", "4k", 32),
    ("4 KiB reads, one at a time", "randread", "4k", 1),
    ("4 KiB writes, one at a time", "randwrite", "4k", 1),
    ("1 MiB reads, 4 at a time", "read", "1m", 4),
    ("1 MiB writes, 4 at a time", "write", "1m", 4),
]


class Server:
    def __init__(self, mdspace, backend, on_loop):
        self.members = [f"{backend}.{number}" for number in range(MEMBERS)]
        subprocess.run([mdspace, "create", "--level", "5", "--size", str(ARRAY_BYTES // (MEMBERS - 1) + (8 << 20)), *self.members],
                       check=True, stdout=subprocess.DEVNULL)
        fill(mdspace, self.members)
        self.devices = [losetup("--find", "--show", "--direct-io=on", file) for file in self.members if on_loop]
        self.members = self.devices or self.members
        self.mdspace, self.backend = mdspace, backend
        self.socket, self.control = os.path.abspath(backend + ".nbd"), backend + ".control"
        words = [mdspace, "--io", backend, "serve", *self.members, "--nbd", "unix:" + self.socket, "--control", self.control]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if not any(line.startswith("  control") for line in self.process.stdout):
            sys.exit(f"{' '.join(words)}: it ended")

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def load(self, kind, size, depth, seconds):
        """Requests per second, and the server's microseconds for each."""
        words = ["fio", "--name=load", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={self.socket}", f"--rw={kind}",
                 f"--bs={size}", f"--iodepth={depth}", "--time_based", f"--runtime={seconds}", "--randrepeat=0",
                 f"--size={ARRAY_BYTES}", "--output-format=json"]
        before = self.cpu_seconds()
        output = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        used = self.cpu_seconds() - before
        job = json.loads(output[output.index("{"):])["jobs"][0]
        side = job["read" if "read" in kind else "write"]
        return side["iops"], used * 1e6 / side["total_ios"]

    def stop(self):
        subprocess.run([self.mdspace, "stop", "--control", self.control], check=True, stdout=subprocess.DEVNULL)
        self.process.wait()


def losetup(*words):
    return subprocess.run(["losetup", *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def fill(mdspace, members):
    """Data everywhere, so that no hole is measured."""
    with open("data", "wb") as data:
        piece = os.urandom(1 << 20)
        for _ in range(ARRAY_BYTES >> 20):
            data.write(piece)
    with open("data", "rb") as data:
        subprocess.run([mdspace, "write", *members], check=True, stdin=data)


def offline(mdspace, backend, command, members):
    """The array's bytes per second, in MiB, and the processor's microseconds for each MiB."""
    before, start = os.times(), time.monotonic()
    with open("data", "rb") as data, open("/dev/null", "wb") as null:
        streams = {"stdin": data} if command == "write" else {"stdout": null}
        length = [] if command == "write" else ["--length", str(ARRAY_BYTES)]
        subprocess.run([mdspace, "--io", backend, command, *members, *length], check=True, **streams)
    seconds, after = time.monotonic() - start, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    mib = ARRAY_BYTES >> 20
    return mib / seconds, used * 1e6 / mib


def row(name, rounds, unit):
    rates = [statistics.median(sample[side][0] for sample in rounds) for side in (0, 1)]
    costs = [statistics.median(sample[side][1] for sample in rounds) for side in (0, 1)]
    ratio = statistics.median(sample[1][0] / sample[0][0] for sample in rounds)
    print(f"| {name} | {rates[0]:.0f} {unit} | {rates[1]:.0f} {unit} | {ratio:.2f} | {costs[0]:.1f} | {costs[1]:.1f} |", flush=True)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    mdspace, place = os.path.abspath(sys.argv[1]), sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 2
    os.chdir(place)
    servers = [Server(mdspace, backend, sys.argv[5:] == ["loop"]) for backend in BACKENDS]
    print("| Load | io_uring | threads | ratio | us, io_uring | us, threads |\n|---|---|---|---|---|---|")
    for name, kind, size, depth in LOADS:
        rounds = [[server.load(kind, size, depth, seconds) for server in servers] for _ in range(count)]
        row(name, rounds, "/s")
    for server in servers:
        server.stop()
    for command in ["read", "write"]:
        rounds = [[offline(mdspace, server.backend, command, server.members) for server in servers] for _ in range(count)]
        row(f"offline `{command}`, for each MiB", rounds, "MiB/s")
    for device in [device for server in servers for device in server.devices]:
        losetup("--detach", device)


main()
