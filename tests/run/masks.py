#!/usr/bin/env python3
"""Attention with windows, documents, softcap and a sink against the same written out as products and a softmax of
masked scores: two programs for the host, whose losses and gradient norms must agree step by step.
Usage: masks.py ROOT HEDDLEC

The data are made here. Every mask shows only if the data tell it from the others: a window of 70 inside documents needs
documents that are longer.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

STEPS = 5
BOUND = 1e-5  # of losses and norms in f32, whose sums have other orders; every other mask is further away
MASKS = (("a window", ["window=9"]), ("documents", ["packed=1"]), ("both", ["packed=1", "window=70"]),
         ("a window of one", ["window=1"]), ("neither", []), ("no mask", ["causal=0"]),
         ("both, softcap and a sink", ["packed=1", "window=70", "softcap=0.7"]),
         ("softcap and a sink", ["causal=0", "softcap=1.5"]))

DOCUMENTS = (150, 5, 200, 1, 17)  # bytes each, over and over


def data():
    """Documents of small letters, each of which ends with a full stop."""
    letters = random.Random(1)
    return b"".join(bytes(letters.choices(range(ord("a"), ord("z") + 1), k=DOCUMENTS[i % len(DOCUMENTS)] - 1)) + b"."
                    for i in range(100))


def train(root, compiler, folder, settings):
    program = os.path.join(folder, "program")
    args = [compiler, os.path.join(root, "tests/run/masks.hd"), "-o", program]
    for s in settings:
        args += ["--set", s]
    subprocess.run(args, check=True)
    log = os.path.join(folder, "log")
    subprocess.run([program, f"--data={os.path.join(folder, 'data')}", "--format=bytes", f"--steps={STEPS}",
                    f"--log={log}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(log) as f:
        lines = [json.loads(line) for line in f]
    return [x for line in lines if "loss" in line and "grad_norm" in line for x in (line["loss"], line["grad_norm"])]


def apart(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def main():
    root, compiler = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    wrong, seen = 0, []
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "data"), "wb") as f:
            f.write(data())
        for name, settings in MASKS:
            fused = train(root, compiler, folder, settings)
            plain = train(root, compiler, folder, settings + ["fused=0"])
            off = apart(fused, plain)
            nearest = min((apart(fused, other) for other in seen), default=1)
            good = len(fused) == len(plain) == 2 * STEPS and off < BOUND < nearest
            print(f"{'ok  ' if good else 'FAIL'} {name}: {off:.1e} from the one written out, {nearest:.1e} from others")
            wrong += not good
            seen.append(fused)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
