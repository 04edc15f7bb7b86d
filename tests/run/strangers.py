#!/usr/bin/env python3
"""What strangers try at the port where ranks meet, and what a rank tries that has the run's secret and does not keep to
the protocol. None succeeds: the run ends as it does alone, or with one error, and nothing is written or shown that the
stranger chose. Usage: strangers.py TOY [CASE...], TOY being the binary of toy_ranks.c (3 ranks).
"""
import itertools
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import frames
from cases import Failed, check, run_cases
from compiled import read, text_file
from frames import ANSWER, BEAT, DATA, FAIL, GREET, Closed, Wire, Zero, greeting, hello
from processes import RANKS, end, free_port, nobody_left, start

SECRET = "the secret of this run"
OPTIONS = ("--data=data.txt", "--steps=4")
WAIT = {"HEDDLE_CONNECT_SECONDS": "600", "HEDDLE_SILENCE_SECONDS": "300"}


class Job:
    """Ranks of one run, started one by one; they meet at 127.0.0.1."""

    def __init__(self, secret=SECRET, port=None, more=None):
        self.env = dict(WAIT, WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", HEDDLE_SECRET=secret, **(more or {}))
        self.ranks, self.port = {}, port

    def start(self, rank, *options, port=None, env=None):
        self.ranks[rank] = start(*OPTIONS, *options, env=dict(
            self.env, RANK=str(rank), LOCAL_RANK=str(rank), MASTER_PORT=str(port or self.port), **(env or {})))

    def listen(self, *options):
        """Starts rank 0 and waits until it listens; another port where somebody else was quicker."""
        for _ in range(20):
            self.port = free_port()
            self.start(0, *options)
            until = time.monotonic() + frames.LONG
            while self.ranks[0].poll() is None and time.monotonic() < until:
                if is_listening(self.ranks[0].pid, int(self.port)):
                    return self
                time.sleep(0.01)
            r = end(self.ranks[0])
            check("Address already in use" in r.err, "rank 0 does not listen:", r)
        raise Failed("no free port")

    def connect(self):
        return socket.create_connection(("127.0.0.1", int(self.port)), timeout=frames.LONG)

    def stranger(self, secret="another secret of another run"):
        return Wire(self.connect(), secret)

    def end(self, last=True):
        results = {r: end(p, frames.LONG + 60) for r, p in self.ranks.items()}
        if last:
            nobody_left()
        return results

    def completes(self, *ranks):
        """Starts the other ranks: the run ends as it does alone."""
        for r in ranks or range(1, RANKS):
            self.start(r, "--digest=d")
        results = self.end()
        check(not any(r.status for r in results.values()), "the run fails:", *results.values())
        check(read("d") == read("alone"), "the run computes something else")


def is_listening(pid, port):
    """By the tables of the system: a test that connects would itself be a stranger."""
    mine = set()
    try:
        for d in os.listdir(f"/proc/{pid}/fd"):
            mine.add(os.readlink(f"/proc/{pid}/fd/{d}"))
    except OSError:
        pass
    for line in open("/proc/net/tcp").read().splitlines()[1:]:
        w = line.split()
        if int(w[1].split(":")[1], 16) == port and w[3] == "0A" and f"socket:[{w[9]}]" in mine:
            return True
    return False


def alone():
    text_file()
    job = Job().listen("--digest=alone")
    for r in range(1, RANKS):
        job.start(r, "--digest=alone")
    check(not any(r.status for r in job.end().values()), "a run without strangers fails")


def refused(wire):
    check(wire.is_closed(), "the connection stays open")


def memory(pid):  # bytes
    text = open(f"/proc/{pid}/status").read()
    return int(text.split("VmRSS:")[1].split()[0]) * 1024


# --- strangers


def case_104_bytes():
    """The greeting of an older version, with a wrong plan: it once ended the launch."""
    job = Job().listen("--digest=d")
    wire = job.stranger()
    wire.send(b"heddle.\0" + struct.pack("<iiii", 1, 1, RANKS, 0) + b"another plan".ljust(80, b"\0"))
    refused(wire)
    wire = job.stranger()
    wire.send(b"GET / HTTP/1.1\r\n\r\n".ljust(104, b"x"))
    refused(wire)
    job.completes()


def case_silent_connections():
    job = Job().listen("--digest=d")
    silent = [job.connect() for _ in range(40)]
    half = [job.connect() for _ in range(10)]
    for s in half:
        s.sendall(hello(bytes(32))[:30])
    whole = [job.stranger().meet() for _ in range(10)]
    job.completes()
    for s in silent + half + [w.sock for w in whole]:
        s.close()


def case_slow_connections():
    """A byte now and then: the time of a connection is bounded, not only that between two bytes."""
    job = Job().listen("--digest=d")
    slow, over = [job.connect() for _ in range(20)], threading.Event()

    def drip():
        for b in hello(bytes(32)) + bytes(600):
            for s in slow:
                try:
                    s.send(bytes([b]))
                except OSError:
                    pass
            if over.wait(0.1):
                return

    thread = threading.Thread(target=drip)
    thread.start()
    job.completes()
    over.set()
    thread.join()
    for s in slow:
        s.close()
    job = Job().listen("--digest=d")
    wire = Wire(job.connect(), SECRET)
    wire.send(hello(bytes(32))[:47])
    refused(wire)  # after 10 s
    job.completes()


def case_wrong_key():
    """A stranger takes a rank's place: without the secret, and with none."""
    job = Job().listen("--digest=d")
    for secret in ("another secret of another run", "", SECRET[:-1]):
        for rank in (1, 2, 0, 7, -1):
            wire = job.stranger(secret).meet()
            wire.frame(GREET, greeting(rank, RANKS))
            refused(wire)
    job.completes()


def case_false_rank_0():
    """A stranger listens in rank 0's place; it also sends a rank's own frame back to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.5)
        job = Job(port=str(listener.getsockname()[1]))
        job.start(1, env={"HEDDLE_CONNECT_SECONDS": "1"})
        ways = itertools.cycle(("reflect", "sign", "garbage", "reflect hello", "close"))
        while job.ranks[1].poll() is None:
            way = next(ways)
            try:
                wire = Wire(listener.accept()[0], "another secret of another run", zero=True)
                if way == "reflect hello":
                    wire.send(wire.read(48))
                    wire.send(wire.read(16 + 248 + 32))
                else:
                    wire.meet()
                    sent = wire.read(16 + 248 + 32)
                    wire.send({"reflect": sent, "garbage": os.urandom(200), "close": b""}.get(way) or
                              wire.sealed(ANSWER, b"", 1))
                wire.sock.close()
            except (Closed, socket.timeout):
                pass
    r = job.end()[1]
    check(r.status == 1 and "rank 1: no" in r.err and "rank 0 of this run is not there" in r.err,
          "rank 1 takes part in a run of nobody:", r)


class Relay:
    """Between one rank and rank 0; `change(data, to_zero)` sees all bytes."""

    def __init__(self, to, change):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(frames.LONG)
        self.port, self.to, self.change = self.listener.getsockname()[1], to, change
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            a = self.listener.accept()[0]
        except OSError:
            return
        b = socket.create_connection(("127.0.0.1", int(self.to)))
        both = [threading.Thread(target=self.pump, args=x) for x in ((a, b, True), (b, a, False))]
        for t in both:
            t.start()
        for t in both:
            t.join()
        a.close()
        b.close()

    def pump(self, a, b, to_zero):
        try:
            while data := a.recv(65536):
                b.sendall(self.change(data, to_zero))
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.listener.close()
        self.thread.join()


def case_replay():
    """What rank 1 said is said again, in the same run and in the next one of the same secret."""
    said = []

    def keep(data, to_zero):
        if to_zero:
            said.append(data)
        return data

    job = Job().listen("--digest=d")
    relay = Relay(job.port, keep)
    job.start(1, "--digest=d", port=relay.port)
    until = time.monotonic() + frames.LONG
    while len(b"".join(said)) < 48 + 296 and time.monotonic() < until:
        time.sleep(0.01)
    again = b"".join(said)[: 48 + 296]
    check(len(again) == 48 + 296, "rank 1 does not greet")
    for data in (again, again[:48] + again[48:] * 2):
        wire = job.stranger()
        wire.send(data)
        refused(wire)
    job.completes(2)
    relay.close()
    job = Job().listen("--digest=d")
    wire = job.stranger()
    wire.send(again)
    refused(wire)
    job.completes()


def tampered(change, *words):
    job = Job().listen("--digest=d")
    relay = Relay(job.port, change)
    job.start(1, "--digest=d", port=relay.port)
    job.start(2, "--digest=d")
    results = job.end()
    relay.close()
    err = "".join(r.err for r in results.values())
    check(all(r.status == 1 for r in results.values()), "a run goes on with changed bytes:", *results.values())
    check(any(w in err for w in words), f"the error says none of {words}:", *results.values())


def case_changed_bytes():
    """One bit of what a rank sends, and of what rank 0 sends, once the run has begun; and a frame sent twice."""
    count = {True: 0, False: 0}

    def flip(direction):
        count.update({True: 0, False: 0})

        def change(data, to_zero):
            before, count[to_zero] = count[to_zero], count[to_zero] + len(data)
            at = 48 + 296 + 100 - before  # within the frames of the first agreements
            if to_zero != direction or not 0 <= at < len(data):
                return data
            return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

        return change

    tampered(flip(True), "rank 1 sent something that no rank sends")
    tampered(flip(False), "rank 0 sent something that no rank sends", "rank 1 died")

    seen = []

    def twice(data, to_zero):
        if not to_zero or len(b"".join(seen)) > 48 + 296 + 64:
            return data
        seen.append(data)
        extra = len(b"".join(seen)) - (48 + 296)
        return data + data[-extra:] if extra >= 64 else data

    tampered(twice, "rank 1 sent something that no rank sends")


def case_long_frame():
    """A length of 4 GiB, from a stranger and with the secret; a greeting of another length."""
    job = Job().listen("--digest=d")
    before = memory(job.ranks[0].pid)
    for secret in ("another secret of another run", SECRET):
        wire = job.stranger(secret).meet()
        wire.send(struct.pack("<IIq", GREET, 0xFFFFFFFF, 0))
        refused(wire)
        wire = job.stranger(secret).meet()
        wire.frame(GREET, greeting(1, RANKS) + b"x")
        refused(wire)
        wire = job.stranger(secret).meet()
        wire.frame(GREET, b"")
        refused(wire)
        for kind in (ANSWER, DATA, BEAT, FAIL, 5, 6, 99):
            wire = job.stranger(secret).meet()
            wire.frame(kind, greeting(1, RANKS))
            refused(wire)
    check(memory(job.ranks[0].pid) - before < 16 << 20, "rank 0 grows by", memory(job.ranks[0].pid) - before)
    job.completes()


def case_flood():
    """64 MiB on each of eight connections, then 2,000 connections that end at once, while the ranks come."""
    job = Job().listen("--digest=d")
    before, block = memory(job.ranks[0].pid), bytes(1 << 20)
    for _ in range(8):
        s = job.connect()
        try:
            for _ in range(64):
                s.sendall(block)
        except OSError:
            pass  # closed, as it should be
        else:
            raise Failed("rank 0 reads whatever is sent")
        s.close()
    check(memory(job.ranks[0].pid) - before < 16 << 20, "rank 0 grows by", memory(job.ranks[0].pid) - before)
    over = threading.Event()

    def knock():
        for _ in range(2000):
            if over.is_set():
                return
            try:
                s = job.connect()
                s.send(b"heddle.\0")
                s.close()
            except OSError:
                time.sleep(0.01)

    thread = threading.Thread(target=knock)
    thread.start()
    job.completes()
    over.set()
    thread.join()


def case_two_jobs_on_one_port():
    """The ranks of B find A's rank 0 before A's own do."""
    a = Job().listen("--digest=d")
    b = Job("the secret of another run", port=a.port)
    for r in range(1, RANKS):
        b.start(r, env={"HEDDLE_CONNECT_SECONDS": "1"})
    for r in b.end(last=False).values():
        check(r.status == 1, "a rank of another job takes part:", r)
    a.completes()
    a = Job(more={"TORCHELASTIC_RUN_ID": "11"}).listen()
    b = Job(port=a.port, more={"TORCHELASTIC_RUN_ID": "12"})
    b.start(2)
    a.start(1)
    results = {**a.end(last=False), **b.end()}
    check(all(r.status == 1 for r in results.values()) and
          "rank 2 belongs to another run (TORCHELASTIC_RUN_ID 12, rank 0 to TORCHELASTIC_RUN_ID 11)" in results[0].err,
          "two runs of one secret:", *results.values())


def case_another_user():
    """Without a secret ranks of one host meet at a local socket, whose other end the kernel names.
    Needs root, and another user where this runs."""
    if os.geteuid():
        return
    job = Job(secret="")
    job.port = free_port()
    job.start(0, "--digest=d")
    name = f"\0heddle-0-{job.port}"
    code = ("import os, socket, sys, time\n"
            "try: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            "except OSError: sys.exit(77)\n"
            "for _ in range(6000):\n"
            "  try: s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1].replace('@', '\\0')); break\n"
            "  except OSError: time.sleep(0.1)\n"
            "s.settimeout(600)\n"
            "try: s.sendall(bytes.fromhex(sys.argv[2])); got = s.recv(1)\n"
            "except ConnectionError: got = b''\n"
            "sys.exit(0 if got == b'' else 3)")
    other = subprocess.run([sys.executable, "-c", code, name.replace("\0", "@"), hello(bytes(32)).hex()], timeout=600,
                           cwd="/")
    check(other.returncode in (0, 77), "a process of another user is answered:", other.returncode)
    job.completes()


# --- with the secret


def one_error_without_escapes(results, *words):
    err = "".join(r.err + r.out for r in results.values())
    check(all(ord(c) >= 32 or c == "\n" for c in err) and "\x9b" not in err, "it prints a command of terminals:",
          repr(err))
    for w in words:
        check(w in err, f"nothing says '{w}':", repr(err))


def case_escapes_in_names():
    job = Job().listen()
    wire = job.stranger(SECRET).meet()
    wire.frame(GREET, greeting(1, RANKS, run=b"\x1b[2J\x1b]0;mine\x07\xc2\x9b2J"))
    results = job.end()
    check(results[0].status == 1, "a rank of another run is taken in:", results[0])
    one_error_without_escapes(results, "rank 1 belongs to another run (?[2J?]0;mine???2J, rank 0")
    job = Job().listen()
    wire = job.stranger(SECRET).meet()
    wire.frame(GREET, greeting(1, RANKS, plan=b"\x1b[31m" * 16))  # 80 bytes without an end
    results = job.end()
    one_error_without_escapes(results, "rank 1 runs another program: plan ?[31m?[31m")
    job = Job().listen()
    wires = [job.stranger(SECRET).meet() for _ in range(2)]
    for rank, w in enumerate(wires):
        w.frame(GREET, greeting(rank + 1, RANKS))
    for w in wires:
        check(w.read_frame()[0] == ANSWER, "no answer")
    wires[0].frame(BEAT, b"\x1b[2Jstep", 7)
    wires[0].frame(FAIL, b"\x1b]0;mine\x07 out of paper\r\x1b[1A", 0)
    results = job.end()
    one_error_without_escapes(results, "rank 1: ?]0;mine? out of paper??[1A")


def hostile_zero(change, *options):
    zero = Zero(SECRET, RANKS, change)
    job = Job(port=str(zero.port))
    for r in range(1, RANKS):
        job.start(r, *options)
    zero.meet()
    zero.serve()
    return job.end()


def case_folders_elsewhere():
    """Rank 0 names the folder in which the others write their shards."""
    for folder in (b"../x", b"/tmp/heddle-stranger", b"step-1/../../x", b"", b"step-" + b"y" * 59, b"step-\x1b[2J"):
        results = hostile_zero(lambda n, part: folder.ljust(64, b"\0") if len(part) == 64 else part, "--save=c")
        check(all(r.status for r in results.values()), "ranks save where a stranger says:", folder, *results.values())
        check(not os.path.exists("x") and not os.path.exists("/tmp/heddle-stranger") and
              not [f for _, _, names in os.walk(".") for f in names if f.startswith("rank-")],
              "shards are written:", folder, list(os.walk(".")))
        one_error_without_escapes(results)


def case_gathers_of_other_sizes():
    for size in (0, 1, 3, 200000):
        results = hostile_zero(lambda n, part: bytes(size) if n == 2 else part)
        check(all(r.status == 1 for r in results.values()), "a run without sense goes on:", *results.values())


def case_flood_of_a_rank():
    """A rank with the secret sends 128 MiB, more than is read: rank 0 keeps some MiB of it at most."""
    job = Job().listen()
    wires = [job.stranger(SECRET).meet() for _ in range(2)]
    for rank, w in enumerate(wires):
        w.frame(GREET, greeting(rank + 1, RANKS))
    for w in wires:
        w.read_frame()
    before = most = memory(job.ranks[0].pid)
    wires[1].sock.settimeout(5)  # a rank 0 that waits may not read for ever
    try:
        for _ in range(2048):
            wires[1].frame(DATA, bytes(65536))
            most = max(most, memory(job.ranks[0].pid))
    except (Closed, OSError, ValueError, IndexError):
        pass  # it has ended, or does not read any more
    check(most - before < 64 << 20, "rank 0 grows by", most - before)
    for w in wires:
        w.sock.close()
    check(job.end()[0].status == 1, "rank 0 ends well")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(run_cases(globals(), sys.argv[2:], scratch, before=alone, failures=(Closed,)))
