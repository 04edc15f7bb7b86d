#!/usr/bin/env python3
"""usage: update.py DATA HEDDLEC HEDDLEC...: on a GPU, the time of a step's update of GPT-2 124M by programs of several
builds, such as the one before an optimizer became a kernel of pointwise ops, in turns."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS, STEPS = 3, 20


def milliseconds(program, data, trace):
    subprocess.run([program, f"--data={data}", f"--steps={STEPS}", f"--profile={trace}"], check=True,
                   capture_output=True)
    events = json.loads(trace.read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    return sum(e["dur"] for e in events if e.get("name") in ("adamw", "update")) / 1e3


def main():
    data, builds = sys.argv[1], sys.argv[2:]
    model = Path(__file__).parents[2] / "examples/gpt2/gpt2.hd"
    with tempfile.TemporaryDirectory() as name:
        for i, heddlec in enumerate(builds):
            subprocess.run([heddlec, model, "--target=cuda", "-o", f"{name}/{i}"], check=True)
        for _ in range(ROUNDS):
            times = [milliseconds(f"{name}/{i}", data, Path(name) / "trace.json") for i in range(len(builds))]
            print("  ".join(f"{t:.4f} ms" for t in times), flush=True)


if __name__ == "__main__":
    sys.exit(main())
