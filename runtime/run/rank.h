// The state of one rank's run, which run.c (the steps) and start.c (what comes before them) share.
#ifndef RUNTIME_RUN_RANK_H
#define RUNTIME_RUN_RANK_H
#include "runtime/data/feed.h"
#include "runtime/log/log.h"
#include "runtime/run/saving.h"
#include "runtime/sample/sample.h"

typedef struct Run {
    const HdProgram *p;
    const HdBackend *b;
    const Options *o;
    HdWorld *w;
    HdExec *x;
    Feed data, val;
    Log log;
    Progress at;
    double t0;
    Saving saving;
    Sample sample;
    int stopped;         // the signal that ends the run, on whichever rank it arrived; 0: none
    unsigned saves;      // checkpoints asked for by signals and written
    bool save_now;       // every rank knows that one is asked for
    struct { int64_t step; float loss, norm; } spoilt; // the first step whose loss or norm is not finite; step 0: none
    bool agreed;         // every rank knows of the present failure
    float *counts;       // of a step: what FP8 loses; NULL: the program does not count it
    bool something_lost; // a save or another output failed, which was reported
} Run;

// --- start.c; false after hd_fail, on this rank alone
bool hd_run_prepare(Run *r); // before anything slow: options, files, data
bool hd_run_weights(Run *r);
bool hd_run_start_random(Run *r);
void hd_run_tell_start(Run *r);
bool hd_run_tells_phases(const Run *r);
void hd_run_tell_phases(Run *r, double checked, double opened, double loaded); // the times when each was done
bool hd_run_rank_0(const Run *r);
int64_t hd_run_elements(const Run *r); // of the data of the first input that has some
#endif
