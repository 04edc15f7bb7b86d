#!/usr/bin/env python3
"""Resuming with another train block: what it prints and refuses, and that the run which goes on is the right one.
Usage: resume_with.py ROOT HEDDLEC [CASE...]
"""
import re
import sys

import compiled
from cases import check
from compiled import SEQ, STEPS, bad, digest_of, good, read, tensors_of, text_file, train_digest, write

MESH = ("schedule.mesh.shard=2", "schedule.fsdp.unit=Block")
PEAK = 2.0**-8  # quarters of it are exact


def rate(kind, peak, *more, warmup=0):
    shape = f"{peak!r}" if kind == "constant" else f"{peak!r}, warmup={warmup}, total=100, floor={peak!r}"
    return (f"train.lr={kind}({shape})", *more)


def changes(r):
    """{name: (old, new)} of the lines that say so, each once."""
    lines = re.findall(r"^note: resumed with another setting, ([\w.-]+): (.*) -> (.*)$", r.err, re.M)
    check(len(lines) == len({name for name, _, _ in lines}), "a change is said twice:", r)
    return {name: (old, new) for name, old, new in lines}


def case_nothing_changes():
    """--resume-with=all of the same program is the uninterrupted run, bit for bit, and says nothing."""
    whole, params = train_digest("whole")
    good("--data=data.txt", "--steps=2", "--save=c")
    r = good("--data=data.txt", f"--steps={STEPS}", "--resume=c", "--resume-with=all", "--digest=d")
    check(digest_of("d") == (whole[2:], params) and not changes(r), "something changed:", r)


def case_rates_make_a_warmup():
    """A warmup of four steps, against four programs of a constant rate each that go on from each other, each under
    another strategy: the same losses, norms and weights to the last bit."""
    warm = rate("cosine", PEAK, *MESH, "schedule.fsdp=zero3", warmup=4)
    whole, params = train_digest("whole", settings=warm)
    steps, before = [], []
    for i, strategy in enumerate(("zero1", "none", "zero3", "zero2"), 1):
        settings = rate("constant", PEAK * i / 4, *MESH, f"schedule.fsdp={strategy}")
        last = STEPS if i == 4 else i
        args = ["--data=data.txt", f"--steps={last}", "--save=c", "--digest=d"]
        if before:
            bad(1, "another train block", "--resume-with=lr.peak", args=[*args, *before], settings=settings)
            r = good(*args, *before, "--resume-with=lr", settings=settings)
            old, new = changes(r)["lr.peak"]
            check((float(old), float(new)) == (PEAK * (i - 1) / 4, PEAK * i / 4), "it says:", r)
        else:
            good(*args, settings=settings)
        before = ["--resume=c"]
        more, end = digest_of("d")
        steps += more
    check(steps == whole, "other losses or norms:", steps, whole)
    check(end == params, "other weights in the end")
    check(whole != train_digest("flat", settings=settings)[0], "the rate changes nothing")


def case_batch_continues_the_data():
    """With a rate of 0 the loss of a step is the mean of what its sequences lose alone, so it names them: after a
    change of batch, ranks or accumulation no sequence is read twice or left out."""
    still = rate("constant", 0.0)
    good(f"--data={text_file()}", "--steps=12", "--digest=alone", settings=(*still, "train.batch=1"))
    alone = [float.fromhex(s.split()[1]) for s in digest_of("alone")[0]]
    check(min(abs(a - b) for i, a in enumerate(alone) for b in alone[:i]) > 1e-4, "two sequences lose the same:", alone)
    parts = [  # steps, sequences of a step, settings
        (3, 1, ("train.batch=1",)),
        (4, 2, ("train.batch=2",)),
        (5, 4, ("train.batch=1", "train.accumulate=2", "schedule.mesh.shard=2", "schedule.fsdp=zero3")),
        (6, 3, ("train.batch=3",)),
    ]
    at, done = 0, 0
    for steps, width, settings in parts:
        resume = ["--resume=c", "--resume-with=batch"] if done else []
        r = good("--data=data.txt", f"--steps={steps}", "--save=c", "--digest=d", *resume, settings=(*still, *settings))
        if done:
            check(f"has read {at} sequences in {done} steps, from now on a step reads {width}, the next one from "
                  f"sequence {at + 1} on" in r.err, "it says:", r)
        for line in digest_of("d")[0]:
            loss, want = float.fromhex(line.split()[1]), sum(alone[at:at + width]) / width
            check(abs(loss - want) < 1e-5, f"step with sequences {at} to {at + width - 1}:", loss, want)
            at += width
        done = steps
    check(at == 12, "the parts read", at)


def case_seed():
    """Another seed is another order of the data, from where the run is; it is never a new beginning of the weights."""
    good(f"--data={text_file()}", "--steps=3", "--save=c")
    for args, settings in ((["--seed=5"], ()), ([], ("train.seed=5",))):
        base = ["--data=data.txt", f"--steps={STEPS}", "--resume=c", *args]
        bad(1, "--resume-with=seed", args=base, settings=settings)
        r = good(*base, "--resume-with=seed", "--digest=d", "--save=n", "--overwrite", settings=settings)
        check(list(changes(r).values()) == [("1", "5")], "it says:", r)
        check(tensors_of("n/checkpoint.safetensors")[1]["seed"] == "5", "the checkpoint has the old seed")
        write("d0" if args else "d1", read("d"))
    r = good("--data=data.txt", f"--steps={STEPS}", "--resume=c", "--resume-with=lr", "--digest=d")
    check("--resume-with=lr changes nothing" in r.err, "it says:", r)
    check(digest_of("d0") == digest_of("d1") != digest_of("d"), "--seed and train.seed differ, or change nothing")


def case_another_optimizer():
    """AdamW, SGD and back, each under another strategy. All sequences are the same, so a run that goes on with fresh
    moments and with a warmup that begins again equals one that begins with the weights, to the last bit."""
    write("data.txt", bytes(range(SEQ)) * 200)
    warm = rate("cosine", PEAK, warmup=3)
    sgd = (*warm, "train.optimizer=sgd", "train.optimizer.betas=0.9,0.95")  # it takes none
    kinds = [("adamw", warm), ("sgd", (*sgd, *MESH, "schedule.fsdp=zero3")),
             ("adamw", (*warm, *MESH, "schedule.fsdp=zero1")),
             ("lion", (*warm, "train.optimizer=lion")), ("sgd", sgd)]
    good("--data=data.txt", "--steps=3", "--save=c", "--export=w", settings=warm)
    for (old, _), (kind, settings) in zip(kinds, kinds[1:]):
        last = int(tensors_of("c/checkpoint.safetensors")[1]["step"]) + 4
        args = ["--data=data.txt", f"--steps={last}", "--resume=c"]
        bad(1, f"optimizer = {old} there, {kind} in this program", args=args, settings=settings)
        r = good(*args, "--resume-with=optimizer", "--digest=d", "--save=c", "--export=n", settings=settings)
        check(changes(r)["optimizer"] == (old, kind) and "moments are 0" in r.err, "it says:", r)
        good("--data=data.txt", "--steps=4", "--init=w", "--digest=i", settings=settings)
        (steps, params), (first, begun) = digest_of("d"), digest_of("i")
        check([x.split()[1:] for x in steps] == [x.split()[1:] for x in first], "other losses or norms:", steps, first)
        check(params == begun, f"other weights after {old}, {kind}")
        write("w", read("n"))
    tensors = tensors_of("c/checkpoint.safetensors")[0]
    check({n.split(".")[0] for n in tensors if "fc" in n} == {"blocks", "velocity"}, "states are kept:", tensors.keys())
    # another number of the same kind: the velocity stays
    other = (*settings, "train.optimizer.momentum=0.5")
    args = ["--data=data.txt", f"--steps={last + 1}", "--resume=c"]
    bad(1, "--resume-with=momentum", "momentum = 0.9 there, 0.5 in this program", args=args, settings=other)
    r = good(*args, "--resume-with=momentum", settings=other)
    check(changes(r) == {"momentum": ("0.9", "0.5")} and "moments are 0" not in r.err, "it says:", r)


def case_everything_at_once():
    """All that the program says, under another mesh and precision; then back; the model has to be the same."""
    good(f"--data={text_file()}", "--steps=3", "--save=c")
    other = (*rate("linear", 0.01), "train.batch=4", "train.clip=0.5", "train.betas=0.8,0.9", "train.eps=1e-6",
             "train.weight_decay=0.2", "train.precision.compute=bf16", "train.reduce=last", "train.accumulate=2",
             "train.products=merged", "train.loss_chunks=4", *MESH, "schedule.fsdp=zero3")
    args = ["--data=data.txt", "--steps=5", "--resume=c"]
    r = bad(1, "clip = 1.0 there, 0.5 in this program", "betas = [0.9, 0.98] there, [0.8, 0.9] in", args=args,
            settings=other)
    names = re.search(r"--resume-with=(\S+) \(or all\)", r.err).group(1)
    one = good(*args, f"--resume-with={names}", "--digest=named", settings=other)
    two = good(*args, "--resume-with=all", "--digest=all", "--save=n", settings=other)
    check(read("named") == read("all"), "`all` is not all of", names)
    check(set(names.split(",")) == set(changes(one)) == set(changes(two)), "said:", names, one, two)
    bad(1, "--resume-with=", args=[*args, f"--resume-with={names.rpartition(',')[0]}"], settings=other)
    good("--data=data.txt", "--steps=7", "--resume=n", "--resume-with=all")
    bad(1, "another model", args=[*args, "--resume-with=all"], settings=("heads=4", "train.clip=0.5"))


def case_schedules():
    """Another end of a schedule is named by what it changes; a checkpoint before points goes on with points."""
    wsd = "train.lr=wsd(0.01, warmup=2, total=20, decay={}, shape={})".format
    good(f"--data={text_file()}", "--steps=3", "--save=c", settings=(wsd(0.25, "linear"),))
    args = ["--data=data.txt", "--steps=5", "--resume=c"]
    other = (wsd(10, "sqrt"),)
    bad(1, "lr.decay = 5 there, 10 in this program", "lr.shape = linear there, sqrt in", args=args,
        settings=other)
    r = good(*args, "--resume-with=lr", "--log=l", settings=other)
    check(changes(r) == {"lr.decay": ("5", "10"), "lr.shape": ("linear", "sqrt")}, "it says:", r)
    points = ("train.lr=points([0, 0], [4, 0.5], [5, 0.25])",)
    r = good(*args, "--resume-with=lr", "--log=l", settings=points)
    check(changes(r)["lr.steps"] == ("none", "[0, 4, 5]"), "it says:", r)
    check([s["lr"] for s in compiled.lines_of("l")] == [0.5, 0.25], "rates:", read("l"))


def case_names():
    """Every setting of the train block is a name; anything else is refused before the run begins."""
    good(f"--data={text_file()}", "--steps=2", "--save=c")
    base = ["--data=data.txt", "--steps=2"]
    table = read(f"{compiled.programs.root}/frontend/settings/settings.def").decode()
    rows = re.findall(r'^SETTING\("train\.([\w.]+)"', table, re.M)
    check(len(rows) > 15, "settings.def has other rows:", rows)
    good(*base, "--resume=c", "--resume-with=" + ",".join(rows))
    good(*base, "--resume=c", "--resume-with=" + ",".join(f"train.{row}" for row in rows))
    good(*base, "--resume=c", "--resume-with=" + ",".join(row.split(".")[-1] for row in rows))
    for names in ("lrr", "peak,", ",lr", "l", "clip,,lr", "lr.", "lr peak", "optimizer.peak", "\x1b[2J", "x" * 500):
        r = bad(2, "--resume-with: ", "no setting of a train block", "lr.peak", "all", args=[
            *base, "--resume=c", f"--resume-with={names}"])
        check("\x1b" not in r.err, "a command to the terminal")
    bad(2, "--resume-with needs", args=[*base, "--resume=c", "--resume-with="])
    bad(2, "--resume-with needs --resume", args=[*base, "--resume-with=lr"])


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
