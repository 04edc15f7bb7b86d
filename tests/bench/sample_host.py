#!/usr/bin/env python3
"""Tokens a second of a text on the host: a program of heddlec beside transformers, on the same cores and weights.

A Llama-shaped model of 124M parameters with random weights is saved by transformers, and heddlec writes and compiles
its .hd. Both write the same greedy text from one prompt, in turns, so that the load of the machine meets both. The
text of f32 must be the same. Usage: sample_host.py ROOT BUILD [--tokens=100] [--rounds=3] [--threads=2]
Needs torch and transformers (tests/bench/RESULTS.md has the figures).
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time


def transformers_text(model, prompt, tokens):
    """Tokens a second after the prompt, and the text."""
    import torch
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        start = time.monotonic()
        out = model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, use_cache=True)
        return tokens / (time.monotonic() - start), out[0].tolist()


def heddle_text(program, folder, prompt, tokens, environment):
    r = subprocess.run([program, f"--init={folder}", "--sample-ids=" + ",".join(map(str, prompt)),
                        f"--tokens={tokens}", "--temperature=0"], capture_output=True, text=True, env=environment)
    if r.returncode:
        sys.exit(r.stderr)
    seconds = float(re.search(r"tokens in ([\d.]+) s", r.stderr).group(1))
    return tokens / seconds, [int(t) for t in r.stdout.strip().split(",")]


def build(root, heddlec, folder, dtype):
    text, program = os.path.join(folder, "model.hd"), os.path.join(folder, f"program-{dtype}")
    with open(text, "w") as f:
        subprocess.run([heddlec, f"--from-hf={folder}"], check=True, stdout=f, cwd=root)
    subprocess.run([heddlec, text, "-o", program, "--set", "schedule.logits=on", "--set", "train.batch=1", "--set",
                    f"train.compute={dtype}"], check=True, cwd=root)
    return program


def main():
    p = argparse.ArgumentParser()
    p.add_argument("root")
    p.add_argument("build")
    p.add_argument("--tokens", type=int, default=100)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    o = p.parse_args()
    import torch
    import transformers
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    environment = {**os.environ, "OMP_NUM_THREADS": str(o.threads)}
    config = transformers.LlamaConfig(vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
                                      num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=1024,
                                      tie_word_embeddings=False, initializer_range=0.08, eos_token_id=None)
    prompt = [(7 * i + 3) % 32000 for i in range(16)]
    with tempfile.TemporaryDirectory() as folder:
        model = transformers.LlamaForCausalLM(config).eval()
        model.save_pretrained(folder)
        for dtype, theirs in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            model = model.to(theirs)
            program = build(os.path.abspath(o.root), os.path.join(os.path.abspath(o.build), "bin/heddlec"), folder,
                            dtype)
            rates = []
            for _ in range(o.rounds):
                a, ours = heddle_text(program, folder, prompt, o.tokens, environment)
                b, text = transformers_text(model, prompt, o.tokens)
                rates.append((a, b))
                if dtype == "f32" and ours != text:
                    sys.exit(f"other texts:\n{ours}\n{text}")
            ours, text = sorted(a for a, _ in rates)[o.rounds // 2], sorted(b for _, b in rates)[o.rounds // 2]
            print(f"{dtype}: heddle {ours:.1f} tokens/s, transformers {transformers.__version__} {text:.1f} tokens/s, "
                  f"ratio {ours / text:.2f}")


if __name__ == "__main__":
    main()
