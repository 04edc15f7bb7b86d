#!/usr/bin/env python3
"""train.reduce = tree: the bits of a step do not depend on how many ranks share it.

usage: tree.py ROOT HEDDLEC [--all] [--fakes=FOLDER --kept=FOLDER]

- Meshes of 1, 2, 4 and 8 data ranks with as many micro-batches as make 8 grains, under every strategy, with replicas,
  graphs, recompute and overlaps, have one digest: losses, norms and all parameters. The models have rows that no
  power of two divides, and dropout with tied weights. The digest of `each` is another one. Without --all a few.
- A run that stops after a step and goes on with another number of ranks has the digest of one that did not stop.
- Settings that make no tree, or another one, are errors that say what to set.
- Mutants of a plan: a sum that is added twice, not at all, or to one that is no neighbour, an order of ranks or a norm
  that depends on the mesh. verify-plan refuses each.
- With --fakes the same of CUDA programs, whose kernels run on the CPU (tests/simt), with a stand-in for NCCL.
"""
import os
import re
import struct
import sys
import tempfile

from axis import arguments, call, finish

GRAINS, STEPS = 8, 2
UNEVEN = ("tests/run/uneven.hd", {"train.batch": 1, "schedule.fsdp.unit": "Wide,Squeeze"}, "Wide")
GPT2 = ("examples/gpt2/gpt2.hd", {"vocab": 37, "layers": 2, "dim": 32, "heads": 4, "seq": 8, "drop": 0.1,
                                  "train.batch": 1, "train.compute": "f32", "schedule.fsdp.unit": "Block"}, "Block")
PLAIN = {"train.lr": "1e-2", "train.warmup": 0, "train.reduce": "tree", "train.grains": GRAINS}
UNIT = "a module of the model, its third fact"
# ranks along shard and replicate, strategy, other settings
FEW = [(1, 1, "none", {}), (2, 1, "zero3", {"schedule.graph": "unit"}), (8, 1, "zero2", {}),
       (2, 2, "zero1", {"schedule.graph": "step"})]
ALL = FEW + [(1, 2, "none", {}), (4, 1, "none", {}), (2, 1, "none", {}),
             (1, 1, "none", {"schedule.graph": "step", "schedule.recompute": UNIT}),
             (2, 1, "zero3", {"schedule.graph": "none", "schedule.fsdp.overlap_micro": "off"}),
             (4, 1, "zero3", {"schedule.graph": "step", "schedule.fsdp.live_grads": 1}), (4, 2, "zero3", {}),
             (2, 4, "zero2", {}), (1, 8, "none", {"schedule.graph": "unit"}), (2, 2, "none", {}),
             (1, 4, "none", {"schedule.recompute": UNIT}), (8, 1, "none", {}), (8, 1, "zero3", {})]


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.wrong, self.compared = args, folder, [], 0
        self.data = os.path.join(folder, "tokens.bin")
        with open(self.data, "wb") as f:
            f.write(b"".join(struct.pack("<H", (i * i * 7919 >> 4) % 37) for i in range(4000)))

    def compile(self, output, model, sets, *options, ok=True):
        source, settings, unit = model
        every = {**PLAIN, **settings, **{name: unit if v == UNIT else v for name, v in sets.items()}}
        return call(self.args.heddlec, os.path.join(self.args.root, source), "-o", output, *options,
                    *[a for name, v in every.items() for a in ("--set", f"{name}={v}")], ok=ok)

    def build(self, name, model, mesh, *options, **more):
        shard, replicate, strategy, sets = mesh
        program = os.path.join(self.folder, name)
        self.compile(program, model, {"schedule.mesh.shard": shard, "schedule.mesh.replicate": replicate,
                                      "schedule.fsdp": strategy, "train.accumulate": GRAINS // (shard * replicate),
                                      **sets, **more}, *options)
        return program, shard * replicate

    def run(self, built, *options, steps=STEPS, **env):
        program, ranks = built
        digest = program + ".digest"
        call(program, f"--data={self.data}", f"--ranks={ranks}", f"--steps={steps}", f"--digest={digest}", *options,
             **env)
        with open(digest) as f:
            return f.read()

    def same(self, what, is_, should):
        self.compared += 1
        if is_ != should:
            pairs = [f"{a} | {b}" for a, b in zip(is_.splitlines(), should.splitlines()) if a != b]
            self.wrong.append(f"{what}: {len(pairs)} lines differ, as {'; '.join(pairs[:3])}")


def meshes(bench, meshes_of, model):
    digests = [bench.run(bench.build("p", model, mesh)) for mesh in meshes_of]
    for mesh, digest in zip(meshes_of, digests):
        bench.same(f"{model[0]} on {mesh}", digest, digests[0])
    losses = [line.split()[1] for line in digests[0].splitlines()[:STEPS]]
    if len(set(losses)) != STEPS:
        bench.wrong.append(f"{model[0]}: the losses show no training: {losses}")
    each = bench.run(bench.build("p", model, (4, 1, "none", {}), **{"train.reduce": "each", "train.grains": "auto"}))
    if each == digests[0]:
        bench.wrong.append(f"{model[0]}: reduce = each has the same bits, so this test shows nothing")
    return digests[0]


def resumed(bench, model, whole):
    saved = os.path.join(bench.folder, "saved")
    first, second = bench.build("a", model, (4, 1, "zero3", {})), bench.build("b", model, (1, 2, "none", {}))
    start = bench.run(first, f"--save={saved}", steps=1)
    rest = bench.run(second, f"--resume={saved}")
    bench.same("4 ranks, then 2 replicas", start.splitlines()[0] + "\n" + rest, whole)


ERRORS = [({"train.grains": 6}, "train.grains = 6: a tree adds up 1, 2, 4, 8, ... micro-batches"),
          ({"train.grains": 8, "train.accumulate": 2}, "1 data rank with train.accumulate = 2 makes 2 grains, and "
           "train.grains = 8: set train.accumulate = 8"),
          ({"train.grains": 2, "schedule.mesh.shard": 4}, "4 data ranks are more than train.grains = 2: use at most 2"),
          ({"train.grains": "auto", "train.accumulate": 3},
           "there are 1 data rank with train.accumulate = 3: both must be powers of two"),
          ({"train.grains": "auto", "schedule.mesh.shard": 3}, "3 data ranks with train.accumulate = 1: both must be")]


def errors(bench):
    for sets, text in ERRORS:
        done = bench.compile(os.path.join(bench.folder, "e"), UNEVEN, sets, "--emit=plan", ok=False)
        if not done.returncode or text not in done.stderr:
            bench.wrong.append(f"{sets}: {done.stderr!r} does not say {text!r}")
    done = bench.compile(os.path.join(bench.folder, "e"), UNEVEN, {"train.reduce": "each"}, "--emit=plan")
    if "train.grains changes nothing" not in done.stderr:
        bench.wrong.append(f"grains without a tree: {done.stderr!r}")


def first(pattern, to):
    return lambda text: re.sub(pattern, to, text, count=1, flags=re.M)


def of_micro(name, change):
    """Changes the text of one function."""
    def edit(text):
        start = text.index(f"func @{name}(")
        end = text.index("\n}\n", start)
        return text[:start] + change(text[start:end]) + text[end:]
    return edit


def level(a, b):
    return of_micro("micro_last", lambda f: f.replace(f".level{a},", f".level{b},"))


ADD = r"^.*= view {.*level0, .*\n.*store .*accumulate.*\n"
MUTANTS = {
    "a sum that is added twice": of_micro("micro_last", first(f"({ADD})", r"\1\1")),
    "a sum that is left out": of_micro("micro_last", first(ADD, "")),
    "a level that is taken for another one": level(0, 1),
    "micro-batches in another order": lambda text: text.replace("[@micro_first, @micro_level1, @micro_level0",
                                                                "[@micro_first, @micro_level0, @micro_level1"),
    "a sum in the order of ranks": first(r"^(.*reduce_scatter .*), tree", r"\1"),
    "squares that are not exact": first(r"^(.*square_sums .*), exact", r"\1"),
    "a level of the loss that is left out": of_micro("micro_last",
                                                     first(r"^.*= view {.*state.loss.level0.*\n.*\n", "")),
}


def mutants(bench, mesh):
    plan, _ = bench.build("plan", UNEVEN, mesh, "--emit=plan")
    opt = os.path.join(os.path.dirname(bench.args.heddlec), "heddle-opt")
    with open(plan) as f:
        text = f.read()
    if call(opt, "--pass-pipeline=verify-plan", plan, "-o", os.devnull, ok=False).returncode:
        sys.exit(f"{plan} is not accepted")
    for name, edit in MUTANTS.items():
        changed = edit(text)
        if changed == text:
            if not (name == "a sum in the order of ranks" and mesh[:2] == (1, 1)):
                bench.wrong.append(f"{mesh}: {name}: nothing changes")
            continue
        with open(plan + ".mutant", "w") as f:
            f.write(changed)
        done = call(opt, "--pass-pipeline=verify-plan", plan + ".mutant", "-o", os.devnull, ok=False)
        bench.compared += 1
        if not done.returncode or "error" not in done.stderr:
            bench.wrong.append(f"{mesh}: {name}: verify-plan accepts it")


def emulated(bench, model):
    env = dict(HEDDLE_CUDA_PATH=bench.args.fakes, FAKE_CUDA_SIMT=bench.args.kept, FAKE_CUDA_CC="90", HEDDLE_CACHE="off",
               HEDDLE_TUNE="0", FAKE_CUDA_DEVICES="4")
    digests = []
    for mesh in ((1, 1, "none", {}), (2, 1, "zero3", {"schedule.graph": "unit"}), (2, 2, "zero2", {})):
        built = bench.build("c", model, mesh, "--target=cuda", "--arch=sm_90")
        digests.append(bench.run(built, **env))
        bench.same(f"emulated, {model[0]} on {mesh}", digests[-1], digests[0])


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        if args.fakes:
            emulated(bench, GPT2)
        else:
            meshes(bench, ALL if args.all else FEW[1:3], UNEVEN)
            whole = meshes(bench, ALL if args.all else FEW, GPT2)
            resumed(bench, GPT2, whole)
            errors(bench)
            for mesh in ((1, 1, "none", {}), (2, 1, "zero3", {})):
                mutants(bench, mesh)
        finish(bench)


if __name__ == "__main__":
    main()
