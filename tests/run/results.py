#!/usr/bin/env python3
"""Further results of the loss: return loss, a = x, b = y.

usage: results.py ROOT HEDDLEC [--fakes=FOLDER --kept=FOLDER]

- The log, the event file and validation have the mean of each over micro-batches and ranks, of every mesh and strategy.
- The digest is that of the model without them, and a checkpoint of the one goes on in the other.
- No result can have the name of what the log has anyway.
- With --fakes the same of CUDA programs, whose kernels run on the CPU (tests/simt).
"""
import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, ROWS, DIM, BATCH = 8, 64, 4, 8  # any mesh reads whole epochs
RETURN = "mean(square(linear(x, w))) + 0.5 * p"
MODEL = """model Line(dim = 4) {
  param w: [3, dim] = constant(0.25);
  fn loss(x: f32[batch, dim]) { let p = mean(square(w)); return %s; }
}
train Line { batch = 8; optimizer { default sgd { lr = constant(0.0625); momentum = 0; } } }
"""
MORE = RETURN + ", penalty = p, input = mean(x), most = max(mean(x), 0.9), "\
       "again = " + RETURN
MESHES = [{}, {"train.accumulate": 4}, {"train.accumulate": 4, "train.reduce": "tree"},
          {"schedule.mesh.shard": 2, "schedule.fsdp": "zero3"},
          {"schedule.mesh.shard": 2, "schedule.fsdp": "zero1", "train.accumulate": 2, "schedule.graph": "none"},
          {"schedule.mesh.shard": 2, "schedule.fsdp": "zero2", "train.accumulate": 2, "train.reduce": "tree"}]


def check(ok, *why):
    if not ok:
        sys.exit(" ".join(map(str, why)))


def value(row, column):
    return (row * 7 + column * 3) % 16 / 8


def npy(path):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({ROWS}, {DIM}), }}".ljust(117) + "\n"
    numbers = [value(r, c) for r in range(ROWS) for c in range(DIM)]
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()
                     + struct.pack(f"<{len(numbers)}f", *numbers))


class Folder:
    def __init__(self, args, path):
        self.args, self.path = args, path

    def build(self, name, returned, sets):
        (self.path / f"{name}.hd").write_text(MODEL % returned)
        target = ["--target=cuda", "--arch=sm_90"] if self.args.fakes else []
        self.call(self.args.heddlec, f"{name}.hd", "-o", name, *target,
                  *[x for k, v in sets.items() for x in ("--set", f"{k}={v}")])

    def call(self, *command, ok=True):
        env = dict(os.environ, OMP_NUM_THREADS="1")
        if self.args.fakes:
            env.update(HEDDLE_CUDA_PATH=self.args.fakes, FAKE_CUDA_SIMT=self.args.kept, HEDDLE_CACHE="off",
                       HEDDLE_TUNE="0", FAKE_CUDA_CC="90", FAKE_CUDA_DEVICES="4")
        r = subprocess.run(command, cwd=self.path, capture_output=True, text=True, env=env)
        check(not ok or r.returncode == 0, command, r.stdout, r.stderr)
        return r

    def run(self, name, ranks, *options):
        return self.call(f"./{name}", f"--ranks={ranks}", "--data=x.npy", f"--steps={STEPS}", "--digest=d", *options)

    def digest(self):
        return (self.path / "d").read_bytes()


def near(a, b):
    return abs(a - b) <= 1e-6 * max(1, abs(b))


def log_is_right(folder, sets):
    lines = [json.loads(x) for x in (folder.path / "l").read_text().splitlines()]
    steps, vals = [x for x in lines if "loss" in x], [x for x in lines if "val_loss" in x]
    check(len(steps) == STEPS and len(vals) == 1, sets, lines)
    check(near(steps[0]["penalty"], 0.0625), sets, "penalty", steps[0])
    check(all(x["again"] == x["loss"] for x in steps), sets, "the loss, and the same as a result:", steps)
    means = [sum(value(r, c) for r in range(at, at + BATCH) for c in range(DIM)) / BATCH / DIM
             for at in range(0, ROWS, BATCH)]
    mean, most = sum(means) / len(means), sum(max(x, 0.9) for x in means) / len(means)
    check(mean < most, means)
    check(near(sum(x["input"] for x in steps) / STEPS, mean), sets, "input", steps, mean)
    check(near(vals[0]["val_input"], mean) and near(vals[0]["val_most"], most), sets, vals, mean, most)
    check(vals[0]["val_penalty"] < steps[0]["penalty"], sets, "the penalty did not fall", vals)
    return set(steps[0]) | set(vals[0])


def meshes(folder):
    for sets in MESHES[:4] if folder.args.fakes else MESHES:
        ranks = sets.get("schedule.mesh.shard", 1)
        folder.build("plain", RETURN, sets)
        folder.run("plain", ranks, "--save=c", "--overwrite")
        plain = folder.digest()
        folder.build("more", MORE, sets)
        r = folder.run("more", ranks, "--log=l", "--val=x.npy", "--val-batches=1000", "--tensorboard=e")
        check(folder.digest() == plain, sets, "results change the digest")
        text = r.stderr
        check(re.search(r"step 1/8  loss \S+  penalty 0.0625  input \S+  most \S+  again \S+  norm", text), text)
        check(re.search(r"validation loss .*  penalty \S+  input \S+  most \S+", text), text)
        events = b"".join(x.read_bytes() for x in (folder.path / "e").iterdir())
        check(all(tag in events for tag in (b"penalty", b"val_most")), "tags of the event file")
        names = log_is_right(folder, sets)
        folder.call("rm", "-r", "e")
    return names


def goes_on(folder):
    """From a checkpoint of the model without results, in the last mesh: no step is left, and nothing is refused."""
    sets = MESHES[3] if folder.args.fakes else MESHES[-1]
    folder.run("more", sets["schedule.mesh.shard"], "--resume=c")


def taken(folder, names):
    for name in names - {"penalty", "input", "most", "again"}:
        (folder.path / "t.hd").write_text(MODEL % f"{RETURN}, {name} = p")
        r = folder.call(folder.args.heddlec, "t.hd", "--emit=ir", ok=False)
        check(r.returncode == 1 and f"the log of a run has '{name}' already" in r.stderr, name, r.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("heddlec")
    parser.add_argument("--fakes")
    parser.add_argument("--kept")
    args = parser.parse_args()
    args.heddlec = os.path.abspath(args.heddlec)
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(args, Path(name))
        npy(folder.path / "x.npy")
        names = meshes(folder)
        goes_on(folder)
        if not args.fakes:
            taken(folder, names)


if __name__ == "__main__":
    main()
