#!/usr/bin/env bash
# What the recipes of FP8 cost on one GPU: tests/bench/fp8_recipes.sh BUILD [STEPS [NAME...]]. Needs the build folder, a
# C compiler and the package nvidia-ml-py. Llama 1.24B, B=4 T=4096: milliseconds, joules and watts of a step, and the
# planned GiB, of each recipe in two turns (default: 60 steps, all recipes). Takes 4 minutes.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
steps=${2:-60}
shift $(($# > 2 ? 2 : $#))
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 - "$tmp/tokens" <<'P'
import array, random, sys
draw = random.Random(7)
with open(sys.argv[1], "wb") as f:
    f.write(array.array("H", (draw.randrange(60000) for _ in range(1 << 21))).tobytes())
P
fp8="fp8=Block fp8.backward=e4m3"
recipes() { # NAME SETTING... of train.precision
  cat <<L
bf16
row $fp8
row-weights $fp8 fp8.weight_grads=fp8
row-once $fp8 fp8.weight_grads=fp8 fp8.weights=once
tensor $fp8 fp8.scale=tensor
tensor-weights $fp8 fp8.scale=tensor fp8.weight_grads=fp8
block $fp8 fp8.scale=block
block-weights $fp8 fp8.scale=block fp8.weight_grads=fp8
L
}
[ $# -gt 0 ] || set -- $(recipes | cut -d' ' -f1)
for turn in 1 2; do
  while read -r name settings; do
    [[ " $* " == *" $name "* ]] || continue
    if [ ! -e "$tmp/$name" ]; then
      sets=(--set size=1 --set seq=4096 --set train.batch=4 --set train.products=merged --set schedule.recompute=auto)
      for s in $settings; do sets+=(--set "train.precision.$s"); done
      timeout 100 "$build/bin/heddlec" examples/llama3/llama3.hd --target=cuda "${sets[@]}" -o "$tmp/$name" || continue
    fi
    echo "$name: $(timeout 100 python3 tests/bench/energy.py "$tmp/$name" --data="$tmp/tokens" --format=u16 --seed=1 \
      --steps="$steps"), $("$tmp/$name" --report | grep -o -m1 '[0-9.]* GiB')"
  done < <(recipes)
done
