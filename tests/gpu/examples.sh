#!/usr/bin/env bash
# Programs of the examples on one GPU, with what they can be combined with: tests/gpu/examples.sh [BUILD]. Needs the
# build folder and a C compiler. Six steps of each, twice and without graphs, have one digest. TARGET=host runs them on
# a CPU, ONLY=NAME one of them. Takes 2 minutes.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
python3 - "$tmp/tokens" <<'P'
import array, random, sys
draw = random.Random(0)
with open(sys.argv[1], "wb") as f:
    f.write(array.array("H", (int(4000 * draw.random() ** 3) for _ in range(1 << 20))).tobytes())
P
groups='group "*.qkv", "*.proj", "*.fc" muon { }'
decay="    weight_decay = 0.1;"
sed "s/  optimizer adamw {/  optimizer { default adamw {/; s/^$decay\$/$decay } $groups/" examples/gpt2/gpt2.hd \
  > "$tmp/muon.hd"
list() {
  local gpt2="layers=4" llama="layers=3" llama3="size=1 layers=2 dim=1024 heads=8 kv_heads=4 seq=1024"
  local moe="layers=2 dim=512 heads=8 seq=512"
  local fp8="train.precision.fp8=Block,Llama3.head train.precision.fp8.backward=e4m3"
  cat <<L
gpt2-f32 examples/gpt2/gpt2.hd $gpt2 train.compute=f32
gpt2-dropout examples/gpt2/gpt2.hd $gpt2 drop=0.1 train.accumulate=2
muon $tmp/muon.hd $gpt2
muon-recompute $tmp/muon.hd $gpt2 train.accumulate=2 schedule.recompute=Block
fp8 examples/llama3/llama3.hd $llama3 $fp8 train.precision.fp8.weight_grads=fp8 train.precision.fp8.weights=once \
schedule.fp8_counts=on
fp8-block examples/llama3/llama3.hd $llama3 $fp8 train.precision.fp8.weight_grads=fp8 train.precision.fp8.scale=block \
train.products=merged schedule.recompute=Block
kahan examples/llama3/llama3.hd $llama3 train.precision.master=kahan train.precision.moments=bf16
llama-recompute examples/llama/llama.hd $llama schedule.recompute=Block schedule.graph=unit
llama-offload examples/llama/llama.hd $llama schedule.offload=auto
olmoe examples/moe/olmoe.hd $moe experts=16 inner=256 active=4
mixtral examples/moe/mixtral.hd $moe experts=8 inner=512 active=2
deepseek examples/moe/deepseek.hd layers=3
hybrid examples/hybrid/hybrid.hd
mtp examples/mtp/mtp.hd
lora examples/lora/lora.hd
L
}
while read -r name source settings; do
  [ "${ONLY:-$name}" = "$name" ] || continue
  sets=(--set vocab=4096 --set train.batch=4)
  for s in $settings; do sets+=(--set "$s"); done
  timeout 150 "$build/bin/heddlec" "$source" --target="${TARGET:-cuda}" "${sets[@]}" -o "$tmp/$name" ||
    { bad=1; continue; }
  for run in first again no-graph; do
    option=()
    [ $run = no-graph ] && option=(--no-graph)
    timeout 120 "$tmp/$name" --data="$tmp/tokens" --format=u16 --steps=6 --seed=3 --digest="$tmp/$run" "${option[@]}" \
      > "$tmp/log" 2>&1 || { echo "$name, $run: $(tail -2 "$tmp/log")"; bad=1; }
  done
  if cmp "$tmp/first" "$tmp/again" && cmp "$tmp/first" "$tmp/no-graph"; then
    echo "same bits: $name, $(grep -o '^step 6.*norm [0-9.]*' "$tmp/log")"
  else bad=1; fi
  rm -f "$tmp/first" "$tmp/again" "$tmp/no-graph"
done < <(list)
exit $bad
