#!/usr/bin/env python3
"""train.on_nan: steps whose gradients are not finite leave weights and moments as they are, on one rank and several,
with one digest for all schedules of a mesh. Usage: skip.py HEDDLEC

The rows of the data are equal, but for a few that hold an infinity: every step that is not skipped has the same
gradient, so the weights are those of as many steps without a skip.
"""
import json
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, ROWS, ROW, LR, MOMENTUM = 12, 48, (1.0, 2.0, 3.0, 4.0), 2.0**-6, 0.5
MODEL = """
model Line(dim = 4) {
  param w: [dim] = ones, no_decay;
  param v: [dim] = ones, no_decay;
  fn loss(x: f32[batch, dim]) { return mean(x * w) + mean(x * v); }
}
train Line { batch = 2; clip = 0; optimizer { default sgd { lr = constant(0.015625); momentum = 0.5; } } }
"""


def check(ok, *why):
    if not ok:
        sys.exit(" ".join(map(str, why)))


def reference(steps):
    w, v = [1.0] * 4, [0.0] * 4
    for _ in range(steps):
        v = [MOMENTUM * a + x / 4 for a, x in zip(v, ROW, strict=True)]
        w = [a - LR * b for a, b in zip(w, v, strict=True)]
    return w


def npy(path, rows):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(rows)}, {len(ROW)}), }}"
    head = head.ljust(117) + "\n"
    values = [x for row in rows for x in row]
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()
                     + struct.pack(f"<{len(values)}f", *values))


class Folder:
    def __init__(self, heddlec, path):
        self.heddlec, self.path = heddlec, path
        (path / "m.hd").write_text(MODEL)

    def built(self, name, *sets):
        options = [x for s in sets for x in ("--set", s)]
        subprocess.run([self.heddlec, self.path / "m.hd", *options, "-o", self.path / name], check=True)

    def run(self, name, ranks, *options):
        return subprocess.run([f"./{name}", f"--ranks={ranks}", "--data=x.npy", f"--steps={STEPS}", *options],
                              cwd=self.path, capture_output=True, text=True)

    def weights(self):
        data = (self.path / "w").read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        head = json.loads(data[8:8 + n])
        at = {k: v["data_offsets"][0] for k, v in head.items() if k != "__metadata__"}
        return [struct.unpack_from("<4f", data, 8 + n + at[k]) for k in "wv"]


def skipped(folder):
    lines = [json.loads(x) for x in (folder.path / "l").read_text().splitlines()]
    return [x["step"] for x in lines if x.get("skipped")], [x for x in lines if "loss" in x]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(sys.argv[1], Path(name))
        rows = [ROW] * ROWS
        rows[5] = rows[20] = rows[21] = (1.0, float("inf"), 3.0, 4.0)
        npy(folder.path / "x.npy", rows)
        folder.built("stop")
        r = folder.run("stop", 1)
        check(r.returncode == 1 and "gradient norm inf" in r.stderr, "a run without on_nan goes on:", r)
        for ranks, several in ((1, (("schedule.graph=none",), ("train.clip=1000", "schedule.graph=none"))),
                               (2, (("schedule.fsdp=none",), ("schedule.fsdp=zero1",), ("schedule.fsdp=zero3",),
                                    ("schedule.fsdp=zero3", "train.accumulate=2", "train.batch=1")))):
            digests = []
            for sets in several:
                folder.built("m", "train.on_nan=skip", f"schedule.mesh.shard={ranks}", *sets)
                r = folder.run("m", ranks, "--log=l", "--export=w", "--digest=d")
                r.check_returncode()
                steps, lines = skipped(folder)
                check(0 < len(steps) < STEPS and len(lines) == STEPS, "skipped:", steps)
                check(steps == [x["step"] for x in lines if x["grad_norm"] is None], "skipped:", steps, lines)
                said = [int(s) for s in re.findall(r"step (\d+)  loss \S+, gradient norm \S+: skipped", r.stderr)]
                check(said == steps, "said:", r.stderr)
                want = reference(STEPS - len(steps))
                far = max(abs(a - b) for w in folder.weights() for a, b in zip(w, want, strict=True))
                check(far < 1e-6, sets, "weights", folder.weights(), "not", want)
                digests.append((folder.path / "d").read_bytes())
            if ranks > 1:
                check(len(set(digests[:3])) == 1, "digests differ")
        resume(folder, (folder.path / "w").read_bytes())


def resume(folder, whole):
    """Half of the run, and the rest of it from a checkpoint."""
    r = folder.run("m", 2, "--steps=6", "--save=c")
    r.check_returncode()
    folder.run("m", 2, "--resume=c", "--export=w").check_returncode()
    check((folder.path / "w").read_bytes() == whole, "the resumed run has other weights")
    folder.built("other", "train.batch=1", "train.accumulate=2", "schedule.mesh.shard=2")
    r = folder.run("other", 2, "--resume=c")
    check(r.returncode == 1 and "on_nan = skip there, stop in this program" in r.stderr, "resume says:", r)


if __name__ == "__main__":
    main()
