#!/usr/bin/env bash
# The device model on a machine with GPUs, in one call: measures the machine and writes its table, compares predicted
# steps with measured ones by that table and by the one in the tree, and writes a measured and a predicted timeline.
#
#   tests/gpu/model.sh [OUT]      results in OUT (default: $OUT/model, else build/model); BUILD=build
#   LIMIT=150 seconds for calibrate; ONLY="GPT-2 124M" (models of tests/bench/predict.py whose names contain it)
# A machine without a C compiler: calibrate --build=FILE.so elsewhere first, and LOAD=FILE.so here.
# Some 2 minutes for the table and 4 for the comparison on two GPUs.
set -u
cd "$(dirname "$0")/../.."
out=${1:-${OUT:-build}/model}
mkdir -p "$out"
out=$(realpath "$out")
build=$(realpath "${BUILD:-build}")
bad=0
name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
echo "$(nvidia-smi -L | wc -l) x $name"
SECONDS=0
timeout -k 5 "${LIMIT:-150}" "$build/bin/calibrate" ${LOAD:+--load="$LOAD"} -o "$out/measured.dev" \
  2> "$out/calibrate.log" || { echo "FAIL: calibrate"; tail -3 "$out/calibrate.log"; bad=1; }
echo "calibrate: $SECONDS s; $(grep -c : "$out/measured.dev" 2>/dev/null) lines in $out/measured.dev"
for table in "$out/measured.dev" ""; do
  [ -z "$table" ] || [ -s "$table" ] || continue
  timeout -k 5 500 python3 tests/bench/predict.py "$build/bin/heddlec" ${table:+--device="$table"} --out="$out" \
    ${ONLY:+--only="$ONLY"} | tee "$out/predict${table:+.measured}.md"
  [ "${PIPESTATUS[0]}" = 0 ] || bad=1
done
model=(examples/gpt2/gpt2.hd --target=cuda --set train.batch=8)
"$build/bin/heddlec" "${model[@]}" --emit=timeline -o "$out/predicted.html" &&
  "$build/bin/heddlec" "${model[@]}" -o "$out/gpt2" || bad=1
python3 - "$out/tokens.bin" <<'P'
import random, sys
r = random.Random(0)
open(sys.argv[1], "wb").write(b"".join(r.randrange(32000).to_bytes(2, "little") for _ in range(1 << 18)))
P
timeout -k 5 120 "$out/gpt2" --data="$out/tokens.bin" --steps=4 --timeline="$out/measured.html" \
  > "$out/gpt2.log" 2>&1 || { echo "FAIL: a measured timeline: $(tail -1 "$out/gpt2.log")"; bad=1; }
rm -f "$out/gpt2" "$out/tokens.bin"
ls -l "$out"/*.html
exit $bad
