#!/usr/bin/env python3
"""What checkpoints cost: tokens a second with --save-every and without, in turns, as a table for RESULTS.md.

usage: saving.py HEDDLEC [--every=50] [--steps=300] [--rounds=3] [--folder=DIR] [--set=KEY=VALUE ...]

Compiles GPT-2 124M (batch 32 unless --set says otherwise) for CUDA and trains it on random tokens. The rate counts the
tokens of all steps after the first `every`, over the time between their ends, the saves among them included. --folder:
where checkpoints go; by default a folder in memory (/dev/shm), so that the disk's rate is no part of it.
Exit status: 0 unless a program fails or a checkpoint is missing.
"""
import argparse
import array
import json
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(a, program, data, work, every):
    """The tokens a second of a run, and the seconds that the steps waited for each copy of the state."""
    log, folder = work / "log.jsonl", work / "checkpoint"
    shutil.rmtree(folder, ignore_errors=True)
    saves = [f"--save={folder}", f"--save-every={every}"] if every else []
    r = subprocess.run([program, f"--data={data}", "--format=u16", f"--steps={a.steps}", f"--log={log}", *saves],
                       stderr=subprocess.PIPE, text=True)
    copies = [float(x) for x in re.findall(r"GiB copied in ([\d.]+) s", r.stderr)]
    if r.returncode or (every and len(copies) < (a.steps - 1) // every):
        sys.exit(r.stderr)
    rows = [row for row in map(json.loads, open(log)) if "seconds" in row][a.every - 1:]  # the first one begins it
    return (rows[-1]["tokens"] - rows[0]["tokens"]) / (rows[-1]["time"] - rows[0]["time"]), copies


def measure(a, work):
    program, data = work / "gpt2", work / "tokens.bin"
    draw = random.Random(0)
    data.write_bytes(array.array("H", (draw.randrange(50257) for _ in range(1 << 20))).tobytes())
    subprocess.run([a.heddlec, ROOT / "examples/gpt2/gpt2.hd", "--target=cuda", *(f"--set={s}" for s in a.set),
                    "-o", program], check=True)
    print("| Round | tok/s without | tok/s with a save every %d steps | lost | copy, s |" % a.every)
    print("|---|---|---|---|---|")
    lost = []
    for k in range(a.rounds):
        plain, _ = run(a, program, data, work, 0)
        saved, copies = run(a, program, data, work, a.every)
        lost.append(1 - saved / plain)
        print("| %d | %.0f | %.0f | %.2f %% | %s |" % (k + 1, plain, saved, 100 * lost[-1],
                                                     ", ".join(map(str, copies))), flush=True)
    print("median lost: %.2f %%" % (100 * statistics.median(lost)))


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("heddlec")
    p.add_argument("--every", type=int, default=50)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--folder", default="/dev/shm")
    p.add_argument("--set", action="append", default=["train.batch=32"])
    a = p.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(dir=a.folder))
    try:
        return measure(a, work)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
