#!/usr/bin/env bash
# Checks and times the kernels of state-space duality on tensor cores on a GPU of sm_90: tests/gpu/ssd.sh [OUT]. Needs
# nvcc. DATA: a folder for the inputs and exact results of the fourth shape.
set -u
cd "$(dirname "$0")/../.."
out=${1:-/tmp}
mkdir -p "$out"
names=()
# batch, positions, heads, groups, elements of a state, documents, blocks that share the heads of a group; timed
while read -r batch seq heads groups state packed splits timed; do
  [ -n "$batch" ] || continue
  name=ssd-$batch-$seq-$heads-$groups-$state-$packed-$splits
  names+=("$name $timed")
  {
    echo "#define SC_BATCH $batch"; echo "#define SC_SEQ $seq"; echo "#define SC_HEADS $heads"
    echo "#define SC_GROUPS $groups"; echo "#define SC_STATE $state"; echo "#define SC_PACKED $packed"
    echo "#define SC_SPLITS $splits"
  } > "$out/$name.h"
  nvcc -std=c++17 -arch=sm_90 -O2 -w -I. -include "$out/$name.h" tests/gpu/ssd_test.cu -o "$out/$name" \
    > "$out/$name.log" 2>&1 &
done <<'LIST'
2 200 4 2 128 1 2 0
1 520 6 1 64 0 1 0
2 390 8 2 64 1 3 0
1 1024 8 1 128 0 1 0
1 65 3 3 128 1 1 0
8 4096 80 1 128 0 1 1
1 8192 128 8 128 0 1 1
1 2048 24 1 128 0 9 1
8 2048 24 1 128 0 2 1
LIST
wait
bad=0
for each in "${names[@]}"; do
  read -r name timed <<< "$each"
  [[ $name == ssd-1-1024* ]] && data=${DATA:-} || data=
  timeout -k 1 60 "$out/$name" "$timed" ${data:+"$data"} || { echo "$name: failed"; bad=1; tail -3 "$out/$name.log"; }
done
exit $bad
