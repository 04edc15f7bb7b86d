#!/usr/bin/env python3
"""Programs for GPUs whose generated kernels run on the CPU (tests/simt): near the host target, and the same bits in
every order of threads and of what runs beside them.

usage: simt.py ROOT HEDDLEC FAKES FOLDER [--orders=0,1] [--races] [--but] [NAME...]

--but: all programs but those that are named. With --but or --races HEDDLE_TEST_PART=N takes each seventh (part.py).
FAKES: the folder of the pretended libraries. FOLDER: keeps the kernels' libraries from run to run. An order is a value
of FAKE_CUDA_SIMT_ORDER (tests/simt/engine.h). --races: one step in order 0 that ends with an error where two threads
use the same bytes and nothing orders them (tests/simt/races.h).
"""
import argparse
import array
import glob
import json
import math
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile

import part

STEPS = 2
ROWS = 16  # of a matrix whose gradients are compared together: those of a head of q are far smaller than those of v
# Bounds of relative errors: of the loss of the first step (50 times that: of its norm and of the second step), and of
# the gradient of the first step, in the Euclidean norm, of every vector and every ROWS rows of a matrix.
#
# Gradients of bf16: host and program round the same values, and attention's kernels round also the probabilities and
# their gradients that go into products. A rounding is off by 0.41 * 2^-8 = 1.6e-3 in the root mean square
# (tests/numeric/bounds.def), and each changes last bits of what follows, so that k of them in a chain come to
# sqrt(k) * 1.6e-3. Measured: 9.0e-3 in two layers and 3.3e-3 in the one of masks.hd, in f16 8.8e-4 (6.1e-3 without the
# scale of the loss), in f32 8.4e-7, at most. The largest are those of q and k. Without the keys of one tile in dq the
# rows of wq are off by 5e-1 and more, while loss and norm stay within 4e-5.
#
# e4m3 in f32: host and program add up in other orders, so that values differ by some 8.4e-7 of their size. Neighbours
# of e4m3 differ by some 0.09. So a share of 8.4e-7 / 0.09 is rounded to another neighbour, which comes to
# sqrt(8.4e-7 * 0.09) = 2.7e-4 in the root mean square. Measured: 2.7e-5.
#
# Of a gradient that e4m3 makes of 128 tokens, a share of 9e-6 of the elements of both factors is rounded to another
# neighbour: one or none. It moves by 2^-3 of itself at most. One of the first factor is in a row of the gradient alone,
# one of the second in a column. So a matrix without the row and the column that are farthest off has the bound of f32.
# With them 16 rows of 128 columns move by 2^-3 / sqrt(2048) = 2.8e-3, if the element is as large as the others.
# Measured with scales of blocks: 3.4e-4, all of it in column 172 of one matrix, 5.1e-5 in row 120 of another, and
# without these 6.0e-7 at most.
#
# e4m3 in bf16: values that differ by a rounding, 1.6e-3, are rounded to other neighbours in the same way, which comes
# to sqrt(1.6e-3 * 0.09) = 1.2e-2. A layer quantises four activations (of both norms, attention and GELU), two layers
# eight: sqrt(8) * 1.2e-2 = 3.4e-2. Measured: 1.6e-2. The gradients of host and program, all together, are equally far,
# 1.3e-2, from those of the same e4m3 products computed in f32, and 6.0e-3 from each other.
#
# State-space duality: the gradients of a head's rate and of its steps are sums over the rows of a chunk less sums over
# its columns. The two mostly cancel, so that the difference keeps their errors at a smaller size. The host alone shows
# how much: with chunks of 7, 16, 30, 45 and 90 positions it moves those two gradients of this program by 2.7e-6 to
# 1.1e-5 of their norm, and every other one by 7.8e-7 at most. So their errors count a tenth, and the bound is that of
# f32. Measured on the emulator: 5.4e-6, and 1.0e-6 at most for the others.
# Moments in bf16: values that differ by 8.4e-7 are rounded to other neighbours, 2^-8 apart, which comes to
# sqrt(8.4e-7 * 2^-8) = 5.7e-5.
CANCELLING = {"ssd": ("dt_bias", "rate")}
F32 = 2e-6, 2e-6
FP8 = 2e-6, 2.7e-4
FP8_TOKENS = 2e-6, 2.8e-3
FLIPPED = {"llama_block": F32[1]}  # without a row and a column
MOMENTS = 2e-6, 1.2e-4
FP8_BF16 = 1e-4, 3.4e-2
BF16 = 1e-4, 1.5e-2
F16 = 1e-5, 2e-3
MASKED = 1e-4, 5e-3
TINY = ("examples/tiny/tiny.hd", "layers=2", "dim=32", "heads=2", "seq=16", "train.batch=2")
GPT2 = ("examples/gpt2/gpt2.hd", "vocab=256", "layers=2", "dim=128", "heads=2", "seq=128", "train.batch=2")
LLAMA = ("examples/llama/llama.hd", "vocab=256", "layers=2", "heads=4", "kv_heads=2", "dim=256", "hidden=384",
         "seq=128", "train.batch=1")
KAHAN = ("train.precision.master=kahan", "train.precision.moments=bf16", "train.betas=0.9,0.95")
MOE = ("examples/moe/olmoe.hd", "layers=1", "dim=32", "heads=2", "seq=48", "inner=24", "experts=5", "active=2",
       "train.batch=2")
MASKS = ("tests/run/masks.hd", "train.batch=1")
SSD = ("tests/run/ssd.hd", "layers=1", "seq=90", "chunk=70", "packed=1", "train.batch=1")
SSD_CORES = ("tests/run/ssd.hd", "layers=1", "dim=64", "heads=4", "width=64", "seq=150", "chunk=64", "train.batch=1",
             "train.precision.compute=bf16")

OVER = ("tests/run/routed.hd", "layers=2", "scale=20", "seq=150", "train.batch=1", "schedule.mesh.expert=3",
        "schedule.experts=exchange")


def masks(*settings):
    return (MASKED, "90", (*MASKS, "train.precision.compute=bf16", *settings))


# name: bounds, compute capability, source and settings
PROGRAMS = {
    "tiny": (F32, "90", (*TINY, "schedule.logits=on")),
    # texts with keys shared among heads, rotary positions, and few of the tokens before
    "llama_text": (F32, "90", (LLAMA[0], "vocab=256", "layers=1", "heads=4", "kv_heads=2", "dim=32", "hidden=48",
                               "seq=16", "window=5", "train.batch=2", "train.precision.compute=f32",
                               "schedule.logits=on")),
    "tiny_80": (F32, "80", TINY),
    "muon": (F32, "90", ("tests/run/muon.hd", "vocab=256")),
    # products of as many matrices as a rank has of a unit, by the algorithm for those of all units
    "muon_ranks": (F32, "90", ("tests/run/muon.hd", "vocab=256", "schedule.mesh.shard=2", "schedule.fsdp=zero3")),
    # symmetric products: tiles that end outside, and sums of stages that the ring has in other places
    "muon_half": (F32, "90", ("tests/run/muon_half.hd", "vocab=256", "dim=200", "hidden=296")),
    "adafactor": (F32, "90", ("tests/run/adafactor.hd", "vocab=256")),
    "tiny_moments": (MOMENTS, "90", (*TINY, "train.betas=0.9,0.95", "train.precision.moments=bf16")),
    "tiny_bf16": (BF16, "90", (*TINY, "train.precision.compute=bf16", "train.precision.master=bf16")),
    # rows of logits in parts, three for some blocks
    "tiny_vocab": (BF16, "90", (TINY[0], "vocab=60000", "layers=1", "dim=32", "heads=2", "seq=70", "train.batch=4",
                                "train.precision.compute=bf16")),
    # blocks whose warps take four rows, one after the other
    "tiny_rows": (BF16, "90", (TINY[0], "layers=1", "dim=32", "heads=2", "seq=16", "train.batch=512",
                               "train.precision.compute=bf16")),
    "gpt2": (BF16, "90", (*GPT2, "train.precision.compute=bf16")),
    "gpt2_f16": (F16, "90", (*GPT2, "train.precision.compute=f16")),
    "tiny_fp8": (FP8, "90", (*TINY, "train.precision.compute=f32", "train.precision.fp8=Block",
                             "train.precision.fp8.backward=e5m2")),
    # the gradients of gate and up are quantised in two parts, by the kernel that makes them, and those of weights are
    # products of bytes
    "llama_fp8": (FP8, "90", (LLAMA[0], "vocab=256", "layers=2", "heads=2", "kv_heads=1", "dim=64", "hidden=96",
                              "seq=16", "train.batch=2", "train.precision.compute=f32", "train.products=merged",
                              "train.precision.fp8=Block", "train.precision.fp8.backward=e4m3",
                              "train.precision.fp8.weight_grads=fp8")),
    # scales of blocks: of rows, of squares with zeros after a row's, and along the tokens
    "llama_block": (FP8_TOKENS, "90", (
        LLAMA[0], "vocab=256", "layers=1", "heads=2", "kv_heads=2", "dim=128", "hidden=256", "seq=64", "train.batch=2",
        "train.precision.compute=f32", "train.precision.fp8=Block", "train.precision.fp8.scale=block",
        "train.precision.fp8.backward=e4m3", "train.precision.fp8.weight_grads=fp8")),
    "tiny_fp8_bf16": (FP8_BF16, "90", (*TINY, "train.precision.compute=bf16", "train.precision.fp8=Block", *KAHAN)),
    "gpt2_80": (BF16, "80", (*GPT2, "train.precision.compute=bf16")),
    "gpt2_long": (BF16, "80", (*GPT2[:2], "layers=1", "dim=128", "heads=2", "seq=300", "train.batch=1",
                               "train.precision.compute=bf16")), # tiles of keys take the places of earlier ones
    "gpt2_100": (BF16, "100", (*GPT2, "train.precision.compute=bf16")),
    "gpt2_odd": (F32, "90", (*GPT2[:2], "layers=1", "dim=60", "heads=3", "seq=37", "train.precision.compute=f32")),
    "llama": (BF16, "90", (*LLAMA, "train.precision.compute=bf16")),
    "llama_window": (BF16, "90", (*LLAMA, "window=50", "train.precision.compute=bf16")),
    "llama_f32": (F32, "90", (*LLAMA, "train.precision.compute=f32")),
    "moe": (BF16, "90", (*MOE, "train.precision.compute=bf16")),
    "moe_mma": (BF16, "80", (*MOE, "train.precision.compute=bf16")),
    "moe_80": (F32, "80", (*MOE, "train.precision.compute=f32")),
    # on three ranks: experts of each, to whose rows tokens travel by exchange, which has room for four fifths of them.
    # In f32 no choice of 600 depends on a rounding
    "moe_ranks": (F32, "90", (MOE[0], "layers=1", "dim=32", "heads=2", "seq=300", "inner=24", "experts=6", "active=2",
                              "train.batch=1", "train.precision.compute=f32", "schedule.mesh.expert=3",
                              "schedule.experts=exchange", "schedule.experts.bound=120")),
    # choices that a block reads in several rounds, experts with more rows than their capacity and with few; on three
    # ranks tokens that go to each of them
    "routed": (F32, "90", ("tests/run/routed.hd", "seq=1600", "capacity=340", "train.batch=1")),
    "routed_ranks": (F32, "90", ("tests/run/routed.hd", "active=3", "seq=700", "capacity=210", "train.batch=1",
                                 "schedule.mesh.expert=3", "schedule.experts=exchange", "schedule.experts.bound=98")),
    # scores of which about half are NaN: the first two of them are chosen
    "routed_bad": (F32, "90", ("tests/run/routed.hd", "bad=1", "seq=300", "train.batch=1")),
    # an exchange with too little room, in the first layer, whose tokens without room are NaN in the second one; with as
    # many rows as the first layer wants, which the second one exceeds
    "routed_over": (F32, "90", (*OVER, "schedule.experts.bound=30")),
    "routed_full": (F32, "90", (*OVER, "schedule.experts.bound=103")),
    "ssd": (F32, "80", SSD),
    "conv": (F32, "90", ("tests/run/conv.hd",)),
    # on tensor cores: steps of 64 positions, the last one short, documents, groups of two heads, both widths of a state
    "ssd_mma": (BF16, "90", (*SSD_CORES, "groups=2", "state=64", "packed=1")),
    "ssd_mma_128": (BF16, "90", (*SSD_CORES, "groups=1", "state=128")),
    # attention on wgmma: sizes of heads, windows, documents, lengths that fill no tile, a backward pass in one kernel
    "masks_64": masks("dim=256", "seq=300", "window=100", "packed=1"),
    "masks_96": masks("dim=384", "seq=300", "window=100", "packed=1"),
    "masks_128": masks("dim=512", "seq=300", "packed=1"),
    "masks_192": masks("dim=768", "seq=200", "window=70", "packed=1"),
    "masks_256": masks("dim=1024", "seq=200", "window=100", "packed=1"),
    "causal_64": masks("dim=256", "seq=512"),
    "full_64": masks("dim=256", "seq=448", "causal=0"), # groups without queries in an item of four tiles
    # blocks with two or three items, of two tiles and of one
    "rounds_64": (MASKED, "90", (MASKS[0], "dim=256", "seq=200", "train.batch=34", "train.precision.compute=bf16")),
    "causal_128": masks("dim=512", "seq=384"),
    "window_64": masks("dim=256", "seq=512", "window=129"),
    "softcap_64": masks("dim=256", "seq=300", "window=100", "packed=1", "softcap=1.5"), # and a sink
    "softcap_192": masks("dim=768", "seq=200", "window=70", "packed=1", "softcap=1.5"),
    "documents_64": masks("dim=256", "seq=640", "packed=1"),
}
RANKS = {"moe_ranks": 3, "routed_ranks": 3, "routed_over": 3, "routed_full": 3, "muon_ranks": 2}  # others have one
OVERFLOWS = ("routed_over", "routed_full")  # end with the bound that would do, which is their digest
WRITES = ("tiny", "llama_text")  # logits of a few sequences, within the bound of the loss; a text, the same tokens
# the likeliest token; any; among the first, by number, by shares, by both
CHOICES = (["--temperature=0"], ["--temperature=1.5"], ["--top-k=20"], ["--top-p=0.7"],
           ["--top-k=30", "--top-p=0.5", "--temperature=2", "--seed=9"])
VALIDATED = ("tiny_bf16", "tiny_vocab", "llama")  # whose digests end with one: kernels that do not train


def lines_of(path):
    """Of a digest: those of steps, as numbers, and the others."""
    with open(path, encoding="utf-8") as f:
        rows = [line.split() for line in f]
    return [[float.fromhex(x) for x in row[1:]] for row in rows if row[0].isdigit()], \
        [row for row in rows if not row[0].isdigit()]


def gradients_of(folder):
    """{parameter: (shape, elements)} of a checkpoint after one step: AdamW's first moment is 1 - beta1 times the
    gradient, clipped."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "**", "*.safetensors"), recursive=True)):  # of each rank one
        with open(path, "rb") as f:
            data = f.read()
        start = 8 + struct.unpack_from("<Q", data)[0]
        for name, t in json.loads(data[8:start]).items():
            if name.startswith("moment1."):
                begin, end = t["data_offsets"]
                bits = data[start + begin:start + end]
                if t["dtype"] == "BF16":  # the upper halves of numbers of f32
                    bits = b"".join(b"\0\0" + bits[i:i + 2] for i in range(0, len(bits), 2))
                found[name[len("moment1."):]] = t["shape"], array.array("f", bits)
    return found


def farthest(here, there, cancelling=()):
    """Of two programs' gradients: the largest relative error of a vector, or of ROWS rows of a matrix, and where. A
    tenth of the error counts for parameters of these names."""
    if not here or here.keys() != there.keys():
        return math.inf, f"other parameters: {sorted(here.keys() ^ there.keys())}"
    off = []
    for name, (shape, x) in here.items():
        y, step = there[name][1], ROWS * shape[-1] if len(shape) > 1 else len(x)
        part = 0.1 if name.rsplit(".", 1)[-1] in cancelling else 1
        for at in range(0, len(x), step):
            norm, error = math.hypot(*y[at:at + step]), math.dist(x[at:at + step], y[at:at + step])
            if not error <= 0:  # also where it is not a number
                off.append((part * error / norm if norm else math.inf, f"{name}, element {at}"))
    return max(off, key=lambda row: (row[0] != row[0], row[0]), default=(0, "nowhere"))


def without_flips(here, there):
    """The first gradients with the numbers of the second in the row and the column of each matrix that differ most."""
    settled = {}
    for name, (shape, x) in here.items():
        x, y = array.array("f", x), there[name][1]
        if len(shape) > 1:
            n = shape[-1]
            lines = [slice(at, at + n) for at in range(0, len(x), n)], [slice(at, None, n) for at in range(n)]
            for line in [max(of, key=lambda line: math.dist(x[line], y[line])) for of in lines]:
                x[line] = y[line]
        settled[name] = shape, x
    return settled


def apart(a, b):
    return abs(a - b) / abs(b)


class Tried:
    def __init__(self, args, folder, name):
        self.args, self.folder, self.name = args, folder, name
        (self.bound, self.gradients), self.capability, (self.source, *self.settings) = PROGRAMS[name]

    def call(self, command, limit=None, stdout=subprocess.PIPE, **env):
        """limit: seconds of processor time, after which the status is that of SIGXCPU."""
        def bounded():
            if limit:
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10))

        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=3600,
                              stdin=subprocess.DEVNULL, env=dict(os.environ, **env), preexec_fn=bounded)
        return None if done.returncode == 0 else f"exit status {done.returncode}: {done.stderr[-1500:]}"

    def build(self, target):
        """What went wrong."""
        args, program = self.args, os.path.join(self.folder, f"{self.name}.{target}")
        build = [args.heddlec, os.path.join(args.root, self.source), f"--target={target}", "-o", program]
        build += [f"--arch=sm_{self.capability}"] if target == "cuda" else []
        return self.call(build + [x for s in self.settings for x in ("--set", s)])

    def digest(self, target, order=0, steps=STEPS, limit=None, options=(), **more):
        """Of the program that was built: the path of the digest, and what went wrong."""
        data = os.path.join(self.args.root, "LICENSE")
        program, args = os.path.join(self.folder, f"{self.name}.{target}"), self.args
        digest = f"{program}.{order}.{steps}" + more.get("SIMT_EDIT", "").replace("/", "_")
        env = dict(HEDDLE_CUDA_PATH=args.fakes, FAKE_CUDA_SIMT=args.kept, FAKE_CUDA_SIMT_ORDER=str(order),
                   FAKE_CUDA_CC=self.capability, HEDDLE_CACHE="off", HEDDLE_TUNE="0",
                   FAKE_CUDA_DEVICES=str(RANKS.get(self.name, 1))) if target == "cuda" else {}
        command = [program, f"--data={data}", "--format=bytes", f"--steps={steps}", f"--digest={digest}", "--seed=7",
                   f"--ranks={RANKS.get(self.name, 1)}"]
        command += options
        if self.name in VALIDATED:
            command += [f"--val={data}", "--val-batches=1", f"--log={digest}.log"]
        why = self.call(command, limit, **env, **more)
        bound = re.search(r"schedule\.experts\.bound=\d+", why or "") if self.name in OVERFLOWS else None
        if bound:
            with open(digest, "w", encoding="utf-8") as out:
                out.write(bound.group())
            return digest, None
        if not why and self.name in VALIDATED:
            with open(digest + ".log", encoding="utf-8") as log, open(digest, "a", encoding="utf-8") as out:
                out.write("".join(line for line in log if "val_loss" in line))
        return digest, why

    def halted(self, target, order):
        """A run that saves after its first step, and one that goes on from there: the folder, the lines of both
        digests, and what went wrong."""
        saved, steps, rest = os.path.join(self.folder, f"{self.name}.{target}.saved"), [], []
        for step, option in ((1, f"--save={saved}"), (STEPS, f"--resume={saved}")):
            digest, why = self.digest(target, order, step, options=[option])
            if why:
                return saved, None, f"{target}, order {order}: {why}"
            more, rest = lines_of(digest)
            steps += more
        return saved, (steps, rest), None

    def writes(self, target, *options, **more):
        env = dict(HEDDLE_CUDA_PATH=self.args.fakes, FAKE_CUDA_SIMT=self.args.kept, FAKE_CUDA_CC=self.capability,
                   HEDDLE_CACHE="off", HEDDLE_TUNE="0") if target == "cuda" else {}
        return self.call([os.path.join(self.folder, f"{self.name}.{target}"), *options], **env, **more)

    def text(self, target, saved):
        """Tokens in each way of choosing, each computed from the keys and values of those before, and what went
        wrong."""
        path = os.path.join(self.folder, f"{self.name}.{target}.text")
        for i, how in enumerate(CHOICES):
            with open(path, "a" if i else "w", encoding="utf-8") as f:
                why = self.writes(target, f"--resume={saved}", "--sample-ids=70,3,200", "--tokens=10", *how, stdout=f)
            if why:
                return None, why
        with open(path, encoding="utf-8") as f:
            return f.read(), None

    def not_finite(self, saved):
        """What went wrong where the norm before the logits has a weight that is no number, which ends a text."""
        path = os.path.join(self.folder, f"{self.name}.safetensors")
        why = self.writes("cuda", f"--resume={saved}", f"--export={path}")
        if why:
            return why
        with open(path, "r+b") as f:
            start = 8 + struct.unpack("<Q", f.read(8))[0]
            header = json.loads(f.read(start - 8))
            f.seek(start + next(header[n] for n in ("ln_f.weight", "norm.weight") if n in header)["data_offsets"][0])
            f.write(struct.pack("<f", math.nan))
        for how in CHOICES[0], CHOICES[-1]:
            why = self.writes("cuda", f"--init={path}", "--sample-ids=70", "--tokens=3", *how)
            if not why or "the logits of token 1 of the text are not all finite" not in why:
                return f"logits that are not finite, {how}: {why}"
        return None

    def logits(self, target, saved):
        """Of the weights of a checkpoint, for a text of three sequences, and what went wrong."""
        program = os.path.join(self.folder, f"{self.name}.{target}")
        out, text = program + ".npy", os.path.join(self.folder, "text.txt")
        with open(text, "wb") as f:
            f.write(bytes(range(40, 89)))
        why = self.writes(target, f"--resume={saved}", f"--logits={out}", f"--data={text}")
        if why:
            return None, why
        with open(out, "rb") as f:
            return array.array("f", f.read()[128:]), None

    def far_logits(self, folders):
        found = {}
        for target, saved in folders:
            found[target], why = self.logits(target, saved)
            if why:
                return f"{target}, logits: {why}"
        here, there = found["cuda"], found["host"]
        off = math.dist(here, there) / math.hypot(*there) if len(here) == len(there) == 3 * 16 * 256 else math.inf
        print(f"{self.name}: logits off by {off:.1e}", flush=True)
        return None if off <= self.bound else f"logits are off by {off:.1e}, bound {self.bound}"

    def far_bounds(self):
        said = {}
        for target, order in (("host", 0), *(("cuda", o) for o in self.args.orders)):
            digest, why = self.digest(target, order)
            if why:
                return f"{target}, order {order}: {why}"
            with open(digest, encoding="utf-8") as f:
                said[f"{target} {order}"] = f.read()
        print(f"{self.name}: {said['host 0']}", flush=True)
        alike = len(set(said.values())) == 1 and "bound" in said["host 0"]
        return None if alike else f"bounds that would do: {said}"

    def wrong(self):
        first, *others = self.args.orders
        for target in ("cuda",) if self.args.races else ("host", "cuda"):
            why = self.build(target)
            if why:
                return f"{target}: {why}"
        if self.args.races:
            return self.digest("cuda", steps=1, FAKE_CUDA_SIMT_RACES="1")[1]
        if self.name in OVERFLOWS:
            return self.far_bounds()
        there, host, why = self.halted("host", 0)
        here, lines, wrong = self.halted("cuda", first)
        if why or wrong:
            return why or wrong
        right, _ = host
        for order in others:
            digest, why = self.digest("cuda", order)
            if why or lines_of(digest) != lines:
                return f"order {order}: {why}" if why else f"orders {first} and {order} differ"
        steps = lines[0]
        off = [[apart(x, y) for x, y in zip(a, b)] for a, b in zip(steps, right)]
        far = self.far_logits((("cuda", there), ("host", there))) if self.name in WRITES else None
        if far:
            return far
        texts = [self.text(*of) for of in (("cuda", here), ("host", there))] if self.name in WRITES else []
        if texts and (texts[0] != texts[1] or texts[0][1] or len(set(texts[0][0].split(","))) < 20):
            return f"texts: {texts}"
        why = self.not_finite(here) if self.name in WRITES else None
        if why:
            return why
        ours, theirs = gradients_of(here), gradients_of(there)
        most, place = farthest(ours, theirs, CANCELLING.get(self.name, ()))
        print(f"{self.name}: off by {off[0][0]:.1e}, norm {off[0][1]:.1e}, then {off[1][0]:.1e}; gradients {most:.1e} "
              f"({place})", flush=True)
        near = [off[0][0] <= self.bound, off[0][1] <= 50 * self.bound, off[1][0] <= 50 * self.bound] # a NaN is not
        if len(steps) != STEPS or not all(near):
            return f"{steps} is not near the host's {right}"
        if not most <= self.gradients:
            return f"the gradient of {place} is off by {most:.1e}, bound {self.gradients}"
        bound = FLIPPED.get(self.name)
        most, place = farthest(without_flips(ours, theirs), theirs) if bound else (0, "")
        return None if not bound or most <= bound else \
            f"without a row and a column the gradient of {place} is off by {most:.1e}, bound {bound}"


def main():
    parser = argparse.ArgumentParser()
    for name in ("root", "heddlec", "fakes", "kept"):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument("--orders", type=lambda text: text.split(","), default=["0", "1"])
    parser.add_argument("--races", action="store_true")
    parser.add_argument("--but", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_intermixed_args()
    names, failed = [n for n in PROGRAMS if n not in args.names] if args.but else args.names or list(PROGRAMS), {}
    if args.but or args.races:
        names = part.of(names)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            why = Tried(args, folder, name).wrong()
            if why:
                failed[name] = why
                print(f"{name}: {why}", flush=True)
    print(f"{len(names)} programs, failed: {' '.join(failed) or 'none'}; {part.told()}")
    if failed:
        print(f"once more: {part.repeat()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
