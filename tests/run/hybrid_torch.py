#!/usr/bin/env python3
"""examples/hybrid and examples/mtp against models of PyTorch's own operations, from the same weights.
Usage: hybrid_torch.py ROOT HEDDLEC. Needs torch; without it, it says so and exits with 77.

A hybrid of mixers, attention and MLPs, one with experts, a Mamba-2 with tied embeddings, a decoder that predicts three
tokens, and one whose attention has windows, softcap and sinks: each trains 50 steps in f32 and follows PyTorch's
autograd and AdamW within 1e-4. A state space is the plain recurrence there.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

sys.path.append(sys.path.pop(0))  # numbers.py beside this file is not Python's own module, which torch imports
import compiled  # noqa: E402

try:
    import torch
    import torch.nn.functional as F
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

STEPS, WINDOWS, LR = 50, 4, 1e-3
HYBRID = {"vocab": 80, "dim": 32, "seq": 24, "states": 4, "width": 16, "state": 12, "groups": 2, "chunk": 8, "heads": 4,
          "kv_heads": 2, "head": 8, "hidden": 64}
MODELS = {"sinks": ("tests/run/tensor.hd", {"vocab": 80, "dim": 32, "seq": 24, "layers": 2, "heads": 8, "kv_heads": 4,
                                            "window": 9, "softcap": 0.7, "drop": 0.0, "train.clip": 1.0}),
          "hybrid": ("hybrid", dict(HYBRID, pattern="M-M*-")),
          "experts": ("hybrid", dict(HYBRID, pattern="ME*E", experts=6, active=2, inner=16, shared=24)),
          "mamba": ("hybrid", dict(HYBRID, pattern="MMMM", tied=1, groups=1)),
          "mtp": ("mtp", {"vocab": 80, "dim": 32, "seq": 24, "layers": 2, "heads": 4, "hidden": 64, "depth": 2,
                          "weight": 0.3})}


def norm(x, weight=None):
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    return y if weight is None else y * weight


def recurrence(x, dt, a, b, c, skip):
    """x [batch, seq, heads, size], b and c [batch, seq, groups, state], position by position."""
    share = x.shape[2] // b.shape[2]
    b, c = (v.repeat_interleave(share, 2) for v in (b, c))
    state, out = torch.zeros(*x[:, 0].shape, b.shape[3]), []
    for t in range(x.shape[1]):
        new = (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        state = (dt[:, t] * a).exp()[..., None, None] * state + new
        out.append((state * c[:, t, :, None]).sum(-1) + skip[:, None] * x[:, t])
    return torch.stack(out, 1)


def mixer(x, w, s):
    inner, more = s["states"] * s["width"], s["groups"] * s["state"]
    z, mixed, steps = F.linear(x, w("take.weight")).split([inner, inner + 2 * more, s["states"]], -1)
    taps = w("conv.taps").t()[:, None]
    mixed = F.conv1d(F.pad(mixed.transpose(1, 2), (3, 0)), taps, w("conv.bias"), groups=len(taps)).transpose(1, 2)
    u, b, c = F.silu(mixed).split([inner, more, more], -1)
    y = recurrence(u.unflatten(-1, (s["states"], s["width"])), F.softplus(steps + w("step") - 4.6),
                   -(w("rate") + 1.386).exp(), b.unflatten(-1, (s["groups"], -1)), c.unflatten(-1, (s["groups"], -1)),
                   w("skip")).flatten(2) * F.silu(z)
    return F.linear(norm(y.unflatten(-1, (s["groups"], -1))).flatten(2) * w("gate.weight"), w("give.weight"))


def heads_of(x, n):
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


def mlp(x, w, at=""):
    return F.linear(F.relu(F.linear(x, w(f"{at}up.weight"))).square(), w(f"{at}down.weight"))


def experts(x, w, s):
    """Every expert sees every token; those that are not chosen count 0. The bias waits for the end of the step."""
    score = torch.sigmoid(F.linear(x, w("router")))
    chosen = (score + w("bias")).topk(s["active"], -1).indices
    gate = torch.zeros_like(score).scatter(-1, chosen, score.gather(-1, chosen))
    gate = 2.5 * gate / (gate.sum(-1, keepdim=True) + 1e-20)
    each = F.relu(torch.einsum("btd,eid->btei", x, w("up"))).square()
    load = F.one_hot(chosen, s["experts"]).sum((0, 1, 2))
    s["later"].append((w("bias"), 0.001 * torch.sign((load.sum() - s["experts"] * load).float())))
    return mlp(x, w, "always.") + torch.einsum("btei,edi,bte->btd", each, w("down"), gate)


def hybrid(w, tokens, targets, s):
    x = w["embed.weight"][tokens]
    for i, kind in enumerate(s["pattern"]):
        own, y = lambda name: w[f"layers.{i}.mixer.{name}"], norm(x, w[f"layers.{i}.norm.weight"])
        if kind == "M":
            y = mixer(y, own, s)
        elif kind == "*":
            q, k, v = (heads_of(F.linear(y, own(f"{n}.weight")), s["heads" if n == "q" else "kv_heads"]) for n in "qkv")
            k, v = (m.repeat_interleave(s["heads"] // s["kv_heads"], 1) for m in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            y = F.linear(y, own("o.weight"))
        else:
            y = experts(y, own, s) if kind == "E" else mlp(y, own)
        x = x + y
    logits = F.linear(norm(x, w["norm.weight"]), w["embed.weight" if s.get("tied") else "head_out.weight"])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def attention(q, k, v, sink, s):
    """As the models of the hub that have sinks write it out: a column more in the softmax, without a value."""
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    scores = s["softcap"] * torch.tanh(scores / s["softcap"])
    ahead = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])
    scores = scores.masked_fill((ahead < 0) | (ahead >= s["window"]), -math.inf)
    column = sink.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1] @ v


def sinks(w, tokens, targets, s):
    x = w["wte.weight"][tokens]
    for i in range(s["layers"]):
        own = lambda name: (w[f"blocks.{i}.{name}.weight"], w[f"blocks.{i}.{name}.bias"])
        y = F.layer_norm(x, (s["dim"],), *own("norm1"))
        q, k, v = (heads_of(F.linear(y, *own(f"attn.{n}")), s["heads" if n == "q" else "kv_heads"]) for n in "qkv")
        k, v = (m.repeat_interleave(s["heads"] // s["kv_heads"], 1) for m in (k, v))
        y = attention(q, k, v, w[f"blocks.{i}.attn.sink"], s).transpose(1, 2).flatten(2)
        x = x + F.linear(y, *own("attn.out"))
        y = F.linear(F.layer_norm(x, (s["dim"],), *own("norm2")), *own("mlp.up"))
        x = x + F.linear(F.gelu(y, approximate="tanh"), *own("mlp.down"))
    return F.cross_entropy(F.linear(x, w["head.weight"], w["head.bias"]).flatten(0, 1), targets.flatten(),
                           ignore_index=3)


def turned(x):
    """Rotary embedding of [batch, heads, seq, size]."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    a, b = x.split(half, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def block(x, w, at, s):
    qkv = F.linear(norm(x, w[f"{at}.norm.weight"]), w[f"{at}.qkv.weight"])
    q, k, v = (heads_of(m, s["heads"]) for m in qkv.chunk(3, -1))
    y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True).transpose(1, 2).flatten(2)
    y = x + F.linear(y, w[f"{at}.out.weight"])
    up = F.linear(norm(y, w[f"{at}.inner.weight"]), w[f"{at}.up.weight"])
    return y + F.linear(F.relu(up).square(), w[f"{at}.down.weight"])


def mtp(w, tokens, targets, s):
    seq, embed = s["seq"], w["embed.weight"]
    loss_of = lambda x, far: F.cross_entropy(F.linear(norm(x, w["norm.weight"]), embed).flatten(0, 1),
                                             targets[:, far:far + seq].flatten())
    x = embed[tokens[:, :seq]]
    for i in range(s["layers"]):
        x = block(x, w, f"blocks.{i}", s)
    total = loss_of(x, 0)
    for far in range(1, s["depth"] + 1):
        both = [norm(x, w["ahead.state.weight"]), norm(embed[tokens[:, far:far + seq]], w["ahead.token.weight"])]
        x = block(F.linear(torch.cat(both, -1), w["ahead.join.weight"]), w, "ahead.block", s)
        total = total + s["weight"] / s["depth"] * loss_of(x, far)
    return total


def torch_losses(model, w, x, y, s, decays):
    """Steps of PyTorch from weights w; every step sees all windows, clips to 1 and decays what Heddle decays."""
    w = {name: t.clone().requires_grad_(not name.endswith("mixer.bias")) for name, t in w.items()}
    trained = {name: t for name, t in w.items() if t.requires_grad}
    groups = [{"params": [t for name, t in trained.items() if decays(name, t) == d], "weight_decay": 0.1 * d}
              for d in (0, 1)]
    optimizer, losses = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        s["later"] = []
        loss = model(w, x, y, s)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        optimizer.step()
        for bias, by in s["later"]:
            bias += by
        losses.append(loss.item())
    return losses


def run(*args):
    r = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if r.returncode:
        sys.exit(f"{' '.join(map(str, args))}\nexit {r.returncode}\n{r.stdout.decode(errors='replace')}")


def compare(root, heddlec, folder, name):
    example, s = MODELS[name]
    at = lambda what: os.path.join(folder, f"{name}-{what}")
    settings = {**s, "train.batch": WINDOWS, "train.precision.compute": "f32", "train.lr": f"constant({LR})"}
    path = example if example.endswith(".hd") else f"examples/{example}/{example}.hd"
    run(heddlec, os.path.join(root, path), "-o", at("program"),
        *[x for k, v in settings.items() for x in ("--set", f"{k}={v}")])
    torch.manual_seed(7)
    long = s["seq"] + s.get("depth", 0)
    tokens = torch.randint(s["vocab"], (WINDOWS * long + 1,))
    with open(at("data"), "wb") as f:
        f.write(struct.pack(f"<{len(tokens)}I", *tokens.tolist()))
    run(at("program"), "--steps=0", f"--data={at('data')}", "--format=u32", f"--export={at('first.safetensors')}")
    drawn = {n: (v[1], torch.tensor(struct.unpack(f"<{len(v[2]) // 4}f", v[2]))) for n, v in
             compiled.tensors_of(at("first.safetensors"))[0].items()}
    w = {n: t.view(shape) for n, (shape, t) in drawn.items()}
    run(at("program"), f"--steps={STEPS}", f"--init={at('first.safetensors')}", f"--data={at('data')}", "--format=u32",
        f"--log={at('log')}")
    with open(at("log"), encoding="utf-8") as f:
        ours = [v["loss"] for v in map(json.loads, f) if "loss" in v]
    decays = lambda n, t: t.dim() >= 2 and not n.endswith("taps")
    x, y = tokens[:-1].view(WINDOWS, long), tokens[1:].view(WINDOWS, long)
    theirs = torch_losses({"hybrid": hybrid, "mtp": mtp}.get(example, sinks), w, x, y, s, decays)
    off = max(math.inf if len(ours) != STEPS else abs(a - b) / b for a, b in zip(ours, theirs))
    print(f"{name}: {STEPS} steps, PyTorch's loss goes from {theirs[0]:.5f} to {theirs[-1]:.5f}; largest relative "
          f"difference {off:.3g} (bound 1e-4)")
    if not off <= 1e-4 or not theirs[-1] < 0.95 * theirs[0]:
        sys.exit(f"{name}: {ours} here, {theirs} there")


def main():
    root, heddlec = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            compare(root, heddlec, folder, name)


if __name__ == "__main__":
    main()
