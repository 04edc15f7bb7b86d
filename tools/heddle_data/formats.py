"""Files of tokens. A type and a format are a row each in TYPES and FORMATS; all numbers are little-endian.

    npy       a numpy array of one dimension
    bin       numbers and nothing else; --format says which
    llmc      1024 bytes of header (llm.c): a magic number, a version and a count, then u16 or u32
    megatron  PREFIX.bin, numbers alone, and PREFIX.idx: "MMIDIDX\\0\\0", u64 version 1, u8 type, u64 sequences n,
              u64 documents + 1, i32 lengths[n], i64 places[n] in bytes, i64 first[documents + 1] in sequences
"""
import array
import ast
import os
import struct
import sys

from . import Refused, head_of

BLOCK = 1 << 20  # elements that are read at a time
INDEX = b"MMIDIDX\0\0"
INDEX_HEADER = len(INDEX) + 8 + 1 + 8 + 8


class Type:
    def __init__(self, name, code, descr, megatron=None, llmc=None):
        self.name, self.code, self.descr, self.megatron, self.llmc = name, code, descr, megatron, llmc
        self.width = array.array(code).itemsize
        bits = 8 * self.width
        self.least, self.most = (-1 << bits - 1, (1 << bits - 1) - 1) if code.islower() else (0, (1 << bits) - 1)


TYPES = {t.name: t for t in (  # llmc: the magic number and the version
    Type("u8", "B", "|u1", 1), Type("u16", "H", "<u2", 8, (20240520, 1)), Type("i16", "h", "<i2", 3),
    Type("u32", "I", "<u4", None, (20240801, 7)), Type("i32", "i", "<i4", 4), Type("i64", "q", "<i8", 5),
    Type("u64", "Q", "<u8"))}


def swapped(numbers):
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def bytes_of(numbers):
    return swapped(array.array(numbers.typecode, numbers)).tobytes() if sys.byteorder == "big" else numbers.tobytes()


# --- writing

def npy_header(kind, count):
    head = f"{{'descr': '{kind.descr}', 'fortran_order': False, 'shape': ({count},), }}".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", 118) + head.ljust(117) + b"\n"


def llmc_header(kind, count):
    if count > 0x7fffffff:
        raise Refused(f"a file with llm.c's header holds at most {0x7fffffff} tokens; write smaller ones: --shard")
    return struct.pack("<3i", *kind.llmc, count).ljust(1024, b"\0")


def megatron_index(kind, lengths):
    """The index of documents, each of them one sequence. lengths: array("q")"""
    n, place, places = len(lengths), 0, array.array("q")
    for length in lengths:
        places.append(place)
        place += kind.width * length
    if n and max(lengths) > 0x7fffffff:
        raise Refused(f"a document of {max(lengths)} tokens: Megatron's index counts at most {0x7fffffff} of each")
    head = INDEX + struct.pack("<QBQQ", 1, kind.megatron, n, n + 1)
    return head + b"".join(map(bytes_of, (array.array("i", lengths), places, array.array("q", range(n + 1)))))


class Format:
    def __init__(self, suffix, header, types, index=None):
        self.suffix, self.header, self.index = suffix, header, index  # header: of one length for every count
        self.types = [t.name for t in TYPES.values() if types(t)]


FORMATS = {
    "npy": Format(".npy", npy_header, lambda t: True),
    "bin": Format(".bin", lambda kind, count: b"", lambda t: True),
    "llmc": Format(".bin", llmc_header, lambda t: t.llmc),
    "megatron": Format(".bin", lambda kind, count: b"", lambda t: t.megatron, megatron_index),
}


# --- reading

def index_beside(path):
    """The path of a Megatron index beside PREFIX.bin; None: there is none."""
    index = path[:-3] + "idx"
    return index if path.endswith(".bin") and os.path.exists(index) else None


def is_tokens(path):
    """Whether a file holds tokens by its content or its name."""
    head = head_of(path, 8)
    return head.startswith(b"\x93NUMPY") or path.endswith((".bin", ".npy")) or \
        any(t.llmc and head.startswith(struct.pack("<i", t.llmc[0])) for t in TYPES.values())


class Tokens:
    """A file of tokens: its type, where they begin, how many they are, and how long its documents are where an index
    says so."""

    def __init__(self, path, asked=None):
        """asked: the type of numbers without a header"""
        self.path, self.lengths = path, None
        self.size, head = os.path.getsize(path), head_of(path, 1 << 16)
        magic = struct.unpack_from("<i", head)[0] if len(head) >= 4 else 0
        index = index_beside(path)
        if index:
            self.format, self.head = "megatron", 0
            self.read_index(index)
        elif head.startswith(b"\x93NUMPY"):
            self.format = "npy"
            self.read_npy(head)
        elif any(t.llmc and t.llmc[0] == magic for t in TYPES.values()):
            self.format, self.head = "llmc", 1024
            self.read_llmc(head, magic)
        else:
            self.format, self.head = "bin", 0
            if asked is None:
                raise Refused(f"{path} has no header that says what it holds; say --format=u16, or u8, i16, u32, i32, "
                              f"i64 or u64")
            self.type = TYPES[asked]
            if self.size % self.type.width:
                raise Refused(f"{path}: {self.size} bytes are not a whole number of {asked} tokens")
            self.count = self.size // self.type.width
        if asked is not None and asked != self.type.name:
            raise Refused(f"{path} holds {self.type.name} by its header, and --format={asked} says another type; leave "
                          f"--format out")
        held = (self.size - self.head) // self.type.width
        if self.count > held:
            raise Refused(f"{path}: its header says {self.count} tokens but the file holds {max(held, 0)}: it is cut "
                          f"short")

    def read_npy(self, head):
        wide = 4 if len(head) > 6 and head[6] > 1 else 2
        try:
            (length,) = struct.unpack_from("<I" if wide == 4 else "<H", head, 8)
            self.head = 8 + wide + length
            fields = ast.literal_eval(head[8 + wide:self.head].decode("latin-1").strip())
            descr, shape = fields["descr"], tuple(fields["shape"])
        except (struct.error, ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
            raise Refused(f"{self.path} begins as a numpy array does, and its header is cut short or not one of an "
                          f"array of numbers")
        found = [t for t in TYPES.values() if t.descr == descr]
        if not found or len(shape) != 1 or type(shape[0]) is not int or shape[0] < 0:
            raise Refused(f"{self.path}: a numpy array of {descr!r} and shape {shape}; tokens are integers in one "
                          f"dimension: np.save('tokens.npy', array.reshape(-1).astype(np.uint32))")
        self.type, self.count = found[0], shape[0]

    def read_llmc(self, head, magic):
        self.type = next(t for t in TYPES.values() if t.llmc and t.llmc[0] == magic)
        if len(head) < 1024:
            raise Refused(f"{self.path} begins as a header of llm.c does and is cut short")
        _, version, self.count = struct.unpack_from("<2iI", head)
        if version != self.type.llmc[1]:
            raise Refused(f"{self.path}: a header of llm.c of version {version}; version {self.type.llmc[1]} is read")

    def read_index(self, index):
        data = head_of(index)
        if len(data) < INDEX_HEADER or not data.startswith(INDEX):
            raise Refused(f"{index} is no index of a Megatron data set, or it is cut short")
        version, code, n, firsts = struct.unpack_from("<QBQQ", data, len(INDEX))
        found = [t for t in TYPES.values() if t.megatron == code]
        if version != 1 or not found:
            raise Refused(f"{index}: version {version} and type {code}; version 1 with u8, i16, i32, i64 or u16 is "
                          f"read")
        if not firsts or INDEX_HEADER + 12 * n + 8 * firsts > len(data):
            raise Refused(f"{index}: {n} sequences and {max(firsts - 1, 0)} documents in {len(data)} bytes: it is cut "
                          f"short")
        self.type = found[0]
        lengths, places, first = (swapped(array.array(code, data[at:at + size])) for code, at, size in (
            ("i", INDEX_HEADER, 4 * n), ("q", INDEX_HEADER + 4 * n, 8 * n), ("q", INDEX_HEADER + 12 * n, 8 * firsts)))
        starts = [0]
        for length in lengths:
            starts.append(starts[-1] + length)
        good = all(length >= 0 for length in lengths) and first[0] == 0 and first[-1] == n and \
            all(a <= b for a, b in zip(first, first[1:])) and \
            all(place == start * self.type.width for place, start in zip(places, starts))
        if not good:
            raise Refused(f"{index}: its sequences do not follow each other in {self.path}; only data sets without "
                          f"gaps are read")
        self.count = starts[-1]
        if self.count * self.type.width != self.size:
            raise Refused(f"{index} says that {self.path} has {self.count * self.type.width} bytes, and it has "
                          f"{self.size}: they do not belong together, or one is cut short")
        self.lengths = [starts[b] - starts[a] for a, b in zip(first, first[1:])]

    def blocks(self, count=None):
        """The tokens from the first on, as arrays of at most BLOCK."""
        left = self.count if count is None else min(count, self.count)
        with open(self.path, "rb") as f:
            f.seek(self.head)
            while left:
                data = f.read(min(left, BLOCK) * self.type.width)
                data = data[:len(data) // self.type.width * self.type.width]
                if not data:
                    raise Refused(f"{self.path} became shorter while it was read")
                block = swapped(array.array(self.type.code, data))
                left -= len(block)
                yield block
