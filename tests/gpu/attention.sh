#!/usr/bin/env bash
# Checks and times the attention kernels on a GPU: tests/gpu/attention.sh [OUT [SECONDS]]. Needs nvcc.
# ONLY: a pattern of names (kind-type-B-H-KV-T-D-causal-window-length). SECONDS: times each also after so many seconds
# without a pause, with the energy that it takes.
set -u
cd "$(dirname "$0")/../.."
out=${1:-/tmp} seconds=${2:-}
mkdir -p "$out"
target=${TARGET:--gencode=arch=compute_90a,code=sm_90a} # wgmma exists under the name sm_90a alone
# B H KV T D causal kernel type window length: the shapes of GPT-2 and Llama, grouped queries, lengths that fill
# no tile, small heads, windows, large heads
names=()
while read -r b h kv t d c kind elem window length; do
  [ -n "$b" ] || continue
  name=$kind-$elem-$b-$h-$kv-$t-$d-$c-${window:=0}-${length:=0}
  [[ $name =~ ${ONLY:-.} ]] || continue
  names+=("$name")
  {
    for n in FWD DELTA DKV DQ BEGIN ALL; do echo "#define ATT_$n att_$(echo $n | tr A-Z a-z)"; done
    echo "#define ATT_B $b"; echo "#define ATT_H $h"; echo "#define ATT_KV $kv"; echo "#define ATT_T $t"
    echo "#define ATT_D $d"; echo "#define ATT_CAUSAL $c"; echo "#define ATT_WINDOW $window"
    echo "#define ATT_DOCUMENTS $((length > 0))"; echo "#define ATT_LENGTH $length" # the mean of a document
    echo "#define ATT_SCALE $(python3 -c "print(repr($d ** -0.5) + 'f')")"
    echo "#define ATT_QS $((h * d))"; echo "#define ATT_KS $((kv * d))"; echo "#define ATT_VS $((kv * d))"
    echo "#define ATT_OS $((h * d))"
    case $kind in hopper | ordered) echo "#define ATT_HOPPER" ;; esac
    [ "$kind" = ordered ] && echo "#define ATT_ORDERED"
    [ "$kind" = any ] && { echo "#define ATT_ANY"; echo "#define ATT_ELEM $elem"; }
  } > "$out/$name.h"
  source=attention_test.cu
  [ "$kind" = forward ] && source=attention_forward_test.cu
  nvcc -std=c++17 $target -O2 -w -I. -include "$out/$name.h" "tests/gpu/$source" -o "$out/$name" \
    > "$out/$name.log" 2>&1 &
done <<'LIST'
32 12 12 1024 64 1 mma bf16
4 32 8 1024 64 1 mma bf16
2 16 8 1000 128 1 mma bf16
1 2 1 200 32 0 mma bf16
2 4 2 77 16 1 mma bf16
1 3 3 130 80 1 mma bf16
2 12 12 256 64 1 any float
1 4 2 77 20 1 any float
1 2 2 90 10 0 any bf16
1 2 1 50 256 1 any double
4 32 8 4096 128 1 mma bf16
4 32 8 4096 128 1 mma bf16 1024
4 32 8 4096 64 1 mma bf16 1024
2 4 2 1000 128 1 mma bf16 100
2 4 2 300 64 1 mma bf16 65
1 2 1 200 96 1 mma bf16 2
4 32 8 4096 96 1 mma bf16
2 16 8 1000 96 0 mma bf16
4 16 4 4096 256 1 mma bf16
2 4 2 1000 256 1 mma bf16 300
2 2 2 333 256 0 mma bf16
1 2 1 200 144 1 mma bf16
1 3 3 260 192 1 mma bf16
4 32 8 4096 128 1 mma bf16 0 500
4 32 8 4096 64 1 mma bf16 0 500
2 4 2 1000 64 1 mma bf16 0 70
2 4 2 1000 128 1 mma bf16 0 300
2 4 1 700 96 1 mma bf16 100 200
2 4 2 1000 256 1 mma bf16 0 100
2 4 2 333 256 1 mma bf16 50 20
1 4 2 177 20 1 any float 33 20
1 2 1 90 32 1 any double 0 10
1 4 2 177 20 1 any float 33
32 12 12 1024 64 1 hopper bf16
4 32 8 4096 64 1 hopper bf16
1 32 8 8192 128 1 hopper bf16
2 4 4 300 64 1 hopper bf16
1 4 1 200 128 0 hopper bf16
4 32 8 4096 128 1 hopper bf16 1024
4 32 8 4096 128 1 hopper bf16 0 500
4 32 8 4096 64 1 hopper bf16 1024
4 32 8 4096 64 1 hopper bf16 0 500
2 4 2 1000 128 1 hopper bf16 100
2 4 2 300 64 1 hopper bf16 65
1 2 1 200 64 1 hopper bf16 1
1 2 1 200 128 1 hopper bf16 1
1 3 3 130 128 1 hopper bf16 500
1 2 2 2000 128 1 hopper bf16 257
2 4 1 700 128 1 hopper bf16 100 200
2 4 1 700 64 1 hopper bf16 100 200
2 4 2 1000 64 1 hopper bf16 0 70
2 4 2 1000 128 1 hopper bf16 0 300
2 4 2 333 64 1 hopper bf16 50 20
2 4 2 333 128 1 hopper bf16 0 5
32 12 12 1024 64 1 ordered bf16
4 32 8 4096 64 1 ordered bf16
1 32 8 8192 128 1 ordered bf16
1 12 12 512 64 1 ordered bf16
4 12 12 1024 64 1 ordered bf16
2 4 4 300 64 1 ordered bf16
1 8 2 1000 128 1 ordered bf16
1 4 1 200 128 0 ordered bf16
2 6 3 500 64 0 ordered bf16
4 32 8 4096 64 1 ordered bf16 1024
4 32 8 4096 64 1 ordered bf16 0 500
4 32 8 4096 64 1 ordered bf16 0 3000
2 4 2 300 64 1 ordered bf16 65
1 2 1 200 64 1 ordered bf16 1
2 4 1 700 64 1 ordered bf16 100 200
2 4 2 1000 64 1 ordered bf16 0 70
2 4 2 333 64 1 ordered bf16 50 20
4 12 12 1000 64 1 ordered bf16 200 100
4 12 6 1024 64 1 ordered bf16 0 300
2 4 1 700 128 1 ordered bf16 100 200
2 16 16 1000 128 1 ordered bf16 300 100
4 32 8 4096 96 1 hopper bf16
4 16 4 4096 192 1 hopper bf16
4 16 4 4096 256 1 hopper bf16
4 16 4 4096 256 1 hopper bf16 1024
2 4 2 1000 96 1 hopper bf16
2 4 1 700 96 1 hopper bf16 100 200
1 4 1 200 96 0 hopper bf16
1 2 1 333 192 1 hopper bf16 50 20
2 4 2 700 256 1 hopper bf16
2 4 1 600 256 1 hopper bf16 100 200
1 4 1 200 256 0 hopper bf16
32 12 12 1024 64 1 forward bf16
4 32 8 4096 64 1 forward bf16
1 32 8 8192 128 1 forward bf16
4 32 8 4096 128 1 forward bf16
4 32 8 4096 128 1 forward bf16 1024
4 32 8 4096 128 1 forward bf16 0 500
4 32 8 4096 64 1 forward bf16 1024
4 32 8 4096 64 1 forward bf16 0 500
4 32 8 4096 96 1 forward bf16
4 16 4 4096 192 1 forward bf16
4 16 4 4096 256 1 forward bf16
4 16 4 4096 256 1 forward bf16 1024
2 4 2 300 64 1 forward bf16
2 4 2 1000 64 1 forward bf16 100
2 4 4 700 64 1 forward bf16 0 70
2 4 2 1000 64 0 forward bf16
1 4 2 200 128 1 forward bf16 65
2 4 2 1000 128 1 forward bf16 100 200
2 3 3 333 96 1 forward bf16
2 4 2 1000 96 1 forward bf16 300
2 4 2 1000 256 1 forward bf16
1 4 2 333 256 0 forward bf16
1 3 3 260 192 1 forward bf16 50 20
3 2 1 77 64 1 forward bf16
40 12 12 450 64 1 forward bf16 0 50
1 2 1 200 64 1 forward bf16 1
2 4 2 333 128 1 forward bf16 0 5
1 1 1 1 64 1 forward bf16
LIST
wait
for name in "${names[@]}"; do
  echo -n "${name%%-[0-9]*}: "
  timeout 100 "$out/$name" $seconds || { bad=1; tail -3 "$out/$name.log"; }
done
exit ${bad:-0}
