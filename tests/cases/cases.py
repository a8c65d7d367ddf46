#!/usr/bin/python3
"""Situations that people have reported, each tried with mdspace: what comes out has to be what is right.

    cases.py MDSPACE DIRECTORY [--page]    DIRECTORY holds what kernel.sh has made; --page prints docs/cases.md's table

A case has attempts. What came out of one is said in a few fixed words ("right bytes", "refused"), and compared with
what is right; its messages have to hold the words named, and none of those forbidden. No command that only looks may
change a member. The scenes at the end make their own arrays and need root for a file system of their own.

Nothing here is judged by mdspace's own word: bytes are compared with what the kernel read, or with what was written.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

MDSPACE = os.path.realpath(sys.argv[1])
PLACE = Path(sys.argv[2]).resolve()
BLOCK = 4096

RIGHT = "right bytes"
WARNED = "right bytes, with a warning"
REFUSED = "refused"
DOUBTED = "bytes, with a warning that they may be wrong"
STOPS = "a read error"


class Wrong(Exception):
    """What came out is not what is right."""


@dataclass
class Attempt:
    """`mdspace read` of the members, with options."""

    right: str
    options: list = field(default_factory=list)
    without: list = field(default_factory=list)
    says: list = field(default_factory=list)
    never: list = field(default_factory=list)


@dataclass
class Case:
    name: str
    situation: str
    attempts: list
    after: object = None  # a further look: a function of the case's directory, that gives words for the page


def run(*arguments, **options):
    return subprocess.run([MDSPACE, *map(str, arguments)], capture_output=True, timeout=120, **options)


def members_of(place):
    return sorted(place.glob("m*.img"), key=lambda path: (len(path.name), path.name))


def state(members):
    """Changes with any write to a member."""
    return [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in members]


def outcome(done, truth):
    if done.returncode == 2:
        return REFUSED
    if done.returncode != 0:
        return STOPS
    is_right = hashlib.sha256(done.stdout).hexdigest() == truth
    warns = b"warning" in done.stderr or b"WARN" in done.stderr
    if is_right:
        return WARNED if warns else RIGHT
    return DOUBTED if warns else "WRONG BYTES"


def attempt(place, tried):
    members = [path for path in members_of(place) if path.name not in tried.without]
    before = state(members)
    done = run("read", *members, *tried.options)
    said = done.stderr.decode(errors="replace")
    came = outcome(done, (place / "truth").read_text().strip())
    label = " ".join(["read", *tried.options, *(f"without {name}" for name in tried.without)])
    if came != tried.right:
        raise Wrong(f"{label}: {came}, and right is: {tried.right}\n{said}")
    if state(members) != before:
        raise Wrong(f"{label}: it has changed a member")
    for words in tried.says:
        if words not in said:
            raise Wrong(f"{label}: it does not say {words!r}\n{said}")
    for words in tried.never:
        if words in said:
            raise Wrong(f"{label}: it says {words!r}\n{said}")
    option = " ".join([f"`{option}`" for option in tried.options] + [f"without {name[:-4]}" for name in tried.without])
    return f"{option + ': ' if option else ''}{came}"


# ---------------------------------------------------------------- a server of a case's members


class Server:
    """mdspace serve, until the end of a `with` block."""

    def __init__(self, place, members, *options):
        self.place = Path(tempfile.mkdtemp(dir=place))
        self.socket, self.control = self.place / "n", self.place / "c"
        self.log = open(self.place / "log", "w+b")
        self.process = subprocess.Popen(
            [MDSPACE, "serve", *map(str, members), "--nbd", f"unix:{self.socket}", "--control", self.control, *options],
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        for line in self.process.stdout:
            if line.startswith(b"  control"):
                return
        self.process.wait()
        raise Wrong(f"the server ended: {self.said()}")

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def ask(self, *arguments):
        return run(*arguments, "--control", self.control)

    def status(self):
        return json.loads(self.ask("status", "--json").stdout)

    def until(self, condition):
        """The status, once this holds of it; asked again and again, for a minute."""
        begun = time.monotonic()
        while time.monotonic() - begun < 60:
            status = self.status()
            if condition(status):
                return status
        raise Wrong(f"never came true; the server says: {self.said()}")

    def client(self):
        import nbd

        client = nbd.NBD()
        client.connect_unix(str(self.socket))
        return client

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.ask("stop")
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Wrong("the server did not end") from None
        self.process.stdout.close()
        self.log.close()


def rests(status):
    return status["sync_action"] == "idle"


def create(place, count, *options, size="16M"):
    members = [place / f"m{number}" for number in range(count)]
    done = run("create", *options, "--size", size, *members)
    if done.returncode != 0:
        raise Wrong(f"not created: {done.stderr.decode()}")
    return members


def write(members, data):
    done = run("write", *members, input=data)
    if done.returncode != 0:
        raise Wrong(f"not written: {done.stderr.decode()}")


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def data_offset(member):
    return json.loads(run("examine", "--json", member).stdout)["members"][0]["data_at"]


# ---------------------------------------------------------------- further looks


def half_stays(place):
    """The half that does not count is not written to, whatever is served."""
    members = members_of(place)
    half = digest(members[0])
    with Server(place, members) as server:
        server.until(rests)
        server.client().flush()
    if digest(members[0]) != half:
        raise Wrong("the other half was written over")
    return "`serve`: the other half stays as it is"


def half_returns(place):
    """What `re-add` takes back is equal to the rest afterwards."""
    members = members_of(place)
    half = digest(members[0])
    with Server(place, members) as server:
        done = server.ask("re-add", members[0])
        if done.returncode == 2:
            if digest(members[0]) != half:
                raise Wrong("re-add was refused and has changed the member")
            words = "`re-add`: refused"
        else:
            server.until(lambda status: rests(status) and status["state"] == "clean")
            words = "`re-add`: equal afterwards"
    kept = members if "equal" in words else members[1:]
    scrub = run("scrub", *kept)
    found = run("read", *kept)
    if hashlib.sha256(found.stdout).hexdigest() != (place / "truth").read_text().strip():
        raise Wrong(f"{words}, and the array has other bytes")
    if len(kept) > 1 and scrub.returncode != 0:
        raise Wrong(f"{words}, and the halves differ")
    return words


def block_size_is_kept(place):
    with Server(place, members_of(place), "--read-only") as server:
        smallest = server.client().get_block_size(0)
    if smallest != 4096:
        raise Wrong(f"NBD's smallest block is {smallest} bytes")
    return "NBD's smallest block: 4096 bytes"


def written_after_force(place):
    """After `serve --force` the array starts without it, with the same bytes."""
    members = members_of(place)
    with Server(place, members, "--force") as server:
        server.until(rests)
        client = server.client()
        client.pwrite(client.pread(BLOCK, 0), 0)
        client.flush()
    taken = [member for member in members if member.name != "m3.img"]
    if outcome(run("read", *taken), (place / "truth").read_text().strip()) != RIGHT:
        raise Wrong("after serve --force the array is refused again, or has other bytes")
    return "after `serve --force` it starts without `--force`"


def nested_in_two_steps(place):
    members = members_of(place)
    for number in (0, 1):
        halves = members[2 * number : 2 * number + 2]
        if run("read", *halves, "-o", place / f"half{number}").returncode != 0:
            raise Wrong("a RAID-1 of the two cannot be read")
    done = run("read", place / "half0", place / "half1")
    came = outcome(done, (place / "truth").read_text().strip())
    if came != RIGHT:
        raise Wrong(f"in two steps: {came}\n{done.stderr.decode()}")
    return "in two steps: right bytes"


def last_bytes(place):
    """The last 2 MiB, whole ones, are as the kernel read them, also without a member."""
    members = members_of(place)
    bytes_of_array = json.loads(run("examine", "--json", *members).stdout)["arrays"][0]["status"]["array_bytes"]
    last, before = (bytes_of_array >> 20) - 2, state(members)
    for chosen in (members, members[1:]):
        done = run("read", *chosen, "--offset", f"{last}M", "--length", "2M")
        came = outcome(done, (place / "truth").read_text().strip())
        if came != RIGHT:
            raise Wrong(f"the last 2 MiB of {len(chosen)} members: {came}\n{done.stderr.decode()}")
    if state(members) != before:
        raise Wrong("read has changed a member")
    return "the last bytes, also without a member: right bytes"


def detected(place):
    """`detect` names both arrays with their members, and changes nothing."""
    members = members_of(place)
    before = [digest(member) for member in members]
    done = run("detect", "--json", *members)
    found = json.loads(done.stdout)
    levels = {array["level"]: len(array["members"]) for array in found["arrays"]}
    if done.returncode != 0 or levels != {"raid1": 3, "raid5": 3}:
        raise Wrong(f"detect: {levels}\n{done.stderr.decode()}")
    if [digest(member) for member in members] != before:
        raise Wrong("detect has changed a disk")
    return "`detect` names both"


CASES = [
    Case(
        "second_failed",
        "RAID-5: the third member failed long ago, the fourth just now",
        [
            Attempt(REFUSED, says=["--force", "m2.img"]),
            Attempt(WARNED, ["--force"], says=["m2.img"]),
        ],
        written_after_force,
    ),
    Case(
        "raid0_events",
        "RAID-0: one member is a dozen events behind",
        [Attempt(REFUSED, says=["--force"]), Attempt(WARNED, ["--force"])],
    ),
    Case("halves_even", "RAID-1 whose halves were used separately, equally often", [Attempt(REFUSED, never=["Active(", "Slot("])]),
    Case("halves_one_apart", "The same, one half one event ahead", [Attempt(RIGHT)], half_stays),
    Case("halves_bitmap", "The same with bitmaps, one half used longer", [Attempt(RIGHT)], half_returns),
    Case("absent_at_start", "RAID-1: a member was absent at a start, the other was used", [Attempt(RIGHT)]),
    Case(
        "holes",
        "Images of two members with holes left by ddrescue",
        [
            Attempt(DOUBTED, says=["m1.img", "m2.img"]),
            Attempt(WARNED, ["--maps"], says=["m1.img: 32768 bytes in 1 place"]),
        ],
    ),
    Case(
        "partial_parity",
        "RAID-5 with a PPL, dirty, and a member is lost",
        [Attempt(WARNED, says=["was replayed in memory"])],
    ),
    # Linux calls an array with a journal clean while the journal holds data that the members lack: so it takes --force.
    Case(
        "journal_lost",
        "RAID-5 whose journal was lost after a clean stop",
        [Attempt(REFUSED, says=["journal", "--force"]), Attempt(WARNED, ["--force"])],
    ),
    Case(
        "logged_bad",
        "A stripe in the bad-block logs of two members whose medium is fine",
        [
            Attempt(STOPS, says=["bad-block log", "m0.img", "m1.img", "--ignore-bad-blocks"]),
            Attempt(WARNED, ["--ignore-bad-blocks"]),
        ],
    ),
    Case("disk_error_flag", "The last copy of a RAID-1, with a NAS maker's flag \"disk error\"", [Attempt(WARNED)]),
    Case("huge_and_old", "Superblocks 0.90 on members of 3 TiB", [], last_bytes),
    Case("other_byte_order", "Superblocks 0.90 of the other byte order", [Attempt(RIGHT)]),
    Case("logical_blocks", "A superblock that records logical blocks of 4096 bytes", [Attempt(RIGHT)], block_size_is_kept),
    Case(
        "became_spares",
        "RAID-6: a hasty `--add` turned three members into spares",
        [
            Attempt(REFUSED, says=["spare"], never=["give more of its members"]),
            Attempt(RIGHT, ["--geometry", "level=6,chunk=64K,offset=1M"]),
        ],
    ),
    Case(
        "truncated",
        "A member 1 MiB shorter behind a USB bridge, superblocks 1.0",
        [Attempt(REFUSED, says=["m1.img"]), Attempt(RIGHT, without=["m1.img"])],
    ),
    Case(
        "zones",
        "RAID-0 of unequal members whose superblocks do not record the layout",
        [Attempt(REFUSED, says=["--raid0-layout"]), Attempt(RIGHT, ["--raid0-layout", "alternate"])],
    ),
    Case("many_slots", "A NAS's system array: RAID-1 of 24 slots, two of them taken", [Attempt(RIGHT)]),
    Case("forty_members", "RAID-6 of 40 members", [Attempt(RIGHT)]),
    Case("replace_cut_off", "RAID-6 with an interrupted replacement", [Attempt(RIGHT)]),
    Case("grown", "RAID-5 after a completed reshape, one member with another data offset", [Attempt(RIGHT)]),
    Case("reshaped_raid10", "RAID-10 after a completed reshape from four to six members", [Attempt(RIGHT)]),
    Case("clustered", "The cluster bit in the feature map", [Attempt(RIGHT)]),
    Case("stale_table", "Members that begin with an old partition table", [Attempt(RIGHT)]),
    Case(
        "damaged_checksum",
        "A superblock with some bytes changed",
        [Attempt(REFUSED, says=["m1.img"]), Attempt(RIGHT, without=["m1.img"])],
    ),
    Case(
        "unequal_offsets",
        "Data offsets that differ from member to member",
        [Attempt(RIGHT), Attempt(RIGHT, ["--geometry", "level=5,chunk=64K,offset=2M:3M:4M"])],
    ),
    Case("nested", "RAID-0 of two RAID-1", [], nested_in_two_steps),
    Case(
        "whole_disks",
        "Whole disks with a GPT, two arrays in their partitions",
        [
            Attempt(REFUSED, says=["2 arrays", "--uuid", "m0.img:1", "m2.img:3"]),
            Attempt(RIGHT, ["--name", "2"]),
            Attempt(RIGHT, ["--name", "2"], without=["m1.img"]),
        ],
        detected,
    ),
    Case(
        "reshape_cut_off",
        "RAID-5 stopped while it grew from three members to four",
        [Attempt(WARNED, says=["middle of a reshape"]), *(Attempt(WARNED, without=[f"m{n}.img"]) for n in (0, 2, 3))],
    ),
    Case(
        "superblocks_zeroed",
        "A mainboard's firmware zeroed each superblock",
        [Attempt(REFUSED), Attempt(RIGHT, ["--geometry", "level=6,chunk=128K,offset=1M"])],
    ),
    # The superblocks are valid, and nothing on the members says that they are not those of the data.
    Case(
        "created_over",
        "`mdadm --create` by accident: another chunk, order and data offset",
        [Attempt(RIGHT, ["--geometry", "level=5,chunk=64K,offset=3M"])],
    ),
    Case(
        "no_superblocks",
        "An array without superblocks (`mdadm --build`)",
        [Attempt(REFUSED), Attempt(RIGHT, ["--geometry", "level=0,chunk=64K,offset=0"])],
    ),
]


# ---------------------------------------------------------------- scenes with arrays of our own


def spoil(path, at, length=BLOCK):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(os.urandom(length))
        os.fsync(file.fileno())


def check_of_two(place):
    """RAID-6 with checksums, two blocks wrong at the same place of three members."""
    members = create(place, 5, "--level", "6", "--chunk", "64K", "--integrity", size="32M")
    write(members, os.urandom(60 << 20))
    for member in members[1:4]:
        spoil(member, 2500 * BLOCK, 2 * BLOCK)
    return check_changes_nothing(place, members)


def check_of_forty(place):
    """Forty wrong blocks of one member, all of which could be healed."""
    members = create(place, 5, "--level", "6", "--chunk", "64K", "--integrity", size="64M")
    write(members, os.urandom(150 << 20))
    for number in range(40):
        spoil(members[1], (3000 + number * 200) * BLOCK)
    return check_changes_nothing(place, members)


def check_of_one(place):
    """One wrong block of a RAID-5 without checksums."""
    members = create(place, 4, "--level", "5", "--chunk", "64K", size="32M")
    write(members, os.urandom(60 << 20))
    spoil(members[1], 2500 * BLOCK)
    return check_changes_nothing(place, members)


def check_changes_nothing(place, members):
    at = data_offset(members[0])

    def data():
        return [hashlib.sha256(member.read_bytes()[at:]).hexdigest() for member in members]

    before = data()
    with Server(place, members) as server:
        server.until(rests)
        done = server.ask("scrub")
        if done.returncode != 1:
            raise Wrong(f"the check ended with status {done.returncode}: {done.stdout.decode()}{done.stderr.decode()}")
        status = server.status()
        away = [member["name"] for member in status["members"] if member["state"] != "in_sync"]
        if away or len(status["members"]) != len(members):
            raise Wrong(f"members ejected in a check: {away or 'some are gone'}")
    if data() != before:
        raise Wrong("a check has written to a member")
    return "found; no member is ejected, nothing is written"


def no_room(place, cache):
    """Sparse members in a file system that fills up."""
    import nbd

    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24M", "tmpfs", place], check=True)
    try:
        members = create(place, 3, "--level", "5", size="16M")
        logs = Path(tempfile.mkdtemp())
        with Server(logs, members, "--cache", cache) as server:
            client = server.client()
            kept, refused, lost = [], 0, 0
            for at in range(0, client.get_size(), 65536):
                try:
                    client.pwrite(bytes([at // 65536 % 251 + 1]) * 65536, at)
                    client.flush()
                    kept.append(at)
                except nbd.Error as error:
                    if "No space" not in error.string and error.errnum != 28:
                        raise Wrong(f"a client is told: {error.string}") from None
                    refused += 1
            for at in kept:
                try:
                    if bytes(client.pread(65536, at)) != bytes([at // 65536 % 251 + 1]) * 65536:
                        raise Wrong("what was flushed reads wrong")
                except nbd.Error:
                    lost += 1
            away = [member["name"] for member in server.status()["members"] if member["state"] != "in_sync"]
            if lost or away or not refused:
                raise Wrong(f"{refused} writes refused, {lost} flushed ones cannot be read, members away: {away}")
            subprocess.run(["mount", "-o", "remount,size=200M", place], check=True)
            client.pwrite(b"x" * 65536, client.get_size() - 65536)
            client.flush()
        scrub = run("scrub", *members)
        if scrub.returncode != 0:
            raise Wrong(f"parity is wrong afterwards: {scrub.stdout.decode()}")
        return f"`--cache {cache}`: clients get an error, no member is ejected, writes continue when there is room"
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def no_room_writethrough(place):
    return no_room(place, "writethrough")


def no_room_writeback(place):
    return no_room(place, "writeback")


def cut_short(place, level):
    """A member's file is truncated while it is served: no byte is read wrong, and the member is ejected."""
    import nbd

    members = create(place, 3, "--level", level, size="8M")
    with Server(place, members) as server:
        client = server.client()
        size = client.get_size()
        for at in range(0, size, 65536):
            client.pwrite(b"D" * min(65536, size - at), at)
        client.flush()
        os.truncate(members[0], 0)
        for at in [*range(size - 65536, size, BLOCK), *range(0, size, BLOCK)]:
            try:
                if bytes(client.pread(BLOCK, at)) != b"D" * BLOCK:
                    raise Wrong(f"RAID-{level}: the block at {at} reads wrong")
            except nbd.Error:
                raise Wrong(f"RAID-{level}: the block at {at} cannot be read") from None
        states = {member["name"]: member["state"] for member in server.status()["members"]}
    if states.get(str(members[0])) == "in_sync":
        raise Wrong(f"RAID-{level}: the member is still in use")
    return f"RAID-{level}: no byte wrong, the member is ejected"


def cut_short_copies(place):
    return cut_short(place, "1")


def cut_short_parity(place):
    return cut_short(place, "5")


def grown_at_its_end(place):
    """Metadata 1.0, members made longer, grow --size max while it is served."""
    members = create(place, 3, "--level", "5", "--metadata", "1.0", size="8M")
    data = os.urandom(8 << 20)
    write(members, data)
    with Server(place, members) as server:
        before = server.client().get_size()
        for member in members:
            os.truncate(member, 16 << 20)
        done = server.ask("grow", "--size", "max")
    if done.returncode not in (0, 2):
        raise Wrong(f"grow ended with status {done.returncode}: {done.stderr.decode()}")
    read = run("read", *members)
    if read.returncode != 0 or read.stdout[: len(data)] != data:
        raise Wrong(f"the array is not found afterwards: {read.stderr.decode()}")
    if done.returncode == 0 and len(read.stdout) <= before:
        raise Wrong("it says that it has grown, and has not")
    return "grows" if done.returncode == 0 else "refused, and stays as it was"


SCENES = [
    ("RAID-6 with checksums, the same two blocks wrong on three members: `scrub`", check_of_two),
    ("Forty wrong blocks of one member, all of which can be healed: `scrub`", check_of_forty),
    ("One wrong block of a RAID-5 without checksums: `scrub`", check_of_one),
    ("Sparse members in a file system that fills up", no_room_writethrough),
    ("The same with a cache", no_room_writeback),
    ("A member's file is cut short while it is served", cut_short_copies),
    ("The same at RAID-5", cut_short_parity),
    ("Superblocks 1.0, members made longer, `grow --size max` while served", grown_at_its_end),
]


def main():
    rows, wrong = [], []
    only = [word for word in sys.argv[3:] if not word.startswith("--")]
    for case in CASES:
        if only and case.name not in only:
            continue
        place = PLACE / case.name
        try:
            words = [attempt(place, tried) for tried in case.attempts]
            words += [case.after(place)] if case.after else []
            md = [line.split("\t") for line in (place / "md").read_text().splitlines()] if (place / "md").exists() else []
            md = [(f"`{label}`: " if label != "plain" else "") + came for label, came in md]
            rows.append((case.situation, "; ".join(md) or "–", "; ".join(words)))
        except (Wrong, subprocess.TimeoutExpired) as error:
            wrong.append(f"{case.name}: {error}")
    for situation, scene in SCENES:
        if only and scene.__name__ not in only:
            continue
        place = Path(tempfile.mkdtemp(dir=PLACE))
        try:
            rows.append((situation, "–", scene(place)))
        except (Wrong, subprocess.TimeoutExpired) as error:
            wrong.append(f"{scene.__name__}: {error}")
        finally:
            shutil.rmtree(place)
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    if "--page" in sys.argv:
        print("| Situation | md | mdspace |\n|---|---|---|")
        for row in rows:
            print(f"| {' | '.join(row)} |")
    else:
        print(f"{len(rows)} situations come out right, {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


main()
