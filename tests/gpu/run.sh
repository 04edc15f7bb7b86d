#!/usr/bin/env bash
# Checks and times programs on a GPU; builds nothing: tests/gpu/run.sh DIR [OUT] [NAME...]. DIR is what
# tests/gpu/build.sh made. For every program: two runs agree bit for bit; captured graphs and direct launches agree bit
# for bit; the generated attention kernels and untuned products agree within rounding, and so does the host target. Big
# ones (no host digest) are timed and profiled. One line a check on standard output, "FAIL" where it did not hold;
# everything else is in OUT.
set -u
here=$(cd "$(dirname "$0")" && pwd)
dir=$(realpath "${1:?usage: run.sh DIR [OUT] [NAME...]}")
out=${2:-$dir/out}
shift $(($# < 2 ? $# : 2))
mkdir -p "$out"
out=$(realpath "$out")
export HEDDLE_CACHE=${HEDDLE_CACHE:-$out/cache}
bad=0
say() { printf '%-28s %s\n' "$1" "$2"; }
fail() { say "$1" "FAIL: $2"; bad=1; }
# train LOG DIGEST args...: one run; the wall time is left in $took
train() {
  local log=$1 digest=$2 from; shift 2
  from=$(date +%s.%N)
  timeout 240 "$@" --digest="$digest" > "$log" 2>&1
  local rc=$?
  took=$(python3 -c "print('%.2f s' % ($(date +%s.%N) - $from))")
  [ $rc = 0 ] || { tail -5 "$log" | cut -c1-600; return $rc; }
}
same() { # same WHAT A B
  if cmp -s "$2" "$3"; then say "$1" "same bits"; else
    fail "$1" "digests differ, first at: $(diff "$2" "$3" | sed -n 2p)"; fi
}
near() { # near WHAT A B TOLERANCE
  if m=$(python3 "$here/near.py" "$2" "$3" "$4"); then say "$1" "$m"; else fail "$1" "$m"; fi
}
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader 2>/dev/null
if [ -x "$dir/cuda_runtime_check" ] && [ $# = 0 ]; then
  for pass in cold warm; do
    HEDDLE_VERBOSE=1 timeout 120 "$dir/cuda_runtime_check" "$out/check.json" > "$out/check.$pass.out" 2> \
      "$out/check.$pass.err" || bad=1; done
  cat "$out/check.warm.out"
  grep -E '^(note|attention)' "$out/check.warm.err"
fi
if [ -f "$dir/ops.so" ] && [ $# = 0 ]; then # every op against the evaluator
  timeout 400 "$dir/numeric_ops" --target=cuda --arch="${ARCH:-sm_90}" --device --load="$dir/ops.so" \
    > "$out/ops.out" 2>&1 &&
    say ops "$(tail -1 "$out/ops.out")" || fail ops "$(tail -3 "$out/ops.out")"
fi
names=("$@")
[ ${#names[@]} -gt 0 ] || names=($(cd "$dir" && ls -- *.run | sed 's/\.run$//'))
for n in "${names[@]}"; do
  read -r data steps < "$dir/$n.run"
  b=$dir/$n.cuda d=$out/$n
  big=$([ "$steps" = 0 ] && echo 1 || echo 0)
  [ $big = 1 ] && steps=6
  common=("$b" --data="$dir/$data" --seed=7 --steps="$steps")
  if ! HEDDLE_VERBOSE=1 train "$d.cold.log" "$d.cold" "${common[@]}"; then
    fail "$n" "does not run, see $d.cold.log"
    continue
  fi
  say "$n cold start" "$took, $(grep -o 'first step.*' "$d.cold.log" | head -1)"
  HEDDLE_VERBOSE=1 train "$d.warm.log" "$d.warm" "${common[@]}" || { fail "$n" "second run"; continue; }
  say "$n warm start" "$took, $(grep -o 'first step.*' "$d.warm.log" | head -1)"
  same "$n again" "$d.cold" "$d.warm"
  train "$d.direct.log" "$d.direct" "${common[@]}" --no-graph && same "$n graph, no graph" "$d.cold" "$d.direct" ||
    fail "$n" "--no-graph"
  loose=$(grep -q bf16 <<< "$n" || [ $big = 1 ] && echo 3e-2 || echo 2e-3)
  case $n in *micro|tiny-llama) loose=3e-2;; esac
  HEDDLE_ATTENTION=kernel train "$d.kernel.log" "$d.kernel" "${common[@]}" &&
    near "$n own attention" "$d.cold" "$d.kernel" 3e-2 || fail "$n" "HEDDLE_ATTENTION=kernel"
  HEDDLE_TUNE=0 train "$d.untuned.log" "$d.untuned" "${common[@]}" &&
    near "$n untuned" "$d.cold" "$d.untuned" "$loose" || fail "$n" "HEDDLE_TUNE=0"
  [ -f "$dir/$n.digest" ] && near "$n host target" "$dir/$n.digest" "$d.cold" "$loose"
  if [ $big = 1 ]; then
    train "$d.speed.log" "$d.speed" "${common[@]/--steps=*/--steps=40}" --log="$d.speed.jsonl" --log-every=10 ||
      fail "$n" "40 steps"
    tail -3 "$d.speed.log"
    HEDDLE_ATTENTION=kernel train "$d.speed2.log" "$d.speed2" "${common[@]/--steps=*/--steps=20}" --log-every=10 &&
      say "$n own attention" "$(tail -1 "$d.speed2.log")"
    train "$d.profile.log" "$d.profile" "${common[@]}" --profile="$d.trace.json" && grep -A14 '^op ' "$d.profile.log"
  fi
done
[ $bad = 0 ] && echo "all held" || echo "some did not hold"
exit $bad
