"""Claims about the Python package: an array is a raw file of Python's, and errors say what is wrong."""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import mdspace

MIB = 1 << 20


def pattern(seed, length):
    """Bytes that do not repeat at a power of two."""
    period = bytes((index ^ seed) % 256 for index in range(251))
    return (period * (length // len(period) + 1))[:length]


class Case(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        self.members = [self.place / name for name in ("m0", "m1", "m2")]
        status = mdspace.create("raid5", self.members, chunk_bytes=64 << 10, member_bytes=8 * MIB, name="claims")
        self.assertEqual((status["state"], status["name"]), ("clean", "claims"))

    def opened(self, **options):
        """An array that is closed at the end of the test."""
        return self.enterContext(mdspace.open(self.members, **options))

    def filled(self):
        """The array's whole contents, after they were written."""
        with self.opened(read_only=False) as array:
            data = pattern(7, array.size)
            array.write_at(0, data)
        return data

    @contextlib.contextmanager
    def refused(self, kind, member=None, field=None):
        with self.assertRaises(mdspace.Error) as caught:
            yield caught
        error = caught.exception
        found = pathlib.Path(error.member).name if error.member else None
        self.assertEqual((error.kind, found, error.field), (kind, member, field), error)
        self.assertIn(error.reason, str(error))


class Reading(Case):
    def test_every_way_to_read_gives_the_same_bytes_without_a_member(self):
        data = self.filled()
        array = self.enterContext(mdspace.open([str(self.members[2]), self.members[0]]))
        self.assertEqual((array.size, array.read_only), (len(data), True))
        for offset, length in ((0, 1), (12345, 70001), (65536, 65536), (len(data) - 9, 9), (len(data), 0)):
            expected = data[offset : offset + length]
            self.assertEqual(array.read_at(offset, length), expected)
            self.assertEqual(array.pread(length, offset), expected)
            self.assertEqual(array.seek(offset), offset)
            self.assertEqual(array.read(length), expected)
            self.assertEqual(array.tell(), offset + length)
            buffer = bytearray(length)
            array.seek(offset)
            self.assertEqual(array.readinto(buffer), length)
            self.assertEqual(bytes(buffer), expected)
        array.seek(-5, os.SEEK_END)
        array.seek(-5, os.SEEK_CUR)
        self.assertEqual(array.readall(), data[-10:])
        self.assertEqual((array.read(1), array.pread(100, len(data) - 3)), (b"", data[-3:]))
        self.assertEqual(array.pread(1, len(data) + 5), b"")

    def test_readers_of_the_io_module_take_an_array(self):
        data = self.filled()
        array = self.opened()
        self.assertIsInstance(array, io.RawIOBase)
        self.assertTrue(array.readable() and array.seekable() and not array.writable())
        reader = io.BufferedReader(array, 1 << 16)
        self.assertEqual(reader.read(100_000), data[:100_000])
        reader.seek(1_000_003)
        self.assertEqual(reader.peek(1)[:1], data[1_000_003:1_000_004])
        self.assertEqual(reader.read(), data[1_000_003:])
        with self.assertRaises(io.UnsupportedOperation):
            array.fileno()

    def test_any_writable_buffer_is_filled_in_place_and_others_are_refused(self):
        data = self.filled()
        array = self.opened()
        words = memoryview(bytearray(4096)).cast("I")
        self.assertEqual(array.preadinto(words, 4096), 4096)
        self.assertEqual(words.tobytes(), data[4096:8192])
        for buffer in (bytes(16), memoryview(bytes(16)), "text"):
            with self.assertRaises((TypeError, BufferError)):
                array.preadinto(buffer, 0)

    def test_threads_read_at_once_and_the_interpreter_goes_on_meanwhile(self):
        data = self.filled()
        array = self.opened()
        wrong = []

        def read(seed):
            for number in range(32):
                offset = (seed * 1_000_003 + number * 199_999) % (len(data) - 70_000)
                if array.pread(70_000, offset) != data[offset : offset + 70_000]:
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Writing(Case):
    def test_what_was_written_is_there_without_a_member(self):
        with self.opened(read_only=False) as array:
            self.assertTrue(array.writable())
            array.write_at(12345, b"hello, array")
            array.seek(12345 + 7)
            self.assertEqual(array.write(bytearray(b"ARRAY")), 5)
            self.assertEqual(array.pwrite(memoryview(b"end!"), array.size - 2), 2)
            array.flush()
            with self.assertRaises(OSError):
                array.pwrite(b"x", array.size)
            self.assertEqual(array.pwrite(b"", array.size), 0)
            array.discard(MIB, MIB)
            writer = io.BufferedWriter(array)
            writer.seek(2 * MIB)
            writer.write(b"buffered")
            writer.flush()
            writer.detach()
        self.assertTrue(array.closed)
        with mdspace.open(self.members[1:]) as array:
            self.assertEqual(array.pread(12, 12345), b"hello, ARRAY")
            self.assertEqual(array.pread(9, array.size - 2), b"en")
            self.assertEqual(array.pread(8, 2 * MIB), b"buffered")
            self.assertEqual(array.status()["state"], "clean, degraded")

    def test_an_overlay_takes_every_write(self):
        data = self.filled()
        overlay = self.place / "overlay"
        with self.opened(read_only=False, overlay=overlay) as array:
            array.write_at(0, b"tried")
        self.assertEqual(self.opened().pread(5, 0), data[:5])
        with self.opened(overlay=overlay) as array:
            self.assertEqual(array.pread(5, 0), b"tried")

    def test_an_array_that_a_program_forgets_is_left_clean(self):
        script = "import mdspace, sys; a = mdspace.open(sys.argv[1:], read_only=False); a.write_at(0, b'last')"
        subprocess.run([sys.executable, "-c", script, *self.members], check=True)
        with self.opened() as array:
            self.assertEqual((array.status()["state"], array.pread(4, 0)), ("clean", b"last"))


class Errors(Case):
    def test_what_is_on_disks_is_data(self):
        before = [member.read_bytes() for member in self.members]
        found = mdspace.detect([self.members[0], self.members[2], self.place / "none"])
        (array,) = found["arrays"]
        self.assertEqual((array["level"], array["name"], array["missing"]), ("raid5", "claims", [1]))
        self.assertEqual([member["name"] for member in array["members"]], [str(self.members[0]), str(self.members[2])])
        self.assertEqual(found["disks"][0]["content"]["kind"], "md")
        self.assertEqual([disk["name"] for disk in found["unusable"]], [str(self.place / "none")])
        self.assertNotIn("next", array)
        with self.opened(read_only=False):
            self.assertEqual(len(mdspace.detect(self.members)["arrays"]), 1)
        self.assertEqual(before[0][:4096], self.members[0].read_bytes()[:4096])

    def test_a_refusal_names_member_and_field_and_changes_nothing(self):
        letter = self.place / "letter"
        letter.write_text("not a member")
        before = [member.read_bytes() for member in self.members]
        for members, member, field in (
            ([self.members[0], letter], "letter", "superblock.magic"),
            ([self.members[0], self.place / "absent"], "absent", None),
            ([self.members[0]], None, None),
            ([], None, None),
        ):
            for read_only in (True, False):
                with self.refused("refused", member, field):
                    mdspace.open(members, read_only=read_only)
        with self.refused("refused", None, "--inner 7"):
            mdspace.open(self.members, inner="7")
        with self.refused("refused", "m1"):
            mdspace.open(self.members, maps={self.members[0]: self.members[1]})
        with self.refused("refused", "m0", "superblock.magic"):
            mdspace.create("raid5", self.members)
        self.assertEqual([member.read_bytes() for member in self.members], before)
        for wrong in ({"members": 7}, {"members": [7]}, {"members": self.members, "inner": 7}):
            with self.assertRaises(TypeError):
                mdspace.open(**wrong)
        with self.assertRaises(ValueError):
            mdspace.create("raid7", self.members)

    def test_requests_that_do_not_fit_are_refused_as_a_whole(self):
        array = self.opened()
        with self.refused("out-of-range"):
            array.read_at(array.size - 1, 2)
        with self.refused("out-of-range"):
            array.read_at(0, 1 << 62)
        with self.refused("read-only"):
            array.write_at(0, b"x")
        self.assertEqual(array.read_at(array.size, 0), b"")
        for call in (lambda: array.read_at(-1, 1), lambda: array.pread(-1, 0), lambda: array.seek(-1)):
            with self.assertRaises(ValueError):
                call()
        array.close()
        with self.opened(read_only=False) as other, self.refused("out-of-range"):
            other.write_at(other.size - 1, b"xx")

    def test_a_closed_array_says_so_and_can_be_closed_again(self):
        array = self.opened()
        array.close()
        array.close()
        self.assertIn("closed", repr(array))
        calls = (array.read, array.tell, array.status, array.flush, lambda: array.pread(1, 0), lambda: array.seek(0))
        for call in calls:
            with self.assertRaises(ValueError):
                call()


class Processes(Case):
    def test_a_fork_is_told_so_and_the_parent_goes_on(self):
        data = self.filled()
        array = self.opened()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                array.pread(1, 0)
            except mdspace.Error as error:
                status = 0 if error.kind == "stopped" else 2
            array.close()
            os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(array.pread(100, 5), data[5:105])

    def test_signals_reach_the_program_while_an_array_is_open(self):
        array = self.opened()
        received = []
        before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        os.kill(os.getpid(), signal.SIGUSR1)
        array.pread(4096, 0)
        self.assertEqual(received, [signal.SIGUSR1])


if __name__ == "__main__":
    unittest.main()
