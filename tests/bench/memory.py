#!/usr/bin/env python3
"""The section "Planned memory" of tests/bench/RESULTS.md: what plans take, from the compiler's own reports.

usage: tests/bench/memory.py HEDDLEC [OTHER_HEDDLEC] [--bless=RESULTS.md]

With a second compiler, of an older commit, the table has its figures too, in the column "before". A setting that the
older one does not know makes its cell a dash.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LLAMA_1B = dict(layers=16, dim=2048, heads=32, kv_heads=8, hidden=8192, theta=500000, vocab=128256, seq=4096)
LLAMA_8B = dict(layers=32, dim=4096, heads=32, kv_heads=8, hidden=14336, theta=500000, vocab=128256)
GPT2_XL = dict(layers=48, heads=25, dim=1600)
UNITS = {"schedule.fsdp": "zero3", "schedule.fsdp.unit": "Block"}
NO_COPIES = {**UNITS, "schedule.fsdp.weights": "master"}
ROWS = (  # name, file, sets, goal in GiB
    ("GPT-2 124M, B=32 T=1024", "gpt2", {"train.batch": 32}, 9.5),
    ("Llama 1.24B (tied), B=4 T=4096", "tied", {**LLAMA_1B, "train.batch": 4}, 31.6),
    ("the same, zero3, 2 ranks", "tied", {**LLAMA_1B, "train.batch": 4, **UNITS, "schedule.mesh.shard": 2}, 27.3),
    ("Llama 8B, B=1 T=4096, zero3, 2 ranks", "llama",
     {**LLAMA_8B, "seq": 4096, "train.batch": 1, **UNITS, "schedule.mesh.shard": 2}, 64.9),
    ("the same, `weights = master`", "llama",
     {**LLAMA_8B, "seq": 4096, "train.batch": 1, **NO_COPIES, "schedule.mesh.shard": 2}, 64.9),
    ("Llama 8B, B=1 T=8192, zero3, 8 ranks", "llama",
     {**LLAMA_8B, "seq": 8192, "train.batch": 1, **UNITS, "schedule.mesh.shard": 8}, 42),
    ("the same, `recompute Block`", "llama",
     {**LLAMA_8B, "seq": 8192, "train.batch": 1, **UNITS, "schedule.mesh.shard": 8, "schedule.recompute": "Block"}, 20),
    ("the same, `recompute Block`, `weights = master`", "llama",
     {**LLAMA_8B, "seq": 8192, "train.batch": 1, **NO_COPIES, "schedule.mesh.shard": 8,
      "schedule.recompute": "Block"}, 20),
    ("GPT-2 1558M, B=16 T=1024, zero3, 2 ranks", "gpt2",
     {**GPT2_XL, "train.batch": 16, **UNITS, "schedule.mesh.shard": 2}, 38.5),
    ("the same, `recompute auto`", "gpt2",
     {**GPT2_XL, "train.batch": 16, **UNITS, "schedule.mesh.shard": 2, "schedule.recompute": "auto"}, 38.5),
    ("the same, `weights = master`", "gpt2",
     {**GPT2_XL, "train.batch": 16, **NO_COPIES, "schedule.mesh.shard": 2, "schedule.recompute": "auto"}, 38.5),
)
BEGIN, END = "<!-- tests/bench/memory.py: begin -->\n", "<!-- tests/bench/memory.py: end -->\n"


def tied(folder):
    """examples/llama with the embedding's matrix as its head."""
    text = (ROOT / "examples/llama/llama.hd").read_text()
    for old, new in (("  head = Linear(dim, vocab, bias = 0);\n", ""),
                     ("head(norm(blocks(tokens_in(tokens))))",
                      "matmul(norm(blocks(tokens_in(tokens))), transpose(tokens_in.weight))")):
        if old not in text:
            sys.exit(f"examples/llama/llama.hd has no '{old.strip()}': change tests/bench/memory.py with it")
        text = text.replace(old, new)
    path = pathlib.Path(folder) / "llama.hd"
    path.write_text(text)
    return path


def peak(heddlec, path, sets):
    command = [heddlec, str(path), "--target=cuda", "--arch=sm_90", "--emit=report"]
    command += [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr
    report = json.loads(done.stdout)
    return (report["peak_bytes"], "") if report["verified"] else (None, "the plan is not verified")


def main():
    compilers = [a for a in sys.argv[1:] if not a.startswith("--")]
    bless = [a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith("--bless=")]
    with tempfile.TemporaryDirectory() as folder:
        files = dict(gpt2=ROOT / "examples/gpt2/gpt2.hd", llama=ROOT / "examples/llama/llama.hd", tied=tied(folder))
        table = "| planned, GiB | before | now | goal |\n| --- | --- | --- | --- |\n"
        for name, file, sets, goal in ROWS:
            now, wrong = peak(compilers[0], files[file], sets)
            if now is None:
                sys.exit(f"{name}: {wrong}")
            older = {"schedule.recompute": "Block.mlp.act", **sets}  # what the examples listed
            before = peak(compilers[1], files[file], older)[0] if len(compilers) > 1 else None
            cells = [f"{bytes_ / 2**30:.2f}" if bytes_ else "-" for bytes_ in (before, now)]
            table += f"| {name} | {cells[0]} | {cells[1]} | {goal} |\n"
    if not bless:
        print(table, end="")
        return
    path = pathlib.Path(bless[0])
    head, rest = path.read_text().split(BEGIN)
    path.write_text(head + BEGIN + table + END + rest.split(END)[1])


main()
