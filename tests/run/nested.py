#!/usr/bin/env python3
"""Units inside units: every choice of units and prefetch compiles, keeps its bounds and gives the bits of zero1.

usage: nested.py ROOT HEDDLEC HEDDLE_OPT [--every=N] [--bits=N] [--jobs=2] [--only=TEXT]

The models are nested.hd and pairs.hd. Their combinations are one to three modules as units, each with prefetch 0 to 3:
884 in all. Each is compiled to a plan three times: as it is, with the outermost module recomputed, and with settings
that are drawn for it (recompute, offload, live_grads, accumulate, graph, mesh, target and others). The verifier checks
each plan. Then plans are made that gather one unit too early, or let one gradient more wait than they say. The verifier
must refuse those, and no other: plan_bounds.py counts what each plan keeps. At last programs with drawn settings run
with zero3; losses, parameters and validation losses must be those of a plain zero1 with the same units. `--every=N`
takes each Nth combination, `--bits=N` runs N of them. Exit status 1: something failed, differed, or was accepted.
"""
import argparse
import collections
import itertools
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import plan_bounds

STEPS = 3
PREFETCH = (0, 1, 2, 3)
MODELS = dict(
    nested=dict(units=("Group", "Layer", "Mix", "Mlp", "Scale", "Linear", "LayerNorm", "Embedding"), outer="Group",
                recompute=("none", "auto", "Group", "Layer", "Layer.mix", "Mlp.act"), offload=("Layer", "Mlp"),
                sizes=("flat=0", "flat=1", "layers=1", "layers=3")),
    pairs=dict(units=("Pair", "Recall", "Attend", "Gate", "Half", "Tail", "Linear", "RMSNorm", "Embedding"),
               outer="Pair", recompute=("none", "auto", "Pair", "Recall", "Pair.far", "Gate"),
               offload=("Pair", "Attend"), sizes=("heads=2",)))
# Settings that decide the bits, and settings that must not change them.
TRAIN = {"train.accumulate": (1, 1, 2, 3), "train.reduce": ("each", "each", "last"), "train.compute": ("f32", "bf16"),
         "train.clip": (0.5, 0), "train.products": ("separate", "merged"), "drop": (0.0, 0.1),
         "schedule.mesh.shard": (2, 2, 3, 4), "schedule.mesh.replicate": (1, 1, 2),
         "schedule.fsdp.root": ("split", "whole")}
FREE = {"schedule.live_grads": (1, 1, 2, 3), "schedule.graph": ("step", "none", "unit"),
        "schedule.overlap_micro": ("on", "off"), "schedule.overlap_grads": ("on", "off"),
        "schedule.fsdp.weights": ("copy", "master")}
Combination = collections.namedtuple("Combination", "model units prefetch")


def combinations():
    return [Combination(m, u, p) for m in MODELS for n in (1, 2, 3)
            for u in itertools.combinations(MODELS[m]["units"], n) for p in PREFETCH]


def name(c):
    return f"{c.model} unit {','.join(c.units)} prefetch {c.prefetch}"


def draw(table, rng):
    return {k: rng.choice(v) for k, v in table.items()}


def drawn(c, seed):
    """Settings of the train block, and of the schedule."""
    rng = random.Random(f"{seed} {name(c)}")
    m = MODELS[c.model]
    train, free = draw(TRAIN, rng), draw(FREE, rng)
    size = rng.choice(m["sizes"]).split("=")
    train[size[0]] = size[1]
    free["schedule.recompute"] = rng.choice(m["recompute"])
    if free["schedule.recompute"] == "none" and rng.random() < 0.7:  # a place is not both
        free.update({"schedule.offload": rng.choice(m["offload"]), "schedule.offload.fraction": rng.choice((0.5, 1)),
                     "schedule.offload.margin": 0, "schedule.offload.min_size": 0})
    return train, free, rng.choice(([], [], ["--target=cuda", "--arch=sm_90"]))


class T:
    root = heddlec = opt = folder = quick_cc = ""


def call(command, text=None, env=None):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=600, input=text,
                              stdin=None if text else subprocess.DEVNULL, env=dict(os.environ, **(env or {})))
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no end within 300 s: {shlex.join(command)}")


def said(done):
    lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-2:] or [""]
    return f"{lines[0]}\n  {shlex.join(done.args)}"


def compile_(c, sets, *options):
    command = [T.heddlec, os.path.join(T.root, f"tests/run/{c.model}.hd"), *options,
               "--set", f"schedule.fsdp.unit={','.join(c.units)}"]
    for k, v in {"schedule.prefetch": c.prefetch, **sets}.items():
        command += ["--set", f"{k}={v}"]
    return call(command)


def compiles(c):
    train, free, target = drawn(c, "plan")
    wrong = []
    outer = {"schedule.recompute": MODELS[c.model]["outer"]}
    for sets, options in (({}, []), (outer, []), ({**train, **free}, target)):
        done = compile_(c, sets, "--emit=plan", *options, "-o", os.devnull)
        if done.returncode:
            wrong.append(f"{name(c)}: {said(done)}")
    return wrong


# --- plans that keep less than they say

def early(c, setting, bound):
    """A plan that allows itself one more says one less. The fault, and whether it was refused: exactly if it uses
    what it allowed itself, as another count of its text says."""
    plans = [compile_(c, {setting: n}, "--emit=plan") for n in (bound, bound + 1)]
    for done in plans:
        if done.returncode:
            return f"{name(c)}: {said(done)}", 0
    key = setting.split(".")[1]
    allowed = bound - (key == "live_grads")
    text, n = re.subn(rf"(config @schedule .*\b{key} = ){bound + 1}\b", rf"\g<1>{bound}", plans[1].stdout, count=1)
    if n != 1:
        return f"{name(c)}: the plan does not say {key} = {bound + 1}", 0
    if plan_bounds.most(plans[0].stdout, key) > allowed:
        return f"{name(c)}: the plan of {key} = {bound} needs more", 0
    done = call([T.opt, "--pass-pipeline=verify-plan", "-"], text)
    refused, kept = done.returncode != 0, plan_bounds.most(text, key)
    if refused == (kept > allowed) and (not refused or "begins the life of" in done.stderr):
        return None, int(refused)
    verdict = said(done) if refused else "accepted"
    return f"{name(c)}: a plan of {key} = {bound + 1} says {bound}; it keeps {kept} of {allowed}: {verdict}", 0


# --- bits

def digest(c, number, sets):
    program = os.path.join(T.folder, f"p{number}")
    done = compile_(c, sets, "-o", program)
    if done.returncode:
        return None, said(done)
    ranks = sets["schedule.mesh.shard"] * sets["schedule.mesh.replicate"]
    data = os.path.join(T.folder, "tokens.bin")
    done = call([program, f"--data={data}", f"--ranks={ranks}", f"--steps={STEPS}", f"--digest={program}.digest",
                 f"--log={program}.log", f"--val={data}", "--val-every=1", "--val-batches=1"],
                env={"HEDDLE_DELAY": "100"} if number % 2 else None)
    if done.returncode:
        return None, said(done)
    with open(program + ".digest") as f, open(program + ".log") as log:
        lines = f.read().splitlines() + [repr(v["val_loss"]) for v in map(json.loads, log) if "val_loss" in v]
    for path in (program, program + ".digest", program + ".log"):
        os.unlink(path)
    return lines, None


def bits(job):
    i, c = job
    train, free, _ = drawn(c, "bits")
    plain = {"schedule.recompute": "none", "schedule.graph": "none", "schedule.prefetch": 1}
    one, wrong = digest(c, 2 * i, {**train, **plain, "schedule.fsdp": "zero1"})
    three, wrong = digest(c, 2 * i + 1, {**train, **free, "schedule.fsdp": "zero3"}) if not wrong else (None, wrong)
    if wrong:
        return f"{name(c)}: {wrong}", None
    if len(one) < 2 * STEPS + 1 or len({line.split()[1] for line in one[:STEPS]}) != STEPS:
        return f"{name(c)}: the digest shows no training: {one[:STEPS]}", None
    return None if one == three else f"{name(c)}: other bits than zero1: {train} {free}", tuple(one)


def prepare():
    T.quick_cc = os.path.join(T.folder, "cc")
    with open(T.quick_cc, "w") as f:
        gold = "-fuse-ld=gold" if shutil.which("ld.gold") else ""
        quick = os.path.join(T.root, "tests", "quick_cc.sh")
        f.write(f'#!/bin/sh\nexec {os.environ.get("CC", quick)} "$@" -O0 {gold}\n')
    os.chmod(T.quick_cc, 0o755)
    os.environ["CC"] = T.quick_cc
    rng = random.Random(7)
    with open(os.path.join(T.folder, "tokens.bin"), "wb") as f:  # u16 tokens that every vocabulary has
        f.write(b"".join(rng.randrange(32).to_bytes(2, "little") for _ in range(8000)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for argument in ("root", "heddlec", "opt"):
        p.add_argument(argument)
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--bits", type=int, default=100)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--only", default="", help="of names of combinations")
    args = p.parse_args()
    T.root, T.heddlec, T.opt = (os.path.abspath(x) for x in (args.root, args.heddlec, args.opt))
    every = [c for c in combinations() if args.only in name(c)]
    chosen = every[::args.every]
    mutants = [(c, "schedule.prefetch", c.prefetch) for c in chosen[::2] if c.prefetch < PREFETCH[-1]]
    mutants += [(c, "schedule.live_grads", 1 + c.prefetch % 2) for c in chosen[1::2]]
    run = random.Random(1).sample(chosen, min(args.bits, len(chosen)))
    with tempfile.TemporaryDirectory() as T.folder, ThreadPoolExecutor(args.jobs) as pool:
        prepare()
        wrong = [w for found in pool.map(compiles, chosen) for w in found]
        judged = list(pool.map(lambda m: early(*m), mutants))
        ran = list(pool.map(bits, enumerate(run)))
    refused = sum(n for _, n in judged)
    wrong += [w for w, _ in judged if w] + [w for w, _ in ran if w]
    if len(mutants) > 4 and refused < len(mutants) // 2:
        wrong.append(f"only {refused} of {len(mutants)} plans keep more than they say")
    for w in wrong[:20]:
        print(w)
    print(f"{len(chosen)} of {len(every)} combinations, {3 * len(chosen)} plans; {refused} of {len(mutants)} that "
          f"allow themselves one more refused, all that use it; {len(run)} programs beside zero1, "
          f"{len({d for _, d in ran if d})} digests; {len(wrong)} wrong")
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
