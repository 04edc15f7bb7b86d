#!/usr/bin/env python3
"""A mesh axis is one row: the compiler and the runtime are built from a copy of the sources that differs only
in ir/axes.def, by axes `test_pod` of copies and `test_part` that splits, and a model trains on 2 x 2 x 2 ranks.

usage: mesh.py ROOT HEDDLEC

All strategies have the same digest there. It is that of HEDDLEC on a mesh with as many ranks along its one axis of that
rule: sums over copies go over all axes of copies at once, and parameters are dealt out over all axes that split. In f32
the losses agree with one rank on the same global batch to a relative 1e-5.
"""
import os
import shutil
import subprocess
import sys
import tempfile

ROWS = {"SHARD": 'AXIS(TEST_PART, "test_part", SPLIT, "parts of a shard")\n',  # behind these rows
        "REPLICATE": 'AXIS(TEST_POD, "test_pod", COPY, "copies of the copies")\n'}
STEPS = 3
SETS = ("train.compute=f32", "train.accumulate=2", "train.lr=1e-2", "train.warmup=0", "schedule.fsdp.unit=Wide,Squeeze")


def call(*command, **env):
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, **env))
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def build_with_rows(root, folder):
    """heddlec with two more axes."""
    copy = os.path.join(folder, "sources")
    skip = shutil.ignore_patterns("build", ".git", "__pycache__", "shared")
    shutil.copytree(root, copy, ignore=skip, symlinks=True)
    axes = os.path.join(copy, "ir/axes.def")
    with open(axes) as f:
        lines = f.readlines()
    with open(axes, "w") as f:
        for line in lines:
            f.write(line + ROWS.pop(line[5:].split(",")[0], "") if line.startswith("AXIS(") else line)
    assert not ROWS
    build = os.path.join(copy, "build")
    call("cmake", "-G", "Ninja", "-S", copy, "-B", build, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0")
    call("ninja", "-C", build, "-j2", "heddlec", "heddle_rt")
    return os.path.join(build, "bin/heddlec")


def train(heddlec, root, folder, name, mesh, batch, strategy):
    program, digest = os.path.join(folder, name), os.path.join(folder, name + ".digest")
    ranks = 1
    command = [heddlec, os.path.join(root, "tests/run/uneven.hd"), "-o", program]
    settings = [*SETS, f"train.batch={batch}", f"schedule.fsdp={strategy}"]
    for axis, n in mesh.items():
        settings.append(f"schedule.mesh.{axis}={n}")
        ranks *= n
    for s in settings:
        command += ["--set", s]
    call(*command)
    call(program, f"--data={os.path.join(folder, 'tokens.bin')}", f"--steps={STEPS}", f"--ranks={ranks}",
         f"--digest={digest}", OMP_NUM_THREADS="1")
    with open(digest) as f:
        return f.read().splitlines()


def losses(digest):
    return [float.fromhex(line.split()[1]) for line in digest[:STEPS]]


def main():
    root, heddlec = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="heddle-mesh-") as folder:
        with open(os.path.join(folder, "tokens.bin"), "wb") as f:
            f.write(b"".join(((i * i * 31 + i // 7) % 37).to_bytes(2, "little") for i in range(20000)))
        more = build_with_rows(root, folder)
        groups = []  # (name, digest); all in a group must be equal
        for extra, alike in ((dict(test_pod=2, replicate=2, shard=2), dict(shard=2, replicate=4)),
                             (dict(test_part=2, shard=2, replicate=2), dict(shard=4, replicate=2))):
            group = [(f"{extra} {s}", train(more, root, folder, s, extra, 2, s))
                     for s in ("none", "zero1", "zero2", "zero3")]
            group.append((str(alike), train(heddlec, root, folder, "two", alike, 2, "zero3")))
            groups.append(group)
        one = losses(train(heddlec, root, folder, "one", {}, 16, "none"))
    wrong = [f"{name} has another digest than {group[0][0]}"
             for group in groups for name, d in group if d != group[0][1]]
    wrong += [f"{group[0][0]}, step {i + 1}: loss {a!r}, and {b!r} on one rank" for group in groups
              for i, (a, b) in enumerate(zip(losses(group[0][1]), one)) if not abs(a - b) <= 1e-5 * abs(b)]
    if len(set(one)) != STEPS:
        wrong.append(f"the losses show no training: {one}")
    print("\n".join(wrong) or "ok")
    return len(wrong) > 0


sys.exit(main())
