// The binary's command line, as values.
#ifndef RUNTIME_OPTIONS_H
#define RUNTIME_OPTIONS_H
#include "runtime/heddle.h"

typedef struct {
    const char *data, *val, *log, *digest, *save, *resume, *init, *export_to, *profile;
    int64_t steps, seed, save_every, val_every, val_batches, log_every, ranks; // ranks: as asked for; 0: not
    bool no_graph, check, report, report_json, seed_given;
} Options;

// 0: go on; 1: done (help was printed); 2: bad usage, already said, where this rank speaks.
int hd_options_parse(int argc, char **argv, const HdProgram *p, bool speaks, Options *o);
bool hd_paths_check(const Options *o); // false after hd_fail: an output cannot be written, or is an input as well
#endif
