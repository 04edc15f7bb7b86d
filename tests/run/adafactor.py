#!/usr/bin/env python3
"""usage: adafactor.py HEDDLEC [CASE...] [torch]: groups that adafactor updates, beside its formula in f64, with the
same bits under every strategy, and through checkpoints; torch: beside PyTorch's own torch.optim.Adafactor as well, as
python3 -P adafactor.py. The model is that of muon.py."""
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from cases import check, run_cases  # noqa: E402
from muon import (DECAY, DIM, HEDDLEC, LR, MODEL, PERIOD, VOCAB, apart, data, exported, gradients,  # noqa: E402
                  program, rows, run)
from skip import ROW, npy  # noqa: E402

# text, steps, lr, decay, beta2_decay, eps1, eps2, d: the last rate is above 1 / sqrt(step) from step 3 on
CASES = [('group "*" adafactor { }', 50, LR, DECAY, -0.8, 2.0**-23, 1e-3, 1.0),
         ('group "*" adafactor { lr = 3x; weight_decay = 0.3; beta2_decay = -0.5; eps1 = 0.0001; eps2 = 0.05; d = 2; }',
          50, 3 * LR, 0.3, -0.5, 1e-4, 0.05, 2.0),
         ('group "*" adafactor { lr = 60x; }', 10, 60 * LR, DECAY, -0.8, 2.0**-23, 1e-3, 1.0)]
DEEP = (HERE / "adafactor.hd").read_text()
LINE = """
model Line(dim = 4) {
  param w: [dim, dim] = normal(0.1);
  param v: [dim] = ones;
  fn loss(x: f32[batch, dim]) { return mean(linear(x, w) * v); }
}
train Line { batch = 4; clip = 0; on_nan = skip;
             optimizer { default adamw { lr = 0.01; } group "*" adafactor { } } }
"""
STRATEGIES = (1, "none"), (2, "none"), (2, "zero2"), (4, "zero1"), (4, "zero3")


def mean(values):
    return math.fsum(values) / len(values)


def adafactor(p, g, s, t, vector, lr, decay, beta2_decay, eps1, eps2, d):
    """Of a matrix, by rows; of a vector as one row."""
    share = t**beta2_decay
    squares = [[x * x for x in r] for r in g]

    def moved(name, new):
        s[name] = [a + share * (b - a) for a, b in zip(s.get(name, [0.0] * len(new)), new, strict=True)]
        return s[name]

    if vector:
        v = [moved("v", squares[0])]
    else:
        row, column = moved("row", [mean(r) for r in squares]), moved("column", [mean(c) for c in zip(*squares)])
        v = [[a * b / max(mean(row), eps1) for b in column] for a in row]
    u = [[x / math.sqrt(max(y, eps1 * eps1)) for x, y in zip(a, b)] for a, b in zip(g, v)]
    size = max(eps2, math.sqrt(mean([x * x for r in p for x in r])))
    longer = max(1, math.sqrt(mean([x * x for r in u for x in r])) / d)
    rate = size * min(lr, 1 / math.sqrt(t)) / longer
    return [[x * (1 - lr * decay) - rate * y for x, y in zip(a, b)] for a, b in zip(p, u)]


def reference(start, steps, lr, decay, *rule):
    u, v, b, states = rows(start["u"], DIM), rows(start["v"], VOCAB), start["b"], ({}, {}, {})
    for t in range(1, steps + 1):
        du, dv, db = gradients(u, v, b)
        u = adafactor(u, du, states[0], t, False, lr, decay, *rule)
        v = adafactor(v, dv, states[1], t, False, lr, decay, *rule)
        b = adafactor([b], [db], states[2], t, True, lr, 0.0, *rule)[0]
    return {"u": [x for r in u for x in r], "v": [x for r in v for x in r], "b": b}


def case_formula():
    """50 steps in f32, of a tall and a wide matrix and of a vector, on one rank and where each of two owns a matrix."""
    for text, steps, *rule in CASES:
        for ranks, fsdp in ((1, "none"), (2, "zero3"))[:1 if steps == 10 else 2]:
            program("m", MODEL % text, f"schedule.mesh.shard={ranks}", f"schedule.fsdp={fsdp}")
            run("m", f"--ranks={ranks}", "--data=t.bin", "--steps=0", "--export=start")
            run("m", f"--ranks={ranks}", "--data=t.bin", f"--steps={steps}", "--export=end")
            far = apart(exported("end"), reference(exported("start"), steps, *rule))
            print(f"{text}, {ranks} ranks, {fsdp}: {far:.2e} away")
            check(far < 1e-5, text, far)


def case_strategies():
    """The same bits under every strategy and on 1, 2 and 4 ranks, with a parameter whole on one of them."""
    digests = {}
    for ranks, fsdp in STRATEGIES:
        program("m", DEEP, f"schedule.mesh.shard={ranks}", f"schedule.fsdp={fsdp}", f"train.accumulate={4 // ranks}")
        run("m", f"--ranks={ranks}", "--data=r.bin", "--steps=4", "--digest=d", "--check")
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
    n = sum(l.startswith("param") for l in whole)
    check(parts[-n:] == whole[-n:] and len(whole) > n, whole, parts)
    for end in "end", "c":
        run("one", "--data=r.bin", f"--resume={end}", "--weights=ema", f"--export={end}.ema", "--steps=6")
    check(apart(exported("end.ema"), exported("c.ema")) == 0, "averages differ")


def tensors(path):
    raw = Path(path).read_bytes()
    head = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    return {k: v["shape"] for k, v in head.items() if k != "__metadata__"}


def case_states():
    """What a checkpoint has of a matrix and of a vector, and what the moments cost beside AdamW's."""
    program("m", DEEP)
    run("m", "--data=r.bin", "--steps=2", "--save=c")
    t = next(tensors(f) for f in Path("c").rglob("*.safetensors") if "wte.weight" in tensors(f))
    for name, shape in (("row", [40]), ("column", [16]), ("step", [])):
        check(t.get(f"{name}.blocks.1.up") == shape, t)
    check(t.get("variance.blocks.1.bias") == [16] and t.get("step.blocks.1.bias") == [], t)
    check(not any(k.startswith(("moment", "variance")) and k.endswith((".up", "head")) for k in t), t)
    sizes = []
    for groups in 'group "*" adafactor { }', "":
        Path("w.hd").write_text(DEEP.split("train Net")[0] + "train Net { batch = 2; optimizer { default adamw { lr = "
                                f"0.01; }} {groups} }} }}")
        report = subprocess.run([HEDDLEC, "w.hd", "--emit=report", "--set", "dim=128", "--set", "hidden=512"],
                                capture_output=True, text=True, check=True).stdout
        sizes.append(json.loads(report)["classes"]["optimizer"])
    check(sizes[0] < 0.02 * sizes[1], "the moments take", sizes)


def case_other_optimizer():
    """A checkpoint of another assignment of optimizers is refused, and taken with fresh moments when asked: in one file
    and in shards, with and without states of lines."""
    fewer = DEEP.replace("group blocks, head adafactor { lr = 2x; }", "group blocks adafactor { lr = 2x; }")
    for name, ranks in ("one", 1), ("two", 2):
        sets = f"schedule.mesh.shard={ranks}", f"schedule.fsdp={'zero3' if ranks > 1 else 'none'}"
        program("a", DEEP, *sets)
        program("b", fewer, *sets)
        run("a", f"--ranks={ranks}", "--data=r.bin", "--steps=2", f"--save={name}")
        said = run("b", f"--ranks={ranks}", "--data=r.bin", "--steps=4", f"--resume={name}", status=1)
        check("blocks head: adafactor beta2_decay -0.8 eps1 1.1920928955078125e-07 eps2 0.001 d 1.0" in said, said)
        said = run("b", f"--ranks={ranks}", "--data=r.bin", "--steps=4", f"--resume={name}", "--resume-with=own,group",
                   "--save=next", "--overwrite")
        check("the optimizer begins anew" in said, said)
        said = run("a", f"--ranks={ranks}", "--data=r.bin", "--steps=6", "--resume=next", "--resume-with=own,group",
                   f"--digest={name}.d")
        check("the optimizer begins anew" in said, said)


def case_skip():
    """Twelve steps, two of which are skipped, are ten steps: weights, moments and the count of steps stay."""
    infinite = [ROW] * 48
    infinite[5] = infinite[20] = (1.0, float("inf"), 3.0, 4.0)
    npy(Path("x.npy"), infinite)
    npy(Path("y.npy"), [ROW] * 48)
    program("m", LINE)
    said = run("m", "--data=x.npy", "--steps=12", "--export=a")
    run("m", "--data=y.npy", "--steps=10", "--export=b")
    check(said.count("skipped") == 2, said)
    check(apart(exported("a"), exported("b")) == 0, exported("a"), "is not", exported("b"))


def by_torch(start, steps, lr, decay, beta2_decay, eps1, eps2, d):
    import torch
    u, v, b = (torch.tensor(start[k]).view(*shape).requires_grad_()
               for k, shape in (("u", (VOCAB, DIM)), ("v", (DIM, VOCAB)), ("b", (VOCAB,))))
    optimizer = torch.optim.Adafactor([{"params": [u, v], "weight_decay": decay}, {"params": [b], "weight_decay": 0.0}],
                                      lr=lr, beta2_decay=beta2_decay, eps=(eps1, eps2), d=d)
    tokens, targets = torch.tensor(PERIOD), torch.tensor(PERIOD[1:] + PERIOD[:1])
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(u[tokens] @ v + b, targets).backward()
        optimizer.step()
    return {k: x.detach().flatten().tolist() for k, x in (("u", u), ("v", v), ("b", b))}


def case_torch():
    if "torch" not in sys.argv[2:]:
        return
    sys.path = [p for p in sys.path if p != str(HERE)]  # which has a module `numbers`
    for text, steps, *rule in CASES:
        for ranks, fsdp in (1, "none"), (2, "zero3"):
            program("m", MODEL % text, f"schedule.mesh.shard={ranks}", f"schedule.fsdp={fsdp}")
            run("m", f"--ranks={ranks}", "--data=t.bin", "--steps=0", "--export=start")
            run("m", f"--ranks={ranks}", "--data=t.bin", f"--steps={steps}", "--export=end")
            far = apart(exported("end"), by_torch(exported("start"), steps, *rule))
            print(f"{text}, {ranks} ranks, {fsdp}: {far:.2e} from PyTorch")
            check(far < 1e-5, text, far)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run_cases(globals(), [w for w in sys.argv[2:] if w != "torch"], folder, data))
