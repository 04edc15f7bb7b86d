#!/usr/bin/env python3
"""Limits of device memory down to the least plan: a plan that is found under a limit is found at its own peak, is no
slower there, and less memory is never faster. The models have layers as members, in groups and in pairs, of kinds in a
pattern, and many small blocks. Usage: limits.py ROOT HEDDLEC [--all [MODEL...]]
A list by hand that was once better than the search is met by it.
--all: 45 limits of 9 models, each within 512 MiB, and lists by hand: where one takes 0.5 % less than the least plan
that was found so, the search finds one as small.
"""
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile

MODEL = """model Net(pattern = "*-C-G-*-CG*-", dim = {dim}, seq = {seq}, vocab = {vocab}) {{
  module Mlp {{
    up = Linear(dim, 4*dim);  down = Linear(4*dim, dim);
    fn forward(x) {{ let act = gelu(up(x));  return down(act); }}
  }}
  module Block {{ norm = RMSNorm(dim);  mlp = Mlp;  fn forward(x) {{ return x + mlp(norm(x)); }} }}
  module Attn {{
    norm = RMSNorm(dim);  qkv = Linear(dim, 3*dim);  proj = Linear(dim, dim);
    fn forward(x) {{
      let q, k, v = split(qkv(norm(x)), 3);
      return x + proj(attention(q, k, v, heads = 4, causal = true));
    }}
  }}
  module Gate {{ a = Linear(dim, dim);  b = Linear(dim, dim);  fn forward(x) {{ return x + a(x) * sigmoid(b(x)); }} }}
  module Layer {{ attn = Attn;  mlp = Block;  fn forward(x) {{ return mlp(attn(x)); }} }}
  module Part(kind) {{
    norm = RMSNorm(dim);
    if kind == "*" {{
      qkv = Linear(dim, 3*dim);  proj = Linear(dim, dim);
      fn mix(x) {{ let q, k, v = split(qkv(x), 3);  return proj(attention(q, k, v, heads = 4, causal = true)); }}
    }} else if kind == "C" {{
      param taps: [3, dim] = normal(0.2);
      fn mix(x) {{ return conv1d(x, taps); }}
    }} else if kind == "G" {{
      a = Linear(dim, dim);  b = Linear(dim, dim);
      fn mix(x) {{ return a(x) * sigmoid(b(x)); }}
    }} else {{
      mlp = Mlp;
      fn mix(x) {{ return mlp(x); }}
    }}
    fn forward(x) {{ return x + mix(norm(x)); }}
  }}
  module Outer {{ l = repeat(3) Layer;  g = Gate;  fn forward(x) {{ return g(l(x)); }} }}
  {members}
  wte = Embedding(vocab, dim);
  fn body(x) {{ {calls} }}
  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {{
    return cross_entropy(matmul(body(wte(tokens)), transpose(wte.weight)), targets);
  }}
}}
train Net {{ batch = {batch};  precision {{ compute = bf16; }} }}
"""
WIDE = dict(dim=1024, seq=1024, vocab=8192, batch=16)
SMALL = dict(dim=128, seq=256, vocab=256, batch=64)
LLAMA = ["size=1", "seq=4096", "train.batch=4", "schedule.fsdp=none"]
LIMITS = (1.1, 1, 0.97, 0.93, 0.9, 0.87, 0.84, 0.81, 0.78, 0.75, 0.72, 0.69, 0.66, 0.63, 0.6, 0.57, 0.54, 0.51, 0.48,
          0.45, 0.42, 0.39, 0.36, 0.33, 0.3)

QUICK = {"nested": (0.5,), "llama3": (0.9, 0.7213)}  # a bisection of the chain alone loses the last one's plan

# A search by places, without ops and borders, takes 1.3 % more.
BY_HAND = {"flat": ("schedule.recompute=Attn,Mlp", "schedule.offload=Block")}


def rows(types):
    """Members of these types, one after another, and the calls."""
    names = [f"l{i}" for i in range(len(types))]
    body = "".join(f"let x{i + 1} = {name}({f'x{i}' if i else 'x'});  " for i, name in enumerate(names))
    return "  ".join(f"{n} = {t};" for n, t in zip(names, types)), body + f"return x{len(names)};"


def repeat(n, of):
    return f"l = repeat({n}) {of};", "return l(x);"


#        members and calls, sizes, what is listed by hand
MADE = {"flat": (rows(["Layer"] * 8), WIDE, ("Layer", "Attn", "Block", "Mlp")),
        "pairs": (rows(["Block", "Gate"] * 6), WIDE, ("Block", "Gate", "Mlp")),
        "nested": (repeat(4, "Outer"), WIDE, ("Layer", "Gate", "Attn", "Block")),
        "hybrid": (("l = repeat(i < size(pattern)) Part(pattern[i]);", "return l(x);"), WIDE, ("Part", "Part.mlp")),
        "small300": (repeat(300, "Gate"), SMALL, ()),
        "small1000": (repeat(1000, "Gate"), SMALL, ())}
GIVEN = {"llama3": (LLAMA, ("Block", "Block.attn", "Block.mlp")), "gpt2": (["train.batch=8"], ("Block", "Block.mlp")),
         "tiny": ([], ("Block", "Block.attn", "Block.mlp"))}


class Model:
    def __init__(self, root, compiler, folder, name):
        path, sets = os.path.join(root, f"examples/{name}/{name}.hd"), []
        if name in GIVEN:
            sets, self.places = GIVEN[name]
        else:
            (members, calls), sizes, self.places = MADE[name]
            path = os.path.join(folder, f"{name}.hd")
            with open(path, "w") as f:
                f.write(MODEL.format(members=members, calls=calls, **sizes))
        self.name = name
        self.command = [compiler, path, "--target=cuda", "--emit=report", *self.sets(*sets)]

    @staticmethod
    def sets(*sets):
        return [word for s in sets for word in ("--set", s)]

    def plan(self, *sets, limit=None):
        """Peak, seconds; None: it does not fit, or the list cannot be met."""
        limits = [f"--device-memory={int(limit)}"] if limit else []
        done = subprocess.run([*self.command, *self.sets(*sets), *limits], capture_output=True, text=True)
        assert done.returncode in (0, 1), (self.command, done.stderr)
        if done.returncode:
            assert not limit or "bytes of device memory and only" in done.stderr, done.stderr
            return None
        r = json.loads(done.stdout)
        return r["peak_bytes"], r["predicted"]["step_seconds"]

    def descend(self, parts):
        """The least plan that was found."""
        auto, before, least = "schedule.recompute=auto", 0, None
        free = self.plan(auto)
        for part in parts:
            found = self.plan(auto, limit=free[0] * part)
            if not found:
                continue
            where = f"{self.name}, {part} of {free[0]} bytes: {found}"
            own = self.plan(auto, limit=found[0])
            assert found[0] <= free[0] * part, where
            assert own and own[0] <= found[0], f"{where}; not found at its own peak"
            assert own[1] <= found[1] * (1 + 1e-9), f"{where}; slower at its own peak: {own}"
            assert found[1] >= before * (1 - 1e-9), f"{where}; {before} s with more memory"
            before, least = found[1], min(found[0], least or found[0])
        print(f"{self.name}: {free[0]} bytes without a limit, {least} at least", flush=True)
        return least

    def by_hand(self, least):
        for n in range(1, len(self.places) + 1):
            for listed in itertools.combinations(self.places, n):
                for offload in ("none", "auto", *self.places):
                    found = self.plan(f"schedule.recompute={','.join(listed)}", f"schedule.offload={offload}")
                    if found and found[0] < 0.995 * least:
                        assert self.plan("schedule.recompute=auto", limit=found[0]), (self.name, listed, offload, found)


def main():
    root, compiler, everything = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), "--all" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        named = [a for a in sys.argv[3:] if a != "--all"] or (*MADE, *GIVEN)
        cases = {name: LIMITS[::5] for name in named} if everything else QUICK
        for name, parts in cases.items():
            model = Model(root, compiler, folder, name)
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            least = model.descend(parts)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            if not everything:
                continue
            each = (used.ru_utime - before) / (2 * len(parts) + 1)
            print(f"  {each:.2f} s each, {used.ru_maxrss >> 10} MiB", flush=True)
            assert used.ru_maxrss >> 10 <= 512, used.ru_maxrss
            model.by_hand(least)
        for name, listed in BY_HAND.items():
            model = Model(root, compiler, folder, name)
            peak = model.plan(*listed)[0]
            assert model.plan("schedule.recompute=auto", limit=1.005 * peak), (name, listed, peak)


main()
