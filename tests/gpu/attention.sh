#!/usr/bin/env bash
# Checks and times the attention kernels on a GPU: tests/gpu/attention.sh [OUT]. Needs nvcc.
set -u
cd "$(dirname "$0")/../.."
out=${1:-/tmp}
mkdir -p "$out"
target=${TARGET:--gencode=arch=compute_90a,code=sm_90a} # wgmma exists under the name sm_90a alone
# B H KV T D causal kernel: the shapes of GPT-2, grouped queries, lengths that fill no tile, small heads
while read -r b h kv t d c kind elem; do
  [ -n "$b" ] || continue
  scale=$(python3 -c "print(repr($d ** -0.5) + 'f')")
  {
    for n in FWD DELTA DKV DQ; do echo "#define ATT_$n att_$(echo $n | tr A-Z a-z)"; done
    echo "#define ATT_B $b"; echo "#define ATT_H $h"; echo "#define ATT_KV $kv"; echo "#define ATT_T $t"
    echo "#define ATT_D $d"; echo "#define ATT_CAUSAL $c"; echo "#define ATT_SCALE $scale"
    echo "#define ATT_QS $((h * d))"; echo "#define ATT_KS $((kv * d))"; echo "#define ATT_VS $((kv * d))"
    echo "#define ATT_OS $((h * d))"
    [ "$kind" = hopper ] && echo "#define ATT_HOPPER"
    [ "$kind" = any ] && { echo "#define ATT_ANY"; echo "#define ATT_ELEM $elem"; }
  } > "$out/head_$b$h$t$d$kind$elem.h"
  nvcc -std=c++17 $target -O2 -I. -include "$out/head_$b$h$t$d$kind$elem.h" tests/gpu/attention_test.cu -o \
    "$out/att_$b$h$t$d$kind$elem" 2>&1 | grep -E "error" && bad=1
  echo -n "$kind $elem: "
  "$out/att_$b$h$t$d$kind$elem" || bad=1
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
32 12 12 1024 64 1 hopper bf16
4 32 8 4096 64 1 hopper bf16
1 32 8 8192 128 1 hopper bf16
2 4 4 300 64 1 hopper bf16
1 4 1 200 128 0 hopper bf16
LIST
exit ${bad:-0}
