#!/usr/bin/env bash
# A stack of Mamba-2 layers (examples/hybrid, dim 2048, 24 layers, B=8 T=4096) on a GPU of sm_90: the time of a step,
# and in a profile of one that of its matmuls and of everything else.
#   tests/gpu/mamba.sh build [BUILD] [OUT]   where heddlec is: OUT/mamba.cuda and OUT/mamba.bin
#   tests/gpu/mamba.sh run [OUT]             on the GPU's machine
set -u
cd "$(dirname "$0")/../.."
if [ "${1:-}" = build ]; then
  out=${3:-build/gpu}
  mkdir -p "$out"
  python3 - "$out/mamba.bin" <<'P'
import sys
x, words = 1, bytearray()
for i in range(400000):
    x = (x * 6364136223846793005 + 1442695040888963407) % (1 << 64)
    words += int(500 * (x >> 40) ** 3 / (1 << 72)).to_bytes(2, "little")
open(sys.argv[1], "wb").write(words)
P
  sets="pattern=MMMMMMMMMMMMMMMMMMMMMMMM vocab=512 dim=2048 states=64 width=64 state=128 seq=4096"
  exec "${2:-build}/bin/heddlec" examples/hybrid/hybrid.hd --target=cuda --arch=sm_90 $(printf -- '--set %s ' $sets) \
    -o "$out/mamba.cuda"
fi
out=${2:-build/gpu}
run="timeout 200 $out/mamba.cuda --data=$out/mamba.bin --format=u16 --seed=7"
$run --steps=14 --log="$out/mamba.log" > "$out/mamba.out" 2>&1 || { tail -5 "$out/mamba.out"; exit 1; }
$run --steps=4 --profile="$out/mamba.json" > "$out/mamba.profile" 2>&1 || { tail -5 "$out/mamba.profile"; exit 1; }
python3 - "$out/mamba.log" "$out/mamba.json" <<'P'
import collections, json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
step = statistics.median(32768e3 / line["tokens_per_second"] for line in lines[6:] if "tokens_per_second" in line)
ms = collections.Counter()
trace = json.load(open(sys.argv[2]))
for e in trace["traceEvents"] if isinstance(trace, dict) else trace:
    if e.get("ph") == "X":
        ms[e["name"]] += e["dur"] / 1000
products = ms["gemm"]
print(f"a step {step:.1f} ms; matmuls alone {products:.1f} ms: {step / products:.2f} x; with ssd "
      f"{products + ms['ssd'] + ms['ssd_grad']:.1f} ms: {step / (products + ms['ssd'] + ms['ssd_grad']):.2f} x")
for name, t in ms.most_common(14):
    print(f"{t:9.2f} ms  {name}")
P
