#!/usr/bin/python3
"""Attacks on servers and commands from outside: each has to end as its first line says, whatever the attacker does.

    attack.py MDSPACE DIRECTORY SECONDS [NAME...]

Runs every attack once, as root where it needs that, and then the cheap ones again, each with random choices, until
SECONDS are over. An attack is a function marked with @attack: to write another down is to add one here. What an attack
cannot have on this machine (root, FUSE, loop devices) it says, and is not run; with CI=true that is a failure.
Prints how many attacks were run. Nothing waits on a sleep that is to be long enough: every wait has a condition and a limit.
"""

import contextlib
import fcntl
import http.client
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import nbd

ATTACKS = []
MDSPACE = ""
# What a victim may wait for an answer, in seconds: commands start a process, and the machine may be busy.
PROMPT = 10
VICTIM, ATTACKER = 61002, 61001


class NotHere(Exception):
    """What an attack needs is not on this machine."""


def attack(function):
    ATTACKS.append(function)
    return function


def need(condition, what):
    if not condition:
        raise NotHere(what)


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.01)


def run(*words, status=0, **options):
    """Runs the command; both outputs, as bytes, when it ends with `status` (None: any) in time."""
    options = {"capture_output": True, "timeout": 60, "stdin": subprocess.DEVNULL, **options}
    done = subprocess.run([MDSPACE, *words], **options)
    text = done.stdout + done.stderr
    assert status is None or done.returncode == status, f"{words}: {done.returncode}: {text.decode(errors='replace')}"
    return text


class Server:
    """A served array; killed in the end unless it was stopped."""

    def __init__(self, *words, **options):
        self.log = open("server.log", "ab")
        self.process = subprocess.Popen(
            [MDSPACE, "serve", *words], stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.DEVNULL, **options
        )
        self.greeting = b""
        while b"\n  control" not in self.greeting:
            line = self.process.stdout.readline()
            assert line, f"{words}: it did not start: {open('server.log', errors='replace').read()[-2000:]}"
            self.greeting += line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.log.close()

    def ends(self, seconds=30):
        """It has ended well, and in time."""
        assert self.process.wait(timeout=seconds) == 0, self.process.returncode


def client(uri_or_socket):
    handle = nbd.NBD()
    handle.connect_unix(uri_or_socket)
    return handle


class Reader:
    """A client that reads all the time; knows its longest wait."""

    def __init__(self, path):
        self.worst, self.count, self.over, self.error = 0.0, 0, False, None
        self.handle = client(path)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            while not self.over:
                begun = time.monotonic()
                self.handle.pread(4096, 0)
                self.worst = max(self.worst, time.monotonic() - begun)
                self.count += 1
        except nbd.Error as error:
            self.error = error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()
        assert self.error is None and self.count > 0, f"{self.error} after {self.count}"
        assert self.worst < 3, f"a client that has nothing to do with it waited {self.worst:.1f} s"


@contextlib.contextmanager
def file_that_hangs():
    """A file on a file system that hangs when told so: another server's array by FUSE, which is stopped like in a debugger."""
    need(os.path.exists("/dev/fuse"), "/dev/fuse")
    os.makedirs("far/mnt", exist_ok=True)
    for old in ("far/x", "far/n", "far/c"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(old)
    run("create", "--level", "1", "--size", "16M", "far/x", "missing")
    with Server("far/x", "--nbd", "unix:far/n", "--control", "far/c", "--fuse", "far/mnt") as far:
        try:
            yield os.path.abspath("far/mnt/array"), far.process
        finally:
            far.process.send_signal(signal.SIGCONT)
            far.process.send_signal(signal.SIGTERM)
            far.process.wait(timeout=60)
            subprocess.run(["fusermount3", "-uzq", "far/mnt"], check=False)


def answers(control, path="/v1/status"):
    """What the control socket answers to GET, in time."""
    connection = http.client.HTTPConnection("mdspace", timeout=PROMPT)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(PROMPT)
    connection.sock.connect(control)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, (answer.status, body)
    return body


@attack
def two_servers_of_one_array(_):
    """By whatever path a member is reached, only one server has it; data stays the first one's."""
    run("create", "--level", "1", "--size", "8M", "a", "b")
    paths = [["a", "b"]]
    for link in (os.link, os.symlink):
        names = [f"{link.__name__}-{name}" for name in ("a", "b")]
        for name, target in zip(names, ("a", "b")):
            link(target, name)
        paths.append(names)
    loops = []
    try:
        if os.geteuid() == 0 and os.path.exists("/dev/loop-control"):
            for lower in (["a", "b"], None):
                devices = []
                for path in lower or loops[:2]:
                    made = subprocess.run(["losetup", "-f", "--show", path], capture_output=True, text=True, check=True)
                    devices.append(made.stdout.strip())
                    loops.append(devices[-1])
                paths.append(devices)
        for first in paths:
            with Server(*first, "--nbd", "unix:n", "--control", "c") as server:
                client("n").pwrite(b"first" * 100, 0)
                for second in paths:
                    text = run("serve", *second, "--nbd", "unix:n2", "--control", "c2", status=2)
                    assert b"in use" in text, text
                    run("write", *second, status=2, stdin=None, input=b"second" * 100)
                    run("read", *second, "--length", "4", status=2)
                assert bytes(client("n").pread(500, 0)) == b"first" * 100
                run("stop", "--control", "c")
                server.ends()
    finally:
        for device in reversed(loops):
            subprocess.run(["losetup", "-d", device], check=False)


@attack
def a_device_is_written_to_between_its_ends_under_its_overlay(rng):
    """The overlay is refused from then on, with what has changed, and until then it is used."""
    if os.geteuid() != 0 or not os.path.exists("/dev/loop-control"):
        return
    run("create", "--level", "1", "--size", "8M", "a", "b")
    made = subprocess.run(["losetup", "-f", "--show", "a"], capture_output=True, text=True, check=True)
    device = made.stdout.strip()
    try:
        # Still to be written when the overlay is made.
        with open(device, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), b"before" * 512, 5 << 20)
        run("write", device, "b", "--overlay", "over", stdin=None, input=b"one" * 1000)
        os.sync()
        run("write", device, "b", "--overlay", "over", stdin=None, input=b"two" * 1000)
        with open(device, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), b"x" * 512, rng.randrange(4096, 12288) * 512)
        for words in (["read", "--length", "4"], ["write"]):
            text = run(*words, device, "b", "--overlay", "over", status=2, stdin=None, input=b"three")
            # The write may be at one of the places that are compared.
            says_what = b"sectors to it" in text or b"bytes between its ends are others" in text
            assert b"changed since the overlay was made" in text and says_what, text
    finally:
        subprocess.run(["losetup", "-d", device], check=False)


@attack
def a_file_that_hangs_is_offered(rng):
    """Whatever waits for it, everything else is heard, clients are served, and a stop ends the server in time."""
    with file_that_hangs() as (path, far):
        run("create", "--level", "1", "--size", "8M", "a", "b", "missing")
        offers = [("add", path), ("add", "--force", path), ("replace", "a", path), ("re-add", path),
                  ("set", f"bitmap={os.path.dirname(path)}/bitmap")]
        with Server("a", "b", "--nbd", "unix:n", "--control", "c") as server:
            with Reader("n"):
                far.send_signal(signal.SIGSTOP)
                offered = subprocess.Popen(
                    [MDSPACE, *rng.choice(offers), "--control", "c"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
                )
                until(lambda: b"busy" in run("add", "nothing", "--control", "c", status=2), "it is under way")
                begun = time.monotonic()
                state = json.loads(answers("c"))
                answers("c", "/metrics")
                run("fail", "b", "--control", "c")
                run("set", "sync-speed-min=2M", "--control", "c")
                assert time.monotonic() - begun < PROMPT, "commands wait for it"
                assert state["state"] == "clean, degraded", state["state"]
            run("stop", "--control", "c")
            server.ends(PROMPT)
            far.send_signal(signal.SIGCONT)
            offered.communicate(timeout=60)


@attack
def a_server_ends_beside_a_file_that_hangs(_):
    """While a file that hangs is added, SIGTERM ends the server in time, clean."""
    with file_that_hangs() as (path, far):
        run("create", "--level", "1", "--size", "8M", "a", "b", "missing")
        with Server("a", "b", "--nbd", "unix:n", "--control", "c") as server:
            far.send_signal(signal.SIGSTOP)
            offered = subprocess.Popen([MDSPACE, "add", path, "--control", "c"], stderr=subprocess.PIPE)
            until(lambda: b"busy" in run("add", "nothing", "--control", "c", status=2), "it is under way")
            server.process.terminate()
            server.ends(PROMPT)
            assert offered.wait(timeout=PROMPT) == 2, "its client is told"
            far.send_signal(signal.SIGCONT)
        assert b"clean" in run("examine", "a")


@attack
def a_member_hangs_and_leaves(rng):
    """The array goes on without it, a stop ends in time, and what was written is there without it."""
    with file_that_hangs() as (path, far):
        run("create", "--level", "5", "--size", "8M", "--force", "a", "b", path)
        with Server("a", "b", path, "--nbd", "unix:n", "--control", "c") as server:
            run("set", "member-timeout=1", "--control", "c")
            handle = client("n")
            handle.pwrite(b"a" * 262144, 0)
            far.send_signal(signal.SIGSTOP)
            data = rng.randbytes(262144)
            handle.pwrite(data, 0)
            handle.flush()
            begun = time.monotonic()
            if rng.random() < 0.5:
                server.process.terminate()
            else:
                run("stop", "--control", "c")
            server.ends()
            assert time.monotonic() - begun < 20, "it ends"
            run("read", "a", "b", "--length", "256K", "--output", "out")
            assert open("out", "rb").read() == data
            far.send_signal(signal.SIGCONT)


@attack
def a_locked_file_is_offered(_):
    """A file that somebody has locked who cannot be told is refused, and no client waits for it."""
    run("create", "--level", "1", "--size", "8M", "a", "b", "missing")
    with open("locked", "wb") as file:
        file.truncate(8 << 20)
    # Its parent has locked it and is gone: the lock is of a process that nobody finds.
    code = "import fcntl,os,sys\nf=open('locked')\nfcntl.flock(f,fcntl.LOCK_EX)\nif os.fork(): os._exit(0)\nprint('held',flush=True)\nsys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with Server("a", "b", "--nbd", "unix:n", "--control", "c") as server:
        with Reader("n"):
            assert b"in use" in run("add", "locked", "--control", "c", status=2)
            os.mkfifo("pipe")
            assert b"neither a regular file" in run("add", "pipe", "--control", "c", status=2)
        holder.stdin.close()
        run("stop", "--control", "c")
        server.ends()


@attack
def control_clients_that_misbehave(rng):
    """Clients that say nothing, half of something or garbage hold up no other for long, and cost no memory."""
    run("create", "--level", "1", "--size", "8M", "a", "b")
    head = b"POST /v1/set HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    says = [b"", b"GET /v1/st", b"\0" * 4096, rng.randbytes(4096), head % 10, head % (1 << 40) + b"x" * 100000,
            b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", head % 2 + b'{"member-timeout":"\x1b[2J"}',
            head % 60000 + b'{"a":' * 10000 + b"1" + b"}" * 10000, b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"]
    with Server("a", "b", "--nbd", "unix:n", "--control", "c") as server:
        answers("c")
        kib = lambda: int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{server.process.pid}/status").read())[1])
        before = kib()
        held = []
        with Reader("n"):
            for _ in range(200):
                stranger = socket.socket(socket.AF_UNIX)
                stranger.setblocking(False)
                with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionError):
                    stranger.connect("c")
                    stranger.sendall(rng.choice(says))
                held.append(stranger)
            # Those who say nothing are cut off after a while; then it is answered.
            begun = time.monotonic()
            while True:
                try:
                    state = json.loads(answers("c"))
                    break
                except (TimeoutError, OSError, http.client.HTTPException):
                    assert time.monotonic() - begun < 45, "no other client is heard"
            assert state["state"].startswith("clean") and not state["broken"], state
        for stranger in held:
            stranger.close()
        assert kib() < before + (64 << 10), f"{before} KiB and then {kib()}"
        run("stop", "--control", "c")
        server.ends()


@attack
def sockets_in_somebody_elses_directory(_):
    """A directory under /tmp that another user made is not looked into by commands, and refused by servers."""
    need(os.geteuid() == 0, "root")
    place = f"/tmp/mdspace-{VICTIM}"
    need(not os.path.lexists(place), f"no {place}")
    as_user = lambda uid: {"user": uid, "group": uid, "extra_groups": [], "cwd": os.path.abspath("own"),
                           "env": {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}}
    os.mkdir("own")
    os.chown("own", VICTIM, VICTIM)
    need(subprocess.run([MDSPACE, "--version"], capture_output=True, check=False, **as_user(VICTIM)).returncode == 0,
         "a command that others can run")
    run("create", "--level", "1", "--size", "8M", "x", "y", **as_user(VICTIM))
    listener = socket.socket(socket.AF_UNIX)
    try:
        os.mkdir(place, 0o755)
        os.chown(place, ATTACKER, ATTACKER)
        listener.bind(f"{place}/yours-12345678.control.sock")
        os.chmod(f"{place}/yours-12345678.control.sock", 0o777)
        listener.listen()
        listener.setblocking(False)
        for words in (("status",), ("stop",), ("add", "x"), ("fail", "x")):
            text = run(*words, status=2, **as_user(VICTIM))
            assert b"not to you" in text, text
            try:
                listener.accept()
                raise AssertionError(f"{words}: asked the attacker")
            except BlockingIOError:
                pass
        assert b"not to you" in run("serve", "x", "y", status=2, **as_user(VICTIM))
    finally:
        listener.close()
        subprocess.run(["rm", "-rf", place], check=True)
    os.mkdir("own/mdspace-data")
    os.chown("own/mdspace-data", ATTACKER, ATTACKER)
    assert b"not to you" in run("up", status=2, **as_user(VICTIM))
    assert os.listdir("own/mdspace-data") == []


@attack
def names_that_are_orders_to_a_terminal(rng):
    """No control character of a member's or an array's name reaches the terminal, whoever says the name."""
    orders = ["\x1b]0;pwned\x07", "\x1b[2J", "a\rb", "\x9b31m", "\u202egpj", "\x7f", "\x08\x08"]
    first, second, third = (f"{name}{rng.choice(orders)}" for name in "mno")
    said = [run("create", "--level", "1", "--size", "8M", "--name", "n\x1b[5m", first, second)]
    with Server(first, second, "--nbd", "unix:n", "--control", "c") as server:
        said.append(server.greeting)
        for words in (["status"], ["iostat"], ["fail", second], ["status"], ["remove", second], ["add", third],
                      ["add", second], ["set", "bitmap=/tmp/\x1b[2J/x"], ["scrub"]):
            said.append(run(*words, "--control", "c", status=None))
        said.append(run("stop", "--control", "c"))
        server.ends()
    for words in (["examine", first], ["read", second, "--length", "0"], ["serve", third], ["create", first, second]):
        said.append(run(*words, status=None))
    said.append(open("server.log", "rb").read())
    for text in said:
        text = text.decode()
        bad = re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
        assert not bad, f"{bad[0]!r} in {text!r}"


def superblock_checksum(block):
    """Of a version 1 superblock without its own checksum (drivers/md/md.c, calc_sb_1_csum)."""
    length = 256 + 2 * struct.unpack_from("<I", block, 220)[0]
    block = block[:216] + bytes(4) + block[220:length]
    total = sum(struct.unpack(f"<{length // 4}I", block[: length // 4 * 4]))
    total += struct.unpack("<H", block[-2:])[0] if length % 4 else 0
    return ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF


@attack
def clocks_that_went_back(rng):
    """Times on members that are ahead of the clock, or long ago, decide nothing: events do, and data stays."""
    run("create", "--level", "5", "--size", "8M", "a", "b", "c0")
    for name in ("a", "b", "c0"):
        seconds = rng.choice([0, 1, 4102444800, 1 << 39])
        with open(name, "r+b") as member:
            member.seek(4096)
            block = bytearray(member.read(4096))
            struct.pack_into("<Q", block, 192, seconds)
            struct.pack_into("<I", block, 216, superblock_checksum(bytes(block)))
            member.seek(4096)
            member.write(block)
    data = rng.randbytes(1 << 20)
    for _ in range(2):
        with Server("a", "b", "c0", "--nbd", "unix:n", "--control", "c") as server:
            client("n").pwrite(data, 0)
            state = json.loads(answers("c"))
            assert not state["missing"], state["missing"]
            run("stop", "--control", "c")
            server.ends()
    for members in (("a", "b", "c0"), ("a", "c0"), ("b", "c0")):
        with contextlib.suppress(FileNotFoundError):
            os.remove("out")
        run("read", *members, "--length", "1M", "--output", "out")
        assert open("out", "rb").read() == data, members


@attack
def strangers_at_a_port_that_asks_for_certificates(_):
    """However many connect without one, a client with a certificate is let in; the log stays short."""
    made = """set -e; mkdir server good; cd .
sign() { openssl x509 -req -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 30 -extfile <(echo "$1") -out "$2"; }
ask() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj "/CN=$1" -keyout "$2"; }
ask authority ca-key.pem >ca.csr
openssl x509 -req -in ca.csr -key ca-key.pem -days 30 -out ca.pem \
  -extfile <(printf 'basicConstraints=critical,CA:TRUE\\nkeyUsage=keyCertSign,cRLSign\\n')
ask server server/server-key.pem | sign 'subjectAltName=DNS:localhost' server/server-cert.pem
ask client good/client-key.pem | sign 'extendedKeyUsage=clientAuth' good/client-cert.pem
cp ca.pem server/ca-cert.pem; cp ca.pem good/ca-cert.pem"""
    subprocess.run(["bash", "-c", made], check=True, capture_output=True)
    run("create", "--level", "1", "--size", "8M", "a", "b")
    tls = ("--tls", "require", "--tls-certificates", "server", "--tls-verify-peer")
    with Server("a", "b", "--nbd", "tcp:127.0.0.1:0", "--control", "c", *tls) as server:
        port = int(re.search(rb"localhost:(\d+)|127\.0\.0\.1:(\d+)", server.greeting)[0].rsplit(b":", 1)[1])
        over, made = False, [0]

        def hold():
            while not over:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=3) as stranger:
                    made[0] += 1
                    stranger.settimeout(1)
                    while not over:
                        with contextlib.suppress(TimeoutError):
                            if not stranger.recv(100):
                                break

        strangers = [threading.Thread(target=hold) for _ in range(300)]
        try:
            for stranger in strangers:
                stranger.start()
            until(lambda: made[0] > 200, "the port is flooded")
            # A client far away answers the greeting after a while.
            with socket.create_connection(("127.0.0.1", port), timeout=PROMPT) as far:
                assert far.recv(18, socket.MSG_WAITALL).startswith(b"NBDMAGIC")
                time.sleep(0.1)
                start_tls = struct.pack(">IQII", 1, 0x49484156454F5054, 5, 0)
                far.sendall(start_tls)
                assert len(far.recv(20, socket.MSG_WAITALL)) == 20, "a client that answers late is evicted"
            uri = f"nbds://localhost:{port}/?tls-certificates={os.path.abspath('good')}"
            for _ in range(3):
                begun = time.monotonic()
                subprocess.run(["nbdinfo", "--size", uri], check=True, capture_output=True, timeout=40)
                assert time.monotonic() - begun < PROMPT, "a client with a certificate waits"
        finally:
            over = True
            for stranger in strangers:
                stranger.join()
        run("stop", "--control", "c")
        server.ends()
    assert os.path.getsize("server.log") < 64 << 10, "strangers fill the log"


# What is run again and again while there is time.
CHEAP = [names_that_are_orders_to_a_terminal, clocks_that_went_back]


def main():
    global MDSPACE
    MDSPACE, place, seconds, names = os.path.abspath(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:]
    place = os.path.abspath(place)
    os.chmod(place, 0o755)
    # Sockets of the machine's own user are none of this.
    os.environ.update(XDG_RUNTIME_DIR=place, XDG_STATE_HOME=os.path.join(place, "state"), LC_ALL="C.UTF-8")
    end, counts, absent = time.monotonic() + seconds, 0, []

    def once(function):
        nonlocal counts
        number = sum(1 for _ in os.scandir(place))
        here = os.path.join(place, f"{number:03}-{function.__name__}"[:40])
        os.mkdir(here)
        os.chdir(here)
        seed = random.randrange(1 << 32)
        begun = time.monotonic()
        try:
            function(random.Random(seed))
        except NotHere as error:
            absent.append(f"{function.__name__}: needs {error}")
            return
        except BaseException:
            print(f"{function.__name__} (seed {seed}, in {here}): it has to be so: {function.__doc__}", flush=True)
            raise
        counts += 1
        print(f"{function.__name__}: {time.monotonic() - begun:.1f} s", flush=True)

    chosen = [function for function in ATTACKS if not names or function.__name__ in names]
    for function in chosen:
        once(function)
    while time.monotonic() < end and not names:
        once(random.choice(CHEAP))
    for line in absent:
        print(f"not run: {line}")
    assert not (absent and os.environ.get("CI") == "true"), "CI runs all of them"
    print(f"{counts} attacks of {len(chosen) - len(absent)} kinds ended as they have to, {len(absent)} kinds not run")


main()
