#!/usr/bin/env python3
"""train.precision.grad = bf16 and reduce = bf16: ranks send gradients in bf16 and add them up in f32.

usage: bf16_gradients.py ROOT HEDDLEC [--all] [--fakes=FOLDER --kept=FOLDER]

- Strategies, graphs, recompute and micro-batches of one mesh have one digest, whether gradients are sent in bf16 or
  kept whole in f32. With reduce = tree so has every mesh. Gradients in f32 have another one.
- Plans send the gradients of blocks in bf16 and those of the table and the head in f32.
- Mutants of a plan: sums in bf16, contributions added in bf16, buffers of another type. verify-plan refuses each.
- Settings that do not fit are errors that say what to set.
- With --fakes the same of CUDA programs, whose kernels run on the CPU (tests/simt), with a stand-in for NCCL.
"""
import os
import re
import tempfile

import gather
from axis import arguments, finish

HALF = {"train.precision.grad": "bf16", "train.precision.reduce": "bf16"}
FOUR = {**HALF, "schedule.mesh.shard": 4, "train.accumulate": 2}
FEW = [("four ranks", FOUR, [{}, {"schedule.fsdp": "none", "schedule.graph": "unit"}]),
       ("a tree", {**HALF, **gather.TREE}, [{}, {"schedule.mesh.shard": 2, "train.accumulate": 4}])]
ALL = [("four ranks", FOUR, FEW[0][2] + [
            {"schedule.fsdp": "zero1"}, {"schedule.fsdp": "zero2"}, {"schedule.recompute": "Block"},
            {"schedule.overlap_grads": "on"}, {"schedule.fsdp.live_grads": 1}, {"schedule.fsdp.weights": "master"}]),
       ("three ranks, one micro-batch", {**HALF, "schedule.mesh.shard": 3}, [{}, {"schedule.fsdp": "none"}]),
       ("replicas, reduced last", {**HALF, "schedule.mesh.replicate": 2, "train.reduce": "last",
                                   "train.accumulate": 2}, [{}, {"schedule.fsdp": "zero1"}]),
       ("a tree", {**HALF, **gather.TREE}, FEW[1][2] + [
            {"schedule.fsdp": "none"}, {"schedule.mesh.shard": 2, "schedule.mesh.replicate": 2}])]
ERRORS = [({"train.precision.reduce": "f32"}, "grad = bf16 and reduce = f32: ranks send gradients in the type that"),
          ({"train.precision.grad": "f32"}, "grad = f32 and reduce = bf16: ranks send gradients in the type that"),
          ({"train.precision.compute": "f32"}, "train.precision.grad = bf16 needs compute = bf16, not f32"),
          ({"schedule.mesh.tensor": 2}, "train.precision.grad = bf16 is not ready for a mesh with tensor or expert")]
MUTANTS = {
    "sums in bf16": lambda t: re.sub(r"(reduce_scatter {.*)out = f32, ", r"\1", t, count=1),
    "a contribution added in bf16": lambda t: re.sub(
        r"(gemm .*into = @micro_only\.blocks\.1\.rows32\.gradient)}", r"\1, accumulate}", t, count=1),
    "a buffer of gradients in bf16 that config @train has in f32": lambda t: t.replace("grad = bf16", "grad = f32", 1),
    "a gradient sent twice": lambda t: re.sub(r"^(.*reduce_scatter {.*out = f32.*\n)", r"\1\1", t, count=1, flags=re.M),
}


def plans(bench):
    _, text = bench.plan(HALF)
    micro = text[text.index("func @micro_only("):]
    sums = re.findall(r"reduce_scatter {.*", micro[:micro.index("\n}")])
    half = sorted({re.search(r"into = @([a-z]+)", x).group(1) for x in sums if "out = f32" in x})
    wide = sorted({re.search(r"into = @([a-z.]+)", x).group(1) for x in sums if "out = f32" not in x})
    bench.compared += 1
    if half != ["blocks"] or any(x.startswith("blocks") for x in wide) or len(wide) != 2:
        bench.wrong.append(f"sent in bf16: {half}, in f32: {wide}")


def errors(bench):
    for sets, text in ERRORS:
        done = bench.compile(os.path.join(bench.folder, "e"), {**HALF, **sets}, "--emit=plan", ok=False)
        bench.compared += 1
        if not done.returncode or text not in done.stderr:
            bench.wrong.append(f"{sets}: {done.stderr!r} does not say {text!r}")


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        bench = gather.Bench(args, folder)
        if args.fakes:
            bench.alike("emulated", HALF, [{"schedule.graph": "unit"}, {"schedule.fsdp": "none"}], "--target=cuda",
                        "--arch=sm_90", **gather.emulator(args))
        else:
            for group in ALL if args.all else FEW:
                bench.alike(*group)
            if bench.digest({}) == bench.digest(HALF):
                bench.wrong.append("gradients in f32 have the same bits, so this test shows nothing")
            plans(bench)
            gather.mutants(bench, {**HALF, "schedule.graph": "none"}, MUTANTS)
            errors(bench)
        finish(bench)


if __name__ == "__main__":
    main()
