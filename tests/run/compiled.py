"""Compiled programs, small enough to run in milliseconds: building and running them, and the files that they read and
write. A test that writes to a full device writes through a link, so that a program that replaces its target replaces
the link.
"""
import array
import contextlib
import json
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile

from cases import STALL, Failed, check, run_cases, wait_until

EXAMPLE = "examples/tiny/tiny.hd"
SMALL = ["layers=1", "dim=32", "heads=2", "seq=16", "train.batch=2"]
SEQ = 16
STEPS = 6


class Result:
    def __init__(self, args, status, out, err):
        self.args, self.status, self.out, self.err = args, status, out, err

    def __str__(self):
        return f"{' '.join(self.args)}\nexit {self.status}\n{self.out[-2000:]}{self.err[-2000:]}"


class Programs:
    """Compiled programs by their settings, and a folder for the files of the case at hand."""

    def __init__(self, root, compiler, folder):
        self.root, self.compiler, self.folder, self.built = root, compiler, folder, {}

    def get(self, *settings):
        if settings not in self.built:
            path = os.path.join(self.folder, f"program{len(self.built)}")
            args = [self.compiler, os.path.join(self.root, EXAMPLE), "-o", path]
            for s in SMALL + list(settings):
                args += ["--set", s]
            r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            check(r.returncode == 0, "cannot compile:", " ".join(args), r.stdout.decode(errors="replace"))
            self.built[settings] = path
        return self.built[settings]


programs = None


def run(*args, settings=(), env=None, limit=None, wait=STALL, stdout=subprocess.PIPE):
    def prepare():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [programs.get(*settings)] + [str(a) for a in args]
    r = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                       env=dict(os.environ, **(env or {})),
                       preexec_fn=prepare, timeout=wait)
    return Result(command, r.returncode, (r.stdout or b"").decode(errors="replace"), r.stderr.decode(errors="replace"))


def good(*args, **more):
    r = run(*args, **more)
    check(r.status == 0, "expected success:", r)
    return r


def bad(status, *words, args, **more):
    """Fails with this status and one error line that holds every word."""
    r = run(*args, **more)
    check(r.status == status, f"expected exit {status}:", r)
    errors = [l for l in r.err.splitlines() if l.startswith("error: ")]
    check(len(errors) == 1, "expected one line 'error: ...':", r)
    for w in words:
        check(w in errors[0], f"the error does not say '{w}':", r)
    return r


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    return path


def words_of(tokens):
    return array.array("H", tokens).tobytes() if sys.byteorder == "little" else struct.pack(f"<{len(tokens)}H", *tokens)


def lines_of(log):
    """The lines of a log that are of steps, as they stand, and not those with which runs begin."""
    return [l for l in map(json.loads, read(log).decode().splitlines()) if "step" in l]


def text_file(name="data.txt", size=3000):
    return write(name, bytes((i * 7 + i // 11) % 251 for i in range(size)))


def digest_of(path):
    """(step lines, parameter lines) of a digest, whose exact form is checked on the way."""
    steps, params = [], []
    for line in read(path).decode().splitlines():
        if re.fullmatch(r"\d+ -?0x[01]\.?[0-9a-f]*p[+-]\d+ 0x[01]\.?[0-9a-f]*p[+-]\d+", line):
            check(not params, path, "has a step after the parameters")
            steps.append(line)
        else:
            check(re.fullmatch(r"param [\w.]+ [0-9a-f]{32}", line), path, f"has the line '{line}'")
            params.append(line)
    return steps, params


def train_digest(name, *args, steps=STEPS, **more):
    good(f"--data={text_file()}", f"--steps={steps}", f"--digest={name}", *args, **more)
    return digest_of(name)


def tensors_of(path):
    """An independent reader of safetensors: {name: (dtype, shape, bytes)} and the metadata."""
    data = read(path)
    (n,) = struct.unpack_from("<Q", data)
    check(n % 8 == 0 and data[8:9] == b"{", path, "has a header that does not start with { or is not aligned")
    names = json.loads(data[8 : 8 + n])
    meta = names.pop("__metadata__", {})
    body, at, tensors = data[8 + n :], 0, {}
    for name, t in sorted(names.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = t["data_offsets"]
        count = 1
        for d in t["shape"]:
            count *= d
        width = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}[t["dtype"]]
        check(begin == at and end - begin == count * width, path, name, "has a gap before it or a wrong size")
        tensors[name] = (t["dtype"], t["shape"], body[begin:end])
        at = end
    check(at == len(body), path, f"holds {len(body)} bytes of data, its header tells of {at}")
    return tensors, meta


def write_tensors(path, tensors, meta=None):
    names, body = {"__metadata__": meta} if meta else {}, b""
    for name, (dtype, shape, data) in tensors.items():
        names[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(names).encode()
    head += b" " * (-len(head) % 8)
    return write(path, struct.pack("<Q", len(head)) + head + body)


def full_device(name="full"):
    os.symlink("/dev/full", name)
    return name


def make_checkpoint(folder="c", steps=3):
    good(f"--data={text_file()}", f"--steps={steps}", f"--save={folder}", "--overwrite")
    return read(f"{folder}/checkpoint.safetensors")


def lines_in(path):
    return read(path).count(b"\n") if os.path.exists(path) else 0


def saved(folder):
    """Waits for a checkpoint there, and until `interrupt`'s run has taken another step after it."""
    def wait():
        wait_until(lambda: os.path.exists(f"{folder}/checkpoint.safetensors"), "a checkpoint in", folder)
        steps = lines_in("signal.jsonl")
        wait_until(lambda: lines_in("signal.jsonl") > steps + 1, "steps after a checkpoint")
    return wait


def interrupt(what, *args, settings=()):
    """Starts a long run and, after some steps, sends the signal or the list of signals, or calls what is in the list;
    its result."""
    command = [programs.get(*settings), "--data=data.txt", "--steps=2000000000", "--log=signal.jsonl", *args]
    with contextlib.suppress(FileNotFoundError):
        os.remove("signal.jsonl")

    def prepare():
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(s, signal.SIG_DFL)

    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=prepare)
    try:
        wait_until(lambda: lines_in("signal.jsonl") > 3, "three steps of", *command, process=p)
        for action in what if isinstance(what, list) else [what]:
            action() if callable(action) else p.send_signal(action)
        err = p.communicate(timeout=STALL)[1].decode(errors="replace")
    except subprocess.TimeoutExpired:
        raise Failed(f"{what} does not end the run")
    finally:
        p.kill()
    return Result(command, p.returncode, "", err)


def main(functions):
    """Arguments: ROOT HEDDLEC [CASE...]"""
    global programs
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), folder)
        return run_cases(functions, sys.argv[3:], folder)
