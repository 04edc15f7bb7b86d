#!/usr/bin/env python3
"""The predicted time of a step (--emit=report) next to the measured one, as a table for RESULTS.md.

usage: predict.py HEDDLEC [--device=FILE] [--steps=30] [--only=NAME,...] [--out=DIR] [--predict]

--device: the table; by default the one in devices/ whose line `gpu` names the GPU of this machine. --predict: no
program is run, and the column of measured times stays empty. Models that need more GPUs than this machine has are left
out. Programs run with random tokens; a time is the median of the steps after the fifth. Takes about 4 minutes on two
GPUs.
Exit status: 0 unless a program fails.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPT2 = "gpt2/gpt2.hd"
LARGE = ["layers=48", "heads=25", "dim=1600", "train.batch=16"]
LLAMA = ["heads=32", "kv_heads=8"]
ONE_B = LLAMA + ["layers=16", "dim=2048", "hidden=8192", "seq=4096", "train.batch=4"]
THREE_B = ["size=3", "seq=4096", "--device-memory=77GiB"]  # on a card of 80 GB
EIGHT_B = LLAMA + ["layers=32", "dim=4096", "hidden=14336", "seq=4096", "train.batch=1", "vocab=128256"]
ZERO3 = ["schedule.fsdp=zero3", "schedule.fsdp.unit=Block", "schedule.prefetch=1", "schedule.live_grads=2"]
MODELS = {  # name: ranks, source, settings and options
    "GPT-2 124M, B=32 T=1024": (1, GPT2, []),
    "GPT-2 124M, B=4 T=1024": (1, GPT2, ["train.batch=4"]),
    "GPT-2 124M, B=1 T=512": (1, GPT2, ["train.batch=1", "seq=512"]),
    "GPT-2 124M, B=1 T=512, no graph": (1, GPT2, ["train.batch=1", "seq=512", "schedule.graph=none"]),
    "GPT-2 124M, B=8 T=1024, 4 micro-batches": (1, GPT2, ["train.batch=8", "train.accumulate=4"]),
    "GPT-2 124M, f32, B=4 T=1024": (1, GPT2, ["train.batch=4", "train.precision.compute=f32"]),
    "Llama 1.24B, B=4 T=4096": (1, "llama/llama.hd", ONE_B),
    "Llama 3B, B=1 T=4096": (1, "llama3/llama3.hd", THREE_B + ["train.batch=1"]),
    "Llama 3B, B=2 T=4096": (1, "llama3/llama3.hd", THREE_B + ["train.batch=2"]),
    "Llama 3B, B=4 T=4096": (1, "llama3/llama3.hd", THREE_B + ["train.batch=4"]),
    "GPT-2 1558M, B=16 T=1024": (1, GPT2, LARGE),
    "GPT-2 1558M, zero3, 2 ranks": (2, GPT2, LARGE + ZERO3),
    "GPT-2 1558M, zero2, 2 ranks": (2, GPT2, LARGE + ZERO3 + ["schedule.fsdp=zero2"]),
    "Llama 8B, B=1 T=4096, zero3, 2 ranks": (2, "llama/llama.hd", EIGHT_B + ZERO3),
    "GPT-2 1558M, zero3, 4 ranks": (4, GPT2, LARGE + ZERO3),
    "GPT-2 1558M, zero3, 8 ranks": (8, GPT2, LARGE + ZERO3),
}


def gpus():
    try:
        names = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True,
                               text=True)
    except OSError:
        return []
    return names.stdout.split("\n")[:-1] if names.returncode == 0 else []


def table_of(gpu):
    for path in sorted((ROOT / "devices").glob("*.dev")):
        if any(line.split(None, 1) == ["gpu", gpu] for line in path.read_text().splitlines()):
            return path
    sys.exit(f"no table in devices/ names the GPU {gpu!r}; give one with --device=FILE")


def compile_to(args, settings, ranks, source, *more):
    sets = settings + ([f"schedule.mesh.shard={ranks}"] if ranks > 1 else [])
    command = [args.heddlec, ROOT / "examples" / source, "--target=cuda", f"--device-model={args.device}", *more]
    for s in sets:
        command += [s] if s.startswith("--") else ["--set", s]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr[-800:]}")
    return done.stdout


def measure(args, work, name, ranks, source, settings):
    """Seconds of a step; None after saying why there are none."""
    binary, log = work / "program", pathlib.Path(args.out) / (name.replace(" ", "_").replace(",", "") + ".jsonl")
    compile_to(args, settings, ranks, source, "-o", binary)
    log.unlink(missing_ok=True)
    command = [binary, f"--data={work}/tokens.bin", "--format=u32", f"--steps={args.steps}", f"--log={log}"]
    command += [f"--ranks={ranks}"] if ranks > 1 else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return print(f"FAIL: {name}: not done after 300 s", file=sys.stderr)
    if done.returncode:
        return print(f"FAIL: {name}: {done.stderr[-600:]}", file=sys.stderr)
    steps = [r["seconds"] for r in map(json.loads, log.read_text().splitlines()) if "loss" in r]
    return statistics.median(steps[min(5, len(steps) // 2):])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddlec")
    parser.add_argument("--device")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default=os.environ.get("OUT", "."))
    parser.add_argument("--predict", action="store_true")
    args = parser.parse_args()
    found = gpus()
    if not args.predict and not found:
        sys.exit("no GPU here; --predict only predicts")
    args.device = args.device or (table_of(found[0]) if found else ROOT / "devices/h100.dev")
    failed, errors = False, []
    print(f"Table {args.device}; {len(found)} GPUs: {', '.join(sorted(set(found)))}\n")
    print("| | predicted | measured | error | bound by | exposed communication |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        r = random.Random(0)
        (work / "tokens.bin").write_bytes(b"".join(r.randrange(32000).to_bytes(4, "little") for _ in range(1 << 20)))
        for name, (ranks, source, settings) in MODELS.items():
            wanted = not args.only or any(o in name for o in args.only.split(","))
            if not wanted or (found and ranks > len(found)):
                continue
            report = json.loads(compile_to(args, settings, ranks, source, "--emit=report"))["predicted"]
            predicted = report["step_seconds"]
            took = None if args.predict else measure(args, work, name, ranks, source, settings)
            failed |= took is None and not args.predict
            error = f"{100 * (predicted / took - 1):+.1f} %" if took else ""
            errors += [abs(predicted / took - 1)] if took else []
            print(f"| {name} | {1e3 * predicted:.2f} ms | {f'{1e3 * took:.2f} ms' if took else ''} | {error} | "
                  f"{report['bound_by']} | {1e3 * report['exposed_communication']:.2f} ms |", flush=True)
    if errors:
        print(f"\nMedian error {100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %.")
    return 1 if failed else 0


sys.exit(main())
