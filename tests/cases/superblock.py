#!/usr/bin/python3
"""Changes fields of a superblock, and its checksum with them.

    superblock.py MEMBER FIELD=VALUE...    of a version 1.2 superblock; FIELD=+N adds; roleN is the role of device N
    superblock.py --swap MEMBER            turns a 0.90 superblock into one of the other byte order, or back

Facts: the kernel's include/uapi/linux/raid/md_p.h; the checksum as md's calc_sb_1_csum has it.
"""

import os
import struct
import sys

AT = 4096
MAGIC = b"\xfc\x4e\x2b\xa9"
FIELDS = {"feature_map": (8, "<I"), "events": (200, "<Q"), "logical_block_size": (224, "<I"), "data_offset": (128, "<Q")}
CHECKSUM, DEVICES, ROLES = 216, 220, 256


def checksum(block):
    """Of a version 1 superblock: a sum of words, a last half one added, folded."""
    (devices,) = struct.unpack_from("<I", block, DEVICES)
    block = bytearray(block[: ROLES + 2 * devices])
    struct.pack_into("<I", block, CHECKSUM, 0)
    total = sum(word for (word,) in struct.iter_unpack("<I", bytes(block[: len(block) // 4 * 4])))
    if len(block) % 4:
        total += struct.unpack_from("<H", block, len(block) // 4 * 4)[0]
    return ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF


def change(member, changes):
    with open(member, "r+b") as file:
        file.seek(AT)
        block = bytearray(file.read(4096))
        assert struct.unpack_from("<I", block)[0] == 0xA92B4EFC, member
        for change in changes:
            name, value = change.split("=")
            offset, kind = (ROLES + 2 * int(name[4:]), "<H") if name.startswith("role") else FIELDS[name]
            before = struct.unpack_from(kind, block, offset)[0] if value[0] == "+" else 0
            struct.pack_into(kind, block, offset, before + int(value, 0))
        struct.pack_into("<I", block, CHECKSUM, checksum(block))
        file.seek(AT)
        file.write(block)


def swap(member):
    at = (os.path.getsize(member) // 65536 - 1) * 65536
    with open(member, "r+b") as file:
        file.seek(at)
        page = file.read(4096)
        present, other = "<>" if page.startswith(MAGIC) else "><"
        words = list(struct.unpack(f"{present}1024I", page))
        assert words[0] == 0xA92B4EFC, member
        # 64-bit counters keep their halves in the order of the machine.
        words[39:43] = [words[40], words[39], words[42], words[41]]
        words[38] = 0
        total = sum(words)
        words[38] = ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF
        file.seek(at)
        file.write(struct.pack(f"{other}1024I", *words))


if sys.argv[1] == "--swap":
    swap(sys.argv[2])
else:
    change(sys.argv[1], sys.argv[2:])
