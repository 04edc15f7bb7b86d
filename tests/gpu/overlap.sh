#!/usr/bin/env bash
# Micro-batches that overlap (schedule.fsdp.overlap_micro), on N GPUs of one host: the same bits with and without, under
# graph none, unit and step, and what a step takes with each. Needs heddlec and libheddle_rt.a (BUILD=build), a C
# compiler and N GPUs.
#
#   tests/gpu/overlap.sh [N] [OUT]    N ranks (default 2); logs in OUT (default: $OUT/overlap, else build/gpu/overlap)
#   PARTS="bits times" chooses; LAYERS=24 DIM=1024 HEADS=16 BATCH=4: the model that is timed; STEPS=30, ROUNDS=3
# Some 4 minutes on 2 GPUs. One line a check; "FAIL" where it did not hold. Exit status 0: all held.
set -u
cd "$(dirname "$0")/../.."
n=${1:-2}
out=${2:-${OUT:-build/gpu}/overlap}
mkdir -p "$out"
heddlec=${BUILD:-build}/bin/heddlec
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HEDDLE_CACHE=${HEDDLE_CACHE:-$work/cache}
bad=0
say() { printf '%-34s %s\n' "$1" "$2"; }
fail() { say "$1" "FAIL: $2"; bad=1; }

# build NAME EXAMPLE SETTING...
build() {
  local name=$1 example=$2 sets=() s; shift 2
  for s in "$@"; do sets+=(--set "$s"); done
  "$heddlec" "examples/$example/$example.hd" --target=cuda --arch="${ARCH:-sm_90}" "${sets[@]}" -o "$work/$name" \
    > "$out/$name.build" 2>&1 || { fail "$name" "cannot build: $(head -1 "$out/$name.build")"; return 1; }
}

bits() {
  local s a g o first name
  cat frontend/*/*.c passes/*/*.c | head -c 400000 > "$work/text.txt"
  for s in zero2 zero3; do
    for a in 2 4; do
      first=
      for g in step none unit; do
        for o in off on; do
          name=$s-a$a-$g-$o
          build "$name" tiny schedule.mesh.shard="$n" schedule.fsdp=$s schedule.fsdp.unit=Block train.accumulate=$a \
            schedule.graph=$g schedule.fsdp.overlap_micro=$o train.compute=bf16 train.batch=4 || continue
          if ! timeout -k 5 100 "$work/$name" --data="$work/text.txt" --ranks="$n" --steps=6 --seed=7 \
            --digest="$out/$name.digest" > "$out/$name.log" 2>&1; then
            fail "$name" "$(tail -1 "$out/$name.log" | cut -c1-300)"
          elif [ -z "$first" ]; then first=$name; say "$name" "the reference"
          elif cmp -s "$out/$first.digest" "$out/$name.digest"; then say "$name" "same bits as $first"
          else fail "$name" "differs from $first"; fi
        done
      done
    done
  done
}

# Each program in turn, ROUNDS times; of each the best rate after the first steps.
times() {
  local s g o name round rate
  python3 -c "
import random
r = random.Random(1)
open('$work/tokens.bin', 'wb').write(b''.join(r.randrange(50257).to_bytes(2, 'little') for _ in range(2000000)))"
  for s in zero2 zero3; do for g in none unit; do for o in off on; do
    build "time-$s-$g-$o" gpt2 layers="${LAYERS:-24}" dim="${DIM:-1024}" heads="${HEADS:-16}" \
      train.batch="${BATCH:-4}" \
      train.accumulate=4 schedule.mesh.shard="$n" schedule.fsdp=$s schedule.fsdp.unit=Block schedule.graph=$g \
      schedule.fsdp.overlap_micro=$o
    "$work/time-$s-$g-$o" --report 2>/dev/null | grep -E '^device memory|runs on beside|^ .*stream reduce' | cut -c1-150
  done; done; done
  for round in $(seq "${ROUNDS:-3}"); do
    for s in zero2 zero3; do for g in none unit; do for o in off on; do
      name=time-$s-$g-$o
      if ! timeout -k 5 100 "$work/$name" --data="$work/tokens.bin" --ranks="$n" --steps="${STEPS:-30}" --seed=7 \
        --log="$out/$name.$round.json" --digest="$out/$name.digest" > "$out/$name.log" 2>&1; then
        fail "$name" "$(tail -1 "$out/$name.log" | cut -c1-300)"; continue; fi
      rate=$(grep -o '[0-9.k]* tok/s' "$out/$name.log" | tail -1)
      say "$name, round $round" "$rate"
      cmp -s "$out/time-$s-none-off.digest" "$out/$name.digest" || fail "$name" "differs from time-$s-none-off"
    done; done; done
  done
}

for part in ${PARTS:-bits times}; do $part; done
exit $bad
