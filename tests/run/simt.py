#!/usr/bin/env python3
"""Programs for GPUs whose generated kernels run on the CPU (tests/simt): near the host target, and the same bits in
every order of threads and of what runs beside them.

usage: simt.py ROOT HEDDLEC FAKES FOLDER [--orders=0,1] [NAME...]

FAKES: the folder of the pretended libraries. FOLDER: keeps the kernels' libraries from run to run. An order is a value
of FAKE_CUDA_SIMT_ORDER (tests/simt/engine.h).
"""
import argparse
import os
import subprocess
import sys
import tempfile

STEPS = 2
F32, BF16 = 2e-6, 1e-4  # of the loss of the first step, relative; 50 times that of its norm and of the second step
TINY = ("examples/tiny/tiny.hd", "layers=2", "dim=32", "heads=2", "seq=16", "train.batch=2")
GPT2 = ("examples/gpt2/gpt2.hd", "vocab=256", "layers=2", "dim=128", "heads=2", "seq=128", "train.batch=2")
LLAMA = ("examples/llama/llama.hd", "vocab=256", "layers=2", "heads=4", "kv_heads=2", "dim=256", "hidden=384",
         "seq=128", "train.batch=1")
MASKS = ("tests/run/masks.hd", "train.batch=1")


def masks(*settings):
    return (BF16, "90", (*MASKS, "train.precision.compute=bf16", *settings))


# name: bound, compute capability, source and settings
PROGRAMS = {
    "tiny": (F32, "90", TINY),
    "tiny_80": (F32, "80", TINY),
    "tiny_bf16": (BF16, "90", (*TINY, "train.precision.compute=bf16")),
    # rows of logits in parts, three for some blocks
    "tiny_vocab": (BF16, "90", (TINY[0], "vocab=60000", "layers=1", "dim=32", "heads=2", "seq=70", "train.batch=4",
                                "train.precision.compute=bf16")),
    "gpt2": (BF16, "90", (*GPT2, "train.precision.compute=bf16")),
    "gpt2_f16": (BF16, "90", (*GPT2, "train.precision.compute=f16")),
    "gpt2_80": (BF16, "80", (*GPT2, "train.precision.compute=bf16")),
    "gpt2_long": (BF16, "80", (*GPT2[:2], "layers=1", "dim=128", "heads=2", "seq=300", "train.batch=1",
                               "train.precision.compute=bf16")), # tiles of keys take the places of earlier ones
    "gpt2_100": (BF16, "100", (*GPT2, "train.precision.compute=bf16")),
    "gpt2_odd": (F32, "90", (*GPT2[:2], "layers=1", "dim=60", "heads=3", "seq=37", "train.precision.compute=f32")),
    "llama": (BF16, "90", (*LLAMA, "train.precision.compute=bf16")),
    "llama_window": (BF16, "90", (*LLAMA, "window=50", "train.precision.compute=bf16")),
    "llama_f32": (F32, "90", (*LLAMA, "train.precision.compute=f32")),
    # attention on wgmma: sizes of heads, windows, documents, lengths that fill no tile, a backward pass in one kernel
    "masks_64": masks("dim=256", "seq=300", "window=100", "packed=1"),
    "masks_96": masks("dim=384", "seq=300", "window=100", "packed=1"),
    "masks_128": masks("dim=512", "seq=300", "packed=1"),
    "masks_192": masks("dim=768", "seq=200", "window=70", "packed=1"),
    "masks_256": masks("dim=1024", "seq=200", "window=100", "packed=1"),
    "causal_64": masks("dim=256", "seq=512"),
    "full_64": masks("dim=256", "seq=448", "causal=0"), # groups without queries in an item of four tiles
    # blocks with two or three items, of two tiles and of one
    "rounds_64": (BF16, "90", (MASKS[0], "dim=256", "seq=200", "train.batch=34", "train.precision.compute=bf16")),
    "causal_128": masks("dim=512", "seq=384"),
    "window_64": masks("dim=256", "seq=512", "window=129"),
    "documents_64": masks("dim=256", "seq=640", "packed=1"),
}
VALIDATED = ("tiny_bf16", "tiny_vocab")  # their digests end with a validation: cross entropy without its gradient


def steps_of(path):
    with open(path, encoding="utf-8") as f:
        rows = [line.split() for line in f]
    return [[float.fromhex(x) for x in row[1:]] for row in rows if row[0].isdigit()]


def apart(a, b):
    return abs(a - b) / abs(b)


class Tried:
    def __init__(self, args, folder, name):
        self.args, self.folder, self.name = args, folder, name
        self.bound, self.capability, (self.source, *self.settings) = PROGRAMS[name]

    def call(self, command, limit=900, **env):
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, **env))
        return None if done.returncode == 0 else f"exit status {done.returncode}: {done.stderr[-1500:]}"

    def build(self, target):
        """What went wrong."""
        args, program = self.args, os.path.join(self.folder, f"{self.name}.{target}")
        build = [args.heddlec, os.path.join(args.root, self.source), f"--target={target}", "-o", program]
        build += [f"--arch=sm_{self.capability}"] if target == "cuda" else []
        return self.call(build + [x for s in self.settings for x in ("--set", s)])

    def digest(self, target, order=0, steps=STEPS, limit=900, **more):
        """Of the program that was built: the path of the digest, and what went wrong."""
        data = os.path.join(self.args.root, "README.md")
        program, args = os.path.join(self.folder, f"{self.name}.{target}"), self.args
        digest = f"{program}.{order}" + more.get("SIMT_EDIT", "").replace("/", "_")
        env = dict(HEDDLE_CUDA_PATH=args.fakes, FAKE_CUDA_SIMT=args.kept, FAKE_CUDA_SIMT_ORDER=str(order),
                   FAKE_CUDA_CC=self.capability, HEDDLE_CACHE="off", HEDDLE_TUNE="0") if target == "cuda" else {}
        command = [program, f"--data={data}", "--format=bytes", f"--steps={steps}", f"--digest={digest}", "--seed=7"]
        if self.name in VALIDATED:
            command += [f"--val={data}", "--val-batches=1", f"--log={digest}.log"]
        why = self.call(command, limit, **env, **more)
        if not why and self.name in VALIDATED:
            with open(digest + ".log", encoding="utf-8") as log, open(digest, "a", encoding="utf-8") as out:
                out.write("".join(line for line in log if "val_loss" in line))
        return digest, why

    def wrong(self):
        digests = []
        for target in ("host", "cuda"):
            why = self.build(target)
            if why:
                return f"{target}: {why}"
        for target, order in [("host", 0)] + [("cuda", o) for o in self.args.orders]:
            path, why = self.digest(target, order)
            if why:
                return f"{target}, order {order}: {why}"
            digests.append(path)
        with open(digests[1], "rb") as f:
            first = f.read()
        for path, order in zip(digests[2:], self.args.orders[1:]):
            with open(path, "rb") as f:
                if f.read() != first:
                    return f"orders {self.args.orders[0]} and {order} differ"
        here, there = steps_of(digests[1]), steps_of(digests[0])
        off = [[apart(x, y) for x, y in zip(a, b)] for a, b in zip(here, there)]
        print(f"{self.name}: off by {off[0][0]:.1e}, norm {off[0][1]:.1e}, then {off[1][0]:.1e}", flush=True)
        if len(here) != STEPS or off[0][0] > self.bound or max(off[0][1], off[1][0]) > 50 * self.bound:
            return f"{here} is not near the host's {there}"
        return None


def main():
    parser = argparse.ArgumentParser()
    for name in ("root", "heddlec", "fakes", "kept"):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument("--orders", type=lambda text: text.split(","), default=["0", "1"])
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    failed = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.names or PROGRAMS:
            why = Tried(args, folder, name).wrong()
            if why:
                failed[name] = why
                print(f"{name}: {why}", flush=True)
    print(f"{len(args.names or PROGRAMS)} programs, failed: {' '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
