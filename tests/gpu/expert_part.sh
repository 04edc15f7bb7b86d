#!/usr/bin/env bash
# The expert part of a layer of Qwen3-30B-A3B, 32,768 tokens: tests/gpu/expert_part.sh [BUILD] [SETTING...]. Needs the
# build folder, a C compiler and some 30 GiB of memory. What a profiled step says of gather, gate and up, activation,
# down and combine, forward and backward: milliseconds a layer, and TFLOP/s of the products alone over all of that time.
# TARGET=host runs it on a CPU, for small settings.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
shift
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
sets=()
for s in "$@"; do sets+=(--set "$s"); done
python3 - "$tmp/tokens" <<'P'
import array, random, sys
draw = random.Random(0)
with open(sys.argv[1], "wb") as f:
    f.write(array.array("H", (draw.randrange(500) for _ in range(1 << 19))).tobytes())
P
target=${TARGET:-cuda}
timeout 100 "$build/bin/heddlec" tests/gpu/expert_part.hd --target="$target" "${sets[@]}" -o "$tmp/part" || exit 1
for turn in 1 2; do
  timeout 100 "$tmp/part" --data="$tmp/tokens" --format=u16 --steps=12 --profile="$tmp/profile.json" \
    > "$tmp/log" 2>&1 || { tail -5 "$tmp/log"; exit 1; }
  python3 - "$tmp/profile.json" <<'P'
import collections, json, sys
events = json.load(open(sys.argv[1]))
events = events["traceEvents"] if isinstance(events, dict) else events
ROUTER = ("gemm", "top_k", "dispatch", "softmax", "update")
took, backward, layers = [collections.Counter(), collections.Counter()], False, set()
for e in sorted((e for e in events if e.get("ph") == "X"), key=lambda e: e["ts"]):
    backward |= e["name"].startswith("cross_entropy")
    path = e["args"].get("path", "")
    if not path.startswith("blocks.") or any(word in e["name"] for word in ROUTER):
        continue
    layers.add(path.split(".")[1])
    took[backward][e["name"]] += e["dur"] / 1e3
    if e["name"].startswith("grouped"):
        took[backward]["flops"] += e["args"]["flops"] / 1e9
whole = flops = 0
for name, part in zip(("forward", "backward"), took):
    work = part.pop("flops")
    ms = sum(part.values())
    whole, flops = whole + ms, flops + work
    print(f"{name}: {ms / len(layers):.3f} ms a layer, {work / ms:.0f} TFLOP/s;",
          ", ".join(f"{k} {v / len(layers):.3f}" for k, v in part.most_common()))
print(f"both: {whole / len(layers):.3f} ms a layer, {flops / whole:.0f} TFLOP/s")
P
done
