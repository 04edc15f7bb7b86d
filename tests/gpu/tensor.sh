#!/usr/bin/env bash
# Tensor parallelism on two GPUs: tests/gpu/tensor.sh [BUILD]. Needs the build folder, a C compiler and NCCL.
# A small Llama on tensor 2, in bf16 and f32: graph none, step and unit and recompute Block have one digest, with
# sequence on another one, and the losses of f32 are those of one GPU. Then the step of Llama 8B, T=4096: tensor 2 with
# B=1, also with sequence on, and B=2, beside zero3, B=1 a rank. HEDDLE_SMALL=0 and HEDDLE_LARGE=0 leave one of the two
# out. Takes 5 minutes; the large ones need 78 GiB a GPU.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
python3 - "$tmp" <<'P'
import array, random, sys
draw = random.Random(0)
for name, kind, vocab, n in (("large", "I", 128256, 1 << 19), ("small", "H", 500, 1 << 16)):
    with open(f"{sys.argv[1]}/{name}", "wb") as f:
        f.write(array.array(kind, (draw.randrange(vocab) for _ in range(n))).tobytes())
P
# program NAME EXAMPLE SETTING...
program() {
  local name=$1 example=$2 sets=() s
  shift 2
  for s in "$@"; do sets+=(--set "$s"); done
  timeout 100 "$build/bin/heddlec" "examples/$example/$example.hd" --target=cuda "${sets[@]}" -o "$tmp/$name" || bad=1
}
small() { # NAME RANKS SETTING...
  local name=$1 ranks=$2
  shift 2
  program "$name" llama layers=3 dim=256 heads=4 kv_heads=2 hidden=512 vocab=512 seq=256 train.batch=2 "$@"
  timeout 60 "$tmp/$name" --data="$tmp/small" --format=u16 --steps=12 --ranks="$ranks" --digest="$tmp/$name.digest" \
    > /dev/null 2> "$tmp/log" || { cat "$tmp/log"; bad=1; }
}
if [ "${HEDDLE_SMALL:-1}" != 0 ]; then
for dtype in bf16 f32; do
  small "one-$dtype" 1 "train.compute=$dtype"
  for more in schedule.graph=none schedule.graph=step schedule.graph=unit schedule.recompute=Block; do
    name="$dtype-${more#schedule.}"
    small "$name" 2 "train.compute=$dtype" schedule.mesh.tensor=2 "$more"
    cmp "$tmp/$dtype-graph=none.digest" "$tmp/$name.digest" && echo "same bits: $name" || bad=1
    small "$name-sequence" 2 "train.compute=$dtype" schedule.mesh.tensor=2 schedule.sequence=on "$more"
    cmp "$tmp/$dtype-graph=none-sequence.digest" "$tmp/$name-sequence.digest" &&
      echo "same bits: $name, sequence on" || bad=1
  done
done
for two in f32-graph=none f32-graph=none-sequence; do python3 - "$tmp/one-f32.digest" "$tmp/$two.digest" <<'P' || bad=1
import sys
one, two = ([float.fromhex(x.split()[1]) for x in open(p) if not x.startswith("param")] for p in sys.argv[1:3])
far = max(abs(a - b) / a for a, b in zip(one, two))
print(f"losses in f32, 2 GPUs beside 1: at most {far:.1e} away")
sys.exit(far > 1e-6 or len(one) != 12)
P
done
fi
large() { # NAME SETTING...
  local name=$1
  shift
  program "$name" llama3 size=8 seq=4096 "$@"
  timeout 120 "$tmp/$name" --data="$tmp/large" --format=u32 --steps=16 --ranks=2 --log="$tmp/$name.jsonl" > /dev/null \
    2> "$tmp/log" || { cat "$tmp/log"; bad=1; }
  python3 - "$tmp/$name.jsonl" "$name" <<'P' || bad=1
import json, statistics, sys
rows = [r for r in map(json.loads, open(sys.argv[1])) if "seconds" in r]
print(f"{sys.argv[2]}: {1e3 * statistics.median(r['seconds'] for r in rows[5:]):.2f} ms a step")
P
}
if [ "${HEDDLE_LARGE:-1}" != 0 ]; then
  large tensor-b1 schedule.mesh.tensor=2 train.batch=1 schedule.recompute=auto
  large sequence-b1 schedule.mesh.tensor=2 train.batch=1 schedule.recompute=auto schedule.sequence=on
  large tensor-b2 schedule.mesh.tensor=2 train.batch=2 schedule.recompute=Block
  large zero3-b1 schedule.mesh.shard=2 schedule.fsdp=zero3 schedule.fsdp.unit=Block schedule.prefetch=1 \
    schedule.recompute=auto schedule.fsdp.weights=master train.batch=1
fi
exit $bad
