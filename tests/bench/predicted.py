#!/usr/bin/env python3
"""The predicted time of a step next to the measured one of RESULTS.md's table "Beside PyTorch".

usage: tests/bench/predicted.py HEDDLEC [--check=RESULTS.md | --bless=RESULTS.md]

Predictions are those of devices/h200.dev, on which that table was measured, for the programs of tests/bench/run.py.
Without an option the table is printed. --bless writes it into the file. --check: exit status 1 where it is another one,
or where a prediction is off by more than BOUND.
"""
import json
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from run import CASES, ROOT  # noqa: E402

BOUND = 0.10
BEGIN, END = "<!-- tests/bench/predicted.py: begin -->\n", "<!-- tests/bench/predicted.py: end -->\n"
HEAD = ("| | predicted ms | measured ms | error | predicted J a GPU | products keep of their rate |\n"
        "| --- | --- | --- | --- | --- | --- |\n")


def predict(heddlec, case):
    _, gpus, batch, seq, source, settings, _ = case
    command = [heddlec, f"{ROOT}/examples/{source}/{source}.hd", "--target=cuda", "--emit=report",
               f"--device-model={ROOT}/devices/h200.dev"]
    for s in settings + [f"train.batch={batch}", f"seq={seq}"] + ([f"schedule.mesh.shard={gpus}"] if gpus > 1 else []):
        command += ["--set", s]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)["predicted"]


def measured(text, name):
    """Milliseconds in our row of that name; None: there is none."""
    row = re.search(rf"^\| {re.escape(name)} \| Heddle \| ([0-9.]+) ", text, re.M)
    return float(row[1]) if row else None


def main():
    heddlec, option = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    how, _, path = option.partition("=")
    text = pathlib.Path(path or ROOT / "tests/bench/RESULTS.md").read_text()
    table, worst = HEAD, 0
    for case in CASES:
        name = case[0] + (f", {case[1]} GPUs" if case[1] > 1 else "")
        ms = measured(text, name)
        if not ms:
            continue
        p = predict(heddlec, case)
        off = 1e3 * p["step_seconds"] / ms - 1
        worst = max(worst, abs(off))
        table += (f"| {name} | {1e3 * p['step_seconds']:.2f} | {ms:.2f} | {100 * off:+.1f} % | "
                  f"{p['joules']:.1f} | {100 * p['power_rate']:.0f} % |\n")
    if not path:
        print(table, end="")
        return 0
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    if how == "--bless":
        pathlib.Path(path).write_text(before + BEGIN + table + END + after)
        return 0
    if old != table:
        print(f"the table in {path} is another one; --bless writes this:\n{table}")
    if worst > BOUND:
        print(f"a prediction is off by {100 * worst:.1f} %")
    return int(old != table or worst > BOUND or table == HEAD)


sys.exit(main())
