#!/usr/bin/env python3
"""Plans of stacks whose layers differ. Usage: hybrid_plans.py ROOT HEDDLEC [CASE...]. Cases as in cases.py.

  ahead  examples/mtp: what all heads share is gathered for each use, at most `prefetch` units before it
  forms  a stack written layer by layer, in groups and by a pattern: one peak, the same gathers, the same losses
  nano   gathered weights of Nemotron-3-Nano, with one unit ahead
  kept   what a layer of Mamba-2 keeps for the backward pass
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import compiled
import moe
import plan_bounds
from cases import check, run_cases

NANO = ("pattern=MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "vocab=131072", "dim=2688", "states=64",
        "width=64", "state=128", "groups=8", "heads=32", "kv_heads=2", "head=128", "experts=128", "active=6",
        "inner=1856", "shared=3712", "seq=4096", "train.batch=1", "schedule.mesh.shard=8", "schedule.fsdp=zero3",
        "schedule.fsdp.prefetch=1")


def emit(file, what, *settings, cuda=False):
    command = [moe.HEDDLEC, file, f"--emit={what}", *(x for s in settings for x in ("--set", s))]
    command += ["--target=cuda"] if cuda else []
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, "cannot compile:", " ".join(command), done.stdout)
    return done.stdout


def example(name):
    return os.path.join(moe.ROOT, f"examples/{name}/{name}.hd")


def case_ahead():
    for prefetch in range(4):
        plan = emit(example("mtp"), "plan", "layers=6", "schedule.fsdp=zero3", "schedule.mesh.shard=8",
                    f"schedule.fsdp.prefetch={prefetch}")
        check(plan_bounds.most(plan, "prefetch") <= prefetch, f"prefetch {prefetch}: units are gathered earlier")
        (step,) = re.findall(r"^func @micro_only\(.*?^}", plan, re.M | re.S)
        gathers = len(re.findall(r"all_gather \{.*into = @micro_only\.embed\.full", step))
        # for the tokens, for logits beside the next head's tokens three times, and for two heads' backward passes
        want = 6 if prefetch == 0 else 5  # the first is made in the step before
        check(gathers == want or prefetch == 3 and 1 <= gathers < want, f"prefetch {prefetch}: {gathers} gathers")


FORMS = {  # a stack of four: members of the model, and what comes after `embed(tokens)`
    "flat": ('a = Layer("M"); b = Layer("-"); c = Layer("M"); d = Layer("-");', "d(c(b(a(x))))"),
    "groups": ("groups = repeat(2) Group;", "groups(x)"),
    "pattern": ('layers = repeat(i < 4) Layer("M-M-"[i]);', "layers(x)")}
MODEL = """model Stack(vocab = 256, dim = 16, seq = 12) {
  module Layer(kind) {
    norm = RMSNorm(dim);
    if kind == "M" { param taps: [3, dim] = normal(0.3); } else { up = Linear(dim, 3*dim); down = Linear(3*dim, dim); }
    fn forward(x) { return x + (kind == "M" ? conv1d(norm(x), taps, silu = true) : down(gelu(up(norm(x))))); }
  }
  module Group { m = Layer("M"); f = Layer("-"); fn forward(x) { return f(m(x)); } }
  embed = Embedding(vocab, dim);
  MEMBERS
  head = Linear(dim, vocab);
  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {
    let x = embed(tokens);
    return cross_entropy(head(STACK), targets);
  }
}
train Stack { batch = 2; optimizer adamw { lr = 1e-2; } }
schedule Stack { mesh { shard = 2; } fsdp zero3 { unit Layer; prefetch = 1; } }
"""


def case_forms():
    found = {}
    data = compiled.write("data", bytes(97 + (i * 7 + i * i // 11) % 26 for i in range(2000)))
    for name, (members, stack) in FORMS.items():
        compiled.write(f"{name}.hd", MODEL.replace("MEMBERS", members).replace("STACK", stack).encode())
        report = json.loads(emit(f"{name}.hd", "report"))
        gathers = [op.split("{")[0] for op in re.findall(r"\[gather\] .*", emit(f"{name}.hd", "plan"))]
        subprocess.run([moe.HEDDLEC, f"{name}.hd", "-o", name], check=True)
        subprocess.run([f"./{name}", "--ranks=2", f"--data={data}", "--format=bytes", "--steps=3", f"--log={name}.log"],
                       check=True, stdout=subprocess.DEVNULL)
        losses = [line["loss"] for line in compiled.lines_of(f"{name}.log")]
        found[name] = report["peak_bytes"], len(gathers), losses
    for name, got in found.items():
        check(len(got[2]) == 3 and got[1] > 8, f"{name}: {got}")
        check(got == found["pattern"], f"{name} is another program than the pattern:", found)


def case_nano():
    report = json.loads(emit(example("hybrid"), "report", *NANO, cuda=True))
    gathered = report["gathered"]
    # a layer of experts and the one beside it
    check(2.7e9 < gathered["in_use_bytes"][1] == gathered["planned_bytes"] <= 2.75e9, "gathered:", gathered)


def case_kept():
    sets = ("vocab=512", "dim=2048", "states=64", "width=64", "state=128", "seq=4096", "train.batch=8")
    reports = [emit(example("hybrid"), "report", f"pattern={'M' * n}", *sets, cuda=True) for n in (4, 6)]
    few, more = (json.loads(text)["classes"]["activations"] for text in reports)
    kept = (more - few) / 2 / (8 * 4096)
    check(30e3 < kept <= 45e3, f"a layer keeps {kept} bytes for each token")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run_cases(globals(), sys.argv[3:], folder))
