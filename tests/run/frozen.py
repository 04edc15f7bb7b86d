#!/usr/bin/env python3
"""usage: frozen.py HEDDLEC: frozen parameters in compiled programs: examples/lora has the same bits under every
strategy, its frozen weights stay as they were and take no memory but their own, checkpoints go on under other
strategies, and the first step gives the others exactly what a step gives them that trains everything."""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from cases import check, run_cases  # noqa: E402

HEDDLEC = os.path.abspath(sys.argv[1])
LORA = HERE.parent.parent / "examples/lora/lora.hd"
SMALL = ("layers=2", "dim=32", "hidden=64", "seq=16", "vocab=64", "train.batch=2")


def data():
    Path("t.bin").write_bytes(struct.pack("<1024H", *((7 * i + i * i) % 64 for i in range(1024))))


def program(name, *sets):
    options = [x for s in (*SMALL, *sets) for x in ("--set", s)]
    r = subprocess.run([HEDDLEC, LORA, *options, "-o", name], capture_output=True, text=True)
    check(r.returncode == 0, r.stderr)


def run(name, *options, status=0):
    r = subprocess.run([f"./{name}", "--data=t.bin", *options], capture_output=True, text=True)
    check(r.returncode == status, name, options, r.stderr)
    return r.stderr


def params(path):  # name: hash
    return dict(l.split()[1:] for l in Path(path).read_text().splitlines() if l.startswith("param"))


def frozen(values):
    return {k: v for k, v in values.items() if k.endswith(".weight")}


def case_strategies():
    """The same bits, and what is frozen is what it was. Of four ranks each holds a quarter in zero3."""
    digests = {}
    for kind in ("none", "zero1", "zero3", "more"):
        sets = ("schedule.mesh.shard=2", "schedule.mesh.replicate=2", f"schedule.fsdp={kind}", "train.accumulate=2")
        more = ("schedule.fsdp=zero3", "schedule.recompute=Block", "schedule.graph=unit", "schedule.offload=Block",
                "schedule.offload.min_size=1", "schedule.offload.margin=0", "schedule.prefetch=0")
        program(kind, *sets[:2], *more, sets[3]) if kind == "more" else program(kind, *sets)
        run(kind, "--steps=3", f"--digest={kind}.digest")
        digests[kind] = Path(f"{kind}.digest").read_text()
    check(len(set(digests.values())) == 1, "digests differ:", digests)
    run("none", "--steps=0", "--digest=start")
    start, end = params("start"), params("none.digest")
    check(frozen(start) == frozen(end), "frozen weights have changed")
    check(not set(start.items()) & set(end.items()) - set(frozen(end).items()), "some adapter was not trained")


def case_first_step():
    """With a plain step and no clipping an adapter gets the same bits whether the others are trained or not."""
    sets = ("train.compute=f32", "train.clip=0", "train.optimizer=sgd", "train.lr=0.1", "train.momentum=0")
    program("part", *sets)
    program("all", *sets, "train.frozen=none")
    for name in ("part", "all"):
        run(name, "--steps=1", f"--digest={name}.digest")
    part, every = params("part.digest"), params("all.digest")
    check({k: v for k, v in part.items() if not k.endswith(".weight")} ==
          {k: v for k, v in every.items() if not k.endswith(".weight")}, "adapters differ after the first step")
    check(frozen(part) != frozen(every), "nothing else was trained")


def header(path):
    blob = Path(path).read_bytes()
    return json.loads(blob[8:8 + struct.unpack("<Q", blob[:8])[0]])


def case_checkpoints():
    """A checkpoint has no states of frozen weights and has these as bf16. It continues under another strategy, and
    under another list of frozen parameters where --resume-with says so. --export and --init keep every value."""
    program("one")
    program("four", "schedule.mesh.shard=4")
    program("other", "train.frozen=*.weight,*.k,norm")
    run("four", "--steps=2", "--save=ckpt", "--digest=d1")
    run("four", "--steps=4", "--digest=straight")
    run("four", "--steps=4", "--resume=ckpt", "--digest=resumed")
    check(Path("straight").read_text().split("\n")[2:] == Path("resumed").read_text().split("\n")[-len(
        Path("straight").read_text().split("\n")[2:]):], "the resumed run differs")
    run("one", "--steps=2", "--resume=ckpt", "--digest=d2", "--save=whole")
    check(params("d1") == params("d2"), "parameters change when a checkpoint is read on one rank")
    tensors = header("whole/checkpoint.safetensors")
    check(tensors["head.weight"]["dtype"] == "BF16" and "moment1.head.weight" not in tensors, "head:", tensors.keys())
    check("moment1.blocks.0.attn.q.a" in tensors, "adapters have no states")
    err = run("other", "--steps=3", "--resume=whole", status=1)
    check("--resume-with=frozen" in err and "frozen = " in err, err)
    err = run("other", "--steps=3", "--resume=whole", "--resume-with=frozen")
    check("the optimizer begins anew" in err, err)
    run("one", "--steps=2", "--resume=ckpt", "--export=w.safetensors")
    run("four", "--steps=0", "--init=w.safetensors", "--digest=d3")
    check(params("d1") == params("d3"), "--export and --init change parameters")


def case_memory():
    """Of the frozen weights a rank holds two bytes for each element, in zero3 its shard of them."""
    for sets, shards in ((("schedule.fsdp=none",), 1), (("schedule.mesh.shard=4",), 4),
                         (("schedule.mesh.shard=4", "schedule.fsdp=zero1"), 1)):
        options = [x for s in (*SMALL, *sets) for x in ("--set", s)]
        plan = subprocess.run([HEDDLEC, LORA, *options, "--emit=plan"], capture_output=True, text=True, check=True)
        buffers = re.findall(r"^buffer @(\S*frozen\.\w+) : (\w+)\[(\d+)\]", plan.stdout, re.M)
        masters = {b: int(n) for b, _, n in buffers if b.endswith(".master")}
        buckets = {b: int(n) for b, n in re.findall(r"^bucket @(\S*frozen) : bf16\[(\d+)\]", plan.stdout, re.M)}
        check({t for _, t, _ in buffers} == {"bf16"} and len(masters) == len(buckets) > 2, buffers)
        check(all(masters[b + ".master"] * shards == n for b, n in buckets.items()), masters, buckets)
        check(all(re.search(r"\.(master|next|full\d)$", b) for b, _, _ in buffers), "other buffers:", buffers)


def main():
    with tempfile.TemporaryDirectory() as folder:
        return run_cases(globals(), sys.argv[2:], folder, before=data)


if __name__ == "__main__":
    sys.exit(main())
