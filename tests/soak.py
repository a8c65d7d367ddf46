#!/usr/bin/python3
"""Sixty-four NBD clients write and verify while members fail, come back, are added and replaced, and scrubs run.

    soak.py MDSPACE DIRECTORY SECONDS [SEED]

fio's clients, each in its own part of a RAID-6 with a bitmap and spares, verify what they wrote soon after. Meanwhile one
change of the array follows the other, and it has to become whole again after each. At the end: every client's data was
right; memory has stayed what it was after a third of the time, descriptors are those of the beginning; the server stops
clean, and a scrub of the members finds nothing. Prints what was done.

A seed repeats the order of the changes, not their moments. Nothing waits on a sleep: the clock is `status --watch`.
"""

import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys

CLIENTS = 64
SLOTS = 6
MEMBER_BYTES = 64 << 20
# A third of it is for members to be filled under full load, at the speed that changes are tried with.
CHANGE_SECONDS_MAX = 120
# What is bounded, and may be used late: the cache, and a sweep's buffers.
MEMORY_SLACK_KIB = 40 << 10


class Control(http.client.HTTPConnection):
    """The control interface (docs/control.md)."""

    def __init__(self, path):
        super().__init__("mdspace")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def ask(self, route, body=None):
        """The answer; exits when there is none, or it is a refusal."""
        status, answer = self.try_to(route, body)
        if status != 200:
            sys.exit(f"{route} {body}: {status} {answer}")
        return answer

    def try_to(self, route, body=None):
        try:
            self.request("GET" if body is None else "POST", route, body and json.dumps(body))
            response = self.getresponse()
            return response.status, json.load(response)
        finally:
            self.close()


class Server:
    def __init__(self, mdspace, members):
        words = [mdspace, "serve", *members, "--nbd", "unix:nbd.sock", "--control", "control.sock"]
        with open("server.log", "w") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        if not any(line.startswith("  control") for line in self.process.stdout):
            sys.exit(f"{' '.join(words)}: {self.what_it_said()}")
        self.control = Control("control.sock")

    def what_it_said(self):
        """What it wrote about its troubles, and how it ended; it is made to, if it has not."""
        try:
            ended = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            ended = f"{self.process.wait()}, as it was killed"
        with open("server.log") as log:
            return f"the server ended with {ended}\n{log.read()}"

    def memory_kib(self):
        with open(f"/proc/{self.process.pid}/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Clock:
    """A status each second."""

    def __init__(self, mdspace):
        words = [mdspace, "status", "--control", "control.sock", "--json", "--watch", "1"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.decoder, self.text, self.seconds = json.JSONDecoder(), "", 0

    def tick(self):
        """The next status."""
        while True:
            line = self.process.stdout.readline()
            if not line:
                sys.exit("the server is gone")
            self.text += line
            try:
                status, end = self.decoder.raw_decode(self.text.lstrip())
            except ValueError:
                continue
            self.text, self.seconds = self.text.lstrip()[end:], self.seconds + 1
            return status

    def stop(self):
        self.process.kill()
        self.process.wait()


class Changes:
    """What is done to the array, one after the other."""

    def __init__(self, control, spare_files, choice):
        self.control, self.choice, self.done = control, choice, {}
        self.free = spare_files  # files that are no members just now

    def member(self, state, status):
        names = [member["name"] for member in status["members"] if member["state"] == state]
        return self.choice.choice(names) if names else None

    def begin(self, status):
        ways = [self.fail_and_return, self.fail_and_add, self.fail_two, self.replace, self.scrub, self.settings]
        way = self.choice.choice(ways)
        way(status)
        self.done[way.__name__] = self.done.get(way.__name__, 0) + 1
        return way.__name__

    def leave(self, status):
        """A member fails and is let go of; its name."""
        name = self.member("in_sync", status)
        self.control.ask("/v1/members/fail", {"member": name})
        self.control.ask("/v1/members/remove", {"member": name})
        return name

    def join(self, way, body):
        """Takes a member in; the answer when it is refused."""
        code, answer = self.control.try_to("/v1/members/" + way, body)
        return None if code == 200 else answer

    def add(self, name):
        refusal = self.join("add", {"member": os.path.abspath(name), "force": True})
        if refusal:
            sys.exit(f"add {name}: {refusal}")

    def fail_and_return(self, status):
        name = self.leave(status)
        if self.join("re-add", {"member": os.path.abspath(name)}):  # there is no bitmap just now
            self.add(name)

    def fail_and_add(self, status):
        self.free.append(self.leave(status))
        self.add(self.free.pop(0))

    def fail_two(self, status):
        gone = [self.leave(status)]
        gone.append(self.leave(self.control.ask("/v1/status")))
        for name in gone:
            self.add(name)

    def replace(self, status):
        old, new = self.member("in_sync", status), self.free.pop(0)
        refusal = self.join("replace", {"member": old, "with": os.path.abspath(new), "force": True})
        if refusal:
            sys.exit(f"replace {old} by {new}: {refusal}")
        self.free.append(old)

    def scrub(self, _):
        self.control.ask("/v1/scrub", {"action": self.choice.choice(["check", "repair"])})
        if self.choice.random() < 0.3:
            self.control.ask("/v1/scrub", {"action": "cancel"})

    def settings(self, status):
        size = self.choice.choice(["auto", "4K", "64K"])
        bitmap = "none" if status["bitmap"] else "internal:64K"
        self.control.ask("/v1/set", {"stripe-size": size, "bitmap": bitmap})

    def clean_up(self, status):
        """Lets go of members that were replaced, so that they can be used anew."""
        for member in status["members"]:
            if member["state"] == "faulty":
                self.control.ask("/v1/members/remove", {"member": member["name"]})


def is_at_rest(status):
    # A replacement that was appointed a moment ago has not begun to be filled.
    is_moving = any(member["state"] in ("recovering", "replacement") for member in status["members"])
    return status["in_sync"] == SLOTS and status["sync_action"] == "idle" and status["in_agreement"] and not is_moving


def load(array_bytes, seconds):
    """fio's clients, in parts of their own that do not touch."""
    part = array_bytes // CLIENTS // BLOCKS_MAX * BLOCKS_MAX
    words = ["fio", "--name=soak", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={os.path.abspath('nbd.sock')}",
             f"--numjobs={CLIENTS}", "--thread", "--group_reporting", f"--size={part}", f"--offset_increment={part}",
             "--rw=randrw", "--rwmixwrite=60", "--bsrange=4k-64k", "--blockalign=4k", "--iodepth=4",
             "--verify=crc32c", "--verify_backlog=32", "--verify_fatal=1", "--serialize_overlap=1", "--randrepeat=0",
             "--time_based", f"--runtime={seconds}", "--output=fio.json", "--output-format=json"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


BLOCKS_MAX = 64 << 10


def fill_the_arena():
    """All of the server's memory for transfers is taken into use at once, which otherwise happens little by little."""
    words = ["fio", "--name=fill", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={os.path.abspath('nbd.sock')}",
             f"--numjobs={CLIENTS}", "--thread", "--rw=read", "--bs=1M", "--iodepth=1", "--size=16M"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def soak(mdspace, seconds, choice):
    members = [f"m{number}" for number in range(SLOTS)]
    files = [f"s{number}" for number in range(3)]
    create = ["create", "--level", "6", "--chunk", "64K", "--bitmap", "internal", "--size", str(MEMBER_BYTES), *members]
    subprocess.run([mdspace, *create], check=True, stdout=subprocess.DEVNULL)
    for name in files:
        with open(name, "wb") as file:
            file.truncate(os.path.getsize("m0"))
    server = Server(mdspace, members)
    try:
        endure(mdspace, server, Changes(server.control, files, choice), seconds)
    except (SystemExit, Exception) as error:
        sys.exit(f"{error or repr(error)}\n{server.what_it_said()}")


def endure(mdspace, server, changes, seconds):
    """Load and changes, until the time is over and the server has stopped."""
    control = server.control
    fill_the_arena()
    control.ask("/v1/set", {"sync-speed-min": "32M"})
    clock = Clock(mdspace)
    status = clock.tick()
    descriptors, clients = server.descriptors(), load(status["array_bytes"], seconds)
    memory, connected, since, under_way = [], 0, 0, "the beginning"
    while clients.poll() is None:
        status = clock.tick()
        memory.append(server.memory_kib())
        connected = max(connected, status["served"]["clients"])
        since += 1
        # What the clock told may be from before the last change was done, where that took longer than a second.
        if is_at_rest(status) and is_at_rest(control.ask("/v1/status")):
            changes.clean_up(control.ask("/v1/status"))
            under_way, since = changes.begin(control.ask("/v1/status")), 0
        elif since > CHANGE_SECONDS_MAX:
            sys.exit(f"not whole {CHANGE_SECONDS_MAX} s after {under_way}: {json.dumps(status)}")
    if clients.returncode != 0:
        sys.exit(f"fio: {clients.returncode}\n{clients.stderr.read()}")
    if connected < CLIENTS:
        sys.exit(f"at most {connected} of {CLIENTS} clients were served at the same time")
    while not (is_at_rest(status) and is_at_rest(control.ask("/v1/status"))):
        status = clock.tick()
    changes.clean_up(control.ask("/v1/status"))
    status = control.ask("/v1/status")
    # A spare that is in use or not moves the number of members' descriptors, and connections end a moment later.
    used = len(status["members"]) - SLOTS
    while server.descriptors() > descriptors + used:
        status = clock.tick()
        since += 1
        if since > CHANGE_SECONDS_MAX:
            sys.exit(f"{server.descriptors()} descriptors, {descriptors} at the beginning")
    third = len(memory) // 3
    before, after = statistics.median(memory[:third]), statistics.median(memory[-third:])
    if after > before + MEMORY_SLACK_KIB:
        sys.exit(f"memory grew: {before} KiB in the first third, {after} KiB in the last (medians)")
    clock.stop()
    control.ask("/v1/stop", {})
    server.process.stdout.read()
    if server.process.wait() != 0:
        sys.exit(f"the server ended with {server.process.returncode}")
    names = [member["name"] for member in status["members"] if member["state"] != "faulty"]
    subprocess.run([mdspace, "scrub", *names], check=True, stdout=subprocess.DEVNULL)
    with open("fio.json") as report:
        text = report.read()
    job = json.loads(text[text.index("{"):])["jobs"][0]
    done = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(changes.done.items()))
    requests = job["read"]["total_ios"] + job["write"]["total_ios"]
    print(f"{CLIENTS} clients, {requests} requests verified in {seconds} s beside {sum(changes.done.values())} changes "
          f"({done}); at most {max(memory) >> 10} MiB, {after - before:+} KiB from the first third to the last")


def main():
    mdspace, directory, seconds = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 32)
    os.chdir(directory)
    try:
        soak(mdspace, seconds, random.Random(seed))
    except SystemExit as end:
        sys.exit(f"seed {seed}: {end.code}")


main()
