#!/usr/bin/env python3
"""The command line of compiled programs: options, logs, digests, weights in and out.
Usage: cli.py ROOT HEDDLEC [CASE...]
"""
import contextlib
import json
import math
import os
import re
import struct
import subprocess
import sys

import compiled
from cases import check
from compiled import (SEQ, SMALL, STEPS, bad, digest_of, full_device, good, lines_of, make_checkpoint, read, run,
                      tensors_of, text_file, train_digest, write_tensors)

# --- usage


def case_help():
    r = good("--help")
    for option in ("data", "val", "steps", "ranks", "seed", "log", "digest", "save", "save-every", "resume", "init",
                   "format", "keep", "keep-best", "overwrite",
                   "export", "eval", "no-graph", "check", "profile", "report", "val-every", "val-batches",
                   "log-every"):
        check(re.search(rf"^  --{option}[ =\[]", r.out, re.M), f"--help does not tell of --{option}:", r)
    check(not r.err, "--help writes to stderr:", r)
    check("?" not in r.out and re.search(r"more files;\n {23}also a folder", r.out), "lines of --help:", r)
    check(good("-h").out == r.out, "-h prints something else than --help")
    v = good("--version").out
    check(re.fullmatch(r"Tiny, target host, Heddle \d+\.\d+\.\d+( \([0-9a-f]{12}\))?\n", v), "--version prints:", v)


def case_bad_usage():
    data = f"--data={text_file()}"
    bad(2, "--bogus", "--help", args=["--bogus"])
    bad(2, "-x", args=["-x"])
    bad(2, "stray", args=[data, "--steps=1", "stray"])
    bad(2, "--data needs a value: --data=FILE", args=["--data"])
    bad(2, "--profile needs a value: --profile=FILE", args=["--steps=1", "--profile"])
    bad(2, "--data", args=["--data=", "--steps=1"])
    bad(2, "--check=3", args=["--check=3"])
    bad(2, "--steps", "missing", args=[data])
    bad(2, "--data", "missing", args=["--steps=1"])
    for text in ("-1", "abc", "3x", "1.5", "", "99999999999999999999", "9223372036854775807", "2147483648"):
        bad(2, f"--steps={text}:", "2147483647", args=[data, f"--steps={text}"])
    bad(2, "--seed=-5:", args=[data, "--steps=1", "--seed=-5"])
    for text in ("0", "none", "all3", ""):
        bad(2, f"--val-batches={text}:", args=[data, "--steps=1", f"--val-batches={text}"])
    for more in ([], ["--val=data.txt"], ["--resume=c"], ["--val=data.txt", "--init=w", "--steps=1"]):
        bad(2, "--eval needs", args=["--eval", *more])
    for given, word in (("--lr=3", "heddlec --set train.optimizer.lr=RATE"), ("--batch_size=4", "train.batch=N"),
                        ("--Max-Steps", "it is called --steps=N"), ("--prompt=x", "--sample=TEXT"),
                        ("--epochs=2", "counts steps"), ("--output_dir=x", "--save=DIR")):
        bad(2, f"there is no option {given}: ", word, args=[data, given])
    for text in ("5m30s", "s", "-3m"):
        bad(2, f"--save-every={text}: expected a whole number of steps, or of one unit of time: 30s, 20m or 2h",
            args=[data, "--steps=1", "--save=n", f"--save-every={text}"])
    for text, ours in (("text", "bytes"), ("uint16", "u16"), ("float32", "f32")):
        bad(2, f"--format={text}: the formats are", f"; it is called {ours}", args=[data, f"--format={text}"])
    bad(2, "no setting of a train block is called 'learning_rate'; it is lr.peak here",
        args=[data, "--steps=1", "--resume=c", "--resume-with=learning_rate"])
    bad(2, "--run=loss: --eval --val=FILE evaluates the loss", args=[data, "--run=loss", "--output=o", "--init=w"])
    check("nothing is trained, and nothing is written" in good("--steps=0").err, "a run that does nothing")
    check("nothing is" not in good("--steps=0", "--digest=none").err, "a run that writes a digest")
    for idle in ("--val-every=2", "--save-every=2", "--log-every=2", "--profile=p", "--timeline=t"):
        bad(2, f"{idle.split('=')[0]} needs --steps=N: nothing is trained",
            args=["--init=w", "--val=data.txt", "--save=n", "--eval", idle])
    bad(2, "--val-batches needs --val=FILE", args=[data, "--steps=1", "--val-batches=2"])
    bad(2, "--eval reads --val alone: leave --data out", args=[data, "--init=w", "--val=data.txt", "--eval"])
    bad(2, "--data needs --steps=N: nothing is trained", args=[data, "--init=w", "--export=v"])
    bad(2, "--save-every", "--save", args=[data, "--steps=1", "--save-every=1"])
    bad(2, "--val-every", "--val", args=[data, "--steps=1", "--val-every=1"])
    bad(2, "--init", "--resume", args=[data, "--steps=1", "--init=a", "--resume=b"])
    r = run()
    check(r.status == 2 and "usage:" in r.err, "without arguments the usage is expected:", r)


def case_ranks():
    good(f"--data={text_file()}", "--steps=1", "--ranks=1")
    bad(2, "--choices is for programs of the target cuda", args=[f"--data={text_file()}", "--steps=1", "--choices=x"])
    bad(2, "--ranks=2", "1 rank ", args=[f"--data={text_file()}", "--steps=1", "--ranks=2"])


# --- what a run tells


def case_log():
    text_file()
    r = good("--data=data.txt", "--val=data.txt", "--steps=4", "--val-every=2", "--log=log.jsonl")
    check("\r" not in r.err and "\x1b" not in r.err, "a terminal's line without a terminal:", repr(r.err))
    check(re.search(r"^step 4/4  loss \d", r.err, re.M), "no line for step 4:", r)
    check(len(re.findall(r"validation loss \d", r.err)) == 2, "expected two validations:", r)
    check("--val reads what --data does" in r.err, "validation of the training data:", r)
    lines = lines_of("log.jsonl")
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


def case_validation():
    """A validation reads windows at equal distances over the whole file, or all of them; --eval does only that."""
    windows = 40
    text_file("all.txt", windows * SEQ + 1)
    data = read("all.txt")

    def val(path, *more):
        with contextlib.suppress(FileNotFoundError):
            os.remove("log")
        good("--eval", "--init=w.safetensors", f"--val={path}", "--log=log", *more)
        (line,) = lines_of("log")
        check(abs(math.log(line["val_perplexity"]) - line["val_loss"]) < 1e-5, "perplexity:", line)
        return line["val_loss"]

    good("--data=all.txt", "--steps=20", "--export=w.safetensors", "--save=c")
    each = []
    for w in range(windows):
        with open("one.txt", "wb") as f:
            f.write(data[w * SEQ : (w + 1) * SEQ + 1])
        each.append(val("one.txt"))
    for n in (1, 3, 8, 19):  # batches of two sequences
        chosen = [each[i * windows // (2 * n)] for i in range(2 * n)]
        loss = val("all.txt", f"--val-batches={n}")
        check(abs(loss - sum(chosen) / len(chosen)) < 1e-5, n, "batches: loss", loss, "of", chosen)
    for more in ([], ["--val-batches=all"], ["--val-batches=20"], ["--val-batches=99"]):
        check(abs(val("all.txt", *more) - sum(each) / windows) < 1e-5, "all of the file:", more)
    r = good("--eval", "--val=all.txt", "--resume=c")
    check(re.search(r"^step 20  validation loss [0-9.]+  perplexity [0-9.]+$", r.err, re.M), "it says:", r)


def case_log_goes_on():
    text_file()
    good("--data=data.txt", "--steps=2", "--log=log.jsonl", "--save=c", "--overwrite")
    good("--data=data.txt", "--steps=4", "--log=log.jsonl", "--resume=c")
    steps = [l["step"] for l in lines_of("log.jsonl")]
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
        said = good("--data=data.txt", "--steps=3", "--profile=p.json", *more).err
        events = json.loads(read("p.json"))["traceEvents"]
        streams = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        spans = [e for e in events if e["ph"] == "X"]
        source = subprocess.run([compiled.programs.compiler, os.path.join(compiled.programs.root, compiled.EXAMPLE),
                                 "--emit=plan"] + [a for s in SMALL for a in ("--set", s)],
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
        summary = re.search(r"^op +count .*\n((?:\w+ .*\n)+)", said, re.M).group(1).split("\n")[:-2]  # less "all"
        check(sum(int(line.split()[1]) for line in summary) == len(spans), "the summary counts other actions:", said)
    make_checkpoint()  # which is beyond the first step
    said = good("--data=data.txt", "--resume=c", "--steps=1", "--profile=none.json").err
    check("no step was profiled" in said, "a profile of no step:", said)
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
                   "--save=c --overwrite --save-every=2"):
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
    for name, way in ((".metadata", "dcp_to_torch"), ("pytorch_model.bin.index.json", "save_pretrained"),
                      ("pytorch_model.bin", "save_pretrained")):
        compiled.write(name, "x")
        bad(1, "error: the folder . holds neither", way, args=["--steps=0", "--init=."])
    for begin, words in ((b"PK\3\4", ("a file of torch.save", "save_file")), (b"\x80\2}q", ("pickle", "save_file")),
                         (b"GGUF", ("llama.cpp",)), (b"\x89HDF\r\n\x1a\n", ("HDF5",)),
                         (struct.pack("<I", 20240326), ("a model of llm.c",))):
        compiled.write("x.safetensors", begin + b"\x7f" * 90)
        bad(1, "x.safetensors is not a safetensors file: it is", *words, args=args)
    bad(2, "--val_every=3: it is called --val-every", args=["--steps=0", "--val_every=3"])
    bad(1, "cannot read org/model: No such file", "hf download org/model", args=["--steps=0", "--init=org/model"])
    for name in ("y.pt", "y.npz", "y.gguf", "y.bin"):
        bad(1, f"--export={name}: safetensors is written", "end the name in .safetensors",
            args=["--steps=0", f"--export={name}"])
    os.link(compiled.programs.get(), "copy")
    for option in ("--export=copy", "--log=copy", "--digest=copy"):
        bad(1, f"{option} is this program: writing it would destroy the program",
            args=["--steps=0", "--data=" + text_file(), option])
    write_tensors("x.safetensors", dict(tensors, extra=("U8", [3], b"abc")), {"by": "another \"program\"\n"})
    bad(1, "'extra' [3]", "--init-ignore='extra'", args=args)
    good(*args, "--init-ignore=extra")
    check(read("y.safetensors") == read("w.safetensors"), "a further tensor changes the weights")


def case_outputs_replace_theirs():
    """An output replaces an older one of its kind, and no other file."""
    text_file()
    names = {"log": "own.jsonl", "digest": "own.digest", "profile": "own.json", "timeline": "own.html",
             "export": "own.safetensors"}
    every = [f"--{option}={name}" for option, name in names.items()]
    good("--data=data.txt", "--steps=1", *every)
    good("--data=data.txt", "--steps=1", *every)
    for option in names:
        for notes in ("1 apple\n", "{}", "<html>", "param"):
            with open("notes", "w") as f:
                f.write(notes)
            bad(1, f"--{option}=notes: the file is there and holds something else than --{option} writes",
                "give another name", args=["--data=data.txt", "--steps=1", f"--{option}=notes"])
            check(open("notes").read() == notes, f"--{option} changed", repr(open("notes").read()))
    open("notes", "w").close()
    good("--data=data.txt", "--steps=1", "--digest=notes")  # nothing is lost


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
        bad(1, "step 1: loss", "gradient norm", "element", "; --check examines the weights before", args=[
            "--data=data.txt", "--steps=3", "--init=x.safetensors", "--log=log.jsonl", "--digest=digest", "--save=c",
            "--overwrite", "--save-every=1", "--export=y.safetensors"])
        lines = lines_of("log.jsonl")
        check(len(lines) == 1 and lines[0]["loss"] is None, "JSON has no NaN, the run ends at it:", lines)
        check(read("c/checkpoint.safetensors") == old, "a state that is not finite replaces a checkpoint")
        bad(1, "nothing is saved: element", name, args=["--steps=0", "--init=x.safetensors", "--save=c", "--overwrite"])
        check(read("c/checkpoint.safetensors") == old, "a state that is not finite replaces a checkpoint")
        check(not os.path.exists("y.safetensors"), "a state that is not finite is exported")
    good("--data=data.txt", "--steps=3", "--check")
    dtype, shape, data = tensors["wte.weight"]  # finite, and too large to go on with
    write_tensors("x.safetensors",
                  dict(tensors, **{"wte.weight": (dtype, shape, struct.pack("<f", 3e38) * (len(data) // 4))}))
    r = bad(1, "step 1: loss", "gradient of wte.weight (unit root): element", "; see ", "tiny.hd:30, action ",
            " of @micro_only, the last that works on this module: the value may come from one before it",
            args=["--data=data.txt", "--steps=3", "--init=x.safetensors", "--check", "--save=n"])
    check(not os.path.exists("n/checkpoint.safetensors"), "--check saves a state that is not finite:", r)


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
