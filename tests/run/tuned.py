#!/usr/bin/env python3
"""V24: what a CUDA program does before its first step changes no state. Timed products and first collectives write to
the memory in which weights, buffers and optimizer states are later.

usage: tuned.py ROOT HEDDLEC FAKES KEPT

One rank and two ranks, whose communicators are used once before the first step, time their products or time none.
Weights and buffers before the first step, losses, parameters and every tensor of a checkpoint after two steps are the
same. Kernels run on the CPU (tests/simt); timed products leave random numbers in the memory where the state will be.
"""
import os
import subprocess
import sys
import tempfile

import compiled

SMALL = ("layers=1", "dim=16", "heads=2", "seq=16", "inner=8", "shared=8", "vocab=128", "train.batch=1",
         "train.lr=constant(0.01)", "train.compute=f32", "speed=0.25")


def call(*command, **env):
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1", **env))
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def saved(folder):  # without checksums, which are also of the hash of the algorithms
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            at = os.path.relpath(os.path.join(path, name), folder)
            found.update((f"{at}: {of}", t) for of, t in compiled.tensors_of(os.path.join(path, name))[0].items()
                         if of != "__checksum__")
    return found


def read(path):
    with open(path, "rb") as f:
        return f.read()


def main():
    root, heddlec, fakes, kept = (os.path.abspath(a) for a in sys.argv[1:])
    wrong = []
    with tempfile.TemporaryDirectory(prefix="heddle-tuned-") as folder:
        data = os.path.join(folder, "data")
        with open(data, "wb") as f:
            f.write(bytes(97 + (i * 7 + i * i // 11) % 26 for i in range(2000)))
        for ranks, *sets in ((1, "schedule.graph=step"), (2, "schedule.fsdp=zero3")):
            program = os.path.join(folder, f"program{ranks}")
            call(heddlec, f"{root}/examples/moe/deepseek.hd", "--target=cuda", "--arch=sm_90", "-o", program,
                 *[a for s in (*SMALL, f"schedule.mesh.shard={ranks}", *sets) for a in ("--set", s)])
            states = []
            for tune in "01":
                out = os.path.join(folder, f"{ranks}-{tune}")
                env = dict(HEDDLE_CUDA_PATH=fakes, FAKE_CUDA_SIMT=kept, FAKE_CUDA_CC="90", FAKE_CUDA_DEVICES=str(ranks),
                           HEDDLE_TUNE=tune, HEDDLE_CACHE=f"{out}-cache", HEDDLE_STALL_SECONDS="600")
                run = [program, f"--data={data}", "--format=bytes", f"--ranks={ranks}"]
                call(*run, "--steps=0", f"--export={out}-start", **env)
                call(*run, "--steps=2", f"--digest={out}-digest", f"--save={out}-save", **env)
                states.append({"before the first step": read(f"{out}-start"), "digest": read(f"{out}-digest"),
                               **saved(f"{out}-save")})
            plain, tuned = states
            differ = [what for what in plain if plain[what] != tuned.get(what)]
            if differ or len(plain) != len(tuned) or len(plain) < 30:
                wrong.append(f"{ranks} ranks: tuning changes {differ} of {len(plain)} things compared")
            if os.listdir(f"{folder}/{ranks}-0-cache") == os.listdir(f"{folder}/{ranks}-1-cache"):
                wrong.append(f"{ranks} ranks: HEDDLE_TUNE=1 has chosen nothing")
    print("\n".join(wrong) or "ok")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
