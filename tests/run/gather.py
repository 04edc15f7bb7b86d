#!/usr/bin/env python3
"""train.precision.gather = fp8: ranks gather weights in one byte with scales, and a step has the same bits.

usage: gather.py ROOT HEDDLEC [--all] [--fakes=FOLDER --kept=FOLDER]

- Strategies, graphs, recompute, offload, prefetch and micro-batches of one mesh have one digest, and with gather =
  compute the same one: losses, norms and all parameters. With reduce = tree so has every mesh. Plans gather in one byte
  where a window only quantizes, and nowhere else.
- The same without such gathers of products with scales of blocks (`fp8.scale = block`).
- What FP8 loses is counted alike, and counting it changes no digest.
- Mutants of a plan: a scale of other rows, elements for scales, rows of another length, weights that are rounded
  before, a gather that is left out. verify-plan refuses each.
- What has no effect is a warning that says why.
- With --fakes the same of CUDA programs, whose kernels run on the CPU (tests/simt), with a stand-in for NCCL.
"""
import json
import os
import re
import struct
import tempfile

from axis import arguments, call, finish

STEPS = 2
MODEL = {"vocab": 48, "layers": 3, "heads": 2, "kv_heads": 1, "dim": 32, "hidden": 48, "seq": 8, "train.batch": 2,
         "train.lr": "1e-2", "train.precision.compute": "bf16", "train.precision.fp8": "Block",
         "train.precision.gather": "fp8", "schedule.fsdp": "zero3", "schedule.mesh.shard": 2}
TREE = {"train.reduce": "tree", "schedule.mesh.shard": 4, "train.accumulate": 2}
TENSOR = {"train.precision.fp8.scale": "tensor"}
ONCE = {"train.precision.fp8.backward": "e4m3", "train.precision.fp8.weights": "once",
        "train.precision.fp8.weight_grads": "fp8", "train.precision.fp8": "Block,Llama.head",
        "train.loss_chunks": 2, "train.batch": 4}
COUNTED = {"schedule.fp8_counts": "on"}
# Scales of blocks, which are not gathered; a micro-batch has 128 tokens.
BLOCKS = {"dim": 128, "hidden": 256, "kv_heads": 2, "layers": 1, "seq": 64, "train.precision.gather": "compute",
          "train.precision.fp8.scale": "block", "train.precision.fp8.backward": "e5m2",
          "train.precision.fp8.weight_grads": "fp8", "train.products": "merged"}
# One digest each: the first is what the others are compared with. Where programs count what FP8 loses, so are counts.
FEW = [
    ("a tree", TREE, [{"schedule.graph": "unit", "schedule.recompute": "Block", **COUNTED},
                      {"train.precision.gather": "compute", "schedule.fsdp": "none"}]),
    ("one form of a weight, two ranks", {**ONCE, **COUNTED}, [
        {"schedule.graph": "unit", "schedule.recompute": "Block"}, {"train.precision.gather": "compute"}]),
    ("a scale for each weight, a tree", {**TENSOR, **TREE}, [
        {"schedule.graph": "unit"}, {"train.precision.gather": "compute", "schedule.fsdp": "none"},
        {"schedule.mesh.shard": 1, "train.accumulate": 8}]),
    ("a scale for each weight, one form of it", {**TENSOR, **ONCE}, [
        {"schedule.recompute": "Block"}, {"train.precision.gather": "compute", "train.precision.fp8.weights": "each"}]),
    ("scales of blocks", {**BLOCKS, **COUNTED}, [
        {"schedule.graph": "unit", "schedule.recompute": "Block"}, {"schedule.fsdp": "none"}]),
]
ALL = [
    ("two ranks", COUNTED, [
        {}, {"train.precision.gather": "compute"},
        {"schedule.fsdp": "none"}, {"schedule.fsdp": "zero1"}, {"schedule.fsdp": "zero2"}, {"schedule.graph": "none"},
        {"schedule.fsdp.prefetch": 0}, {"schedule.fsdp.prefetch": 3}, {"schedule.fsdp.weights": "master"},
        {"schedule.offload": "Block", "schedule.offload.min_size": 0, "schedule.recompute": "none"},
        {"schedule.fsdp.live_grads": 1, "schedule.recompute": "SwiGLU"}]),
    ("four ranks", {"schedule.mesh.shard": 4, "train.accumulate": 3}, [
        {}, {"schedule.fsdp": "none"}, {"schedule.fsdp": "zero2"}, {"schedule.graph": "none"},
        {"schedule.recompute": "Block"}]),
    ("a tree", TREE, FEW[0][2] + [
        {}, {"train.precision.gather": "compute"},
        {"schedule.mesh.shard": 2, "train.accumulate": 4, "schedule.fsdp.prefetch": 2},
        {"schedule.mesh.shard": 8, "train.accumulate": 1},
        {"schedule.mesh.shard": 2, "schedule.mesh.replicate": 2}, {"schedule.mesh.shard": 1, "train.accumulate": 8}]),
    ("one form of a weight, two ranks", {**ONCE, **COUNTED}, FEW[1][2] + [
        {}, {"schedule.fsdp": "none"}, {"schedule.fsdp": "zero1"}, {"schedule.fsdp": "zero2"},
        {"schedule.graph": "none"}, {"schedule.fsdp.prefetch": 0}, {"schedule.fsdp.prefetch": 3},
        {"schedule.fsdp.weights": "master"},
        {"schedule.offload": "Block", "schedule.offload.min_size": 0, "schedule.recompute": "none"},
        {"schedule.fsdp.live_grads": 1, "schedule.recompute": "SwiGLU"}]),
    ("scales of blocks", {**BLOCKS, **COUNTED}, FEW[-1][2] + [
        {}, {"schedule.fsdp": "zero1"}, {"schedule.fsdp": "zero2"}, {"schedule.graph": "none"},
        {"schedule.offload": "Block", "schedule.offload.min_size": 0, "schedule.recompute": "none"},
        {"schedule.recompute": "SwiGLU"}]),
    ("scales of blocks, a tree", {**BLOCKS, **TREE}, [
        {}, {"schedule.mesh.shard": 2, "schedule.mesh.replicate": 2}, {"schedule.mesh.shard": 1, "train.accumulate": 8},
        {"schedule.fsdp": "none", "schedule.recompute": "Block"}]),
    ("one form of a weight, a tree, products merged", {**ONCE, **TREE, **COUNTED, "train.products": "merged"}, [
        {}, {"train.precision.gather": "compute", "schedule.fsdp": "none", "schedule.recompute": "Block"},
        {"schedule.mesh.shard": 2, "schedule.mesh.replicate": 2},
        {"schedule.mesh.shard": 1, "train.accumulate": 8}]),
    ("a scale for each weight, a tree", {**TENSOR, **TREE}, FEW[2][2] + [
        {}, {"train.precision.gather": "compute"}, {"schedule.recompute": "Block", "schedule.fsdp.prefetch": 0},
        {"schedule.mesh.shard": 2, "train.accumulate": 4, "schedule.fsdp.prefetch": 3},
        {"schedule.mesh.shard": 2, "schedule.mesh.replicate": 2}, {"schedule.fsdp": "zero2"}]),
    ("a scale for each weight, one form of it", {**TENSOR, **ONCE}, FEW[3][2] + [
        {}, {"schedule.fsdp": "none"}, {"schedule.fsdp.weights": "master"}, {"schedule.graph": "none"},
        {"schedule.offload": "Block", "schedule.offload.min_size": 0, "schedule.recompute": "none"}]),
    ("a scale for each weight, products merged, f32", {
        **TENSOR, "train.precision.compute": "f32", "train.products": "merged"}, [
            {}, {"train.precision.gather": "compute"}, {"schedule.recompute": "Block"}]),
    ("the backward pass in e4m3, products merged, f32", {
        "train.precision.compute": "f32", "train.precision.fp8.backward": "e4m3", "train.products": "merged"}, [
            {}, {"train.precision.gather": "compute"}, {"schedule.recompute": "Block"}]),
]
WARNINGS = [({"train.precision.fp8": "none"}, "train.precision.fp8 names no modules"),
            ({"schedule.fsdp": "zero2"}, "only schedule.fsdp = zero3 gathers weights for the forward pass"),
            ({"schedule.fsdp.weights": "master"}, "with schedule.fsdp.weights = master weights are rounded while")]
QUANTIZED = r"^.*all_gather .*quantized = {}.*\n"


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.wrong, self.compared = args, folder, [], 0
        self.data = os.path.join(folder, "tokens.bin")
        with open(self.data, "wb") as f:
            f.write(b"".join(struct.pack("<H", (i * i * 7919 >> 4) % 48) for i in range(4000)))

    def compile(self, output, sets, *options, ok=True):
        return call(self.args.heddlec, os.path.join(self.args.root, "examples/llama/llama.hd"), "-o", output, *options,
                    *[a for name, v in {**MODEL, **sets}.items() for a in ("--set", f"{name}={v}")], ok=ok)

    def digest(self, sets, *options, **env):
        program, every = os.path.join(self.folder, "p"), {**MODEL, **sets}
        ranks = every["schedule.mesh.shard"] * every.get("schedule.mesh.replicate", 1)
        self.compile(program, sets, *options)
        call(program, f"--data={self.data}", f"--ranks={ranks}", f"--steps={STEPS}", f"--digest={program}.digest",
             f"--log={program}.log", **env)
        with open(program + ".log", encoding="utf-8") as f:
            self.counts.append([line["fp8"] for line in map(json.loads, f) if "fp8" in line])
        with open(program + ".digest", encoding="utf-8") as f:
            return f.read()

    def alike(self, name, common, schedules, *options, **env):
        self.counts = []  # of each program: by step and place what FP8 loses
        digests = [self.digest({**common, **sets}, *options, **env) for sets in schedules]
        counts = [x for x in self.counts if x]
        if len(counts) != sum("schedule.fp8_counts" in {**common, **sets} for sets in schedules):
            self.wrong.append(f"{name}: counts of {len(counts)} programs")
        if counts and any(x != counts[0] or len(x) != STEPS for x in counts):
            self.wrong.append(f"{name}: schedules have other counts: {counts}")
        if counts and not sum(n[0] for step in counts[0] for n in step.values()):
            self.wrong.append(f"{name}: nothing becomes 0, so that all counts are alike: {counts[0]}")
        for sets, digest in zip(schedules, digests):
            self.compared += 1
            if digest != digests[0]:
                self.wrong.append(f"{name}: {sets} has other bits")
        if len({line.split()[1] for line in digests[0].splitlines()[:STEPS]}) != STEPS:
            self.wrong.append(f"{name}: the losses show no training")

    def plan(self, sets):
        path = os.path.join(self.folder, "plan")
        self.compile(path, sets, "--emit=plan")
        with open(path, encoding="utf-8") as f:
            return path, f.read()


def first(pattern, to, text, flags=re.M):
    return re.sub(pattern, to, text, count=1, flags=flags)


MUTANTS = {
    "elements without their scales": lambda t: first(QUANTIZED.format("32, scales"), "", t),
    "scales without their elements": lambda t: first(QUANTIZED.format("32}"), "", t),
    "the scales of another layer": lambda t: first(
        r"(buffer = @blocks\.)1(\.rows32\.compute, into = @micro_only\.blocks\.1\.rows32\.scales)", r"\g<1>2\2", t),
    "rows of half the length": lambda t: first(r"(all_gather .*quantized = )32", r"\g<1>16", t),
    "elements and scales exchanged": lambda t: first(r"(all_gather .*quantized = 32)}", r"\1, scales}", t),
    "master weights, not rounded before": lambda t: first(
        r"(all_gather .*blocks\.1\.rows32\.)compute(.*quantized)", r"\1master\2", t),
    "scales of other rows": lambda t: first(
        r"(view {buffer = @micro_only\.blocks\.1\.rows32\.scales0, offset = )32}", r"\g<1>48}", t),
    "scales of the bucket beside it": lambda t: first(
        r"(view {buffer = @micro_only\.blocks\.1\.)rows48(\.scales0, offset = 0})", r"\1rows32\2", t),
    "a buffer of other rows": lambda t: t.replace("quantized = 32", "quantized = 16"),
}
# Of the backward pass, where both passes read one form of a weight.
ONCE_MUTANTS = {
    "a gradient times the scales of another layer": lambda t: first(
        r"(view {bwd, buffer = @micro_only\.blocks\.)0\.rows48\.scales0", r"\g<1>1.rows48.scales1", t),
    "a gradient times the scales of other rows": lambda t: first(
        r"(view {bwd, buffer = @micro_only\.blocks\.1\.rows32\.scales1, offset = )144}", r"\g<1>96}", t),
    "the rows of another weight, transposed": lambda t: first(
        r"(view {bwd, buffer = @micro_only\.blocks\.1\.rows32\.full1, offset = )4608}", r"\g<1>3072}", t),
}


def plans(bench):
    """Gathers in one byte are those of windows that only quantize: of the forward pass, but for its ends. Where both
    passes read one form they are of all windows, but for that of the first unit in the forward pass."""
    for sets, count in (({}, 4), (ONCE, 18), ({"train.precision.gather": "compute"}, 0),
                        ({"schedule.fsdp": "zero1"}, 0)):
        _, text = bench.plan(sets)
        micro = text[text.index("func @micro_only("):]
        found = len(re.findall(r"all_gather .*quantized", micro[:micro.index("\n}")]))
        bench.compared += 1
        if found != count:
            bench.wrong.append(f"{sets}: {found} gathers quantize, not {count}")


def mutants(bench, sets, edits):
    path, text = bench.plan(sets)
    opt = os.path.join(os.path.dirname(bench.args.heddlec), "heddle-opt")
    for name, edit in {"as it is": lambda t: t, **edits}.items():
        changed = edit(text)
        if changed == text and name in edits:
            bench.wrong.append(f"{name}: nothing changes")
            continue
        with open(path + ".mutant", "w", encoding="utf-8") as f:
            f.write(changed)
        done = call(opt, "--pass-pipeline=verify-plan", path + ".mutant", "-o", os.devnull, ok=False)
        bench.compared += 1
        if (done.returncode == 0) != (changed == text) or (done.returncode and "error" not in done.stderr):
            bench.wrong.append(f"{name}: {done.stderr[-400:] or 'verify-plan accepts it'}")


def warnings(bench):
    for sets, text in WARNINGS:
        done = bench.compile(os.path.join(bench.folder, "w"), sets, "--emit=plan", ok=False)
        bench.compared += 1
        if done.returncode or "train.precision.gather" not in done.stderr or text not in done.stderr:
            bench.wrong.append(f"{sets}: {done.stderr!r} does not say {text!r}")


def emulator(args):
    return dict(HEDDLE_CUDA_PATH=args.fakes, FAKE_CUDA_SIMT=args.kept, FAKE_CUDA_CC="90", HEDDLE_CACHE="off",
                HEDDLE_TUNE="0", FAKE_CUDA_DEVICES="4")


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        if args.fakes:
            for master in ({"train.precision.master": "bf16"}, # rounded at random (bf16_master.py)
                           {**TENSOR, "train.precision.moments": "bf16"},
                           {"train.precision.master": "kahan", "train.precision.moments": "bf16"}):
                bench.alike("emulated", {**ONCE, **master},
                            [{"schedule.graph": "unit"}, {"train.precision.gather": "compute"}],
                            "--target=cuda", "--arch=sm_90", **emulator(args))
            bench.alike("emulated, scales of blocks", BLOCKS, [{"schedule.graph": "unit"}, {"schedule.fsdp": "none"}],
                        "--target=cuda", "--arch=sm_90", **emulator(args))
        else:
            for group in ALL if args.all else FEW:
                bench.alike(*group)
            plans(bench)
            mutants(bench, {"schedule.graph": "none"}, MUTANTS)
            mutants(bench, {"schedule.graph": "none", **ONCE}, ONCE_MUTANTS)
            warnings(bench)
        finish(bench)


if __name__ == "__main__":
    main()
