#!/usr/bin/env python3
"""A mesh axis is one row: the compiler and the runtime are built from a copy of the sources that differs only
in ir/axes.def, by axes in every order: `test_same`, whose ranks read the same data, before all others, `test_part` and
`test_late`, which split, and `test_pod` of copies. Models train on up to 8 ranks.

usage: mesh.py ROOT HEDDLEC [--all]

All strategies have the same digest there. It is that of HEDDLEC on a mesh with as many ranks along its one axis of that
storage: sums over copies go over all axes of copies at once, and parameters are sharded over all axes that split. In
f32 the losses agree with one rank on the same global batch to a relative 1e-5.

An axis of the same data changes no bit. For every strategy, mesh, number of micro-batches, dropout, recompute and kind
of graphs (--all; else each EVERYth of them) the plan is that without the axis but for the lines that name it, and each
RUNth of these plans runs: its digest is that of HEDDLEC without the axis. A plan that mistakes the axis for one of
other data, in a group of ranks, a bucket, a divisor or a count of sequences, is refused by verify-plan.
"""
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROWS = {"SHARD": ('AXIS(TEST_SAME, "test_same", SAME, COPY, "ranks that do the same work")\n',  # before this row
                  'AXIS(TEST_PART, "test_part", OTHER, SPLIT, "parts of a shard")\n'),          # behind it
        "REPLICATE": ("", 'AXIS(TEST_POD, "test_pod", OTHER, COPY, "copies of the copies")\n'
                          'AXIS(TEST_LATE, "test_late", OTHER, SPLIT, "shards far away")\n')}
STEPS, EVERY, RUN = 3, 97, 4
SETS = ("train.compute=f32", "train.accumulate=2", "train.lr=1e-2", "train.warmup=0", "schedule.fsdp.unit=Wide,Squeeze")


def call(*command, **env):
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, **env))
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def build_with_rows(root, folder):
    """The folder of heddlec and heddle-opt with more axes."""
    copy = os.path.join(folder, "sources")
    skip = shutil.ignore_patterns("build", ".git", "__pycache__", "shared")
    shutil.copytree(root, copy, ignore=skip, symlinks=True)
    axes = os.path.join(copy, "ir/axes.def")
    with open(axes) as f:
        lines = f.readlines()
    with open(axes, "w") as f:
        for line in lines:
            row = line[5:].split(",")[0] if line.startswith("AXIS(") else ""
            before, behind = ROWS.pop(row, ("", ""))
            f.write(before + line + behind)
    assert not ROWS
    build = os.path.join(copy, "build")
    call("cmake", "-G", "Ninja", "-S", copy, "-B", build, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0")
    call("ninja", "-C", build, "-j2", "heddlec", "heddle-opt", "heddle_rt")
    return os.path.join(build, "bin")


def compile_model(heddlec, source, output, sets, *options):
    call(heddlec, source, "-o", output, *options, *[a for name, v in sets.items() for a in ("--set", f"{name}={v}")])


def run(program, folder, ranks):
    digest, log = program + ".digest", program + ".log"
    call(program, f"--data={os.path.join(folder, 'tokens.bin')}", f"--steps={STEPS}", f"--ranks={ranks}",
         f"--val={os.path.join(folder, 'tokens.bin')}", "--val-batches=4", f"--digest={digest}", f"--log={log}",
         OMP_NUM_THREADS="1")
    with open(digest) as f, open(log) as of_steps:
        return f.read().splitlines() + [line for line in of_steps if "val_loss" in line]


def on(mesh):
    return {f"schedule.mesh.{axis}": n for axis, n in mesh.items()}


def count(mesh):
    ranks = 1
    for n in mesh.values():
        ranks *= n
    return ranks


def train(heddlec, root, folder, name, mesh, batch, strategy):
    program = os.path.join(folder, name)
    sets = {**dict(s.split("=", 1) for s in SETS), "train.batch": batch, "schedule.fsdp": strategy, **on(mesh)}
    compile_model(heddlec, os.path.join(root, "tests/run/uneven.hd"), program, sets)
    return run(program, folder, count(mesh))


def losses(digest):
    return [float.fromhex(line.split()[1]) for line in digest[:STEPS]]


def strategies_agree(root, heddlec, more, folder):
    """Digests by name, in groups in which all must be equal; what is wrong."""
    groups = []
    for extra, alike in ((dict(test_pod=2, replicate=2, shard=2), dict(shard=2, replicate=4)),
                         (dict(test_part=2, shard=2, replicate=2), dict(shard=4, replicate=2)),
                         (dict(test_late=2, shard=2, replicate=2), None)):  # other owners, so another order of sums
        group = [(f"{extra} {s}", train(more, root, folder, s, extra, 2, s))
                 for s in ("none", "zero1", "zero2", "zero3") if alike or s in ("none", "zero3")]
        if alike:
            group.append((str(alike), train(heddlec, root, folder, "two", alike, 2, "zero3")))
        groups.append(group)
    one = losses(train(heddlec, root, folder, "one", {}, 16, "none"))
    wrong = [f"{name} has another digest than {group[0][0]}"
             for group in groups for name, d in group if d != group[0][1]]
    wrong += [f"{group[0][0]}, step {i + 1}: loss {a!r}, and {b!r} on one rank" for group in groups
              for i, (a, b) in enumerate(zip(losses(group[0][1]), one)) if not abs(a - b) <= 1e-5 * abs(b)]
    if len(set(one)) != STEPS:
        wrong.append(f"the losses show no training: {one}")
    return wrong


# --- an axis of the same data

MODEL = dict(vocab=40, layers=2, dim=32, heads=4, seq=8)
CHOICES = tuple(itertools.product(
    (dict(), dict(shard=2), dict(replicate=2), dict(shard=2, replicate=2)), ("none", "zero1", "zero2", "zero3"),
    (1, 3), (0, 0.1), ("none", "Block.mlp", "Block"), ("none", "step", "unit", "Block.attn")))


def plain(plan):
    """A plan without what names the axis, and without the seal of its text."""
    plan = re.sub(r"copied = [^]]*], |, test_\w+|test_\w+, ", "", plan)
    return "\n".join(re.sub(r"sizes = [^]]*", "", x) for x in plan.splitlines() if not x.startswith("seal"))


def changes_nothing(root, heddlec, more, folder, every):
    source, wrong = os.path.join(root, "examples/gpt2/gpt2.hd"), []
    for i, (mesh, fsdp, micro, drop, recompute, graph) in enumerate(CHOICES[::every]):
        sets = {**MODEL, "train.batch": 2, "train.accumulate": micro, "drop": drop, "schedule.fsdp": fsdp,
                "schedule.fsdp.unit": "Block", "schedule.recompute": recompute, "schedule.graph": graph, **on(mesh)}
        same, plans, digests = dict(mesh, test_same=2 + i % 2), [], []
        for binary, m in ((heddlec, mesh), (more, same)):
            plan = os.path.join(folder, "plan")
            compile_model(binary, source, plan, {**sets, **on(m)}, "--emit=plan")
            with open(plan) as f:
                plans.append(plain(f.read()))
            if i % RUN == 0:
                compile_model(binary, source, plan + ".run", {**sets, **on(m)})
                digests.append(run(plan + ".run", folder, count(m)))
        name = f"{same}, {fsdp}, accumulate {micro}, dropout {drop}, recompute {recompute}, graph {graph}"
        if plans[0] != plans[1]:
            wrong.append(f"{name}: the axis of the same data changes the plan")
        if digests and digests[0] != digests[1]:
            wrong.append(f"{name}: the axis of the same data changes the digest")
    return wrong


def swapped(text, a, b):
    return re.sub(rf"\b({a}|{b})\b", lambda m: b if m[0] == a else a, text)


def on_lines(what, change):
    return lambda plan: "\n".join(change(x) if x.startswith(what) else x for x in plan.splitlines())


def over(comm, *axes):
    return on_lines(f"comm @comm.{comm}", lambda x: re.sub(r"over = [^]]*", f"over = [{', '.join(axes)}", x))


def times_two(pattern):
    return lambda plan: re.sub(pattern, lambda m: f"{m[1]}{float(m[2]) / 2!r}" if "." in m[2]
                               else f"{m[1]}{2 * int(m[2])}", plan)


MUTANTS = {  # of a plan for 2 ranks along each of test_same, shard and replicate; each mistakes what test_same means
    "reduces over it": over("reduce", "test_same"),
    "gathers over it": over("gather", "test_same"),
    "sums copies over it": over("outer", "test_same"),
    "takes the mean of one loss twice": over("world", "test_same", "shard"),
    "leaves it out of the buckets": on_lines("bucket", lambda x: x.replace("copied = [test_same, ", "copied = [")),
    "splits over it, copies over shard": lambda p: re.sub(
        r"^(?!config).*$", lambda m: swapped(m[0], "test_same", "shard"), p, flags=re.M),
    "splits over it too": on_lines("bucket", lambda x: x.replace("split = [", "split = [test_same, ")),
    "counts its sequences": times_two(r"(\bstride = )(\d+)"),
    "divides the mean loss by it": times_two(r"(const \{value = )(0\.25)\b"),
    "divides the gradients by it": times_two(r"(const \{value = )(0\.125)\b"),
}


def mutants_are_refused(root, more, opt, folder):
    plan, changed, wrong = os.path.join(folder, "plan.hir"), os.path.join(folder, "changed.hir"), []
    mesh = dict(test_same=2, shard=2, replicate=2)
    sets = {**MODEL, "train.batch": 2, "train.accumulate": 2, "drop": 0.1, "schedule.fsdp": "zero3",
            "train.compute": "f32", "schedule.fsdp.unit": "Block", **on(mesh)}
    compile_model(more, os.path.join(root, "examples/gpt2/gpt2.hd"), plan, sets, "--emit=plan")
    with open(plan) as f:
        text = f.read()
    for name, change in {"as it is": lambda p: p, **MUTANTS}.items():
        mutant = change(text)
        with open(changed, "w") as f:
            f.write(mutant)
        done = subprocess.run([opt, "--pass-pipeline=verify-plan", changed, "-o", os.devnull], capture_output=True,
                              text=True)
        if done.returncode not in (0, 1) or (done.returncode == 0) != (name == "as it is"):
            wrong.append(f"mutant '{name}' is accepted, or refused for nothing: {done.stderr[-500:]}")
        if name != "as it is" and mutant.split() == text.split():
            wrong.append(f"mutant '{name}' changes nothing")
    return wrong


def main():
    root, heddlec = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    every = 1 if "--all" in sys.argv else EVERY
    with tempfile.TemporaryDirectory(prefix="heddle-mesh-") as folder:
        with open(os.path.join(folder, "tokens.bin"), "wb") as f:
            f.write(b"".join(((i * i * 31 + i // 7) % 37).to_bytes(2, "little") for i in range(20000)))
        binaries = build_with_rows(root, folder)
        more, opt = os.path.join(binaries, "heddlec"), os.path.join(binaries, "heddle-opt")
        wrong = strategies_agree(root, heddlec, more, folder)
        wrong += changes_nothing(root, heddlec, more, folder, every)
        wrong += mutants_are_refused(root, more, opt, folder)
    print("\n".join(wrong) or "ok")
    return len(wrong) > 0


sys.exit(main())
