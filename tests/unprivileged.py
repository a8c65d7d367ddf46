#!/usr/bin/python3
"""Everything that needs no root, by a user who has none of it: nobody, without capabilities or ways to get them, with 64 KiB of
memory that may be locked. Real clients, and what comes of it: bytes, states, exit statuses. And what does need root is
refused with what to do, and nothing changed.

    unprivileged.py MDSPACE

Root becomes nobody here, and who is not root stays who he is. Works in a directory of its own under $TMPDIR, as the one that
the binary is in need not be anybody else's to enter. FUSE alone is used with a way to more rights: fusermount3 is setuid.
Nothing waits on a sleep, and nothing outside that directory is changed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time

NOBODY = 65534
MEMLOCK_BYTES_MAX = 8 << 20  # as most distributions have it
MEMLOCK_BYTES = 64 << 10  # as older ones have it
MEMBER_BYTES = 16 << 20
TOKEN = "correct-horse-battery"
PATIENCE_SECONDS = 60
PART_SECONDS_MAX = 300

MDSPACE = None


def check(condition, what):
    if not condition:
        sys.exit(f"not so: {what}")


def step(what):
    print(f"--- {what}", flush=True)


def execute(words, data=None, status=0):
    """What a program prints, to standard output and to standard error; it has to end with `status`."""
    done = subprocess.run(words, input=data, capture_output=True)
    said = done.stderr.decode(errors="replace")
    if done.returncode != status:
        shown = done.stdout.decode(errors="replace")[:2000]
        sys.exit(f"{' '.join(words)}: {done.returncode}, not {status}\n{shown}{said}")
    return done.stdout, said


def mdspace(*words, data=None, status=0):
    return execute([MDSPACE, *words], data, status)[0]


def report(*words, status=0):
    return json.loads(mdspace(*words, "--json", status=status))


def refused(*words, says):
    """A refusal, with everything that is to be in it."""
    shown, said = execute([MDSPACE, *words], status=2)
    said += shown.decode()
    for part in says:
        check(part in said, f"`{' '.join(words)}` says {part!r}: {said}")


def client(*words, data=None):
    return execute(list(words), data)[0]


def lock_no_more_than(limit, most):
    """How much memory the user may lock from now on; not more than was allowed before."""
    allowed = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (min(limit, most), most))


def until(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = condition()
        if found:
            return found
        check(time.monotonic() < deadline, f"{what}, within {PATIENCE_SECONDS} s")


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def check_own(*paths):
    """Nobody else may open them: the umask here takes nothing away."""
    for path in paths:
        check(mode(path) & 0o077 == 0, f"{path} is its owner's alone: {mode(path):o}")


def contents(name):
    with open(name, "rb") as file:
        return file.read()


def digests(paths):
    return {path: hashlib.sha256(contents(path)).hexdigest() for path in paths}


@contextlib.contextmanager
def place(name):
    """A directory of a topic's own, which is left again."""
    above = os.getcwd()
    os.mkdir(name)
    os.chdir(name)
    yield
    os.chdir(above)
    shutil.rmtree(name)


class Server:
    """A command that serves until it is told to stop; killed when the topic fails before."""

    def __init__(self, *words, memlock_bytes=MEMLOCK_BYTES, control="control"):
        self.words = [MDSPACE, *words] + ([] if control is None else ["--control", control])
        self.control, self.lines = [] if control is None else ["--control", control], []
        self.log = open("server.log", "w+")
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        preexec_fn=lambda: lock_no_more_than(memlock_bytes, MEMLOCK_BYTES_MAX))
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("  control"):
                return
        self.process.wait()

    def __enter__(self):
        check(self.process.poll() is None, f"`{' '.join(self.words)}` serves: {self.said()}")
        return self

    def __exit__(self, kind, *_):
        if kind:
            print(f"the server said: {self.said()}", flush=True)
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()
        self.log.close()

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def run(self, *words, **options):
        return mdspace(*words, *self.control, **options)

    def report(self, *words, **options):
        return report(*words, *self.control, **options)

    def status(self):
        return self.report("status")

    def uri(self):
        return self.status()["served"]["nbd"]

    def stop(self):
        """Ends it in order; the state that it left."""
        state = self.report("stop")["state"]
        self.process.stdout.read()
        check(self.process.wait() == 0, f"the server ended with {self.process.returncode}: {self.said()}")
        return state

    def is_whole(self, slots):
        status = self.status()
        return status["in_sync"] == slots and status["in_agreement"] and status["sync_action"] == "idle" and status

    def state_of(self, name):
        return next((member["state"] for member in self.status()["members"] if os.path.basename(member["name"]) == name), None)


def served_again(*words, **options):
    """After a kill: the members are free when the kernel has taken the server's io_uring apart."""
    def begin():
        server = Server(*words, **options)
        if server.process.poll() is None:
            return server
        check(server.process.returncode == 2 and "in use" in server.said(), f"refused only while in use: {server.said()}")
        return None
    return until(begin, "it is served again")


def who_it_is():
    step("a user without rights")
    check(os.getuid() != 0 and os.geteuid() != 0, "this is not root")
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        check(int(status[kind], 16) == 0, f"{kind} is none: {status[kind]}")
    check(int(status["NoNewPrivs"]) == 1, "no program gives more rights")


def up():
    step("up, stopped, and up again")
    with Server("up", control=None) as server:
        uri = re.search(r"nbd\+unix:\S+", "".join(server.lines)).group(0)
        check(mode("mdspace-data") == 0o700, f"{mode('mdspace-data'):o}")
        made = ["member0.img", "member1.img", "member2.img", "member3.img", "nbd.sock", "control.sock"]
        check(sorted(os.listdir("mdspace-data")) == sorted(made), f"{os.listdir('mdspace-data')}")
        check_own(*(os.path.join("mdspace-data", name) for name in made))
        # Found without being named.
        status = server.status()
        check((status["level"], status["state"].split(",")[0]) == ("raid5", "clean"), f"{status['level']} {status['state']}")
        check(int(client("nbdinfo", "--size", uri)) == status["array_bytes"], "nbdinfo has the array's size")
        refused("up", says=["is being served already", "mdspace stop"])
        data = random.randbytes(10 << 20)
        with open("data", "wb") as file:
            file.write(data)
        client("nbdcopy", "data", uri)
        server.run("fail", "member1.img")
        client("qemu-io", "-f", "raw", "-c", "write -P 0x5a 16M 64k", "-c", "flush", uri)
        check(server.stop() == "clean, degraded", "it was stopped clean")
    with Server("up", control=None) as server:
        status = server.status()
        check((status["in_sync"], status["missing"]) == (3, [1]), "it goes on where it was stopped, without the member")
        check(client("nbdcopy", uri, "-")[:len(data)] == data, "what was written is there")
        client("qemu-io", "-f", "raw", "-r", "-c", "read -P 0x5a 16M 64k", uri)
        server.stop()
    refused("status", says=["no array of yours is being served here", "mdspace up"])


LEVELS = [
    # Level, members, how many of them may be missing, and what else.
    ("linear", 2, 0, []),
    ("0", 3, 0, ["--chunk", "64K"]),
    ("1", 3, 2, ["--bitmap", "internal"]),
    ("1", 2, 1, ["--integrity", "--metadata", "1.1"]),
    ("4", 3, 1, ["--chunk", "64K", "--metadata", "1.0"]),
    ("5", 4, 1, ["--chunk", "64K", "--layout", "right-asymmetric"]),
    ("5", 3, 1, ["--chunk", "64K", "--integrity"]),
    ("6", 5, 2, ["--chunk", "64K", "--bitmap", "internal"]),
    ("6", 4, 2, ["--chunk", "64K", "--integrity"]),
    ("10", 4, 1, ["--chunk", "64K"]),
    ("10", 3, 1, ["--chunk", "64K", "--layout", "f2"]),
]


def levels():
    step("arrays of every level, written, read and examined")
    data = random.randbytes((1 << 20) + 4321)
    for number, (level, count, redundant, more) in enumerate(LEVELS):
        with place("level"):
            members = [f"{letter}.img" for letter in "abcde"[:count]]
            mdspace("create", "--level", level, "--size", "8M", "--name", f"test{number}", *more, *members)
            check_own(*members)
            mdspace("write", "*.img", "--offset", "12345", data=data)
            said = [level, *more]
            for members in (members[::-1], members[redundant:], members[:count - redundant]):
                read = mdspace("read", *members, "--offset", "12345", "--length", str(len(data)))
                check(read == data, f"{said} of {members} reads what was written")
            name = level if level == "linear" else "raid" + level
            text = mdspace("examine", "*.img").decode()
            check(f"test{number}" in text and name in text, f"{said}: {text}")
            found = report("examine", "*.img")
            status = found["arrays"][0]["status"]
            check((status["level"], status["state"], len(found["members"])) == (name, "clean", count), f"{said}: {status}")
            check((status["checksums"] is not None) == ("--integrity" in more), f"{said}: {status['checksums']}")
            uuid = found["arrays"][0]["uuid"]
            check(f"UUID={uuid}" in mdspace("examine", "--scan", "*.img").decode(), f"{said}: its ARRAY line")
            if redundant:
                mdspace("scrub", "*.img")


def nbd(uri, server):
    """Clients of the array at `uri`."""
    bytes_all = server.status()["array_bytes"]
    check(int(client("nbdinfo", "--size", uri)) == bytes_all, "nbdinfo has the array's size")
    data = random.randbytes(3 << 20)
    client("nbdcopy", "-", uri, data=data)
    check(client("nbdcopy", uri, "-")[:len(data)] == data, "nbdcopy gets back what it copied in")
    client("qemu-io", "-f", "raw", "-c", "write -P 0xa5 20000k 300k", "-c", "write -z 20100k 10k", "-c", "flush",
           "-c", "read -P 0xa5 20000k 100k", "-c", "read -P 0 20100k 10k", uri)
    client("fio", "--name=verify", "--ioengine=nbd", f"--uri={uri}", "--rw=randrw", "--bsrange=4k-256k", "--blockalign=4k",
           "--size=4M", "--offset=8M", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0",
           "--serialize_overlap=1", "--minimal")
    return data


def ways():
    step("NBD on a unix socket and a port of loopback, by fio, qemu and libnbd")
    members = ["a.img", "b.img", "c.img", "d.img"]
    mdspace("create", "--level", "5", "--chunk", "64K", "--size", "16M", "--name", "host:data", *members)
    with Server("serve", "?.img", "--nbd", "unix:nbd", "--vhost-user", "vhost") as server:
        check_own("nbd", "control", "vhost")
        nbd(server.uri(), server)
        vhost_user("vhost", server)
        check(server.stop() == "clean", "it was stopped clean")
    with Server("serve", *members, "--nbd", "tcp:127.0.0.1:0", "--cache", "writeback") as server:
        data = nbd(server.uri(), server)
        server.stop()
    check(mdspace("read", *members, "--length", str(len(data))) == data, "what was written is on the members")
    mdspace("scrub", *members)
    for address in ("tcp:0.0.0.0:0", "tcp:[::]:0"):
        refused("serve", *members, "--nbd", address, says=["can be reached from other machines", "--tls require"])

    step("an array of mdadm.conf, on sockets of the user's own")
    lines = mdspace("examine", "--scan", *members)
    with open("mdadm.conf", "wb") as file:
        file.write(f"DEVICE {os.getcwd()}/*.img\n".encode() + lines)
    with Server("serve", "--scan", "data", "--config", "mdadm.conf", control=None) as server:
        own = os.path.join(os.environ["XDG_RUNTIME_DIR"], "mdspace")
        check(mode(own) == 0o700 and len(os.listdir(own)) == 2, f"{own}: {mode(own):o} {os.listdir(own)}")
        check_own(*(os.path.join(own, name) for name in os.listdir(own)))
        check(client("nbdcopy", server.uri(), "-")[:len(data)] == data, "it is the same array")
        server.stop()
    # What others can write to is no place for sockets.
    os.chmod(own, 0o777)
    refused("serve", *members, says=[own, "others can write to it", "--control PATH"])
    os.rmdir(own)

    step("NBD through TLS")
    certificates()
    with Server("serve", *members, "--nbd", "tcp:127.0.0.1:0", "--tls", "require", "--tls-certificates", "tls",
                "--tls-verify-peer") as server:
        port = re.search(r":(\d+)", server.uri().split("//")[1]).group(1)
        secure = f"nbds://localhost:{port}/?tls-certificates={os.getcwd()}/tls"
        check(client("nbdcopy", secure, "-")[:len(data)] == data, "it is the same array")
        check(subprocess.run(["nbdinfo", f"nbd://localhost:{port}"], capture_output=True).returncode != 0, "not without TLS")
        server.stop()


def certificates():
    """An authority, and one certificate of it for the server and its clients."""
    os.mkdir("tls")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
    client("openssl", "req", "-x509", *new, "-subj", "/CN=authority", "-keyout", "ca-key.pem", "-out", "tls/ca-cert.pem",
           "-addext", "keyUsage=keyCertSign")
    for name in ("server", "client"):
        client("openssl", "req", "-x509", *new, "-CA", "tls/ca-cert.pem", "-CAkey", "ca-key.pem", "-subj", "/CN=" + name,
               "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
               "-keyout", f"tls/{name}-key.pem", "-out", f"tls/{name}-cert.pem")


def vhost_user(path, server):
    """A front-end's first words (the vhost-user protocol of qemu's documents): the disk has the array's size."""
    set_owner, get_features, set_features, get_protocol, set_protocol, get_config = 3, 1, 2, 15, 16, 24
    protocol_features, config_feature = 1 << 30, 1 << 9
    with socket.socket(socket.AF_UNIX) as front:
        front.settimeout(PATIENCE_SECONDS)
        front.connect(path)

        def ask(request, payload=b"", answers=True):
            front.sendall(struct.pack("<III", request, 1, len(payload)) + payload)
            if not answers:
                return b""
            kind, _, length = struct.unpack("<III", front.recv(12, socket.MSG_WAITALL))
            check(kind == request, f"an answer to {request}, not {kind}")
            return front.recv(length, socket.MSG_WAITALL)

        features = struct.unpack("<Q", ask(get_features))[0]
        check(features & protocol_features, f"{features:x}")
        offered = struct.unpack("<Q", ask(get_protocol))[0]
        check(offered & config_feature, f"{offered:x}")
        ask(set_protocol, struct.pack("<Q", config_feature), answers=False)
        ask(set_owner, answers=False)
        ask(set_features, struct.pack("<Q", protocol_features), answers=False)
        config = ask(get_config, struct.pack("<III", 0, 60, 0) + bytes(60))
        sectors = struct.unpack_from("<Q", config, 12)[0]
        check(sectors * 512 == server.status()["array_bytes"], f"{sectors} sectors")


def watched():
    step("what it does: status, iostat, trace, top, monitor, and HTTP")
    members = ["a.img", "b.img", "c.img"]
    mdspace("create", "--level", "5", "--chunk", "64K", "--size", "16M", "--bitmap", "internal", "--name", "data", *members)
    with open("token", "w") as file:
        file.write(TOKEN)
    with Server("serve", *members, "--nbd", "unix:nbd", "--http", "127.0.0.1:0", "--http-token-file", "token") as server:
        uri = server.uri()
        client("nbdcopy", "-", uri, data=bytes(range(256)) * 4096)
        for words in ("[UUU]", "array \"data\"", "requests: write"):
            check(words in server.run("status").decode(), words)
        watched = server.run("status", "--watch", "0.02", "--count", "2").decode()
        check(watched.count("array \"data\"") == 2, watched)
        check(server.run("iostat", "0.02", "2").decode().count("Device ") == 2, "two reports")
        measures = server.report("iostat")
        check(measures["requests"]["write"]["bytes"] == 1 << 20, f"{measures['requests']['write']}")
        check([member["name"] for member in measures["members"]] == members, f"{measures['members']}")

        trace = subprocess.Popen([MDSPACE, "trace", "--json", "--count", "6", *server.control], stdout=subprocess.PIPE)

        def is_traced():
            client("nbdcopy", "-", uri, data=random.randbytes(65536))
            return trace.poll() is not None
        until(is_traced, "six transfers are traced")
        lines = [json.loads(line) for line in trace.communicate()[0].splitlines()]
        check(len(lines) == 6 and all(line["device"] in members for line in lines), f"{lines}")

        on_a_terminal(server)
        refused("top", *server.control, says=["not a terminal"])

        with open("tell", "w") as file:
            file.write("#!/bin/sh\necho \"$@\" >>told\n")
        os.chmod("tell", 0o755)
        server.run("monitor", "--once", "--test", "--program", "./tell")
        check("TestMessage data" in contents("told").decode(), "the program was told")
        by_http(server)
        server.stop()


def on_a_terminal(server):
    """`top` draws until q is pressed."""
    process, screen = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm"
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
        os.execv(MDSPACE, [MDSPACE, "top", "--interval", "0.05", *server.control])
    shown, is_told = b"", False
    with contextlib.suppress(OSError):  # what a terminal reads like when its other side is closed
        while more := os.read(screen, 4096):
            shown += more
            if b"in_sync" in shown and not is_told:
                os.write(screen, b"q")
                is_told = True
    os.close(screen)
    ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    check(ended == 0 and b"raid5" in shown, f"top ended with {ended}: {shown[-2000:]}")


def by_http(server):
    url = server.status()["served"]["http"]
    freeze = ["-d", json.dumps({"sync-action": "frozen"}), url + "/v1/set"]

    def curl(*words):
        body, code = client("curl", "--silent", "--write-out", "\n%{http_code}", *words).decode().rsplit("\n", 1)
        return int(code), body

    code, text = curl(url + "/metrics")
    check(code == 200 and re.search(r"^mdspace_array_in_sync\{.*\} 3(\.0)?$", text, re.M), f"{code} {text[:2000]}")
    for words in ([], ["-H", "Authorization: Bearer wrong-wrong-wrong-wrong"]):
        check(curl(*words, *freeze)[0] == 401 and server.status()["sync_action"] == "idle", "not without the token")
    code, text = curl("-H", f"Authorization: Bearer {TOKEN}", *freeze)
    check(code == 200 and server.status()["sync_action"] == "frozen", f"{code} {text}")
    socket_words = ["--unix-socket", server.control[1], "http://mdspace/v1/set", "-d", json.dumps({"sync-action": "idle"})]
    check(curl(*socket_words)[0] == 200 and server.status()["sync_action"] == "idle", "the socket takes no token")


def changes():
    step("members fail, leave, return, are replaced; settings; growth; scrubs beside clients")
    members = [f"m{number}" for number in range(5)]
    mdspace("create", "--level", "6", "--chunk", "64K", "--size", "16M", "--bitmap", "internal", "--bitmap-chunk", "64K",
            *members)
    for name in ("n0", "n1"):
        with open(name, "wb") as file:
            file.truncate(MEMBER_BYTES)
    data = random.randbytes(6 << 20)
    with Server("serve", *members, "--nbd", "unix:nbd") as server:
        uri = server.uri()
        client("nbdcopy", "-", uri, data=data)
        check(server.report("fail", "m1")["missing"] == [1], "m1 has left")
        server.run("remove", "m1")
        client("qemu-io", "-f", "raw", "-c", "write -P 0x11 8M 64k", uri)
        before = swept_bytes(server)
        server.run("re-add", "m1")
        status = until(lambda: server.is_whole(5), "m1 has what was written meanwhile")
        swept = sum(swept_bytes(server)) - sum(before)
        check(0 < swept < 5 * status["component_bytes"] // 2, f"what the bitmap names, not everything: {swept} bytes")
        server.run("fail", "m2")
        server.run("remove", "m2")
        server.run("add", "n0")
        until(lambda: server.is_whole(5), "n0 is recovered")
        server.run("replace", "m3", "n1")
        until(lambda: server.state_of("n1") == "in_sync", "n1 has taken m3's place")
        server.run("remove", "m3")
        members = [os.path.basename(member["name"]) for member in server.status()["members"]]
        check(sorted(members) == ["m0", "m1", "m4", "n0", "n1"], f"{members}")

        server.run("set", "bitmap=none", "stripe-size=4K", "sync-speed-min=20M")
        status = server.status()
        check((status["bitmap"], status["stripe_size_bytes"]) == (None, 4096), f"{status}")
        bitmap = os.path.abspath("bitmap")
        server.run("set", f"bitmap={bitmap}")
        check_own(bitmap)
        check(server.status()["bitmap"]["file"] == bitmap, "the bitmap is in the file")
        refused("set", "bitmap=internal:1M", "stripe-size=auto", *server.control, says=["has a bitmap already", "remove it"])
        check(server.status()["stripe_size_bytes"] == 4096, "none of them, when one is refused")
        server.run("set", "bitmap=none")
        server.run("set", "bitmap=internal:1M", "stripe-size=auto")
        refused("set", "stripe-size=4K", "verify=scrub", *server.control, says=["verify"])
        status = server.status()
        check((status["bitmap"]["chunk_bytes"], status["stripe_size_bytes"]) == (1 << 20, None), "all or none of them")

        for name in members:
            os.truncate(name, MEMBER_BYTES + (8 << 20))
        grown = server.report("grow", "--size", "max")["array_bytes"]
        check(grown > status["array_bytes"] + (20 << 20), f"{status['array_bytes']} grew to {grown}")
        until(lambda: server.is_whole(5), "what is new is resynced")
        check(int(client("nbdinfo", "--size", uri)) == grown, "who connects now sees the new size")

        spoil(members[1], report("examine", *members))
        found = server.report("scrub", status=1)
        named = [os.path.basename(member["name"]) for finding in found["findings"] for member in finding["members"]]
        check(named == [members[1]] and found["counts"]["healed"] == 0, f"{found}")
        check(server.report("scrub", "--repair", status=1)["counts"]["healed"] == 1, "it is healed")
        server.run("scrub")
        read = client("nbdcopy", uri, "-")
        check(read[:len(data)] == data and read[8 << 20:(8 << 20) + 65536] == b"\x11" * 65536, "all that was written is there")

        # One that is interrupted is kept in the user's own directory.
        server.run("set", "sync-speed-min=64K", "sync-speed-max=64K")
        server.run("scrub", "--no-wait")
        server.run("scrub", "--pause")
        check(server.stop() == "clean", "it was stopped clean")
    kept = os.path.join(os.environ["HOME"], ".local/state/mdspace")
    interrupted = lambda: [name for name in os.listdir(kept) if name.endswith(".scrub.json")]  # not the results of others
    check(len(interrupted()) == 1, f"{kept}: {os.listdir(kept)}")
    shown = mdspace("scrub", "--resume", *members).decode()
    check(interrupted() == [], f"it is over: {shown}")

    step("scrubs and growth of members that nobody serves")
    spoil(members[0], report("examine", *members))
    before = digests(members)
    check(report("scrub", *members, status=1)["findings"][0]["members"][0]["name"] == members[0], "it names the member")
    check(before == digests(members), "and changes nothing")
    check(report("scrub", "--repair", *members, status=1)["counts"]["healed"] == 1, "it is healed")
    mdspace("scrub", *members)
    check(mdspace("read", *members, "--length", str(len(data))) == data, "what was written is there")
    for name in members:
        os.truncate(name, MEMBER_BYTES + (9 << 20))
    check(report("grow", *members, "--size", "max")["array_bytes"] > grown, "it has grown")


def swept_bytes(server):
    """What sweeps have read and written of each member."""
    return [member["reasons"].get("sweep", {}).get("bytes", 0) for member in server.report("iostat")["members"]]


def spoil(member, examined):
    """Writes to a member behind the array's back, 1 MiB into its data."""
    data_at = next(one["data_at"] for one in examined["members"] if os.path.basename(one["name"]) == member)
    with open(member, "r+b") as file:
        file.seek(data_at + (1 << 20))
        file.write(b"wrong" * 200)


def killed():
    step("a server that is killed, and the next one")
    members = ["a.img", "b.img", "c.img"]
    mdspace("create", "--level", "5", "--chunk", "64K", "--size", "16M", *members)
    promised = random.randbytes(4 << 20)
    words = ["serve", *members, "--nbd", "unix:nbd"]
    with Server(*words) as server:
        client("nbdcopy", "--flush", "-", server.uri(), data=promised)
        load = subprocess.Popen(["fio", "--name=load", "--ioengine=nbd", f"--uri={server.uri()}", "--rw=randwrite", "--bs=4k",
                                 "--offset=8M", "--size=8M", "--iodepth=16", "--time_based", f"--runtime={PATIENCE_SECONDS}"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        written = server.report("iostat")["requests"]["write"]["count"]
        until(lambda: server.report("iostat")["requests"]["write"]["count"] > written, "fio writes")
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        load.wait()
    check(report("examine", *members)["arrays"][0]["status"]["in_agreement"] is False, "parity is in doubt")
    with served_again(*words) as server:
        until(lambda: server.is_whole(3), "it is resynced")
        check(all(swept > 0 for swept in swept_bytes(server)), f"each member was swept: {swept_bytes(server)}")
        server.run("scrub")
        check(client("nbdcopy", server.uri(), "-")[:len(promised)] == promised, "what was flushed is there")
        server.stop()


def tools():
    step("bench, lab, man pages and completions")
    figures = report("bench", "--level", "5", "--members", "3", "--size", "4M", "--seconds", "0.01")
    check(figures["levels"][0]["figures"][0]["ratio"] > 0, f"{figures}")
    os.mkdir("files")
    counts = report("bench", "--level", "0", "--members", "2", "--size", "4M", "--count", "--member", "files")
    check(counts["levels"][0]["counts"] and os.listdir("files") == [], f"members are files, and gone: {os.listdir('files')}")
    check(report("lab", "e3")[0]["experiment"] == "e3", "the laboratory")  # the one that is quick without optimization
    mdspace("generate", "generated")
    names = re.findall(r"^  ([a-z-]+) ", mdspace("--help").decode().partition("Commands:")[2].partition("Options:")[0], re.M)
    pages = os.listdir("generated/man1")
    check(len(names) > 20, f"{names}")
    for name in names:
        check(name == "help" or f"mdspace-{name}.1" in pages, f"{name} has a page: {pages}")
    client("bash", "-n", "generated/completions/mdspace.bash")
    check(b"--raid-devices" in mdspace("help", "grow"), "help of one command")


def refusals(denied):
    step("what does take root is refused, with what to do, and nothing changed")
    members = ["a.img", "b.img", "c.img"]
    mdspace("create", "--level", "5", "--chunk", "64K", "--size", "16M", *members)
    with open("n.img", "wb") as file:
        file.truncate(MEMBER_BYTES)
    whole = [*members[:2], denied]
    says = [denied, "Permission denied", "next: "]
    before = digests(members)
    refused("create", "--level", "1", "--size", "16M", "made.img", denied, "--force", says=says)
    check(not os.path.exists("made.img"), "what was made for it is gone")
    for words in (["serve"], ["read"], ["examine"], ["scrub"], ["grow", "--size", "max"]):
        refused(*words, *whole, says=says[:2] if words == ["examine"] else says)
    refused("write", *whole, "-i", "n.img", says=says)
    check(before == digests(members), "no member was changed")
    with Server("serve", *members) as server:
        server.run("set", "sync-action=frozen")
        told = server.status()["events"]
        for words in (["add", denied], ["re-add", denied], ["replace", "a.img", denied]):
            refused(*words, *server.control, says=says)
        status = server.status()
        check((status["in_sync"], status["events"], len(status["members"])) == (3, told, 3), f"{status}")
        server.stop()
    before = digests(members)
    refused("serve", *members, "--ublk", "--control", "control", says=["--ublk: ", "next: ", "--fuse and a loop device"])
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as file:
        first_port = int(file.read())
    if first_port > 1:
        for words in (["--nbd", "tcp:127.0.0.1:1"], ["--http", "127.0.0.1:1"]):
            refused("serve", *members, *words, "--control", "control", says=["127.0.0.1:1", "Permission denied"])
    # What may not be looked at could be a member: it is not taken for another array's, and so left behind.
    uuid = report("examine", *members)["arrays"][0]["uuid"]
    os.chmod("c.img", 0)
    for words in (["serve"], ["write", "-i", "n.img"]):
        refused(*words, "--uuid", uuid, ".", says=["c.img", "Permission denied", "may be one of", "next: "])
    shown, said = execute([MDSPACE, "read", "--uuid", uuid, ".", "--length", "4096"])
    check(len(shown) == 4096 and "c.img: passed over: " in said, said)
    os.chmod("c.img", 0o600)
    # Members that may be read but not written are told from those that may not be read.
    os.chmod("a.img", 0o400)
    refused("serve", *members, "--control", "control", says=["a.img", "Permission denied", "next: "])
    with Server("serve", "--read-only", *members, "--nbd", "unix:nbd") as server:
        client("nbdinfo", "--size", server.uri())
        server.stop()
    os.chmod("a.img", 0o600)
    check(before == digests(members), "no member was changed")
    check(not os.path.exists("control"), "no socket was left behind")


def pinned_bytes(server):
    """What the server has registered with the kernel, which is pinned and counts against the limit."""
    with open(f"/proc/{server.process.pid}/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmPin"))


def limits():
    step("the limit on locked memory: 64 KiB, 8 MiB, none at all")
    members = ["a.img", "b.img", "c.img"]
    mdspace("create", "--level", "5", "--chunk", "64K", "--size", "16M", *members)
    words = ["serve", *members, "--nbd", "unix:nbd"]
    for limit in (MEMLOCK_BYTES, MEMLOCK_BYTES_MAX):
        with Server(*words, memlock_bytes=limit) as server:
            data = nbd(server.uri(), server)
            check(pinned_bytes(server) <= limit, f"{pinned_bytes(server)} bytes are pinned of {limit}")
            server.stop()
        check(mdspace("read", *members, "--length", str(len(data))) == data, "what was written is on the members")

    def pins():
        # The limit is the user's, and what others of his pinned is given back some time after their end.
        with Server(*words, memlock_bytes=MEMLOCK_BYTES_MAX) as server:
            pinned = pinned_bytes(server)
            server.stop()
        return pinned
    check(until(pins, "what may be pinned is used") >= 1 << 20, "large pieces")

    # Several servers of one user share his limit; the queues of the later ones are short.
    with contextlib.ExitStack() as stack:
        servers = []
        for number in range(3):
            mirror = [f"{number}.left", f"{number}.right"]
            mdspace("create", "--level", "1", "--size", "32M", *mirror)
            server = Server("serve", *mirror, "--nbd", f"unix:nbd{number}", control=f"control{number}")
            servers.append(stack.enter_context(server))
        for server in servers:
            nbd(server.uri(), server)
            server.stop()

    # Without any, threads take over, unless the kernel does not count a ring's own memory.
    with Server(*words, memlock_bytes=0) as server:
        io = server.status()["served"]["io"]
        check(io["backend"] == "io_uring" or "allocate memory" in io["refusal"], io)
        nbd(server.uri(), server)
        server.stop()
    if io["backend"] == "threads":
        before = digests(members)
        server = Server(*words, "--io", "io_uring", memlock_bytes=0)
        check(server.process.wait() == 2, "refused")
        said = server.said()
        check("io_uring: " in said and "ulimit -l" in said and "--io auto" in said, said)
        check(before == digests(members), "no member was changed")


def fuse():
    step("a file by FUSE")
    members = ["a.img", "b.img", "c.img"]
    mdspace("create", "--level", "5", "--chunk", "64K", "--size", "16M", *members)
    os.mkdir("here")
    with Server("serve", *members, "--fuse", "here", "--nbd", "unix:nbd") as server:
        check(os.stat("here/array").st_size == server.status()["array_bytes"], "the file has the array's size")
        check(os.stat("here/array").st_uid == os.getuid() and mode("here/array") & 0o077 == 0, "and its owner")
        data = random.randbytes(1 << 20)
        client("dd", "of=here/array", "bs=64k", "seek=5", "oflag=direct", "iflag=fullblock", "conv=notrunc,fsync", data=data)
        check(client("nbdcopy", server.uri(), "-")[320 << 10:][:len(data)] == data, "NBD sees what the file got")
        client("fio", "--name=verify", "--filename=here/array", "--ioengine=psync", "--direct=1", "--rw=randrw",
               "--bsrange=4k-256k", "--size=4M", "--offset=4M", "--verify=crc32c", "--verify_fatal=1",
               "--verify_state_save=0", "--minimal")
        with open("here/array", "rb") as file:
            file.seek(320 << 10)
            check(file.read(len(data)) == data, "the file has it too")
        server.stop()
    check(os.listdir("here") == [], "it is unmounted")


def unreadable_device():
    """A block device that is there and not this user's."""
    for name in sorted(os.listdir("/sys/block")):
        path = "/dev/" + name
        if os.path.exists(path) and not os.access(path, os.R_OK):
            return path
    sys.exit("there is no block device that this user may not open")


def main_part(denied):
    who_it_is()
    topics = [up, levels, ways, watched, changes, killed, tools, limits]
    for topic in topics:
        with place(topic.__name__):
            topic()
    with place("refusals"):
        refusals(denied)


def fuse_part(_):
    with place("fuse"):
        fuse()


PARTS = {"main": main_part, "fuse": fuse_part}


def part(name, directory, denied):
    """One part, as the user who runs this."""
    global MDSPACE
    MDSPACE = os.path.join(directory, "mdspace")
    os.chdir(os.path.join(directory, "work"))
    os.umask(0)
    lock_no_more_than(MEMLOCK_BYTES, MEMLOCK_BYTES_MAX)
    random.seed(0)
    signal.alarm(PART_SECONDS_MAX)  # nothing here waits for ever
    PARTS[name](denied)


def main(binary):
    is_root = os.getuid() == 0
    directory = tempfile.mkdtemp(prefix="mdspace-unprivileged-")
    try:
        # Nobody may be able to enter where the binary and this script are.
        shutil.copy(binary, os.path.join(directory, "mdspace"))
        script = shutil.copy(__file__, os.path.join(directory, "script"))
        home, work = os.path.join(directory, "home"), os.path.join(directory, "work")
        environment = {"HOME": home, "XDG_RUNTIME_DIR": os.path.join(directory, "run"), "LC_ALL": "C.UTF-8",
                       "TMPDIR": work, "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        for made in (home, environment["XDG_RUNTIME_DIR"], work):
            os.mkdir(made, 0o700)
            if is_root:
                os.chown(made, NOBODY, NOBODY)
        os.chmod(directory, 0o755)
        if is_root:
            denied = os.path.join(directory, "disk")
            os.mknod(denied, 0o600 | stat.S_IFBLK, os.makedev(7, 0))
        else:
            denied = unreadable_device()
        for name in PARTS:
            words = ["setpriv", "--inh-caps=-all", "--ambient-caps=-all"]
            if is_root:
                words += [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            if name != "fuse":
                words += ["--no-new-privs"] + (["--bounding-set=-all"] if is_root else [])
            words += ["/usr/bin/python3", script, "part", name, directory, denied]
            limit = lambda: lock_no_more_than(MEMLOCK_BYTES_MAX, MEMLOCK_BYTES_MAX)
            done = subprocess.run(words, env=environment, preexec_fn=limit)
            if done.returncode != 0:
                sys.exit(f"{name}: ended with {done.returncode}")
    finally:
        shutil.rmtree(directory)
    print(f"{len(LEVELS)} kinds of arrays; all commands, clients and refusals of a user without rights")


if __name__ == "__main__":
    if sys.argv[1] == "part":
        part(*sys.argv[2:])
    else:
        main(os.path.abspath(sys.argv[1]))
