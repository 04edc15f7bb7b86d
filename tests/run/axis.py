"""Tests of an axis whose ranks share a model: programs for meshes, their digests beside those of one rank, checkpoints
and weights from mesh to mesh, and mutants of plans. A test has a Bench of its own with `settings(model, mesh)`: the
source of a model, the settings of a program for a mesh; and `without(mesh, schedule)`: the program without the axis
whose plan computes the same.
"""
import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys


PLAINLY = {"schedule.fsdp": "none", "schedule.graph": "none", "schedule.recompute": "none"}


def call(*command, ok=True, **env):
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1", **env))
    if ok and done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def arguments():
    """Of tests whose programs also run on the emulator: --fakes has its libraries, --kept what it has compiled."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("heddlec")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--fakes")
    parser.add_argument("--kept")
    return parser.parse_args()


def finish(bench):
    """Ends a test: how much it has compared, and what was wrong."""
    print(f"{bench.compared} comparisons")
    sys.exit("\n".join(bench.wrong) if bench.wrong else 0)


def ranks(mesh):
    return math.prod(mesh.values())


def readers(mesh):
    """Ranks that read other sequences."""
    return ranks({axis: n for axis, n in mesh.items() if axis != "tensor"})


class Bench:
    def __init__(self, root, heddlec, folder, steps):
        self.root, self.heddlec, self.folder, self.steps, self.made = root, heddlec, folder, steps, {}
        with open(os.path.join(folder, "tokens.bin"), "wb") as f:
            f.write(b"".join(((i * i * 31 + i // 7) % 37).to_bytes(2, "little") for i in range(20000)))

    def compile(self, model, mesh, more, *options):
        key = repr((model, mesh, more, options))
        if key not in self.made:
            output = os.path.join(self.folder, f"p{len(self.made)}")
            source, sets = self.settings(model, mesh)
            sets = {**sets, **{f"schedule.mesh.{axis}": n for axis, n in mesh.items()}, **more}
            call(self.heddlec, source, "-o", output, *(options or ["--target=host"]),
                 *[x for name, v in sets.items() for x in ("--set", f"{name}={v}")])
            self.made[key] = output
        return self.made[key]

    def plan(self, *what):
        with open(self.compile(*what, "--emit=plan")) as f:
            return f.read()

    def run(self, program, mesh, *options, steps=None):
        call(program, f"--data={self.folder}/tokens.bin", f"--steps={self.steps if steps is None else steps}",
             f"--ranks={ranks(mesh)}", f"--digest={program}.digest", *options)
        with open(f"{program}.digest") as f:
            return f.read().splitlines()


def numbers(digest, column):
    return [float.fromhex(line.split()[column]) for line in digest if not line.startswith("param")]


def parameters(digest):
    return [line for line in digest if line.startswith("param")]


def far(a, b, most):
    return len(a) != len(b) or any(not abs(x - y) <= most * abs(y) for x, y in zip(a, b))


def far_from(digest, one):
    """Losses are within 1e-6 of those of one rank, norms within 1e-5."""
    return any(far(numbers(digest, i), numbers(one, i), most) for i, most in ((1, 1e-6), (2, 1e-5)))


def program_of(plan):
    return [text for text in plan.splitlines() if text.startswith("program ")]


def agree(bench, model, mesh, schedules):
    wrong, first = [], None
    one = bench.run(bench.compile(model, {}, PLAINLY), {})
    for schedule in schedules:
        name = f"{model}, {mesh}, {schedule}"
        digest = bench.run(bench.compile(model, mesh, schedule), mesh)
        if first is None:
            first = digest
            if far_from(digest, one):
                wrong.append(f"{name}: {digest[:bench.steps]}, and one rank {one[:bench.steps]}")
        elif digest != first:
            wrong.append(f"{name}: another digest than {schedules[0]}")
    plans = [bench.plan(model, *of) for of in ((mesh, schedules[-1]), bench.without(mesh, schedules[-1]))]
    if program_of(plans[0]) != program_of(plans[1]):
        wrong.append(f"{model}, {mesh}: the plan says that it computes something else than without the axis")
    if len(set(numbers(one, 1))) != bench.steps:
        wrong.append(f"the losses show no training: {one}")
    return wrong


def starts_alike(bench, model, mesh):
    """Initial parameters, which the digest shows where nothing is learnt, are those of one rank."""
    still = {"train.lr": "constant(0.0)", "schedule.fsdp": "zero3"}
    digests, sizes, log = [], set(), os.path.join(bench.folder, "log.jsonl")
    for m in ({}, mesh):
        digests.append(parameters(bench.run(bench.compile(model, m, still), m, f"--log={log}", steps=1)))
        with open(log) as f:
            sizes.add(json.loads(f.readline())["parameters"])
    wrong = [] if digests[0] == digests[1] else [f"{mesh}: initial parameters are not those of one rank"]
    return wrong if len(sizes) == 1 else wrong + [f"{mesh}: the log counts {sizes} parameters"]


def resumes(bench, model, choices):
    """Each choice is a mesh and a strategy; it continues a run of the one before it."""
    wrong, saved = [], os.path.join(bench.folder, "saved")
    programs = [(bench.compile(model, mesh, {"schedule.fsdp": fsdp}), mesh) for mesh, fsdp in choices]
    whole = numbers(bench.run(*programs[0]), 1)
    for i in range(len(choices)):
        j = (i + 1) % len(choices)
        bench.run(*programs[i], f"--save={saved}", steps=2)
        on_others = numbers(bench.run(*programs[j], f"--resume={saved}"), 1)
        if far(on_others, whole[2:], 1e-6):
            wrong.append(f"saved on {choices[i]}, resumed on {choices[j]}: {on_others}, and without a stop {whole}")
        shutil.rmtree(saved)
    return wrong


def exports(bench, model, mesh):
    """Weights that ranks of the axis export are read by one rank and by them, bit for bit."""
    programs = [(bench.compile(model, m, {"schedule.fsdp": "zero3"}), m) for m in ({}, mesh)]
    weights = os.path.join(bench.folder, "weights.safetensors")
    trained = bench.run(*programs[1], f"--export={weights}", steps=2)
    of = [parameters(trained)] + [parameters(bench.run(*p, f"--init={weights}", steps=0)) for p in programs]
    return [] if of[0] == of[1] == of[2] and of[0] else [f"{mesh}: exported weights, read again, are others"]


# --- mutants of a plan: an edit of its text, or of the n-th line that matches

def line(pattern, change, n=0):
    def edit(plan):
        lines, found = plan.split("\n"), 0
        for i, text in enumerate(lines):
            if re.search(pattern, text):
                if found == n:
                    lines[i] = change(text, lines[:i])
                    break
                found += 1
        return "\n".join(lines)
    return edit


def sub(pattern, by, count=1):
    return lambda text, before: re.sub(pattern, by, text, count=count)


def verified(bench, opt, plan):
    """How verify-plan ends on this text."""
    changed = os.path.join(bench.folder, "changed.hir")
    with open(changed, "w") as f:
        f.write(plan)
    return call(opt, "--pass-pipeline=verify-plan", changed, "-o", os.devnull, ok=False)


def mutants_are_refused(bench, opt, plan, mutants):
    wrong = []
    for name, change in {"as it is": lambda p: p, **mutants}.items():
        mutant = change(plan)
        done = verified(bench, opt, mutant)
        if done.returncode not in (0, 1) or (done.returncode == 0) != (name == "as it is"):
            wrong.append(f"mutant '{name}' is accepted, or refused for nothing: {done.stderr[-500:]}")
        if name != "as it is" and mutant == plan:
            wrong.append(f"mutant '{name}' changes nothing")
    return wrong
