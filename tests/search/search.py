#!/usr/bin/python3
"""Arrays whose superblocks are wiped, and what `mdspace detect --search` says of them.

    search.py MDSPACE DIRECTORY COUNT [--seed N] [--systems ext4,xfs,btrfs,luks,ext4-nosums,ext4-bare,ext3] [--quiet]
        [--keep]

Each case follows from its seed: a level, layout, chunk, number of members and data offset; ext4, XFS or Btrfs made by
its own mkfs with files in it; often a member is missing or stale. A kernel makes the changes that a stale member has
not, and leaves some of ext4 and XFS without unmounting them (`cargo xtask kernel` is that kernel). LUKS, if asked for,
is cryptsetup's header before random bytes, which ciphertext looks like. The engine writes the array, the superblocks
are zeroed, or in some cases those of another array are written over it, and the members are given in another order. In
others the members are images of failing disks, with a map of what could not be read. The judge is not the search: a
shape is right if the bytes that it reads are those of the file system that was written, or of what is left of it.
Blocks in which the other array's superblocks are count for nothing. "Right, not proved" is what the search calls
undecided, if the one shape that it lists is right. "Undecided" counts as proved if the file system's own check calls
two shapes clean that read different bytes: shapes that are listed, or the true one. "Overwritten" are those of which
nothing was found, and the only superblock is overwritten, the only partition table, or the only text of LVM.
"""

import argparse
import hashlib
import json
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

MIB = 1 << 20
BLOCK = 4096
# Metadata, and the byte at which mdadm of some time began the data.
ERAS = [
    ("1.0", 0),
    ("1.2", 8 << 10),
    ("1.2", 12 << 10),
    ("1.1", 132 << 10),
    ("1.2", 136 << 10),
    ("1.2", 1 * MIB),
    ("1.2", 2 * MIB),
    ("1.2", 4 * MIB),
    ("1.2", 16 * MIB),
    ("1.2", 128 * MIB),
]
LEVELS = {
    "0": ([""], 2, 12),
    "1": ([""], 2, 3),
    "4": ([""], 3, 12),
    "5": (["la", "ra", "ls", "rs", "parity-first", "parity-last"], 3, 12),
    "6": (["la", "ra", "ls", "rs", "parity-first", "parity-last", "ddf-zero-restart", "ddf-N-restart", "ddf-N-continue", "la-6", "ra-6", "ls-6", "rs-6", "parity-first-6"], 4, 12),
    "10": (["n2", "n3", "f2", "o2"], 3, 12),
}
# And the least MiB that each takes.
SYSTEMS = {"ext4": 60, "xfs": 330, "btrfs": 200, "luks": 24, "ext4-nosums": 60, "ext4-bare": 60, "ext3": 60}
# The kernel's driver of ext4 is that of all of these.
EXT = ("ext4", "ext4-nosums", "ext4-bare", "ext3")


# Runs a script under a kernel.
KERNEL = [Path(__file__).resolve().parents[2] / "target/debug/xtask", "kernel", "--timeout", "60"]


def run(*arguments, check=True, **options):
    done = subprocess.run([str(word) for word in arguments], capture_output=True, **options)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))[:300]}: {done.stderr.decode(errors='replace')[-600:]}")
    return done


def pool():
    """Files of this machine, as people have them: texts, programs, archives."""
    found = []
    for root in ("/usr/share/doc", "/usr/share/perl", "/usr/lib/python3", "/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/share/zoneinfo", "/usr/share/i18n"):
        for directory, _, names in os.walk(root):
            for name in names:
                path = os.path.join(directory, name)
                if os.path.isfile(path) and not os.path.islink(path) and " " not in path and 0 < os.path.getsize(path) < 24 * MIB:
                    found.append((path, os.path.getsize(path)))
    return sorted(found)


def choose(chance, files, wanted):
    chosen, total = [], 0
    while total < wanted and len(chosen) < 6000:
        path, size = chance.choice(files)
        if total + size > wanted * 1.2:
            if size < 4096:
                break
            continue
        chosen.append(path)
        total += size + 4096
    return chosen


class Case:
    def __init__(self, seed, files, systems):
        chance = self.chance = random.Random(seed)
        self.seed = seed
        self.level = chance.choices(list(LEVELS), [10, 6, 6, 30, 24, 24])[0]
        layouts, least, most = LEVELS[self.level]
        self.layout = chance.choice(layouts)
        self.members = chance.randint(least, most)
        self.chunk = 0 if self.level == "1" else 4096 << chance.randint(0, 8)
        self.metadata, self.offset = chance.choice(ERAS)
        self.system = chance.choice(systems)
        self.fill = chance.random() * 0.6
        data = {"0": self.members, "1": 1, "4": self.members - 1, "5": self.members - 1, "6": self.members - 2}.get(self.level)
        if data is None:
            data = max(1, self.members // int(self.layout[1]))
        self.each = max(SYSTEMS[self.system] * MIB // data, 8 * MIB) + chance.randint(1, 24) * MIB
        self.harm = chance.choice(["", "", "missing", "missing", "stale"]) if self.level != "0" else ""
        if self.harm == "stale" and self.system == "luks":
            self.harm = "missing"
        self.unclean = self.system in (*EXT, "xfs") and random.Random(f"unclean {seed}").random() < 0.3
        # What the file system lies in.
        self.outer = random.Random(f"outer {seed}").choices(["", "GPT", "LVM"], [10, 1, 1])[0]
        self.created = self.level != "1" and random.Random(f"created {seed}").random() < 0.15
        self.failing = random.Random(f"failing {seed}").random() < 0.2
        self.files = files

    def __str__(self):
        chunk = f" chunk {self.chunk >> 10}K" if self.chunk else ""
        return (
            f"{self.seed}: RAID-{self.level} {self.layout} x{self.members}{chunk} offset {self.offset >> 10}K "
            f"{self.system} {self.fill * 100:.0f} % {self.outer} {self.harm}"
            f"{' not unmounted' if self.unclean else ''}{' created anew' if self.created else ''}"
            f"{' with holes' if self.failing else ''}"
        )

    def make(self, place, mdspace):
        names = [place / f"slot{number}.img" for number in range(self.members)]
        size = self.each + self.offset + MIB
        options = ["--level", self.level, "--metadata", self.metadata, "--size", size, "--bitmap", "none"]
        if self.chunk:
            options += ["--chunk", self.chunk]
        if self.layout:
            options += ["--layout", self.layout]
        if self.metadata != "1.0":
            options += ["--data-offset", self.offset]
        status = json.loads(run(mdspace, "create", "--json", *options, *names).stdout)
        self.size = status["component_bytes"]
        image, inner = place / "image", place / "inner"
        self.room = status["array_bytes"] // 65536 * 65536
        self.mkfs(inner, self.room - 10 * MIB if self.outer else self.room, place)
        if self.unclean:
            self.change(inner, "crash")
        self.wrap(inner, image)
        with open(image, "rb") as file:
            run(mdspace, "write", *names, stdin=file)
        victim = self.chance.randrange(self.members)
        given = list(names)
        if self.harm == "missing":
            names[victim].unlink()
            del given[victim]
        elif self.harm == "stale":
            self.change(inner, "change")
            self.wrap(inner, image)
            rest = [name for name in names if name != names[victim]]
            with open(image, "rb") as file:
                run(mdspace, "write", *rest, stdin=file)
        for name in given:
            with open(name, "r+b") as file:
                at = {"1.0": (size - 8192) // 4096 * 4096, "1.1": 0, "1.2": 4096}[self.metadata]
                file.seek(at)
                file.write(bytes(4096))
        self.chance.shuffle(given)
        if self.created:
            other = ["--level", "5", "--chunk", "256K", "--metadata", "1.2", "--assume-clean"]
            run(mdspace, "create", *other, *given, *["missing"] * (len(given) < 3), "--force")
        self.order = ["missing"] * self.members
        renamed = []
        for number, name in enumerate(given):
            renamed.append(place / f"disk{number}")
            self.order[names.index(name)] = renamed[-1].name
            name.rename(renamed[-1])
        if self.harm == "stale":
            self.order[victim] = "missing"
        return image, renamed

    def harm_images(self, disks):
        """Takes places away from some images, and says so in their maps. Gives what was there."""
        taken = []
        # One disk may have died early, so that its image ends there.
        dead = self.chance.choice(disks) if self.chance.random() < 0.3 else None
        for disk in disks:
            size, end, lines = disk.stat().st_size, 0, ["0x0 ? 1"]
            places = self.chance.sample(range(0, size, 512), self.chance.randint(0, 12))
            holes = [(at, self.chance.choice([512, 4096, 65536, 262144])) for at in places]
            if disk == dead:
                holes.append((self.chance.randrange(self.offset, size, 512), size))
            for first, length in sorted(holes):
                at, behind = max(first, end), min(first + length, size)
                if at >= behind:
                    continue
                length = behind - at
                lines += [f"{end:#x} {at - end:#x} +"] * (at > end) + [f"{at:#x} {length:#x} -"]
                end = at + length
                with open(disk, "r+b") as file:
                    file.seek(at)
                    taken.append((disk, at, file.read(length)))
                    file.seek(at)
                    file.write(b"\xa5" * length)
            if disk == dead:
                os.truncate(disk, taken[-1][1])
            disk.with_suffix(".map").write_text("\n".join([*lines, *[f"{end:#x} {size - end:#x} +"] * (end < size)]) + "\n")
        return taken

    def geometry(self):
        """The true one, in the text that commands take."""
        fields = [f"level={self.level}"]
        if self.layout:
            fields.append(f"layout={self.layout}")
        if self.chunk:
            fields.append(f"chunk={self.chunk}")
        if self.level == "10" and self.layout[0] in "fo":
            fields.append(f"size={self.size}")
        return ",".join([*fields, f"offset={self.offset}", "order=" + ",".join(self.order)])

    def mkfs(self, image, size, place):
        with open(image, "wb") as file:
            file.truncate(size)
        wanted = min(self.fill * size * 0.9, 120 * MIB)
        if self.system == "luks":
            luks(image, size, self.chance)
            return
        files = choose(self.chance, self.files, wanted)
        if self.system == "xfs":
            proto = place / "proto"
            lines = ["/", "0 0", "d--755 0 0"]
            for number in range(0, len(files), 40):
                lines.append(f"d{number // 40} d--755 0 0")
                lines += [f"f{number + index} ---644 0 0 {path}" for index, path in enumerate(files[number : number + 40])]
                lines.append("$")
            lines.append("$")
            proto.write_text("\n".join(lines) + "\n")
            run("mkfs.xfs", "-q", "-f", "-p", proto, image)
            return
        tree = place / "tree"
        for number, path in enumerate(files):
            directory = tree / f"d{number // 40}"
            if number % 40 == 0:
                directory.mkdir(parents=True)
            shutil.copyfile(path, directory / f"f{number}")
        tree.mkdir(exist_ok=True)
        if self.system in EXT:
            run("mke2fs", "-q", "-F", *self.mke2fs(), "-b", "4096", "-d", tree, image)
        else:
            run("mkfs.btrfs", "-q", "-f", "--rootdir", tree, image)
            # It makes the file longer if it wants more room, which an array has not.
            for directory in sorted(tree.iterdir()):
                if image.stat().st_size <= size:
                    break
                shutil.rmtree(directory)
                with open(image, "wb") as file:
                    file.truncate(size)
                run("mkfs.btrfs", "-q", "-f", "--rootdir", tree, image)
        shutil.rmtree(tree)

    def mke2fs(self):
        """The options of mke2fs that make the kind, as firmwares of some years chose them."""
        if self.system == "ext4":
            return ["-t", "ext4"]
        chance = random.Random(f"{self.system} {self.seed}")
        inodes = ["-I", chance.choice(["128", "256", "256"])]
        if self.system == "ext3":
            return ["-t", "ext3", *inodes]
        sums = "uninit_bg" if self.system == "ext4-nosums" else "^uninit_bg"
        wide = chance.choice(["64bit", "^64bit", "^64bit"])
        return ["-t", "ext4", "-O", f"^metadata_csum,{wide},{sums}", *inodes]

    def wrap(self, inner, image):
        """The image of the array: the file system, or what it lies in."""
        if not self.outer:
            os.link(inner, image) if not image.exists() else None
            return
        self.inner_bytes = inner.stat().st_size
        head, pieces = self.head()
        with open(image, "wb") as file, open(inner, "rb") as source:
            file.truncate(self.room)
            file.write(head)
            for at, to, count in pieces:
                source.seek(at)
                file.seek(to)
                file.write(source.read(count))

    def unwrap(self, image, inner):
        """What `wrap` has put into the image, taken out of a copy of it."""
        if not self.outer:
            image.rename(inner)
            return
        with open(inner, "wb") as file, open(image, "rb") as source:
            file.truncate(self.inner_bytes)
            for at, from_, count in self.head()[1]:
                source.seek(from_)
                file.seek(at)
                file.write(source.read(count))

    def head(self):
        """What is before the file system, and its pieces: where in it, where in the array, and bytes."""
        if self.outer == "GPT":
            return gpt(self.room, MIB, self.inner_bytes), [(0, MIB, self.inner_bytes)]
        return lvm(self.room, self.inner_bytes)

    def is_beyond_finding(self, lost):
        """Whether the other array's superblocks lie over all that says where the file system's blocks are."""
        blocks_of_group = 32768
        if self.outer == "LVM":
            return 1 in lost  # the only text
        if self.outer == "GPT":
            return 0 in lost  # the only table
        has_no_copy = self.room // BLOCK <= blocks_of_group
        return not self.outer and self.system in EXT and has_no_copy and 0 in lost

    def change(self, image, how):
        """More files and fewer others, as a user changes them while a member is absent, or before the power fails."""
        files = choose(self.chance, self.files, 4 * MIB)[:60]
        kernel(image, how, *files)


def kernel(image, how, *files, check=True):
    """A kernel mounts the file system."""
    script = Path(__file__).resolve().with_name("change.sh")
    return run(*KERNEL, "--disk", image, script, "/dev/ubda", how, *files, check=check, cwd=script.parents[2])


def luks(image, size, chance):
    """cryptsetup's header, and random bytes."""
    header = ["--batch-mode", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--type", chance.choice(["luks1", "luks2"])]
    run("cryptsetup", "luksFormat", *header, image, "-", input=b"a secret")
    with open(image, "r+b") as file:
        for at in range(16 * MIB, size, MIB):
            file.seek(at)
            file.write(chance.randbytes(min(MIB, size - at)))


def gpt(disk, at, length):
    """The first sectors of a disk with one partition."""
    entry = b"\x0f" * 16 + b"\x11" * 16 + struct.pack("<QQQ", at // 512, (at + length) // 512 - 1, 0)
    entries = entry.ljust(128, b"\0").ljust(128 * 128, b"\0")
    head = [b"EFI PART", 0x10000, 92, 0, 0, 1, disk // 512 - 1, 34, disk // 512 - 34, b"\x22" * 16, 2, 128, 128, zlib.crc32(entries)]
    form = "<8sIIIIQQQQ16sQIII"
    head[3] = zlib.crc32(struct.pack(form, *head))
    protective = bytes(446) + struct.pack("<IIII", 0, 0xEE, 1, disk // 512 - 1) + bytes(48) + b"\x55\xaa"
    return protective + struct.pack(form, *head).ljust(512, b"\0") + entries


def lvm(disk, length):
    """The start of a physical volume with one volume, whose second half is in front, and the pieces of the volume."""
    extent = 4 * MIB
    count = -(-length // extent)
    first = count // 2
    at, names = MIB, ["a" * 32, "b" * 32]
    segment = 'segment{} {{\nstart_extent = {}\nextent_count = {}\ntype = "striped"\nstripe_count = 1\nstripes = [\n"pv0", {}\n]\n}}\n'
    pieces = [piece for piece in [(0, first, count - first), (first, count - first, 0)] if piece[1]]
    segments = "".join(segment.format(number, *piece) for number, piece in enumerate(pieces, 1))
    dashed = "-".join([names[0][:6], *[names[0][6 + 4 * part : 10 + 4 * part] for part in range(5)], names[0][26:]])
    text = (
        f'vg {{\nid = "{names[1]}"\nseqno = 7\nformat = "lvm2"\nextent_size = {extent // 512}\nphysical_volumes {{\npv0 {{\n'
        f'id = "{dashed}"\npe_start = {at // 512}\npe_count = {(disk - at) // extent}\n}}\n}}\nlogical_volumes {{\nfiles {{\n'
        f'id = "{names[1]}"\nstatus = ["READ", "WRITE", "VISIBLE"]\nsegment_count = {len(pieces)}\n{segments}}}\n}}\n}}\n# {"text " * 900}\n'
    ).encode() + b"\0"

    def crc(data):
        return zlib.crc32(data, ~0xF597A6CF & 0xFFFFFFFF) ^ 0xFFFFFFFF

    pv = names[0].encode() + struct.pack("<QQQQQQQQQQ", disk, at, 0, 0, 0, 4096, MIB - 4096, 0, 0, 0)
    label = struct.pack("<I8s", 32, b"LVM2 001") + pv
    label = label.ljust(512 - 20, b"\0")
    label = b"LABELONE" + struct.pack("<QI", 1, crc(label)) + label
    area = b" LVM2 x[5A%r0N*>" + struct.pack("<IQQQQII", 1, 4096, MIB - 4096, 512, len(text), crc(text), 0)
    area = area.ljust(508, b"\0")
    head = bytes(512) + label.ljust(3584, b"\0") + struct.pack("<I", crc(area)) + area + text
    whole = [(from_ * extent, at + to * extent, min(blocks * extent, length - from_ * extent)) for from_, blocks, to in pieces]
    return head, whole


def digest(*command, length, lost):
    """The sha256 of what a command prints, without the blocks that are lost."""
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        found, at = hashlib.sha256(), 0
        while at < length and (part := process.stdout.read(min(length - at, MIB))):
            found.update(without(part, at, lost))
            at += len(part)
        process.stdout.close()
        process.wait()
    return found.hexdigest() if at == length else "too short"


def without(part, at, lost):
    """What begins at byte `at` of the array, with zeros for the blocks that are lost."""
    here = [block - at // BLOCK for block in lost if at <= block * BLOCK < at + len(part)]
    if here:
        part = bytearray(part)
    for block in here:
        part[block * BLOCK : (block + 1) * BLOCK] = bytes(len(part[block * BLOCK : (block + 1) * BLOCK]))
    return part


def fields(geometry):
    """The fields of a geometry, its sizes in KiB."""
    found = dict(re.findall(r"(\w+)=(.*?)(?=,\w+=|$)", geometry))
    for name in {"chunk", "offset", "size"} & found.keys():
        size = found[name]
        found[name] = int(size[:-1]) * {"K": 1, "M": 1 << 10, "G": 1 << 20}[size[-1]] if size[-1] in "KMG" else int(size) >> 10
    return found


def lost_blocks(mdspace, case, image, place):
    """The blocks of which the true shape no longer reads what was written: another array's superblocks are there."""
    copy, lost = place / "copy", set()
    run(mdspace, "read", "--geometry", case.geometry(), "--length", image.stat().st_size, "--output", copy, cwd=place)
    with open(image, "rb") as written, open(copy, "rb") as read:
        at = 0
        while part := written.read(MIB):
            other = read.read(MIB)
            if part != other:
                blocks = range(0, len(part), BLOCK)
                lost |= {(at + own) // BLOCK for own in blocks if part[own : own + BLOCK] != other[own : own + BLOCK]}
            at += len(part)
    copy.unlink()
    return lost


def of_file(path, lost=()):
    found, at = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while part := file.read(MIB):
            found.update(without(part, at, lost))
            at += len(part)
    return found.hexdigest()


def is_clean(mdspace, case, geometry, place):
    """Whether the file system's own check finds nothing wrong, and what it lies in is as it was written."""
    copy, inner, image = place / "copy", place / "read", place / "image"
    length = image.stat().st_size
    run(mdspace, "read", "--geometry", geometry, "--length", length, "--output", copy, "--overwrite", cwd=place, check=False)
    if not copy.exists():
        return False
    if case.outer:
        count = len(case.head()[0])
        with open(image, "rb") as written, open(copy, "rb") as file:
            if written.read(count) != file.read(count):
                copy.unlink()
                return False
    case.unwrap(copy, inner)
    check = {
        **dict.fromkeys(EXT, ["e2fsck", "-fn"]),
        "xfs": ["xfs_repair", "-n"],
        "btrfs": ["btrfs", "check", "--check-data-csum"],
        "luks": ["cryptsetup", "luksDump"],  # ciphertext has no check
    }
    if case.unclean and kernel(inner, "replay", check=False).returncode != 0:
        return False
    done = run(*check[case.system], inner, check=False)
    copy.unlink(missing_ok=True)
    inner.unlink()
    return done.returncode == 0


def processor_seconds():
    """Of all children until now: what other programs do on this machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# Shapes that the command lists, at most.
LISTED_MAX = 8


def judge(case, mdspace, place):
    image, disks = case.make(place, mdspace)
    taken = case.harm_images(disks) if case.failing else []
    before = [of_file(disk) for disk in disks]
    begun = processor_seconds()
    maps = ["--maps"] if case.failing else []
    done = run(mdspace, "detect", "--search", "--json", *maps, *[disk.name for disk in disks], cwd=place, check=False)
    seconds = processor_seconds() - begun
    if not done.stdout:
        return "crashed", seconds, done.stderr.decode(errors="replace")[:400]
    found = json.loads(done.stdout)
    if [of_file(disk) for disk in disks] != before:
        return "a member changed", seconds, ""
    # What a shape reads is judged with all that was written.
    for disk, at, content in taken:
        with open(disk, "r+b") as file:
            file.seek(at)
            file.write(content)
    shapes = [shape["geometry"] for shape in found["shapes"]]
    length = image.stat().st_size
    lost = lost_blocks(mdspace, case, image, place)
    if lost and not case.created:
        raise RuntimeError(f"the true shape does not read what was written: {case.geometry()}")
    truth = of_file(image, lost)
    # Copies of which one is overwritten differ, and any of them is read. The true shape itself is right all the same.
    is_right = lambda shape: fields(shape) == fields(case.geometry()) or digest_of(mdspace, shape, length, lost, place) == truth
    right = [shape for shape in shapes if is_right(shape)]
    words = "; ".join(f"{shape['geometry']} {shape['fits']}/{shape['against']}" for shape in found["shapes"])
    if found["verdict"] == "found":
        return ("right" if right else "wrong"), seconds, words
    if found["verdict"] == "undecided":
        if not right and len(shapes) < LISTED_MAX:
            return "undecided", seconds, "the truth is not listed: " + words
        # What is listed are examples: more than that are alike. The true shape is clean, or it tells nothing.
        different = [shape for shape in shapes if shape not in right][:6]
        # With blocks lost, the true shape counts as clean: it was, when it was written.
        is_whole = bool(lost) or is_clean(mdspace, case, case.geometry(), place)
        proved = is_whole and any(is_clean(mdspace, case, shape, place) for shape in different)
        if right and len(shapes) == 1:
            return "proposed", seconds, words
        # Nothing checks ciphertext.
        return ("undecidable" if proved and case.system != "luks" else "undecided"), seconds, words
    return ("overwritten" if case.is_beyond_finding(lost) else "nothing"), seconds, found["reason"]


def digest_of(mdspace, shape, length, lost, place):
    here = os.getcwd()
    os.chdir(place)
    try:
        return digest(mdspace, "read", "--geometry", shape, "--length", length, length=length, lost=lost)
    finally:
        os.chdir(here)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mdspace", type=os.path.realpath)
    parser.add_argument("directory", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--systems", default="ext4,xfs,btrfs")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--page", type=Path, help="the page whose table of outcomes is replaced; the text around it has to be adapted by hand")
    options = parser.parse_args()
    if options.page and HEAD not in options.page.read_text():
        parser.error(f"{options.page}: has no table of outcomes")
    files = pool()
    results = []
    for seed in range(options.seed, options.seed + options.count):
        case = Case(seed, files, options.systems.split(","))
        place = Path(tempfile.mkdtemp(dir=options.directory)).resolve()
        try:
            outcome, seconds, words = judge(case, options.mdspace, place)
        except RuntimeError as error:
            outcome, seconds, words = "not made", 0, str(error)
        finally:
            if not options.keep:
                shutil.rmtree(place)
        results.append((case, outcome, seconds))
        if not options.quiet or outcome in ("wrong", "nothing", "crashed", "a member changed"):
            print(f"{outcome:12} {seconds:5.1f} s  {case}\n             {words[:500]}", flush=True)
    print(table(results))
    if options.page:
        replace_table(options.page, table(results))
    bad = [outcome for _, outcome, _ in results if outcome in ("wrong", "crashed", "a member changed")]
    return 1 if bad else 0


def replace_table(page, new):
    before, _, rest = page.read_text().partition(HEAD)
    _, end, after = rest.partition("\n\n")
    page.write_text(before + new + end + after)


HEAD = (
    "| Arrays | Cases | Right | Right, not proved | Undecidable, proved | Overwritten | Undecided | Nothing found | Wrong "
    "| Processor s, median | Longest |"
)


def table(results):
    made = [result for result in results if result[1] != "not made"]
    words = ["right", "proposed", "undecidable", "overwritten", "undecided", "nothing", "wrong"]
    lines = [HEAD, "|---" * HEAD.count(" | ") + "|---|"]

    def row(name, part):
        if part:
            times = sorted(seconds for *_, seconds in part)
            counts = " | ".join(str(sum(outcome == word for _, outcome, _ in part)) for word in words)
            lines.append(f"| {name} | {len(part)} | {counts} | {times[len(times) // 2]:.1f} | {times[-1]:.1f} |")

    for level in LEVELS:
        row(f"RAID-{level}", [result for result in made if result[0].level == level])
    for system in SYSTEMS:
        row(system, [result for result in made if result[0].system == system])
    for outer in ("GPT", "LVM"):
        row(f"inside {outer}", [result for result in made if result[0].outer == outer])
    for harm in ("missing", "stale"):
        row(f"one {harm}", [result for result in made if result[0].harm == harm])
    row("not unmounted", [result for result in made if result[0].unclean and result[0].harm != "stale"])
    row("images with holes", [result for result in made if result[0].failing])
    row("superblocks of another array", [result for result in made if result[0].created])
    row("neither holes nor another array", [result for result in made if not result[0].failing and not result[0].created])
    row("all", made)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
