"""The protocol between ranks (runtime/world/rendezvous.h, frames.h), spoken by a test: as a stranger, or with the run's
secret as a rank or as rank 0 itself.
"""
import hashlib
import os
import socket
import struct
import time

MAGIC, PROTOCOL = b"heddle.\0", 2
GREET, ANSWER, DATA, BEAT, FAIL, LEAVE = range(6)
GATHER, COLLECT, SHARE = 0x67617468, 0x636f6c6c, 0x73686172
LONG = 600  # seconds: only what hangs takes so long


def key_of(secret):
    return hashlib.blake2b(b"heddle: key of a run\0" + secret.encode(), digest_size=32).digest()


def hello(nonce, protocol=PROTOCOL):
    return MAGIC + struct.pack("<ii", protocol, 0) + nonce


def greeting(rank, ranks, plan=b"1", run=b""):
    return struct.pack("<ii80s160s", rank, ranks, plan, run)


class Closed(Exception):
    """The other end has closed the connection."""


class Wire:
    """One connection. `frame` and `read_frame` work once both have said hello."""

    def __init__(self, sock, secret, zero=False):
        self.sock, self.secret, self.zero = sock, secret, zero
        self.nonce, self.sent, self.came = os.urandom(32), 0, 0
        sock.settimeout(LONG)

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError as e:
            raise Closed() from e

    def read(self, n):
        data = b""
        while len(data) < n:
            try:
                part = self.sock.recv(n - len(data))
            except ConnectionError as e:
                raise Closed() from e
            if not part:
                raise Closed()
            data += part
        return data

    def meet(self):
        """Exchanges hellos and derives the keys."""
        if not self.zero:
            self.send(hello(self.nonce))
        theirs = self.read(48)
        assert theirs[:8] == MAGIC, theirs
        if self.zero:
            self.send(hello(self.nonce))
        rank, zero = (theirs[16:], self.nonce) if self.zero else (self.nonce, theirs[16:])
        to, of = (hashlib.blake2b(label + b"\0" + rank + zero, key=key_of(self.secret), digest_size=32).digest()
                  for label in (b"heddle: to rank 0", b"heddle: from rank 0"))
        self.out_key, self.in_key = (of, to) if self.zero else (to, of)
        return self

    def sealed(self, kind, body=b"", step=0):
        head = struct.pack("<IIq", kind, len(body), step)
        mac = hashlib.blake2b(struct.pack("<Q", self.sent) + head + body, key=self.out_key, digest_size=32).digest()
        self.sent += 1
        return head + body + mac

    def frame(self, kind, body=b"", step=0):
        self.send(self.sealed(kind, body, step))

    def read_frame(self):
        head = self.read(16)
        kind, size, step = struct.unpack("<IIq", head)
        body, mac = self.read(size), self.read(32)
        own = hashlib.blake2b(struct.pack("<Q", self.came) + head + body, key=self.in_key, digest_size=32).digest()
        assert own == mac, "a frame of the program has a wrong proof"
        self.came += 1
        return kind, body, step

    def is_closed(self):
        """Waits for the other end to close; what it still sends is dropped."""
        try:
            while True:
                self.read(1)
        except Closed:
            return True
        except socket.timeout:
            return False


class Bytes:
    """What a rank sends in DATA frames, as one stream."""

    def __init__(self, wire):
        self.wire, self.have = wire, b""

    def take(self, n):
        while len(self.have) < n:
            kind, body, _ = self.wire.read_frame()
            if kind in (FAIL, LEAVE):
                raise Closed()
            if kind == DATA:
                self.have += body
        data, self.have = self.have[:n], self.have[n:]
        return data


class Zero:
    """A rank 0 that answers all that the ranks do together, the n-th answer being what `change(n, part)` makes of its
    own part: of a gather a copy of rank 1's, of what it shares zeros."""

    def __init__(self, secret, ranks, change):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.listener.settimeout(LONG)
        self.secret, self.ranks, self.change = secret, ranks, change

    def meet(self):
        self.wire = {}
        while len(self.wire) < self.ranks - 1:
            wire = Wire(self.listener.accept()[0], self.secret, zero=True).meet()
            kind, body, _ = wire.read_frame()
            assert kind == GREET
            self.wire[struct.unpack_from("<i", body)[0]] = wire
        self.listener.close()
        for wire in self.wire.values():
            wire.frame(ANSWER, b"", 1)

    def serve(self):
        """Until the ranks leave or give up."""
        stream = {r: Bytes(w) for r, w in self.wire.items()}
        n, until = 0, time.monotonic() + LONG
        try:
            while time.monotonic() < until:
                parts = {}
                for r, s in stream.items():
                    tag, _, size = struct.unpack("<IIQ", s.take(16))
                    assert tag in (GATHER, COLLECT, SHARE)
                    parts[r] = bytes(size) if tag == SHARE else s.take(size)
                if tag == COLLECT:
                    continue
                mine = self.change(n, parts[1])
                whole = mine + (b"".join(parts[r] for r in sorted(parts)) if tag == GATHER else b"")
                for w in self.wire.values():
                    w.frame(DATA, struct.pack("<IIQ", tag, 0, len(mine)))
                    for at in range(0, len(whole), 65536):
                        w.frame(DATA, whole[at : at + 65536])
                n += 1
        except Closed:
            pass
        for w in self.wire.values():
            w.sock.close()
