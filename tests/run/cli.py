#!/usr/bin/env python3
"""The command line of compiled programs: options, logs, digests, checkpoints, exports, failures and
signals, on a model small enough to run in milliseconds. Usage: cli.py ROOT HEDDLEC [CASE...]

Each function case_* is a case; it fails by an exception whose text says what was expected. A case that writes to a full
device writes through a link, so that a program that replaces its target replaces the link.
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
import time

EXAMPLE = "examples/tiny/tiny.hd"
SMALL = ["layers=1", "dim=32", "heads=2", "seq=16", "train.batch=2"]
SEQ = 16
STEPS = 6


class Failed(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Failed(" ".join(str(w) for w in what))


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


def run(*args, settings=(), env=None, limit=None, wait=60, stdout=subprocess.PIPE):
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


# --- usage


def case_help():
    r = good("--help")
    for option in ("data", "val", "steps", "ranks", "seed", "log", "digest", "save", "save-every", "resume", "init",
                   "format", "export", "no-graph", "check", "profile", "report", "val-every", "val-batches",
                   "log-every"):
        check(re.search(rf"^  --{option}[ =\[]", r.out, re.M), f"--help does not tell of --{option}:", r)
    check(not r.err, "--help writes to stderr:", r)
    check(good("-h").out == r.out, "-h prints something else than --help")
    v = good("--version").out
    check(re.fullmatch(r"Tiny, target host, Heddle \d+\.\d+\.\d+( \([0-9a-f]{12}\))?\n", v), "--version prints:", v)


def case_bad_usage():
    data = f"--data={text_file()}"
    bad(2, "--bogus", "--help", args=["--bogus"])
    bad(2, "-x", args=["-x"])
    bad(2, "stray", args=[data, "--steps=1", "stray"])
    bad(2, "--data", "needs a value", args=["--data"])
    bad(2, "--data", args=["--data=", "--steps=1"])
    bad(2, "--check=3", args=["--check=3"])
    bad(2, "--steps", "missing", args=[data])
    bad(2, "--data", "missing", args=["--steps=1"])
    for text in ("-1", "abc", "3x", "1.5", "", "99999999999999999999", "9223372036854775807", "2147483648"):
        bad(2, f"--steps={text}:", "2147483647", args=[data, f"--steps={text}"])
    bad(2, "--seed=-5:", args=[data, "--steps=1", "--seed=-5"])
    bad(2, "--val-batches=0:", args=[data, "--steps=1", "--val-batches=0"])
    bad(2, "--save-every", "--save", args=[data, "--steps=1", "--save-every=1"])
    bad(2, "--val-every", "--val", args=[data, "--steps=1", "--val-every=1"])
    bad(2, "--init", "--resume", args=[data, "--steps=1", "--init=a", "--resume=b"])
    r = run()
    check(r.status == 2 and "usage:" in r.err, "without arguments the usage is expected:", r)


def case_ranks():
    good(f"--data={text_file()}", "--steps=1", "--ranks=1")
    bad(2, "--ranks=2", "1 rank ", args=[f"--data={text_file()}", "--steps=1", "--ranks=2"])


# --- what a run tells


def case_log():
    text_file()
    r = good("--data=data.txt", "--val=data.txt", "--steps=4", "--val-every=2", "--log=log.jsonl")
    check("\r" not in r.err and "\x1b" not in r.err, "a terminal's line without a terminal:", repr(r.err))
    check(re.search(r"^step 4/4  loss \d", r.err, re.M), "no line for step 4:", r)
    check(len(re.findall(r"validation loss \d", r.err)) == 2, "expected two validations:", r)
    lines = [json.loads(l) for l in read("log.jsonl").decode().splitlines()]
    steps = [l for l in lines if "loss" in l]
    vals = [l for l in lines if "val_loss" in l]
    check([l["step"] for l in steps] == [1, 2, 3, 4], "steps in the log:", lines)
    check([l["step"] for l in vals] == [2, 4], "validations in the log:", lines)
    for l in steps:
        check({"step", "loss", "grad_norm", "seconds", "tokens", "tokens_per_second"} <= set(l), "a field is missing:",
              l)
        check(4 < l["loss"] < 7 and l["grad_norm"] > 0 and l["seconds"] > 0, "odd values:", l)
        check(l["tokens"] == l["step"] * 2 * SEQ, "tokens so far:", l)
        check(abs(l["tokens_per_second"] * l["seconds"] / (2 * SEQ) - 1) < 0.1,
              "tokens a second do not match the seconds:", l)
        check(l["ranks"] == 1, "ranks:", l)
    check(all(4 < l["val_loss"] < 7 for l in vals), "odd validation:", vals)


def case_log_goes_on():
    text_file()
    good("--data=data.txt", "--steps=2", "--log=log.jsonl", "--save=c")
    good("--data=data.txt", "--steps=4", "--log=log.jsonl", "--resume=c")
    steps = [json.loads(l)["step"] for l in read("log.jsonl").decode().splitlines()]
    check(steps == [1, 2, 3, 4], "the log of a run and its continuation holds", steps)


def case_log_every():
    r = good(f"--data={text_file()}", "--steps=10", "--log-every=4")
    shown = re.findall(r"^step (\d+)/10 ", r.err, re.M)
    check(shown == ["1", "4", "8", "10"], "--log-every=4 shows the steps", shown)


def case_report():
    r = good("--report")
    for part in ("device memory ", "verified", "share  class", "activations", "peak in @micro_only during op",
                 "kernels"):
        check(part in r.out, f"--report says nothing of {part!r}:", r.out)
    bad(2, "--report=xml", "json", args=["--report=xml"])
    r = good("--report=json")
    report = json.loads(r.out)
    for key in ("peak_bytes", "lower_bound_bytes", "persistent_bytes", "transient_bytes", "host_pinned_bytes",
                "classes", "collectives", "gathered_units_max", "live_grad_buffers_max", "ranks", "mesh", "strategy",
                "graphs", "kernels", "flops_per_step", "verified"):
        check(key in report, f"--report=json has no {key}:", sorted(report))
    check(report["verified"] is True, "the report says that the plan is not verified")
    with open(full_device(), "wb") as full:
        r = run("--report", stdout=full)
    check(r.status == 1 and "error: cannot write the report" in r.err, "a report that cannot be written:", r)


def case_profile():
    text_file()
    for more in ([], ["--val=data.txt"]):
        good("--data=data.txt", "--steps=3", "--profile=p.json", *more)
        events = json.loads(read("p.json"))["traceEvents"]
        streams = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        spans = [e for e in events if e["ph"] == "X"]
        source = subprocess.run([programs.compiler, os.path.join(programs.root, "examples/tiny/tiny.hd"), "--emit=plan"]
                                + [a for s in SMALL for a in ("--set", s)],
                                stdout=subprocess.PIPE, check=True).stdout.decode()
        segments = re.search(r"^step @[\w.]+ \{.*kind = train, segments = \[(.*?)\]", source, re.M).group(1)
        names, actions = set(re.findall(r"@(\w+)", segments)), 0
        for name, body in re.findall(r"^func @(\w+)\(.*?\{\n(.*?)^\}", source, re.M | re.S):
            if name in names:
                actions += sum(not re.search("= view|return|capture", l) for l in re.findall(r"^ +\[.*", body, re.M))
        check(spans and {e["cat"] for e in spans} == names, "functions in the profile:",
              {e["cat"] for e in spans})
        for e in spans:
            check(e["name"] and "path" in e["args"] and streams.get(e["tid"]) == e["args"]["stream"],
                  "an event without name, path or stream:", e)
            check(e["dur"] >= 0 and e["ts"] >= 0, "an event's time:", e)
        check(any(e["args"]["path"] == "blocks.0.attn" for e in spans), "no event names blocks.0.attn")
        check(len(spans) <= actions, f"{len(spans)} events for {actions} actions of a step")
    good("--steps=0", "--profile=none.json")
    json.loads(read("none.json"))


# --- digests: what may and may not change a bit


def case_digest():
    steps, params = train_digest("a")
    check([s.split()[0] for s in steps] == [str(i + 1) for i in range(STEPS)], "steps of the digest:", steps)
    check(params[0].startswith("param wte.weight ") and len(params) == 16, "parameters of the digest:", params)
    same = {"again": {}, "one thread": {"env": {"OMP_NUM_THREADS": "1"}},
            "two threads": {"env": {"OMP_NUM_THREADS": "2"}}}
    for name, more in same.items():
        check(train_digest("b", **more) == (steps, params), f"another digest: {name}")
    for option in ("--no-graph", "--val=data.txt --val-every=2", "--check", "--profile=p.json",
                   "--save=c --save-every=2"):
        check(train_digest("b", *option.split()) == (steps, params), f"another digest with {option}")


def case_seed():
    first = train_digest("a", "--seed=1")
    check(train_digest("b", "--seed=1") == first, "one seed, two results")
    check(train_digest("b", "--seed=2") != first, "two seeds, one result")
    check(train_digest("b", "--seed=9223372036854775807")[0], "the largest seed")


def case_accumulate():
    whole = train_digest("a", settings=("train.batch=4", "train.accumulate=1"))[0]
    parts = train_digest("b", settings=("train.batch=2", "train.accumulate=2"))[0]
    three = train_digest("c", settings=("train.batch=1", "train.accumulate=4"))[0]
    for other in (parts, three):
        for a, b in zip(whole, other):
            x, y = [[float.fromhex(v) for v in line.split()[1:]] for line in (a, b)]
            check(abs(x[0] - y[0]) < 1e-5 and abs(x[1] - y[1]) < 1e-4, "accumulation changes the step:", a, "|", b)


# --- checkpoints


def case_resume():
    steps, params = train_digest("whole", steps=7)
    for k in (1, 3, 6):
        train_digest("first", f"--save=c{k}", steps=k)
        more, end = train_digest("second", f"--resume=c{k}", steps=7)
        check(more == steps[k:], f"{k} steps and a resumption differ from 7 steps:", more, steps[k:])
        check(end == params, f"{k} steps and a resumption end in other parameters")
    more, end = train_digest("reached", "--resume=c6", "--save=copy", steps=6)
    check(not more and end == train_digest("six", steps=6)[1], "resuming at the target changes something")
    check(read("copy/checkpoint.safetensors") == read("c6/checkpoint.safetensors"), "a checkpoint saved again differs")
    r = good("--data=data.txt", "--steps=2", "--resume=c6")
    check("already at step 6" in r.err, "nothing says that the checkpoint is further:", r)
    check(sorted(os.listdir("c6")) == ["checkpoint.safetensors"], "files in the checkpoint's folder:", os.listdir("c6"))
    bad(1, "--seed=5", args=["--data=data.txt", "--steps=7", "--resume=c3", "--seed=5"])
    write("other.txt", read("data.txt") + b"more")
    r = good("--data=other.txt", "--steps=7", "--resume=c3")
    check("other data" in r.err, "nothing says that the data is another:", r)


def case_resume_accumulated():
    settings = ("train.batch=1", "train.accumulate=4")
    steps, params = train_digest("whole", settings=settings, steps=5)
    train_digest("first", "--save=c", settings=settings, steps=2)
    check(train_digest("second", "--resume=c", settings=settings, steps=5) == (steps[2:], params),
          "accumulated steps do not resume exactly")


def case_save_every():
    text_file()
    r = good("--data=data.txt", "--steps=5", "--save=c", "--save-every=2")
    check(re.findall(r"^step (\d+)  saved", r.err, re.M) == ["2", "4", "5"], "saved at:", r)
    _, meta = tensors_of("c/checkpoint.safetensors")
    check(meta["step"] == "5" and meta["model"] == "Tiny", "metadata of the checkpoint:", meta)


def make_checkpoint(folder="c", steps=3):
    good(f"--data={text_file()}", f"--steps={steps}", f"--save={folder}")
    return read(f"{folder}/checkpoint.safetensors")


def case_resume_refused():
    data = make_checkpoint()
    os.mkdir("bad")
    path = "bad/checkpoint.safetensors"
    args = ["--data=data.txt", "--steps=5", "--resume=bad"]
    bad(1, "nowhere/checkpoint", "No such file", args=["--data=data.txt", "--steps=5", "--resume=nowhere"])
    (n,) = struct.unpack_from("<Q", data)
    for size in (0, 3, 8, 9, 8 + n // 2, 8 + n - 1, 8 + n, 8 + n + 100, len(data) // 2, len(data) - 17, len(data) - 16,
                 len(data) - 1):
        write(path, data[:size])
        bad(1, path, args=args)
    write(path, data + b"x")
    bad(1, path, "damaged", args=args)
    for at in list(range(8)) + list(range(8, 8 + n, 97)) + [8 + n, 8 + n + 1234, len(data) - 20, len(data) - 16,
                                                            len(data) - 1]:
        for bit in (1, 128):
            flipped = bytearray(data)
            flipped[at] ^= bit
            write(path, bytes(flipped))
            bad(1, path, args=args)
    for key in ("step", "seed"):  # a number in the header, which no parser would miss
        at = data.index(f'"{key}":"'.encode()) + len(key) + 4
        write(path, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        bad(1, path, "damaged", args=args)
    write(path, bytes((i * i * 31 + i // 7) % 256 for i in range(5000)))
    bad(1, path, args=args)
    good("--steps=0", f"--export={path}")
    bad(1, path, "not a checkpoint", "--init", args=args)
    os.remove(path)
    os.mkdir(path)
    bad(1, path, args=args)
    good("--data=data.txt", "--steps=5", "--resume=c")


def case_resume_other_model():
    make_checkpoint()
    args = ["--data=data.txt", "--steps=5", "--resume=c"]
    bad(1, "wte.weight", "[256,32]", "[256,16]", args=args, settings=("dim=16",))
    bad(1, "blocks.1", "no tensor", args=args, settings=("layers=2",))
    bad(1, "train block", "clip = 1.0 there, clip = 0.5 in this program", args=args, settings=("train.clip=0.5",))
    bad(1, "batch = 2 there, batch = 4 in this program", "only accumulate", args=args, settings=("train.batch=4",))
    bad(1, "betas = [0.9, 0.98] there, betas = [0.9, 0.99] in", args=args, settings=("train.betas=0.9,0.99",))
    bad(1, "another model", args=args, settings=("heads=4",))  # of the same shapes
    good(*args, settings=("schedule.recompute=Block", "schedule.graph=none"))  # a schedule changes no bit


def case_loss_of_other_batches():
    """A model whose loss takes no tokens compiles and can be inspected; its program says why it does not train."""
    write("f.hd", b"model F(dim = 8) { param w: [dim] = ones; fn loss(x: f32[batch, dim]) { return mean(x * w); } }")
    subprocess.run([programs.compiler, "f.hd", "-o", "./f"], check=True)
    r = subprocess.run(["./f", "--steps=0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = r.stderr.decode()
    check(r.returncode == 1 and said.count("\n") == 1
          and "loss of model F does not take (tokens: i32[batch, seq]" in said, "it says:", said)


def case_failed_save():
    old = make_checkpoint()
    for limit in (4096, len(old) // 2, len(old) - 8):  # the disk is full at another place
        r = bad(1, "c/checkpoint.safetensors", "File too large",
                args=["--data=data.txt", "--steps=5", "--resume=c", "--save=c"], limit=limit)
        check("step 5/5" in r.err, "the run did not go on to its end:", r)
        check(read("c/checkpoint.safetensors") == old,
              f"the old checkpoint changed when the disk was full after {limit} bytes")
        check(os.listdir("c") == ["checkpoint.safetensors"], "a temporary file stays:", os.listdir("c"))
    r = run("--data=data.txt", "--steps=5", "--resume=c", "--save=c", "--save-every=1", limit=4096)
    check(r.status == 1 and "step 5/5" in r.err and "step 4/5" in r.err, "a save that fails on the way ends the run:",
          r)
    good("--data=data.txt", "--steps=5", "--resume=c", "--save=c")


def case_unwritable():
    text_file()
    base = ["--data=data.txt", "--steps=2"]
    os.mkdir("folder")
    for option in ("log", "digest", "export", "profile"):
        for path, why in (("none/x", "No such file"), ("folder", "Is a directory"), ("data.txt/x", "Not a directory")):
            r = bad(1, f"--{option}", path, why, args=base + [f"--{option}={path}"])
            check("step 1" not in r.err, "told after training, not before:", r)
    for path, why in (("none/x", "No such file"), ("data.txt", "Not a directory"), ("data.txt/x", "Not a directory")):
        r = bad(1, "--save", path, why, args=base + [f"--save={path}"])
        check("step 1" not in r.err, "told after training, not before:", r)
    bad(1, "--save", args=base + ["--save=" + "/".join(["x" * 200] * 21)])
    full = full_device()
    for option in ("log", "digest", "export", "profile"):
        r = bad(1, full, "No space left", args=base + [f"--{option}={full}", "--save=c"])
        check("step 2  saved" in r.err, "the run is lost with one of its outputs:", r)
        check(os.path.islink(full), f"--{option} replaced the device's link")
        os.remove("c/checkpoint.safetensors")


def case_outputs_are_not_inputs():
    data = read(text_file())
    os.symlink("data.txt", "link")
    for option in ("log", "digest", "export", "profile"):
        for path in ("data.txt", "link", "./data.txt"):
            bad(1, "--data", f"--{option}", args=["--data=data.txt", "--steps=1", f"--{option}={path}"])
    for x in ("x", "./x"):
        bad(1, "--log", "--digest", "are one file", args=["--data=data.txt", "--steps=1", "--log=x", f"--digest={x}"])
    os.mkdir("c")
    for option in ("save", "resume"):
        bad(1, f"--{option}=c", "would destroy the checkpoint",
            args=["--data=data.txt", "--steps=1", f"--{option}=c", "--export=./c/checkpoint.safetensors"])
    check(read("data.txt") == data, "the data was overwritten")


# --- weights in and out


def case_export_init():
    text_file()
    good("--data=data.txt", "--steps=3", "--export=w.safetensors", "--digest=a")
    good("--steps=0", "--init=w.safetensors", "--digest=b", "--export=again.safetensors")
    check(digest_of("b") == ([], digest_of("a")[1]), "exported weights read back as others")
    check(read("w.safetensors") == read("again.safetensors"), "exported again, the weights differ")
    tensors, meta = tensors_of("w.safetensors")
    check(tensors["wte.weight"][:2] == ("F32", [256, 32]) and len(tensors) == 16 and meta.get("format") == "pt",
          "exported:", list(tensors), meta)
    check(all(dtype == "F32" for dtype, _, _ in tensors.values()), "an exported tensor is not F32")
    os.symlink("w.safetensors", "link")
    good("--steps=0", "--export=link", "--seed=9")
    check(os.path.islink("link") and read("w.safetensors") != read("again.safetensors"),
          "an export through a link replaces the link")


def case_init_other_dtypes():
    good("--steps=0", "--export=w.safetensors")
    tensors, _ = tensors_of("w.safetensors")
    half, short = {}, {}
    for name, (_, shape, data) in tensors.items():
        values = struct.unpack(f"<{len(data) // 4}f", data)
        half[name] = ("F16", shape, struct.pack(f"<{len(values)}e", *values))
        short[name] = ("BF16", shape, b"".join(data[i + 2 : i + 4] for i in range(0, len(data), 4)))
    for kind, unpacked in ((half, lambda d: struct.unpack(f"<{len(d) // 2}e", d)),
                           (short, lambda d: struct.unpack(f"<{len(d) // 2}f", b"".join(
                               b"\0\0" + d[i : i + 2] for i in range(0, len(d), 2))))):
        write_tensors("in.safetensors", kind)
        good("--steps=0", "--init=in.safetensors", "--export=out.safetensors")
        out, _ = tensors_of("out.safetensors")
        for name, (_, _, data) in kind.items():
            want = struct.pack(f"<{len(data) // 2}f", *unpacked(data))
            check(out[name][2] == want, f"{name}: {kind[name][0]} is read wrongly")


def case_init_refused():
    good("--steps=0", "--export=w.safetensors")
    tensors, _ = tensors_of("w.safetensors")
    args = ["--steps=0", "--init=x.safetensors", "--export=y.safetensors"]

    def refused(changes, *words):
        changed = {k: v for k, v in dict(tensors, **changes).items() if v}
        write_tensors("x.safetensors", changed)
        bad(1, "x.safetensors", *words, args=args)
        check(not os.path.exists("y.safetensors"), "a refused start is exported")

    dtype, shape, data = tensors["wte.weight"]
    refused({"blocks.0.mlp.fc.bias": None}, "blocks.0.mlp.fc.bias", "[128]")
    refused({"wte.weight": (dtype, [32, 256], data)}, "wte.weight", "[32,256]", "[256,32]")
    refused({"wte.weight": (dtype, [256 * 32], data)}, "wte.weight", "[8192]", "[256,32]")
    refused({"wte.weight": ("U8", [256, 32], bytes(8192))}, "wte.weight", "U8")
    bad(1, "nothing", "No such file", args=["--steps=0", "--init=nothing"])
    bad(1, "error: the folder . holds neither model.safetensors nor", args=["--steps=0", "--init=."])
    write_tensors("x.safetensors", dict(tensors, extra=("U8", [3], b"abc")), {"by": "another \"program\"\n"})
    good(*args)
    check(read("y.safetensors") == read("w.safetensors"), "a further tensor changes the weights")


def case_check():
    text_file()
    good("--steps=0", "--export=w.safetensors")
    tensors, _ = tensors_of("w.safetensors")
    for name, at, value, shown in (("blocks.0.attn.proj.weight", 77, "nan", "nan"), ("ln_f.bias", 3, "-inf", "-inf")):
        dtype, shape, data = tensors[name]
        data = data[: 4 * at] + struct.pack("<f", float(value)) + data[4 * at + 4 :]
        write_tensors("x.safetensors", dict(tensors, **{name: (dtype, shape, data)}))
        bad(1, f"parameter {name}", f"element {at}", shown,
            args=["--data=data.txt", "--steps=3", "--init=x.safetensors", "--check"])
        # not asked: found after the step; the state is not saved
        old = make_checkpoint(steps=1)
        bad(1, "step 1: loss", "gradient norm", "element", args=[
            "--data=data.txt", "--steps=3", "--init=x.safetensors", "--log=log.jsonl", "--digest=digest", "--save=c",
            "--save-every=1", "--export=y.safetensors"])
        lines = [json.loads(l) for l in read("log.jsonl").decode().splitlines()]
        check(len(lines) == 1 and lines[0]["loss"] is None, "JSON has no NaN, the run ends at it:", lines)
        check(read("c/checkpoint.safetensors") == old, "a state that is not finite replaces a checkpoint")
        bad(1, "nothing is saved: element", name, args=["--steps=0", "--init=x.safetensors", "--save=c"])
        check(read("c/checkpoint.safetensors") == old, "a state that is not finite replaces a checkpoint")
        check(not os.path.exists("y.safetensors"), "a state that is not finite is exported")
    good("--data=data.txt", "--steps=3", "--check")
    dtype, shape, data = tensors["wte.weight"]  # finite, and too large to go on with
    write_tensors("x.safetensors",
                  dict(tensors, **{"wte.weight": (dtype, shape, struct.pack("<f", 3e38) * (len(data) // 4))}))
    r = bad(1, "step 1: loss", "gradient of wte.weight (unit root): element", "; see ", "tiny.hd:30, action ",
            " of @micro_only",
            args=["--data=data.txt", "--steps=3", "--init=x.safetensors", "--check", "--save=n"])
    check(not os.path.exists("n/checkpoint.safetensors"), "--check saves a state that is not finite:", r)


# --- signals


def saved(folder):
    """Waits for a checkpoint there."""
    def wait():
        until = time.monotonic() + 30
        while time.monotonic() < until and not os.path.exists(f"{folder}/checkpoint.safetensors"):
            time.sleep(0.005)
        time.sleep(0.05)
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
    until = time.monotonic() + 30
    while time.monotonic() < until and not (os.path.exists("signal.jsonl") and read("signal.jsonl").count(b"\n") > 2):
        time.sleep(0.005)
    for action in what if isinstance(what, list) else [what]:
        action() if callable(action) else p.send_signal(action)
    try:
        err = p.communicate(timeout=30)[1].decode(errors="replace")
    except subprocess.TimeoutExpired:
        p.kill()
        raise Failed(f"{what} does not end the run")
    return Result(command, p.returncode, "", err)


def case_signals():
    text_file()
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        r = interrupt(kind, "--save=c", "--export=w.safetensors", "--digest=d")
        check(r.status == 128 + kind, f"expected exit {128 + kind} after {kind.name}:", r)
        done = re.search(r"^stopped by signal \d+ after step (\d+)", r.err, re.M)
        check(done, "nothing says that the run was stopped:", r)
        lines = read("signal.jsonl").decode().splitlines()
        check(json.loads(lines[-1])["step"] == int(done.group(1)) == len(lines), "the log ends elsewhere:", lines[-1],
              done.group(0))
        _, meta = tensors_of("c/checkpoint.safetensors")
        check(meta["step"] == done.group(1), "the checkpoint is of another step:", meta, done.group(0))
        steps, params = digest_of("d")
        check(len(steps) == int(done.group(1)), "the digest ends elsewhere:", len(steps))
        good("--steps=0", "--init=w.safetensors", "--digest=e")
        check(digest_of("e")[1] == params, "the export is of another state")
        good("--data=data.txt", f"--steps={len(steps) + 1}", "--resume=c")


def case_signal_repeats():
    """Several signals at once count once, as the two SIGTERM of GNU timeout do; SIGUSR1 saves and goes on."""
    text_file()
    ends = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
    r = interrupt([signal.SIGSTOP, *ends, signal.SIGCONT], "--save=c")  # they arrive together, however busy the machine
    check(r.status - 128 in ends and "stopped by signal" in r.err, "three signals at once:", r)
    good("--data=data.txt", "--steps=1", "--resume=c")
    os.remove("c/checkpoint.safetensors")
    r = interrupt([signal.SIGUSR2] * 3, "--save=c")
    check(r.status == 128 + signal.SIGUSR2 and os.path.exists("c/checkpoint.safetensors"), "SIGUSR2:", r)
    r = interrupt([signal.SIGUSR2, signal.SIGTERM], "--save=c")
    check(r.status - 128 in (signal.SIGUSR2, signal.SIGTERM) and "stopped by signal" in r.err,
          "SIGTERM after the warning:", r)
    os.remove("c/checkpoint.safetensors")
    r = interrupt([signal.SIGUSR1, saved("c"), signal.SIGINT], "--save=c")
    steps = re.findall(r"^step (\d+)  saved", r.err, re.M)
    check(r.status == 130 and len(steps) == 2 and int(steps[0]) <= int(steps[1]), "SIGUSR1, then SIGINT:", r)
    r = interrupt([signal.SIGUSR1, signal.SIGINT])
    check(r.status == 130, "SIGUSR1 without a folder:", r)


def case_second_interrupt():
    """The program waits for a pipe that nobody reads: the first SIGINT changes nothing, a later one ends it."""
    text_file()
    os.mkfifo("pipe")
    p = subprocess.Popen([programs.get(), "--data=data.txt", "--steps=1", "--export=pipe"], stderr=subprocess.PIPE)
    while b"step 1/1" not in p.stderr.readline():
        check(p.poll() is None, "the run ended")
    for _ in range(2):
        check(p.poll() is None, "the first SIGINT ended the process")
        p.send_signal(signal.SIGINT)
        time.sleep(1.5)  # more than the second within which it would be the same one
    try:
        check(p.wait(timeout=30) == -signal.SIGINT, "the second SIGINT: status", p.returncode)
    finally:
        p.kill()
        p.stderr.close()


def case_data_becomes_shorter():
    """What was learnt is saved, the file and the step are named, and nothing ends by a signal."""
    text_file()
    for option in ("--data=short.txt", "--val=short.txt --val-every=1"):
        text_file("short.txt")
        r = interrupt([lambda: os.truncate("short.txt", 5)], *option.split(), "--save=c")
        error = [l for l in r.err.splitlines() if l.startswith("error: ")]
        check(r.status == 1 and len(error) == 1 and "short.txt became shorter" in error[0]
              and re.search(r"step \d+: ", error[0]), "a file that becomes shorter:", r)
        _, meta = tensors_of("c/checkpoint.safetensors")
        check(re.search(f"^step {meta['step']}  saved", r.err, re.M), "nothing is saved:", r)
        os.remove("c/checkpoint.safetensors")


def case_reader_goes_away():
    text_file()
    p = subprocess.Popen([programs.get(), "--data=data.txt", "--steps=2000000000", "--log-every=1", "--save=c"],
                         stderr=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
    p.stderr.readline()
    p.stderr.close()
    try:
        status = p.wait(timeout=30)
    except subprocess.TimeoutExpired:
        p.kill()
        raise Failed("the run goes on when nobody reads its lines")
    check(status == 128 + signal.SIGPIPE and os.path.exists("c/checkpoint.safetensors"), "nobody reads the lines: exit",
          status)


# --- two processes and one folder


def owner(host="elsewhere 1 pid:[1]", beat=0, number=0, pid=4711):
    """The text of a lock, as a process of another host writes it."""
    return (f"heddle 1 {'ab' * 16}\nhost {host}\nprocess {pid} 1\nsince 2026-01-01T00:00:00Z\n"
            f"beat {beat} {number:010d}\n")


def case_lock():
    old = make_checkpoint()
    check(os.listdir("c") == ["checkpoint.safetensors"], "the lock stays:", os.listdir("c"))
    args = ["--data=data.txt", "--steps=3", "--save=c"]
    found = []

    def second():
        lines = dict(l.split(" ", 1) for l in read("c/lock").decode().splitlines())
        r = bad(1, f"process {lines['process'].split()[0]} on {lines['host'].split()[0]} saves there since",
                "c/lock", args=args)
        check("step 1" not in r.err, "told after training:", r)
        found.append(lines)

    r = interrupt([second, signal.SIGTERM], "--save=c")
    check(found and r.status == 143 and "saved c/" in r.err, "a second run disturbs the first one:", r)
    check(read("c/checkpoint.safetensors") != old and os.listdir("c") == ["checkpoint.safetensors"], "left:",
          os.listdir("c"))
    r = interrupt(signal.SIGKILL, "--save=c")
    check("lock" in os.listdir("c"), "a killed process takes its lock with it")
    good(*args)
    write("c/lock", b"")  # its owner was killed before it had written who it is
    good(*args)
    here = found[0]["host"]
    for left in (owner(here, pid=1), owner(here, pid=999999999), owner()):  # other start, no process, no sign of life
        write("c/lock", left)
        good(*args)
        check(os.listdir("c") == ["checkpoint.safetensors"], "left:", os.listdir("c"))


def case_lock_of_another_host():
    old = make_checkpoint()
    write("c/lock", owner(beat=60))
    p = subprocess.Popen([programs.get(), "--data=data.txt", "--steps=3", "--save=c"], stderr=subprocess.PIPE)
    check(b"waiting at most" in p.stderr.readline(), "it does not wait for a sign of life")
    write("c/lock", owner(beat=60, number=1))
    err = p.communicate(timeout=60)[1].decode()
    check(p.returncode == 1 and "process 4711 on elsewhere" in err and "and is alive" in err, "it said:", err)
    check(read("c/checkpoint.safetensors") == old and read("c/lock") == owner(beat=60, number=1).encode(),
          "the folder of another was changed")


def case_lock_lost():
    """What is removed is taken again; what another process has taken over is left to it."""
    make_checkpoint()
    r = interrupt([lambda: os.remove("c/lock"), signal.SIGTERM], "--save=c")
    check(r.status == 143 and "saved c/" in r.err and os.listdir("c") == ["checkpoint.safetensors"], "removed:", r)
    old = read("c/checkpoint.safetensors")
    r = interrupt([lambda: write("c/lock", owner()), signal.SIGTERM], "--save=c")
    check(r.status == 1 and "process 4711 on elsewhere saves there" in r.err and "taken it over" in r.err, "taken:", r)
    check(read("c/checkpoint.safetensors") == old and read("c/lock") == owner().encode(),
          "the folder of another was changed")


def main(functions):
    global programs
    root, compiler = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    cases = [(n[5:], f) for n, f in functions.items() if n.startswith("case_")
             and (not sys.argv[3:] or n[5:] in sys.argv[3:])]
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(root, compiler, folder)
        for name, case in cases:
            here = os.path.join(folder, name)
            os.mkdir(here)
            os.chdir(here)
            start = time.monotonic()
            try:
                case()
            except (Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
                failed.append(name)
                print(f"{name}: {type(e).__name__}: {e}\n")
            if time.monotonic() - start > 20:
                print(f"{name} took {time.monotonic() - start:.0f} s")
        os.chdir(root)
    print(f"{len(cases)} cases, failed: {', '.join(failed) or 'none'}")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main(globals()))
