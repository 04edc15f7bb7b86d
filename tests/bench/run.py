#!/usr/bin/env python3
"""The table of RESULTS.md: our programs and PyTorch's take turns on the GPUs of this machine, each several times.
  tests/bench/run.py --anchors=FOLDER [--gpus=N] [--only=TEXT] [--out=FOLDER] [--heddlec=FILE]
FOLDER of --anchors holds torch_single.py (CASE MODE B T) and torch_fsdp.py (CASE B T AC COMPILE, under torchrun), which
print one line of JSON with ms, peak_alloc_gib and first_step_s. Without --anchors the table is ours alone.

Medians are over the repeats; the spread is the largest less the smallest of them, of the median. Of ours a repeat's
step is the median of its steps after the first ten. `in use` is what nvidia-smi shows, less what it showed before the
start. Before the first repeat each of our programs runs for one step, "the very first", which fills its cache.
"""
import argparse
import array
import json
import os
import pathlib
import random
import re
import shlex
import statistics
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
ZERO3 = ["schedule.fsdp=zero3", "schedule.fsdp.unit=Block", "schedule.prefetch=1", "schedule.recompute=auto"]
MASTER = ZERO3 + ["schedule.fsdp.weights=master"]
ALONE = ["schedule.fsdp=none", "schedule.recompute=auto"]
LLAMA_1B = ["size=1", "train.products=merged"]
CASES = [  # name, GPUs, sequences of a GPU and their length, example, settings, PyTorch's program and its arguments
    ("GPT-2 124M, B=32 T=1024", 1, 32, 1024, "gpt2", [], "torch_single.py gpt2 graph 32 1024"),
    ("GPT-2 124M, B=4 T=1024", 1, 4, 1024, "gpt2", [], "torch_single.py gpt2 graph 4 1024"),
    ("GPT-2 124M, B=1 T=512", 1, 1, 512, "gpt2", [], "torch_single.py gpt2 graph 1 512"),
    ("Llama 1.24B, B=4 T=4096", 1, 4, 4096, "llama3", LLAMA_1B + ALONE, "torch_single.py llama1b compile 4 4096"),
    ("Llama 1.24B, B=4 T=4096, zero3", 2, 4, 4096, "llama3", LLAMA_1B + ZERO3, "torch_fsdp.py llama1b 4 4096 none 1"),
    ("Llama 8B, B=1 T=4096, zero3", 2, 1, 4096, "llama3", ["size=8"] + MASTER, "torch_fsdp.py llama8b 1 4096 none 1"),
    ("GPT-2 1558M, B=16 T=1024, zero3", 2, 16, 1024, "gpt2", ["layers=48", "heads=25", "dim=1600"] + MASTER,
     f"{ROOT}/tests/bench/torch_fsdp2.py --batch=16 --seq=1024"),
    ("Llama 8B, B=1 T=8192, zero3", 8, 1, 8192, "llama3", ["size=8"] + MASTER, "torch_fsdp.py llama8b 1 8192 none 1"),
    ("Llama 8B, B=1 T=8192, zero3, recompute Block", 8, 1, 8192, "llama3",
     ["size=8"] + MASTER + ["schedule.recompute=Block"], "torch_fsdp.py llama8b 1 8192 full 1"),
    ("GPT-2 1558M, B=16 T=1024, zero3", 8, 16, 1024, "gpt2", ["layers=48", "heads=25", "dim=1600"] + MASTER,
     f"{ROOT}/tests/bench/torch_fsdp2.py --batch=16 --seq=1024"),
]
COLUMNS = ("", "", "ms a step", "spread", "tokens/s", "planned or allocated GiB", "in use GiB",
           "first step s (the very first)", "SM MHz", "W a GPU")


class Sampler:
    """Clock, power and memory of the GPUs while something runs; the first sample is taken before it starts."""

    def __init__(self, args, gpus):
        self.args, self.gpus, self.rows, self.end = args, gpus, [], threading.Event()

    def sample(self):
        fields = query(self.args, "clocks.sm,power.draw,memory.used")[: self.gpus]
        self.rows.append([[float(v) for v in line.split(",")] for line in fields])

    def watch(self):
        while not self.end.wait(0.25):
            self.sample()

    def __enter__(self):
        self.sample()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.thread.join()
        self.sample()

    def numbers(self):
        """Medians of clock and power of the samples with the most power (at least half of the largest), peak memory."""
        busy = [gpu for row in self.rows for gpu in row]
        most = max(gpu[1] for gpu in busy)
        busy = [gpu for gpu in busy if gpu[1] >= most / 2]
        used = max(max(gpu[2] for gpu in row) for row in self.rows) - max(gpu[2] for gpu in self.rows[0])
        return dict(clock=statistics.median(g[0] for g in busy), power=statistics.median(g[1] for g in busy),
                    used=used / 1024)


def output(command, env=None):
    r = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       env=dict(os.environ, **(env or {})))
    if r.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexit {r.returncode}\n{r.stdout[-1000:]}{r.stderr[-3000:]}")
    return r.stdout, r.stderr


def query(args, what):
    return output(shlex.split(args.smi) + [f"--query-gpu={what}", "--format=csv,noheader,nounits"])[0].splitlines()


def compile_case(args, case):
    name, gpus, batch, seq, example, settings, _ = case
    program = args.out / re.sub(r"\W+", "-", f"{name} {gpus}")
    sets = settings + [f"train.batch={batch}", f"seq={seq}"] + ([f"schedule.mesh.shard={gpus}"] if gpus > 1 else [])
    command = shlex.split(args.heddlec) + [ROOT / f"examples/{example}/{example}.hd", "--target=cuda", "-o", program]
    table = ROOT / "devices" / (query(args, "name")[0].split()[1].lower() + ".dev")
    if table.exists():
        command.append(f"--device-model={table}")
    for s in sets:
        command += ["--set", s]
    output(command)
    return program


def tokens_file(args):
    path = args.out / "tokens.bin"
    if not path.exists():
        draw = random.Random(0).randrange  # of GPT-2's vocabulary, which Llama's is larger than
        path.write_bytes(array.array("I", (draw(50257) for _ in range(1 << 20))).tobytes())
    return path


def run(args, case, program, steps, log):
    """Seconds to the end of the first step."""
    _, err = output([program, f"--data={tokens_file(args)}", "--format=u32", f"--steps={steps}", f"--log={log}"] +
                    ([f"--ranks={case[1]}"] if case[1] > 1 else []), dict(HEDDLE_TUNE=args.tune))
    return float(re.search(r"first step done ([0-9.]+) s", err).group(1))


def ours(args, case, program):
    _, gpus, batch, seq, *_ = case
    log = args.out / "log.jsonl"
    with Sampler(args, gpus) as sampler:
        first = run(args, case, program, args.steps, log)
    rows = [r for r in map(json.loads, log.read_text().splitlines()) if "loss" in r][10:]
    if not rows:
        sys.exit(f"{program}: --steps={args.steps}: no step is left after the first ten")
    planned = json.loads(output([program, "--report=json"])[0])["peak_bytes"]
    seconds = statistics.median(r["seconds"] for r in rows)
    return dict(sampler.numbers(), ms=1e3 * seconds, first=first, memory=planned / 2**30)


def torchs(args, case):
    _, gpus, *_, words = case
    program, *arguments = words.split()
    command = shlex.split(args.torchrun) + [f"--nproc-per-node={gpus}"] if gpus > 1 else shlex.split(args.python)
    with Sampler(args, gpus) as sampler:
        out, _ = output(command + [args.anchors / program] + arguments)  # an absolute path stays as it is
    r = json.loads(out.strip().splitlines()[-1])
    if "step_ms" in r:
        return dict(sampler.numbers(), ms=r["step_ms"], first=r["first_step_seconds"], memory=r["peak_allocated_gib"])
    return dict(sampler.numbers(), ms=r["ms"], first=r["first_step_s"], memory=r["peak_alloc_gib"])


def row(name, who, case, repeats, beside=None, very_first=None):
    middle = {key: statistics.median(r[key] for r in repeats) for key in repeats[0]}
    ms = [r["ms"] for r in repeats]
    rate = case[1] * case[2] * case[3] / middle["ms"] * 1e3
    ratio = f" ({beside / middle['ms']:.2f} x)" if beside else ""
    spread = 100 * (max(ms) - min(ms)) / middle["ms"]
    cells = [name, who, f"{middle['ms']:.2f}{ratio}", f"{spread:.1f} %", f"{rate:.0f}", f"{middle['memory']:.2f}",
             f"{middle['used']:.2f}", f"{middle['first']:.1f}" + (f" ({very_first:.1f})" if very_first else ""),
             f"{middle['clock']:.0f}", f"{middle['power']:.0f}"]
    return "| " + " | ".join(cells) + " |"


def versions(args, gpus):
    text = [output(shlex.split(args.heddlec) + ["--version"])[0].strip(),
            f"{gpus} x {query(args, 'name')[0].strip()}",
            f"driver {query(args, 'driver_version')[0].strip()}"]
    if args.anchors:
        ask = shlex.split(args.python) + ["-c", "import torch; print('PyTorch', torch.__version__)"]
        text.append(output(ask)[0].strip())
    return ", ".join(text)


def measure(args, case):
    """The lines of a case: ours, and PyTorch's beside it. They take turns."""
    program, mine, others = compile_case(args, case), [], []
    very_first = run(args, case, program, 1, args.out / "log.jsonl")  # compiles kernels, chooses algorithms of products
    for _ in range(args.repeats):
        mine.append(ours(args, case, program))
        if args.anchors:
            others.append(torchs(args, case))
    beside = statistics.median(r["ms"] for r in others) if others else None
    yield row(case[0] + (f", {case[1]} GPUs" if case[1] > 1 else ""), "Heddle", case, mine, beside, very_first)
    if others:
        yield row("", "PyTorch", case, others)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--anchors", type=pathlib.Path)
    p.add_argument("--gpus", type=int, help="as many as are used at most (default: all)")
    p.add_argument("--only", default="", help="cases whose names hold this text")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("/tmp/heddle-bench"))
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--tune", default="load", help="HEDDLE_TUNE of our programs")
    p.add_argument("--heddlec", default=str(ROOT / "build/bin/heddlec"))
    for name, command in (("smi", "nvidia-smi"), ("python", "python3"), ("torchrun", "torchrun")):
        p.add_argument(f"--{name}", default=command, help="the command to use")
    args = p.parse_args()
    gpus = min(len(query(args, "name")), args.gpus or 1 << 20)
    cases = [c for c in CASES if c[1] <= gpus and args.only in c[0]]
    if not cases:
        sys.exit(f"no case for {gpus} GPUs has '{args.only}' in its name")
    args.out.mkdir(parents=True, exist_ok=True)
    print(versions(args, gpus) + f"; {args.repeats} repeats of {args.steps} steps, medians\n")
    print("| " + " | ".join(COLUMNS) + " |\n" + "| --- " * len(COLUMNS) + "|")
    for case in cases:
        for line in measure(args, case):
            print(line, flush=True)


if __name__ == "__main__":
    main()
