#!/usr/bin/env python3
"""What a token of text takes transformers on a GPU: generate, greedy, batch 1, weights in bf16 and random, with keys
and values in a cache of fixed length and the function of a token compiled (CUDA graphs), and without. The models of
sample_gpu.sh; the time of 300 tokens less that of 100, over 200. Usage: sample_torch.py [gpt2|llama1|llama3]...
"""
import argparse
import sys
import time

import torch
import transformers

SEQ = 1024
LLAMA = {"vocab_size": 128256, "max_position_embeddings": SEQ, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
         "num_key_value_heads": 8, "rope_theta": 500000.0}
CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(vocab_size=50304, n_positions=SEQ),
    "llama1": lambda: transformers.LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                                               num_attention_heads=32, **LLAMA),
    "llama3": lambda: transformers.LlamaConfig(hidden_size=3072, intermediate_size=8192, num_hidden_layers=28,
                                               num_attention_heads=24, **LLAMA),
}


def seconds(model, tokens, **how):
    ids = torch.tensor([[1, 2, 3]], device="cuda")
    mask = torch.ones_like(ids)
    torch.cuda.synchronize()
    start = time.monotonic()
    out = model.generate(ids, attention_mask=mask, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                         use_cache=True, pad_token_id=0, **how)
    torch.cuda.synchronize()
    if out.shape[1] != 3 + tokens:
        raise RuntimeError(f"{out.shape[1]} tokens")
    return time.monotonic() - start


def measure(name, model, what, rounds, **how):
    try:
        for tokens in (100, 300):  # compiles, and captures graphs
            seconds(model, tokens, **how)
        best = min((seconds(model, 300, **how) - seconds(model, 100, **how)) / 200 for _ in range(rounds))
        print(f"{name:8} {best * 1e6:7.0f} us a token  {what}", flush=True)
    except Exception as wrong:  # of some model with some version
        print(f"{name:8} {what}: {type(wrong).__name__}: {str(wrong)[:300]}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("models", nargs="*")
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    print("torch", torch.__version__, "transformers", transformers.__version__, torch.cuda.get_device_name(),
          flush=True)
    for name in o.models or CONFIGS:
        torch.manual_seed(1)
        with torch.device("cuda"):
            model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.bfloat16).eval()
        with torch.inference_mode():
            measure(name, model, "as it is", o.rounds)
        measure(name, model, "static cache, compiled", o.rounds, cache_implementation="static")
        del model
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
