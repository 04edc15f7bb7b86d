#!/usr/bin/env python3
"""What compiling costs: the GPT-3 175B shape through every pass, verify-plan included, in at most 200 million blocks of
work (a second of one core does some 600 million) and 1 GiB; twice the layers at most 2.3 times the work; the number of
ranks does not matter. With tensor 8 x shard 128 and the report it takes at most 350 million.

usage: compile_scale.py COUNT_HEDDLEC HEDDLEC ROOT

COUNT_HEDDLEC is heddlec compiled so that it counts its work (count.c): the machine and its load do not matter. Memory
is that of HEDDLEC itself.
"""
import os
import sys
import tempfile

SHAPE = {"heads": 96, "dim": 12288, "seq": 2048, "train.batch": 1, "schedule.fsdp": "zero3"}
CASES = {"96 layers, 1024 ranks": (96, 1024), "48 layers, 1024 ranks": (48, 1024), "96 layers, 8 ranks": (96, 8)}
TENSOR = {"packed": 0, "schedule.mesh.tensor": 8}
WORK, GIB, GROWTH, RANKS, SPLIT = 200e6, 1.0, 2.3, 1.3, 350e6


def compile_once(compiler, root, layers, ranks, env=None, emit="plan", more=None):
    """Peak GiB of one run."""
    command = [compiler, f"{root}/examples/gpt2/gpt2.hd", "--target=cuda", f"--emit={emit}", "-o", os.devnull]
    for key, value in dict(SHAPE, layers=layers, **{"schedule.mesh.shard": ranks}, **(more or {})).items():
        command += ["--set", f"{key}={value}"]
    child = os.posix_spawn(compiler, command, dict(os.environ, **(env or {})))
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"{' '.join(command)}: status {status}")
    return usage.ru_maxrss / (1 << 20)


def work_of(counting, root, layers, ranks, **options):
    with tempfile.NamedTemporaryFile("r") as count:
        compile_once(counting, root, layers, ranks, {"HEDDLE_COUNT": count.name}, **options)
        return int(count.read())


def main():
    counting, heddlec, root = map(os.path.abspath, sys.argv[1:4])
    work = [work_of(counting, root, *case) for case in CASES.values()]
    gib = [compile_once(heddlec, root, *case) for case in CASES.values()]
    for name, blocks, most in zip(CASES, work, gib):
        print(f"{name}: {blocks / 1e6:.1f} million blocks, {most:.3f} GiB")
    whole, half, few = work
    print(f"twice the layers: {whole / half:.3f} times the work, {gib[0] / gib[1]:.3f} times the memory")
    split = work_of(counting, root, 96, 128, emit="report", more=TENSOR)
    print(f"96 layers, tensor 8 x shard 128, with its report: {split / 1e6:.1f} million blocks")
    wrong = []
    if split > SPLIT:
        wrong.append(f"tensor 8 x shard 128 takes {split / 1e6:.1f} million blocks; at most {SPLIT / 1e6:g}")
    if whole > WORK:
        wrong.append(f"the 175B shape takes {whole / 1e6:.1f} million blocks; at most {WORK / 1e6:g}")
    if gib[0] > GIB:
        wrong.append(f"the 175B shape takes {gib[0]:.2f} GiB; at most {GIB:g}")
    if whole > GROWTH * half:
        wrong.append(f"twice the layers take {whole / half:.2f} times the work; at most {GROWTH:g}")
    if max(whole, few) > RANKS * min(whole, few):
        wrong.append(f"1024 ranks take {whole / 1e6:.1f} and 8 ranks {few / 1e6:.1f} million blocks: more than "
                     f"{RANKS:g} times apart")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


sys.exit(main())
