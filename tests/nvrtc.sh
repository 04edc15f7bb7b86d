#!/usr/bin/env bash
# Every CUDA text of the examples compiles for every architecture, and no kernel spills registers: tests/nvrtc.sh BUILD.
# Exit 77 (skipped) where NVRTC is not installed. HEDDLE_TEST_PART=N takes each seventh text (tests/run/part.py).
set -u
part=${HEDDLE_TEST_PART:-all} number=0
cd "$(dirname "$0")/.."
bin=$(realpath "${1:-build}")/bin
bad=0
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
while read -r name source settings; do
  [ -n "$name" ] || continue
  sets=""; for s in $settings; do sets="$sets --set $s"; done
  for arch in sm_80 sm_90 sm_100; do
    number=$((number + 1))
    [ "$part" = all ] || [ $(((number - part) % 7)) = 0 ] || continue
    if ! "$bin/heddlec" "$source" --target=cuda --arch=$arch $sets --emit=cuda -o "$work/$name.cu"; then
      echo "$name $arch: no CUDA text"; bad=1; continue; fi
    "$bin/nvrtc-check" --arch=$arch --no-spills "$work/$name.cu" > "$work/log" 2> "$work/errors"
    rc=$?
    [ $rc = 77 ] && { cat "$work/errors"; exit 77; }
    if [ $rc = 0 ]; then echo "$name $arch: $(wc -l < "$work/log") kernels"; else
      echo "$name $arch: FAIL"; head -20 "$work/errors"; grep -v ' 0 spilled' "$work/log"; bad=1; fi
  done
done <<'LIST'
tiny examples/tiny/tiny.hd
tiny-f16 examples/tiny/tiny.hd train.precision.compute=f16
gpt2 examples/gpt2/gpt2.hd
gpt2-xl examples/gpt2/gpt2.hd layers=2 heads=25 dim=1600 train.batch=4
llama examples/llama/llama.hd
llama-window examples/llama/llama.hd window=256
masks tests/run/masks.hd dim=256 seq=1024 window=100 packed=1 train.precision.compute=bf16
masks-128 tests/run/masks.hd dim=512 seq=300 packed=1 train.precision.compute=bf16
masks-96 tests/run/masks.hd dim=384 seq=300 window=100 packed=1 train.precision.compute=bf16
masks-256 tests/run/masks.hd dim=1024 seq=300 window=100 packed=1 train.precision.compute=bf16
packed tests/unit/plans/packed.hd vocab=256 dim=128 seq=256 train.precision.compute=bf16
moe examples/moe/olmoe.hd
moe-f32 examples/moe/deepseek.hd train.precision.compute=f32
moe-odd examples/moe/mixtral.hd dim=60 inner=33 heads=2 kv_heads=2 train.precision.compute=f16
LIST
[ $bad = 0 ] || echo "once more: HEDDLE_TEST_PART=$part tests/nvrtc.sh BUILD"
exit $bad
