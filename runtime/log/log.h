// The output of a run: lines, or one changing line on a terminal; JSON lines; the digest.
#ifndef RUNTIME_LOG_LOG_H
#define RUNTIME_LOG_LOG_H
#include "runtime/log/events.h"
#include "runtime/run/options.h"
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
    int64_t optimizer_start;                            // as Progress has it
    Events events;                                      // of --tensorboard; its file is NULL without it
} Log;

typedef struct {
    const Progress *at;
    double peak_flops;
    const char *device, *data;
    int64_t data_tokens;
    const char *choices; // HdExec.choices
} LogStart;
// false after hd_fail. A run that resumes adds to its log what comes after the step that it resumes from.
bool hd_log_open(Log *l, const HdProgram *p, const Options *o, bool speaks, const LogStart *start);
// log_file.c: the line that a run begins with; removes what a log holds of later steps, and half a line at its end
void hd_log_header(FILE *f, const HdProgram *p, const Options *o, const LogStart *start);
bool hd_log_cut(const char *path, int64_t step); // false after hd_fail: it is no log, and stays as it is
double hd_wall_time(void);                       // seconds since 1970
// z: the scores of loss and norm, of a program that skips outliers; else NULL
// results: the further results of the loss (HdStep); dropped: rows that experts left out, of a program that counts them
// counts: what FP8 lost, of a program that counts it; else NULL
void hd_log_step(Log *l, int64_t step, float loss, float norm, const float *z, const float *results,
                 float dropped, const float *counts);
void hd_log_val(Log *l, int64_t step, double loss, const double *results);
void hd_log_clear(const Log *l); // of the line that changes
void hd_log_restart(Log *l); // validation and saving are over: the next step's time begins now
void hd_log_say(Log *l, const char *fmt, ...) __attribute__((format(printf, 2, 3))); // a line of its own on stderr
bool hd_log_close(Log *l);                                                           // false after hd_fail: a full disk
#endif
