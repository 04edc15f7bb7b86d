#!/usr/bin/env python3
"""GPT-2 under PyTorch FSDP2, for comparison with the same model, batch and mesh compiled by heddlec.

usage: torchrun --standalone --nproc-per-node=8 tests/bench/torch_fsdp2.py [--size=1558M] [--batch=16] [--seq=1024]
           [--steps=20] [--warmup=6] [--accumulate=1] [--compile=block|all|none] [--reshard=1|0] [--prefetch=K]
           [--dtype=bf16|f32] [--device=cuda|cpu]

fully_shard on every block and on the model, mixed precision with f32 reduction, f32 master weights and fused AdamW with
clipping: what `fsdp zero3 { unit Block; }` is here (--reshard=0 keeps the weights after the forward pass).
--compile=block gives each block to torch.compile, --compile=all the final norm, head and loss as well. --prefetch=K
gathers K blocks ahead by name; 0 leaves it to FSDP2's own order. Random tokens. Rank 0 prints one JSON line; times are
of whole steps, by events on the GPU.
"""
import argparse
import json
import os
import statistics
import sys
import time

SIZES = {  # layers, heads, dim
    "124M": (12, 12, 768),
    "350M": (24, 16, 1024),
    "774M": (36, 20, 1280),
    "1558M": (48, 25, 1600),
    "tiny": (2, 2, 64),
}
GIB = float(1 << 30)


def read_arguments():
    p = argparse.ArgumentParser(description="GPT-2 under PyTorch FSDP2")
    p.add_argument("--size", choices=SIZES, default="1558M")
    p.add_argument("--vocab", type=int, default=50304)
    p.add_argument("--batch", type=int, default=16, help="sequences of a micro-batch of one rank")
    p.add_argument("--seq", type=int, default=1024)
    p.add_argument("--steps", type=int, default=20, help="timed steps")
    p.add_argument("--warmup", type=int, default=6, help="steps before them; the first one compiles")
    p.add_argument("--accumulate", type=int, default=1)
    p.add_argument("--compile", choices=("block", "all", "none"), default="block")
    p.add_argument("--reshard", type=int, choices=(0, 1), default=1)
    p.add_argument("--prefetch", type=int, default=0)
    p.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--lr", type=float, default=6e-4)
    return p.parse_args()


ARGS = read_arguments()  # before the imports, which take seconds: --help should not
try:
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError as e:
    sys.exit(f"error: this needs PyTorch 2.6 or later, with torch.distributed.fsdp.fully_shard: {e}")
if "RANK" not in os.environ:
    sys.exit("error: start it with torchrun, for example torchrun --standalone --nproc-per-node=2 "
             + " ".join(sys.argv))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc, self.out = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, seq, dim = x.shape
        parts = self.qkv(self.ln1(x)).view(batch, seq, 3, self.heads, dim // self.heads)
        q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, seq, dim))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


def head_loss(x, norm_weight, norm_bias, table, targets):
    x = F.layer_norm(x, (x.shape[-1],), norm_weight, norm_bias)
    logits = F.linear(x, table)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class GPT2(nn.Module):
    """Learned positions, a norm before each part, the head tied to the token table."""

    def __init__(self, vocab, seq, layers, heads, dim):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(seq, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)
        self.head_loss = head_loss

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head_loss(x, self.ln_f.weight, self.ln_f.bias, self.wte.weight, targets)


def initialise(model, layers):
    """Parameters are shards by now (DTensor): each rank fills its own part."""
    for name, p in model.named_parameters():
        here = p.to_local()
        norm = ".ln" in name or name.startswith("ln_f")
        if name.endswith("bias"):
            nn.init.zeros_(here)
        elif norm:
            nn.init.ones_(here)
        else:
            residual = name.endswith(("proj.weight", "out.weight"))
            nn.init.normal_(here, 0.0, 0.02 / (2 * layers) ** 0.5 if residual else 0.02)


def build(device):
    layers, heads, dim = SIZES[ARGS.size]
    with torch.device("meta"):
        model = GPT2(ARGS.vocab, ARGS.seq, layers, heads, dim)
    if ARGS.compile != "none":
        for block in model.blocks:
            block.compile()
    if ARGS.compile == "all":
        model.head_loss = torch.compile(head_loss)
    low = torch.bfloat16 if ARGS.dtype == "bf16" else None
    options = dict(mp_policy=MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32))
    if device.type == "cpu":
        options["mesh"] = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=bool(ARGS.reshard), **options)
    fully_shard(model, **options)
    for i, block in enumerate(model.blocks):
        if not ARGS.prefetch:
            break
        block.set_modules_to_forward_prefetch(list(model.blocks[i + 1 : i + 1 + ARGS.prefetch]))
        block.set_modules_to_backward_prefetch(list(reversed(model.blocks[max(0, i - ARGS.prefetch) : i])))
    model.to_empty(device=device)
    initialise(model, layers)
    return model


class Clock:
    """Milliseconds of a step: by events on the GPU, since the host runs ahead of it; on a CPU by the host's clock."""

    def __init__(self, on_gpu):
        self.on_gpu = on_gpu
        self.pairs = []

    def mark(self):
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def times(self, marks):
        if not self.on_gpu:
            return [1e3 * (b - a) for a, b in zip(marks, marks[1:])]
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def main():
    on_gpu = ARGS.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.set_float32_matmul_precision("high")
        device = torch.device("cuda", torch.cuda.current_device())
        free_before, _ = torch.cuda.mem_get_info()
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1 + rank)
    model = build(device)
    count = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=ARGS.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=on_gpu)
    data = torch.randint(0, min(ARGS.vocab, 50257), (4, ARGS.batch, ARGS.seq + 1), device=device)

    def step(number):
        total = 0.0
        for k in range(ARGS.accumulate):
            tokens = data[(number * ARGS.accumulate + k) % len(data)]
            loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()) / ARGS.accumulate
            loss.backward()
            total = total + loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    began = time.perf_counter()
    first_loss = float(step(0))
    first_step = time.perf_counter() - began
    for i in range(1, max(1, ARGS.warmup)):
        step(i)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    dist.barrier()
    clock = Clock(on_gpu)
    marks, loss = [clock.mark()], None
    for i in range(ARGS.steps):
        loss = step(ARGS.warmup + i)
        marks.append(clock.mark())
    times = clock.times(marks)
    ms = statistics.median(times)
    slowest = torch.tensor([ms], device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    result = dict(program="pytorch fsdp2", torch=torch.__version__, size=ARGS.size, parameters=count, ranks=ranks,
                  batch=ARGS.batch, seq=ARGS.seq, accumulate=ARGS.accumulate, compile=ARGS.compile,
                  reshard=ARGS.reshard, prefetch=ARGS.prefetch, dtype=ARGS.dtype,
                  step_ms=round(float(slowest), 3), best_ms=round(min(times), 3),
                  tokens_per_second_per_gpu=round(ARGS.batch * ARGS.seq * ARGS.accumulate / float(slowest) * 1e3),
                  first_step_seconds=round(first_step, 2), first_loss=first_loss, loss=float(loss))
    if on_gpu:
        free_after, _ = torch.cuda.mem_get_info()
        result.update(peak_allocated_gib=round(torch.cuda.max_memory_allocated() / GIB, 3),
                      peak_reserved_gib=round(torch.cuda.max_memory_reserved() / GIB, 3),
                      device_in_use_gib=round((free_before - free_after) / GIB, 3), gpu=torch.cuda.get_device_name())
    if rank == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


main()
