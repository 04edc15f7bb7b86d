// What a run prints: lines, or one changing line on a terminal; JSON lines; the digest.
#ifndef RUNTIME_LOG_H
#define RUNTIME_LOG_H
#include "runtime/options.h"
#include "runtime/checkpoint/state.h"
#include <stdio.h>

typedef struct {
    FILE *json, *digest;
    const HdProgram *program;
    bool speaks; // rank 0; the others print nothing
    const char *json_path, *digest_path;
    bool terminal;
    int json_error; // errno of its first failed write
    double peak_flops, started, last, step_seconds; // step_seconds: smoothed
    int64_t first_step, last_step, every, first_tokens; // first_tokens: read before the first step
} Log;

// false after hd_fail
bool hd_log_open(Log *l, const HdProgram *p, const Options *o, bool speaks, const Progress *at, double peak_flops);
void hd_log_step(Log *l, int64_t step, float loss, float norm);
void hd_log_val(Log *l, int64_t step, double loss);
void hd_log_clear(const Log *l); // of the line that changes
void hd_log_restart(Log *l); // validation and saving are over: the next step's time begins now
void hd_log_say(Log *l, const char *fmt, ...) __attribute__((format(printf, 2, 3))); // a line of its own on stderr
bool hd_log_close(Log *l);                                                           // false after hd_fail: a full disk
#endif
