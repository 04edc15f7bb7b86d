#!/usr/bin/env python3
"""Models of transformers with random weights, through heddlec --from-hf and back.
Usage: python3 -P hf_models.py HEDDLEC [MODEL...]. Needs torch, transformers and safetensors.

For each model: the loss of a validation (f32: 1e-6), 5 steps of training beside PyTorch's own autograd and AdamW (f32:
1e-5), and --export=DIR --as=hf, which from_pretrained loads with no missing and no unexpected key and with the same
logits. --init says no difference from config.json, and one where theta was changed. MODEL `recorded`: the losses that
from_hf.py holds.
"""
import os
import struct
import subprocess
import sys
import tempfile
import types

import torch
import transformers

sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # last: `numbers` is Python's
import from_hf
from hf_llama import LR, expect, lines, loss_of, torch_losses

SEQ, WINDOWS, STEPS = 24, 4, 5
SIZES = dict(vocab_size=300, hidden_size=64, intermediate_size=160, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=96, initializer_range=0.1)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
# without a token for padding, whose row gets no gradient from the lookup in PyTorch: no data here has one
MAMBA = dict(vocab_size=300, hidden_size=64, num_heads=8, head_dim=16, state_size=16, num_hidden_layers=3,
             chunk_size=16, initializer_range=0.1, pad_token_id=None)
GEMMA = dict(head_dim=32, query_pre_attn_scalar=24, sliding_window=8, pad_token_id=None)
MODELS = {
    "gpt2": ("GPT2", dict(vocab_size=300, n_positions=48, n_embd=64, n_layer=3, n_head=4, resid_pdrop=0.0,
                          embd_pdrop=0.0, attn_pdrop=0.0)),
    "gpt2-inner": ("GPT2", dict(vocab_size=300, n_positions=48, n_embd=64, n_layer=2, n_head=4, n_inner=96,
                                activation_function="gelu", layer_norm_epsilon=1e-3, resid_pdrop=0.0, embd_pdrop=0.0,
                                attn_pdrop=0.0)),
    "llama2": ("Llama", dict(SIZES, num_key_value_heads=4)),
    "llama3": ("Llama", dict(SIZES, rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "llama-bias": ("Llama", dict(SIZES, attention_bias=True, rms_norm_eps=1e-3, head_dim=32)),
    "llama-linear": ("Llama", dict(SIZES, rope_parameters=dict(rope_type="linear", rope_theta=100.0, factor=4.0))),
    "mistral": ("Mistral", dict(SIZES, sliding_window=8)),
    "mistral-full": ("Mistral", dict(SIZES, sliding_window=None)),
    "qwen2": ("Qwen2", dict(SIZES, tie_word_embeddings=True)),
    "qwen2-window": ("Qwen2", dict(SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=2)),
    "qwen3": ("Qwen3", dict(SIZES, head_dim=32)),
    "qwen3-bias": ("Qwen3", dict(SIZES, head_dim=16, attention_bias=True, tie_word_embeddings=True)),
    "gemma2": ("Gemma2", dict(SIZES, **GEMMA, attn_logit_softcapping=0.5, final_logit_softcapping=20.0)),
    "gemma2-plain": ("Gemma2", dict(SIZES, **GEMMA, attn_logit_softcapping=None, final_logit_softcapping=20.0)),
    "gemma3": ("Gemma3", dict(SIZES, **GEMMA, num_hidden_layers=7)),
    "gemma3-linear": ("Gemma3", dict(SIZES, **GEMMA, num_hidden_layers=6, rope_parameters={
        "full_attention": dict(rope_type="linear", factor=8.0, rope_theta=10000.0),
        "sliding_attention": dict(rope_type="default", rope_theta=100.0)})),
    "mixtral": ("Mixtral", dict(SIZES, num_local_experts=5, num_experts_per_tok=2)),
    "mixtral-window": ("Mixtral", dict(SIZES, num_local_experts=4, num_experts_per_tok=3, sliding_window=8,
                                       tie_word_embeddings=True)),
    "olmoe": ("Olmoe", dict(SIZES, num_experts=6, num_experts_per_tok=3, pad_token_id=None, eos_token_id=None)),
    "olmoe-normed": ("Olmoe", dict(SIZES, num_experts=4, num_experts_per_tok=2, pad_token_id=None, eos_token_id=None,
                                   norm_topk_prob=True, attention_bias=True)),
    "olmoe-clipped": ("Olmoe", dict(SIZES, num_experts=4, num_experts_per_tok=2, pad_token_id=None, eos_token_id=None,
                                    clip_qkv=0.6)),
    "qwen3-moe": ("Qwen3Moe", dict(SIZES, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=48,
                                   head_dim=32, norm_topk_prob=True)),
    "qwen3-moe-dense": ("Qwen3Moe", dict(SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48,
                                         head_dim=32, norm_topk_prob=True, decoder_sparse_step=2,
                                         mlp_only_layers=[3], num_hidden_layers=6)),
    "qwen3-moe-none": ("Qwen3Moe", dict(SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48,
                                        head_dim=32, mlp_only_layers=[0, 1, 2, 3])),
    "mamba2": ("Mamba2", dict(MAMBA, n_groups=2)),
    "mamba2-tied": ("Mamba2", dict(MAMBA, n_groups=1, tie_word_embeddings=True, layer_norm_epsilon=1e-3)),
    "mamba2-bias": ("Mamba2", dict(MAMBA, n_groups=2, use_bias=True)),
    "mamba2-bare": ("Mamba2", dict(MAMBA, n_groups=1, use_conv_bias=False)),
}


def made(name):
    torch.manual_seed(7)
    family, sizes = MODELS[name]
    suffix = "TextConfig" if family == "Gemma3" else "Config"
    head = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    attention = {} if family == "Mamba2" else dict(attn_implementation="eager")
    config = getattr(transformers, family + suffix)(**sizes, **attention)
    model = getattr(transformers, head)(config).float().eval()
    with torch.no_grad():  # biases and norms, too, are to count
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return model


def run(*args):
    r = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if r.returncode:
        sys.exit(f"{' '.join(map(str, args))}\nexit {r.returncode}\n{r.stdout.decode()}{r.stderr.decode()}")
    return r.stderr.decode()


def compare(heddlec, name, folder):
    model, at = made(name), lambda *names: os.path.join(folder, *names)
    model.save_pretrained(at("there"))
    tokens = torch.randint(300, (WINDOWS * SEQ + 1,))
    with open(at("tokens.bin"), "wb") as f:
        f.write(struct.pack(f"<{len(tokens)}I", *tokens.tolist()))
    x, y = tokens[:-1].view(WINDOWS, SEQ), tokens[1:].view(WINDOWS, SEQ)
    run(heddlec, f"--from-hf={at('there')}", "-o", at("model.hd"))
    sets = [f"seq={SEQ}", f"train.batch={WINDOWS}", "train.precision.compute=f32", f"train.lr=constant({LR})"]
    run(heddlec, at("model.hd"), "-o", at("program"), *[w for s in sets for w in ("--set", s)])
    rename = ["--init-rename=transformer.="] if name.startswith("gpt2") else []
    common = [f"--init={at('there')}", "--format=u32", *rename]
    with torch.no_grad():
        want, logits = loss_of(model, x, y).item(), model(x).logits
    said = run(at("program"), *common, "--steps=0", f"--val={at('tokens.bin')}", f"--log={at('log')}",
               f"--export={at('back')}", "--as=hf")
    if "note:" in said:
        sys.exit(f"{name}: {said}")
    expect(f"{name}: loss {want:.7f}, relative difference", abs(lines(at("log"), "val_loss")[-1] - want) / want, 1e-6)
    back, info = type(model).from_pretrained(at("back"), output_loading_info=True, attn_implementation="eager")
    wrong = {k: v for k, v in info.items() if v}
    if wrong:
        sys.exit(f"{name}: from_pretrained says {wrong}")
    with torch.no_grad():
        expect(f"{name}: largest difference of logits", (back.float().eval()(x).logits - logits).abs().max().item(), 0)
    run(at("program"), *common, f"--steps={STEPS}", f"--data={at('tokens.bin')}", f"--log={at('train')}")
    pairs = list(zip(lines(at("train"), "loss"), torch_losses(model.train(), x, y, STEPS)))
    expect(f"{name}: {len(pairs)} steps from {pairs[0][1]:.5f} to {pairs[-1][1]:.5f}, relative difference",
           max(abs(a - b) / b for a, b in pairs), 1e-5)
    if not name.startswith(("gpt2", "mamba2")):
        run(heddlec, at("model.hd"), "-o", at("other"), *[w for s in [*sets, "theta=77"] for w in ("--set", s)])
        said = run(at("other"), *common, "--steps=0", f"--export={at('e')}")
        if '"rope_theta" is' not in said or said.count("note:") != 1:
            sys.exit(f"{name}: another theta: {said}")


def check_recorded(heddlec, folder):
    """The losses that from_hf.py has of its own small models, where there is no transformers."""
    from_hf.compiled.programs = types.SimpleNamespace(compiler=heddlec)
    os.chdir(folder)
    tokens = torch.tensor(from_hf.TOKENS)
    x, y = tokens[:-1].view(4, -1), tokens[1:].view(4, -1)
    for name in from_hf.RECORDED:
        _, there, want = from_hf.recorded(name)
        eager = {} if "mamba" in name else dict(attn_implementation="eager")
        model = transformers.AutoModelForCausalLM.from_pretrained(there, dtype=torch.float32, **eager).eval()
        with torch.no_grad():
            loss = loss_of(model, x, y).item()
        expect(f"{name}: recorded {want}, here {loss:.8g}, relative difference", abs(loss - want) / loss, 1e-6)


def main():
    heddlec, names = os.path.abspath(sys.argv[1]), sys.argv[2:] or [*MODELS, "recorded"]
    torch.set_num_threads(2)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            if name == "recorded":
                check_recorded(heddlec, folder)
            else:
                compare(heddlec, name, folder)


if __name__ == "__main__":
    main()
