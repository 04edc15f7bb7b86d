#!/usr/bin/env python3
"""Buffers: state without a gradient that a step updates by a sum over its micro-batches and ranks. Usage: buffers.py
ROOT HEDDLEC [CASE...]. Cases as in cases.py.

  counted   values against the rule in plain Python, from data that say how often each token is read, on one rank and
            several, with micro-batches; steps that are skipped, validation and a run of no steps leave them as they are
  balanced  the router of examples/moe/deepseek.hd: one digest for all schedules of a mesh, and biases that move
  resumed   half of a run, and the rest of it under the same and under another mesh
"""
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import compiled
from cases import check, run_cases
from skip import npy

ROOT, HEDDLEC = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
# Of each row two numbers are less than 2.5, the first two. A row with an infinity makes the gradient of w infinite.
COUNTED = """
model Counted(rate = 0.25) {
  param w: [4] = ones, no_decay;
  buffer bias: [4] = zeros;
  buffer seen: [1] = constant(2);
  fn loss(x: f32[batch, 4]) {
    let load = sum(lt(x, 2.5), axes = 0);
    update bias = bias + rate * sign(total(sum(load) - 4 * load));
    update seen = 0.5 * seen + total(sum(load, keep = true));
    return mean(x * w) + mean((bias + seen) * w);
  }
}
train Counted { batch = 2; clip = 1; on_nan = skip; optimizer { default sgd { lr = constant(0.015625); } } }
"""
STEPS, ROW = 6, (1.0, 2.0, 3.0, 4.0)


def build(name, source, *sets):
    args = [HEDDLEC, source, "-o", name]
    for s in sets:
        args += ["--set", s]
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(r.returncode == 0, "cannot compile:", " ".join(args), r.stdout)


def start(name, *args):
    args = (os.path.abspath(name), *args)
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(r.returncode == 0, "cannot run:", *args, r.stdout)
    return r.stdout


def values(path, name):
    _, _, data = compiled.tensors_of(path)[0][name]
    return struct.unpack(f"<{len(data) // 4}f", data)


def skipped_of(log):
    return [l["step"] for l in compiled.lines_of(log) if l.get("skipped")]


def case_counted():
    compiled.write("m.hd", COUNTED)
    for ranks, micro, *sets in ((1, 1), (1, 3, "schedule.graph=step"), (2, 1, "schedule.fsdp=none"),
                                (2, 2, "schedule.fsdp=zero1"), (2, 2, "schedule.fsdp=zero3", "train.reduce=tree"),
                                (4, 3, "schedule.mesh.shard=2", "schedule.mesh.replicate=2", "train.reduce=last")):
        mesh = sets if any("mesh" in s for s in sets) else [f"schedule.mesh.shard={ranks}", *sets]
        rows = [ROW] * (2 * micro * ranks * 8)  # eight steps
        npy(Path("x.npy"), rows)
        rows[0] = rows[5] = rows[9] = (1.0, float("inf"), 3.0, 4.0)
        npy(Path("y.npy"), rows)
        build("m", "m.hd", f"train.accumulate={micro}", *mesh)
        many = f"--ranks={ranks}"
        start("m", many, "--data=x.npy", "--steps=0", "--val=x.npy", "--export=w")
        first = values("w", "bias"), values("w", "seen")
        check(first == ((0,) * 4, (2,)), "before the first step:", first)
        for data in "xy":
            start("m", many, f"--data={data}.npy", f"--steps={STEPS}", "--log=l", "--export=w", "--digest=d")
            skips = skipped_of("l")
            check(bool(skips) == (data == "y") and len(skips) < STEPS, "skipped:", skips)
            n, seen = STEPS - len(skips), 2.0
            for _ in range(n):
                seen = 0.5 * seen + 2 * 2 * micro * ranks
            got, want = (*values("w", "bias"), *values("w", "seen")), (-0.25 * n, -0.25 * n, 0.25 * n, 0.25 * n, seen)
            check(got == want, ranks, micro, sets, data, "buffers", got, "and not", want)
            os.remove("l")
        start("m", many, "--data=y.npy", f"--steps={STEPS}", "--val=y.npy", "--val-every=1", "--digest=v")
        check(compiled.read("d") == compiled.read("v"), "validation changes the run:", sets)


SMALL = ("layers=2", "dim=16", "heads=2", "seq=16", "inner=8", "shared=8", "vocab=128", "train.batch=2",
         "train.lr=constant(0.01)", "schedule.fsdp.unit=Block")


def text():
    return compiled.write("data", bytes(97 + (i * 7 + i * i // 11) % 26 for i in range(4000)))


def biases(path):
    return [values(path, f"blocks.{i}.router.bias") for i in range(2)]


def case_balanced():
    text()
    more = (("schedule.graph=step",), ("schedule.recompute=Block", "schedule.graph=unit"),
            ("schedule.offload=Block.router", "schedule.offload.min_size=0", "schedule.offload.margin=0"))
    for ranks, kinds in ((1, [("schedule.graph=none", *more[2]), more[1]]),
                         (2, [("schedule.fsdp=none", *more[0]), ("schedule.fsdp=zero1", *more[2]),
                              ("schedule.fsdp=zero3", *more[1])])):
        digests = []
        for sets in kinds:
            build("m", os.path.join(ROOT, "examples/moe/deepseek.hd"), *SMALL, "train.accumulate=2",
                  f"schedule.mesh.shard={ranks}", *sets)
            start("m", f"--ranks={ranks}", "--data=data", "--format=bytes", "--steps=4", "--digest=d", "--export=w")
            digests.append(compiled.read("d"))
            check(digests[-1] == digests[0], ranks, "ranks:", sets, "has another digest than", kinds[0])
        steps = {round(b / 0.001, 3) for layer in biases("w") for b in layer}
        check(steps <= set(range(-4, 5)) and len(steps) > 2, "biases after 4 steps:", biases("w"))


def case_resumed():
    text()
    meshes = {"one": (1, "train.accumulate=4", "schedule.mesh.shard=1"),
              "two": (2, "train.accumulate=2", "schedule.mesh.shard=2", "schedule.fsdp=zero3")}
    for name, (_, *sets) in meshes.items():
        build(name, os.path.join(ROOT, "examples/moe/deepseek.hd"), *SMALL, *sets)
    run = lambda name, *more: start(name, f"--ranks={meshes[name][0]}", "--data=data", "--format=bytes", *more)
    run("two", "--steps=6", "--digest=whole")
    run("two", "--steps=3", "--save=c", "--export=half")
    run("two", "--steps=6", "--resume=c", "--digest=rest")
    check(compiled.read("rest").splitlines()[-1:] == compiled.read("whole").splitlines()[-1:]
          and compiled.digest_of("rest")[1] == compiled.digest_of("whole")[1], "resumed, it ends elsewhere")
    run("one", "--steps=3", "--resume=c", "--export=other", "--digest=d")
    check(biases("other") == biases("half") and any(map(any, biases("half"))), "biases on another mesh:",
          biases("other"), biases("half"))
    run("one", "--steps=6", "--resume=c", "--export=other")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run_cases(globals(), sys.argv[3:], folder))
