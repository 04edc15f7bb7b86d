// Functions of a model that run on one row of data: those that --run names, and the one for logits.
#ifndef RUNTIME_SAMPLE_CALL_H
#define RUNTIME_SAMPLE_CALL_H
#include "runtime/data/feed.h"
#include "runtime/world/world.h"

int hd_call_find(const HdProgram *p, const char *name); // its number; -1: the program has none of that name
bool hd_calls_fit(const HdProgram *p); // whether every one takes a row of each of its inputs and returns f32
typedef struct {
    const HdStep *step; // that runs it
    const HdFunc *func;
    const char *name, *option, *path; // --OPTION=PATH
} HdCallOut;
// all: what it returns for every row of the data in order, as an array that rank 0 writes. Ranks that train on other
// sequences take the rows in turn. false after hd_fail.
bool hd_call_write(HdExec *x, HdWorld *w, Feed *data, const HdCallOut *to);
bool hd_call_write_run(HdExec *x, HdWorld *w, Feed *data, const char *name, const char *path); // all: of --run
#endif
