#!/usr/bin/python3
"""Does for a script in a guest what it would have to start programs for, which is what costs there (docs/decisions/1903).

    hand.py      one for each script, started by hand.sh

Reads requests from standard input, a line each, its words separated by tabs, and answers each with a line: `0`, or another
status, and what there is to say. The server that a script has started listens at control.socket and nbd.socket.

It never looks into the bytes it copies, and never judges: what is right is the script's to say.
"""

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import random
import socket
import struct
import sys
import types

LOOP_SET_FD, LOOP_CLR_FD, LOOP_SET_CAPACITY, LOOP_CTL_GET_FREE = 0x4C00, 0x4C01, 0x4C07, 0x4C82
# Of _IO(); POWER gives that a direction.
BLKFLSBUF = 0x20001261 if os.uname().machine.startswith("ppc") else 0x1261
STEP = 1 << 18
NBD_STEP = 1 << 20  # of a request
# Memory of whole pages, as O_DIRECT wants it; touched once, then it costs no page fault any more.
BUFFERS = [mmap.mmap(-1, STEP), mmap.mmap(-1, STEP)]


def opened(path, flags):
    return os.open(path, flags | os.O_CLOEXEC, 0o644)


def filled(descriptor, buffer, length):
    """How many bytes of so many came: fewer at the end of the file alone."""
    done = 0
    while done < length:
        count = os.readv(descriptor, [memoryview(buffer)[done:length]])
        if count == 0:
            break
        done += count
    return done


def alike(one, other, length, skip_one="0", skip_other="0"):
    """From there on, so many bytes; -1 for all."""
    left = int(length)
    files = [opened(one, os.O_RDONLY), opened(other, os.O_RDONLY)]
    try:
        for file, skip in zip(files, (skip_one, skip_other)):
            os.lseek(file, int(skip), os.SEEK_SET)
        while left:
            step = STEP if left < 0 else min(left, STEP)
            count, others = (filled(file, buffer, step) for file, buffer in zip(files, BUFFERS))
            if count != others or memoryview(BUFFERS[0])[:count] != memoryview(BUFFERS[1])[:count]:
                return 1, "other bytes"
            if count < step:
                return (0, "") if left < 0 else (1, "too short")
            left -= count if left > 0 else 0
        return 0, ""
    finally:
        for file in files:
            os.close(file)


def copy(source, skip, target, seek, length, *how):
    """So many bytes, -1 for all there are. `afresh`: past the source's cache, `direct`: past the target's, `sync`: it has
    them on stable storage, `fits`: until it is full.
    """
    left = int(length)
    files = [opened(source, os.O_RDONLY | (os.O_DIRECT if "afresh" in how else 0))]
    files.append(opened(target, os.O_WRONLY | os.O_CREAT | (os.O_DIRECT if "direct" in how else 0)))
    try:
        for file, place in zip(files, (skip, seek)):
            os.lseek(file, int(place), os.SEEK_SET)
        while left:
            step = STEP if left < 0 else min(left, STEP)
            count = filled(files[0], BUFFERS[0], step)
            written = 0
            while written < count:
                try:
                    written += os.write(files[1], memoryview(BUFFERS[0])[written:count])
                except OSError as error:
                    if error.errno != 28 or "fits" not in how:
                        raise
                    left = 0
                    break
            if count < step:
                if left > 0:
                    return 1, "too short"
                break
            left -= count if left > 0 else 0
        if "sync" in how:
            os.fsync(files[1])
        return 0, ""
    finally:
        for file in files:
            os.close(file)


def noise(target, seek, length):
    """So many random bytes."""
    left = int(length)
    file = opened(target, os.O_WRONLY | os.O_CREAT)
    os.lseek(file, int(seek), os.SEEK_SET)
    while left > 0:
        left -= os.write(file, os.urandom(min(left, STEP)))
    os.close(file)
    return 0, ""


def detach():
    """Every loop device is let go of; one that is still in use goes with its last user."""
    for number in sorted(int(name[4:]) for name in os.listdir("/sys/block") if name.startswith("loop")):
        if os.path.exists(f"/sys/block/loop{number}/loop"):
            device = opened(f"/dev/loop{number}", os.O_RDWR)
            try:
                fcntl.ioctl(device, LOOP_CLR_FD)
            except OSError:
                pass  # somebody else's look at it came first
            os.close(device)
    return 0, ""


def attach(*files):
    """Each to a loop device that is free."""
    devices = []
    control = opened("/dev/loop-control", os.O_RDWR)
    for name in files:
        devices.append(f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}")
        file, device = opened(name, os.O_RDWR), opened(devices[-1], os.O_RDWR)
        fcntl.ioctl(device, LOOP_SET_FD, file)
        os.close(device)
        os.close(file)
    os.close(control)
    return 0, " ".join(devices)


def blank(count, size):
    """New loop devices over the new files m0, m1, ... of that size."""
    detach()
    names = [f"m{number}" for number in range(int(count))]
    for name in names:
        if os.path.exists(name):
            os.unlink(name)
        file = opened(name, os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, int(size))
        os.close(file)
    return attach(*names)


def take(directory, count, *how):
    """The images m0, m1, ... of a directory, brought here and attached; `empty`: they are of zeros."""
    detach()
    names = [f"m{number}" for number in range(int(count))]
    for name in names:
        image = os.path.join(directory, name)
        file = opened(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.ftruncate(file, os.stat(image).st_size)
        os.close(file)
        if "empty" not in how:
            copy(image, 0, name, 0, -1)
    return attach(*names)


def give(directory, count):
    """What `take` has brought, back again."""
    detach()
    for number in range(int(count)):
        copy(f"m{number}", 0, os.path.join(directory, f"m{number}"), 0, -1)
        os.unlink(f"m{number}")
    return 0, ""


def move_out(directory, place, length, *files):
    """So many bytes of each from there on: to where they are in its namesake there; here it has none any more."""
    for name in files:
        size = os.stat(name).st_size
        copy(name, place, os.path.join(directory, name), place, length)
        os.truncate(name, 0)
        os.truncate(name, size)
    return 0, ""


def flush(*devices):
    """What the kernel has cached of them is forgotten."""
    for name in devices:
        device = opened(name, os.O_RDONLY)
        fcntl.ioctl(device, BLKFLSBUF, 0)
        os.close(device)
    return 0, ""


def released(*devices):
    """Nobody holds them."""
    for name in devices:
        try:
            os.close(opened(name, os.O_RDWR | os.O_EXCL))
        except OSError as error:
            return 1, str(error)
    return 0, ""


def greets(path):
    """Whoever listens there says that it speaks NBD."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        return (0 if connection.recv(8) == b"NBDMAGIC" else 1), ""


@contextlib.contextmanager
def client():
    """Of the server, over NBD."""
    import nbd  # by those alone who need it

    handle = nbd.NBD()
    handle.connect_unix("nbd.socket")
    yield handle
    handle.shutdown()


def size_served():
    """What a new client is told that the array's size is."""
    with client() as handle:
        return 0, str(handle.get_size())


def receive(target):
    """All of the array, by a client of its own."""
    with client() as handle, open(target, "wb", buffering=0) as file:
        size = handle.get_size()
        for place in range(0, size, NBD_STEP):
            file.write(handle.pread(min(NBD_STEP, size - place), place))
    return 0, ""


def lost(source, model):
    """How many blocks of 4 KiB cannot be read, of a device, or of what the server serves (`served`); the others are the model's."""
    count, others = 0, 0
    with contextlib.ExitStack() as stack:
        if source == "served":
            handle = stack.enter_context(client())
            read = lambda length, place: handle.pread(length, place)
        else:
            device = stack.enter_context(open(source, "rb", buffering=0))
            read = lambda length, place: os.pread(device.fileno(), length, place)
        expected = stack.enter_context(open(model, "rb", buffering=0))
        place = 0
        while right := expected.read(STEP):
            for length in (len(right), 4096):  # in parts only where it does not go as a whole
                failed = 0
                for at in range(0, len(right), length):
                    try:
                        part = right[at : at + length]
                        have = read(len(part), place + at)
                        if len(have) < len(part):  # as far as it can be read
                            failed += 1
                        else:
                            others += have != part
                    except Exception:
                        failed += 1
                if not failed:
                    break
            count += failed
            place += len(right)
    return (1 if others else 0), str(count)


def send(source, seek, length):
    """So many of its bytes from there on, -1 for all, to the same place of the array, and flushed."""
    with client() as handle, open(source, "rb", buffering=0) as file:
        place, left = int(seek), int(length) if length != "-1" else os.fstat(file.fileno()).st_size - int(seek)
        file.seek(place)
        while left > 0:
            piece = file.read(min(NBD_STEP, left))
            handle.pwrite(piece, place)
            place += len(piece)
            left -= len(piece)
        handle.flush()
    return 0, ""


def request(method, path, body=""):
    """The server's answer: its status, its body."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("control.socket")
        head = f"{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        answer = bytearray()
        while piece := connection.recv(STEP):
            answer += piece
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def status():
    """What `mdspace status --json` prints, on a line."""
    code, body = request("GET", "/v1/status")
    return (0 if code == 200 else 1), body.replace("\n", " ")


def value(document, expression):
    """Its value, where the names are those of the document, and `member(WHICH)` one of its members by name or by slot."""
    names = vars(json.loads(document, object_hook=lambda fields: types.SimpleNamespace(**fields)))
    names["member"] = lambda which: next(m for m in names["members"] if which in (m.name, m.slot))
    return 0, str(eval(expression, names))


def said(expression):
    """Of what the server's status is."""
    return value(request("GET", "/v1/status")[1], expression)


def found(file, expression):
    """Of a file."""
    with open(file, "rb") as opened_file:
        return value(opened_file.read(), expression)


def digest(place, *files):
    """What b2sum says of their bytes from there on."""
    digests = []
    for name in files:
        digests.append(hashlib.blake2b())
        file = opened(name, os.O_RDONLY)
        os.lseek(file, int(place), os.SEEK_SET)
        while count := filled(file, BUFFERS[0], STEP):
            digests[-1].update(memoryview(BUFFERS[0])[:count])
        os.close(file)
    return 0, " ".join(digest.hexdigest() for digest in digests)


BLOCK = 4096


def blocks(name):
    """The file's blocks of 4 KiB, in order."""
    with open(name, "rb") as file:
        while block := file.read(BLOCK):
            yield block


def logged(chunk, data_chunks, *members):
    """The bytes of the components that the newest partial parity logs of these members name: `START:END` each."""
    chunk, data_chunks, ranges = int(chunk), int(data_chunks), set()
    for name in members:
        with open(name, "rb") as file:
            file.seek(4096 + 96)
            (offset,) = struct.unpack("<h", file.read(2))
            at, newest = 4096 + offset * 512, (0, [])
            while True:  # one log after the other, each of a header and its partial parity
                file.seek(at + 520)
                generation, count, _ = struct.unpack("<QII", file.read(16))
                if generation <= newest[0]:
                    break
                newest = generation, [struct.unpack("<QIIII", file.read(24)) for _ in range(count)]
                at += 4096 + sum(partial for _, partial, *_ in newest[1])
            for sector, partial, length, _, _ in newest[1]:
                stripe, within = sector * 512 // (chunk * data_chunks), sector * 512 % chunk
                start = stripe * chunk + within
                ranges.add(f"{start}:{start + (partial or length // data_chunks)}")
    return 0, " ".join(sorted(ranges))


def events(file, at, count):
    """Puts an event count into the superblock 1.x at that byte of a file."""
    with open(file, "r+b") as image:
        image.seek(int(at))
        block = bytearray(image.read(4096))
        block[200:208] = int(count).to_bytes(8, "little")
        block[216:220] = bytes(4)
        length = 256 + 2 * int.from_bytes(block[220:224], "little")
        words = block[:length].ljust(length + -length % 4, b"\0")
        total = sum(int.from_bytes(words[word:word + 4], "little") for word in range(0, len(words), 4))
        block[216:220] = ((total & 0xFFFFFFFF) + (total >> 32) & 0xFFFFFFFF).to_bytes(4, "little")
        image.seek(int(at))
        image.write(block)
    return 0, ""


def cut(before, after, target, data_at, seed, *ranges):
    """A file as a loss of power leaves it. The seed decides of each block in these ranges of the component whether its write
    came through; all others have."""
    chance, data_at = random.Random(int(seed)), int(data_at)
    ranges = [tuple(map(int, bounds.split(":"))) for bounds in ranges]
    with open(target, "wb") as file:
        for number, (old, new) in enumerate(zip(blocks(before), blocks(after), strict=True)):
            at = number * BLOCK - data_at
            lost = old != new and any(start <= at < end for start, end in ranges) and chance.random() < 0.5
            file.write(old if lost else new)
    return 0, ""


def either(name, one, other):
    """Each block is that of the one file or of the other."""
    for number, (have, *rights) in enumerate(zip(blocks(name), blocks(one), blocks(other), strict=True)):
        if have not in rights:
            return 1, f"block {number} is from neither before the write nor after it"
    return 0, ""


REQUESTS = {work.__name__: work for work in (alike, copy, noise, detach, attach, blank, take, give, move_out, flush, released, greets, size_served, receive, lost, send, status, said, found, digest, logged, events, cut, either)}
for line in sys.stdin:
    name, *words = line.rstrip("\n").split("\t")
    try:
        code, text = REQUESTS[name](*words)
    except Exception as error:
        code, text = 1, f"{type(error).__name__}: {error}"
    print(code, text.replace("\n", " "), flush=True)
