#!/usr/bin/env python3
"""State-space duality. Usage: ssd.py ROOT HEDDLEC [CASE...]. Cases as in cases.py.

  written_out  ssd and conv1d against the same by the matrix of all pairs of positions and by shifted copies (ssd.hd),
               losses and norms step by step, with and without documents, by chunks of other lengths
  heads        a mixer (mixer.hd) whose heads are split over two ranks, against one rank; once a rank has one head and
               one group
  hybrid       the loss of examples/hybrid against a forward pass in plain Python, from random weights and from those
               after three steps
  schedules    strategies, graphs, recomputation, offload and numbers of threads: one digest
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

import compiled
import moe
from cases import check, run_cases

STEPS = 3


def build(settings, name="program", file="tests/run/ssd.hd"):
    command = [moe.HEDDLEC, os.path.join(moe.ROOT, file), "-o", name]
    for s in settings:
        command += ["--set", s]
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(r.returncode == 0, "cannot compile:", " ".join(command), r.stdout.decode(errors="replace"))
    return os.path.abspath(name)


def start(program, *args, **env):
    data = compiled.write("data", bytes(97 + (i * 7 + i * i // 11) % 26 for i in range(4000)))
    command = [program, f"--data={data}", "--format=bytes", f"--steps={STEPS}", *args]
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **env})
    check(r.returncode == 0, "failed:", " ".join(command), r.stdout.decode(errors="replace"))


def trained(settings, *args, file="tests/run/ssd.hd"):
    program = build(settings, file=file)
    if os.path.exists("log"):
        os.remove("log")
    start(program, "--log=log", *args)
    return [x for line in compiled.lines_of("log") for x in (line["loss"], line["grad_norm"])]


def case_written_out():
    for packed in (0, 1):
        want = trained([f"packed={packed}", "fused=0"])
        check(len(want) == 2 * STEPS, "steps are missing:", want)
        for chunk in (16, 40) if packed else (7,):
            got = trained([f"packed={packed}", f"chunk={chunk}"])
            off = max(abs(x - y) / abs(y) for x, y in zip(got, want))
            check(off < 2e-5, f"packed {packed}, chunk {chunk}: off by {off}:", got, want)
    check(abs(want[-1] - trained(["packed=0"])[-1]) > 1e-3 * abs(want[-1]), "documents change nothing:", want)


def case_heads():
    for sizes in ([], ["heads=2", "groups=2"]):  # the second: one head and one group a rank
        want, got = (trained(sizes + [f"schedule.mesh.tensor={n}"], f"--ranks={n}", file="tests/run/mixer.hd")
                     for n in (1, 2))
        off = max(abs(x - y) / abs(y) for x, y in zip(got, want))
        check(len(want) == 2 * STEPS and off < 2e-5, f"two ranks, {sizes}: off by {off}:", got, want)


# --- examples/hybrid in plain Python

HYBRID = {"vocab": 24, "dim": 8, "states": 4, "width": 3, "state": 5, "groups": 2, "heads": 2, "kv_heads": 1, "head": 4,
          "hidden": 6, "seq": 11, "chunk": 4}


def silu(v):
    return v / (1 + math.exp(-v))


def recurrence(u, steps, a, b, c, skip, s):
    """Rows y of u [seq][states*width], position by position."""
    out, state = [], [[0.0] * s["state"] for _ in range(s["states"] * s["width"])]
    for x, dt, row_b, row_c in zip(u, steps, b, c):
        y = []
        for i, v in enumerate(x):
            h = i // s["width"]
            group = h // (s["states"] // s["groups"]) * s["state"]
            state[i] = [math.exp(dt[h] * a[h]) * old + dt[h] * v * row_b[group + n] for n, old in enumerate(state[i])]
            y.append(math.fsum(n * m for n, m in zip(state[i], row_c[group:group + s["state"]])) + skip[h] * v)
        out.append(y)
    return out


def mixer(x, w, s):
    inner, more = s["states"] * s["width"], s["groups"] * s["state"]
    rows = moe.linear(x, w("take.weight"), 2 * inner + 2 * more + s["states"])
    wide, taps, bias = inner + 2 * more, w("conv.taps"), w("conv.bias")
    mixed = [[silu(bias[i] + math.fsum(taps[j * wide + i] * rows[t - 3 + j][inner + i] for j in range(4) if t + j >= 3))
              for i in range(wide)] for t in range(len(rows))]
    steps = [[math.log1p(math.exp(v + b - 4.6)) for v, b in zip(row[-s["states"]:], w("step"))] for row in rows]
    a = [-math.exp(v + 1.386) for v in w("rate")]
    y = recurrence([row[:inner] for row in mixed], steps, a, [row[inner:inner + more] for row in mixed],
                   [row[inner + more:] for row in mixed], w("skip"), s)
    y = [[v * silu(z) for v, z in zip(row, gates)] for row, gates in zip(y, rows)]
    part = inner // s["groups"]
    normed = [[v for g in range(s["groups"]) for v in moe.norm([row[g * part:(g + 1) * part]], [1] * part)[0]]
              for row in y]
    return moe.linear([[v * g for v, g in zip(row, w("gate.weight"))] for row in normed], w("give.weight"), s["dim"])


def mixed_by(kind, x, w, s):
    if kind == "M":
        return mixer(x, w, s)
    if kind == "-":
        up = moe.linear(x, w("up.weight"), s["hidden"])
        return moe.linear([[max(v, 0) ** 2 for v in row] for row in up], w("down.weight"), s["dim"])
    q, k, v = (moe.linear(x, w(f"{n}.weight"), s["head"] * s["heads" if n == "q" else "kv_heads"]) for n in "qkv")
    return moe.linear(moe.attention(q, k, v, s["heads"], s["kv_heads"]), w("o.weight"), s["dim"])


def loss_of(pattern, tensors, tokens, s):
    w = {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (_, _, data) in tensors.items()}
    x = [w["embed.weight"][t * s["dim"]:(t + 1) * s["dim"]] for t in tokens[:-1]]
    for i, kind in enumerate(pattern):
        y = mixed_by(kind, moe.norm(x, w[f"layers.{i}.norm.weight"]), lambda name: w[f"layers.{i}.mixer.{name}"], s)
        x = [[a + b for a, b in zip(*rows)] for rows in zip(x, y)]
    logits = moe.linear(moe.norm(x, w["norm.weight"]), w["head_out.weight"], s["vocab"])
    cross = [math.log(math.fsum(map(math.exp, row))) - row[t] for row, t in zip(logits, tokens[1:])]
    return math.fsum(cross) / len(cross)


def case_hybrid():
    pattern = "M*M-"
    program = build([f"{k}={v}" for k, v in HYBRID.items()] + [f"pattern={pattern}", "train.batch=1",
                    "train.precision.compute=f32"], file="examples/hybrid/hybrid.hd")
    tokens = [(7 * i + i // 5) % HYBRID["vocab"] for i in range(HYBRID["seq"] + 1)]
    compiled.write("tokens.bin", compiled.words_of(tokens))
    run = lambda *args: moe.start(program, "--data=tokens.bin", "--val=tokens.bin", *args)
    run("--steps=0", "--export=w.safetensors")
    first, _ = compiled.tensors_of("w.safetensors")
    compiled.write_tensors("v.safetensors", moe.redrawn(first, 3, False))
    losses = []
    for steps in (0, STEPS):
        if os.path.exists("log"):
            os.remove("log")
        run(f"--steps={steps}", "--init=v.safetensors", "--log=log", "--export=after.safetensors")
        with open("log", encoding="utf-8") as f:
            got = [json.loads(line)["val_loss"] for line in f if "val_loss" in line][-1]
        want = loss_of(pattern, compiled.tensors_of("after.safetensors")[0], tokens, HYBRID)
        check(abs(got - want) < 4e-6 * want, f"after {steps} steps: {got!r}, written out {want!r}")
        losses.append(got)
    check(losses[0] - losses[1] > 1e-4, "nothing was learned:", losses)


# ranks, strategy, graph, recompute, offload, threads
CHOICES = {1: (("none", "none", "none", "none", 1), ("none", "step", "Mixer", "none", 3),
               ("none", "Mixer", "none", "Mixer", 2)),
           2: (("none", "step", "none", "none", 1), ("zero3", "unit", "Mixer", "none", 2))}


def digest(ranks, choice):
    strategy, graph, recompute, offload, threads = choice
    sets = ["dim=8", "seq=24", "chunk=9", "packed=1", "train.accumulate=2", f"schedule.mesh.shard={ranks}",
            f"schedule.fsdp={strategy}", "schedule.fsdp.unit=Mixer", f"schedule.graph={graph}",
            f"schedule.recompute={recompute}", f"schedule.offload={offload}"]
    if offload != "none":
        sets += ["schedule.offload.min_size=0", "schedule.offload.margin=0"]
    start(build(sets), f"--ranks={ranks}", "--digest=digest", OMP_NUM_THREADS=str(threads))
    return compiled.read("digest")


def case_schedules():
    for ranks, choices in CHOICES.items():
        found = [digest(ranks, choice) for choice in choices]
        for choice, got in zip(choices, found):
            check(got == found[0], f"{ranks} ranks: {choice} has another digest than {choices[0]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run_cases(globals(), sys.argv[3:], folder))
