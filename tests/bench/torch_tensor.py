"""PyTorch tensor parallelism with sequence parallelism, torch.compile of each block and, if asked, async TP: the step
of Llama 8B beside which tests/gpu/tensor.sh is read.

usage: torchrun --nproc-per-node=2 torch_tensor.py B T ASYNC [LAYERS]    ASYNC: 0 or 1

f32 parameters, bf16 autocast, vocabulary-parallel loss, AdamW, clip 1.0. Rank 0 prints the median of ten steps, which
events time, and the memory of the allocator.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)

DIM, HEADS, KV_HEADS, HIDDEN, VOCAB, SIZE = 4096, 32, 8, 14336, 128256, 128


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight).to(torch.bfloat16)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(DIM, HEADS * SIZE, bias=False)
        self.k = nn.Linear(DIM, KV_HEADS * SIZE, bias=False)
        self.v = nn.Linear(DIM, KV_HEADS * SIZE, bias=False)
        self.o = nn.Linear(HEADS * SIZE, DIM, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = (m(x).view(b, t, -1, SIZE).transpose(1, 2) for m in (self.q, self.k, self.v))

        def rope(y):
            a, c = y.chunk(2, -1)
            return torch.cat((a * cos - c * sin, c * cos + a * sin), -1)

        y = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, HIDDEN, bias=False)
        self.up = nn.Linear(DIM, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.attn, self.n2, self.mlp = Norm(), Attention(), Norm(), MLP()

    def forward(self, x, cos, sin):
        x = x + self.attn(self.n1(x), cos, sin)
        return x + self.mlp(self.n2(x))


class Llama(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = Norm()
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens, cos, sin):
        x = self.embed(tokens).to(torch.bfloat16)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def main():
    batch, length, overlap = (int(a) for a in sys.argv[1:4])
    layers = int(sys.argv[4]) if len(sys.argv) > 4 else 32
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
    if overlap:
        import torch._inductor.config as inductor
        from torch.distributed._symmetric_memory import enable_symm_mem_for_group
        inductor._micro_pipeline_tp = True
        enable_symm_mem_for_group(mesh.get_group().group_name)
    with torch.device("meta"):
        model = Llama(layers)
    rows, whole = Shard(1), Replicate()
    parallelize_module(model, mesh, {
        "embed": RowwiseParallel(input_layouts=whole, output_layouts=rows), "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=rows, output_layouts=Shard(-1), use_local_output=False)})
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "n1": SequenceParallel(), "n2": SequenceParallel(),
            "attn": PrepareModuleInput(input_layouts=(rows, None, None), desired_input_layouts=(whole, None, None)),
            "attn.q": ColwiseParallel(), "attn.k": ColwiseParallel(), "attn.v": ColwiseParallel(),
            "attn.o": RowwiseParallel(output_layouts=rows),
            "mlp": PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(whole,)),
            "mlp.gate": ColwiseParallel(), "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=rows)})
        block.compile(fullgraph=True)
    model.to_empty(device="cuda")
    for name, p in model.named_parameters():
        local = p.to_local()
        torch.nn.init.ones_(local) if local.dim() == 1 else torch.nn.init.normal_(local, 0, 0.02)
    frequency = 500000.0 ** (-torch.arange(0, SIZE, 2, device="cuda").float() / SIZE)
    angle = torch.arange(length, device="cuda").float()[:, None] * frequency
    cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    torch.manual_seed(0)  # ranks of tensor parallelism read the same
    data = torch.randint(0, VOCAB, (4, batch, length + 1), device="cuda")

    def step(i):
        x = data[i % 4]
        with torch.autocast("cuda", torch.bfloat16), loss_parallel():
            logits = model(x[:, :-1].contiguous(), cos, sin)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), x[:, 1:].reshape(-1))
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for i in range(6):
        loss = step(i)
    torch.cuda.synchronize()
    times = []
    for i in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        loss = step(i)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    loss = loss.full_tensor() if hasattr(loss, "full_tensor") else loss
    if rank == 0:
        print(json.dumps({"batch": batch, "seq": length, "layers": layers, "async": overlap,
                          "ms": round(sorted(times)[len(times) // 2], 1),
                          "allocated_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
                          "reserved_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2), "loss": float(loss)}),
              flush=True)
    dist.destroy_process_group()


main()
