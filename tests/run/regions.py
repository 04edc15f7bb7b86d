#!/usr/bin/env python3
"""The number of capture regions depends on the list of places alone, and no region is empty.

usage: regions.py ROOT HEDDLEC [--every=N] [--jobs=2] [--layers=4] [--only=TEXT] [--baseline=HEDDLEC]

Every example is compiled to a plan for the cuda target, with each place of its plan in the list `graph`, each pair of
places, and `unit`: on one rank with `fsdp none` and on four with `zero3`, each with nothing offloaded and with what the
blocks keep, and each with `recompute none` and as the file has it. `--every=N` takes each Nth list. A place without an
action of its own is an error of the compiler, and is counted. Of every plan:

  - verify-plan accepts it, and its report lists no region without an action;
  - every further region of a place and direction says why it is not part of the one before it;
  - it has as many regions with offload as without. Not counted is work that waits to run beside the last reduction:
    whether that pays depends on the memory that it keeps. Where `recompute auto` makes less again since values are
    offloaded instead, there may be fewer: a kernel that makes something again can be between the parts of a place;
  - it takes at most 1 % more device memory than the same schedule with `graph none`.

`--baseline` compares predicted step times with those of another heddlec. Exit status 1: something failed.
"""
import argparse
import collections
import itertools
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

MODELS = dict(tiny=[], gpt2=[], llama=[], llama3=["size=1", "seq=2048", "train.batch=2"])
RANKS = {1: ["schedule.fsdp=none", "schedule.fsdp.unit=Block"],
         4: ["schedule.fsdp=zero3", "schedule.mesh.shard=4", "schedule.fsdp.unit=Block"]}
LAST = "to run beside the last reduction"
OFFLOAD = ("none", "Block")
RECOMPUTE = ("none", "")  # "": as the file has it
MOST = 0.01
SHOWN = 40
Plan = collections.namedtuple("Plan", "model ranks recompute offload graph")


def text(p):
    return f"{p.model}, {p.ranks} ranks, graph {p.graph}, recompute {p.recompute or 'of the file'}, offload {p.offload}"


class Compiler:
    def __init__(self, root, heddlec, layers):
        self.root, self.heddlec, self.layers = root, heddlec, layers

    def run(self, p, emit):
        sets = [f"layers={self.layers}", *MODELS[p.model], *RANKS[p.ranks], f"schedule.graph={p.graph}",
                f"schedule.offload={p.offload}", *([f"schedule.recompute={p.recompute}"] if p.recompute else [])]
        command = [self.heddlec, f"{self.root}/examples/{p.model}/{p.model}.hd", "--target=cuda", "--arch=sm_90",
                   f"--emit={emit}", "-o", "-", *(a for s in sets for a in ("--set", s))]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)

    def report(self, p):
        """The report, or the first error."""
        done = self.run(p, "report")
        if done.returncode:
            return next((l for l in done.stderr.splitlines() if "error" in l), f"exit status {done.returncode}")
        return json.loads(done.stdout)

    def places(self, model):
        """What a list can name: the paths of the plan's actions and of the modules around them, as patterns."""
        with open(f"{self.root}/examples/{model}/{model}.hd") as f:
            name = re.search(r"^model (\w+)", f.read(), re.M)[1]
        found = {}
        for path in re.findall(r"loc\(([\w.]+)", self.run(Plan(model, 1, "", "none", "none"), "plan").stdout):
            parts = path.split(".")
            parts = ["Block", *parts[2:]] if parts[0] == "blocks" else [name, *parts]
            for n in range(2 if parts[0] == name else 1, len(parts) + 1):
                found.setdefault(".".join(parts[:n]))
        found.pop(name + ".root", None)
        return list(found)


def check_one(p, r, none):
    """What is wrong with a plan by itself; `none`: the report of the same schedule without regions."""
    regions, seen = r["capture"]["list"], set()
    for x in regions:
        key = x["function"], x["path"], x["backward"]
        if not x["actions"]:
            yield f"{text(p)}: {x['name']} is empty"
        if (key in seen) != bool(x["cut"]):
            yield f"{text(p)}: {x['name']} has {'no reason' if key in seen else 'a reason, and is the first'}"
        seen.add(key)
    more = r["peak_bytes"] / none["peak_bytes"] - 1
    if more > MOST:
        yield f"{text(p)}: {100 * more:.2f} % more memory than without regions"


def check_pair(p, with_, without):
    waiting = [sum(LAST in (x["cut"] or "") for x in r["capture"]["list"]) for r in (with_, without)]
    n, m = with_["capture"]["regions"] - waiting[0], without["capture"]["regions"] - waiting[1]
    if n > m or (n < m and p.recompute and waiting[0] == waiting[1]):
        yield f"{text(p)}: {n} regions, {m} without offload"


def judge(plans, reports, figures):
    wrong = []
    for p in plans:
        r, none = reports[p], reports[p._replace(graph="none")]
        if isinstance(r, str) and "no action of the plan is there" in r:
            figures["lists with a place that has no action"] += 1
        elif isinstance(r, str) or isinstance(none, str):
            wrong.append(f"{text(p)}: {r if isinstance(r, str) else none}")
        elif p.graph != "none":
            figures["plans"] += 1
            figures["regions"] += r["capture"]["regions"]
            figures["cuts"] += r["capture"]["cuts"]
            figures["most memory"] = max(figures["most memory"], r["peak_bytes"] / none["peak_bytes"] - 1)
            wrong += check_one(p, r, none)
            without = reports[p._replace(offload="none")]
            if p.offload != "none" and not isinstance(without, str):
                figures["compared with offload none"] += 1
                figures["fewer, with less recomputed"] += r["capture"]["regions"] < without["capture"]["regions"]
                wrong += check_pair(p, r, without)
    return wrong


def print_reasons(reports):
    why = collections.Counter(re.sub(r"[\w.*]+ \((\w+)\)", r"some \1", x["cut"]) for r in reports.values()
                              if not isinstance(r, str) for x in r["capture"]["list"] if x["cut"])
    for reason, n in why.most_common():
        print(f"{n:8} cuts: {reason}")


def print_times(reports, others):
    ratios = {p: r["predicted"]["step_seconds"] / others[p]["predicted"]["step_seconds"] for p, r in reports.items()
              if not isinstance(r, str) and not isinstance(others[p], str)}
    worst = sorted(ratios, key=ratios.get)
    print(f"predicted steps take {sum(ratios.values()) / len(ratios):.4f} of the baseline's time")
    for p in (worst[0], worst[-1]):
        print(f"{ratios[p]:8.4f} {text(p)}")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("root")
    a.add_argument("heddlec")
    a.add_argument("--every", type=int, default=1)
    a.add_argument("--jobs", type=int, default=2)
    a.add_argument("--layers", type=int, default=4)
    a.add_argument("--only", default="")
    a.add_argument("--baseline")
    args = a.parse_args()
    compiler, lists = Compiler(args.root, args.heddlec, args.layers), []
    for model in MODELS:
        places = compiler.places(model)
        names = ["unit", *places, *map(",".join, itertools.combinations(places, 2))]
        lists += [(model, graph) for graph in names if args.only in f"{model} {graph}"]
    if not lists:
        return print(f"no list has '{args.only}'") or 1
    lists = [(m, "none") for m in MODELS] + lists[::args.every]
    plans = [Plan(m, ranks, again, offload, graph) for m, graph in lists for ranks in RANKS for again in RECOMPUTE
             for offload in OFFLOAD]
    with ThreadPoolExecutor(args.jobs) as pool:
        reports = dict(zip(plans, pool.map(compiler.report, plans)))
        if args.baseline:
            others = Compiler(args.root, args.baseline, args.layers)
            print_times(reports, dict(zip(plans, pool.map(others.report, plans))))
    figures = collections.Counter()
    wrong = judge(plans, reports, figures)
    print_reasons(reports)
    for w in wrong[:SHOWN]:
        print(w)
    print(", ".join(f"{k}: {f'{100 * v:.2f} %' if k == 'most memory' else v}" for k, v in figures.items()))
    print(f"{len(lists) - len(MODELS)} lists, {len(wrong)} wrong")
    return 1 if wrong or not figures["plans"] else 0


if __name__ == "__main__":
    sys.exit(main())
