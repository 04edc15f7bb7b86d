// The cases that tests/bench/calibrate measures: one row a case. Each becomes a function that does the same action
// several times.
#ifndef TESTS_BENCH_CALIBRATE_CASES_H
#define TESTS_BENCH_CALIBRATE_CASES_H
#include "ir/machine/device_table.h"

typedef struct {
    FactId fact;          // the line that it measures, with its words
    const char *words;    // "bf16", "cudnn forward bf16"
    double number, at;    // of the line; of the point. at 0: computed from the op's cost
    const char *args;     // of the function
    const char *op;       // one line; # is the number of the copy
    int copies;
    bool direct;          // outside any graph
    const char *impl;     // of attention
    const char *name;     // of the function
    double flops, bytes;  // of one action, by ir/machine/cost.h
    double seconds;       // of one action; 0: not measured
} Case;
typedef VEC(Case) Cases;

typedef struct {
    Arena *a;
    Cases cases;
    Out symbols, kernels;
    bool quick; // a few small cases: for a test without a GPU
    bool wgmma, fp8; // for sm_90
    bool only_fp8; // products of e4m3 and nothing else
    bool network;  // collectives among ranks of as many hosts, and nothing else
    int ranks;
} CaseList;

void calibrate_single(CaseList *l); // of one GPU
void calibrate_ranks(CaseList *l);  // of l->ranks of them
const char *calibrate_text(const CaseList *l, const char *arch); // the module, at stage kernels
const Case *calibrate_find(const CaseList *l, const char *name);

typedef struct {
    CaseList single, ranks[3]; // measured: cases on one GPU, and collectives among 2, 4, 8
    int n_ranks;
    const char *gpu;
    int sms;
    double sustained; // the rate of seconds of one product after another, as a share of that of the first milliseconds
} Results;
// The text of the device table (calibrate_table.c).
const char *calibrate_table(const Results *r, Arena *a);
const char *calibrate_lines(const Results *r, Arena *a); // with only_fp8 or network: the lines for a table
#endif
