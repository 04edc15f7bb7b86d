#!/usr/bin/env python3
"""A GPT with dropout, attention's too, beside PyTorch with the same masks: losses and gradient norms of some steps.

usage: dropout_torch.py HEDDLEC [--target=cuda]

The masks are made here by Philox, as the section `Dropout` of frontend/LANGUAGE.md says, from the seed and the
sequences' numbers. Every sequence of the data is the same, so that their order does not matter. In f32 losses and norms
agree to 1e-5 of each other, in bf16 to 2 %; with the masks of another seed they do not.
"""
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS, SEED, BETAS, LR = 6, 20261122, (0.9, 0.95), 1e-3


def philox(block, site, sequence, seed):
    """Four words for each block: int64 tensors of 32-bit numbers."""
    low = 0xFFFFFFFF
    def product(a, b):  # of a constant and a tensor: high and low word
        return (a * (b >> 16) + (a * (b & 0xFFFF) >> 16)) >> 16, a * b & low
    c = [block, torch.full_like(block, site), torch.full_like(block, sequence & low),
         torch.full_like(block, sequence >> 32)]
    k0, k1 = seed & low, seed >> 32
    for _ in range(10):
        (h0, l0), (h1, l1) = product(0xD2511F53, c[0]), product(0xCD9E8D57, c[2])
        c = [h1 ^ c[1] ^ k0, l1, h0 ^ c[3] ^ k1, l0]
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return torch.stack(c, 1).flatten()


class Masks:
    def __init__(self, seed, first, p):
        self.seed, self.first, self.p, self.site = seed, first, p, 0

    def __call__(self, x):
        """Dropout of x [batch, ...], by the next site."""
        n = x[0].numel()
        words = [philox(torch.arange((n + 3) // 4), self.site, self.first + b, self.seed)[:n] for b in range(len(x))]
        keep = torch.stack(words).view(x.shape) >= round(self.p * 2**32)
        self.site += 1
        return torch.where(keep, x / (1 - self.p), torch.zeros_like(x))


def tensors(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    return {k: torch.frombuffer(bytearray(data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]),
                                dtype=torch.float32).view(v["shape"]).clone().requires_grad_()
            for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}


def loss_of(w, tokens, targets, heads, drop):
    """examples/gpt2/gpt2.hd, whose dropouts come in this order."""
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"])
    b, t = tokens.shape
    x = drop(w["wte.weight"][tokens] + w["wpe.weight"][:t])
    causal = torch.ones(t, t, dtype=torch.bool).tril()
    layers = 1 + max(int(m.group(1)) for m in map(re.compile(r"blocks\.(\d+)\.").match, w) if m)
    for i in range(layers):
        at = f"blocks.{i}."
        q, k, v = F.linear(norm(x, at + "ln1"), w[at + "attn.qkv"], w[at + "attn.qkv_b"]).split(x.shape[-1], -1)
        q, k, v = (y.view(b, t, heads, -1).transpose(1, 2) for y in (q, k, v))
        s = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~causal, -torch.inf)
        o = (drop(s.softmax(-1)) @ v).transpose(1, 2).reshape(b, t, -1)
        x = x + drop(F.linear(o, w[at + "attn.proj"], w[at + "attn.proj_b"]))
        h = F.gelu(F.linear(norm(x, at + "ln2"), w[at + "mlp.fc"], w[at + "mlp.fc_b"]), approximate="tanh")
        x = x + drop(F.linear(h, w[at + "mlp.proj"], w[at + "mlp.proj_b"]))
    z = norm(x, "ln_f") @ w["wte.weight"].T
    return F.cross_entropy(z.flatten(0, 1), targets.flatten())


def by_torch(weights, pattern, batch, heads, p, seed):
    w = tensors(weights)
    tokens = torch.tensor([pattern] * batch)
    targets = torch.tensor([pattern[1:] + pattern[:1]] * batch)
    adam = torch.optim.AdamW(w.values(), lr=LR, betas=BETAS, eps=1e-8, weight_decay=0)
    for step in range(STEPS):
        adam.zero_grad()
        loss = loss_of(w, tokens, targets, heads, Masks(seed, step * batch, p))
        loss.backward()
        yield loss.item(), math.sqrt(sum(float((v.grad.double()**2).sum()) for v in w.values()))
        adam.step()


def compare(heddlec, folder, target, compute, bound, p, heads, batch, **sizes):
    path = lambda name: os.path.join(folder, name)
    pattern = [(i * i * 7 + 3 * i) % sizes["vocab"] for i in range(sizes["seq"])]
    with open(path("data.bin"), "wb") as f:
        f.write(b"".join(x.to_bytes(2, "little") for x in pattern * 40))
    sets = dict(sizes, drop=p, heads=heads)
    sets.update({"train.batch": batch, "train.clip": 0, "train.precision.compute": compute, "train.weight_decay": 0,
                 "train.lr": LR, "train.warmup": 0, "train.betas": ",".join(map(str, BETAS))})
    command = [heddlec, os.path.join(ROOT, "examples/gpt2/gpt2.hd"), "-o", path("gpt2"), f"--target={target}"]
    run = [path("gpt2"), f"--data={path('data.bin')}", f"--seed={SEED}"]
    for each in (command + [x for k, v in sets.items() for x in ("--set", f"{k}={v}")],
                 run + ["--steps=0", f"--export={path('weights')}"],
                 run + [f"--steps={STEPS}", f"--digest={path('digest')}"]):
        done = subprocess.run(each, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise SystemExit(f"{' '.join(each)}\n{done.stderr}")
    with open(path("digest")) as f:
        ours = [tuple(map(float.fromhex, line.split()[1:3])) for line in f.read().splitlines()[:STEPS]]
    worst = []
    for seed in (SEED, SEED + 1):
        theirs = by_torch(path("weights"), pattern, batch, heads, p, seed)
        worst.append(max(abs(x - y) / abs(y) for a, b in zip(ours, theirs) for x, y in zip(a, b)))
    fine = worst[0] < bound < worst[1]
    print(f"{target} {compute} {sizes} heads={heads} p={p}: off by {worst[0]:.2e}, with other masks by {worst[1]:.2e}"
          f"{'' if fine else ': WRONG'}", flush=True)
    return fine


def main():
    heddlec = os.path.abspath(sys.argv[1])
    target = "cuda" if "--target=cuda" in sys.argv[2:] else "host"
    torch.set_num_threads(4)
    with tempfile.TemporaryDirectory(prefix="heddle-dropout-") as folder:
        fine = compare(heddlec, folder, target, "f32", 1e-5, 0.1, 2, 3, layers=2, dim=32, vocab=96, seq=20)
        fine &= compare(heddlec, folder, target, "f32", 1e-5, 0.5, 4, 2, layers=1, dim=64, vocab=96, seq=33)
        if target == "cuda":
            fine &= compare(heddlec, folder, target, "bf16", 0.02, 0.5, 2, 4, layers=2, dim=128, vocab=128, seq=160)
            fine &= compare(heddlec, folder, target, "bf16", 0.02, 0.5, 1, 4, layers=2, dim=128, vocab=128, seq=150)
    return not fine


sys.exit(main())
