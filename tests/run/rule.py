#!/usr/bin/env python3
"""The rule over ranks: for one mesh, one train block and one seed, every schedule gives the same bits.

usage: rule.py ROOT HEDDLEC [--quick] [--jobs=2] [--only=TEXT] [--keep=FOLDER] [--list]

A class is a model, with or without dropout, with the loss whole or in two chunks, with products separate or merged, a
mesh, a compute dtype, a number of micro-batches, the order in which they and the ranks are added up (train.reduce) and
an ownership (which parameters are one unit).
Its programs differ in strategy, prefetch, live_grads, capture, recomputation, how much is offloaded, in
whether micro-batches overlap, in whether weight gradients have a stream of their own, in what gathered weights come
from and in how the units are written. Half of them run
with streams that are late at random. They run straight through, without graphs, or resumed from a checkpoint that
another program of the class wrote. Their digests (exact losses and norms of every step, a hash of every parameter) and
the validation loss after every step must be the same. Classes, and programs of a class, cover every pair of choices. In
f32 the losses also agree with one rank on the same global batch, to a relative 1e-5.

HEDDLE_TEST_PART=N takes each seventh class (part.py).
"""
import argparse
import itertools
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import part

STEPS, SAVED = 4, 2  # steps of a run; resumed runs go on behind SAVED
BATCH = 2
TIMEOUT = 600
OPTIMISED = 12  # each so many programs of a class is built with -O3

# `units`: ownerships; each is written in two ways that give every parameter to the same unit.
MODELS = dict(
    gpt2=dict(file="examples/gpt2/gpt2.hd", drop=0.1,
              recompute=("none", "auto", "Block.mlp.act", "Block.attn,Block.ln1"),
              graph="Block.attn,Block.mlp", offload="Block",
              sets=dict(vocab=96, layers=2, dim=32, heads=4, seq=16),
              units=(("Block", "Block"), ("Block,Attention,Mlp", "Mlp,Attention,Block"), ("none", "none"))),
    llama=dict(file="examples/llama/llama.hd", recompute=("none", "auto", "Block.mlp.act", "Block"),
               graph="Block.attn,Block[1].mlp.act", offload="Block.attn,Block.mlp",
               sets=dict(vocab=80, layers=3, dim=24, heads=6, kv_heads=2, hidden=40, seq=12),
               units=(("Block,Linear", "Linear,Block"), ("SwiGLU,Embedding", "Embedding,SwiGLU"))),
    uneven=dict(file="tests/run/uneven.hd", recompute=("none", "Wide.act", "Squeeze"), sets=dict(),
                graph="Wide,Squeeze", offload="Wide,Thin",
                units=(("Wide,Squeeze,Thin", "Thin,Still,Wide,Squeeze"), ("Squeeze,Wide", "Wide,Still,Squeeze"))))
MESHES = ((1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (2, 2), (4, 2))  # shard, replicate
STRATEGIES = ("none", "zero1", "zero2", "zero3")
OFFLOADED = (0, 0.5, 1)  # of what the backward pass reads in the places `offload`
WEIGHTS = ("copy", "master")  # what is gathered
GRADS = ("off", "on")  # weight gradients beside the backward pass
MODES = ("straight", "no-graph", "resumed")


def covering(factors, seed, first=None):
    """Few combinations in which every pair of choices of every two factors occurs: greedy, the best of some random
    candidates."""
    rng = random.Random(seed)
    missing = {((a, x), (b, y)) for a, b in itertools.combinations(range(len(factors)), 2) for x in factors[a]
               for y in factors[b]}
    pairs = lambda row: {((a, row[a]), (b, row[b])) for a, b in itertools.combinations(range(len(row)), 2)}
    rows = [first] if first else []
    for row in rows:
        missing -= pairs(row)
    while missing:
        candidates = []
        for _ in range(40):
            row = [rng.choice(f) for f in factors]
            (a, x), (b, y) = rng.choice(sorted(missing, key=repr))
            row[a], row[b] = x, y
            candidates.append(tuple(row))
        best = max(candidates, key=lambda row: len(pairs(row) & missing))
        rows.append(best)
        missing -= pairs(best)
    return rows


class Class:
    """The programs of one mesh, train block and ownership."""

    def __init__(self, model, mesh, compute, accumulate, reduce, clip, units, seed, few=False):
        m = MODELS[model]
        self.model, self.mesh, self.compute, self.accumulate = model, mesh, compute, accumulate
        self.ranks = mesh[0] * mesh[1]
        self.spellings = m["units"][units % len(m["units"])]
        units = self.spellings[0].replace(",", "+")
        self.name = f"{model}-{mesh[0]}x{mesh[1]}-{compute}-accumulate{accumulate}-{reduce}-clip{clip}-{units}"
        self.sets = [f"{k}={v}" for k, v in m["sets"].items()]
        if "drop" in m and (seed % 2 == 0 or accumulate > 1):  # of attention, too
            self.name += f"-drop{m['drop']}"
            self.sets.append(f"drop={m['drop']}")
        if seed % 2 == 0:
            self.name += "-chunks2"
            self.sets.append("train.loss_chunks=2")
        if model == "llama" and seed // 2 % 2:
            self.name += "-merged"
            self.sets.append("train.products=merged")
        if compute == "bf16" and seed % 3 == 0:
            self.name += "-master16"
            self.sets.append("train.precision.master=bf16")
        if compute == "bf16" and seed % 3 == 1:
            self.name += "-kahan"
            self.sets += ["train.precision.master=kahan", "train.precision.moments=bf16"]
        self.sets += [f"train.compute={compute}", f"train.accumulate={accumulate}", f"train.reduce={reduce}",
                      f"train.clip={clip}",
                      "train.lr=1e-2", "train.warmup=0"]
        self.file = m["file"]
        graphs = ("step", "none", "unit", m["graph"])
        factors = (STRATEGIES, (0, 1, 2, 3), (1, 2, 3), graphs, m["recompute"], OFFLOADED, (0, 1), MODES, ("on", "off"),
                   WEIGHTS, GRADS)
        if few:
            factors = (STRATEGIES, (1,), (2,), graphs, ("none",), OFFLOADED, (0, 1), MODES, ("on",), WEIGHTS, GRADS)
        rows = covering(factors, seed, first=("none", 1, 2, "step", "none", 0, 0, "straight", "on", "copy", "off"))
        self.programs = [Program(self, i, *row) for i, row in enumerate(rows)]
        self.alone = None
        if compute == "f32" and self.ranks > 1:
            self.alone = Program(self, len(rows), "none", 1, 2, "step", "none", 0, 0, "straight", "on", "copy",
                                 "off", alone=True)


class Program:
    def __init__(self, c, number, strategy, prefetch, live_grads, graph, recompute, offload, spelling, mode, overlap,
                 weights, grads, alone=False):
        self.c, self.number, self.strategy, self.mode = c, number, strategy, mode
        self.ranks = 1 if alone else c.ranks
        shard, replicate = (1, 1) if alone else c.mesh
        self.sets = c.sets + [
            f"train.batch={BATCH * c.ranks if alone else BATCH}",
            f"schedule.mesh.shard={shard}", f"schedule.mesh.replicate={replicate}", f"schedule.fsdp={strategy}",
            f"schedule.prefetch={prefetch}", f"schedule.live_grads={live_grads}", f"schedule.graph={graph}",
            f"schedule.overlap_micro={overlap}", f"schedule.fsdp.weights={weights}", f"schedule.overlap_grads={grads}",
            f"schedule.recompute={recompute}", f"schedule.fsdp.unit={c.spellings[spelling]}"]
        if offload:
            self.sets += [f"schedule.offload={MODELS[c.model]['offload']}", f"schedule.offload.fraction={offload}",
                          "schedule.offload.margin=0", "schedule.offload.min_size=0"]
        self.text = (f"{strategy} prefetch={prefetch} live_grads={live_grads} graph={graph} overlap_micro={overlap} "
                     f"overlap_grads={grads} weights={weights} "
                     f"recompute={recompute} offload={offload} unit={c.spellings[spelling]} {mode}")
        self.wrong = None
        self.digest = []

    def path(self, what):
        return os.path.join(T.folder, f"{self.c.name}.{self.number}.{what}")

    def build(self):
        command = [T.heddlec, os.path.join(T.root, self.c.file), "-o", self.path("bin")]
        for s in self.sets:
            command += ["--set", s]
        optimised = self.number % OPTIMISED == 0  # the others are built in a quarter of the time, for the same bits
        self.built = call(command, self, {} if optimised else {"CC": T.quick_cc})

    def run(self, *options):
        late = {"HEDDLE_DELAY": "100"} if self.number % 2 else {}
        return call([self.path("bin"), f"--data={T.data}", f"--ranks={self.ranks}", *options], self, late)

    def save(self, folder):
        return self.run(f"--steps={SAVED}", f"--save={folder}", "--overwrite")

    def train(self, partner):
        """`partner` wrote the checkpoint from which a resumed program continues."""
        options = [f"--steps={STEPS}", f"--digest={self.path('digest')}", f"--log={self.path('log')}",
                   f"--val={T.data}", "--val-every=1", "--val-batches=2"]
        if self.mode == "no-graph":
            options.append("--no-graph")
        if self.mode == "resumed":
            folder = self.path("checkpoint")
            if not partner.save(folder):
                self.wrong = self.wrong or f"its partner failed: {partner.wrong}"
                return
            options.append(f"--resume={folder}")
        if self.run(*options):
            with open(self.path("digest")) as f:
                self.digest = f.read().splitlines()
            with open(self.path("log")) as f:  # the validation loss of step n belongs to line n of the digest
                validations = {v["step"]: v["val_loss"] for v in map(json.loads, f) if "val_loss" in v}
            self.digest = [f"{line} val {validations.get(int(line.split()[0]))!r}" if line[:1].isdigit() else line
                           for line in self.digest]


class T:
    root = heddlec = folder = data = ""
    quick_cc = ""


def call(command, program, environment):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, **environment))
    except subprocess.TimeoutExpired:
        program.wrong = f"no end within {TIMEOUT} s\n  {shlex.join(command)}"
        return False
    if done.returncode:
        said = "\n  ".join(done.stderr.strip().splitlines()[-4:])
        program.wrong = f"exit status {done.returncode}\n  {shlex.join(command)}\n  {said}"
    return done.returncode == 0


def make_classes(quick):
    factors = (tuple(MODELS), MESHES, ("f32", "bf16", "f16"), (1, 3), ("last", "each"), ("0.02", "0"), (0, 1, 2))
    rows = covering(factors, 1)
    if quick:
        rows = [("uneven", (3, 1), "f32", 3, order, "0.02", 0) for order in ("last", "each")]
    return [Class(*row, seed=1 + i, few=quick) for i, row in enumerate(rows)]


# --- judging

def first_difference(a, b):
    for x, y in zip(a, b):
        if x != y:
            return f"{x!r} instead of {y!r}"
    return f"{len(a)} lines instead of {len(b)}"


def numbers(line):
    return [float.fromhex(x) for x in line.split()[1:3]]


def judge_class(c):
    """What is wrong with a class, as lines."""
    wrong = []
    reference = None
    for p in c.programs:
        if p.wrong:
            wrong.append(f"{p.text}: {p.wrong}")
        elif p.mode != "resumed" and not reference:
            reference = p
    for p in c.programs:
        if p.wrong or not reference:
            continue
        expected = reference.digest[SAVED:] if p.mode == "resumed" else reference.digest
        if p.digest != expected:
            wrong.append(f"{p.text}: {first_difference(p.digest, expected)}, as {reference.text} has it\n"
                         f"  {p.path('bin')}\n  {reference.path('bin')}")
    if c.alone and c.alone.wrong:
        wrong.append(f"one rank: {c.alone.wrong}")
    alone = c.alone and not c.alone.wrong and reference
    for many, one in zip(reference.digest[:STEPS], c.alone.digest[:STEPS]) if alone else ():
        (loss, norm), (loss1, norm1) = numbers(many), numbers(one)
        if not abs(loss - loss1) <= 1e-5 * abs(loss1) or not abs(norm - norm1) <= 1e-4 * abs(norm1):
            wrong.append(f"{reference.text}: loss {loss!r} and norm {norm!r} in step {many.split()[0]}; "
                         f"one rank has {loss1!r} and {norm1!r}")
            break
    c.reference = reference
    return wrong


def judge_test(classes):
    """The test itself: digests that hold something, and differ between classes."""
    wrong = []
    seen = {}
    for c in classes:
        p = c.reference
        if not p:
            continue
        text = "\n".join(p.digest)
        steps = [line.split()[1] for line in p.digest[:STEPS]]
        if len(set(steps)) != STEPS or not any(line.startswith("param ") for line in p.digest):
            wrong.append(f"{c.name}: the digest shows no training: {steps}")
        name = c.name if c.accumulate > 1 and c.mesh[0] > 1 else c.name.replace("-last", "-each")  # one sum: one order
        if seen.setdefault(text, name) != name:
            wrong.append(f"{c.name} has the digest of {seen[text]}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("heddlec")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", default="")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    classes = make_classes(args.quick)
    classes = [c for c in (classes if args.quick or args.only else part.of(classes)) if args.only in c.name]
    programs = [p for c in classes for p in c.programs + [c.alone] * (c.alone is not None)]
    print(f"{len(classes)} classes, {len(programs)} programs; {part.told()}")
    if args.list:
        for p in programs:
            print(f"{p.c.name}: {'one rank' if p is p.c.alone else p.text}")
        return 0
    T.root, T.heddlec = os.path.abspath(args.root), os.path.abspath(args.heddlec)
    T.folder = args.keep or tempfile.mkdtemp(prefix="heddle-rule-")
    os.makedirs(T.folder, exist_ok=True)
    T.quick_cc = os.path.join(T.folder, "quick-cc")
    with open(T.quick_cc, "w") as f:
        gold = "-fuse-ld=gold" if shutil.which("ld.gold") else ""
        quick = os.path.join(T.root, "tests", "quick_cc.sh")
        f.write(f'#!/bin/sh\nexec {os.environ.get("CC", quick)} "$@" -O0 {gold}\n')
    os.chmod(T.quick_cc, 0o755)
    T.data = os.path.join(T.folder, "tokens.bin")
    rng = random.Random(7)
    with open(T.data, "wb") as f:  # u16 tokens that every vocabulary has
        f.write(b"".join(rng.randrange(37).to_bytes(2, "little") for _ in range(20000)))
    wrong = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(Program.build, programs))
        built = [p for p in programs if p.built]
        partners = {}
        for c in classes:
            mates = [p for p in c.programs if p.built]
            for i, p in enumerate(mates):
                partners[p] = mates[i - 1]
        list(pool.map(lambda p: p.train(partners.get(p)), built))
    for c in classes:
        found = judge_class(c)
        wrong += len(found)
        print(f"{c.name}: {len(c.programs)} programs, {'all agree' if not found else f'{len(found)} wrong'}")
        for line in found[:6]:
            print(f" {line}")
    for line in judge_test(classes):
        wrong += 1
        print(line)
    if not args.keep:
        shutil.rmtree(T.folder, ignore_errors=True)
    print(f"failed; once more: {part.repeat()}" if wrong else "ok")
    return 1 if wrong or not classes else 0


sys.exit(main())
