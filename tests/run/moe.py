#!/usr/bin/env python3
"""Mixtures of experts. Usage: moe.py ROOT HEDDLEC [CASE...] [--all]. Cases as in cases.py.

  written_out  the loss of each example of examples/moe against a forward pass in plain Python, from the same weights;
               also where a router's scores are all equal, so that every token chooses the same experts
  dense        dispatched experts, their rows combined and taken one by one, against every expert for every token
               (moe.hd), losses and norms step by step
  capacity     all tokens choose the same experts, which take the first of them: losses and norms against dense experts
               whose weights are 0 for the others, and how many were dropped, on one rank and two
  integers     i32 arithmetic against Python's, in f32 and bf16
  schedules    strategies, graphs, recomputation and offload: one digest. --all: every combination
"""
import itertools
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

import compiled
from cases import check, run_cases

SIZES = {"vocab": 24, "layers": 2, "dim": 8, "heads": 2, "inner": 6, "seq": 10, "train.batch": 1,
         "train.precision.compute": "f32"}
OWN = {"olmoe": {"experts": 5, "active": 3}, "mixtral": {"kv_heads": 1, "experts": 3, "active": 2},
       "deepseek": {"experts": 8, "groups": 4, "best": 2, "active": 3, "shared": 5}}
EVERY = "--all" in sys.argv
sys.argv = [a for a in sys.argv if a != "--all"]
ROOT, HEDDLEC = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
STEPS = 3


def build(file, settings, name="program"):
    args = [HEDDLEC, os.path.join(ROOT, file), "-o", name]
    for s in settings:
        args += ["--set", s]
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(r.returncode == 0, "cannot compile:", " ".join(args), r.stdout)
    return os.path.abspath(name)


def start(program, *args):
    r = subprocess.run([program, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(r.returncode == 0, "cannot run:", program, *args, r.stdout)
    return r.stdout


# --- the models in plain Python

def linear(x, w, out):
    n = len(w) // out
    return [[math.fsum(a * b for a, b in zip(row, w[o * n : o * n + n])) for o in range(out)] for row in x]


def norm(x, w):
    return [[v * g / math.sqrt(math.fsum(u * u for u in row) / len(row) + 1e-5) for v, g in zip(row, w)] for row in x]


def softmax(row):
    e = [math.exp(v - max(row)) for v in row]
    return [v / math.fsum(e) for v in e]


def largest(row, k):
    return sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]


def turned(x, heads, theta):
    out = []
    for position, row in enumerate(x):
        half, y = len(row) // heads // 2, list(row)
        for h, i in itertools.product(range(heads), range(half)):
            a, angle = h * 2 * half + i, position * theta ** (-i / half)
            c, s = math.cos(angle), math.sin(angle)
            y[a], y[a + half] = row[a] * c - row[a + half] * s, row[a + half] * c + row[a] * s
        out.append(y)
    return out


def attention(q, k, v, heads, kv_heads):
    size, out = len(q[0]) // heads, []
    for t, row in enumerate(q):
        y = []
        for h in range(heads):
            part = slice(h // (heads // kv_heads) * size, (h // (heads // kv_heads) + 1) * size)
            mine = row[h * size : (h + 1) * size]
            p = softmax([math.fsum(a * b for a, b in zip(mine, k[u][part])) / math.sqrt(size) for u in range(t + 1)])
            y += [math.fsum(p[u] * v[u][part][i] for u in range(t + 1)) for i in range(size)]
        out.append(y)
    return out


def mlp(x, gate, up, down, inner):
    g, u = linear(x, gate, inner), linear(x, up, inner)
    return linear([[a / (1 + math.exp(-a)) * b for a, b in zip(r, s)] for r, s in zip(g, u)], down, len(x[0]))


def olmoe_router(logits, s):
    p = [softmax(row) for row in logits]
    z = math.fsum(math.log(math.fsum(map(math.exp, row))) ** 2 for row in logits) / len(logits)
    chosen = [largest(row, s["active"]) for row in p]
    return chosen, [[row[e] for e in c] for row, c in zip(p, chosen)], 0.01, p, 0.001 * z


def mixtral_router(logits, s):
    chosen = [largest(row, s["active"]) for row in logits]
    return chosen, [softmax([row[e] for e in c]) for row, c in zip(logits, chosen)], 0.02, [*map(softmax, logits)], 0


def deepseek_router(logits, s, bias):
    chosen, weights, shares, size = [], [], [], s["experts"] // s["groups"]
    for row in logits:
        score = [1 / (1 + math.exp(-v)) for v in row]
        biased = [v + b for v, b in zip(score, bias)]
        groups = [sum(sorted(biased[g * size : (g + 1) * size])[-2:]) for g in range(s["groups"])]
        kept = largest(groups, s["best"])
        c = largest([v if e // size in kept else -1e9 for e, v in enumerate(biased)], s["active"])
        chosen.append(c)
        weights.append([2.5 * score[e] / sum(score[e] for e in c) for e in c])
        shares.append([v / sum(score) for v in score])
    return chosen, weights, 0.0001 / s["active"], shares, 0


ROUTERS = {"olmoe": olmoe_router, "mixtral": mixtral_router, "deepseek": deepseek_router}


def experts(model, x, w, s):
    """The MLPs of the chosen experts, and the router's loss."""
    n, dim, inner = s["experts"], s["dim"], s["inner"]
    biases = [w("router.bias")] if model == "deepseek" else []
    chosen, weights, balance, shares, more = ROUTERS[model](linear(x, w("router.weight"), n), s, *biases)
    used = [sum(e in c for c in chosen) / len(x) for e in range(n)]
    loss = balance * n * math.fsum(u * sum(row[e] for row in shares) / len(x) for e, u in enumerate(used)) + more
    def part(name, e):
        of, at, n = {"gate": ("gate_up", 0, 2), "up": ("gate_up", 1, 2), "down": ("down", 0, 1)}[name]
        return w(f"mlp.{of}")[(e * n + at) * inner * dim : (e * n + at + 1) * inner * dim]
    y = []
    for row, c, weight in zip(x, chosen, weights):
        outs = [mlp([row], part("gate", e), part("up", e), part("down", e), inner)[0] for e in c]
        y.append([math.fsum(a * out[i] for a, out in zip(weight, outs)) for i in range(dim)])
    if model == "deepseek":
        always = mlp(x, *(w(f"always.{p}.weight") for p in ("gate", "up", "down")), s["shared"])
        y = [[a + b for a, b in zip(*rows)] for rows in zip(y, always)]
    return y, loss


def loss_of(model, tensors, tokens, s):
    w = {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (_, _, data) in tensors.items()}
    dim, heads, kv = s["dim"], s["heads"], s.get("kv_heads", s["heads"])
    x, extra = [w["embed.weight"][t * dim : (t + 1) * dim] for t in tokens[:-1]], 0
    for i in range(s["layers"]):
        part = lambda name: w[f"blocks.{i}.{name}"]
        h, theta = norm(x, part("norm1.weight")), 1e6 if model == "mixtral" else 1e4
        if model == "deepseek":
            qkv = linear(h, part("attn.qkv.weight"), 3 * dim)
            q, k, v = ([row[n * dim : (n + 1) * dim] for row in qkv] for n in range(3))
        else:
            q, k, v = (linear(h, part(f"attn.{n}.weight"), dim // heads * (heads if n == "q" else kv)) for n in "qkv")
        if model == "olmoe":
            q, k = norm(q, part("attn.q_norm.weight")), norm(k, part("attn.k_norm.weight"))
        a = attention(turned(q, heads, theta), turned(k, kv, theta), v, heads, kv)
        x = [[a + b for a, b in zip(*rows)] for rows in zip(x, linear(a, part("attn.o.weight"), dim))]
        y, loss = experts(model, norm(x, part("norm2.weight")), part, s)
        x, extra = [[a + b for a, b in zip(*rows)] for rows in zip(x, y)], extra + loss
    logits = linear(norm(x, w["norm.weight"]), w["head.weight"], s["vocab"])
    cross = [math.log(math.fsum(map(math.exp, row))) - row[t] for row, t in zip(logits, tokens[1:])]
    return math.fsum(cross) / len(cross) + extra / s["layers"]


def redrawn(tensors, seed, equal):
    """As large as a trained model's, so that every part counts; equal: routers that prefer no expert."""
    draw, made = random.Random(seed), {}
    for name, (dtype, shape, _) in tensors.items():
        middle, width = (1, 0.2) if len(shape) == 1 else (0, 0.4)
        values = [draw.gauss(middle, width) for _ in range(math.prod(shape))]
        if equal and "router" in name:
            values = [0.0] * len(values)
        made[name] = dtype, shape, struct.pack(f"<{len(values)}f", *values)
    return made


def case_written_out():
    for model, own in OWN.items():
        sizes = {**SIZES, **own}
        program = build(f"examples/moe/{model}.hd", [f"{k}={v}" for k, v in sizes.items()])
        tokens = [(7 * i + i // 5) % sizes["vocab"] for i in range(sizes["seq"] + 1)]
        compiled.write("tokens.bin", compiled.words_of(tokens))
        start(program, "--steps=0", "--export=w.safetensors", "--val=tokens.bin")
        first, _ = compiled.tensors_of("w.safetensors")
        for equal in (False, True):
            tensors = redrawn(first, 3, equal)
            compiled.write_tensors("v.safetensors", tensors)
            start(program, "--steps=0", "--init=v.safetensors", "--val=tokens.bin", f"--log={model}{equal}")
            with open(f"{model}{equal}", encoding="utf-8") as f:
                got = json.loads(f.read().splitlines()[-1])["val_loss"]
            want = loss_of(model, tensors, tokens, sizes)
            check(abs(got - want) < 2e-6 * want, f"{model}, equal scores {equal}: {got!r}, written out {want!r}")


def text():
    return compiled.write("data", bytes(97 + (i * 7 + i * i // 11) % 26 for i in range(4000)))


def trained(settings):
    program = build("tests/run/moe.hd", settings)
    if os.path.exists("log"):
        os.remove("log")
    start(program, f"--data={text()}", "--format=bytes", f"--steps={STEPS}", "--log=log")
    lines = compiled.lines_of("log")
    return [x for line in lines for x in (line["loss"], line["grad_norm"])]


def case_dense():
    dense, sparse, plain = (trained(["vocab=128", *more]) for more in (["dense=1"], [], ["plain=1"]))
    apart = lambda a: max(abs(x - y) / abs(y) for x, y in zip(a, dense))
    check(len(dense) == len(sparse) == len(plain) == 2 * STEPS, "steps are missing:", dense, sparse, plain)
    check(apart(sparse) < 1e-5 and apart(plain) < 1e-5, "off by", apart(sparse), apart(plain))
    check(apart([dense[-1], *dense[:-1]]) > 1e-3, "the numbers say nothing:", dense)


def case_capacity():
    text()
    found = {}
    for name, *sets in (("dense", "dense=1"), ("sparse",), ("enough", "capacity=32")):
        found[name] = trained(["vocab=128", "equal=1", "capacity=10", *sets])
        numbers = [l.get("dropped") for l in compiled.lines_of("log")]
        # two layers, of which each of 2 experts that 32 tokens choose takes 10
        want = {"dense": None, "sparse": 2 * 2 * 22, "enough": 0}[name]
        check(numbers == [want] * STEPS, name, "dropped", numbers, "and not", want)
    apart = max(abs(x - y) / abs(y) for x, y in zip(found["sparse"], found["dense"]))
    check(apart < 1e-5, "off by", apart)
    check(abs(found["enough"][-1] - found["dense"][-1]) > 1e-3 * found["dense"][-1], "nothing was dropped")
    digests = []
    for kind in ("none", "zero1", "zero3"):
        program = build("tests/run/moe.hd", ["vocab=128", "equal=1", "capacity=10", "train.accumulate=2",
                                             "train.on_nan=skip", "schedule.mesh.shard=2", f"schedule.fsdp={kind}",
                                             "schedule.graph=step"])
        said = start(program, "--data=data", "--format=bytes", f"--steps={STEPS}", "--ranks=2", "--log=l", "--digest=d")
        numbers = [l["dropped"] for l in compiled.lines_of("l")]
        check(numbers == [4 * 88] * STEPS and f"  {4 * 88} rows dropped  " in said, kind, "dropped", numbers, said)
        digests.append(compiled.read("d"))
        os.remove("l")
    check(digests[0] == digests[1] == digests[2], "digests differ")
    check(not any("dropped" in l for l in compiled.digest_of("d")[1]), "a count is among the parameters")


WHOLE = """
model Whole(seq = 4) {
  param w: [1] = ones;
  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {
    let n = iota(5000) - 2000;
    let some = where(n % 3 == 1, n / 7, max(min(n, 90), -90));
    let all = some * 5 + n % -11 - abs(n) / 13 + sign(n);
    let place = take(float(reshape(all, [5000, 1])), (4999 - iota(5000)) % 4000);
    let other = reshape(all != n, [5000, 1]);
    return sum(float(all)) + 0.5 * sum(where(other, place, 7)) + mean(where(tokens < 200, 1, 0)) + 0 * mean(w);
  }
}
train Whole { batch = 1; }
"""


def case_integers():
    compiled.write("whole.hd", WHOLE)
    compiled.write("t.bin", compiled.words_of([1, 2, 3, 4, 5]))
    quotient = lambda a, b: int(a / b)
    numbers = []
    for n in range(-2000, 3000):
        rest = lambda b: n - quotient(n, b) * b
        some = quotient(n, 7) if rest(3) == 1 else max(min(n, 90), -90)
        numbers.append(some * 5 + rest(-11) - quotient(abs(n), 13) + (n > 0) - (n < 0))
    places = [numbers[(4999 - i) % 4000] for i in range(5000)]
    picked = sum(places[i] if numbers[i] != i - 2000 else 7 for i in range(5000))
    want = sum(numbers) + 0.5 * picked + 1
    for kind in ("f32", "bf16"):
        program = build(os.path.abspath("whole.hd"), [f"train.precision.compute={kind}"])
        start(program, "--steps=0", "--val=t.bin", f"--log={kind}")
        with open(kind, encoding="utf-8") as f:
            got = json.loads(f.read().splitlines()[-1])["val_loss"]
        check(abs(got - want) <= 1e-6 * abs(want), kind, "whole numbers give", got, "and not", want)


# --- one digest

GRAPHS = ("none", "step", "Block.attn,Block.router", "unit")
RECOMPUTE = ("none", "Block", "Block.mlp", "Block.router")
OFFLOAD = ("none", "Block.mlp", "Block.attn,Block.router")
FEW = {1: (("none", 0, 0, 0), ("none", 2, 1, 1)), 2: (("none", 1, 2, 0), ("zero3", 3, 1, 2))}


def digest(ranks, strategy, graph, recompute, offload, number):
    sets = ["vocab=128", f"layers={2 if EVERY else 1}", "dim=16", "heads=2", "seq=16", "experts=4", "inner=16",
            "train.batch=2", "train.accumulate=2", f"schedule.mesh.shard={ranks}", f"schedule.fsdp={strategy}",
            "schedule.fsdp.unit=Block", f"schedule.graph={GRAPHS[graph]}", f"schedule.recompute={RECOMPUTE[recompute]}",
            f"schedule.offload={OFFLOAD[offload]}"]
    if offload:
        sets += ["schedule.offload.min_size=0", "schedule.offload.margin=0"]
    program = build("examples/moe/olmoe.hd", sets, f"p{number}")
    start(program, f"--data={text()}", "--format=bytes", f"--steps={STEPS}", f"--ranks={ranks}", "--digest=digest")
    os.remove(program)
    return compiled.read("digest")


def case_schedules():
    for ranks, few in FEW.items():
        every = itertools.product(("none", "zero1", "zero2", "zero3") if ranks > 1 else ("none",), range(len(GRAPHS)),
                                  range(len(RECOMPUTE)), range(len(OFFLOAD)))
        # one place cannot be both recomputed as a part and offloaded as a whole
        choices = [c for c in every if not (c[2] == 2 and c[3] == 1 or c[2] == 3 and c[3] == 2)] if EVERY else few
        found = [digest(ranks, *choice, number) for number, choice in enumerate(choices)]
        for choice, got in zip(choices, found):
            check(got == found[0], f"{ranks} ranks: {choice} has another digest than {choices[0]}")
        print(f"{ranks} ranks: {len(found)} programs with one digest")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run_cases(globals(), sys.argv[3:], folder))
