"""Follows what errors propose. Usage: follow.test.py EXAMPLES FOLDER. A model is written to FOLDER."""
import os
import re
import subprocess
import sys

OWN = os.path.join(sys.argv[2], "own.hd")
os.makedirs(sys.argv[2], exist_ok=True)
with open(OWN, "w") as f:
    f.write("""model Own(dim = 16, own = "muon") {
  param w: [dim over tensor, dim] = normal(0.1);  param v: [dim, dim over tensor] = normal(0.1);
  fn loss(x: f32[batch, dim]) { return mean(square(linear(gelu(linear(x, w)), v))); }
}
train Own { precision { compute = bf16; } optimizer { default adamw { betas = 0.9, 0.95; } group w muon { } } }
""")
OWN = (OWN,)
TINY = (sys.argv[1] + "/tiny/tiny.hd", "layers=2", "dim=32", "seq=32", "train.batch=4")
LLAMA = (sys.argv[1] + "/llama3/llama3.hd", "size=1", "layers=2", "dim=256", "vocab=512", "seq=64", "train.batch=1",
         "train.precision.compute=f32")
GPT2 = (sys.argv[1] + "/gpt2/gpt2.hd", "layers=2", "heads=4", "dim=256", "vocab=512", "seq=24", "train.batch=1")
BF16 = "train.precision.compute=bf16"
GRADS = ("train.precision.grad=bf16", "train.precision.reduce=bf16")
MOMENTS = "train.precision.moments=bf16"
FP8 = ("train.precision.fp8=Block", "train.precision.fp8.backward=e4m3", "train.precision.fp8.weight_grads=fp8", BF16)

# a model; what is set for it; what the error says; settings that follow it, each in words with \1 for what it names
ROWS = (
    (TINY, (GRADS[0], BF16), "set both to bf16, or both to f32", GRADS[1], "train.precision.grad=f32"),
    (TINY, GRADS, "grad = bf16 needs compute = bf16", BF16),
    (LLAMA, (*GRADS, BF16, "schedule.mesh.tensor=2"), "set grad and reduce to f32",
     "train.precision.grad=f32 train.precision.reduce=f32"),
    (TINY, ("train.precision.master=bf16",), "master = bf16 needs compute = bf16", BF16),
    (TINY, ("train.precision.master=kahan", BF16, "train.optimizer.betas=0.9,0.95"),
     r"set train\.precision\.moments = bf16, or master = f32", MOMENTS, "train.precision.master=f32"),
    (TINY, ("train.optimizer.ema=0.9", MOMENTS, "train.optimizer.betas=0.9,0.95"),
     "choose moments = f32, or ema = 0", "train.precision.moments=f32", "train.optimizer.ema=0"),
    (TINY, (MOMENTS, "train.optimizer.betas=0.9,0.99"), r"choose train\.optimizer\.betas of at most (\S+), or moments = f32",
     r"train.optimizer.betas=0.9,\1", "train.precision.moments=f32"),
    (TINY, (MOMENTS, "train.optimizer=sgd", "train.optimizer.betas=0.9,0.95", "train.optimizer.momentum=0.99"),
     r"choose train\.optimizer\.momentum of at most (\S+), or", r"train.optimizer.momentum=\1"),
    (TINY, ("schedule.mesh.shard=6", "schedule.mesh.host=4"), "choose ([0-9]+), or ([0-9]+) for one host",
     r"schedule.mesh.host=\1", r"schedule.mesh.host=\2"),
    (LLAMA, ("schedule.mesh.tensor=2", "schedule.mesh.shard=6", "schedule.mesh.host=8"),
     "choose ([0-9]+), or ([0-9]+) for one host", r"schedule.mesh.host=\1", r"schedule.mesh.host=\2"),
    (TINY, ("train.reduce=tree", "train.grains=2", "schedule.mesh.shard=4"), "use at most ([0-9]+), or more grains",
     r"schedule.mesh.shard=\1", "train.grains=4"),
    (TINY, ("train.reduce=tree", "train.grains=8", "schedule.mesh.shard=2"), "set train.accumulate = ([0-9]+)",
     r"train.accumulate=\1"),
    (TINY, ("train.loss_chunks=7",), "give a divisor of 128, or auto", "train.loss_chunks=8", "train.loss_chunks=auto"),
    (GPT2, FP8, r"choose train\.batch and seq so", "seq=32", "train.batch=2"),
    (LLAMA, ("schedule.sequence=on",), r"set schedule\.mesh\.tensor, or sequence = off", "schedule.mesh.tensor=2",
     "schedule.sequence=off"),
    (LLAMA, ("schedule.sequence=on", "schedule.mesh.tensor=2", "seq=63"),
     "take a length that is a multiple, fewer ranks, or sequence = off", "seq=64", "schedule.sequence=off",
     "schedule.mesh.tensor=1 schedule.sequence=off"),
    (LLAMA, ("schedule.mesh.tensor=3",), r"set schedule\.mesh\.tensor to a number that divides it, such as ([0-9]+)",
     r"schedule.mesh.tensor=\1"),
    (LLAMA, ("schedule.mesh.tensor=16",), r"set schedule\.mesh\.tensor to a number that divides them, such as ([0-9]+)",
     r"schedule.mesh.tensor=\1"),
    (LLAMA, ("schedule.mesh.tensor=2", "train.products=merged"), r"set train\.products = separate",
     "train.products=separate"),
    (LLAMA, ("schedule.mesh.tensor=2", "schedule.logits=on"), "with one rank along tensor", "schedule.mesh.tensor=1"),
    (TINY, ("schedule.mesh.tensor=2",), "or take tensor = 1", "schedule.mesh.tensor=1"),
    (TINY, ("schedule.offload=auto",), "compile for the cuda target", "--target=cuda"),
    (OWN, ("train.precision.master=bf16",), "choose master = f32, or another optimizer", "train.precision.master=f32"),
    (OWN, (MOMENTS,), "choose moments = f32, or another optimizer", "train.precision.moments=f32"),
    (OWN, ("schedule.mesh.tensor=2",), r"set schedule\.mesh\.tensor = 1, or", "schedule.mesh.tensor=1"),
    (TINY, ("--max-ops=50",), "allow more with --max-ops=N", "--max-ops=5000"),
)


def compile_(model, settings):
    command = ["heddlec", model[0], "--emit=plan"]
    for s in (*model[1:], *settings):
        command += [s] if s.startswith("--") else ["--set", s]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 1), (command, done.stderr)
    return done.returncode, done.stderr


for model, settings, words, *ways in ROWS:
    status, said = compile_(model, settings)
    found = re.search(words, said)
    assert status == 1 and found, (settings, said)
    for way in ways:
        status, said = compile_(model, (*settings, *found.expand(way).split()))
        assert status == 0, (settings, way, said)
