#!/usr/bin/env bash
# The expert part of a layer of Qwen3-30B-A3B, 32,768 tokens: tests/gpu/expert_part.sh [BUILD] [SETTING...]. Needs the
# build folder, a C compiler and some 30 GiB of memory. What a profiled step says of gather, gate and up, activation,
# down and combine, forward and backward: milliseconds a layer, and TFLOP/s of the products alone over all of that time.
# Not counted: the router, and the residual's add, forward and backward. TARGET=host runs it on a CPU, for small
# settings.
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
COUNTED = ("take", "grouped", "silu", "combine")  # the part's operations, by their names in expert_part.hd
took, gflop, backward, layers = [collections.Counter(), collections.Counter()], [0, 0], False, set()
for e in sorted((e for e in events if e.get("ph") == "X"), key=lambda e: e["ts"]):
    backward |= e["name"].startswith("cross_entropy")
    path = e["args"].get("path", "")
    if not path.startswith("blocks.") or not any(word in e["name"] for word in COUNTED):
        continue
    layers.add(path.split(".")[1])
    took[backward][e["name"]] += e["dur"] / 1e3
    if e["name"].startswith("grouped"):  # a GPU's profile counts in GFLOP, a host's in FLOP
        gflop[backward] += e["args"]["gflop"] if "gflop" in e["args"] else e["args"]["flops"] / 1e9
whole = 0
for name, part, work in zip(("forward", "backward"), took, gflop):
    ms = sum(part.values())
    whole += ms
    print(f"{name}: {ms / len(layers):.3f} ms a layer, {work / ms:.0f} TFLOP/s;",
          ", ".join(f"{k} {v / len(layers):.3f}" for k, v in part.most_common()))
print(f"both: {whole / len(layers):.3f} ms a layer, {sum(gflop) / whole:.0f} TFLOP/s")
P
done
