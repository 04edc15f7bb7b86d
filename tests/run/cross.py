#!/usr/bin/env python3
"""Every combination of captured graphs, strategy, recomputation and offload gives the bits of its train block.

usage: cross.py ROOT HEDDLEC [--target=host|cuda] [--ranks=1,2] [--every=N] [--part] [--jobs=2] [--seconds=N]

The example GPT-2, small. Its train blocks: accumulate 1 and 3, dropout 0 and 0.1, attention's probabilities included.
Within each: graph none, step, unit, Block.attn and Block.mlp; fsdp none, zero2 and zero3; recompute none, Block.mlp and
Block; offload of nothing, of half or of all that the blocks (with recompute Block: their two parts) keep for the
backward pass. Each program trains for 6 steps, with --target=cuda for 3, and evaluates after each. All digests of one
train block, with the validation losses, have to be the same: 135 programs a block, 540 for each number of ranks.
`--every=N` takes each Nth of them; with `--part` HEDDLE_TEST_PART=N takes each seventh block of a number of ranks. On a
GPU the model is in bf16 with heads of 64, so that attention runs on tensor cores. Programs for which there is no time
are counted. Exit status 1: something failed or differed.
"""
import argparse
import hashlib
import itertools
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import part

STEPS = dict(host=6, cuda=3)
SHOWN = 20  # lines
BLOCKS = tuple(itertools.product((1, 3), (0, 0.1)))  # accumulate, dropout
GRAPHS = ("none", "step", "unit", "Block.attn", "Block.mlp")
SCHEDULES = tuple(itertools.product(GRAPHS, ("none", "zero2", "zero3"), ("none", "Block.mlp", "Block"), (0, 0.5, 1)))
SIZES = dict(host=("vocab=96", "layers=2", "dim=32", "heads=4", "seq=16"),
             cuda=("vocab=256", "layers=3", "dim=128", "heads=2", "seq=128", "train.compute=bf16"))


def call(command, env, wait):
    """Nothing where it succeeded, else what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=wait, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, **env))
    except subprocess.TimeoutExpired:
        return f"no end within {wait} s: {shlex.join(command)}"
    said = "\n  ".join(done.stderr.strip().splitlines()[-4:])
    return f"exit status {done.returncode}: {shlex.join(command)}\n  {said}" if done.returncode else None


def train(args, folder, number, ranks, block, schedule):
    """The digest of a program, and what went wrong."""
    graph, strategy, recompute, offload = schedule
    program = os.path.join(folder, f"p{number}")
    sets = [*SIZES[args.target], "train.batch=2", f"train.accumulate={block[0]}", f"drop={block[1]}",
            "schedule.fsdp.unit=Block", f"schedule.mesh.shard={ranks}", f"schedule.fsdp={strategy}",
            f"schedule.graph={graph}", f"schedule.recompute={recompute}"]
    if offload:
        places = "Block.attn,Block.mlp" if recompute == "Block" else "Block"  # not both of one and the same place
        sets += [f"schedule.offload={places}", f"schedule.offload.fraction={offload}", "schedule.offload.margin=0",
                 "schedule.offload.min_size=0"]
    build = [args.heddlec, os.path.join(args.root, "examples/gpt2/gpt2.hd"), f"--target={args.target}", "-o", program]
    data = os.path.join(folder, "text.txt")
    run = [program, f"--data={data}", f"--steps={STEPS[args.target]}", f"--ranks={ranks}", f"--digest={program}.digest",
           f"--log={program}.log", f"--val={data}", "--val-every=1", "--val-batches=1"]
    env = {"HEDDLE_CACHE": os.path.join(folder, "cache"), "HEDDLE_TUNE": "0"}
    wrong = call(build + [a for s in sets for a in ("--set", s)], env, 600) or call(run, env, 600)
    if wrong:
        return None, wrong
    with open(program + ".digest") as digest, open(program + ".log") as log:
        validated = [v["val_loss"] for v in map(json.loads, log) if "val_loss" in v]
        text = digest.read() + repr(validated)
    for path in (program, program + ".digest", program + ".log"):
        os.unlink(path)
    if len(validated) != STEPS[args.target]:
        return None, f"{len(validated)} validations in {STEPS[args.target]} steps: {shlex.join(run)}"
    return hashlib.sha256(text.encode()).hexdigest(), None


def judge(results):
    """Prints what is wrong, at most SHOWN of it, and the digest of each block; how many are wrong."""
    failed, found = 0, {}
    for (ranks, block, schedule), (digest, wrong) in results.items():
        name = f"{ranks} ranks, accumulate {block[0]}, dropout {block[1]}"
        text = "graph {}, fsdp {}, recompute {}, offload {}".format(*schedule)
        if wrong:
            failed += 1
            if failed <= SHOWN:
                print(f"{name}: {text}: {wrong}")
            continue
        first = found.setdefault(name, [digest, text, 0, 0])
        first[2] += 1
        if digest != first[0]:
            first[3] += 1
            if first[3] <= SHOWN:
                print(f"{name}: {text}: other bits than {first[1]}")
    for name, (digest, _, n, differ) in found.items():
        print(f"{name}: {n} programs, {f'{differ} differ' if differ else 'one digest, ' + digest[:16]}")
    differ = sum(f[3] for f in found.values())
    if len({f[0] for f in found.values()}) != len(found):
        print("two train blocks have one digest: it does not hold what they change")
        differ += 1
    return failed + differ


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("root")
    p.add_argument("heddlec")
    p.add_argument("--target", choices=tuple(SIZES), default="host")
    p.add_argument("--ranks", default="1,2")
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--part", action="store_true")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--seconds", type=float, default=1e9, help="no program is begun after so many")
    args = p.parse_args()
    args.heddlec = os.path.abspath(args.heddlec)
    all_of_them = [(int(r), b, s) for r in args.ranks.split(",") for b in BLOCKS for s in SCHEDULES]
    blocks = [(int(r), b) for r in args.ranks.split(",") for b in BLOCKS]
    blocks = part.of(blocks) if args.part else blocks
    chosen = [c for c in all_of_them[::args.every] if c[:2] in blocks]
    random.Random(0).shuffle(chosen)  # so that what is left out, if the time ends, is spread over all of them
    deadline = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        words = random.Random(1)
        with open(os.path.join(folder, "text.txt"), "w") as f:
            f.write("".join(words.choice("ABCDEFGHIJKLM NOPQRSTUVWXYZ\n") for _ in range(20000)))

        def one(i):
            return None if time.monotonic() > deadline else train(args, folder, i, *chosen[i])

        with ThreadPoolExecutor(args.jobs) as pool:
            results = {c: r for c, r in zip(chosen, pool.map(one, range(len(chosen)))) if r}
    wrong = judge(dict(sorted(results.items(), key=lambda x: all_of_them.index(x[0]))))
    print(f"{len(results)} of {len(chosen)} programs on {args.target}, {wrong} wrong")
    if wrong and args.part:
        print("once more:", part.repeat())
    return 1 if wrong or not results else 0


if __name__ == "__main__":
    sys.exit(main())
