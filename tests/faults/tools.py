#!/usr/bin/env python3
"""One fault at a time in the tools: every allocation, open, read, write, rename and other call of short compiles fails
at its n-th call, for every n, once or from then on; reads and writes are also cut short and interrupted. A tool then
ends with 0 and leaves the whole output, or with an error and a message and leaves the old output or a whole one.

usage: tools.py ROOT BIN LIBRARY [--all] [SCENARIO...]

Without --all a fixed part of the points runs, the same at every call. interpose.c makes the faults.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import points

ROOT, BIN, LIBRARY = (os.path.abspath(a) for a in sys.argv[1:4])
ALL = "--all" in sys.argv[4:]
CHOSEN = [a for a in sys.argv[4:] if a != "--all"]
MODES = {"read": (":short", ":eintr"), "write": (":short", ":eintr")}
SAMPLE = 24  # of each scenario
OLD = b"\x7fELF old\n"  # what every output holds before: a program, so that another one may replace it

# name: (tool, arguments, output); - is standard output
SCENARIOS = {
    "plan": ("heddlec", "net.hd --emit=plan -o out", "out"),
    "cuda": ("heddlec", "net.hd --target=cuda --emit=cuda -o out", "out"),
    "table": ("heddlec", "net.hd --emit=table", "-"),
    "dump": ("heddle-opt", "tensor.hir --pass-pipeline=cse --print-ir-after=cse --print-ir-dir=. -o out", "00-cse.hir"),
    "passes": ("heddle-opt", "plan.hir --pass-pipeline=verify-plan -o out", "out"),
    "translate": ("heddle-translate", "plan.hir --to=c", "-"),
    "translate_file": ("heddle-translate", "plan.hir --to=c -o out", "out"),
    "help": ("heddlec", "--help", "-"),
    "binary": ("heddlec", "net.hd -o out", "out"),
}


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None


def start(command, folder, more):
    # the C compiler and its children work as always
    env = {k: v for k, v in os.environ.items() if not k.startswith("FAULT")}
    env.update(CC="env -u LD_PRELOAD cc -O0", TMPDIR=folder, **more)
    return subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=600)


class Scenario:
    def __init__(self, name, inputs, work):
        self.name, self.inputs, self.work = name, inputs, os.path.join(work, name)
        tool, args, self.output = SCENARIOS[name]
        self.command = [os.path.join(BIN, tool), *args.split()]
        os.mkdir(self.work)
        folder = self.fresh("reference")
        r = start(self.command, folder, {"LD_PRELOAD": LIBRARY, "FAULT_OUT": os.path.join(self.work, "counts")})
        if r.returncode:
            sys.exit(f"{name} without a fault: exit {r.returncode}\n{r.stderr.decode(errors='replace')}")
        self.whole = self.made(folder, r)
        counts = {}
        for line in read(os.path.join(self.work, "counts")).decode().splitlines():
            what, kind, n = line.split()[:3]
            if what == "count":
                counts[kind] = max(counts.get(kind, 0), int(n))
        self.points = [f"{kind}:{n}{mode}" for kind in sorted(counts) for n in range(1, counts[kind] + 1)
                       for mode in ("", "+") + MODES.get(kind, ())]

    def fresh(self, name):
        folder = os.path.join(self.work, name)
        shutil.copytree(self.inputs, folder)
        return folder

    def made(self, folder, r):
        """The output, without the time that a table ends with."""
        out = r.stdout if self.output == "-" else read(os.path.join(folder, self.output))
        return out and re.sub(rb"^compiled in [0-9.]+ s$", b"", out, flags=re.MULTILINE)

    def judge(self, folder, r):
        made, said = self.made(folder, r), r.stderr.decode(errors="replace")
        if r.returncode not in (0, 1, 2):
            return f"exit {r.returncode}\n{said[-600:]}"
        if r.returncode == 0 and made != self.whole:
            return f"exit 0, and another output\n{said[-600:]}"
        if r.returncode and "error: " not in said:
            return f"exit {r.returncode} without an error\n{said[-600:]}"
        if r.returncode and self.output != "-" and made not in (OLD, self.whole):
            return f"the output is neither the old nor a whole one\n{said[-600:]}"
        return None

    def wrong(self, point):
        """Whether the fault was reached, and what is wrong after a run with it, or None."""
        folder = self.fresh(point.replace(":", "-"))
        fired = os.path.join(self.work, f"fired-{point.replace(':', '-')}")
        try:
            r = start(self.command, folder, {"LD_PRELOAD": LIBRARY, "FAULT": point, "FAULT_OUT": fired})
            problem = self.judge(folder, r)
        except subprocess.TimeoutExpired:
            problem = "the tool hangs"
        shutil.rmtree(folder)
        where = [l.split()[-1] for l in (read(fired) or b"").decode().splitlines() if l.startswith("fired")]
        return bool(where), problem and f"{self.name} {point} ({where[0] if where else 'not reached'}): {problem}"


def prepare(work):
    inputs = os.path.join(work, "inputs")
    os.mkdir(inputs)
    shutil.copy(os.path.join(ROOT, "tests/lit/tools/Inputs/bigram.hd"), os.path.join(inputs, "net.hd"))
    for stage, out in (("ir", "tensor.hir"), ("plan", "plan.hir")):
        subprocess.run([os.path.join(BIN, "heddlec"), "net.hd", f"--emit={stage}", "-o", out], check=True, cwd=inputs)
    for name in ("out", "00-cse.hir"):
        with open(os.path.join(inputs, name), "wb") as f:
            f.write(OLD)
    return inputs


def main():
    with tempfile.TemporaryDirectory() as work:
        inputs = prepare(work)
        scenarios = ((name, Scenario(name, inputs, work)) for name in CHOSEN or SCENARIOS)
        return points.run(scenarios, None if ALL else SAMPLE)


if __name__ == "__main__":
    sys.exit(main())
