#!/usr/bin/env python3
"""Indices that no op proves to be in range: with --check they are looked at before the action that reads them.

usage: indices.py ROOT HEDDLEC [--fakes=FOLDER]

Experts come from data, which bounds nothing here, and rows of a table are places that a dispatch chooses, of which -1
is none. A number that is out of range ends a run with --check by one error that names the op, the value, the number and
its bounds; without it a choice of no expert has no row. Numbers in range give the same digest with --check. A table
with a row for every place is proved, and so are the examples: their programs have nothing to look at. --fakes: of a
program for GPUs, whose kernels do nothing there; what is read of data is the same.
"""
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

MODEL = """model M(vocab = 40, dim = 8, experts = 4, seq = 8, rows = 15) {
  embed = Embedding(vocab, dim);
  far = Embedding(rows, dim);
  param up: [experts, dim, dim] = normal(0.1);
  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq], picks: i32[batch, seq, 2]) {
    let x = embed(tokens);
    let source, slots, counts = dispatch(picks, experts);
    let y = combine(grouped(take(x, source), up, counts), slots, fill(1, [batch, seq, 2]));
    let z = mean(far(max(source, 0)));
    return cross_entropy(matmul(x + y, transpose(embed.weight)), targets) + z;
  }
}
train M { batch = 2; optimizer adamw { lr = 1e-3; } }
schedule M { graph step; }
"""
ROWS = 8


def array(name, shape, numbers):
    head = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    with open(name, "wb") as f:
        f.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head + struct.pack(f"<{len(numbers)}i", *numbers))


def main():
    fakes = [os.path.abspath(a[8:]) for a in sys.argv[3:] if a.startswith("--fakes=")]
    root, heddlec = (os.path.abspath(a) for a in sys.argv[1:3])
    wrong, draw = [], random.Random(3)
    target = ["--target=cuda", "--arch=sm_90"] if fakes else []
    env = dict(os.environ, OMP_NUM_THREADS="1", **{"HEDDLE_CUDA_PATH": f for f in fakes})

    def check(ok, *said):
        if not ok:
            wrong.append(" ".join(map(str, said)))

    def text(source, *sets):
        return subprocess.run([heddlec, source, *target, *sets, "--emit=c"], check=True, capture_output=True,
                              text=True).stdout

    def run(program, picks, *options):
        done = subprocess.run([f"./{program}", "--data=tokens=tokens.npy", "--data=targets=tokens.npy",
                               f"--data=picks={picks}.npy", "--steps=2", f"--digest={picks}.{len(options)}", *options],
                              capture_output=True, text=True, env=env)
        return done.returncode, done.stderr

    with tempfile.TemporaryDirectory(prefix="heddle-indices-") as folder:
        os.chdir(folder)
        with open("m.hd", "w", encoding="utf-8") as f:
            f.write(MODEL)
        picks = [draw.randrange(4) for _ in range(ROWS * 16)]
        array("tokens.npy", (ROWS, 8), [draw.randrange(40) for _ in range(ROWS * 8)])
        array("good.npy", (ROWS, 8, 2), picks)
        array("bad.npy", (ROWS, 8, 2), [4 if i % 16 == 5 else x for i, x in enumerate(picks)])
        for rows in (15, 16):
            subprocess.run([heddlec, "m.hd", *target, f"--set=rows={rows}", "-o", f"m{rows}"], check=True)
        # 16 tokens: places of them are up to 15
        check(re.findall(r'{"(%\w+)", \d+, (\d+), (-?\d+), (\d+), 0, \d+},', text("m.hd", "--set=rows=16"))[-1] ==
              ("%picks", "32", "-1", "3"), "with a row for every place, more than data is looked at")
        check("HdIndexedList indexed_in" in text("m.hd"), "nothing is looked at")
        check("HdIndexed" not in text(f"{root}/examples/moe/olmoe.hd"), "a proved program looks at indices")
        status, said = run("m16", "bad", "--check")
        check(status == 1 and re.search(r"m\.hd:7: dispatch in source \(action \d+ of \w+, stream compute\): --check: "
                                        r"element 5 of the indices %picks is 4, which is not from -1 to 3\n", said),
              "a choice of no expert, with --check:", status, said)
        if not fakes:
            status, said = run("m16", "bad")
            check(status == 0, "a choice of no expert has no row, without --check:", status, said)
            status, said = run("m15", "good", "--check")
            out = r"--check: element \d+ of the indices %\d+ is 15, which is not from 0 to 14\n"
            check(status == 1 and re.search(out, said), "a place beyond a table:", status, said)
            for options in ((), ("--check",)):
                status, said = run("m16", "good", *options)
                check(status == 0, *options, status, said)
            with open("good.0", "rb") as f, open("good.1", "rb") as g:
                check(f.read() == g.read(), "--check changes the digest")
    print("\n".join(wrong) or "every index that is out of range was found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
