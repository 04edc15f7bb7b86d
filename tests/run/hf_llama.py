#!/usr/bin/env python3
"""examples/llama3 against LlamaForCausalLM of transformers, in both directions, on small models with random weights.
Usage: hf_llama.py ROOT HEDDLEC. Needs torch, transformers and safetensors; without them it says so and exits with 77.

For tied and untied embeddings: a model that transformers wrote, as one file and in shards, gives the same loss here
(1e-6 in f32); what is exported loads there with equal bits and equal logits; and 50 steps of training follow PyTorch's
own autograd and AdamW from the same weights (f32: 1e-4, bf16: 1e-2).
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

VOCAB, LAYERS, DIM, HEADS, KV, HIDDEN, SEQ, WINDOWS, STEPS = 300, 3, 64, 8, 2, 160, 48, 8, 50
THETA, FACTOR, ORIGINAL, LR = 10000.0, 8.0, 64, 1e-3


def config(tied):
    scaling = {"rope_type": "llama3", "factor": FACTOR, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": ORIGINAL}
    return LlamaConfig(vocab_size=VOCAB, hidden_size=DIM, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
                       num_attention_heads=HEADS, num_key_value_heads=KV, rms_norm_eps=1e-5, rope_theta=THETA,
                       rope_scaling=scaling, tie_word_embeddings=tied, max_position_embeddings=4 * SEQ,
                       attn_implementation="eager")


def run(*args):
    r = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if r.returncode:
        sys.exit(f"{' '.join(map(str, args))}\nexit {r.returncode}\n{r.stdout.decode(errors='replace')}")


def compiled(root, heddlec, folder, tied, compute):
    sizes = dict(vocab=VOCAB, layers=LAYERS, dim=DIM, heads=HEADS, kv_heads=KV, hidden=HIDDEN, seq=SEQ, theta=THETA,
                 factor=FACTOR, original=ORIGINAL, tied=int(tied))
    sizes.update({"train.batch": WINDOWS, "train.precision.compute": compute, "train.lr": f"constant({LR})"})
    path = os.path.join(folder, f"llama3-{int(tied)}-{compute}")
    run(heddlec, os.path.join(root, "examples/llama3/llama3.hd"), "-o", path,
        *[x for k, v in sizes.items() for x in ("--set", f"{k}={v}")])
    return path


def lines(path, key):
    with open(path) as f:
        return [v[key] for v in map(json.loads, f) if key in v]


def loss_of(model, x, y, dtype=None):
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        logits = model(x).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def torch_losses(model, x, y, steps, dtype=None):
    """Steps of PyTorch: decay for matrices alone, clipping to 1; every step sees all windows."""
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer, losses = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, x, y, dtype)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def expect(what, got, bound):
    print(f"{what}: {got:.3g} (bound {bound:g})")
    if not got <= bound:
        sys.exit(f"{what}: {got} is above {bound}")


def compare(root, heddlec, folder, tied):
    torch.manual_seed(7)
    model, name = LlamaForCausalLM(config(tied)).float().eval(), "tied" if tied else "untied"
    tokens = torch.randint(VOCAB, (WINDOWS * SEQ + 1,))
    at, data = lambda *names: os.path.join(folder, name, *names), os.path.join(folder, "tokens.bin")
    with open(data, "wb") as f:
        f.write(struct.pack(f"<{len(tokens)}I", *tokens.tolist()))
    x, y = tokens[:-1].view(WINDOWS, SEQ), tokens[1:].view(WINDOWS, SEQ)
    model.save_pretrained(at("one"))
    model.save_pretrained(at("shards"), max_shard_size="100KB")
    program = compiled(root, heddlec, folder, tied, "f32")
    with torch.no_grad():
        want, logits = loss_of(model, x, y).item(), model(x).logits
    for form in ("one", "shards"):
        export = at("export-" + form)
        os.makedirs(export)
        run(program, "--steps=0", f"--init={at(form)}", f"--val={data}", "--format=u32", f"--log={export}/log",
            f"--export={export}/model.safetensors")
        expect(f"{name}, {form}: loss {want:.7f}, relative difference",
               abs(lines(f"{export}/log", "val_loss")[-1] - want) / want, 1e-6)
        model.config.save_pretrained(export)
        back = LlamaForCausalLM.from_pretrained(export, attn_implementation="eager").float().eval()
        ours, theirs = load_file(f"{export}/model.safetensors"), model.state_dict()
        unequal = [n for n, t in ours.items() if not torch.equal(t, theirs[n])]
        expect(f"{name}, {form}: tensors that differ of {len(ours)}", len(unequal), 0)
        with torch.no_grad():
            expect(f"{name}, {form}: largest difference of logits", (back(x).logits - logits).abs().max().item(), 0)
    for compute, dtype, bound in (("f32", None, 1e-4), ("bf16", torch.bfloat16, 1e-2)):
        log = at(f"log-{compute}")
        run(compiled(root, heddlec, folder, tied, compute), f"--steps={STEPS}", f"--init={at('one')}", f"--data={data}",
            "--format=u32", f"--log={log}")
        again = LlamaForCausalLM.from_pretrained(at("one"), attn_implementation="eager").float().train()
        pairs = list(zip(lines(log, "loss"), torch_losses(again, x, y, STEPS, dtype)))
        print(f"{name}, {compute}: PyTorch's loss goes from {pairs[0][1]:.5f} to {pairs[-1][1]:.5f}")
        expect(f"{name}, {compute}: {len(pairs)} steps, largest relative difference",
               max(math.inf if len(pairs) != STEPS else abs(a - b) / b for a, b in pairs), bound)


def main():
    root, heddlec = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    torch.set_num_threads(2)
    for tied in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            compare(root, heddlec, folder, tied)


if __name__ == "__main__":
    main()
