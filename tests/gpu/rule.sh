#!/usr/bin/env bash
# The rule on a GPU: a schedule changes no bit of the result. tests/gpu/rule.sh [BUILD]: needs heddlec and a C compiler
# there. One model and train block under several schedules, captured and not, resumed and not; every digest must be the
# same file.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat frontend/*/*.c passes/*/*.c | head -c 600000 > "$tmp/text.txt"
bad=0
for compute in bf16 f32; do
  base="layers=4 heads=4 dim=256 seq=256 vocab=256 train.batch=4 train.accumulate=2 train.precision.compute=$compute"
  i=0
  while read -r schedule; do
    sets=""
    for s in $base $schedule; do sets="$sets --set $s"; done
    "$build/bin/heddlec" examples/gpt2/gpt2.hd --target=cuda $sets -o "$tmp/p$i" || { bad=1; continue; }
    "$tmp/p$i" --data="$tmp/text.txt" --steps=8 --digest="$tmp/d$i" >/dev/null 2>"$tmp/log" ||
      { cat "$tmp/log"; bad=1; }
    cmp "$tmp/d0" "$tmp/d$i" && echo "$compute: same bits under '${schedule:-the example}'" || bad=1
    i=$((i + 1))
  done <<'LIST'

schedule.recompute=Block.mlp.act,Block.ln1,Block.ln2
schedule.recompute=Block
schedule.graph=none
LIST
  "$tmp/p0" --data="$tmp/text.txt" --steps=5 --save="$tmp/c" >/dev/null 2>&1 &&
    "$tmp/p2" --data="$tmp/text.txt" --steps=8 --resume="$tmp/c" --digest="$tmp/r" >/dev/null 2>&1 &&
    sed 1,5d "$tmp/d0" | cmp - "$tmp/r" && echo "$compute: same bits resumed under another schedule" || bad=1
done
exit $bad
