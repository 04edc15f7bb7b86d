#!/usr/bin/env bash
# GPT-2 124M, B=32 T=1024, bf16 on one GPU, beside PyTorch's torch.compile in the same run.
#   tests/bench/gpt2.sh [OUT]      BUILD=build: where heddlec is; ANCHORS=../shared/anchors: torch_single.py; STEPS=60
#   TORCH="compile graph": PyTorch's modes, empty to leave it out
# Prints: start to the end of the first step (cold and with the cache), median step, tokens/s, memory.
set -u
cd "$(dirname "$0")/../.."
out=${1:-/tmp/heddle-bench}
build=${BUILD:-build}
steps=${STEPS:-60}
batch=${BATCH:-32}
mkdir -p "$out"
python3 -c "
import numpy as np
np.random.default_rng(0).integers(0, 50257, size=4 << 20).astype('<u2').tofile('$out/tokens.bin')" || exit 1
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo "compile: $( { time "$build/bin/heddlec" examples/gpt2/gpt2.hd --target=cuda --set train.batch=$batch ${SETS:-} \
  -o "$out/gpt2"; } 2>&1 | grep real | tr -s '\t' ' ')"
export HEDDLE_CACHE="$out/cache"
rm -rf "$HEDDLE_CACHE"
start() { # seconds from the start of the process to the end of its first step
  local t0 t1
  t0=$(date +%s.%N)
  "$out/gpt2" --data="$out/tokens.bin" --steps=1 >"$out/$1.log" 2>&1 || { cat "$out/$1.log"; return 1; }
  t1=$(date +%s.%N)
  echo "$1 start: $(grep -o 'first step done [0-9.]* s' "$out/$1.log"); whole process $(echo "$t1 - $t0" |
    bc -l 2>/dev/null || python3 -c "print($t1 - $t0)") s"
}
start cold || exit 1
start warm
( for _ in $(seq 1 60); do nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits; sleep 0.25
done ) > "$out/memory.txt" 2>/dev/null &
watch=$!
"$out/gpt2" --data="$out/tokens.bin" --steps=$steps --log="$out/log.jsonl" > "$out/run.log" 2>&1 || cat "$out/run.log"
kill $watch 2>/dev/null
tail -3 "$out/run.log"
python3 - <<PY
import json, statistics
rows = [json.loads(l) for l in open("$out/log.jsonl")]
rows = [r for r in rows if "loss" in r][10:]
s = statistics.median(r["seconds"] for r in rows)
best = min(r["seconds"] for r in rows)
used = max(int(x) for x in open("$out/memory.txt").read().split())
print(f"heddle: {1e3 * s:.2f} ms a step (best {1e3 * best:.2f}), {$batch * 1024 / s:,.0f} tok/s, "
      f"loss {rows[-1]['loss']:.4f}; device memory in use {used / 1024:.2f} GiB with the context")
PY
"$out/gpt2" --report=json > "$out/report.json" && python3 -c "
import json
r = json.load(open('$out/report.json'))
print({k: (round(v / 2**30, 3) if k.endswith('bytes') else v) for k, v in r.items()
       if k.endswith('bytes') or k in ('verified', 'kernels')})"
for mode in ${TORCH-compile graph}; do
  python3 "${ANCHORS:-../shared/anchors}/torch_single.py" gpt2 $mode $batch 1024 2>/dev/null; done
