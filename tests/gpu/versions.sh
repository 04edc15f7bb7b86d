#!/usr/bin/env bash
# Two versions of Heddle on the same GPUs in one run: the same bits, and how fast each is.
#
#   tests/gpu/versions.sh BEFORE AFTER [OUT]
# BEFORE and AFTER are folders of Heddle with runtime/*.h, build/bin/heddlec, build/lib and examples/.
#
# RANKS="1 2" (those that the host has GPUs for); SPEED="gpt2 fsdp llama", empty to leave timing out; ROUNDS=3;
# STEPS=40; BITS=0 leaves the bitwise part out. AFTER_SETS="train.reduce=each": more settings that only AFTER knows.
# Programs run in turns (before, after, before, ...), so that a GPU that becomes warm slows both down. One line a check,
# "FAIL" where bits differ; exit status 0: all bits are equal. Times are for a person to judge.
set -u
before=$(realpath "${1:?usage: versions.sh BEFORE AFTER [OUT]}")
after=$(realpath "${2:?usage: versions.sh BEFORE AFTER [OUT]}")
out=${3:-${OUT:-/tmp}/versions}
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HEDDLE_CACHE=$work/cache
bad=0
have=$(nvidia-smi -L 2>/dev/null | wc -l)
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c
python3 - "$work" <<'P'
import random, sys
r = random.Random(0)
tokens = b"".join(r.randrange(32000).to_bytes(2, "little") for _ in range(1 << 21))
open(sys.argv[1] + "/tokens.bin", "wb").write(tokens)
open(sys.argv[1] + "/small.txt", "wb").write(bytes(r.randrange(256) for _ in range(400000)))
P
say() { printf '%-44s %s\n' "$1" "$2"; }

# build NAME SOURCE SETTING...: NAME.before and NAME.after, in the background
build() {
  local name=$1 source=$2 s which sets=()
  shift 2
  for s in "$@"; do sets+=(--set "$s"); done
  for which in before after; do
    local more=()
    if [ $which = after ]; then
      for s in ${AFTER_SETS:-}; do more+=(--set "$s"); done
      case $name in none-*-a3|zero1-*-a3) for s in ${LATE_SETS:-}; do more+=(--set "$s"); done ;; esac
    fi
    ( cd "${!which}" && build/bin/heddlec "examples/$source" --target=cuda --arch="${ARCH:-sm_90}" "${sets[@]}" \
      "${more[@]}" -o "$work/$name.$which" > "$out/$name.$which.build" 2>&1 ||
      { say "$name" "FAIL: $which does not build"; head -3 "$out/$name.$which.build"; } ) &
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-8}" ]; do wait -n; done
  done
}
run() { # NAME WHICH args...
  local name=$1 which=$2
  shift 2
  timeout -k 5 150 "$work/$name.$which" --seed=7 "$@" > "$out/$name.$which.log" 2>&1
}

bits() {
  local n=$1 rows=() row name source settings s a d
  for d in f32 bf16; do
    for a in 1 3; do
      local common="train.precision.compute=$d train.accumulate=$a train.batch=4"
      if [ "$n" = 1 ]; then
        rows+=("tiny-$d-a$a tiny/tiny.hd $common" \
          "gpt2-$d-a$a gpt2/gpt2.hd vocab=256 layers=3 heads=4 dim=256 seq=256 $common")
        rows+=("llama-$d-a$a llama/llama.hd vocab=256 layers=2 heads=4 kv_heads=2 dim=256 hidden=512 seq=128 $common")
        rows+=("recompute-$d-a$a tiny/tiny.hd schedule.recompute=Block.mlp,Block.ln1 $common")
      else
        for s in none zero1 zero2 zero3; do
          rows+=("$s-$n-$d-a$a tiny/tiny.hd schedule.mesh.shard=$n schedule.fsdp=$s schedule.fsdp.unit=Block $common")
        done
      fi
    done
  done
  for row in "${rows[@]}"; do
    read -r name source settings <<< "$row"
    build "$name" "$source" $settings
  done
  wait
  for row in "${rows[@]}"; do
    read -r name source settings <<< "$row"
    for which in before after; do
      run "$name" $which --data="$work/small.txt" --steps=6 --digest="$work/$name.$which.digest" $([ "$n" = 1 ] ||
        echo "--ranks=$n") ||
        { say "$name" "FAIL: $which does not run"; tail -2 "$out/$name.$which.log"; bad=1; }
    done
    if cmp -s "$work/$name.before.digest" "$work/$name.after.digest"; then say "$name" "same bits"; else
      say "$name" "FAIL: other bits"; bad=1; fi
  done
}

# speed NAME RANKS BATCH SEQ SOURCE SETTING...
speed() {
  local name=$1 n=$2 batch=$3 seq=$4 source=$5 round which
  shift 5
  build "$name" "$source" train.batch="$batch" "$@"
  wait
  for round in $(seq "${ROUNDS:-3}"); do
    for which in before after; do
      run "$name" $which --data="$work/tokens.bin" --steps="${STEPS:-40}" --log="$out/$name.$which.$round.jsonl" \
        $([ "$n" = 1 ] || echo "--ranks=$n") ||
        { say "$name" "FAIL: $which does not run"; tail -3 "$out/$name.$which.log"; bad=1; return; }
    done
  done
  python3 - "$name" "$out" "${ROUNDS:-3}" "$batch" "$seq" <<'P'
import json, statistics, sys
name, out, rounds, batch, seq = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
def median(which, r):
    rows = [x for x in map(json.loads, open(f"{out}/{name}.{which}.{r}.jsonl")) if "loss" in x]
    return statistics.median(x["seconds"] for x in rows[len(rows) // 4:])
before, after = ([median(w, r) for r in range(1, rounds + 1)] for w in ("before", "after"))
b, a = statistics.median(before), statistics.median(after)
rounds = " ".join(f"{1e3 * x:.2f}/{1e3 * y:.2f}" for x, y in zip(before, after))
print(f"{name:<44} before {1e3 * b:.2f} ms, after {1e3 * a:.2f} ms: {100 * (a / b - 1):+.2f} % "
      f"({batch * seq / a:,.0f} tokens/s a GPU; rounds {rounds})")
P
}

for n in ${RANKS:-1 2}; do
  [ "$n" -le "$have" ] || continue
  [ "${BITS:-1}" = 0 ] || bits "$n"
done
for s in ${SPEED-gpt2 fsdp}; do
  case $s in
    gpt2) speed gpt2-124m-b32 1 32 1024 gpt2/gpt2.hd ;;
    llama) speed llama-1b-b4 1 4 4096 llama/llama.hd layers=16 heads=32 kv_heads=8 dim=2048 hidden=8192 seq=4096 ;;
    fsdp) [ "$have" -ge 2 ] &&
      speed gpt2-1558m-zero3-2 2 16 1024 gpt2/gpt2.hd layers=48 heads=25 dim=1600 schedule.mesh.shard=2 \
        schedule.fsdp=zero3 schedule.fsdp.unit=Block schedule.prefetch=1 schedule.live_grads=2 ;;
  esac
done
[ $bad = 0 ] && echo "the same bits" || echo "not the same bits"
exit $bad
