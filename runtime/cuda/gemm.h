// Which of cuBLASLt's algorithms is the fastest for a product; for runtime/cuda/gemm*.c only.
#ifndef RUNTIME_CUDA_GEMM_H
#define RUNTIME_CUDA_GEMM_H
#include "runtime/cuda/exec.h"

enum { HD_GEMM_CANDIDATES = 24 }; // at most

typedef struct { // addresses of operands
    CuPtr a, b, scale_a, scale_b, bias, d, workspace;
    CuPtr c;           // d = alpha a b + beta c, of a product that accumulates; 0: d += a b
    float alpha, beta;
} HdGemmOperands;
typedef struct { CuEvent start, end; } HdStopwatch;

typedef struct { // what is timed, where, and with what
    const HdGemm *g;
    const HdGemmState *s; // with descriptors
    HdGemmOperands at;
    HdStopwatch watch;
} HdGemmTrial;

int64_t hd_gemm_batches(const HdGemm *g); // at least 1
// Multiplications, as many as additions.
double hd_gemm_work(const HdGemm *g);
bool hd_gemm_short(const HdGemm *g); // takes some 30 us at most, and is never timed under load
// How many candidates are worth asking for: more for a short product, since they take no time.
int hd_gemm_wanted(const HdGemm *g);
// Places for the product's operands from the beginning of the arena on, which is still unused. Returns their bytes.
int64_t hd_gemm_operands(const HdCuda *x, const HdGemm *g, HdGemmOperands *at);
// Fills the arena's first bytes with numbers and makes the events; false after hd_cuda_fail. close: in any case.
bool hd_stopwatch_open(HdCuda *x, HdStopwatch *w, int64_t bytes);
void hd_stopwatch_close(HdCuda *x, HdStopwatch *w);
// The index of the fastest of n candidates, and its milliseconds (0: none could be timed; then the index is 0).
// load: long products run for a tenth of a second each before they are measured, so that what counts on a card at its
// power limit is how much energy they take.
int hd_gemm_fastest(HdCuda *x, const HdGemmTrial *t, const LtHeuristic *found, int n, bool load, float *ms);

// gemm.c: runs a product of the program at that place
void hd_gemm_run(HdCuda *x, int stream, int gemm, const HdGemmOperands *at);
LtStatus hd_gemm_issue(HdCuda *x, const HdGemm *g, const HdGemmState *s, const LtAlgo *algo, CuStream stream,
                       const HdGemmOperands *at);
#endif
