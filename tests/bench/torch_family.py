#!/usr/bin/env python3
"""Training steps of transformers' model of a config.json: torch_family.py FOLDER BATCH SEQ ATTENTION.

Random weights in f32, bf16 autocast, the forward pass and the loss in one torch.compile, fused AdamW, clip 1.0. Prints
the median of steps 5 to 14, the seconds to the first step, and the most memory that was allocated.
"""
import statistics
import sys
import time

import torch
import transformers


def main():
    folder, batch, seq, attention = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    begin = time.time()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention,
                                                              dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.randint(0, min(60000, config.vocab_size), (batch, seq + 1), device="cuda")

    @torch.compile
    def loss_of(tokens, targets):
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(input_ids=tokens, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    ms, first = [], 0
    for step in range(14):
        torch.cuda.synchronize()
        start = time.time()
        loss = loss_of(data[:, :-1], data[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        ms.append(1e3 * (time.time() - start))
        first = first or time.time() - begin
    print(f"transformers {attention}: {statistics.median(ms[4:]):.1f} ms, first step after {first:.1f} s, "
          f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, loss {loss.item():.4f}", flush=True)


main()
