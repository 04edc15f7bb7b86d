#!/usr/bin/env python3
"""No name of a function, a step or a state buffer means anything.

A plan with other names is verified, built and computes the same bits.

usage: rename.py ROOT BUILD
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

root, build = sys.argv[1:3]
tool = lambda name: os.path.join(build, "bin", name)
small = "vocab=256 layers=2 dim=32 heads=4 seq=16 train.batch=2 train.warmup=1"
programs = ["train.accumulate=1", "train.accumulate=3",
            "train.accumulate=3 schedule.mesh.shard=2 schedule.fsdp=zero3 schedule.fsdp.unit=Block schedule.graph=step"]


def must(*words):
    run = subprocess.run(words, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{shlex.join(words)}: exit {run.returncode}\n{run.stdout[-2000:]}{run.stderr[-4000:]}")
    return run.stdout


def renamed(plan):
    """Every function, kernel, step and buffer of a step's numbers gets a name that says nothing."""
    names = re.findall(r"^(?:func|kernel|step) @([\w.-]+)", plan, flags=re.M)
    names += re.findall(r"\b(?:loss|norm|counter) = @([\w.-]+)", plan)
    names = sorted(set(names))
    to = {name: f"z{len(names) - i}" for i, name in enumerate(names)}
    return re.sub(r"@([\w.-]+)", lambda m: "@" + to.get(m.group(1), m.group(1)), plan), to


def digest(plan, name, folder):
    """Verifies and builds a plan, runs it and validates; what the run leaves."""
    at = lambda end: os.path.join(folder, name + end)
    with open(at(".hir"), "w") as f:
        f.write(plan)
    must(tool("heddle-opt"), "--pass-pipeline=verify-plan", at(".hir"), "-o", at(".out"))
    must(tool("heddle-translate"), at(".hir"), "-o", at(""))
    data = os.path.join(root, "frontend", "LANGUAGE.md")
    must(at(""), f"--data={data}", f"--val={data}", "--format=bytes", "--val-every=1", "--steps=3",
         f"--digest={at('.digest')}", f"--log={at('.log')}")
    with open(at(".digest")) as f, open(at(".log")) as log:
        return f.read() + "\n".join(re.findall(r'"val_loss": [^,}]*', log.read()))


with tempfile.TemporaryDirectory() as folder:
    for words in programs:
        sets = [w for word in f"{small} {words}".split() for w in ("--set", word)]
        plan = must(tool("heddlec"), os.path.join(root, "examples/gpt2/gpt2.hd"), "--target=host", "--emit=plan", *sets)
        other, to = renamed(plan)
        names = ("micro_only", "micro_first", "micro_last", "update", "eval", "state.loss")
        left = [n for n in names if re.search(rf"@{n}(?![\w.])", other)]
        if left or len(to) < 8:
            sys.exit(f"{words}: not renamed: {left}, {to}")
        if digest(plan, "named", folder) != digest(other, "renamed", folder):
            sys.exit(f"{words}: other names, other results")
        print(f"{words}: {len(to)} names changed, equal")
