#!/usr/bin/env python3
"""Numbers at the ends of what a program can hold: -1, 0, and around 2^31, 2^32, 2^63 and 2^64, for every argument and
setting of the examples, every option of the tools and of a compiled program that takes a number, and the numbers of IR.
None ends a tool by a signal or an internal error, and nothing that is printed holds a number beyond 2^60, or far below
0, that was not given: it would be a difference or a product that wrapped around.
Usage: numbers.py ROOT BIN [part of a command...]. HEDDLE_TEST_PART=N takes each seventh command."""
import os
import re
import subprocess
import sys
import tempfile

import part

VALUES = [-(1 << 63), -(1 << 31), -1, 0, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 60, (1 << 63) - 1, 1 << 63, 1 << 64]
MULTIPLE = 4096
LIMITS = ["--max-memory=1GiB"]
BEYOND, BELOW = 1 << 60, -(1 << 30)
LIMIT = (1 << 63) - 1  # of an option that takes any number: its error says so
EXAMPLES = ("tiny", "gpt2", "llama", "llama3")
NUMBER = re.compile(r"(?<![\w.+])-?\d+(?![\w.]|\.\d)")
wrong, runs = 0, 0


def say(text):
    global wrong
    wrong += 1
    print(text, flush=True)


def run(command, given, more=None):
    """`given`: the numbers that were typed."""
    global runs
    runs += 1
    shown = " ".join(command)
    only = sys.argv[3:]
    if part.number() not in (None, runs % part.PARTS):
        return
    if only and not any(o in shown for o in only):
        return
    try:
        r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                           timeout=600, env=dict(os.environ, **(more or {})))
    except subprocess.TimeoutExpired:
        say(f"{shown}: it does not end")
        return
    text = (r.stdout + r.stderr).decode("utf-8", "replace")
    said = " ".join(text.split())[:400]
    if r.returncode not in (0, 1, 2):
        say(f"{shown}: status {r.returncode}: {said}")
    if "internal error" in text or "runtime error" in text or "Sanitizer" in text:
        say(f"{shown}: {said}")
    if r.returncode and not re.search(r"error: .*\w", text):
        say(f"{shown}: status {r.returncode} and no error: {said}")
    for m in NUMBER.finditer(text):
        v = int(m.group())
        line = text[text.rfind("\n", 0, m.start()) + 1 : m.end()]
        if BELOW <= v <= BEYOND or v == LIMIT and line.endswith(f"whole number from 0 to {LIMIT}"):
            continue
        # what was typed, and small multiples, as the examples have `4*dim`; work is counted in floating point
        if any(g and v % g == 0 and abs(v // g) <= MULTIPLE for g in given) or "flops" in line:
            continue
        say(f"{shown}: prints {m.group()}: ...{text[max(0, m.start() - 120) : m.end() + 60]!r}")
        break


def arguments(path):
    text = open(path).read()
    head = re.search(r"\bmodel\s+\w+\s*\(([^)]*)\)", text).group(1)
    return re.findall(r"(\w+)\s*=", head)


def settings(root):
    """The settings that take a number, and one that takes a pair or a call of numbers as it is written."""
    text = open(os.path.join(root, "frontend/settings/settings.def")).read()
    for path, kind in re.findall(r'^SETTING\("([^"]+)",\s*(\w+)', text, re.M):
        if kind in ("INT", "FLOAT"):
            yield path, "{}"
        elif kind == "PAIR":
            yield path, "0.9,{}"
            yield path, "{},0.9"
        elif kind == "RATE":
            for call in ("{}", "constant({})", "cosine(1, total={})", "linear(1, warmup={}, total={})"):
                yield path, call
    for axis in re.findall(r'^AXIS\(\w+,\s*"(\w+)"', open(os.path.join(root, "ir/axes.def")).read(), re.M):
        yield f"schedule.mesh.{axis}", "{}"


def models(root, heddlec):
    for example in EXAMPLES:
        path = os.path.join(root, "examples", example, f"{example}.hd")
        small = [(a, "{}") for a in arguments(path)]
        every = small + list(settings(root)) if example == "tiny" else small
        for key, form in every:
            for v in VALUES:
                for emit, target in (("table", "cuda"), ("report", "host")):
                    if (example != "tiny" or key.startswith("schedule")) and emit == "report":
                        continue
                    run([heddlec, path, f"--emit={emit}", f"--target={target}", *LIMITS, "--set",
                         f"{key}={form.format(v, v)}"], [v])


def options_of(tool):
    """Those that take a number or a size, from the tool's own help."""
    text = subprocess.run([tool, "--help"], stdout=subprocess.PIPE, universal_newlines=True).stdout
    return sorted(set(re.findall(r"^\s+(?:-\w, )?(--[\w-]+)(?:=|\[=)(?:N|SIZE|SECONDS|K|STEPS)\b", text, re.M)))


def tools(root, bin):
    tiny = os.path.join(root, "examples/tiny/tiny.hd")
    subprocess.run([os.path.join(bin, "heddlec"), tiny, "--emit=plan", "-o", "tiny.hir"], check=True)
    for tool, args in (("heddlec", [tiny, "--emit=table"]), ("heddle-opt", ["tiny.hir"]),
                       ("heddle-translate", ["tiny.hir", "--to=c"])):
        tool = os.path.join(bin, tool)
        found = options_of(tool)
        if not found:
            say(f"{tool}: --help names no option that takes a number")
        for option in found:
            for v in VALUES:
                for unit in ("", "GiB") if v > 0 else ("",):
                    run([tool, *args, f"{option}={v}{unit}"], [v, v << 30])


def programs(root, bin):
    """Data is not there, so that no run is long: options are read before it."""
    tiny = os.path.join(root, "examples/tiny/tiny.hd")
    subprocess.run([os.path.join(bin, "heddlec"), tiny, "-o", "tiny", "--set", "layers=1"], check=True)
    found = options_of("./tiny")
    if len(found) < 4:
        say(f"tiny: --help names few options that take a number: {found}")
    for option in found:
        for v in VALUES:
            run(["./tiny", "--data=missing", f"{option}={v}"], [v])
    for name in ("HEDDLE_CONNECT_SECONDS", "HEDDLE_SILENCE_SECONDS", "HEDDLE_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                 "MASTER_PORT", "OMP_NUM_THREADS"):
        for v in VALUES:
            run(["./tiny", "--data=missing"], [v], {name: str(v)})


def texts(bin):
    """Each number of a plan, of an attribute that takes a number, becomes another."""
    opt = os.path.join(bin, "heddle-opt")
    plan = open("tiny.hir").read()
    seen = set()
    for m in re.finditer(r"\b(\w+) = (-?\d+)\b", plan):
        if m.group(1) in seen:
            continue
        seen.add(m.group(1))
        for v in VALUES:
            with open("other.hir", "w") as f:
                f.write(plan[: m.start(2)] + str(v) + plan[m.end(2) :])
            run([opt, "other.hir", "--pass-pipeline=verify-plan", "-o", "/dev/null", *LIMITS], [v])
    for old, new in (("f32[128]", "f32[{}]"), ("f32[16,128,128]", "f32[16,{},128]"), ("@0x", "@{} // @0x")):
        for v in VALUES:
            with open("other.hir", "w") as f:
                f.write(plan.replace(old, new.format(v), 1))
            run([opt, "other.hir", "--pass-pipeline=verify-plan", "-o", "/dev/null", *LIMITS], [v])


def main():
    root, bin = (os.path.abspath(p) for p in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        tools(root, bin)
        programs(root, bin)
        texts(bin)
        models(root, os.path.join(bin, "heddlec"))
        os.chdir("/")
    print(f"{runs} runs, of which {part.told()}, {wrong} wrong")
    if wrong:
        print("once more:", part.repeat())
    return 1 if wrong else 0


sys.exit(main())
