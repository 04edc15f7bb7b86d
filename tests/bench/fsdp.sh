#!/usr/bin/env bash
# GPT-2 1558M, zero3 over 1, 2, 4, ... GPUs of one host, B=16 T=1024 a rank, bf16: tokens/s per GPU beside one GPU and
# beside the same plan with its collectives left out (rank 0 at its own pace, and all ranks at that of the slowest GPU),
# exposed communication from a profile, memory planned and used, clock and power of GPU 0; PyTorch FSDP2 in the same
# run.
#
#   tests/bench/fsdp.sh [OUT]     logs in OUT (default: $OUT/fsdp, else build/fsdp); BUILD=build: where heddlec is
#   RANKS="1 2 4" (those that the host has GPUs for), LAYERS=48 HEADS=25 DIM=1600, BATCH=16, STEPS=20, PREFETCH=1,
#   LIVE=2, SETS="a=1 b=2", TORCH="block" (modes of torch_fsdp2.py --compile, empty to leave it out),
#   HEDDLE_NCCL_CTAS=16
# On a machine of 2 GPUs: RANKS="1 2" tests/bench/fsdp.sh     of 4: RANKS="4" TORCH= tests/bench/fsdp.sh
# RANKS="1 2" takes some 5 minutes.
set -u
cd "$(dirname "$0")/../.."
out=${1:-${OUT:-build}/fsdp}
heddlec=$(realpath "${BUILD:-build}")/bin/heddlec
layers=${LAYERS:-48} heads=${HEADS:-25} dim=${DIM:-1600} batch=${BATCH:-16} steps=${STEPS:-20}
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HEDDLE_CACHE=${HEDDLE_CACHE:-$work/cache}
python3 - "$work/tokens.bin" <<'P'
import random, sys
r = random.Random(0)
open(sys.argv[1], "wb").write(b"".join(r.randrange(50257).to_bytes(2, "little") for _ in range(1 << 20)))
P
nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv,noheader 2>/dev/null
have=$(nvidia-smi -L 2>/dev/null | wc -l)
# speed LOG: median step in ms, tokens/s of one rank, and how GPU 0 ran meanwhile
speed() {
  python3 - "$1" "$batch" "${1%.jsonl}.smi" <<'P'
import json, statistics, sys
rows = [r for r in map(json.loads, open(sys.argv[1])) if "loss" in r]
rows = rows[min(5, len(rows) // 2):]
s = statistics.median(r["seconds"] for r in rows)
best = min(r["seconds"] for r in rows)
print(f"{1e3 * s:.2f} ms a step (best {1e3 * best:.2f}), {int(sys.argv[2]) * 1024 / s:,.0f} tokens/s a GPU, "
      f"loss {rows[-1]['loss']:.4f}", end="")
samples = [tuple(map(float, line.split(","))) for line in open(sys.argv[3]) if line.count(",") == 1]
busy = [x for x in samples if x[1] > 0.8 * max(p for _, p in samples)] if samples else []
if busy:
    clock, power = (statistics.median(column) for column in zip(*busy))
    print(f", {clock:.0f} MHz at {power:.0f} W", end="")
print()
P
}
run() { # run RANKS LOG args...
  local ranks=$1 log=$2; shift 2
  rm -f "$out/$log.jsonl"
  nvidia-smi -i 0 --query-gpu=clocks.sm,power.draw --format=csv,noheader,nounits -lms 250 > \
    "$out/$log.smi" 2>/dev/null &
  local watcher=$! rc=0
  timeout -k 5 300 "$work/p$ranks" --data="$work/tokens.bin" \
    $([ "$ranks" -gt 1 ] && echo --ranks="$ranks") "$@" > "$out/$log.log" 2>&1 || rc=$?
  kill "$watcher" 2>/dev/null
  [ "$rc" = 0 ] || { echo "FAIL: $log: $(tail -2 "$out/$log.log" | cut -c1-400)"; return 1; }
}
for n in ${RANKS:-1 2 4 8}; do
  [ "$n" -le "$have" ] || continue
  sets=()
  for s in layers=$layers heads=$heads dim=$dim train.batch=$batch schedule.mesh.shard=$n schedule.fsdp=zero3 \
    schedule.fsdp.unit=Block schedule.prefetch=${PREFETCH:-1} schedule.live_grads=${LIVE:-2} ${SETS:-}; do
    sets+=(--set "$s")
  done
  "$heddlec" examples/gpt2/gpt2.hd --target=cuda "${sets[@]}" -o "$work/p$n" > "$out/compile$n.log" 2>&1 ||
    { echo "$n ranks: does not compile: $(head -3 "$out/compile$n.log")"; continue; }
  "$work/p$n" --report=json > "$out/report$n.json" 2>/dev/null
  HEDDLE_VERBOSE=1 run "$n" "run$n" --steps="$steps" --log="$out/run$n.jsonl" || continue
  echo "$n ranks: $(speed "$out/run$n.jsonl")"
  echo "$n ranks: $(grep 'device memory of rank 0' "$out/run$n.log")"
  python3 - "$out/run$n.log" <<'P'
import re, sys
for line in open(sys.argv[1]):
    m = re.search(r"device memory of rank (\d+): ([\d.]+) MiB planned, ([\d.]+) MiB used \(arena ([\d.]+), "
                  r"context ([\d.]+), kernels and libraries ([\d.]+), NCCL ([\d.]+), "
                  r"graphs and the rest ([\d.-]+)", line)
    if m and m[1] == "0":
        planned, used, arena, context, libraries, nccl, rest = map(float, m.groups()[1:])
        own = used - context - libraries - nccl
        print(f"  predicted {planned:.1f} MiB, measured without context, libraries and NCCL {own:.1f} MiB: "
              f"{100 * (own - planned) / planned:+.2f} %")
P
  if [ "$n" -gt 1 ]; then
    HEDDLE_SKIP_COLLECTIVES=1 run "$n" "silent$n" --steps="$steps" --log="$out/silent$n.jsonl" &&
      echo "$n ranks, no communication: $(speed "$out/silent$n.jsonl")"
    HEDDLE_SKIP_COLLECTIVES=large run "$n" "paced$n" --steps="$steps" --log="$out/paced$n.jsonl" &&
      echo "$n ranks, none but the loss, so that all go at one pace: $(speed "$out/paced$n.jsonl")"
  fi
  run "$n" "profile$n" --steps=3 --profile="$work/trace$n.json" &&
    grep -E '^(step |all_gather|reduce_scatter|wait|all )' "$out/profile$n.log" | sed "s/^/$n ranks, profile: /"
  gzip -c "$work/trace$n.json" > "$out/trace$n.json.gz" 2>/dev/null
  size=$([ "$layers $dim" = "48 1600" ] && echo 1558M || echo 124M)
  for mode in ${TORCH-block}; do
    [ "$n" -gt 1 ] || continue
    echo "$n ranks, PyTorch FSDP2, compile $mode: $(timeout -k 5 280 python3 -m torch.distributed.run --standalone \
      --nproc-per-node="$n" tests/bench/torch_fsdp2.py --size=$size --batch="$batch" --compile="$mode" 2> \
        "$out/torch$n.$mode.log" | tail -1)"
  done
done
