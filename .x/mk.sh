n=$1; shift
cat > .x/$n.h <<E
#define ATT_HOPPER
#define ATT_FWD att_fwd
#define ATT_DELTA att_delta
#define ATT_DKV att_dkv
#define ATT_DQ att_dq
#define ATT_B $1
#define ATT_H $2
#define ATT_KV $3
#define ATT_T $4
#define ATT_D $5
#define ATT_CAUSAL $6
#define ATT_SCALE $(python3 -c "print(repr($5 ** -0.5)+'f')")
#define ATT_QS $(($2*$5))
#define ATT_KS $(($3*$5))
#define ATT_VS $(($3*$5))
#define ATT_OS $(($2*$5))
E
shift 6
nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -O3 -w -I. -include .x/$n.h "$@" tests/gpu/attention_test.cu -o /work/main/.anchors/pdl/att-$n 2>&1 | grep -E "error" | head
