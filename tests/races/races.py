#!/usr/bin/env python3
"""Programs of several ranks under the thread sanitizer.

races.py MODE SOURCES BUILD TOOLS; the modes:
matrix    the strategies over meshes: no report, and one digest for each mesh, accumulation and clipping
runs      what else a run does: validation, checkpoints, checks, outputs, bad data, a signal
missing   plans that lack one wait: verify-plan must refuse whatever the sanitizer reports

BUILD is the folder of the flavour `tsan`, whose runtime the programs link, and TOOLS holds heddlec. Streams are delayed
at random (HEDDLE_DELAY), so that an order that holds only by chance does not pass for one that is guaranteed.
"""
import collections
import concurrent.futures
import itertools
import os
import re
import subprocess
import sys
import tempfile
import threading

mode, sources, build, tools = sys.argv[1:5]
model = os.path.join(sources, "tests/races/model.hd")
folder = tempfile.TemporaryDirectory()
environment = dict(os.environ, TSAN_OPTIONS="exitcode=66 history_size=7", HEDDLE_DELAY="200")


def command(*words):
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600, check=False)
    return done.returncode, done.stdout + done.stderr


def path(name):
    return os.path.join(folder.name, name)


def must(what, *words):
    code, text = command(*words)
    if code:
        raise RuntimeError(f"{what}: {' '.join(words)} failed with {code}:\n{text[-4000:]}")
    return text


FLAGS, LINK_FLAGS = (os.environ.get(name, "").split() for name in ("HOST_FLAGS", "LINK_FLAGS"))


def compile_c(program):
    must("cc", os.environ.get("CC", "cc"), "-std=gnu11", *FLAGS, "-I", os.path.join(sources, "runtime"), "-o", program,
         program + ".c", os.path.join(build, "lib/libheddle_rt.a"), *LINK_FLAGS, "-lm", "-lpthread", "-ldl")


def build_model(program, words):
    must("heddlec", os.path.join(tools, "heddlec"), model, "--target=host", "--emit=c", "-o", program + ".c", *words)
    compile_c(program)


def train(program, ranks, *options):
    return command(program, f"--data={path('tokens.txt')}", "--steps=3", f"--ranks={ranks}", *options)


def settings(shard, replicate, strategy, **more):
    keys = {"schedule.mesh.shard": shard, "schedule.mesh.replicate": replicate, "schedule.fsdp": strategy, **more}
    return [w for k, v in keys.items() for w in ("--set", f"{k.replace('__', '.')}={v}")]


# --- the matrix

def cases():
    """(what must agree bit for bit, ranks, settings)"""
    strategies = ["none", "zero1", "zero2", "zero3"]
    orders = [(1, "each"), (3, "each"), (3, "last")]
    for (shard, replicate), strategy, (micro, order) in itertools.product([(2, 1), (4, 1), (2, 2)], strategies, orders):
        choice = settings(shard, replicate, strategy, train__accumulate=micro, train__reduce=order)
        yield (shard, replicate, micro, order, "f32"), shard * replicate, choice
    for prefetch, live, micro in itertools.product([0, 2], [1, 2], [1, 3]):
        choice = settings(2, 1, "zero3", train__accumulate=micro, schedule__prefetch=prefetch,
                          schedule__live_grads=live)
        yield (2, 1, micro, "each", "f32"), 2, choice
    for strategy, micro in itertools.product(["none", "zero3"], [1, 3]):
        choice = settings(2, 1, strategy, train__accumulate=micro, schedule__offload="Block",
                          schedule__offload__margin=0, schedule__offload__min_size=0)
        yield (2, 1, micro, "each", "f32"), 2, choice
    for strategy, micro, live in itertools.product(["zero2", "zero3"], [2, 3], [1, 2]): # micro-batches that overlap
        choice = settings(2, 1, strategy, train__accumulate=micro, schedule__live_grads=live, schedule__graph="none")
        yield (2, 1, micro, "each", "f32"), 2, choice
    for strategy in strategies:
        choice = settings(3, 1, strategy, train__precision__compute="bf16", train__clip=0)
        yield (3, 1, 1, "each", "bf16, no clipping"), 3, choice


def run_case(number, case):
    group, ranks, words = case
    program, digest = path(f"case{number}"), path(f"digest{number}")
    build_model(program, words)
    code, text = train(program, ranks, f"--digest={digest}")
    if code or "ThreadSanitizer" in text:
        raise RuntimeError(f"{' '.join(words)}: exit {code}\n{text[:6000]}")
    with open(digest, "rb") as f:
        return group, f.read(), words


def matrix(pool):
    groups = collections.defaultdict(dict)
    todo = list(cases())
    for group, digest, words in pool.map(run_case, range(len(todo)), todo):
        groups[group].setdefault(digest, []).append(words)
    for group, digests in groups.items():
        if len(digests) != 1:
            examples = [" ".join(w[0]) for w in digests.values()]
            raise RuntimeError(f"{group}: {len(digests)} different results, such as {examples}")
    print(f"{len(todo)} programs, no report; {len(groups)} groups of equal results")


# --- whole runs

def quiet(status, name, *options):
    code, text = command(path(name), *options)
    if code != status or "ThreadSanitizer" in text:
        raise RuntimeError(f"{name} {' '.join(options)}: exit {code}, not {status}\n{text[:6000]}")


def stopped(name, data):
    run = subprocess.Popen([path(name), data, "--steps=1000000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, env=environment)
    limit = threading.Timer(600, run.kill)  # a hang
    limit.start()
    for line in run.stdout:
        if line.startswith("step "):
            run.terminate()
            break
    text, _ = run.communicate()
    limit.cancel()
    if run.returncode != 128 + 15 or "ThreadSanitizer" in text:
        raise RuntimeError(f"{name} stopped by a signal: exit {run.returncode}\n{text[:6000]}")


def runs(_):
    data = f"--data={path('tokens.txt')}"
    for name, words in ("hybrid", settings(2, 2, "zero3")), ("narrow", settings(3, 1, "zero2", vocab=128)):
        build_model(path(name), words)
    quiet(0, "hybrid", data, "--steps=4", f"--val={path('tokens.txt')}", "--val-every=2", f"--save={path('saved')}",
          "--save-every=1", "--keep=2", "--keep-best", "--check",
          f"--profile={path('p.json')}", f"--log={path('log')}", f"--export={path('all.safetensors')}")
    quiet(0, "hybrid", data, "--steps=6", f"--resume={path('saved')}")
    quiet(0, "hybrid", data, "--steps=2", f"--init={path('all.safetensors')}")
    stopped("hybrid", data)
    quiet(1, "narrow", data, "--steps=100") # tokens outside the vocabulary, met by one rank first
    print("no report")


# --- plans that lack a wait

def build_plan(plan, program):
    must("heddle-translate", os.path.join(tools, "heddle-translate"), "--no-verify-plan", "--to=c", plan, "-o",
         program + ".c")
    compile_c(program)


def without(lines, at):
    """One mutant: its name, the verdict of verify-plan and that of the sanitizer."""
    plan, program = path(f"without{at}.hir"), path(f"without{at}")
    with open(plan, "w") as f:
        f.writelines(lines[:at] + lines[at + 1:])
    code, text = command(os.path.join(tools, "heddle-opt"), "--pass-pipeline=verify-plan", plan)
    refused = text if code else ""
    build_plan(plan, program)
    code, text = train(program, 2)
    if code not in (0, 66):
        raise RuntimeError(f"without {lines[at].strip()}: exit {code}\n{text[-3000:]}")
    return lines[at].strip(), refused, "data race" in text


def missing(pool):
    plan = must("heddlec", os.path.join(tools, "heddlec"), model, "--target=host", "--emit=plan",
                *settings(2, 1, "zero3"))
    lines = plan.splitlines(True)
    start = next(i for i, l in enumerate(lines) if l.startswith("func @micro_only"))
    end = next(i for i in range(start, len(lines)) if lines[i].startswith("}"))
    waits = [i for i in range(start, end) if re.search(r"\] wait \{", lines[i])]
    both = refusals = races = 0
    for name, refused, race in pool.map(lambda at: without(lines, at), waits):
        print("refused " if refused else "accepted", "race   " if race else "no race", name)
        if race and not refused:
            raise RuntimeError(f"the sanitizer reports a race in a plan that verify-plan accepts: without {name}")
        both += race and "nothing orders the two: record an event on" in refused
        refusals += bool(refused)
        races += race
    print(f"{len(waits)} waits; without one of them {refusals} plans are refused, {races} race, "
          f"{both} of them with the edge named")
    if both < 10:
        raise RuntimeError("too few plans race with the missing edge named")


def main():
    with open(path("tokens.txt"), "wb") as f:
        f.write(bytes((i * i // 7 + i) % (120 if i < 3000 else 251) for i in range(4000)))
    with concurrent.futures.ThreadPoolExecutor(max_workers=int(os.environ.get("JOBS", "2"))) as pool:
        {"matrix": matrix, "runs": runs, "missing": missing}[mode](pool)


try:
    main()
except (RuntimeError, subprocess.TimeoutExpired) as e:
    print(e, file=sys.stderr)
    sys.exit(1)
