#!/usr/bin/env bash
# Every op's CUDA kernels against the evaluator, on a GPU: tests/gpu/ops.sh [BUILD]. Needs the build folder and a C
# compiler.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
bad=0
for d in f32 bf16 f16; do
  echo "== $d"
  timeout 280 "$build/bin/numeric_ops" --target=cuda --arch="${ARCH:-sm_90}" --device --dtypes=$d || bad=1
done
exit $bad
