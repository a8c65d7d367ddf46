#!/usr/bin/python3
"""A server killed (SIGKILL) at random moments while a real NBD client writes, and started again, time after time.

    killed.py run MDSPACE DIRECTORY ROUNDS [SEED]    kills it ROUNDS times, the arrays in turn, then each once more
    killed.py judge DIRECTORY ARRAY DEVICE           whether DEVICE holds what that array may hold after its last kill

After each kill but the last, through the server that was started next: no block is torn, and each is as it was promised.
That is what was answered, or anything sent after it. The kernel's md, which does not know mdspace's write buffer, finds
what was flushed unless the cache was writethrough. What is read stays what it is until all members agree again, and a scrub then finds nothing wrong.

Some lives are in an overlay, which promises what was flushed and leaves the members as they are. It lasts until it is
committed; some commits are killed, and then repeated.

The moments come from a timer, so a seed repeats the requests, not the kills. Nothing waits on a sleep.
"""

import glob
import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading

BLOCK = 4096
DEPTHS = [1, 4, 16]
# Name, arguments of create, members. Together at most 15: as many disks as a guest of the judge's takes.
ARRAYS = [
    ("raid5", ["--level", "5", "--bitmap", "internal"], 3),
    ("raid6", ["--level", "6"], 4),
    ("raid10", ["--level", "10", "--bitmap", "internal"], 4),
    ("checked", ["--level", "6", "--bitmap", "internal", "--integrity"], 4),
]


def stamp(block, version):
    """A block's bytes; version 0 is a block never written."""
    return bytes(BLOCK) if version == 0 else struct.pack("<QQ", block, version) * (BLOCK // 16)


def version_of(data, block):
    """Which version these bytes are; None if none as a whole."""
    version = struct.unpack_from("<QQ", data)[1]
    return version if data == stamp(block, version) else None


class Model:
    """What each block may hold: what it is known to hold, and what was sent since."""

    def __init__(self, blocks):
        self.known = [0] * blocks
        self.sent = {}  # block -> later versions
        self.last = 0

    def send(self, blocks):
        self.last += 1
        for block in blocks:
            self.sent.setdefault(block, []).append(self.last)
        return self.last

    def is_stable(self, blocks, version):
        for block in blocks:
            self.known[block] = max(self.known[block], version)
            self.sent[block] = [later for later in self.sent.get(block, []) if later > version]

    def judge(self, read, what):
        """Takes `read` for what is there, after seeing that each block is one that may be."""
        found = []
        for block, known in enumerate(self.known):
            data = read(block)
            version = version_of(data, block)
            allowed = [known, *self.sent.get(block, [])]
            if version not in allowed:
                sys.exit(f"{what}: block {block} holds {version}, may hold {allowed}: {data[:32].hex()}")
            found.append(version)
        return found


class Server:
    def __init__(self, array):
        words = [array.mdspace, "serve", *array.members, "--cache", array.cache,
                 "--nbd", "unix:" + array.socket, "--control", array.control]
        words += ["--overlay", array.overlay] if array.in_overlay else []
        while not self.starts(words):
            pass

    def starts(self, words):
        """Whether it serves; not when the members are still those of a server that was killed, whose io_uring the kernel
        takes apart some time after its process has ended."""
        with open("server.log", "w+") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
            for line in self.process.stdout:
                if line.startswith("  control"):
                    return True
            status = self.wait()
            log.seek(0)
            said = log.read()
        if status != 2 or "in use by" not in said:
            sys.exit(f"{' '.join(words)}: {status}\n{said}")
        return False

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)

    def wait(self):
        self.process.stdout.close()
        return self.process.wait()


class Array:
    def __init__(self, mdspace, name, arguments, count):
        self.mdspace, self.name, self.cache = mdspace, name, "writethrough"
        self.members = [f"{name}.{number}" for number in range(count)]
        self.socket, self.control, self.overlay = name + ".nbd", name + ".control", name + ".overlay"
        self.buffered = {}  # what was answered and not flushed in the last life, and outlives its kill: block -> version
        self.in_overlay, self.killed_commits, self.below = False, 0, None  # what the members hold while there is an overlay
        self.run("create", "--chunk", "64K", "--size", "8M", "--name", name, *arguments, *self.members)
        report = json.loads(self.run("examine", "--json", *self.members))
        self.uuid = report["arrays"][0]["status"]["uuid"].replace(":", "")
        self.model = Model(report["arrays"][0]["status"]["array_bytes"] // BLOCK)

    def run(self, *words):
        done = subprocess.run([self.mdspace, *words], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{self.name}: {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def connect(self):
        client = nbd.NBD()
        client.connect_unix(self.socket)
        return client

    def contents(self):
        client = self.connect()
        size = len(self.model.known) * BLOCK
        data = b"".join(bytes(client.pread(min(1 << 20, size - at), at)) for at in range(0, size, 1 << 20))
        client.shutdown()
        return lambda block: data[block * BLOCK:(block + 1) * BLOCK]

    def digest(self):
        digest = hashlib.sha256()
        for member in self.members:
            with open(member, "rb") as file:
                digest.update(file.read())
        return digest.digest()

    def move(self, choice):
        """Begins an overlay, goes on in it, or commits it."""
        if self.below is not None and choice.random() < 0.5:
            self.commit(choice)
        self.in_overlay = self.below is not None or choice.random() < 0.3 and not self.buffered
        if self.in_overlay and self.below is None:
            self.below = self.digest()

    def commit(self, choice):
        """Commits the overlay, which may be killed meanwhile and is repeated then. """
        if self.below is None:
            return
        if self.digest() != self.below:
            sys.exit(f"{self.name}: a member was written to, although there was an overlay")
        self.below = None
        process = subprocess.Popen([self.mdspace, "overlay", "commit", self.overlay], stdout=subprocess.DEVNULL)
        timer = threading.Timer(choice.uniform(0, 0.06), process.kill)
        timer.start()
        status = process.wait()
        timer.cancel()
        self.killed_commits += status != 0
        if status not in (0, -signal.SIGKILL):
            sys.exit(f"{self.name}: the commit ended with {status}")
        while os.path.isdir(self.overlay):
            done = subprocess.run([self.mdspace, "overlay", "commit", self.overlay], capture_output=True, text=True)
            if done.returncode != 0 and "in use by" not in done.stderr:
                sys.exit(f"{self.name}: the commit was not repeated: {done.stdout}{done.stderr}")

    def is_whole(self):
        """The server holds what was promised, now and when its members agree again; a scrub finds nothing."""
        for block, version in self.buffered.items():
            self.model.is_stable([block], version)
        self.buffered = {}
        found = self.model.judge(self.contents(), f"{self.name}, after a kill under {self.cache}")
        self.model.known, self.model.sent = found, {}
        while not json.loads(self.run("status", "--json", "--control", self.control))["in_agreement"]:
            pass
        self.model.judge(self.contents(), f"{self.name}, when its members agree again")
        self.run("scrub", "--control", self.control)  # it fails when anything is found


class Load:
    """Writes and flushes, as many at a time as may be, until the server is gone."""

    def __init__(self, array, choice):
        self.array, self.model, self.choice = array, array.model, choice
        self.depth = choice.choice(DEPTHS)
        self.next = choice.choice([None, 0])  # where a linear writer goes on
        self.busy = set()  # blocks of writes under way
        self.answered = {}  # of what was answered and not flushed: block -> version
        self.writes = self.flushes = self.under_way = 0

    def blocks(self):
        total = len(self.model.known)
        if self.next is not None:
            first = self.next if self.next + 4 <= total and self.choice.random() < 0.98 else self.choice.randrange(total - 4)
            self.next = first + 4
            return range(first, first + 4)
        count = self.choice.choice([1, 1, 1, 2, 5, 16, 48])
        first = self.choice.randrange(total - count)
        return range(first, first + count)

    def write(self, client):
        blocks = self.blocks()
        if not self.busy.isdisjoint(blocks):
            return
        version = self.model.send(blocks)
        self.busy.update(blocks)

        def done(error):
            if error.value == 0:
                self.writes += 1
                self.busy.difference_update(blocks)
                if self.array.cache == "writethrough" and not self.array.in_overlay:
                    self.model.is_stable(blocks, version)
                else:
                    self.answered.update(dict.fromkeys(blocks, version))
                    if not self.array.in_overlay:
                        self.array.buffered.update(dict.fromkeys(blocks, version))
            return 1

        data = b"".join(stamp(block, version) for block in blocks)
        client.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data)), blocks.start * BLOCK, completion=done)

    def flush(self, client):
        covered, self.answered = self.answered, {}

        def done(error):
            if error.value == 0:
                self.flushes += 1
                for block, version in covered.items():
                    self.model.is_stable([block], version)
            return 1

        client.aio_flush(completion=done)

    def run(self, server, delay):
        """Goes on until the server is killed, `delay` seconds from now."""
        client = self.array.connect()
        timer = threading.Timer(delay, server.kill)
        timer.start()
        try:
            while True:
                while client.aio_in_flight() < self.depth:
                    self.flush(client) if self.choice.random() < 0.03 else self.write(client)
                self.under_way = client.aio_in_flight()
                client.poll(-1)
        except nbd.Error:
            pass  # the server is gone; what it had not answered may have been done or not
        timer.join()
        if server.wait() != -signal.SIGKILL:
            sys.exit(f"{self.array.name}: the server ended by itself")


def run(mdspace, directory, rounds, seed):
    mdspace = os.path.abspath(mdspace)
    os.chdir(directory)
    print(f"seed {seed}", flush=True)
    choice = random.Random(seed)
    arrays = [Array(mdspace, *array) for array in ARRAYS]
    writes = flushes = midway = layered = 0
    for number in range(rounds + len(arrays)):
        array = arrays[number % len(arrays)]
        array.cache = choice.choice(["writethrough", "streams", "writeback"])
        array.move(choice)
        server = Server(array)
        try:
            array.is_whole()
            load = Load(array, choice)
            load.run(server, choice.uniform(0, 0.3))
        finally:
            server.process.kill()
        layered += array.in_overlay
        writes, flushes, midway = writes + load.writes, flushes + load.flushes, midway + (load.under_way > 0)
    for array in arrays:
        array.commit(choice)
        for buffer in glob.glob(f"/dev/shm/mdspace-{array.uuid}.*"):
            os.remove(buffer)  # the kernel has the members from now on
        with open(array.name + ".model", "w") as file:
            json.dump({"known": array.model.known, "sent": array.model.sent}, file)
    if not writes or not flushes or not midway:
        sys.exit(f"nothing was shown: {writes} writes, {flushes} flushes, {midway} kills with requests under way")
    commits = sum(array.killed_commits for array in arrays)
    print(f"{rounds + len(arrays)} kills, {midway} with requests under way, {layered} in an overlay; "
          f"{commits} commits killed; {writes} writes and {flushes} flushes answered")


def judge(directory, name, device):
    with open(os.path.join(directory, name + ".model")) as file:
        saved = json.load(file)
    model = Model(len(saved["known"]))
    model.known = saved["known"]
    model.sent = {int(block): versions for block, versions in saved["sent"].items()}
    with open(device, "rb") as disk:
        model.judge(lambda block: os.pread(disk.fileno(), BLOCK, block * BLOCK), f"{name}, by the kernel's md")
    print(f"{name}: {len(model.known)} blocks are what they may be")


if __name__ == "__main__":
    if sys.argv[1] == "judge":
        judge(*sys.argv[2:5])
    else:
        import nbd

        run(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]) if len(sys.argv) > 5 else random.randrange(1 << 32))
