#!/usr/bin/env python3
"""usage: average.py HEDDLEC [CASE...]: train.optimizer.ema, the average of the weights: its values by the formula, the
same bits under every strategy and after a resumption, in exports, in evaluation, and what it cannot be asked for.

The rows of the data are equal, but for two that hold an infinity: every step that is not skipped has the same gradient.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import check, run_cases  # noqa: E402
from skip import LR, MOMENTUM, ROW, npy  # noqa: E402

HEDDLEC = os.path.abspath(sys.argv[1])
STEPS, KEPT = 12, 0.75
MODEL = """
model Line(dim = 4) {
  param w: [dim] = ones, no_decay;
  param v: [dim] = normal(0.02), no_decay;
  param f: [dim] = ones, frozen;
  fn loss(x: f32[batch, dim]) { return mean(x * w * f) + mean(x * v); }
}
train Line { batch = 2; clip = 0; on_nan = skip;
             optimizer { default sgd { lr = constant(0.015625); momentum = 0.5; ema = 0.75; } } }
"""


def before():
    rows = [ROW] * 48
    rows[5] = rows[20] = (1.0, float("inf"), 3.0, 4.0)
    npy(Path("x.npy"), rows)
    Path("m.hd").write_text(MODEL)


def built(name, *sets):
    options = [x for s in sets for x in ("--set", s)]
    r = subprocess.run([HEDDLEC, "m.hd", *options, "-o", name], capture_output=True, text=True)
    check(r.returncode == 0, r.stderr)


def run(name, *options, status=0):
    r = subprocess.run([f"./{name}", *options], capture_output=True, text=True)
    check(r.returncode == status, name, options, r.stderr)
    return r.stderr + r.stdout


def train(name, *options, steps=STEPS, status=0):
    return run(name, "--data=x.npy", f"--steps={steps}", *options, status=status)


def exported(path):
    """{name: values}"""
    data = Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: struct.unpack_from("<4f", data, 8 + n + v["data_offsets"][0]) for k, v in head.items()
            if k != "__metadata__"}


def reference(weights, steps, before=0):
    """The average of the first weights after so many steps, which begins after `before` of them."""
    velocity, average = [0.0] * 4, None
    for step in range(steps):
        if step >= before:
            average = average or weights
        velocity = [MOMENTUM * a + x / 4 for a, x in zip(velocity, ROW, strict=True)]
        weights = [a - LR * b for a, b in zip(weights, velocity, strict=True)]
        average = average and [a + (1 - KEPT) * (b - a) for a, b in zip(average, weights, strict=True)]
    return average


def near(have, want, *what):
    check(max(abs(a - b) for a, b in zip(have, want, strict=True)) < 1e-6, have, "is not", want, *what)


STRATEGIES = ((1, "none"), (2, "none"), (2, "zero1"), (2, "zero2"), (2, "zero3"))


def case_values():
    """By the formula, with two steps that are skipped; a frozen parameter is itself. The same bits on every rank count
    and strategy, in a run that goes on from half of the steps under another one, and as --resume takes them."""
    bits = set()
    for ranks, fsdp in STRATEGIES:
        built(fsdp, f"schedule.mesh.shard={ranks}", f"schedule.fsdp={fsdp}", f"train.batch={4 // ranks}")
        said = train(fsdp, "--export=e", "--weights=ema", "--digest=d", "--save=whole", "--overwrite")
        check(said.count("skipped") == 2, said)
        bits.add((ranks, Path("e").read_bytes(), Path("d").read_bytes()))
        near(exported("e")["w"], reference([1.0] * 4, STEPS - 2), fsdp)
        check(exported("e")["f"] == (1.0,) * 4, "the frozen parameter:", exported("e"))
        whole = Path("e").read_bytes()
        run(fsdp, "--resume=whole", "--export=e", "--weights=ema")
        check(Path("e").read_bytes() == whole, "another average comes out of the checkpoint")
    check(len(bits) <= 2 and len({x[1] for x in bits}) == 1, "averages differ")
    train("zero3", "--save=half", steps=STEPS // 2)
    train("none", "--resume=half", "--export=e", "--weights=ema")
    check(Path("e").read_bytes() == whole, "the resumed run has another average")


def case_evaluation():
    """--eval with the average is --eval of its export, and not that of the weights."""
    built("m", "schedule.mesh.shard=2", "schedule.fsdp=zero3")
    train("m", "--save=c", "--export=w")
    run("m", "--resume=c", "--export=e", "--weights=ema")
    npy(Path("v.npy"), [ROW] * 8)
    ask = ("--eval", "--val=v.npy", "--log=l")
    losses = []
    for options in (("--resume=c", "--weights=ema"), ("--init=e",), ("--resume=c",)):
        run("m", *ask, *options)
        losses.append(Path("l").read_text().split('"val_loss":')[1].split(",")[0])
        Path("l").unlink()
    check(losses[0] == losses[1] != losses[2], losses)


def case_begins():
    """An average that begins with --resume-with begins as the weights; another share goes on from the old average; a
    program without an average goes on without."""
    built("with")
    built("without", "train.ema=0")
    built("other", "train.ema=0.5")
    train("without", "--save=c", "--export=w", steps=1)
    said = train("with", "--resume=c", steps=2, status=1)
    check("--resume-with=ema" in said and "ema = 0 there, 0.75 in this program" in said, said)
    said = train("with", "--resume=c", "--resume-with=ema", "--export=e", "--weights=ema", "--save=c2", steps=2)
    check("average of the weights begins as the weights" in said, said)
    near(exported("e")["w"], reference([1.0] * 4, 2, before=1))
    said = run("with", "--resume=c", "--resume-with=ema", "--export=e", "--weights=ema", status=1)
    check("holds no average of its weights" in said, said)
    said = train("other", "--resume=c2", "--resume-with=ema", "--export=e2", "--weights=ema", "--save=c3", steps=2)
    check("note: resumed with another setting, ema: 0.75 -> 0.5" in said and "begins" not in said, said)
    check(exported("e2") == exported("e"), "another share changes the average at once")
    train("without", "--resume=c3", "--resume-with=all", "--digest=d", steps=3)
    built("adam", "train.optimizer=adam", "train.momentum=0.9")
    said = run("adam", "--resume=c3", "--resume-with=all", "--export=e", "--weights=ema", status=1)
    check("holds no average of its weights" in said, said)
    train("adam", "--resume=c3", "--resume-with=all", "--export=e", "--weights=ema", steps=2)
    run("adam", "--resume=c3", "--resume-with=all", "--export=w")
    check(exported("e") == exported("w"), "with another optimizer the average does not begin as the weights")


def case_errors():
    built("m")
    built("without", "train.ema=0")
    train("m", "--save=c", steps=1)
    for program, options, words in (
            ("m", ("--resume=c", "--export=e", "--weights=raw"), "--weights=ema is the only form, unlike raw"),
            ("without", ("--resume=c", "--export=e", "--weights=ema"), "--set train.optimizer.ema=0.999"),
            ("m", ("--data=x.npy", "--steps=1", "--weights=ema"), "with --steps=N is of --export alone"),
            ("m", ("--data=x.npy", "--val=x.npy", "--steps=1", "--export=e", "--weights=ema"), "is of --export alone"),
            ("m", ("--init=w", "--export=e", "--weights=ema"), "needs --resume=DIR, a checkpoint with the average"),
            ("m", ("--resume=c", "--export=e", "--save=o", "--weights=ema"), "--init=FILE starts from it")):
        said = run(program, *options, status=2)
        check(words in said and said.count("error") == 1, said)


def main():
    with tempfile.TemporaryDirectory() as folder:
        return run_cases(globals(), sys.argv[2:], folder, before=before)


if __name__ == "__main__":
    sys.exit(main())
