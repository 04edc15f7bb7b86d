#!/usr/bin/env bash
# Checks and times the products by groups of rows on a GPU of sm_90: tests/gpu/grouped.sh [OUT [SECONDS]]. Needs nvcc.
# ONLY: a pattern of names (op-type-result-rows-groups-M-N-columns). SECONDS: the last shapes, those of experts, are
# also timed after so many seconds without a pause, with the energy that they take.
set -u
cd "$(dirname "$0")/../.."
out=${1:-/tmp} seconds=${2:-}
mkdir -p "$out"
names=()
# the product's kind, types, rows, groups, GW_M, GW_N, columns of a tile, whether it is timed
while read -r op type result rows groups m n cols timed; do
  [ -n "$op" ] || continue
  name=$op-$type-$result-$rows-$groups-$m-$n-$cols
  [[ $name =~ ${ONLY:-.} ]] || continue
  names+=("$name $timed")
  {
    echo "#define GW_T $type"; echo "#define GW_OUT $result"; echo "#define GW_ROWS $rows"
    echo "#define GW_GROUPS $groups"; echo "#define GW_M $m"; echo "#define GW_N $n"; echo "#define GW_COLS $cols"
    echo "#define GW_TB $([ "$op" = forward ] && echo 1 || echo 0)"
    echo "#define GW_GRAD $([ "$op" = dW ] && echo 1 || echo 0)"
  } > "$out/$name.h"
  nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -O2 -w -I. -include "$out/$name.h" tests/gpu/grouped_test.cu \
    -o "$out/$name" > "$out/$name.log" 2>&1 &
done <<'LIST'
forward bf16 bf16 1000 7 72 136 128
dX bf16 bf16 1000 7 72 136 128
dW bf16 bf16 1000 7 72 136 128
dW bf16 float 1000 7 72 136 128
forward f16 f16 1000 7 136 328 256
dX f16 f16 1000 7 136 328 256
dW f16 f16 1000 7 136 328 256
dW f16 float 1000 7 136 328 256
forward bf16 bf16 8 3 8 8 128
dX bf16 bf16 8 3 8 8 128
dW bf16 bf16 8 3 8 8 128
forward bf16 bf16 129 1 64 256 256
dW bf16 bf16 129 1 64 256 256
forward bf16 bf16 5000 64 1000 520 256
dX bf16 bf16 5000 64 1000 520 256
dW bf16 float 5000 64 1000 520 256
forward f16 f16 20000 300 264 392 128
dX f16 f16 20000 300 264 392 128
dW f16 f16 20000 300 264 392 128
forward bf16 bf16 262144 128 2048 1536 256 timed
dX bf16 bf16 262144 128 1536 2048 256 timed
dW bf16 bf16 262144 128 2048 1536 256 timed
forward bf16 bf16 262144 128 768 2048 256 timed
dX bf16 bf16 262144 128 2048 768 256 timed
dW bf16 bf16 262144 128 768 2048 256 timed
forward bf16 bf16 131072 64 2048 2048 256 timed
dX bf16 bf16 131072 64 2048 2048 256 timed
dW bf16 bf16 131072 64 2048 2048 256 timed
dW bf16 float 131072 64 2048 2048 256 timed
forward bf16 bf16 131072 64 1024 2048 256 timed
dX bf16 bf16 131072 64 2048 1024 256 timed
dW bf16 bf16 131072 64 1024 2048 256 timed
forward bf16 bf16 32768 8 2048 14336 256 timed
dX bf16 bf16 32768 8 14336 2048 256 timed
dW bf16 bf16 32768 8 2048 14336 256 timed
forward bf16 bf16 32768 8 7168 2048 256 timed
dX bf16 bf16 32768 8 2048 7168 256 timed
dW bf16 bf16 32768 8 7168 2048 256 timed
LIST
wait
bad=0
for each in "${names[@]}"; do
  read -r name timed <<< "$each"
  timeout -k 1 60 "$out/$name" ${timed:+$seconds} || { echo "$name: failed"; bad=1; tail -3 "$out/$name.log"; }
done
exit $bad
