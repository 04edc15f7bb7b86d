#!/usr/bin/env python3
"""What compiling costs: the GPT-3 175B shape through every pass, verify-plan included, within 1 s of one core and 1
GiB; twice the layers at most 2.3 times the time; the number of ranks does not matter.

usage: compile_scale.py HEDDLEC ROOT

Times are processor time, user and system together: the kernel counts their sum exactly, but divides it by sampling, and
a compile has only about ten samples. The best of several runs counts. The cases run in turns, so that a busy machine
slows all of them alike. If they miss a limit, there are more runs, and the best of all counts. Times are only held to
seconds where heddlec is an optimised build: under sanitizers set HEDDLE_SCALE_SLACK=20, say.
"""
import os
import sys

SHAPE = {"heads": 96, "dim": 12288, "seq": 2048, "train.batch": 1, "schedule.fsdp": "zero3"}
CASES = {"96 layers, 1024 ranks": (96, 1024), "48 layers, 1024 ranks": (48, 1024), "96 layers, 8 ranks": (96, 8)}
SECONDS, GIB, GROWTH, NOISE, ROUNDS = 1.0, 1.0, 2.3, 1.25, (10, 40)


def compile_once(heddlec, root, layers, ranks):
    """Seconds and peak GiB of one run."""
    command = [heddlec, f"{root}/examples/gpt2/gpt2.hd", "--target=cuda", "--emit=plan", "-o", os.devnull]
    for key, value in dict(SHAPE, layers=layers, **{"schedule.mesh.shard": ranks}).items():
        command += ["--set", f"{key}={value}"]
    child = os.posix_spawn(heddlec, command, os.environ)
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"{' '.join(command)}: status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / (1 << 20)


def measure(heddlec, root, rounds, best):
    """Adds so many runs of each case to the best so far."""
    for _ in range(rounds):
        for name, (layers, ranks) in CASES.items():
            seconds, gib = compile_once(heddlec, root, layers, ranks)
            old = best.get(name, (seconds, 0.0))
            best[name] = (min(old[0], seconds), max(old[1], gib))


def judge(best, slack):
    wrong = []
    whole, half, few = (best[name] for name in CASES)
    if whole[0] > SECONDS * slack:
        wrong.append(f"the 175B shape takes {whole[0]:.2f} s; at most {SECONDS * slack:g}")
    if slack == 1 and whole[1] > GIB:
        wrong.append(f"the 175B shape takes {whole[1]:.2f} GiB; at most {GIB:g}")
    if whole[0] > GROWTH * half[0]:
        wrong.append(f"twice the layers take {whole[0] / half[0]:.2f} times the time; at most {GROWTH:g}")
    if max(whole[0], few[0]) > NOISE * min(whole[0], few[0]):
        wrong.append(f"1024 ranks take {whole[0]:.3f} s and 8 ranks {few[0]:.3f} s; more than {NOISE:g} times apart")
    return wrong


def main():
    heddlec, root = os.path.abspath(sys.argv[1]), sys.argv[2]
    slack = float(os.environ.get("HEDDLE_SCALE_SLACK", "1"))
    best, wrong = {}, []
    for rounds in ROUNDS:
        measure(heddlec, root, rounds, best)
        wrong = judge(best, slack)
        if not wrong:
            break
    for name, (seconds, gib) in best.items():
        print(f"{name}: {seconds:.4f} s, {gib:.3f} GiB")
    whole, half, _ = best.values()
    print(f"twice the layers: {whole[0] / half[0]:.3f} times the time, {whole[1] / half[1]:.3f} times the memory")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


sys.exit(main())
