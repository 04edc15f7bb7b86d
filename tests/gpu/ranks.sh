#!/usr/bin/env bash
# Programs of several ranks on GPUs of one host: bitwise matrices, checkpoints from N ranks to M, launchers, and ranks
# that die, stop or do not fit. Needs heddlec and libheddle_rt.a (BUILD=build: build/bin/heddlec,
# build/lib/libheddle_rt.a), a C compiler and N GPUs.
#
#   tests/gpu/ranks.sh N [OUT]        all parts with N ranks (2, 4, 8); logs in OUT (default: $OUT/ranksN, else
#                                     build/gpu/ranksN)
#   PARTS="matrix resume failures launchers start" chooses; JOBS=8 compilations at once; SETS="layers=2": more settings
#   of the matrix: DTYPES="f32 bf16"; ACCUMULATE="1 3"; MODES="graph direct", or MODES=turns: the rows take the two in
#   turn, which is half the runs; HEDDLE_TEST_PART=1 to 7: of the matrix the first row of each mesh and a seventh of the
#   others
#   ONE_GPU=1  the ranks share the GPUs there are, with the stand-in for NCCL of tests/gpu/one_gpu (checked first, part
#              "stand_in"); by default PARTS="stand_in matrix resume", MODES=turns, and products are not timed
#              (HEDDLE_TUNE=0)
# On a machine of 2 GPUs:  tests/gpu/ranks.sh 2     of 4:  tests/gpu/ranks.sh 4     Some 4 minutes each.
# 8 ranks on one GPU:  ONE_GPU=1 tests/gpu/ranks.sh 8
# One line a check; "FAIL" where it did not hold. Exit status 0: all held.
set -u
cd "$(dirname "$0")/../.."
n=${1:?usage: ranks.sh N [OUT]}
out=${2:-${OUT:-build/gpu}/ranks$n}
mkdir -p "$out"
out=$(realpath "$out")
heddlec=$(realpath "${BUILD:-build}")/bin/heddlec
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HEDDLE_CACHE=${HEDDLE_CACHE:-$work/cache}
bad=0
one_gpu=${ONE_GPU:-0}
if [ "$one_gpu" = 1 ]; then
  PARTS=${PARTS:-stand_in matrix resume} MODES=${MODES:-turns}
  export HEDDLE_SHARE_GPUS=1 HEDDLE_TUNE=${HEDDLE_TUNE:-0}
fi
parts=" ${PARTS:-matrix resume failures launchers start} "
say() { printf '%-34s %s\n' "$1" "$2"; }
fail() { say "$1" "FAIL: $2"; bad=1; }
log() { echo "$out/$1.log"; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c
cat frontend/*/*.c passes/*/*.c runtime/*/*.c | head -c 400000 > "$work/text.txt"

# build NAME SETTING...: a program from examples/tiny; many at once, collected by built
build() {
  local name=$1 s sets=(); shift
  for s in "$@"; do sets+=(--set "$s"); done
  ( "$heddlec" examples/tiny/tiny.hd --target=cuda --arch="${ARCH:-sm_90}" "${sets[@]}" -o "$work/$name" > \
    "$work/$name.build" 2>&1 || { echo "cannot build $name:"; head -5 "$work/$name.build"; } ) &
  while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-8}" ]; do wait -n; done
}
# run NAME LOG args...: the program with N ranks
run() {
  local name=$1 to; to=$(log "$2"); shift 2
  timeout -k 5 900 "$work/$name" --data="$work/text.txt" --seed=7 "$@" > "$to" 2>&1
}
# mesh SHARD REPLICATE STRATEGY PREFETCH LIVE ACCUMULATE DTYPE [WEIGHTS]: the settings of a program
mesh() {
  echo "schedule.mesh.shard=$1 schedule.mesh.replicate=$2 schedule.fsdp=$3 schedule.fsdp.unit=Block" \
    "schedule.prefetch=$4 schedule.live_grads=$5 train.accumulate=$6 train.precision.compute=$7 train.batch=4" \
    "schedule.fsdp.weights=${8:-auto} ${SETS:-}"
}

# --- a library that lets ranks share a GPU
stand_in_build() {
  local flags=(-std=gnu11 -O3 -Wall -Wextra -Wno-unknown-pragmas -I.)
  mkdir -p "$work/nccl"
  "${CC:-cc}" "${flags[@]}" -fPIC -shared -Wl,-soname,libnccl.so.2 tests/gpu/one_gpu/nccl.c tests/gpu/one_gpu/sum.c \
    runtime/host/copy.c runtime/dtypes.c -o "$work/nccl/libnccl.so.2" -ldl -lpthread || exit 2
  "${CC:-cc}" "${flags[@]}" tests/gpu/one_gpu/check.c "$(dirname "$heddlec")/../lib/libheddle_rt.a" -o \
    "$work/one_gpu_check" -lm -ldl -lpthread || exit 2
  export HEDDLE_CUDA_PATH=$work/nccl${HEDDLE_CUDA_PATH:+:$HEDDLE_CUDA_PATH}
}
stand_in() {
  local line
  if ! timeout -k 5 900 "$work/one_gpu_check" "$n" > "$(log stand-in)" 2>&1; then
    fail "stand-in for NCCL" "$(tail -3 "$(log stand-in)" | tr '\n' ' ')"; return; fi
  while read -r line; do say "stand-in for NCCL" "$line"; done < "$(log stand-in)"
}
[ "$one_gpu" = 1 ] && stand_in_build

# --- the same numbers from every strategy
matrix_rows() { # name: what mesh takes
  local d m a s
  for d in ${DTYPES:-f32 bf16}; do
    for a in ${ACCUMULATE:-1 3}; do
      for s in none zero1 zero2 zero3; do echo "$s-a$a-$d $n 1 $s 1 2 $a $d"; done
      for m in "0 1" "2 1" "3 3"; do echo "zero3-p${m% *}-l${m#* }-a$a-$d $n 1 zero3 $m $a $d"; done
      echo "zero2-l1-a$a-$d $n 1 zero2 0 1 $a $d"
      [ "$d" = f32 ] || { # gathers that round, in windows and for the next step
        echo "zero3-master-a$a-$d $n 1 zero3 1 2 $a $d master"
        echo "zero3-p0-master-a$a-$d $n 1 zero3 0 2 $a $d master"
        echo "zero1-master-a$a-$d $n 1 zero1 1 2 $a $d master"; }
      [ "$n" -ge 4 ] && for s in none zero2 zero3; do echo "hybrid-$s-a$a-$d $((n / 2)) 2 $s 1 2 $a $d"; done
    done
  done
}
chosen_rows() { # all, or with HEDDLE_TEST_PART=N the first of each group and each seventh of the others
  local part=${HEDDLE_TEST_PART:-all} row g others=0
  declare -A seen
  while read -r row; do
    g=$(group $row)
    if [ "$part" = all ] || [ -z "${seen[$g]:-}" ]; then echo "$row"
    else [ $(((others - part) % 7)) != 0 ] || echo "$row"; others=$((others + 1)); fi
    seen[$g]=1
  done < <(matrix_rows)
}
group() { echo "$2-a$7-$8"; } # which programs must agree: all strategies of a mesh, a dtype and an accumulate
matrix() {
  local row name rest first g modes=${MODES:-graph direct} turn=direct
  declare -A of
  while read -r row; do read -r name rest <<< "$row"; build "$name" $(mesh $rest); done < <(chosen_rows)
  wait
  while read -r row; do
    read -r name rest <<< "$row"
    g=$(group $row)
    if [ "$turn" = graph ]; then turn=direct; else turn=graph; fi
    for mode in ${modes/turns/$turn}; do
      local d=$out/$name.$mode.digest args=()
      [ $mode = direct ] && args=(--no-graph)
      if ! run "$name" "$name.$mode" --ranks="$n" --steps=4 --digest="$d" "${args[@]}"; then
        fail "$name $mode" "$(tail -1 "$(log "$name.$mode")" | cut -c1-300)"; continue; fi
      first=${of[$g]:-}
      if [ -z "$first" ]; then
        of[$g]=$d
        say "$name $mode" "the reference of $g, $(tail -1 "$(log "$name.$mode")" | cut -c1-90)"
      elif cmp -s "$first" "$d"; then say "$name $mode" "same bits as $(basename "$first" .digest)"
      else fail "$name $mode" "differs from $(basename "$first" .digest) at: $(diff "$first" "$d" | sed -n 2p)"; fi
    done
  done < <(chosen_rows)
  # and the host's ranks, within rounding
  local like
  for like in graph direct; do [ -f "$out/zero3-a1-f32.$like.digest" ] && break; done
  if [ ! -f "$out/zero3-a1-f32.$like.digest" ]; then say "host ranks" "not compared: no run of zero3-a1-f32"
  elif "$heddlec" examples/tiny/tiny.hd $(for s in $(mesh "$n" 1 zero3 1 2 1 f32); do echo --set "$s"; done) \
    -o "$work/host" > "$(log host.build)" 2>&1 &&
    run host host --ranks="$n" --steps=4 --digest="$out/host.digest"; then
    if m=$(python3 tests/gpu/near.py "$out/host.digest" "$out/zero3-a1-f32.$like.digest" 2e-3); then
      say "host ranks" "$m"; else fail "host ranks" "$m"; fi
  else say "host ranks" "not compared: $(tail -1 "$(log host)" 2>/dev/null | cut -c1-200)"; fi
}

# --- checkpoints: the same mesh bit for bit, others close
resume() {
  local half=$((n / 2)) d
  build save $(mesh "$n" 1 zero3 1 2 1 f32)
  build other $(mesh "$n" 1 zero2 1 2 1 f32)
  build fewer $(mesh "$half" 1 zero3 1 2 1 f32)
  wait
  run save save.whole --ranks="$n" --steps=6 --digest="$out/whole.digest" &&
    run save save.first --ranks="$n" --steps=3 --save="$work/ck" &&
    run save save.second --ranks="$n" --steps=6 --resume="$work/ck" --digest="$out/second.digest" ||
      { fail "save, resume" "$(tail -1 "$(log save.second)")"; return; }
  if cmp -s <(grep -vE '^[123] ' "$out/whole.digest") <(grep -vE '^[123] ' "$out/second.digest"); then
    say "resume, $n ranks" "same bits"
  else fail "resume, $n ranks" "$(diff "$out/whole.digest" "$out/second.digest" | tail -3 | tr '\n' ' ')"; fi
  for d in other fewer; do
    local ranks=$n; [ $d = fewer ] && ranks=$half
    if run $d "resume.$d" --ranks="$ranks" --steps=6 --resume="$work/ck" --digest="$out/$d.digest"; then
      say "resume as $d, $ranks ranks" "$(tail -1 "$(log "resume.$d")" | cut -c1-100)"
    else fail "resume as $d, $ranks ranks" "$(tail -1 "$(log "resume.$d")")"; fi
  done
  find "$work/ck" -name '*.safetensors' | sort | tail -1 | xargs -r rm
  if run save resume.missing --ranks="$n" --steps=6 --resume="$work/ck"; then fail "a missing shard" "was not noticed"
  else say "a missing shard" \
    "$(grep -c '^error' "$(log resume.missing)") message: $(grep '^error' "$(log resume.missing)" | head -1 |
      cut -c1-200)"; fi
}

# --- ranks that go wrong in the middle
first_step() { # first_step LOG PID: waits until a step was told; false when the program is gone, or after ten minutes
  for _ in $(seq 6000); do grep -q '^step' "$1" && return 0; kill -0 "$2" 2>/dev/null || return 1; sleep 0.1; done
  return 1
}
one_failure() { # one_failure NAME SIGNAL WHICH PATTERN args...
  local name=$1 signal=$2 which=$3 pattern=$4 to pid victim from took rc left; shift 4
  to=$(log "$name")
  "$work/long" --data="$work/text.txt" --ranks="$n" --steps=1000000 --log-every=20 "$@" > "$to" 2>&1 &
  pid=$!
  first_step "$to" $pid ||
    { fail "$name" "did not start: $(tail -1 "$to" | cut -c1-200)"; kill -9 $pid 2>/dev/null; return; }
  victim=$(pgrep -P $pid | sed -n "${which}p")
  sleep 1
  from=$(date +%s.%N)
  kill -"$signal" "$victim"
  wait $pid 2>/dev/null; rc=$?
  took=$(python3 -c "print('%.1f' % ($(date +%s.%N) - $from))")
  left=$(pgrep -f "^$work/long" | wc -l)
  if [ $rc != 0 ] && [ "$left" = 0 ] && python3 -c "exit($took > 30)" &&
    grep -qE "$pattern" "$to"; then
      say "$name" "all gone in $took s, status $rc: $(grep -E "$pattern" "$to" | head -1 | cut -c1-200)"
  else fail "$name" "status $rc, $took s, $left processes left, said: $(grep '^error' "$to" | cut -c1-300 |
    tr '\n' '|')"; pgrep -f "^$work/long" | xargs -r kill -9; fi
}
failures() {
  build long $(mesh "$n" 1 zero3 1 2 1 bf16)
  wait
  local lost='^error: rank [0-9]+ died at step [0-9]+' \
    mute='^error: rank [0-9]+ does not answer \(for 2[0-9] s\) at step [0-9]+'
  one_failure kill-1 KILL 2 "$lost.*; not completed: "
  one_failure kill-0 KILL 1 "$lost.*; not completed: "
  one_failure kill-1-direct KILL 2 "$lost.*; not completed: " --no-graph
  one_failure stop-1 STOP 2 "$mute.*; not completed: "
  one_failure stop-0 STOP 1 "$mute.*; not completed: "
  one_failure terminate TERM 2 'ended by signal|stopped by signal|died' # one rank alone is told to stop: all stop
  local to pid rc; to=$(log interrupt)
  # a script's background jobs ignore this signal, and so would the program
  env --default-signal=INT "$work/long" --data="$work/text.txt" --ranks="$n" --steps=1000000 --save="$work/saved" > \
    "$to" 2>&1 &
  pid=$!
  first_step "$to" $pid || { fail "interrupt" "did not start"; return; }
  kill -INT $pid; wait $pid; rc=$?
  if [ $rc = 130 ] && [ -n "$(ls "$work/saved" 2>/dev/null)" ]; then say "interrupt" "saved and left with 130"; else
    fail "interrupt" "status $rc: $(tail -1 "$to")"; fi
  "$work/long" --data="$work/text.txt" --ranks="$n" --steps=1000000 > "$(log orphans)" 2>&1 &
  pid=$!
  first_step "$(log orphans)" $pid || { fail "first process killed" "did not start"; return; }
  kill -KILL $pid; wait $pid 2>/dev/null; sleep 2
  if pgrep -f "^$work/long" > /dev/null; then
    fail "first process killed" "ranks are left"
    pgrep -f "^$work/long" | xargs -r kill -9
  else say "first process killed" "no rank is left"; fi
}

# --- other launchers, the same bits
launchers() {
  build plain $(mesh "$n" 1 zero3 1 2 1 f32)
  wait
  local args=("$work/plain" --data="$work/text.txt" --seed=7 --steps=4) how
  run plain by-ranks --ranks="$n" --steps=4 --digest="$out/by-ranks.digest" ||
    { fail "--ranks" "$(tail -1 "$(log by-ranks)")"; return; }
  declare -A command=(
    [mpirun]="mpirun --allow-run-as-root --oversubscribe -n $n"
    [torchrun]="torchrun --standalone --no-python --nproc-per-node=$n")
  command -v torchrun > /dev/null ||
    command[torchrun]="python3 -m torch.distributed.run --standalone --no-python --nproc-per-node=$n"
  for how in mpirun torchrun; do
    case $how in mpirun) command -v mpirun;; *) python3 -c 'import torch';; esac > /dev/null 2>&1 ||
      { say "$how" "is not installed"; continue; }
    if timeout -k 5 900 ${command[$how]} "${args[@]}" --digest="$out/$how.digest" > "$(log $how)" 2>&1 &&
      cmp -s "$out/by-ranks.digest" "$out/$how.digest"; then say "$how" "same bits"
    else fail "$how" "$(tail -2 "$(log $how)" | cut -c1-300)"; fi
  done
}

# --- runs that cannot start: one message, no hang
refused() { # refused NAME PATTERN LOG: what the ranks together said
  local name=$1 pattern=$2 to=$3 n_lines
  n_lines=$(grep -c '^error' "$to")
  if grep -qE "$pattern" "$to" &&
    [ "$n_lines" = 1 ]; then say "$name" "$(grep '^error' "$to" | cut -c1-200)"; else
      fail "$name" "$n_lines messages: $(head -3 "$to" | cut -c1-300)"; fi
}
start() {
  local to r port=$((20000 + RANDOM % 9000)) server
  build plain $(mesh "$n" 1 zero3 1 2 1 f32)
  build another $(mesh "$n" 1 zero3 2 2 1 f32)
  wait
  run plain wrong-ranks --ranks=$((n + 1)) --steps=1
  refused "wrong number of ranks" "compiled for $n ranks" "$(log wrong-ranks)"
  to=$(log other-binary); : > "$to"
  for r in $(seq 0 $((n - 1))); do
    local which=plain; [ "$r" = 1 ] && which=another
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=$n MASTER_PORT=$port timeout 900 "$work/$which" --data="$work/text.txt" \
      --steps=1 >> "$to" 2>&1 &
  done
  wait
  refused "different binaries" "runs another program: plan" "$to"
  python3 -c "
import socket, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('127.0.0.1', $port))
s.listen(); time.sleep(900)" &
  server=$!
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || ! kill -0 $server 2>/dev/null; do sleep 0.05; done
  HEDDLE_PORT=$port run plain port-in-use --ranks="$n" --steps=1
  refused "port in use" "Address already in use" "$(log port-in-use)"
  kill $server; wait $server 2>/dev/null
  [ "$one_gpu" = 1 ] && return
  to=$(log one-gpu)
  CUDA_VISIBLE_DEVICES=0 run plain one-gpu --ranks="$n" --steps=1
  refused "fewer GPUs than ranks" "both on GPU|GPUs: start at most" "$to"
}
for part in stand_in matrix resume launchers start failures; do
  case $parts in *" $part "*) echo "== $part"; SECONDS=0; $part; echo "== $part: $SECONDS s";; esac
done
[ $bad = 0 ] && echo "all held" || echo "some did not hold"
exit $bad
