#define ATT_HOPPER
#define ATT_FWD att_fwd
#define ATT_DELTA att_delta
#define ATT_DKV att_dkv
#define ATT_DQ att_dq
#define ATT_B 4
#define ATT_H 32
#define ATT_KV 8
#define ATT_T 4096
#define ATT_D 64
#define ATT_CAUSAL 1
#define ATT_SCALE 0.125f
#define ATT_QS 2048
#define ATT_KS 512
#define ATT_VS 512
#define ATT_OS 2048
