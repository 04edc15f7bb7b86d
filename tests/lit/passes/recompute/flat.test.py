"""Compares models whose layers are members with the same models in `repeat`, by reports and by a run on the host."""
import json
import subprocess
import sys

WORK = sys.argv[1]
MODEL = """model Net(dim = 128, seq = 256, vocab = 256) {{
  module Mlp {{
    up = Linear(dim, 4*dim);  down = Linear(4*dim, dim);
    fn forward(x) {{ let act = gelu(up(x));  return down(act); }}
  }}
  module Block {{ norm = RMSNorm(dim);  mlp = Mlp;  fn forward(x) {{ return x + mlp(norm(x)); }} }}
  module Gate {{ a = Linear(dim, dim);  b = Linear(dim, dim);  fn forward(x) {{ return x + a(x) * sigmoid(b(x)); }} }}
  module Layer(kind) {{
    if kind == "B" {{ inner = Block; }} else {{ inner = Gate; }}
    fn forward(x) {{ return inner(x); }}
  }}
  module Pair {{ a = Block;  b = Gate;  fn forward(x) {{ return b(a(x)); }} }}
  module Tower {{ {tower}  fn forward(x) {{ {tower_calls} }} }}
  {members}
  wte = Embedding(vocab, dim);
  fn body(x) {{ {calls} }}
  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {{
    return cross_entropy(matmul(body(wte(tokens)), transpose(wte.weight)), targets);
  }}
}}
train Net {{ batch = 64;  precision {{ compute = bf16; }} }}
"""


def rows(types):  # members of these types, one after another, and a body that calls them
    names = [f"l{i}" for i in range(len(types))]
    body = "".join(f"let x{i + 1} = {name}({f'x{i}' if i else 'x'});  " for i, name in enumerate(names))
    return "  ".join(f"{n} = {t};" for n, t in zip(names, types)), body + f"return x{len(names)};"


def write(name, members, calls):
    tower, tower_calls = rows(["Block"] * 8)
    path = f"{WORK}.{name}.hd"
    with open(path, "w") as f:
        f.write(MODEL.format(tower=tower, tower_calls=tower_calls, members=members, calls=calls))
    return path


def report(path, *options, **sets):
    command = ["heddlec", path, "--target=cuda", "--emit=report", *options]
    for key, value in sets.items():
        command += ["--set", f"schedule.{key.replace('__', '.')}={value}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
    r = json.loads(done.stdout)
    return r["peak_bytes"], r["host_pinned_bytes"], {k: v["count"] for k, v in r["collectives"].items()}


def same(flat, repeated, *options, **sets):
    x, y = report(flat, *options, **sets), report(repeated, *options, **sets)
    assert abs(x[0] - y[0]) <= 0.02 * y[0] and x[1:] == y[1:], (flat, options, sets, x, y)
    return x


def bits(path, data):  # the losses and norms of a run, and a hash for each parameter, without their names
    program, digest = f"{path}.exe", f"{path}.digest"
    sets = ("dim=16", "seq=8", "train.batch=2", "schedule.recompute=Block")
    compile_ = ["heddlec", path, "--target=host", "-o", program, *(word for s in sets for word in ("--set", s))]
    subprocess.run(compile_, check=True)
    subprocess.run([program, f"--data={data}", "--steps=3", f"--digest={digest}"], capture_output=True, check=True)
    with open(digest) as f:
        return [line.split()[2] if line.startswith("param ") else line for line in f]


blocks = write("repeat", "blocks = repeat(8) Block;", "return blocks(x);")
flat, tower = write("flat", *rows(["Block"] * 8)), write("tower", "tower = Tower;", "return tower(x);")
group = write("group", "groups = repeat(4) Pair;", "return groups(x);")
pairs = write("pairs", *rows(["Block", "Gate"] * 4))
pattern = write("pattern", 'layers = repeat(i < 8) Layer(("BG" * 4)[i]);', "return layers(x);")
zero3 = {"fsdp": "zero3", "mesh__shard": 4}

whole = report(flat, recompute="none")
limited = ["--device-memory=%d" % (report(blocks, recompute="Block")[0] * 21 // 20)]
same(flat, blocks, *limited, recompute="auto")
for model in flat, tower:
    least = same(model, blocks, recompute="Block")
    assert least[0] < 0.6 * whole[0], (least, whole)
    same(model, blocks, recompute="Block", fsdp__unit="Block", **zero3)
    kept = [same(model, blocks, offload="Block", offload__margin=m, recompute="none") for m in (1, 4, 8 - 1)]
    assert kept[0][1] > kept[1][1] > kept[2][1] > 0, kept
    ahead = [same(model, blocks, offload="Block", offload__ahead=n, recompute="none")[0] for n in (0, 4)]
    assert ahead[0] < ahead[1], ahead

# Each layer of a group has a border, which the group as a whole has not.
one = same(pairs, group, recompute="Block,Gate")
gathers = same(pairs, group, recompute="Block,Gate", fsdp__unit="Block,Gate", **zero3)[2]
assert report(group, recompute="Pair", fsdp__unit="Block,Gate", **zero3)[2]["all_gather"] > gathers["all_gather"]
assert one[0] < report(group, recompute="Pair")[0]

# A pattern of layers is the same program, with the places of one kind picked by its arguments.
for sets in {"recompute": "Block,Gate"}, {"recompute": "Block,Gate", "fsdp__unit": "Block,Gate", **zero3}:
    by_kind = {**sets, "recompute": 'Layer[kind == "B"],Layer[kind != "B"]'}
    assert report(pattern, **by_kind) == report(pattern, **sets) == report(pairs, **sets), sets

small = ["Gate"] * 300
same(write("small", *rows(small)), write("many", "gates = repeat(300) Gate;", "return gates(x);"), recompute="Gate")

with open(f"{WORK}.txt", "w") as f:
    f.write(MODEL)
assert bits(flat, f"{WORK}.txt") == bits(blocks, f"{WORK}.txt")
assert bits(pattern, f"{WORK}.txt") == bits(pairs, f"{WORK}.txt") == bits(group, f"{WORK}.txt")
