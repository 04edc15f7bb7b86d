#!/usr/bin/env python3
"""train.precision.master = bf16: the optimizer keeps weights in bf16 and rounds them at random (ir/rounding.h).
With kahan it keeps them in bf16, and what they lack beside them.

usage: bf16_master.py ROOT HEDDLEC [--all]

- Strategies, graphs, recompute, offload, gathers in FP8 and, with reduce = tree, meshes have one digest, with moments
  in bf16 as well. A run that stops goes on with the same bits on another mesh.
- Where gradients are 0, decayed weights are the same whether `tensor` splits them or not.
- Steps that are smaller than half a rounding still add up: after many of them the mean of the weights is where it
  belongs, and with kahan each weight is.
- A checkpoint in f32 goes on in bf16, rounded to nearest, and one in bf16 goes on in f32, as it is. An export has the
  weights. What rounding to nearest loses of a checkpoint in f32, kahan keeps.
- Mutants of a plan: no seed, the seed of something else, weights kept twice; with kahan a seed, states exchanged, an
  update that leaves out what the weights lack. verify-plan refuses each.
- Settings that do not fit are errors that say what to set.

CUDA programs of ranks with such weights are in gather.py, those of one rank in simt.py.
"""
import json
import os
import re
import struct
import tempfile

import gather
from axis import arguments, call, finish

MASTER = {"train.precision.master": "bf16"}
BOTH = {**MASTER, "train.precision.moments": "bf16", "train.betas": "0.9,0.95"}
KAHAN = {**BOTH, "train.precision.master": "kahan"}
NONE = {"schedule.fsdp": "none"}
FEW = [
    ("kahan, a tree", {**KAHAN, **gather.TREE}, [{}, {"schedule.mesh.shard": 1, "train.accumulate": 8, **NONE}]),
    ("a tree", {**BOTH, **gather.TREE}, [{}, {"schedule.mesh.shard": 1, "train.accumulate": 8, **NONE}]),
    ("one form of a weight", {**BOTH, **gather.ONCE}, [{}, {"train.precision.gather": "compute",
                                                            "schedule.recompute": "Block", **NONE}])]
ALL = [
    ("a tree", {**BOTH, **gather.TREE}, FEW[1][2] + [
        {"schedule.fsdp": "zero1"}, {"schedule.fsdp": "zero2"}, {"train.precision.gather": "compute"},
        {"schedule.mesh.shard": 2, "schedule.mesh.replicate": 2}, {"schedule.mesh.shard": 8, "train.accumulate": 1},
        {"schedule.mesh.shard": 2, "train.accumulate": 4, "schedule.graph": "unit", "schedule.logits": "on"}]),
    ("three ranks", {**MASTER, "schedule.mesh.shard": 3, "train.accumulate": 2}, [
        {}, NONE, {"schedule.fsdp": "zero1"}, {"schedule.fsdp": "zero2"}, {"schedule.graph": "none"},
        {"schedule.fsdp.weights": "master"}, {"schedule.fsdp.prefetch": 0},
        {"schedule.offload": "Block", "schedule.offload.min_size": 0, "schedule.recompute": "none"}]),
    ("without fp8", {**MASTER, "train.precision.fp8": "none", "train.precision.gather": "compute",
                     "train.optimizer": "sgd"}, [{}, NONE, {"schedule.recompute": "Block"}]),
    ("one form of a weight", {**BOTH, **gather.ONCE}, FEW[2][2] + [{"schedule.graph": "none"}]),
    ("kahan, a tree", {**KAHAN, **gather.TREE}, FEW[0][2] + [
        {"schedule.fsdp": "zero1"}, {"schedule.fsdp": "zero2"}, {"train.precision.gather": "compute"},
        {"schedule.mesh.shard": 2, "schedule.mesh.replicate": 2}, {"schedule.graph": "unit"}]),
    ("kahan, three ranks", {**KAHAN, "schedule.mesh.shard": 3, "train.accumulate": 2}, [
        {}, NONE, {"schedule.graph": "none"}, {"schedule.fsdp.weights": "master"},
        {"schedule.offload": "Block", "schedule.offload.min_size": 0, "schedule.recompute": "none"}])]
ERRORS = [({"train.precision.compute": "f32", "train.precision.fp8": "none", "train.precision.gather": "compute"},
           "train.precision.master = bf16 needs compute = bf16, not f32"),
          ({**KAHAN, "train.precision.moments": "f32"},
           "train.precision.master = kahan keeps what the rounding of a weight loses in the type of the moments")]
MUTANTS = {
    "an update without its seed": lambda t: re.sub(r"(update .*), rounding = @state\.random", r"\1", t, count=1),
    "another buffer's numbers for the seed": lambda t: re.sub(
        r"^(buffer @)state\.random(.*)$", r"\g<0>\n\1other\2", re.sub(
            r"(update .*rounding = @)state\.random", r"\1other", t, count=1), count=1, flags=re.M),
    "weights in f32 beside those of products": lambda t: re.sub(
        r"(buffer @blocks\.1\.rows48\.master : )bf16", r"\1f32", t, count=1),
    "a bucket in bf16 that config @train has in f32": lambda t: t.replace("master = bf16", "master = f32", 1),
}
KAHAN_MUTANTS = {
    "a seed where nothing is rounded at random": lambda t: re.sub(
        r"(update .*), weight_decay", r"\1, rounding = @state.step, weight_decay", t, count=1),
    "what weights lack for a moment": lambda t: re.sub(
        r"(update .*states = \[[^,]*, )([^,]*), ([^\]]*)", r"\1\3, \2", t, count=1),
    "an update without what weights lack": lambda t: re.sub(r"(add %weights, )%compensation", r"\1%weights", t),
    "an update that keeps less of it": lambda t: re.sub(r"value = 65537\.0", "value = 4097.0", t),
    "weights in f32 beside those of products": lambda t: re.sub(
        r"(buffer @blocks\.1\.rows48\.master : )bf16", r"\1f32", t, count=1),
}


def weights(folder):
    """{name: numbers} of an export."""
    found = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else [folder]:
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(folder, name), "rb") as f:
            data = f.read()
        start = 8 + struct.unpack_from("<Q", data)[0]
        for tensor, t in json.loads(data[8:start]).items():
            if tensor != "__metadata__":
                begin, end = t["data_offsets"]
                wide = 4 if t["dtype"] == "F32" else 2
                kind = f"<{(end - begin) // wide}{'I' if wide == 4 else 'H'}"
                bits = struct.unpack(kind, data[start + begin:start + end])
                found[tensor] = list(bits) if wide == 4 else [b << 16 for b in bits]
    return found


def nearest(bits):
    return (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000


class Bench(gather.Bench):
    def train(self, sets, *options, ok=True, build=True):
        every = {**gather.MODEL, **sets}
        ranks = every["schedule.mesh.shard"] * every.get("schedule.mesh.replicate", 1) * every.get(
            "schedule.mesh.tensor", 1)
        program = os.path.join(self.folder, "t")
        if build:
            self.compile(program, sets)
        data = [f"--data={self.data}"] if any(o.startswith("--steps=") for o in options) else []
        return call(program, *data, f"--ranks={ranks}", *options, ok=ok)

    def path(self, name):
        return os.path.join(self.folder, name)

    def check(self, holds, *what):
        self.compared += 1
        if not holds:
            self.wrong.append(" ".join(map(str, what)))

    def lines(self, name):
        with open(self.path(name), encoding="utf-8") as f:
            return f.read().splitlines()


def resumes(bench, sets):
    """After a step on four ranks the second one on one rank, whose parameters are in other buckets."""
    tree, one = {**sets, **gather.TREE}, {**sets, **gather.TREE, "schedule.mesh.shard": 1, "train.accumulate": 8}
    bench.train(tree, "--steps=2", f"--digest={bench.path('whole')}")
    bench.train(tree, "--steps=1", f"--save={bench.path('saved')}", "--overwrite", build=False)
    bench.train(one, "--steps=2", f"--resume={bench.path('saved')}", f"--digest={bench.path('rest')}")
    bench.check(bench.lines("rest") == bench.lines("whole")[1:], "a run that goes on with other ranks has other bits",
                sets)


def decays(bench, sets, each):
    """Nothing but decay, of 2^-11 a step, a quarter of the distance from a number to where it would be rounded up.
    each: a bound for every weight, of itself; 0: for their mean alone."""
    steps, decay = 40, 2.0**-11
    still = {**sets, "train.optimizer": "sgd", "train.momentum": 0, "train.clip": 1e-30, "train.lr": 2.0**-5,
             "train.weight_decay": 2.0**-6, "train.precision.fp8": "none", "train.precision.gather": "compute",
             "kv_heads": 2, "train.warmup": 0}
    bench.train(still, "--steps=1", f"--export={bench.path('begun.safetensors')}")
    bench.train(still, f"--steps={steps}", f"--export={bench.path('e.safetensors')}", f"--digest={bench.path('d')}",
                build=False)
    if not each:
        bench.train({**still, "schedule.mesh.shard": 1, "schedule.mesh.tensor": 2}, f"--steps={steps}",
                    f"--digest={bench.path('split')}")
        whole, split = ([x for x in bench.lines(name) if x.startswith("param")] for name in ("d", "split"))
        bench.check(whole and whole == split, "parameters that tensor splits are rounded in another way")
    real = lambda bits: struct.unpack("<f", struct.pack("<I", bits))[0]
    begun, ended = weights(bench.path("begun.safetensors")), weights(bench.path("e.safetensors"))
    shares = [real(y) / real(x) for name in begun if "norm" not in name
              for x, y in zip(begun[name], ended[name]) if x & 0x7FFFFFFF]
    # initial weights are numbers of bf16, to which the first step's are rounded where a state has the rest
    mean, should = sum(shares) / len(shares), (1 - decay)**(steps if each else steps - 1)
    # each step errs by 2^-8 at most, so that the mean of n numbers is within five deviations of the right one
    bound = 5 * 2.0**-8 * (steps / len(shares))**0.5
    worst = max(abs(x - should) for x in shares)
    print(f"{len(shares)} weights decay to {mean:.5f} of themselves, not {should:.5f}: within {bound:.5f}; each within "
          f"{worst:.5f}")
    bench.check(abs(mean - should) < bound < 1 - should, "weights decay to", mean, "of themselves, not", should)
    bench.check(not each or worst <= each < 1 - should, "a weight is off by", worst, "of itself")


def other_types(bench):
    """Checkpoints go on in the other type where the user says so, and an export has the weights."""
    kept = {m: {**BOTH, "train.precision.master": m} for m in ("f32", "bf16", "kahan")}
    for name, other in (("f32", "bf16"), ("bf16", "f32"), ("f32", "kahan")):
        saved, out = bench.path("of." + name), bench.path(f"of.{name}.safetensors")
        if not os.path.exists(saved):
            bench.train(kept[name], "--steps=1", f"--save={saved}", f"--export={out}")
        refused = bench.train(kept[other], "--steps=1", f"--resume={saved}", ok=False)
        bench.check(refused.returncode and "precision.master" in refused.stderr, name, "goes on:", refused.stderr)
        again = bench.path(f"again.{name}.safetensors")
        bench.train(kept[other], f"--resume={saved}", "--resume-with=precision.master", f"--export={again}",
                    build=False)
        there, here = weights(out), weights(again)
        # with bf16 those of norms, which are vectors, stay in f32
        right = {k: [nearest(x) for x in v] if name == "f32" and (other == "kahan" or "norm" not in k) else v
                 for k, v in there.items()}
        bench.check(there and here == right, name, "becomes other weights in", other)


def errors(bench):
    for sets, text in ERRORS:
        done = bench.compile(bench.path("e"), {**MASTER, **sets}, "--emit=plan", ok=False)
        bench.check(done.returncode and text in done.stderr, f"{sets}: {done.stderr!r} does not say {text!r}")


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        for group in ALL if args.all else FEW:
            bench.alike(*group)
        bench.check(bench.digest({}) != bench.digest(MASTER), "weights in f32 have the same bits")
        for sets in (BOTH, KAHAN):
            resumes(bench, sets)
        decays(bench, MASTER, 0)
        decays(bench, {**KAHAN, "train.betas": "0.9,0.95"}, 2.0**-8 + 2.0**-12)
        other_types(bench)
        gather.mutants(bench, {**BOTH, "schedule.graph": "none"}, MUTANTS)
        gather.mutants(bench, {**KAHAN, "schedule.graph": "none"}, KAHAN_MUTANTS)
        errors(bench)
        finish(bench)


if __name__ == "__main__":
    main()
