// The binary's command line, as values.
#ifndef RUNTIME_RUN_OPTIONS_H
#define RUNTIME_RUN_OPTIONS_H
#include "runtime/data/feed.h"
#include "runtime/heddle.h"
#include <stdio.h>

typedef struct {
    Names data, val, formats, init_ignore, init_rename;
    HdDtype export_dtype;
    const char *log, *tensorboard, *digest, *save, *resume, *resume_with, *init, *init_missing,
        *export_to, *as, *weights, *choices, *profile, *timeline, *logits, *run, *output, *sample, *sample_ids;
    // ranks: the number asked for; 0: none was
    int64_t steps, seed, save_every, save_seconds, keep, val_every, val_batches, log_every, ranks, tokens, top_k,
        sample_every;
    double temperature, top_p;
    bool no_graph, check, overwrite, keep_best, eval, report, report_json, seed_given;
} Options;

// 0: continue; 1: done (help was printed); 2: bad usage, which the speaking rank has reported.
int hd_options_parse(int argc, char **argv, const HdProgram *p, bool speaks, Options *o);
void hd_options_free(Options *o);
typedef struct { const char *name, *value, *doc; } HdOptionRow; // value: NULL, "FILE", "[=json]"
HdOptionRow hd_options_row(int i);                              // name = NULL: there are no more
extern const char hd_options_signals[], hd_options_environment[];
void hd_man_page(FILE *f, const char *name); // man_page.c: in the troff macros of man(7)
HdInputs hd_options_inputs(const HdProgram *p, const Options *o); // that --data is for
// false after hd_fail: an output cannot be written, or is an input as well
bool hd_paths_check(const HdProgram *p, const Options *o);
#endif
