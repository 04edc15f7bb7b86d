#!/usr/bin/env bash
# Products with an epilogue beside cuBLASLt, on one GPU of sm_90: tests/bench/product.sh [OUT] [SECONDS] [CASE...]
# Needs nvcc and cuBLASLt. Every kernel is checked first; then each case ("Llama 1.24B", "gated", all without one) is
# timed, cuBLASLt and each kernel in turns, for SECONDS each (0.5).
set -u
cd "$(dirname "$0")/../.."
out=${1:-/tmp} seconds=${2:-0.5}
shift $(($# < 2 ? $# : 2))
mkdir -p "$out"
cuda=$(dirname "$(dirname "$(command -v nvcc)")")
if [ ! -x "$out/product" ]; then
  nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -O2 -I. tests/bench/product.cu -o "$out/product" \
    -L"$cuda/lib64" -lcublasLt || exit 1
fi
export LD_LIBRARY_PATH=$cuda/lib64:${LD_LIBRARY_PATH:-}
bad=0
while read -r kernel; do
  timeout -k 1 20 "$out/product" check "$kernel" || { echo "$kernel: failed"; bad=1; }
done < <("$out/product" list)
timeout -k 1 "${LIMIT:-600}" "$out/product" time "$seconds" "$@" || bad=1
exit $bad
