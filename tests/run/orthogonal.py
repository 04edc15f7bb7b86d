#!/usr/bin/env python3
"""usage: orthogonal.py HEDDLEC [CASE...]: the initialiser orthogonal: rows or columns of every shape are orthogonal,
the values are those of a QR decomposition of the matrix that normal(1) draws, and every mesh and strategy has the same
bits.
"""
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import check, run_cases  # noqa: E402
from compiled import tensors_of  # noqa: E402

HEDDLEC = os.path.abspath(sys.argv[1])
SHAPES = {"wide": (6, 20), "tall": (41, 5), "equal": (36, 36), "row": (1, 7), "column": (7, 1), "split": (8, 12),
          "back": (4, 8)}
OVER = {"split": ("8 over tensor", 12), "back": (4, "8 over tensor")}
MODEL = """
model O {
%s
  fn loss(x: f32[batch, 12]) { return %s; }
}
"""


def built(init, *sets):
    params = [f"  param {name}: [{a}, {b}] = {init};" for name, (a, b) in {**SHAPES, **OVER}.items()]
    terms = [f"mean(square({name}))" for name in SHAPES if name not in OVER]
    terms += ["mean(square(linear(linear(x, split), back)))"]
    Path("m.hd").write_text(MODEL % ("\n".join(params), " + ".join(terms)))
    r = subprocess.run([HEDDLEC, "m.hd", "-o", "m", *[x for s in sets for x in ("--set", s)]], capture_output=True,
                       text=True)
    check(r.returncode == 0, r.stderr)


def exported(*options):
    """{name: rows} of the weights at the start, and their bytes."""
    r = subprocess.run(["./m", "--export=e", *options], capture_output=True, text=True)
    check(r.returncode == 0, r.stderr)
    rows = {}
    for name, (_, (a, b), data) in tensors_of("e")[0].items():
        flat = memoryview(data).cast("f").tolist()
        rows[name] = [flat[i * b:i * b + b] for i in range(a)]
    return rows, Path("e").read_bytes()


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def turned(rows):
    return [list(c) for c in zip(*rows, strict=True)]


def vectors(rows):
    """Those that are orthogonal: the columns, unless there are fewer rows."""
    return turned(rows) if len(rows) >= len(rows[0]) else rows


def decomposed(of):
    """The orthogonal factor by Gram and Schmidt, each vector twice: R's diagonal is positive."""
    made = []
    for v in of:
        for q in 2 * made:
            by = dot(v, q)
            v = [x - by * y for x, y in zip(v, q, strict=True)]
        length = math.sqrt(dot(v, v))
        made.append([x / length for x in v])
    return made


def case_values():
    for gain, init in ((1, "orthogonal"), (2.5, "orthogonal(2.5)")):
        built("normal(1)")
        drawn, _ = exported()
        built(init)
        made, _ = exported()
        for name, rows in made.items():
            have, want = vectors(rows), decomposed(vectors(drawn[name]))
            for i, a in enumerate(have):
                for j, b in enumerate(have):
                    check(abs(dot(a, b) - gain * gain * (i == j)) < 1e-5, name, i, j, dot(a, b))
                worst = max(abs(x - gain * y) for x, y in zip(a, want[i], strict=True))
                check(worst < 1e-5 * gain, name, i, worst)
    check(exported("--seed=2")[0]["wide"] != made["wide"], "another seed makes the same matrix")


def case_ranks():
    """One export for every mesh and strategy."""
    bits = {}
    for mesh, fsdp in (((), "none"), (("shard=2",), "zero3"), (("shard=4",), "zero1"), (("tensor=2",), "none"),
                       (("shard=2", "replicate=2"), "zero2"), (("tensor=2", "shard=2"), "zero3")):
        built("orthogonal", *[f"schedule.mesh.{m}" for m in mesh], f"schedule.fsdp={fsdp}")
        bits[mesh, fsdp] = exported()[1]
    check(len(set(bits.values())) == 1, "meshes differ:", [k for k, v in bits.items() if v != bits[(), "none"]])


def main():
    with tempfile.TemporaryDirectory() as folder:
        return run_cases(globals(), sys.argv[2:], folder)


if __name__ == "__main__":
    sys.exit(main())
