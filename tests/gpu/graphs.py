#!/usr/bin/env python3
"""Capture on a GPU: the same bits under every mode of `graph`, and what each mode costs.

usage: graphs.py [BUILD] [--seconds=280] [--steps=40] [--no-times] [--gpus=N]

Needs heddlec and a C compiler. Digests: a small GPT-2 under graph none, step, unit, Block.attn + Block.mlp and
one `let`, with recompute none, Block.mlp.act and Block; with two GPUs or more also over two ranks with fsdp none, zero2
and zero3; and with --no-graph and --check. All programs of one number of ranks must write the same digest. Times: GPT-2
124M, B=32 T=1024 and B=1 T=512, under none, step, unit and Block.attn + Block.mlp, in turns; and 2,000 steps of the
example tiny under each of them, resumed in the middle, with the memory in use. One table at the end; exit status 1 when
anything failed. Cases without time are left out and named.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GRAPHS = ("none", "step", "unit", "Block.attn,Block.mlp", "Block.mlp.act")
SMALL = ("layers=3", "dim=256", "heads=4", "seq=128", "vocab=256", "train.batch=2", "train.accumulate=2",
         "schedule.fsdp.unit=Block")
SHAPES = (("B=32 T=1024", ("train.batch=32", "seq=1024")), ("B=1 T=512", ("train.batch=1", "seq=512")))
failures, left_out = [], []


def call(command, **env):
    left = deadline - time.monotonic()
    if left < 5:
        return None
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=min(left, 90), stdin=subprocess.DEVNULL,
                              env=dict(os.environ, HEDDLE_CACHE=os.path.join(folder, "cache"), **env))
    except subprocess.TimeoutExpired:
        return None


def build(name, sets, model="gpt2"):
    command = [os.path.join(args.build, "bin", "heddlec"), os.path.join(ROOT, f"examples/{model}/{model}.hd"),
               "--target=cuda", "-o", os.path.join(folder, name)]
    for s in sets:
        command += ["--set", s]
    done = call(command)
    if done and done.returncode:
        failures.append(f"{' '.join(sets)}: {done.stderr.strip()[-400:]}")
    return done is not None and done.returncode == 0


def train(name, what, *options, **env):
    """The standard error of a run; None where it failed or there was no time."""
    done = call([os.path.join(folder, name), *options], HEDDLE_VERBOSE="1", **env)
    if done is None:
        left_out.append(what)
        return None
    if done.returncode:
        failures.append(f"{what}: {done.stderr.strip()[-400:]}")
        return None
    if "continuing without this graph" in done.stderr:
        failures.append(f"{what}: {[l for l in done.stderr.splitlines() if 'without this graph' in l][0]}")
    return done.stderr


def digest(name, what, ranks, *options):
    path = os.path.join(folder, "digest")
    if train(name, what, f"--data={folder}/text.txt", f"--val={folder}/text.txt", "--val-every=1", "--val-batches=2",
             "--steps=4", f"--ranks={ranks}", f"--digest={path}", *options) is None:
        return None
    with open(path) as f:
        return f.read()


def compare(ranks, strategies):
    """How many programs agree, of how many."""
    first, agree, all_of_them = None, 0, 0
    for fsdp in strategies:
        for recompute in ("none", "Block.mlp.act", "Block"):
            for graph in GRAPHS:
                what = f"{ranks} ranks, fsdp {fsdp}, recompute {recompute}, graph {graph}"
                if time.monotonic() > deadline - 10:
                    left_out.append(what)
                    continue
                if not build("small", (*SMALL, f"schedule.mesh.shard={ranks}", f"schedule.fsdp={fsdp}",
                                       f"schedule.recompute={recompute}", f"schedule.graph={graph}")):
                    continue
                modes = [()] if recompute != "none" or graph == "none" else [(), ("--no-graph",), ("--check",)]
                for options in modes:
                    found = digest("small", f"{what} {' '.join(options)}", ranks, *options)
                    if found is None:
                        continue
                    all_of_them += 1
                    first = first or found
                    agree += found == first
                    if found != first:
                        failures.append(f"{what} {' '.join(options)}: another digest")
    return f"{agree} of {all_of_them} runs over {ranks} rank{'s' * (ranks > 1)} wrote the same digest"


def long_runs():
    """2,000 steps of the example tiny under each mode: one digest, also resumed in the middle, and as much memory in
    use at the end of them as after 100 steps."""
    first, agree, runs, flat = None, 0, 0, 0
    for graph in GRAPHS[:4]:
        what = f"tiny, graph {graph}"
        if not build("tiny", (f"schedule.graph={graph}", "schedule.fsdp.unit=Block"), "tiny"):
            left_out.append(what)
            continue
        data = f"--data={folder}/text.txt"
        short = train("tiny", f"{what}, 100 steps", data, "--steps=100")
        whole = train("tiny", f"{what}, 2000 steps", data, "--steps=2000", f"--digest={folder}/whole")
        half = train("tiny", f"{what}, 1000 steps", data, "--steps=1000", f"--save={folder}/half-{graph[:5]}")
        rest = half and train("tiny", f"{what}, resumed", data, "--steps=2000", f"--resume={folder}/half-{graph[:5]}",
                              f"--digest={folder}/rest")
        if not (short and whole and rest):
            continue
        used = [re.search(r"device memory of rank 0.*", said).group() for said in (short, whole)]
        flat += used[0] == used[1]
        if used[0] != used[1]:
            failures.append(f"{what}: memory after 100 steps: {used[0]}; after 2,000: {used[1]}")
        with open(f"{folder}/whole") as f, open(f"{folder}/rest") as g:
            found, resumed = f.read().splitlines(), g.read().splitlines()
        first = first or found
        runs += 2
        agree += (found == first) + (resumed == first[1000:])
        if found != first or resumed != first[1000:]:
            failures.append(f"{what}: another digest")
    return (f"tiny, 2,000 steps: {agree} of {runs} digests agree; memory as after 100 steps in {flat} of {runs // 2} "
            "modes")


def measure():
    """Rows of (shape, graph, regions, milliseconds, MiB planned, MiB of graphs and the rest)."""
    rows = {}
    for turn in range(2):
        for shape, sets in SHAPES:
            for i, graph in enumerate(GRAPHS[:4]):
                name, what = f"gpt2-{sets[0][12:]}-{i}", f"{shape}, graph {graph}, turn {turn}"
                if not turn and not build(name, (*sets, "schedule.fsdp.unit=Block", f"schedule.graph={graph}")):
                    left_out.append(what)
                    continue
                log = os.path.join(folder, "log")
                said = train(name, what, f"--data={folder}/tokens.bin", f"--steps={args.steps}", f"--log={log}")
                if said is None:
                    continue
                with open(log) as f:
                    steps = [r["seconds"] for r in map(json.loads, f) if "loss" in r][args.steps // 4:]
                memory = re.search(r"([\d.]+) MiB planned.*graphs and the rest (-?[\d.]+)", said)
                graphs = len(re.findall(r"^graph ", said, re.M))
                row = rows.setdefault((shape, graph), [graphs, 1e9, *map(float, memory.groups() if memory else (0, 0))])
                row[1] = min(row[1], 1e3 * statistics.median(steps))
    return rows


def main():
    global args, deadline, folder
    p = argparse.ArgumentParser()
    p.add_argument("build", nargs="?", default=os.path.join(ROOT, "build"))
    p.add_argument("--seconds", type=float, default=280)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--no-times", action="store_true")
    p.add_argument("--gpus", type=int, default=0, help="how many there are; else nvidia-smi says it")
    args = p.parse_args()
    deadline = end = time.monotonic() + args.seconds
    gpus = args.gpus or subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text.txt"), "w") as f:
            f.write("the quick brown fox jumps over the lazy dog; " * 4000)
        with open(os.path.join(folder, "tokens.bin"), "wb") as f:
            f.write(b"".join((i * 7919 % 50257).to_bytes(2, "little") for i in range(1 << 20)))
        rows = {} if args.no_times else measure()
        deadline = end if gpus < 2 else time.monotonic() + (end - time.monotonic()) / 3
        agreements = [compare(1, ("none",)), long_runs()]
        deadline = end
        if gpus > 1:
            agreements.append(compare(2, ("none", "zero2", "zero3")))
    print(f"{'GPT-2 124M':<14} {'graph':<22} {'graphs':>6} {'ms a step':>10} {'to step':>8} {'MiB planned':>12} "
          f"{'MiB besides':>12}")
    for (shape, graph), (n, ms, planned, rest) in rows.items():
        base = rows.get((shape, "step"))
        print(f"{shape:<14} {graph:<22} {n:>6} {ms:>10.3f} {ms / base[1] - 1 if base else 0:>+8.2%} {planned:>12.1f} "
              f"{rest:>12.1f}")
    print(*agreements, sep="\n")
    for what in left_out:
        print("left out:", what)
    for what in failures:
        print("FAIL:", what)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
