#!/usr/bin/python3
"""Runs a command in a place where the kernel refuses system calls, as container profiles and old kernels do.

    refused.py ERRNO|KILL CALL[,CALL...] COMMAND [ARGUMENT...]

    refused.py EPERM io_uring_setup,io_uring_enter,io_uring_register mdspace examine m0 m1
    refused.py ENOSYS since-linux-3.10 mdspace examine m0 m1

The last one refuses every call that Linux 3.10 does not have: a system call's number is higher than those of older calls.
Each CALL answers ERRNO, also in every process that the command starts; KILL ends the process, as SIGSYS does. The filter is seccomp's, and needs no rights. The
command replaces this process, so signals reach it.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {"clone": 56, "clone3": 435, "fallocate": 285, "flock": 73, "io_setup": 206, "preadv2": 327, "statx": 332},
    "aarch64": {"clone": 220, "clone3": 435, "fallocate": 47, "flock": 32, "io_setup": 0, "preadv2": 286, "statx": 291},
}
EVERYWHERE = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427}

# The highest number in Linux 3.10, finit_module's on both; from the kernel's tables of system calls.
SINCE_LINUX_3_10 = "since-linux-3.10"
LAST_OF_LINUX_3_10 = {"x86_64": 313, "aarch64": 273}

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
# From linux/bpf_common.h and linux/seccomp.h: load the call's number, compare it, return.
LOAD, EQUALS, IS_ABOVE, RETURN = 0x20, 0x15, 0x25, 0x06
ALLOWED, REFUSED, KILLED = 0x7fff0000, 0x00050000, 0x80000000


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    answer = KILLED if sys.argv[1] == "KILL" else REFUSED | getattr(errno, sys.argv[1])
    known = NUMBERS.get(platform.machine(), {}) | EVERYWHERE
    names = sys.argv[2].split(",")
    tests = [(EQUALS, known[name]) for name in names if name != SINCE_LINUX_3_10]
    tests += [(IS_ABOVE, LAST_OF_LINUX_3_10[platform.machine()])] if SINCE_LINUX_3_10 in names else []
    steps = [(LOAD, 0, 0, 0)]
    steps += [(test, len(tests) - place, 0, number) for place, (test, number) in enumerate(tests)]
    steps += [(RETURN, 0, 0, ALLOWED), (RETURN, 0, 0, answer)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("=H6xQ", len(steps), ctypes.addressof(code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int] + 4 * [ctypes.c_ulong]
    place = ctypes.create_string_buffer(program)
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(place), 0, 0):
        sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[3], sys.argv[3:])


main()
