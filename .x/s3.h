#define ATT_HOPPER
#define ATT_FWD att_fwd
#define ATT_DELTA att_delta
#define ATT_DKV att_dkv
#define ATT_DQ att_dq
#define ATT_B 2
#define ATT_H 4
#define ATT_KV 4
#define ATT_T 300
#define ATT_D 64
#define ATT_CAUSAL 1
#define ATT_SCALE 0.125f
#define ATT_QS 256
#define ATT_KS 256
#define ATT_VS 256
#define ATT_OS 256
