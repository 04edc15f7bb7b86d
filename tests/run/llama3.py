#!/usr/bin/env python3
"""examples/llama3 against a forward pass written out in plain Python, from weights under the names of Hugging Face's
LlamaForCausalLM: one file, an index of files, a folder; f32, bf16 and f16; tied and untied; and what is refused.
Usage: llama3.py ROOT HEDDLEC [CASE...]. Cases as in cases.py. tests/run/hf_llama.py compares with transformers itself.
"""
import json
import math
import os
import random
import struct
import sys

import compiled
from cases import check
from compiled import tensors_of, write

VOCAB, LAYERS, DIM, HEADS, KV, HIDDEN, SEQ = 40, 2, 16, 4, 2, 24, 12
THETA, EPS, FACTOR, LOW, HIGH, ORIGINAL = 100.0, 1e-5, 8.0, 1.0, 4.0, 40
SIZES = {"vocab": VOCAB, "layers": LAYERS, "dim": DIM, "heads": HEADS, "kv_heads": KV, "hidden": HIDDEN, "seq": SEQ,
         "theta": THETA, "original": ORIGINAL, "train.batch": 1, "train.precision.compute": "f32"}


class Llama3(compiled.Programs):
    def get(self, *settings):
        return super().get(*[f"{k}={v}" for k, v in SIZES.items()], *settings)


def shapes(tied):
    yield "model.embed_tokens.weight", [VOCAB, DIM]
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        yield from ((p + "input_layernorm.weight", [DIM]), (p + "self_attn.q_proj.weight", [DIM, DIM]),
                    (p + "self_attn.k_proj.weight", [DIM * KV // HEADS, DIM]),
                    (p + "self_attn.v_proj.weight", [DIM * KV // HEADS, DIM]),
                    (p + "self_attn.o_proj.weight", [DIM, DIM]), (p + "post_attention_layernorm.weight", [DIM]),
                    (p + "mlp.gate_proj.weight", [HIDDEN, DIM]), (p + "mlp.up_proj.weight", [HIDDEN, DIM]),
                    (p + "mlp.down_proj.weight", [DIM, HIDDEN]))
    yield "model.norm.weight", [DIM]
    if not tied:
        yield "lm_head.weight", [VOCAB, DIM]


def pack(values, dtype):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'e'}", *values)


def unpack(data, dtype):
    if dtype == "BF16":
        data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
    size, letter = (2, "e") if dtype == "F16" else (4, "f")
    return list(struct.unpack(f"<{len(data) // size}{letter}", data))


def make_weights(tied, dtype="F32", seed=5):
    """{name: (dtype, shape, bytes)}: as large as a trained model's, so that every part of it counts."""
    draw, tensors = random.Random(seed), {}
    for name, shape in shapes(tied):
        n = math.prod(shape)
        middle, width = (1, 0.2) if len(shape) == 1 else (0, 0.3)
        values = [draw.gauss(middle, width) for _ in range(n)]
        tensors[name] = (dtype, shape, pack(values, dtype))
    return tensors


def linear(x, w, out):
    n = len(w) // out
    return [[math.fsum(a * b for a, b in zip(row, w[o * n : o * n + n])) for o in range(out)] for row in x]


def norm(x, w):
    return [[v * g / math.sqrt(math.fsum(u * u for u in row) / len(row) + EPS) for v, g in zip(row, w)] for row in x]


def rates():
    """Radians a position, by the rule of Llama 3.1 in terms of wavelengths."""
    size = DIM // HEADS
    for i in range(size // 2):
        rate = THETA ** (-2 * i / size)
        length = 2 * math.pi / rate
        if length > ORIGINAL / LOW:
            rate /= FACTOR
        elif length > ORIGINAL / HIGH:
            smooth = (ORIGINAL / length - LOW) / (HIGH - LOW)
            rate = (1 - smooth) * rate / FACTOR + smooth * rate
        yield rate


def turned(x, heads):
    out, half = [], DIM // HEADS // 2
    for position, row in enumerate(x):
        y = list(row)
        for h in range(heads):
            for i, rate in enumerate(rates()):
                a, b = h * 2 * half + i, h * 2 * half + half + i
                c, s = math.cos(position * rate), math.sin(position * rate)
                y[a], y[b] = row[a] * c - row[b] * s, row[b] * c + row[a] * s
        out.append(y)
    return out


def attention(q, k, v):
    size, out = DIM // HEADS, []
    for t, row in enumerate(q):
        y = []
        for h in range(HEADS):
            part = slice(h // (HEADS // KV) * size, (h // (HEADS // KV) + 1) * size)
            mine = row[h * size : (h + 1) * size]
            scores = [math.fsum(a * b for a, b in zip(mine, k[u][part])) / math.sqrt(size) for u in range(t + 1)]
            p = [math.exp(s - max(scores)) for s in scores]
            y += [math.fsum(p[u] * v[u][part][i] for u in range(t + 1)) / math.fsum(p) for i in range(size)]
        out.append(y)
    return out


def plus(x, y):
    return [[a + b for a, b in zip(r, s)] for r, s in zip(x, y)]


def loss_of(tensors, tokens, tied):
    w = {name: unpack(data, dtype) for name, (dtype, _, data) in tensors.items()}
    x = [w["model.embed_tokens.weight"][t * DIM : (t + 1) * DIM] for t in tokens[:-1]]
    for i in range(LAYERS):
        part = lambda name: w[f"model.layers.{i}.{name}.weight"]
        h = norm(x, part("input_layernorm"))
        q, k = (turned(linear(h, part(f"self_attn.{n}_proj"), heads * DIM // HEADS), heads)
                for n, heads in (("q", HEADS), ("k", KV)))
        a = attention(q, k, linear(h, part("self_attn.v_proj"), KV * DIM // HEADS))
        x = plus(x, linear(a, part("self_attn.o_proj"), DIM))
        h = norm(x, part("post_attention_layernorm"))
        g, u = linear(h, part("mlp.gate_proj"), HIDDEN), linear(h, part("mlp.up_proj"), HIDDEN)
        act = [[a / (1 + math.exp(-a)) * b for a, b in zip(r, s)] for r, s in zip(g, u)]
        x = plus(x, linear(act, part("mlp.down_proj"), DIM))
    head = w["model.embed_tokens.weight" if tied else "lm_head.weight"]
    logits = linear(norm(x, w["model.norm.weight"]), head, VOCAB)
    return math.fsum(math.log(math.fsum(math.exp(v) for v in row)) - row[t] for row, t in zip(logits, tokens[1:])) / SEQ


def save_tensors(path, tensors):
    compiled.write_tensors(path, tensors)
    return path


def save_shards(folder, tensors, files=3):
    os.mkdir(folder)
    names = sorted(tensors)
    where = {name: f"model-{i % files + 1:05}-of-{files:05}.safetensors" for i, name in enumerate(names)}
    for file in set(where.values()):
        save_tensors(os.path.join(folder, file), {n: tensors[n] for n in names if where[n] == file})
    index = {"metadata": {"total_size": 1, "of": [{"a": "}"}, 2.5e3, None]}, "weight_map": where}
    return write(os.path.join(folder, "model.safetensors.index.json"), json.dumps(index, indent=2))


def tokens_file():
    tokens = [(7 * i + i // 5) % VOCAB for i in range(SEQ + 1)]
    write("tokens.bin", compiled.words_of(tokens))
    return tokens


def val_loss(init, *args, settings=()):
    if os.path.exists("log"):
        os.remove("log")
    compiled.good("--steps=0", f"--init={init}", "--val=tokens.bin", "--log=log", *args, settings=settings)
    return json.loads(compiled.read("log").decode().splitlines()[-1])["val_loss"]


def case_loss_and_export():
    tokens = tokens_file()
    for tied in (False, True):
        settings = (f"tied={int(tied)}",)
        for dtype in ("F32", "BF16", "F16"):
            tensors = make_weights(tied, dtype)
            want = loss_of(tensors, tokens, tied)
            got = val_loss(save_tensors("w.safetensors", tensors), "--export=e.safetensors",
                           f"--export-dtype={dtype.lower()}", settings=settings)
            check(abs(got - want) < 1e-6 * want, f"tied {tied}, {dtype}: the loss is {got!r}, written out {want!r}")
            back, _ = tensors_of("e.safetensors")
            check({n: tuple(t) for n, t in back.items()} == {n: tuple(t) for n, t in tensors.items()},
                  f"tied {tied}, {dtype}: the export differs from what was read")


def case_scaling_counts():
    tokens = tokens_file()
    tensors = make_weights(False)
    save_tensors("w.safetensors", tensors)
    scaled, plain = (val_loss("w.safetensors", settings=("tied=0",) + more) for more in ((), ("factor=1",)))
    check(abs(scaled - plain) > 1e-4, "the scaling of rotations has no effect here:", scaled, plain)


def case_shards():
    tokens_file()
    tensors = make_weights(False)
    whole = val_loss(save_tensors("w.safetensors", tensors), "--digest=a", settings=("tied=0",))
    index = save_shards("shards", tensors)
    for init in (index, "shards"):
        check(val_loss(init, "--digest=b", settings=("tied=0",)) == whole and compiled.read("a") == compiled.read("b"),
                   init, "gives other weights than one file")
    os.mkdir("one")
    save_tensors("one/model.safetensors", tensors)
    check(val_loss("one", "--digest=b", settings=("tied=0",)) == whole and compiled.read("a") == compiled.read("b"),
               "a folder with one file gives other weights")


def case_checkpoint():
    """A checkpoint has the parameters' own names, and --init reads those, too."""
    tokens_file()
    save_tensors("w.safetensors", make_weights(False))
    whole = val_loss("w.safetensors", "--save=c", "--overwrite", "--digest=a", settings=("tied=0",))
    check("blocks.0.attn.wq" in tensors_of("c/checkpoint.safetensors")[0], "a checkpoint has other names")
    check(val_loss("c/checkpoint.safetensors", settings=("tied=0",)) == whole, "--init of a checkpoint differs")


def case_refused():
    tokens_file()
    tensors = make_weights(False)

    def refused(path, *words, settings=("tied=0",)):
        compiled.bad(1, *words, args=["--steps=0", "--export=e", f"--init={path}"], settings=settings)

    name = "model.layers.1.self_attn.k_proj.weight"
    less = {n: t for n, t in tensors.items() if n != name}
    refused(save_tensors("less.safetensors", less), name, "blocks.1.attn.wk", "no tensor")
    refused(save_tensors("wide.safetensors", dict(tensors, **{name: ("F32", [DIM, DIM], bytes(4 * DIM * DIM))})), name,
            "blocks.1.attn.wk", f"[{DIM},{DIM}]", f"[{DIM // 2},{DIM}]")
    refused(save_tensors("more.safetensors", dict(tensors, extra=("F32", [2], bytes(8)))), "extra", "[2]", "Llama3")
    refused(save_tensors("w.safetensors", tensors), "lm_head.weight", "Llama3", settings=("tied=1",))
    whole = dict(tensors, **{name: ("I32", [DIM // 2, DIM], bytes(2 * DIM * DIM))})
    refused(save_tensors("i.safetensors", whole), name, "I32", "BF16")
    index = json.loads(compiled.read(save_shards("shards", tensors)))
    for at, (words, text) in enumerate((
            (("not an index",), "{}"), (("not an index",), "["), (("not an index",), '{"weight_map": {"a": 1}}'),
            (("not an index",), ""), (("outside", "../w"), '{"weight_map": {"a": "../w.safetensors"}}'),
            (("No such file", "gone"), '{"weight_map": {"a": "gone.safetensors"}}'))):
        refused(write(f"bad{at}.json", text), *words)
    del index["weight_map"][name]
    os.remove("shards/" + json.loads(compiled.read("shards/model.safetensors.index.json"))["weight_map"][name])
    refused("shards", "No such file", "shards/model-")
    os.mkdir("empty")
    refused("empty", "model.safetensors.index.json")
    compiled.bad(2, "--export-dtype=f8", "bf16", args=["--steps=0", "--export=e", "--export-dtype=f8"])
    compiled.bad(2, "--export-dtype", "--export", args=["--steps=1", "--data=tokens.bin", "--export-dtype=bf16"])


if __name__ == "__main__":
    compiled.SMALL, compiled.EXAMPLE, compiled.Programs = [], "examples/llama3/llama3.hd", Llama3
    sys.exit(compiled.main(globals()))
