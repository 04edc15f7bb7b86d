"""Compiles a model with and without each setting: warnings on stderr, status 0, and equal plans where there is one."""
import re
import subprocess
import sys

BASE = ("layers=2", "dim=32", "heads=2", "vocab=64", "seq=16", "train.batch=2", "train.compute=f32",
        "schedule.recompute=none")


def compiled(sets):
    command = ["heddlec", sys.argv[1], "--target=cuda", "--emit=plan"]
    for s in (*BASE, *sets):
        command += ["--set", s]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (sets, done.stderr)
    return re.sub(r"(?m)^(config @(schedule|train)|seal) .*$|\bsettings = [0-9a-f]+", "", done.stdout), re.findall(r"warning: (.*)", done.stderr)


def check(around, setting, why):
    around = tuple("schedule." + s if not s.startswith("train.") else s for s in around)
    setting = setting if setting.startswith("train.") else "schedule." + setting
    name = setting.split("=")[0]
    plan, said = compiled((*around, setting))
    before, was = compiled(around)
    new = [w for w in said if w not in was]
    assert (plan == before) == bool(why), (around, setting, new)
    if why:
        assert len(new) == 1 and why in new[0], (around, setting, new)
        assert re.match(re.escape(name) + r"( = [a-z0-9]+|: [a-z0-9.]+ \(and 1 more like it\)| [A-Za-z= ]+)? changes nothing: ", new[0]), new
    else:
        assert not new, (around, setting, new)


def check_beyond(around, setting, count):
    """More than there are: a warning names how many there are, and the plan is the one of that number."""
    around = tuple("schedule." + s for s in around)
    plan, said = compiled((*around, f"schedule.{setting}={count}"))
    found = [re.fullmatch(rf"schedule\.{setting} = {count} is more than the (\d+) [a-z ]+: it acts as \1 does", w) for w in said]
    found = [m for m in found if m]
    assert len(found) == 1, (around, setting, said)
    most = int(found[0].group(1))
    as_many, quiet = compiled((*around, f"schedule.{setting}={most}"))
    fewer, _ = compiled((*around, f"schedule.{setting}={most - 1}"))
    assert plan == as_many and not [w for w in quiet if setting in w], (around, setting, most, quiet)
    return plan != fewer


ranks, copies, none = ("mesh.shard=2", "fsdp=zero3"), ("mesh.replicate=2",), "fsdp none divides nothing"
check(copies, "fsdp=zero3", "mesh.shard is 1")
for setting in ("prefetch=2", "live_grads=1", "root=whole", "weights=master", "overlap_micro=off"):
    check(("mesh.shard=2",), "fsdp." + setting, none)
check(ranks, "fsdp.prefetch=0", None)
check((*ranks, "fsdp.unit=none"), "fsdp.prefetch=2", "without a unit")
check((*ranks, "fsdp.unit=none"), "fsdp.live_grads=1", "without a unit")
check((*ranks, "fsdp.unit=none"), "fsdp.root=whole", "without a unit")
check(ranks, "fsdp.weights=master", "no weight is rounded")
check((*ranks, "train.compute=bf16"), "fsdp.weights=master", None)
check(ranks, "fsdp.overlap_micro=off", "accumulate is 1")
check((*ranks, "train.accumulate=2", "train.reduce=last"), "fsdp.overlap_micro=off", "only the last micro-batch")
check((*ranks, "train.accumulate=2"), "fsdp.overlap_micro=off", "with graph step")
check(("mesh.shard=2",), "experts=exchange", "mesh.expert is 1")
check(("mesh.shard=2",), "experts.bound=200", "mesh.expert is 1")
check((), "recompute.slower=0.5", "nothing is recomputed")
check(("recompute=Block.mlp",), "recompute.slower=0.5", "places are listed")
for setting in ("offload.margin=0", "offload.ahead=3", "offload.fraction=0.5", "offload.min_size=1"):
    check((), setting, "lists nothing")
    check(("offload=none",), setting, "is none")
check(("offload=Block", "offload.min_size=0"), "offload.margin=0", None)

check((*ranks, "fsdp.unit=Block"), "fsdp.unit=Block,Attention", None)
check((*ranks, "fsdp.unit=LayerNorm,Attention,Mlp"), "fsdp.unit=LayerNorm,Attention,Mlp,Block", "no parameters that no unit inside")
check(ranks, "fsdp.root=whole", "one piece in any case")
check((*ranks, "fsdp.unit=Block", "train.compute=f32"), "overlap_grads=on", None)

# Places inside of another one of their list, unless a place of another list is between the two.
few = ("offload=Block", "offload.min_size=0")
check(few, "offload=Block,Block.attn", "offloaded with all")
check((*few, "keep=Block.mlp"), "offload=Block,Block.mlp.act", None)
check(("recompute=Block", "keep=Block.mlp"), "keep=Block.mlp,Block.mlp.act", "kept with all")
check(("graph=Block",), "graph=Block,Block.attn", "holds all")
check(("graph=Block.mlp",), "graph=Block.mlp,Block.attn", None)

# Numbers of which there are fewer.
zero3 = (*ranks, "fsdp.unit=Block", "graph=none")
for around, setting, near in (zero3, "fsdp.prefetch", False), (zero3, "fsdp.live_grads", False), (few, "offload.ahead", True):
    assert check_beyond(around, setting, 100) >= near, (around, setting)
check((*few, "offload.margin=0"), "offload.ahead=2", None)

# Of `train`.
check(ranks, "train.reduce=last", "accumulate is 1")
check((*ranks, "train.accumulate=2"), "train.reduce=last", None)
for end in ("floor", "total"):  # the plan names them, and reads neither
    said = compiled(("train.optimizer.lr=constant(1e-3)", f"train.lr.{end}=1"))[1]
    assert f"train.optimizer.lr.{end} changes nothing: the learning rate is constant" in said, said

# On one rank, and of defaults, nothing is said.
for sets in ("fsdp=zero3", "prefetch=3"), ("recompute.slower=0.025",), ("margin=1",):
    assert not compiled(["schedule." + s for s in sets])[1], sets
