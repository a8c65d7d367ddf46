"""An array as a file object.

Invariants:
- A position changes only by what was read or written.
- Calls with a position of their own (pread, read_at, pwrite, write_at) may come from any number of threads at once.
"""

import atexit
import errno
import io
import json
import os
import weakref

from . import _mdspace
from ._error import Error

# Arrays open for writing are closed before the interpreter ends, so that they are left clean.
_written = weakref.WeakSet()


@atexit.register
def _close_all():
    for array in list(_written):
        array.close()


class Array(io.RawIOBase):
    """An open array: a raw binary file of fixed length, from mdspace.open()."""

    def __init__(self, handle):
        self._handle = handle
        self._position = 0
        if not handle.read_only:
            _written.add(self)

    @property
    def size(self):
        """The length in bytes."""
        return self._handle.size

    @property
    def preferred_bytes(self):
        """The unit for fast large requests: multiples of this length, aligned to it."""
        return self._handle.preferred_bytes

    @property
    def read_only(self):
        """Whether writes are refused."""
        return self._handle.read_only

    def __repr__(self):
        state = "closed" if self.closed else "read-only" if self.read_only else "writable"
        return f"<mdspace.Array of {self.size} bytes, {state}>"

    # With a position in each call.

    def read_at(self, offset, length):
        """Exactly `length` bytes from `offset` on; a range that runs past the end is an error."""
        self._check(offset, length)
        return self._handle.read_at(offset, length)

    def write_at(self, offset, data):
        """Writes all of `data` at `offset`; a range that runs past the end is an error, with nothing written."""
        self._check(offset, _length(data))
        self._handle.write_at(offset, data)

    def pread(self, length, offset):
        """At most `length` bytes from `offset` on, fewer at the end of the array, as os.pread."""
        length = self._within(offset, length)
        return self.read_at(offset, length) if length > 0 else b""

    def preadinto(self, buffer, offset):
        """Fills `buffer` from `offset` on; returns the number of bytes, which is less at the end of the array."""
        with memoryview(buffer) as view, view.cast("B") as octets:
            length = self._within(offset, len(octets))
            if length > 0:
                with octets[:length] as part:
                    self._handle.read_into_at(offset, part)
        return length

    def pwrite(self, data, offset):
        """Writes `data` at `offset`, as os.pwrite; returns the number of bytes, which is less at the end of the array."""
        with memoryview(data) as view, view.cast("B") as octets:
            length = self._within(offset, len(octets))
            if length == 0 and len(octets) > 0:
                raise OSError(errno.ENOSPC, "the array ends here")
            if length == len(octets):
                self.write_at(offset, data if isinstance(data, bytes) else octets)
            elif length > 0:
                with octets[:length] as part:
                    self.write_at(offset, part)
        return length

    def discard(self, offset, length):
        """Discards a range: members may free its space. It then reads as zeros or stays as it is; without redundancy
        it may read as anything."""
        self._check(offset, length)
        self._handle.discard(offset, length)

    # As a file.

    def readable(self):
        self._check_open()
        return True

    def writable(self):
        self._check_open()
        return not self.read_only

    def seekable(self):
        self._check_open()
        return True

    def tell(self):
        self._check_open()
        return self._position

    def seek(self, offset, whence=os.SEEK_SET):
        self._check_open()
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}
        if whence not in bases:
            raise ValueError(f"invalid whence: {whence}")
        position = bases[whence] + offset
        if position < 0:
            raise ValueError(f"negative seek position {position}")
        self._position = position
        return position

    def read(self, size=-1):
        if size is None or size < 0:
            size = max(0, self.size - self._position)
        data = self.pread(size, self._position)
        self._position += len(data)
        return data

    def readall(self):
        return self.read()

    def readinto(self, buffer):
        length = self.preadinto(buffer, self._position)
        self._position += length
        return length

    def write(self, data):
        length = self.pwrite(data, self._position)
        self._position += length
        return length

    def flush(self):
        """Brings every write that completed before this call to stable storage."""
        self._check_open()
        if not self.read_only:
            self._handle.flush()

    def close(self):
        """Flushes, marks the array clean and closes its members, once calls of other threads have returned."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._handle.close()

    def status(self):
        """The status of the array and its members: what `mdspace status --json` prints, without what is of a server."""
        return json.loads(self._handle.status_json())

    def _check_open(self):
        if self.closed:
            raise ValueError("I/O operation on a closed array")

    def _within(self, offset, length):
        """How many of `length` bytes from `offset` on the array has."""
        _refuse_negative(offset, length)
        return max(0, min(length, self.size - offset))

    def _check(self, offset, length):
        _refuse_negative(offset, length)
        if offset + length > self.size:
            text = f"{length} bytes at byte {offset} run past the array's end at {self.size}"
            raise Error("out-of-range", text)


def _refuse_negative(offset, length):
    if offset < 0 or length < 0:
        raise ValueError("a negative offset or length")


def _length(data):
    with memoryview(data) as view:
        return view.nbytes


def _paths(members):
    return [members] if isinstance(members, (str, bytes, os.PathLike)) else list(members)


def open(
    members,
    *,
    read_only=True,
    inner=None,
    overlay=None,
    force=False,
    partial=False,
    bitmap=None,
    backup_file=None,
    maps=(),
):
    """Opens the array of these members: paths of files, block devices, or disks with members in their partitions, in any
    order. As many may be missing as the level allows.

    read_only: whether writes are refused. Otherwise members are locked exclusively.
    inner: something inside of the array: the number of a partition, "GROUP/VOLUME" of LVM, or the name or UUID of an
        array inside. The members may be of several arrays then.
    overlay: the directory that takes every write, so that members stay as they are.
    force: assemble an array that may have lost data; status()["warnings"] says what may be lost.
    partial: open an array with fewer members than it needs; what these hold is read, everything else is an error.
    bitmap: the file with the write-intent bitmap, if the array has it in a file.
    backup_file: the file that `mdadm --grow --backup-file` named, for reading amid a reshape.
    maps: pairs of an image of a failing disk and its map by GNU ddrescue, or a dict of them.

    Raises Error; then no byte of any member was changed.
    """
    pairs = maps.items() if hasattr(maps, "items") else maps
    handle = _mdspace.open(
        _paths(members),
        write=not read_only,
        force=force,
        partial=partial,
        inner=inner,
        overlay=overlay,
        bitmap=bitmap,
        backup_file=backup_file,
        maps=[tuple(pair) for pair in pairs],
    )
    return Array(handle)


def create(
    level,
    members,
    *,
    layout=None,
    chunk_bytes=None,
    name="",
    member_bytes=None,
    bitmap=False,
    integrity=False,
    overwrite=False,
):
    """Creates an array, such as of level "raid5", and returns its status. The order of the members is that of its slots.

    layout: by mdadm's name, such as "left-symmetric" or "n2".
    chunk_bytes: 512 KiB without it.
    member_bytes: members that do not exist are made, as sparse files of this length.
    bitmap: whether members have a write-intent bitmap.
    integrity: whether it keeps checksums, which md does not know: a corrupt block is then a read error.
    overwrite: whether members may be overwritten that belong to an array or hold other data, which is lost.

    Raises Error. The command `mdspace create` can do more.
    """
    status = _mdspace.create(
        level,
        _paths(members),
        layout=layout,
        chunk_bytes=chunk_bytes,
        name=name,
        member_bytes=member_bytes,
        bitmap=bitmap,
        integrity=integrity,
        overwrite=overwrite,
    )
    return json.loads(status)


def detect(disks):
    """Everything on some disks, their images, or files of any kind: partitions, arrays, volume groups, and what each of
    them holds, as a dict of the fields of `mdspace detect --json`, without containers of firmware RAID and without
    commands. It only reads, and members may be in use. A disk that cannot be looked at is in the list "unusable".
    """
    return json.loads(_mdspace.detect(_paths(disks)))
