#!/usr/bin/env python3
"""usage: outliers.py HEDDLEC [CASE...] [torch]: train.skip_loss_z and skip_norm_z: the scores of losses and norms are
those of the formula, a step that is too far above the last 128 changes no weight, with the same bits under every
strategy and after a resumption. torch: beside a loop of PyTorch as well, as python3 -P outliers.py.

The rows of the data are multiples of one row: so is a gradient, and the norm says which multiple.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from cases import check, run_cases  # noqa: E402
from skip import ROW, npy  # noqa: E402

HEDDLEC = os.path.abspath(sys.argv[1])
STEPS, WINDOW, LR = 150, 128, 2.0**-12
MODEL = """
model Line(dim = 4) {
  param w: [dim] = ones, no_decay;
  fn loss(x: f32[batch, dim]) { return mean(x * w); }
}
train Line { batch = 4; clip = 0;
             optimizer { default sgd { lr = constant(0.000244140625); momentum = 0; ema = 0.5; } } }
"""


def before():
    """In the order of the seed, rows that are far larger are in steps 9, 77, 131 and 135."""
    rows = [[x * (1 + 0.1 * math.sin(i * i)) for x in ROW] for i in range(600)]
    for i in (190, 200, 100, 20):
        rows[i] = [40 * x for x in ROW]
    npy(Path("x.npy"), rows)
    Path("m.hd").write_text(MODEL)


def built(name, *sets):
    options = [x for s in sets for x in ("--set", s)]
    r = subprocess.run([HEDDLEC, "m.hd", *options, "-o", name], capture_output=True, text=True)
    check(r.returncode == 0, r.stderr)


def run(name, *options, steps=STEPS, status=0):
    r = subprocess.run([f"./{name}", "--data=x.npy", f"--steps={steps}", *options], capture_output=True, text=True)
    check(r.returncode == status, name, options, r.stderr)
    return r.stderr


def lines(path="l"):
    every = [json.loads(l) for l in Path(path).read_text().splitlines()]
    return [l for l in every if "loss" in l]


class Scores:
    """As llm.c scores: a number joins the last 128, and is compared with all of them."""

    def __init__(self):
        self.last = []

    def score(self, v):
        full = len(self.last) == WINDOW
        self.last = [*self.last[full:], v]
        if not full:
            return None
        mean = math.fsum(self.last) / WINDOW
        return (v - mean) / math.sqrt(math.fsum((x - mean) ** 2 for x in self.last) / WINDOW)


def weights(path):
    data = Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    at = json.loads(data[8:8 + n])["w"]["data_offsets"][0]
    return struct.unpack_from("<4f", data, 8 + n + at)


def check_log(limits):
    """Every score, and who is skipped; the steps that are not skipped say the weights."""
    scores, moved, skips = (Scores(), Scores()), 0.0, []
    for l in lines():
        want = [s.score(v) for s, v in zip(scores, (l["loss"], l["grad_norm"]), strict=True)]
        for have, z in zip((l["loss_z"], l["norm_z"]), want, strict=True):
            check((have is None) == (z is None) and (z is None or abs(have - z) < 1e-4), l, "has not the score", z)
        above = any(z is not None and limit and z > limit for z, limit in zip(want, limits, strict=True))
        check(above == l.get("skipped", False), l, "skipped:", above)
        skips += [l["step"]] if above else []
        moved += 0 if above else l["grad_norm"]
    check(skips == [131, 135], "skipped:", skips)
    size = math.hypot(*ROW)
    want = [1 - LR * moved * x / size for x in ROW]
    check(max(abs(a - b) for a, b in zip(weights("w"), want, strict=True)) < 1e-5, weights("w"), "is not", want)
    return skips


def case_strategies():
    digests = []
    for name, *sets in (("none", "train.batch=2"), ("zero1", "train.batch=2"), ("zero3", "train.batch=2"),
                        ("one",), ("parts", "train.batch=2", "train.accumulate=2")):
        shard = () if name in ("one", "parts") else ("schedule.mesh.shard=2", f"schedule.fsdp={name}")
        limits = (0, 5) if name in ("one", "parts") else (5, 4.5)
        built(name, f"train.skip_loss_z={limits[0]}", f"train.skip_norm_z={limits[1]}", *shard, *sets)
        said = run(name, "--log=l", "--digest=d", "--export=w")
        skips = check_log(limits)
        check(said.count(": skipped, the weights stay as they are") == len(skips) == said.count("(z-scores "), said)
        Path("l").unlink()
        digests += [Path("d").read_bytes()] if shard else []
    check(len(digests) == 3 and len(set(digests)) == 1, "digests differ")


def case_resume():
    """In a window that is not full and in one that is; under another strategy; a window that begins is empty."""
    limits = ("train.skip_loss_z=5", "train.skip_norm_z=5", "train.batch=2", "schedule.mesh.shard=2")
    built("m", *limits, "schedule.fsdp=zero3")
    built("n", *limits)
    built("off", *limits[2:])
    run("m", "--digest=d", "--log=l", "--export=w")
    whole = Path("d").read_text().splitlines()
    for name, steps in (("n", 60), ("m", 133)):
        run(name, "--save=c", "--overwrite", steps=steps)
        run("m" if name == "n" else "n", "--resume=c", "--digest=d", "--log=l2")
        check(Path("d").read_text().splitlines() == whole[steps:], "a resumed run differs from step", steps)
        check(lines("l2")[-1]["loss_z"] == lines()[-1]["loss_z"] is not None, "scores differ")
        Path("l2").unlink()
    run("off", "--save=c", "--overwrite", steps=133)
    said = run("m", "--resume=c", status=1)
    check("skip_loss_z = 0 there, 5.0 in this program" in said, said)
    check("--resume-with=skip_loss_z,skip_norm_z" in said, said)
    run("m", "--resume=c", "--resume-with=all", "--log=l2")
    check({l["loss_z"] for l in lines("l2")} == {None}, "a window that begins is not empty")


def by_torch(sizes):
    """PyTorch's loop over rows that are multiples of one row. A score of its loss or norm above the limit leaves the
    step out. Weights, their average, losses, and which steps were left out."""
    import torch
    w, row = torch.nn.ParameterList([torch.ones(4)]), torch.tensor(ROW)
    optimizer = torch.optim.SGD(w, lr=LR, momentum=0.9, weight_decay=0.0)
    average = torch.optim.swa_utils.AveragedModel(w, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    average.update_parameters(w)  # the first time it takes the weights
    scores, losses, left_out = (Scores(), Scores()), [], []
    for step, size in enumerate(sizes, 1):
        optimizer.zero_grad()
        loss = (size * row * w[0]).mean()
        loss.backward()
        norm = torch.nn.utils.get_total_norm([w[0].grad])
        losses.append(loss.item())
        z = [s.score(v) for s, v in zip(scores, (losses[-1], norm.item()), strict=True)]
        if any(v is not None and v > 5 for v in z):
            left_out.append(step)
            continue
        optimizer.step()
        average.update_parameters(w)
    return w[0].tolist(), average.module[0].tolist(), losses, left_out


def case_torch():
    """The norm of a step says by what its row was multiplied."""
    if "torch" not in sys.argv[2:]:
        return
    sys.path = [p for p in sys.path if p != str(HERE)]  # which has a module `numbers`
    Path("m.hd").write_text(MODEL.replace("momentum = 0;", "momentum = 0.9;"))
    for name, *sets in (("one",), ("zero3", "train.batch=2", "schedule.mesh.shard=2", "schedule.fsdp=zero3")):
        built(name, "train.skip_loss_z=5", "train.skip_norm_z=5", *sets)
        run(name, "--log=l", "--export=w")
        run(name, "--export=a", "--weights=ema")
        log = lines()
        w, average, losses, left_out = by_torch([4 * l["grad_norm"] / math.hypot(*ROW) for l in log])
        check(left_out == [l["step"] for l in log if l.get("skipped")] == [131, 135], left_out)
        pairs = (w, weights("w")), (average, weights("a")), (losses, [l["loss"] for l in log])
        far = max(abs(x - y) for a, b in pairs for x, y in zip(a, b, strict=True))
        print(f"{name}: {far:.2e} from PyTorch, which leaves out {left_out}")
        check(far < 1e-5, far)
        Path("l").unlink()


def main():
    with tempfile.TemporaryDirectory() as folder:
        return run_cases(globals(), [w for w in sys.argv[2:] if w != "torch"], folder, before=before)


if __name__ == "__main__":
    sys.exit(main())
