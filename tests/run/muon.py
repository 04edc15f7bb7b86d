#!/usr/bin/env python3
"""usage: muon.py HEDDLEC [torch]: groups of matrices that muon updates, beside its formula in f64, with the same bits
under every strategy, and through checkpoints; torch: beside PyTorch's own torch.optim.Muon as well, whose products are
in bf16, as python3 -P muon.py. The model is a product of two tables, whose gradients are written here as well."""
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from cases import check, run_cases  # noqa: E402

HEDDLEC = os.path.abspath(sys.argv[1])
VOCAB, DIM, SEQ, STEPS, LR, DECAY = 32, 6, 16, 50, 0.01, 0.1
MODEL = """
model Table(vocab = 32, seq = 16, dim = 6) {
  param u: [vocab, dim] = normal(0.1);
  param v: [dim, vocab] = normal(0.1);
  param b: [vocab] = zeros, no_decay;
  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {
    return cross_entropy(matmul(embedding(u, tokens), v) + b, targets);
  }
}
train Table {
  batch = 4; clip = 0;
  optimizer { default adamw { lr = 0.01; weight_decay = 0.1; } %s }
}
"""
# text, momentum, nesterov, lr, decay, how s is found
CASES = [("group u, v muon { precision = f32; }", 0.95, 1, LR, DECAY, "match_rms_adamw"),
         ("group u, v muon { precision = f32; momentum = 0.8; nesterov = 0; adjust_lr = original; lr = 3x; "
          "weight_decay = 0.3; }", 0.8, 0, 3 * LR, 0.3, "original")]
PERIOD = [(7 * i + i * i) % VOCAB for i in range(SEQ)]
DEEP = (HERE / "muon.hd").read_text()


def data():
    Path("t.bin").write_bytes(struct.pack("<%dH" % SEQ, *PERIOD) * 400)
    values = random.Random(1)
    Path("r.bin").write_bytes(struct.pack("<4096H", *(values.randrange(VOCAB) for _ in range(4096))))


def program(name, text, *sets, status=0):
    Path(f"{name}.hd").write_text(text)
    options = [x for s in sets for x in ("--set", s)]
    r = subprocess.run([HEDDLEC, f"{name}.hd", *options, "-o", name], capture_output=True, text=True)
    check(r.returncode == status, r.stderr)
    return r.stderr


def run(name, *options, status=0):
    r = subprocess.run([f"./{name}", *options], capture_output=True, text=True)
    check(r.returncode == status, name, options, r.stderr)
    return r.stderr


def exported(path):
    raw = Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    at = {k: v["data_offsets"] for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}
    return {k: [x for (x,) in struct.iter_unpack("<f", raw[8 + n + lo:8 + n + hi])] for k, (lo, hi) in at.items()}


# --- the formula

def times(a, b):
    columns = list(zip(*b))
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def plus(p, a, q, b):
    return [[p * x + q * y for x, y in zip(r, s)] for r, s in zip(a, b)]


def turned(g):
    """The nearest orthogonal matrix, as Newton and Schulz find it."""
    if len(g) > len(g[0]):
        return [list(r) for r in zip(*turned([list(r) for r in zip(*g)]))]
    norm = max(1e-7, math.sqrt(sum(x * x for r in g for x in r)))
    x = [[v / norm for v in r] for r in g]
    for _ in range(5):
        a = times(x, list(zip(*x)))
        x = plus(3.4445, x, 1, times(plus(-4.7750, a, 2.0315, times(a, a)), x))
    return x


def muon(p, g, s, momentum, nesterov, lr, decay, adjust):
    s["m"] = plus(momentum, s["m"], 1 - momentum, g) if s else [[(1 - momentum) * x for x in r] for r in g]
    o = turned(plus(momentum, s["m"], 1 - momentum, g) if nesterov else s["m"])
    r, c = len(p), len(p[0])
    size = math.sqrt(max(1, r / c)) if adjust == "original" else 0.2 * math.sqrt(max(r, c))
    return plus(1 - lr * decay, p, -lr * size, o)


def adamw(p, g, s, t):
    s["m"] = [0.9 * x + 0.1 * y for x, y in zip(s.get("m", [0] * len(p)), g)]
    s["v"] = [0.95 * x + 0.05 * y * y for x, y in zip(s.get("v", [0] * len(p)), g)]
    return [x - LR * m / (1 - 0.9**t) / (math.sqrt(v / (1 - 0.95**t)) + 1e-8) for x, m, v in zip(p, s["m"], s["v"])]


def rows(flat, n):
    return [flat[i:i + n] for i in range(0, len(flat), n)]


def gradients(u, v, b):
    du, dv, db = [[0.0] * DIM for _ in u], [[0.0] * VOCAB for _ in v], [0.0] * VOCAB
    for token, target in zip(PERIOD, PERIOD[1:] + PERIOD[:1]):
        z = [sum(x * y for x, y in zip(u[token], column)) + c for column, c in zip(zip(*v), b)]
        e = [math.exp(x) for x in z]
        d = [(x / sum(e) - (k == target)) / SEQ for k, x in enumerate(e)]
        du[token] = [x + sum(y * w for y, w in zip(d, v[i])) for i, x in enumerate(du[token])]
        dv = [[x + u[token][i] * y for x, y in zip(r, d)] for i, r in enumerate(dv)]
        db = [x + y for x, y in zip(db, d)]
    return du, dv, db


def reference(start, *rule):
    u, v, b, states = rows(start["u"], DIM), rows(start["v"], VOCAB), start["b"], ({}, {}, {})
    for t in range(1, STEPS + 1):
        du, dv, db = gradients(u, v, b)
        u, v = muon(u, du, states[0], *rule), muon(v, dv, states[1], *rule)
        b = adamw(b, db, states[2], t)
    return {"u": [x for r in u for x in r], "v": [x for r in v for x in r], "b": b}


def apart(a, b):
    return max(abs(x - y) for k in a for x, y in zip(a[k], b[k], strict=True))


def case_formula():
    """50 steps in f32, of a tall and a wide matrix, on one rank and where each of two owns a matrix."""
    for text, *rule in CASES:
        for ranks, fsdp in ((1, "none"), (2, "zero3"))[:1 if rule[1] else 2]:
            program("m", MODEL % text, f"schedule.mesh.shard={ranks}", f"schedule.fsdp={fsdp}")
            run("m", f"--ranks={ranks}", "--data=t.bin", "--steps=0", "--export=start")
            run("m", f"--ranks={ranks}", "--data=t.bin", f"--steps={STEPS}", "--export=end")
            far = apart(exported("end"), reference(exported("start"), *rule))
            print(f"{text}, {ranks} ranks, {fsdp}: {far:.2e} away")
            check(far < 1e-5, text, far)


def case_narrow():
    """Products in bf16 are near those in f32, and others."""
    ends = {}
    for kind in "f32", "bf16":
        program("m", MODEL % f"group u, v muon {{ precision = {kind}; }}")
        run("m", "--data=t.bin", "--steps=10", "--export=end")
        ends[kind] = exported("end")
    far = apart(ends["f32"], ends["bf16"])
    check(1e-5 < far < 0.01, far)


def case_strategies():
    """The same bits under every strategy and on 1, 2 and 4 ranks, with a matrix whole on one of them."""
    digests = {}
    for ranks, fsdp in (1, "none"), (2, "none"), (2, "zero2"), (4, "zero1"), (4, "zero3"):
        program("m", DEEP, f"schedule.mesh.shard={ranks}", f"schedule.fsdp={fsdp}", f"train.accumulate={4 // ranks}")
        run("m", f"--ranks={ranks}", "--data=r.bin", "--steps=4", "--digest=d")
        digests[ranks, fsdp] = Path("d").read_text()
    check(len(set(digests.values())) == 1, "digests differ:", digests)


def case_checkpoints():
    """A run goes on under another strategy and on another number of ranks, with the same bits and averages."""
    for name, ranks, fsdp in ("one", 1, "none"), ("four", 4, "zero3"), ("two", 2, "zero1"):
        program(name, DEEP, f"schedule.mesh.shard={ranks}", f"schedule.fsdp={fsdp}", f"train.accumulate={4 // ranks}")
    run("one", "--data=r.bin", "--steps=6", "--digest=whole", "--save=end")
    run("one", "--data=r.bin", "--steps=2", "--save=a")
    run("four", "--ranks=4", "--data=r.bin", "--resume=a", "--steps=4", "--save=b")
    run("two", "--ranks=2", "--data=r.bin", "--resume=b", "--steps=6", "--digest=parts", "--save=c")
    whole, parts = Path("whole").read_text().splitlines(), Path("parts").read_text().splitlines()
    check(parts[-9:] == whole[-9:] and len(whole) > 9, whole, parts)
    for end in "end", "c":
        run("one", "--data=r.bin", f"--resume={end}", "--weights=ema", f"--export={end}.ema", "--steps=6")
    check(apart(exported("end.ema"), exported("c.ema")) == 0, "averages differ")


def case_other_optimizer():
    """A checkpoint of another assignment of optimizers is refused, and taken with fresh moments when asked."""
    program("a", DEEP)
    run("a", "--data=r.bin", "--steps=2", "--save=c")
    program("b", DEEP.replace('group "*.down" muon { nesterov = 0; adjust_lr = original; }', ""))
    said = run("b", "--data=r.bin", "--steps=4", "--resume=c", status=1)
    check("blocks: muon momentum 0.95 nesterov match_rms_adamw f32; *.down: muon momentum 0.95 original bf16" in said,
          said)
    said = run("b", "--data=r.bin", "--steps=4", "--resume=c", "--resume-with=own,group")
    check("the optimizer begins anew" in said, said)


def by_torch(start, momentum, nesterov, lr, decay, adjust):
    import torch
    u, v, b = (torch.tensor(start[k]).view(*shape).requires_grad_()
               for k, shape in (("u", (VOCAB, DIM)), ("v", (DIM, VOCAB)), ("b", (VOCAB,))))
    both = [torch.optim.Muon([u, v], lr=lr, weight_decay=decay, momentum=momentum, nesterov=bool(nesterov),
                             adjust_lr_fn=adjust),
            torch.optim.AdamW([b], lr=LR, betas=(0.9, 0.95), weight_decay=0.0)]
    tokens, targets = torch.tensor(PERIOD), torch.tensor(PERIOD[1:] + PERIOD[:1])
    for _ in range(STEPS):
        for o in both:
            o.zero_grad()
        torch.nn.functional.cross_entropy(u[tokens] @ v + b, targets).backward()
        for o in both:
            o.step()
    return {k: x.detach().flatten().tolist() for k, x in (("u", u), ("v", v), ("b", b))}


def case_torch():
    """PyTorch's own, which multiplies in bf16: near in bf16, and equal where its bf16 is f32."""
    if "torch" not in sys.argv[2:]:
        return
    sys.path = [p for p in sys.path if p != str(HERE)]  # which has a module `numbers`
    import torch
    narrow = torch.bfloat16
    for text, *rule in CASES:
        for kind, most in ("bf16", 0.02), ("f32", 1e-5):
            program("m", MODEL % text.replace("f32", kind))
            run("m", "--data=t.bin", "--steps=0", "--export=start")
            run("m", "--data=t.bin", f"--steps={STEPS}", "--export=end")
            torch.bfloat16 = narrow if kind == "bf16" else torch.float32
            far = apart(exported("end"), by_torch(exported("start"), *rule))
            print(f"{text}, in {kind}: {far:.2e} from PyTorch")
            check(far < most, far)
    torch.bfloat16 = narrow


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run_cases(globals(), [w for w in sys.argv[2:] if w != "torch"], folder, data))
