#!/usr/bin/env bash
# Collectives of values, and copies between the memories of device and host, on a GPU: tests/run/values.py edits the IR
# of a step, and the programs have the bits of the unedited one and losses near those of the host target.
#
#   tests/gpu/values.sh [BUILD]             on one GPU; with two or more, also 2 ranks (3 minutes at most)
#   ONE_GPU=1 tests/gpu/values.sh [BUILD]   2 ranks on one GPU, with the stand-in for NCCL of tests/gpu/one_gpu
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
bad=0
values() { timeout -k 5 180 python3 tests/run/values.py . "$build/bin" --target=cuda "$@" || bad=1; }
values --ranks=1
if [ "${ONE_GPU:-0}" = 1 ]; then
  export HEDDLE_SHARE_GPUS=1 HEDDLE_CUDA_PATH=$build/lib/one_gpu${HEDDLE_CUDA_PATH:+:$HEDDLE_CUDA_PATH}
  values --ranks=2
elif [ "$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)" -ge 2 ]; then
  values --ranks=2
fi
exit $bad
