#!/usr/bin/env bash
# Prepares what tests/gpu/run.sh needs, on a machine that has the compiler: tests/gpu/build.sh [BUILD] [OUT].
# OUT/NAME.cuda are programs for the GPU, OUT/NAME.digest what the host target makes of the first steps (numbers to
# agree with), OUT/text.txt and OUT/tokens.bin the data. The names and settings are in the table below; only those that
# compile are kept.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
out=${2:-build/gpu}
arch=${ARCH:-sm_90}
mkdir -p "$out"
cat frontend/*/*.c passes/*/*.c runtime/*/*.c | head -c 1000000 > "$out/text.txt"
python3 - "$out/tokens.bin" <<'P'
import sys
x, words = 1, bytearray()
for i in range(3000000):  # a skewed distribution, so that the loss has something to learn
    x = (x * 6364136223846793005 + 1442695040888963407) % (1 << 64)
    u = (x >> 40) / (1 << 24)
    words += int(32000 * u * u * u).to_bytes(2, "little")
open(sys.argv[1], "wb").write(words)
P
cp "$build/bin/cuda_runtime_check" "$build/bin/numeric_ops" "$out/"
"$build/bin/numeric_ops" --target=cuda --arch="$arch" --build="$out/ops.so" ||
  echo "cannot build the cases of numeric_ops"
# name, data, steps of the reference (0: none, too slow on a CPU), source, settings
while read -r name data steps source settings; do
  [ -n "$name" ] || continue
  sets=""; for s in $settings; do sets="$sets --set $s"; done
  if ! "$build/bin/heddlec" "$source" --target=cuda --arch="$arch" $sets -o "$out/$name.cuda"; then
    echo "cannot build $name"; continue; fi
  echo "$data $steps" > "$out/$name.run"
  if [ "$steps" -gt 0 ] && "$build/bin/heddlec" "$source" $sets -o "$out/$name.host"; then
    "$out/$name.host" --data="$out/$data" --steps="$steps" --seed=7 --digest="$out/$name.digest" > \
      "$out/$name.host.log" 2>&1 || rm -f "$out/$name.digest"
  fi
  rm -f "$out/$name.host"
done <<LIST
tiny text.txt 5 examples/tiny/tiny.hd train.batch=4
tiny-bf16 text.txt 5 examples/tiny/tiny.hd train.batch=4 train.precision.compute=bf16
tiny-micro text.txt 3 examples/tiny/tiny.hd train.batch=2 train.accumulate=3 train.clip=1 train.precision.compute=bf16
tiny-llama text.txt 3 examples/llama/llama.hd vocab=256 layers=2 heads=4 kv_heads=2 dim=256 hidden=512 seq=128 \
  train.batch=2
tiny-llama-f32 text.txt 3 examples/llama/llama.hd vocab=256 layers=2 heads=4 kv_heads=2 dim=256 hidden=512 seq=128 \
  train.batch=2 train.precision.compute=f32
gpt2 tokens.bin 0 examples/gpt2/gpt2.hd
llama tokens.bin 0 examples/llama/llama.hd
LIST
ls -la "$out"
