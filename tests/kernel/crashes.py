#!/usr/bin/python3
"""Writers of many arrays at once, in a guest whose kernel panics amid them, and the judge of what is left (crashes.sh).

    crashes.py write DIRECTORY LIFE LEDGER ARRAY...  writes to all arrays until the kernel panics; it never returns
    crashes.py judge DIRECTORY LIFE LEDGER ARRAY...  what LIFE has left; a line for each in DIRECTORY/results

ARRAY is NAME=NOTE=DEVICE; judged, a line is NAME, LIFE, NOTE and the counts of `Judge`. NAME.model in DIRECTORY holds the
version of each block. LEDGER is a disk that belongs to no array: each writer notes there which batch of writes it begins, and
which it has seen flushed. So the judge knows which blocks were being written. Each other block is as it was, or one was lost.

It repairs what it finds wrong by writing it again, so that each life begins with what its model says.
"""

import mmap
import os
import random
import struct
import sys
import threading

BLOCK = 4096
WRITERS = 4  # of each array, each in a part of its own
LEDGER_BYTES = 512  # of each writer
STEP = 1 << 18
# Batches of each array, and then of all together, before the kernel panics.
LEAST_BATCHES = 4
MORE_BATCHES = (1, 200)


def stamp(block, version):
    """A block's bytes; version 0 is a block never written."""
    return bytes(BLOCK) if version == 0 else struct.pack("<QQ", block, version) * (BLOCK // 16)


def version_of(data, block):
    """Which version these bytes are; None if none as a whole."""
    version = struct.unpack_from("<QQ", data)[1]
    return version if data == stamp(block, version) else None


class Array:
    def __init__(self, directory, text):
        self.name, self.note, device = text.split("=")
        self.device = os.open(device, os.O_RDWR | os.O_DIRECT)
        self.blocks = os.lseek(self.device, 0, os.SEEK_END) // BLOCK
        self.path = os.path.join(directory, self.name + ".model")
        self.model = [0] * self.blocks
        if os.path.exists(self.path):
            with open(self.path, "rb") as file:
                self.model = list(struct.unpack(f"<{self.blocks}Q", file.read()))

    def save(self):
        with open(self.path, "wb") as file:
            file.write(struct.pack(f"<{self.blocks}Q", *self.model))
            file.flush()
            os.fsync(file.fileno())

    def batches(self, life, writer):
        """For ever: a batch's version and its writes, each a first block and a count."""
        choice = random.Random(f"{self.name} {life} {writer}")
        part = self.blocks // WRITERS
        number = 0
        while True:
            number += 1
            taken, writes = set(), []
            for _ in range(choice.randrange(3, 9)):
                count = choice.choice([1, 1, 1, 1, 2, 3, 8, 16])
                first = writer * part + choice.randrange(part - count)
                if taken.isdisjoint(range(first, first + count)):
                    taken.update(range(first, first + count))
                    writes.append((first, count))
            yield life << 32 | writer << 28 | number, writes

    def put(self, memory, first, count, version):
        for block in range(count):
            memory[block * BLOCK : (block + 1) * BLOCK] = stamp(first + block, version)
        view = memoryview(memory)[: count * BLOCK]
        if os.pwrite(self.device, view, first * BLOCK) != len(view):
            sys.exit(f"{self.name}: a short write")


def write(directory, life, ledger, *texts):
    arrays = [Array(directory, text) for text in texts]
    ledger, life = os.open(ledger, os.O_RDWR | os.O_DIRECT), int(life)
    least = {array.name: LEAST_BATCHES for array in arrays}
    more = random.Random(life).randrange(*MORE_BATCHES)
    over, lock = threading.Event(), threading.Lock()

    def ended(array):
        """A batch of that array has."""
        nonlocal more
        with lock:
            if least:
                least[array.name] = least.get(array.name, 1) - 1
                if least[array.name] <= 0:
                    del least[array.name]
            else:
                more -= 1
            if more == 0:
                over.set()

    def writer(array, own, place):
        memory, note = mmap.mmap(-1, 16 * BLOCK), mmap.mmap(-1, BLOCK)
        for done, (version, writes) in enumerate(array.batches(life, own)):
            note[:24] = struct.pack("<QQQ", life, done, done + 1)
            os.pwrite(ledger, memoryview(note)[:LEDGER_BYTES], place)
            for first, count in writes:
                array.put(memory, first, count, version)
            os.fsync(array.device)
            ended(array)

    for number, array in enumerate(arrays):
        for own in range(WRITERS):
            place = (number * WRITERS + own) * LEDGER_BYTES
            threading.Thread(target=writer, args=(array, own, place), daemon=True).start()
    with open("/proc/sysrq-trigger", "w") as trigger:
        print("crashing", flush=True)
        os.fsync(sys.stdout.fileno())
        over.wait()
        trigger.write("c")


class Judge:
    """Of an array after a life: blocks that nothing was writing and that are lost; answered writes that were flushed and are
    lost; blocks being written that are neither as before nor as after; blocks that were being written."""

    def __init__(self, array, life, notes):
        self.array, self.lost, self.unkept, self.torn = array, 0, 0, 0
        self.flushed, self.under_way = {}, {}
        for own, (noted, done, begun) in enumerate(notes):
            if noted != life:
                continue  # it has not begun in this life
            for number, (version, writes) in zip(range(1, begun + 1), array.batches(life, own)):
                into = self.flushed if number <= done else self.under_way
                into.update((block, version) for first, count in writes for block in range(first, first + count))

    def read(self):
        """All of the array, block by block; None where it cannot be read."""
        memory = mmap.mmap(-1, STEP)
        for first in range(0, self.array.blocks, STEP // BLOCK):
            count = min(STEP // BLOCK, self.array.blocks - first)
            try:
                have = os.preadv(self.array.device, [memoryview(memory)[: count * BLOCK]], first * BLOCK)
                yield from (memory[at * BLOCK : (at + 1) * BLOCK] for at in range(have // BLOCK))
                yield from [None] * (count - have // BLOCK)
            except OSError:
                yield from [None] * count

    def judge(self):
        model, wrong = self.array.model, []
        for block, version in self.flushed.items():
            model[block] = version
        for block, data in enumerate(self.read()):
            found = None if data is None else version_of(data, block)
            if found == model[block]:
                continue
            if block in self.under_way:
                if found == self.under_way[block]:
                    model[block] = found
                    continue
                self.torn += 1
            elif block in self.flushed:
                self.unkept += 1
            else:
                self.lost += 1
            wrong.append(block)
        memory = mmap.mmap(-1, BLOCK)
        for block in wrong:
            self.array.put(memory, block, 1, model[block])
        os.fsync(self.array.device)
        self.array.save()

    def line(self, life):
        return (f"{self.array.name}\t{life}\t{self.array.note}\t{self.lost}\t{self.unkept}\t{self.torn}\t"
                f"{len(self.under_way)}\t{len(self.flushed)}\n")


def judge(directory, life, ledger, *texts):
    with open(ledger, "rb") as file:
        notes = [struct.unpack("<QQQ", file.read(LEDGER_BYTES)[:24]) for _ in range(len(texts) * WRITERS)]
    with open(os.path.join(directory, "results"), "a") as results:
        for number, text in enumerate(texts):
            one = Judge(Array(directory, text), int(life), notes[number * WRITERS : (number + 1) * WRITERS])
            one.judge()
            results.write(one.line(life))
        results.flush()
        os.fsync(results.fileno())


if __name__ == "__main__":
    {work.__name__: work for work in (write, judge)}[sys.argv[1]](*sys.argv[2:])
