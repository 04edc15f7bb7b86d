#!/usr/bin/env python3
"""Dropout's masks as the language's reference defines them.

usage: dropout.py HEDDLEC [--target=cuda]

Philox is written here once more, against the known answers of its authors. Then a program shows its masks: its loss is
a sum over what dropout leaves of a parameter, and the optimizer's step is the sign of the gradient, so an element moves
in the steps that keep it, and in no others. Attention shows its mask the same way through v. The masks are compared
with those made here, element by element, and tested for their distribution; a long run is stopped and resumed.
"""
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

KNOWN = (((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
         ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
         ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
          (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)))

SHOW = """
model Show(n = 96, p = 0.25, heads = 2, t = 16, d = 16, vocab = 16, seq = 4) {
  param a: [batch, n] = zeros;  param b: [batch, 3, n] = zeros;  param v: [batch, t, heads*d] = zeros;
  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {
    let z = 0 * v;
    let one = reshape(eq(reshape(float(iota(t)), [t, 1]), float(iota(d))), [t, 1, d]); // query i in column i of a head
    let o = attention(z, z, v, heads = heads, dropout = 0.5);
    let picked = reshape(o, [batch, t, heads, d]) * broadcast(one, [batch, t, heads, d]);
    return sum(dropout(a, p)) + sum(dropout(dropout(b, 0.1), p)) + sum(picked) + 0*sum(float(tokens));
  }
}
train Show { batch = 4; clip = 0; optimizer adamw { lr = constant(0.01); betas = 0, 0; weight_decay = 0; } }
"""

TRAIN = """
model Train(vocab = 64, layers = 2, heads = 2, dim = 16, seq = 8, p = 0.1) {
  module Block {
    ln1 = LayerNorm(dim); qkv = Linear(dim, 3*dim); proj = Linear(dim, dim);
    ln2 = LayerNorm(dim); fc = Linear(dim, 2*dim); out = Linear(2*dim, dim);
    fn forward(x) {
      let q, k, v = split(qkv(ln1(x)), 3);
      let h = x + dropout(proj(attention(q, k, v, heads = heads, causal = true, dropout = p)), p);
      return h + dropout(out(gelu(fc(ln2(h)))), p);
    }
  }
  wte = Embedding(vocab, dim); wpe = Embedding(seq, dim); blocks = repeat(layers) Block; ln_f = LayerNorm(dim);
  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {
    let x = dropout(wte(tokens) + wpe(iota(seq)), p);
    return cross_entropy(matmul(ln_f(blocks(x)), transpose(wte.weight)), targets);
  }
}
train Train { batch = 4; optimizer adamw { lr = constant(1e-3); } }
"""


def philox(counter, key):
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def mask(seed, site, sequence, elements, p):
    """1 where an element of a sequence is kept, by the section `Dropout` of frontend/LANGUAGE.md."""
    threshold, kept = round(p * 2**32), []
    for block in range((elements + 3) // 4):
        words = philox((block, site, sequence & 0xFFFFFFFF, sequence >> 32), (seed & 0xFFFFFFFF, seed >> 32))
        kept += [int(w >= threshold) for w in words]
    return kept[:elements]


def tensors(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    places = {k: v["data_offsets"] for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
    return {k: struct.unpack(f"<{(b - a) // 4}f", data[8 + n + a:8 + n + b]) for k, (a, b) in places.items()}


class Test:
    def __init__(self, heddlec, target, folder):
        self.heddlec, self.target, self.folder, self.failures, self.checks = heddlec, target, folder, 0, 0
        self.data = os.path.join(folder, "tokens.bin")
        with open(self.data, "wb") as f:
            f.write(b"".join((i * 7 % 11 + i % 3).to_bytes(2, "little") for i in range(20000)))

    def check(self, fine, what):
        self.checks += 1
        self.failures += not fine
        if not fine:
            print(f"wrong: {what}")

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def build(self, text, name, *sets):
        with open(self.path("model.hd"), "w") as f:
            f.write(text)
        self.call(self.heddlec, self.path("model.hd"), "-o", self.path(name), f"--target={self.target}",
                  *(x for s in sets for x in ("--set", s)))

    def train(self, name, *options):
        return self.call(self.path(name), f"--data={self.data}", *options)

    def digest(self, name, *options):
        self.train(name, f"--digest={self.path('digest')}", *options)
        with open(self.path("digest")) as f:
            return f.read().splitlines()

    def known_answers(self):
        for counter, key, words in KNOWN:
            self.check(tuple(philox(counter, key)) == words, f"philox of {counter}, {key}")

    # Which elements of each parameter move in each of the first steps.
    def moves(self, name, steps, *options):
        now, moved = None, []
        for step in range(steps + 1):
            self.train(name, f"--steps={step}", f"--export={self.path('w')}", *options)
            before, now = now, tensors(self.path("w"))
            if before:
                moved.append({k: [int(x != y) for x, y in zip(now[k], before[k])] for k in now})
        return moved

    # A sequence's masks of a (site 1), of b through its two (2 and 3) and of attention (0), as the elements move.
    def expected(self, seed, sequence, n=96, p=0.25, heads=2, t=16, d=16):
        inner, outer = mask(seed, 2, sequence, 3 * n, 0.1), mask(seed, 3, sequence, 3 * n, p)
        kept = mask(seed, 0, sequence, heads * t * t, 0.5)  # [head, query, key]; v is [key, head, query]
        return {"a": mask(seed, 1, sequence, n, p), "b": [x & y for x, y in zip(inner, outer)],
                "v": [i < t and kept[(h * t + i) * t + j] for j in range(t) for h in range(heads) for i in range(d)]}

    def masks(self):
        steps, batch = 3, 4
        programs = [({}, [], ["--seed=1"]), ({}, [], ["--seed=123456789012345"]),
                    ({}, ["schedule.graph=none"], ["--seed=1", "--no-graph"]), (dict(t=14), [], ["--seed=1"]),
                    (dict(t=70, d=80), ["train.precision.compute=bf16"], ["--seed=2"])]
        if self.target == "cuda":  # on tensor cores: one tile and several, rows of keys in fours and not
            programs += [(dict(t=t, d=d, heads=h), ["train.precision.compute=bf16"], ["--seed=3"])
                         for t, d, h in ((16, 16, 2), (62, 64, 1), (100, 112, 3), (128, 128, 2))]
        for sizes, sets, options in programs:
            name = " ".join([f"{k}={v}" for k, v in sizes.items()] + sets + options)
            self.build(SHOW, "show", *(f"{k}={v}" for k, v in sizes.items()), *sets)
            seed = int(options[0].split("=")[1])
            moved = self.moves("show", steps, *options)
            for step in range(steps):
                for row in range(batch):
                    want = self.expected(seed, step * batch + row, **sizes)
                    for k, w in want.items():
                        got = moved[step][k][row * len(w):(row + 1) * len(w)]
                        w = list(map(int, w))
                        self.check(got == w, f"{name}: step {step + 1}, sequence {row}: "
                                             f"{sum(x != y for x, y in zip(got, w))} of {len(w)} elements of {k} are "
                                             f"not those of Philox")
        if self.target == "cuda":
            return
        # two micro-batches of two ranks: each element moves when one of the four has it, with their counts as gradient
        self.build(SHOW, "many", "train.batch=1", "train.accumulate=2", "schedule.mesh.shard=2")
        for step, moved in enumerate(self.moves("many", 2, "--seed=1", "--ranks=2")):
            all_four = [self.expected(1, step * 4 + i) for i in range(4)]
            for k in ("a", "b", "v"):
                want = [int(any(x)) for x in zip(*(e[k] for e in all_four))]
                self.check(moved[k] == want, f"two ranks, two micro-batches, step {step + 1}: {k}")

    # Bounds are five standard deviations: a right generator fails one in a million. It draws the same each time.
    def distribution(self):
        self.build(SHOW, "large", "n=1024", "p=0.1", "train.batch=16")
        moved = self.moves("large", 4, "--seed=7")
        a = [m["a"] for m in moved]
        n, q = len(a[0]), 0.9
        for step, m in enumerate(a):
            self.check(abs(sum(m) - n * q) < 5 * math.sqrt(n * q * (1 - q)), f"step {step + 1} keeps {sum(m)} of {n}")
            rows = [sum(m[r * 1024:(r + 1) * 1024]) for r in range(16)]
            columns = [sum(m[c::1024]) for c in range(1024)]
            for what, sums, each in (("row", rows, 1024), ("column", columns, 16)):
                square, free = sum((s - each * q)**2 / (each * q * (1 - q)) for s in sums), len(sums)
                self.check(abs(square - free) < 5 * math.sqrt(2 * free),
                           f"step {step + 1}: chi-square of {what}s is {square} for {free}")
        pairs = [("steps", x, y) for i, x in enumerate(a) for y in a[:i]]
        pairs += [("neighbours", m[:-d], m[d:]) for m in a for d in (1, 2, 3, 4, 1024, 4096)]
        pairs.append(("sites", a[0], mask(7, 2, 0, n, 0.1)))
        for what, x, y in pairs:
            n = len(x)
            both = sum(i & j for i, j in zip(x, y)) / n - sum(x) / n * sum(y) / n
            self.check(abs(both) / (q * (1 - q)) < 5 / math.sqrt(n), f"{what} are correlated: {both / (q * (1 - q))}")

    def validation(self):
        self.build(TRAIN, "some")
        self.build(TRAIN, "none", "p=0.0")
        options = ["--steps=0", f"--val={self.data}", "--val-batches=2", f"--log={self.path('log')}"]
        losses = []
        for name in ("some", "none"):
            self.train(name, *options)
            with open(self.path("log")) as f:
                losses.append(re.findall(r'"val_loss": *([^,}]+)', f.read()))
        self.check(losses[0] and losses[0] == losses[1], f"validation has dropout: {losses}")
        some, none = self.digest("some", "--steps=3"), self.digest("none", "--steps=3")
        self.check(all(x != y for x, y in zip(some[:3], none[:3])), "training has none")

    def resumed(self):
        straight = self.digest("some", "--steps=2000")
        self.train("some", "--steps=1000", f"--save={self.path('c')}")
        resumed = self.digest("some", "--steps=2000", f"--resume={self.path('c')}")
        self.check(resumed == straight[1000:], "a run resumed after 1000 of 2000 steps differs")
        self.check(len({line.split()[1] for line in straight[:2000]}) > 1900, "steps repeat each other")
        if self.target == "cuda":
            return
        self.build(TRAIN, "spread", "train.batch=1", "train.accumulate=2", "schedule.mesh.shard=2",
                   "schedule.fsdp=zero3", "schedule.fsdp.unit=Block", "schedule.recompute=Block")
        spread = self.digest("spread", "--ranks=2", "--steps=20")
        for x, y in zip(spread[:20], straight[:20]):
            x, y = (float.fromhex(line.split()[1]) for line in (x, y))
            self.check(abs(x - y) < 1e-5 * abs(y), f"two ranks and two micro-batches have the loss {x}, one has {y}")


def main():
    with tempfile.TemporaryDirectory(prefix="heddle-dropout-") as folder:
        t = Test(os.path.abspath(sys.argv[1]), "cuda" if "--target=cuda" in sys.argv[2:] else "host", folder)
        t.known_answers()
        t.masks()
        t.distribution()
        t.validation()
        t.resumed()
        print(f"{t.checks} checks, {t.failures} failures")
        return t.failures != 0


if __name__ == "__main__":
    sys.exit(main())
