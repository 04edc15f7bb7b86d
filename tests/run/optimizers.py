#!/usr/bin/env python3
"""usage: optimizers.py HEDDLEC [all] [torch]: each optimizer and the average of the weights for 50 steps beside
PyTorch's formulas in f64, on one rank and under zero3; all: under every strategy, with the same bits; torch: beside
PyTorch's own optimizers and AveragedModel as well, as python3 -P optimizers.py. The model is a table of logits by
token, whose gradient is written here as well."""
import json
import math
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

VOCAB, SEQ, STEPS, LR, DECAY, KEPT = 32, 16, 50, 0.01, 0.1, 0.9
MODEL = """
model Table(vocab = 32, seq = 16) {
  param w: [vocab, vocab] = zeros;
  param b: [vocab] = zeros, no_decay;
  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {
    return cross_entropy(embedding(w, tokens) + b, targets);
  }
}
train Table {
  batch = 4; clip = 0;
  optimizer { default %s { lr = %s; weight_decay = 0.1; %s } %s }
}
"""


def adamw(p, g, s, t, lr, decay, decoupled=True, b1=0.9, b2=0.95, eps=1e-8):
    if decoupled:
        p *= 1 - lr * decay
    else:
        g += decay * p
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0.0) + (1 - b2) * g * g
    return p - lr / (1 - b1**t) * s["m"] / (math.sqrt(s["v"]) / math.sqrt(1 - b2**t) + eps)


def adam(p, g, s, t, lr, decay):
    return adamw(p, g, s, t, lr, decay, False)


def sgd(p, g, s, t, lr, decay, ahead=False):
    g += decay * p
    s["v"] = g if t == 1 else 0.9 * s["v"] + g
    return p - lr * (g + 0.9 * s["v"] if ahead else s["v"])


def nesterov(p, g, s, t, lr, decay):
    return sgd(p, g, s, t, lr, decay, True)


def lion(p, g, s, t, lr, decay, b1=0.9, b2=0.99):
    p *= 1 - lr * decay
    m = s.get("m", 0.0)
    s["m"] = b2 * m + (1 - b2) * g
    c = b1 * m + (1 - b1) * g
    return p - lr * ((c > 0) - (c < 0))


def bf16(x):
    """To nearest even."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<I", bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000))[0]


def narrow(step):
    """With states that are kept in bf16."""
    def kept(p, g, s, *rates):
        p = step(p, g, s, *rates)
        s.update({k: bf16(x) for k, x in s.items()})
        return p
    return kept


CASES = [("adamw", "", "", adamw), ("adam", "", "", adam), ("sgd", "", "", sgd), ("sgd", "nesterov = 1;", "", nesterov),
         ("lion", "betas = 0.9, 0.99;", "", lion),
         ("adamw", "ema = 0.9;", "", adamw),
         ("adamw", "", 'group "*" { lr = 2x; } group w { weight_decay = 0.3; lr = 0.5x; }', adamw)]


def flat(t):
    return 1


# text, what PyTorch's LambdaLR multiplies the rate of step t with (it counts from 0)
SCHEDULES = [
    ("wsd(0.01, warmup = 5, total = 50, decay = 20)", lambda t: min((t + 1) / 5, 1, (49 - t) / 20)),
    ("wsd(0.01, warmup = 5, total = 45, decay = 0.4, shape = cosine, floor = 0.001)",
     lambda t: min((t + 1) / 5, 0.1 + 0.45 * (1 + math.cos(math.pi * min(1, max(0, (t + 1 - 27) / 18)))))),
    ("wsd(0.01, total = 40, decay = 0.5, shape = sqrt)", lambda t: 1 - math.sqrt(min(1, max(0, (t - 19) / 20)))),
    ("inverse_sqrt(0.01, warmup = 8)", lambda t: min((t + 1) / 8, math.sqrt(8 / (t + 1)))),
    ("inverse_sqrt(0.01, floor = 0.002)", lambda t: max(0.2, 1 / math.sqrt(t + 1))),
    ("points([2, 0.001], [12, 0.01], [32, 0.004])",
     lambda t: 0.1 if t < 1 else 0.1 + 0.09 * (t - 1) if t < 11 else 1 - 0.03 * (t - 11) if t < 31 else 0.4)]
RATES = {"": ((LR, DECAY), (LR, 0.0)), CASES[-1][2]: ((LR / 2, 0.3), (LR * 2, 0.0))}  # of w and of b


def by_torch(step, rates, tokens, targets, schedule):
    """The same by PyTorch's own optimizer, in f32, and the average by its own. It has no Lion."""
    import torch
    w, b = (torch.zeros(n, VOCAB).squeeze(0).requires_grad_() for n in (VOCAB, 1))
    groups = [{"params": [p], "lr": lr, "weight_decay": decay} for p, (lr, decay) in zip((w, b), rates, strict=True)]
    kinds = {"adamw": (torch.optim.AdamW, {"betas": (0.9, 0.95)}), "adam": (torch.optim.Adam, {"betas": (0.9, 0.95)}),
             "sgd": (torch.optim.SGD, {"momentum": 0.9}), "nesterov": (torch.optim.SGD, {"momentum": 0.9,
                                                                                        "nesterov": True})}
    kind, extra = kinds[step.__name__]
    optimizer = kind(groups, **extra)
    average = torch.optim.swa_utils.AveragedModel(torch.nn.ParameterList([w, b]),
                                                  multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(KEPT))
    average.update_parameters(torch.nn.ParameterList([w, b]))  # the first time it takes the weights
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(w[torch.tensor(tokens)] + b, torch.tensor(targets)).backward()
        optimizer.step()
        average.update_parameters(torch.nn.ParameterList([w, b]))
        scheduler.step()
    return [torch.cat([x.detach().flatten() for x in xs]).tolist() for xs in ((w, b), average.module)]


def reference(step, rates, tokens, targets, schedule):
    """The weights as one list, `w` row by row and then `b`; and their average."""
    average = [0.0] * (VOCAB * VOCAB + VOCAB)
    p, state = [0.0] * (VOCAB * VOCAB + VOCAB), [{} for _ in range(VOCAB * VOCAB + VOCAB)]
    for t in range(1, STEPS + 1):
        g = [0.0] * len(p)
        for token, target in zip(tokens, targets):
            e = [math.exp(p[token * VOCAB + k] + p[VOCAB * VOCAB + k]) for k in range(VOCAB)]
            total = sum(e)
            for k in range(VOCAB):
                d = (e[k] / total - (k == target)) / len(tokens)
                g[token * VOCAB + k] += d
                g[VOCAB * VOCAB + k] += d
        now = [(lr * schedule(t - 1), decay) for lr, decay in rates]
        p = [step(p[i], g[i], state[i], t, *now[i >= VOCAB * VOCAB]) for i in range(len(p))]
        average = [KEPT * a + (1 - KEPT) * x for a, x in zip(average, p)]
    return p, average


def exported(path):
    data = Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    at = {k: v["data_offsets"] for k, v in head.items() if k != "__metadata__"}
    return [x for k in "wb" for (x,) in struct.iter_unpack("<f", data[8 + n + at[k][0]:8 + n + at[k][1]])]


def compiled(heddlec, folder, *sets):
    options = [x for s in sets for x in ("--set", s)]
    subprocess.run([heddlec, folder / "m.hd", *options, "-o", folder / "m"], check=True)


def run(folder, ranks, *options, steps=STEPS):
    return subprocess.run([folder / "m", f"--ranks={ranks}", f"--data={folder}/t.bin", f"--steps={steps}", *options],
                          capture_output=True, text=True)


def moments(heddlec, folder, period):
    """States in bf16: near the formulas, with the same bits under none, under zero3, and when a run goes on from half
    of the steps under the other one. Without the rounding they would be 5e-4 away."""
    failures, bits, narrowed = 0, set(), ("train.precision.moments=bf16", "schedule.mesh.shard=2")
    given = RATES[""], period, period[1:] + period[:1], flat
    for word, step in (("adamw", adamw), ("sgd", sgd)):
        (folder / "m.hd").write_text(MODEL % (word, "constant(0.01)", "", ""))
        bits.clear()
        for fsdp in ("none", "zero3"):
            compiled(heddlec, folder, *narrowed, f"schedule.fsdp={fsdp}")
            run(folder, 2, f"--export={folder}/w", f"--digest={folder}/d").check_returncode()
            bits.add((folder / "d").read_bytes())
            if fsdp == "none":
                run(folder, 2, f"--save={folder}/{word}", steps=STEPS // 2).check_returncode()
            apart = [max(abs(x - y) for x, y in zip(exported(folder / "w"), reference(s, *given)[0], strict=True))
                     for s in (narrow(step), step)]
            failures += apart[0] > 1e-4 or apart[1] < 1e-4
            print(f"{word} in bf16, {fsdp}: {apart[0]:.2e} away, {apart[1]:.2e} from f32, {len(bits)} digests")
        run(folder, 2, f"--resume={folder}/{word}", f"--digest={folder}/d").check_returncode()
        whole, resumed = next(iter(bits)).split(b"\n"), (folder / "d").read_bytes().split(b"\n")
        failures += len(bits) > 1 or whole[-len(resumed) + 1:] != resumed[1:]
        print(f"{word} in bf16, resumed: {len(resumed)} lines, {sum(x in whole for x in resumed)} as without a pause")
    return failures


def main():
    heddlec, every, torch = sys.argv[1], "all" in sys.argv[2:], "torch" in sys.argv[2:]
    strategies = ["none", "zero1", "zero2", "zero3"] if every else ["zero3"]
    period = [(7 * i + i * i) % VOCAB for i in range(SEQ)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "t.bin").write_bytes(struct.pack("<%dH" % SEQ, *period) * 400)
        failures = 0
        every_case = [(*c, "constant(0.01)", flat) for c in CASES] + [("sgd", "", "", sgd, *s) for s in SCHEDULES]
        for word, extra, groups, step, rate, schedule in every_case:
            (folder / "m.hd").write_text(MODEL % (word, rate, extra, groups))
            given = RATES[groups], period, period[1:] + period[:1], schedule
            want, bits = reference(step, *given), set()
            own = by_torch(step, *given) if torch and step is not lion else None
            for ranks, fsdp in [(1, "none"), *((2, s) for s in strategies if schedule is flat or every)]:
                compiled(heddlec, folder, f"schedule.mesh.shard={ranks}", f"schedule.fsdp={fsdp}")
                worst = 0.0
                for i, average in enumerate([[], ["--weights=ema"]][:1 + ("ema" in extra)]):
                    run(folder, ranks, f"--export={folder}/w", f"--digest={folder}/d", *average).check_returncode()
                    worst = max(worst, *(abs(x - y) for ref in (want, own) if ref
                                         for x, y in zip(exported(folder / "w"), ref[i], strict=True)))
                if ranks > 1:
                    bits.add((folder / "d").read_bytes())
                failures += worst > 1e-5 or len(bits) > 1
                print(f"{step.__name__} {extra}, {ranks} ranks, {fsdp}: {worst:.2e} away, {len(bits)} digests")
        failures += moments(heddlec, folder, period)
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
