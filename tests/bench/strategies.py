#!/usr/bin/env python3
"""The table of strategies in docs/strategies.md, from the reports of the compiler: GPT-2 1558M on 8 ranks, what one
rank holds and receives.

usage: tests/bench/strategies.py HEDDLEC [--check=docs/strategies.md | --bless=docs/strategies.md]

Prints the table; --check compares it with the one in a file, --bless writes it there. It is between the lines BEGIN
and END.
"""
import json
import pathlib
import subprocess
import sys

MODEL = {"layers": 48, "heads": 25, "dim": 1600, "train.batch": 16}
ROWS = (  # what stands in the first column, and what it sets beside MODEL
    ("`none`", {"fsdp": "none"}),
    ("`zero1`", {"fsdp": "zero1"}),
    ("`zero2`", {"fsdp": "zero2"}),
    ("`zero3`", {"fsdp": "zero3"}),
    ("`zero3`, `prefetch = 0`", {"fsdp": "zero3", "prefetch": 0}),
    ("`zero3`, `prefetch = 3`", {"fsdp": "zero3", "prefetch": 3}),
    ("`zero3`, `live_grads = 1`", {"fsdp": "zero3", "live_grads": 1}),
    ("`zero3`, `weights = master`", {"fsdp": "zero3", "weights": "master"}),
    ("`zero3`, `unit Attention, Mlp`", {"fsdp": "zero3", "unit": "Attention,Mlp"}),
    ("the same, `prefetch = 2`", {"fsdp": "zero3", "unit": "Attention,Mlp", "prefetch": 2}),
    ("`zero3`, no unit", {"fsdp": "zero3", "unit": "none"}),
    ("`zero3`, `mesh { shard = 4; replicate = 2; }`", {"fsdp": "zero3", "shard": 4, "replicate": 2}),
    ("`none`, `accumulate = 4`", {"fsdp": "none", "accumulate": 4}),
    ("the same, `reduce = last`", {"fsdp": "none", "accumulate": 4, "reduce": "last"}),
    ("`zero1`, `accumulate = 4`", {"fsdp": "zero1", "accumulate": 4}),
    ("`zero2`, `accumulate = 4`", {"fsdp": "zero2", "accumulate": 4}),
    ("the same, `reduce = last`", {"fsdp": "zero2", "accumulate": 4, "reduce": "last"}),
    ("`zero3`, `accumulate = 4`", {"fsdp": "zero3", "accumulate": 4}),
    ("the same, `reduce = last`", {"fsdp": "zero3", "accumulate": 4, "reduce": "last"}),
)
PATHS = {"fsdp": "schedule.fsdp", "unit": "schedule.fsdp.unit", "prefetch": "schedule.fsdp.prefetch",
         "live_grads": "schedule.fsdp.live_grads",
         "weights": "schedule.fsdp.weights",
         "shard": "schedule.mesh.shard", "replicate": "schedule.mesh.replicate", "accumulate": "train.accumulate",
         "reduce": "train.reduce"}
HEAD = ("| strategy | peak | master weights and optimizer | weights | gradients |"
        " received in a step | of it exposed |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n")
BEGIN, END = "<!-- tests/bench/strategies.py: begin -->\n", "<!-- tests/bench/strategies.py: end -->\n"
GIB = float(1 << 30)


def report(heddlec, root, settings):
    command = [heddlec, f"{root}/examples/gpt2/gpt2.hd", "--target=cuda", "--emit=report"]
    for key, value in {**MODEL, "schedule.mesh.shard": 8, **{PATHS[k]: v for k, v in settings.items()}}.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def row(name, r):
    if not r["verified"]:
        sys.exit(f"{name}: the plan is not verified")
    c, moved = r["classes"], r["collectives"].values()
    gib = [r["peak_bytes"], c["shards"] + c["optimizer"], c["weights"], c["gradients"], sum(m["bytes"] for m in moved),
           sum(m["exposed_bytes"] for m in moved)]
    return f"| {name} | " + " | ".join(f"{bytes_ / GIB:.2f}" for bytes_ in gib) + " |\n"


def main():
    heddlec, option = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    root = pathlib.Path(__file__).resolve().parents[2]
    table = HEAD + "".join(row(name, report(heddlec, root, settings)) for name, settings in ROWS)
    if not option:
        print(table, end="")
        return 0
    how, path = option.split("=", 1)
    text = pathlib.Path(path).read_text()
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    if how == "--bless":
        pathlib.Path(path).write_text(before + BEGIN + table + END + after)
        return 0
    if old == table:
        return 0
    print(f"{path} has another table than the compiler's reports give; run {sys.argv[0]} HEDDLEC --bless={path}")
    print(table, end="")
    return 1


sys.exit(main())
