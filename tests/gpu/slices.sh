#!/usr/bin/env bash
# What slices of rows would gain under tensor parallelism: tests/gpu/slices.sh [RANKS]. Needs 2 (or RANKS) GPUs of one
# host, nvcc, NCCL 2.28 or later and cuBLASLt; no build folder. NCCL_HOME names NCCL's folder where it is not the
# compiler's. Blocks of Llama 8B and 70B at T=8192, whole and in slices, by NCCL's kernels and by copy engines. Takes a
# minute.
set -eu
cd "$(dirname "$0")"
ranks=${1:-2}
export NCCL_NVLS_ENABLE=0
nccl=${NCCL_HOME:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null || true)}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
nvcc -O2 -std=c++17 -arch=native slices.cu -o "$tmp/slices" ${nccl:+-I"$nccl/include" -L"$nccl/lib"} -l:libnccl.so.2 \
  -lcublasLt
export LD_LIBRARY_PATH=${nccl:+$nccl/lib:}${LD_LIBRARY_PATH:-}
blocks=32 # of NCCL's kernels, as in programs
"$tmp/slices" "$ranks" 8192 4096 32 14336 $blocks
"$tmp/slices" "$ranks" 8192 8192 64 28672 $blocks
