#!/usr/bin/env python3
"""What FP8 loses of data that is known (schedule.fp8_counts), and what counting it changes: nothing.

usage: fp8_counts.py ROOT HEDDLEC [--fakes=FOLDER --kept=FOLDER]

- The largest element of each row is 448 times a power of two, so that its scale is that power. The others are near
  2^-10 of it, the largest number that becomes 0. Two rows have infinite elements: the step is left out, and the log
  says how many there were.
- One rank, several micro-batches, ranks and a tree count alike in all steps together, which read every row once.
- The digest is that of the program that does not count, and so is the plan but for the counts.
- With --fakes the same of a CUDA program, whose kernels run on the CPU (tests/simt).
"""
import json
import math
import os
import struct
import tempfile

from axis import arguments, call, finish

STEPS, BATCH, DIM = 4, 64, 16
ROWS = STEPS * BATCH
MODEL = """model Line(dim = 16) {
  up = Linear(dim, 16, bias = 0);
  fn loss(x: f32[batch, dim]) { return mean(square(up(x) - 1)); }
}
train Line { on_nan = skip; clip = 0; precision { fp8 Line.up { backward = e4m3; weight_grads = fp8; } } }
"""
SPECIAL = [1.5 * 2**-10, 2**-10, -2**-10, 2**-11, 0.0, -0.0, 1.0, -300.0, 2**-9, -1.25 * 2**-10, 2**-30]
INFINITE = {(37, 3): math.inf, (37, 9): -math.inf, (200, 0): math.inf}
MESHES = [({}, 64), ({"train.accumulate": 4}, 16), ({"schedule.mesh.shard": 2, "schedule.fsdp": "zero3"}, 32),
          ({"schedule.mesh.shard": 2, "train.accumulate": 2, "train.reduce": "tree", "schedule.graph": "none"}, 16)]


def element(row, column):
    if (row, column) in INFINITE:
        return INFINITE[row, column]
    return (448.0 if column == row % DIM else SPECIAL[(row * 3 + column) % len(SPECIAL)]) * 2.0**(row % 7 - 3)


def expected():
    """What becomes 0, what is too large, and what is not finite, of all rows."""
    zero = infinite = 0
    for row in range(ROWS):
        elements = [element(row, c) for c in range(DIM)]
        broken = not all(map(math.isfinite, elements))  # its scale is infinite, and what is finite becomes 0
        infinite += sum(not math.isfinite(x) for x in elements)
        zero += sum(math.isfinite(x) and x != 0 and (broken or abs(x) / 2.0**(row % 7 - 3) <= 2**-10) for x in elements)
    return [zero, 0, infinite]


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.wrong, self.compared = args, folder, [], 0
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({ROWS}, {DIM}), }}".ljust(117) + "\n"
        numbers = [element(r, c) for r in range(ROWS) for c in range(DIM)]
        with open(self.path("x.npy"), "wb") as f:
            f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()
                    + struct.pack(f"<{len(numbers)}f", *numbers))
        with open(self.path("m.hd"), "w", encoding="utf-8") as f:
            f.write(MODEL)

    def path(self, name):
        return os.path.join(self.folder, name)

    def check(self, holds, *what):
        self.compared += 1
        if not holds:
            self.wrong.append(" ".join(map(str, what)))

    def run(self, sets, ranks):
        """The digest, and the lines of the steps."""
        cuda = ["--target=cuda", "--arch=sm_90"] if self.args.fakes else []
        call(self.args.heddlec, self.path("m.hd"), "-o", self.path("m"), *cuda,
             *[a for name, v in sets.items() for a in ("--set", f"{name}={v}")])
        env = dict(HEDDLE_CUDA_PATH=self.args.fakes, FAKE_CUDA_SIMT=self.args.kept, FAKE_CUDA_CC="90",
                   HEDDLE_CACHE="off", HEDDLE_TUNE="0", FAKE_CUDA_DEVICES="2") if cuda else {}
        call(self.path("m"), f"--data={self.path('x.npy')}", f"--steps={STEPS}", f"--ranks={ranks}",
             f"--digest={self.path('d')}", f"--log={self.path('l')}", f"--tensorboard={self.path('e')}", **env)
        with open(self.path("d"), encoding="utf-8") as digest, open(self.path("l"), encoding="utf-8") as log:
            text = digest.read()
            lines = [json.loads(line) for line in log]
        elements = lines[0].get("fp8_elements", {}).get("up.input")
        self.check(elements == (BATCH * DIM if "schedule.fp8_counts" in sets else None), "elements", elements)
        return text, [line for line in lines if "loss" in line]


def counts(bench, sets, batch):
    ranks = sets.get("schedule.mesh.shard", 1)
    sets = {**sets, "train.batch": batch}
    plain, steps = bench.run(sets, ranks)
    bench.check(not any("fp8" in line for line in steps), sets, "counts without being asked")
    digest, steps = bench.run({**sets, "schedule.fp8_counts": "on"}, ranks)
    bench.check(digest == plain, sets, "counts change the digest")
    bench.check(all(set(line["fp8"]) == {"up.input", "up.gradient", "up.weight_gradient"} for line in steps), steps)
    found = [sum(line["fp8"]["up.input"][k] for line in steps) for k in range(3)]
    bench.check(found == expected() and found[0] > ROWS, sets, found, "and not", expected())
    for line in steps:  # loss and norm are no numbers where an element is not finite
        bench.check((line["fp8"]["up.input"][2] > 0) == bool(line.get("skipped")) == (line["loss"] is None), line)
    events = b"".join(open(os.path.join(bench.path("e"), name), "rb").read() for name in os.listdir(bench.path("e")))
    bench.check(all(f"fp8/up.input/{x}".encode() in events for x in ("zero", "saturated", "not_finite")), "events")


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        for sets, batch in MESHES[2:3] if args.fakes else MESHES:
            counts(bench, sets, batch)
        finish(bench)


if __name__ == "__main__":
    main()
