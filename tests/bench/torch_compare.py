#!/usr/bin/env python3
"""The same weights and data through Heddle and through PyTorch: the loss curves must agree.

usage: tests/bench/torch_compare.py [--build=build] [--device=cpu|cuda] [--compute=f32|bf16] [--steps=50]
                                    [--set KEY=VALUE]... [--program=BINARY]

Compiles examples/gpt2 at a small size, exports its initial weights, trains both for the same steps on the same random
tokens and prints the largest relative difference of the losses. Exit 1 above the bound: f32 1e-4, bf16 compute 1e-2.
PyTorch's own kernels, autograd and arithmetic are used; only the order of the data is implemented again here.
"""
import argparse, json, math, os, struct, subprocess, sys, tempfile
import numpy as np
import torch
import torch.nn.functional as F

SMALL = dict(layers=3, heads=4, dim=128, seq=128, vocab=256)


def philox(key, stream, index):
    c = [index & 0xFFFFFFFF, index >> 32, stream & 0xFFFFFFFF, stream >> 32]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def window(n, seed, sequence):
    """The index, among n windows, of a run's sequence number `sequence`: the order of runtime/data/data.h."""
    epoch, x = divmod(sequence, n)
    half = 1
    while half < 32 and 1 << (2 * half) < n:
        half += 1
    mask = (1 << half) - 1
    while True:
        left, right = x >> half, x & mask
        for r in range(4):
            left, right = right, (left ^ philox(seed, r << 48 | 0x64617461, (epoch << 32) ^ right)[0]) & mask
        x = left << half | right
        if x < n:
            return x


def read_safetensors(path):
    raw = open(path, "rb").read()
    (n,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8:8 + n])
    out = {}
    for name, t in head.items():
        if name.startswith("__"):
            continue
        lo, hi = t["data_offsets"]
        out[name] = torch.from_numpy(np.frombuffer(raw[8 + n + lo:8 + n + hi],
                                                   dtype=np.float32).reshape(t["shape"]).copy())
    return out


def loss_of(w, cfg, x, y):
    h = F.embedding(x, w["wte.weight"]) + w["wpe.weight"][: x.shape[1]]
    B, T = x.shape
    D, H = cfg["dim"], cfg["heads"]
    ln = lambda t, p: F.layer_norm(t, (D,), w[p + ".weight"], w[p + ".bias"], 1e-5)
    for i in range(cfg["layers"]):
        p = f"blocks.{i}."
        a = F.linear(ln(h, p + "ln1"), w[p + "attn.qkv"], w[p + "attn.qkv_b"])
        q, k, v = [t.view(B, T, H, D // H).transpose(1, 2) for t in a.split(D, 2)]
        s = (q @ k.transpose(-1, -2)) / math.sqrt(D // H)
        s = s.masked_fill(torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1), float("-inf"))
        a = (s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D)
        h = h + F.linear(a, w[p + "attn.proj"], w[p + "attn.proj_b"])
        m = F.gelu(F.linear(ln(h, p + "ln2"), w[p + "mlp.fc"], w[p + "mlp.fc_b"]), approximate="tanh")
        h = h + F.linear(m, w[p + "mlp.proj"], w[p + "mlp.proj_b"])
    logits = F.linear(ln(h, "ln_f"), w["wte.weight"])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), y.reshape(-1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", default="build")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--compute", default="f32")
    ap.add_argument("--steps", type=int, default=50)
    ap.add_argument("--set", action="append", default=[])
    ap.add_argument("--program", help="an already compiled binary (its --set values must be repeated)")
    a = ap.parse_args()
    cfg = dict(SMALL, batch=8, lr=1e-3, warmup=10)
    for s in a.set:
        k, v = s.split("=")
        cfg[k.split(".")[-1]] = type(cfg[k.split(".")[-1]])(v)
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    tmp = tempfile.mkdtemp()
    program = a.program or os.path.join(tmp, "gpt2")
    if not a.program:
        sets = [f"{k}={cfg[k]}" for k in SMALL]
        sets += [f"train.batch={cfg['batch']}", f"train.precision.compute={a.compute}", f"train.lr={cfg['lr']}",
                 f"train.optimizer.lr.warmup={cfg['warmup']}"]
        target = "cuda" if a.device == "cuda" else "host"
        subprocess.run([os.path.join(a.build, "bin", "heddlec"), os.path.join(here, "examples/gpt2/gpt2.hd"),
                        "-o", program, f"--target={target}"] + [f"--set={s}" for s in sets], check=True)
    B, T, seed, total, floor = cfg["batch"], cfg["seq"], 1234, 20000, 6e-5
    rng = np.random.default_rng(0)
    # tokens with structure to learn: a noisy counting sequence
    tokens = (np.cumsum(rng.integers(0, 3, size=T * 400 + 1)) % cfg["vocab"]).astype("<u2")
    data = os.path.join(tmp, "data.bin")
    tokens.tofile(data)
    init, log = os.path.join(tmp, "init.safetensors"), os.path.join(tmp, "log.jsonl")
    subprocess.run([program, "--steps=0", f"--seed={seed}", f"--export={init}"], check=True, stderr=subprocess.DEVNULL)
    subprocess.run([program, f"--data={data}", f"--steps={a.steps}", f"--seed={seed}", f"--log={log}"], check=True)
    ours = [json.loads(line) for line in open(log)]
    ours = [(r["loss"], r["grad_norm"]) for r in ours if "loss" in r]

    torch.set_float32_matmul_precision("highest")
    dev = torch.device(a.device)
    w = {k: t.to(dev).requires_grad_() for k, t in read_safetensors(init).items()}
    decay = [p for p in w.values() if p.dim() >= 2]
    rest = [p for p in w.values() if p.dim() < 2]
    opt = torch.optim.AdamW([dict(params=decay, weight_decay=0.1), dict(params=rest, weight_decay=0.0)], lr=1.0,
                            betas=(0.9, 0.95), eps=1e-8)
    n = (len(tokens) - 1) // T
    worst = worst_norm = 0.0
    for step in range(1, a.steps + 1):
        at = [window(n, seed, (step - 1) * B + b) * T for b in range(B)]
        x = torch.from_numpy(np.stack([tokens[s:s + T] for s in at]).astype(np.int64)).to(dev)
        y = torch.from_numpy(np.stack([tokens[s + 1:s + T + 1] for s in at]).astype(np.int64)).to(dev)
        with torch.autocast(dev.type, torch.bfloat16, enabled=a.compute == "bf16"):
            loss = loss_of(w, cfg, x, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in w.values()))
        scale = min(1.0, 1.0 / float(norm))
        for p in w.values():
            p.grad.mul_(scale)
        t = step
        if t < cfg["warmup"]:
            lr = cfg["lr"] * t / cfg["warmup"]
        else:
            turn = math.pi * (t - cfg["warmup"]) / (total - cfg["warmup"])
            lr = floor + 0.5 * (cfg["lr"] - floor) * (1 + math.cos(turn))
        for g in opt.param_groups:
            g["lr"] = lr
        opt.step()
        worst = max(worst, abs(ours[step - 1][0] - float(loss)) / abs(float(loss)))
        worst_norm = max(worst_norm, abs(ours[step - 1][1] - float(norm)) / float(norm))
        if step in (1, a.steps) or step % 10 == 0:
            print(f"step {step}: heddle {ours[step - 1][0]:.6f} torch {float(loss):.6f}; "
                  f"norm {ours[step - 1][1]:.5f} {float(norm):.5f}")
    bound = 1e-4 if a.compute == "f32" else 1e-2
    print(f"| {a.device} | {a.compute} | torch {torch.__version__} | {a.steps} steps | largest relative difference of "
          f"the loss {worst:.2e} (bound {bound:.0e}) | of the gradient norm {worst_norm:.2e} |")
    return 0 if worst <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
