#!/usr/bin/env python3
"""Offload on a GPU: the same bits whatever is offloaded, what it costs, and what the link carries.

usage: offload.py [BUILD] [--seconds=280] [--steps=12] [--no-times]

Needs heddlec and a C compiler there. Digests: a small GPT-2 with fractions 0, 0.5 and 1 and `auto`, with recompute none
and Block.mlp.act, captured and not, all in one digest. Times: GPT-2 124M (B=32 T=1024) and Llama 1.24B (B=4 T=4096)
with offload none, auto, half and all of Block: device and page-locked memory, step time, the predicted one, and the
digest of the losses, which must be that of none. Link, with half: bytes by time of the copies of profiled steps,
which run them one by one. One table at the end; exit status 1 when anything failed. Cases that do not fit into the
seconds are left out, and named.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GPT2, LLAMA = "examples/gpt2/gpt2.hd", "examples/llama/llama.hd"
SMALL = ["layers=4", "dim=256", "heads=4", "seq=256", "vocab=256", "train.batch=4", "train.accumulate=2"]
SHAPES = {
    "GPT-2 124M, B=32 T=1024": (GPT2, []),
    "Llama 1.24B, B=4 T=4096": (LLAMA, ["layers=16", "dim=2048", "heads=32", "kv_heads=8", "hidden=8192",
                                        "vocab=128256", "seq=4096", "train.batch=4"]),
}
CHOICES = {"none": [], "auto": ["schedule.offload=auto"],
           "half": ["schedule.offload=Block", "schedule.offload.fraction=0.5"],
           "all": ["schedule.offload=Block", "schedule.offload.fraction=1"]}
failures, left_out = [], []


def call(command, limit=100):
    left = deadline - time.monotonic()
    if left < 5:
        return None
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=min(left, limit),
                              stdin=subprocess.DEVNULL,
                              env=dict(os.environ, HEDDLE_CACHE=os.path.join(folder, "cache")))
    except subprocess.TimeoutExpired:
        return None


def good(what, command):
    done = call(command)
    if done is None:
        left_out.append(what)
    elif done.returncode:
        failures.append(f"{what}: {done.stderr.strip()[-400:]}")
    return done if done and not done.returncode else None


def compile_to(output, what, source, sets, *more):
    command = [os.path.join(args.build, "bin", "heddlec"), os.path.join(ROOT, source), "--target=cuda", "-o", output]
    for s in sets:
        command += ["--set", s]
    return good(what, command + list(more))


def train(name, what, steps, *options):
    digest = name + ".digest"
    done = good(what, [name, f"--data={data}", f"--steps={steps}", f"--digest={digest}", *options])
    if not done:
        return None
    with open(digest) as f:
        return f.read()


def check_bits():
    digests = {}
    for choice, sets in CHOICES.items():
        for recompute in ("none", "Block.mlp.act"):
            for graph in ("step", "none"):
                what = f"small: {choice}, recompute {recompute}, graph {graph}"
                name = os.path.join(folder, f"small{len(digests)}")
                sets_ = SMALL + sets + ["schedule.offload.margin=0", "schedule.offload.min_size=0",
                                        f"schedule.recompute={recompute}", f"schedule.graph={graph}"]
                if compile_to(name, what, GPT2, sets_):
                    digests[what] = train(name, what, 6, f"--val={data}", "--val-every=2", "--val-batches=1")
    found = {d for d in digests.values() if d}
    if len(found) > 1:
        first = next(d for d in digests.values() if d)
        failures.extend(f"{what}: another digest" for what, d in digests.items() if d and d != first)
    return len(digests), len(found)


def link_rate(name, what, report):
    """GB/s out and back, by the durations of the copies in one step."""
    path = name + ".json"
    if not good(what + ", profile", [name, f"--data={data}", "--steps=2", f"--profile={path}"]):
        return "", ""
    with open(path) as f:
        events = [e for e in json.load(f)["traceEvents"] if e["ph"] == "X" and e["name"] == "copy"]
    rates = []
    for stream in ("offload", "reload"):
        times = [e["dur"] for e in events if e["args"].get("stream") == stream]
        steps = max(1, round(len(times) / max(1, len(report["offload"]["values"]))))
        rates.append(f"{report['offload']['bytes'] * steps / sum(times) * 1e-3:.1f}" if times else "")
    return rates


def measure(shape, choice):
    source, sets = SHAPES[shape]
    what = f"{shape}, {choice}"
    name = os.path.join(folder, f"{len(rows)}")
    if not compile_to(name, what, source, sets + CHOICES[choice]):
        return
    compile_to(name + ".report", what, source, sets + CHOICES[choice], "--emit=report")
    with open(name + ".report") as f:
        report = json.load(f)
    digest = train(name, what, args.steps, f"--log={name}.log")
    if digest is None:
        return
    with open(name + ".log") as f:
        seconds = [line["seconds"] for line in map(json.loads, f) if "seconds" in line]
    reference = digests.setdefault(shape, digest)
    if digest != reference:
        failures.append(f"{what}: another digest than with none")
    out, back = link_rate(name, what, report) if choice == "half" and "offload" in report else ("", "")
    rows.append((shape, choice, f"{report['peak_bytes'] / 2**30:.2f}", f"{report['host_pinned_bytes'] / 2**30:.2f}",
                 f"{1e3 * statistics.median(seconds[3:] or seconds):.1f}",
                 f"{1e3 * report.get('predicted', {}).get('step_seconds', 0):.1f}", out, back,
                 "same" if digest == reference else "OTHER"))


parser = argparse.ArgumentParser()
parser.add_argument("build", nargs="?", default=os.path.join(ROOT, "build"))
parser.add_argument("--seconds", type=float, default=280)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--no-times", action="store_true")
args = parser.parse_args()
args.build = os.path.abspath(args.build)
deadline = time.monotonic() + args.seconds
rows = [("shape", "offload", "device GiB", "host GiB", "step ms", "predicted", "out GB/s", "back GB/s", "digest")]
digests = {}
with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(folder, "text.txt")
    with open(data, "wb") as f:
        f.write(bytes(random.Random(7).randrange(256) for _ in range(1 << 20)))
    programs, found = check_bits()
    if not args.no_times:
        for shape in SHAPES:
            for choice in CHOICES:
                measure(shape, choice)
width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
for row in rows:
    print("  ".join(cell.ljust(w) for cell, w in zip(row, width)).rstrip())
print(f"small GPT-2: {programs} programs, {found} digest{'' if found == 1 else 's'}")
for text in left_out:
    print(f"left out, no time: {text}")
for text in failures:
    print(f"failed: {text}")
print("failed" if failures else "ok")
sys.exit(1 if failures else 0)
