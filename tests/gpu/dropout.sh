#!/usr/bin/env bash
# Dropout on a GPU: tests/gpu/dropout.sh [BUILD]. Needs the build folder and a C compiler; PyTorch for its last part.
# Masks are those of the language's reference, element by element, of attention on tensor cores and without; losses and
# norms are PyTorch's with the same masks; capture, recomputation and a resume change no bit. Every op's kernels are
# compared with the evaluator by tests/gpu/ops.sh.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
timeout 280 python3 tests/run/dropout.py "$build/bin/heddlec" --target=cuda || bad=1
cat frontend/*/*.c passes/*/*.c | head -c 600000 > "$tmp/text.txt"
base="drop=0.1 layers=4 heads=4 dim=256 seq=256 vocab=256 train.batch=4 train.accumulate=2"
i=0
while read -r schedule; do
  sets=""
  for s in $base $schedule; do sets="$sets --set $s"; done
  timeout 60 "$build/bin/heddlec" examples/gpt2/gpt2.hd --target=cuda $sets -o "$tmp/p$i" || { bad=1; continue; }
  timeout 60 "$tmp/p$i" --data="$tmp/text.txt" --steps=8 --digest="$tmp/d$i" > /dev/null 2> "$tmp/log" ||
    { cat "$tmp/log"; bad=1; }
  cmp "$tmp/d0" "$tmp/d$i" && echo "same bits under '${schedule:-the example}'" || bad=1
  i=$((i + 1))
done <<'LIST'

schedule.recompute=none
schedule.recompute=Block
schedule.graph=none
LIST
timeout 60 "$tmp/p0" --data="$tmp/text.txt" --steps=5 --save="$tmp/c" > /dev/null 2>&1 &&
  timeout 60 "$tmp/p2" --data="$tmp/text.txt" --steps=8 --resume="$tmp/c" --digest="$tmp/r" > /dev/null 2>&1 &&
  sed 1,5d "$tmp/d0" | cmp - "$tmp/r" && echo "same bits resumed under another schedule" || bad=1
# What dropout costs: GPT-2 124M with it, with attention's kernels that it takes alone, and without.
for how in drop=0.1 drop=0.0 attention; do
  set -- --set "${how/attention/drop=0.0}"
  timeout 60 "$build/bin/heddlec" examples/gpt2/gpt2.hd --target=cuda --set train.batch=16 --set vocab=50304 "$@" \
    -o "$tmp/g" || bad=1
  env=(); [ "$how" = attention ] && env=(HEDDLE_ATTENTION=kernel)
  echo "GPT-2 124M B=16, $how:" \
    "$(env "${env[@]}" timeout 100 "$tmp/g" --data="$tmp/text.txt" --steps=40 2>&1 | grep -o '[0-9]* tok/s' | tail -1)"
done
if python3 -c 'import torch' 2> /dev/null; then
  timeout 280 python3 -W ignore tests/gpu/dropout_torch.py "$build/bin/heddlec" --target=cuda || bad=1
else
  echo "no PyTorch here: losses are not compared with it"
fi
exit $bad
