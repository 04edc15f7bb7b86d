#!/usr/bin/env python3
"""Loss curves of several programs on the same real text: does a recipe train as bf16 does?

usage: curves.py [--vocab=16384] [--steps=2000] [--seeds=1] [--work=FOLDER] TEXT OUT PROGRAM...

TEXT, a file of some 30 MB, becomes tokens by a byte-level BPE of the package `tokenizers` that is trained on it, in
FOLDER, once; each twentieth piece of 20,000 characters is for validation. Every PROGRAM trains on the others and writes
OUT/NAME.jsonl. A table is printed: validation loss at each quarter, and the last one against that of the first program.
With --seeds=N each program trains from N seeds, all programs from one seed before the next, and rows with means and the
standard deviation of the last loss follow. Exit status 1: a program failed, or its last validation loss, with several
seeds its mean, differs by more than 1 %.
"""
import argparse
import array
import json
import pathlib
import statistics
import subprocess
import sys

PIECE, EVERY, HELD = 20000, 20, 7
MOST = 0.01


def tokens(text, folder, vocab):
    """Writes FOLDER/train.bin and FOLDER/val.bin, raw u16."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    characters = text.read_text(errors="ignore")
    pieces = [characters[i:i + PIECE] for i in range(0, len(characters), PIECE)]
    t.train_from_iterator(pieces[::3], trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    parts = {"train": array.array("H"), "val": array.array("H")}
    for n, piece in enumerate(t.encode_batch(pieces)):
        parts["val" if n % EVERY == HELD else "train"].extend(piece.ids)
    folder.mkdir(parents=True, exist_ok=True)
    for name, ids in parts.items():
        with open(folder / f"{name}.bin", "wb") as f:
            ids.tofile(f)
        print(f"{name}: {len(ids)} tokens")


def curve(program, folder, out, steps, seed):
    """Validation losses, or None after saying what the program said. A seed of 0: the one of the program's text."""
    log = out / (f"{program.name}.{seed}.jsonl" if seed else f"{program.name}.jsonl")
    log.unlink(missing_ok=True)
    done = subprocess.run([program.absolute(), f"--data={folder}/train.bin", f"--val={folder}/val.bin", "--format=u16",
                           "--val-batches=40", f"--val-every={max(1, steps // 4)}", f"--steps={steps}", f"--log={log}",
                           *([f"--seed={seed}"] if seed else [])],
                          capture_output=True, text=True)
    if done.returncode:
        print(f"{program.name}: status {done.returncode}\n{done.stderr[-2000:]}")
        return None
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [x["val_loss"] for x in lines if "val_loss" in x]


def row(name, losses, first):
    off = f"{100 * (losses[-1] / first - 1):+.2f} %" if first else "-"
    print(f"| {name} | " + " | ".join(f"{x:.4f}" for x in losses) + f" | {off} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("curves"))
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("programs", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if not (args.work / "val.bin").exists():
        tokens(args.text, args.work, args.vocab)
    wrong, runs = 0, {program: [] for program in args.programs}
    for seed in range(1, args.seeds + 1) if args.seeds > 1 else [0]:
        for program in args.programs:
            losses = curve(program, args.work, args.out, args.steps, seed)
            wrong += not losses
            if losses:
                runs[program].append(losses)
                first = runs[args.programs[0]]
                row(f"{program.name}, seed {seed}" if seed else program.name, losses, first[-1][-1] if first else None)
    first = None
    for program, seeds in runs.items():
        if not seeds:
            continue
        means = [statistics.mean(x) for x in zip(*seeds)]
        first = first or means[-1]
        wrong += abs(means[-1] / first - 1) > MOST
        if len(seeds) > 1:
            last = statistics.stdev(x[-1] for x in seeds)
            row(f"{program.name}, mean of {len(seeds)}, deviation {100 * last / means[-1]:.2f} %", means, first)
    return 1 if wrong else 0


sys.exit(main())
