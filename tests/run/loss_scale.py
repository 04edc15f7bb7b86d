#!/usr/bin/env python3
"""The scale of the loss (train.loss_scale): what it saves in f16, and that it changes nothing else.

usage: loss_scale.py ROOT HEDDLEC [--fakes=FOLDER --kept=FOLDER] [CASE...]

--fakes, --kept: the folders of the pretended NVIDIA libraries and of what they keep (tests/run/simt.py). With them the
case `gpu` runs alone: kernels for GPUs, on the CPU.
"""
import argparse
import math
import os
import subprocess
import sys
import tempfile

from cases import check, run_cases
from simt import gradients_of

# 2048 targets: of a micro-batch, or of a step of two ranks and two micro-batches
MODEL = ["vocab=256", "layers=1", "dim=32", "heads=2", "seq=32", "train.batch=64"]
PARTS = [*MODEL[:-1], "train.batch=16", "train.accumulate=2", "schedule.mesh.shard=2", "schedule.fsdp=zero3",
         "schedule.fsdp.unit=Block"]
WHOLE = "schedule.fsdp=none"  # whose checkpoints have the moments of all elements in one file
F16 = "train.compute=f16"
# Of the gradients of q and k, relative to those of f32. A number of f16 is off by 0.41 * 2^-11 = 2e-4 in the root mean
# square; q and k follow differences of nearly equal numbers. Measured: 6.8e-3 with a scale, 1.0e-1 without one.
NEAR, FAR = 1e-2, 5e-2


def build(name, sets, target="host"):
    command = [ARGS.heddlec, f"{ARGS.root}/examples/gpt2/gpt2.hd", f"--target={target}", "-o", name]
    command += ["--arch=sm_90"] if target == "cuda" else []
    subprocess.run(command + [x for s in sets for x in ("--set", s)], check=True)


def run(name, *options, status=0):
    """What the program said."""
    env = dict(os.environ, OMP_NUM_THREADS="2")
    if ARGS.fakes:
        env.update(HEDDLE_CUDA_PATH=ARGS.fakes, FAKE_CUDA_SIMT=ARGS.kept, FAKE_CUDA_CC="90", HEDDLE_CACHE="off",
                   HEDDLE_TUNE="0")
    r = subprocess.run([f"./{name}", f"--data={ARGS.root}/LICENSE", "--format=bytes", "--seed=7", *options],
                       capture_output=True, text=True, timeout=600, env=env, stdin=subprocess.DEVNULL)
    check(r.returncode == status, f"{name} {options}: exit status {r.returncode}:", r.stderr)
    return r.stderr


def digest(name, *options, steps=3):
    run(name, f"--steps={steps}", f"--digest={name}.digest", *options)
    with open(f"{name}.digest", encoding="utf-8") as f:
        return f.read()


def step_of(name, sets, *options, target="host"):
    """The norm of the first step's gradient and the gradients of q and k, as the optimizer has used them."""
    build(name, sets, target)
    norm = float.fromhex(digest(name, f"--save={name}.saved", "--overwrite", *options, steps=1).split()[2])
    shape, x = gradients_of(f"{name}.saved")["blocks.0.attn.qkv"]
    return norm, x[:2 * shape[1] * shape[1]]


def off(x, y):
    return math.dist(x, y) / math.hypot(*y)


def compare(target, clip):
    """With the scale that `auto` chooses, and without one."""
    clip = f"train.clip={clip}"
    norm, wide = step_of("wide", [*MODEL, clip])
    scaled, near = step_of("scaled", [*MODEL, clip, F16], target=target)
    plain, far = step_of("plain", [*MODEL, clip, F16, "train.loss_scale=1"], target=target)
    print(f"{target}, {clip}: q and k are off by {off(near, wide):.1e}, unscaled by {off(far, wide):.1e}; norm "
          f"{scaled}, unscaled {plain}, in f32 {norm}", flush=True)
    check(off(near, wide) <= NEAR, f"q and k are off by {off(near, wide)}")
    check(off(far, wide) >= FAR, f"q and k are off by {off(far, wide)} without a scale: this test shows nothing")
    check(abs(scaled - norm) <= 1e-3 * norm, f"the norm is {scaled}, and {norm} in f32")


def case_f16():
    for clip in ("0", "0.1"):
        compare("host", clip)


def case_parts():
    norm, wide = step_of("wide", [*MODEL, "train.clip=0.1"])
    for reduction in ("each", "last"):
        sets = [*PARTS, F16, f"train.reduce={reduction}", "train.clip=0.1"]
        scaled, near = step_of(reduction, [*sets, WHOLE], "--ranks=2")
        check(off(near, wide) <= NEAR, f"{reduction}: q and k are off by {off(near, wide)}")
        check(abs(scaled - norm) <= 1e-3 * norm, f"{reduction}: the norm is {scaled}, and {norm} in f32")
        build("zero3", sets)
        sharded = digest("zero3", "--ranks=2", steps=1)
        with open(f"{reduction}.digest", encoding="utf-8") as f:
            check(f.read() == sharded, f"{reduction}: other bits in shards")


def case_exact():
    """Where exponents are wide enough a power of two changes no bit of a loss, a norm or a parameter."""
    for compute, clip, grads in (("f32", "0.1", "off"), ("bf16", "0", "on")):
        sets = [*PARTS, f"train.compute={compute}", f"train.clip={clip}", f"schedule.overlap_grads={grads}"]
        digests = []
        for scale in ("auto", "1048576"):
            build("exact", [*sets, f"train.loss_scale={scale}"])
            digests.append(digest("exact", "--ranks=2"))
        check(len(set(digests)) == 1, f"{compute}: a scale changes bits:", *digests)


def case_overflow():
    """Gradients that f16 cannot hold: the error says what to do, and that helps."""
    build("fits", [*MODEL, F16])
    run("fits", "--steps=2", "--save=saved", "--overwrite")
    build("large", [*MODEL, F16, "train.loss_scale=1073741824"])
    said = run("large", "--steps=3", "--resume=saved", status=1)
    for words in ("step 3: loss ", ", gradient norm ", "; gradients are multiplied by train.loss_scale = 1073741824",
                  "such as --set train.loss_scale=67108864, and --resume the last checkpoint"):
        check(words in said, f"expected '{words}':", said)
    check("compile with --set train.loss_scale=auto" in said, said)
    run("fits", "--steps=3", "--resume=saved")  # which is auto
    # another mesh has another scale; the checkpoint fits both
    build("ranks", [*PARTS, "train.batch=64", F16])
    run("ranks", "--steps=3", "--resume=saved", "--ranks=2")
    build("wide", [*MODEL, "train.loss_scale=1073741824"])
    run("wide", "--steps=2")


def main():
    global ARGS
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=os.path.abspath)
    parser.add_argument("heddlec", type=os.path.abspath)
    parser.add_argument("--fakes", type=os.path.abspath)
    parser.add_argument("--kept", type=os.path.abspath)
    parser.add_argument("names", nargs="*")
    ARGS = parser.parse_intermixed_args()
    cases = {"case_gpu": lambda: compare("cuda", "0.1")} if ARGS.fakes else globals()
    with tempfile.TemporaryDirectory() as folder:
        return run_cases(cases, ARGS.names, folder)


if __name__ == "__main__":
    sys.exit(main())
