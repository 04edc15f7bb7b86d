// The registry of passes and the textual form of pipelines:
//   pipeline = item { "," item };  item = name [ "{" key "=" value { "," key "=" value } "}" ]
// A name is a pass or a named pipeline, which means its passes.
#ifndef PASSES_MANAGER_PIPELINE_H
#define PASSES_MANAGER_PIPELINE_H
#include "passes/pass.h"

typedef struct PassInfo {
    const char *name;
    unsigned in; // bit 1 << Stage
    int out;     // a Stage, or -1: the same as before
    const char *options, *doc;
    PassFn *run;
} PassInfo;

typedef struct { const char *key, *value; int64_t number; } PassOption;
typedef struct PassCall {
    const PassInfo *pass;
    int n_options;
    PassOption *options;
    Span span;
} PassCall;
typedef struct { int n; PassCall *at; } Pipeline;

int hd_pass_count(void);
const PassInfo *hd_pass_at(int i);
const PassInfo *hd_pass_find(const char *name); // NULL: no such pass

// Both report errors and return false.
bool hd_pipeline_parse(Ctx *cx, const char *text, Pipeline *p);
bool hd_pipeline_check(Ctx *cx, const Pipeline *p, Stage from); // can each pass work on the stage it gets?

// Gives every call of a pass an option that its row declares. False after reporting that the pipeline does not name the
// pass, or gives the option itself.
bool hd_pipeline_option(Ctx *cx, const Pipeline *p, const char *pass, const char *key, int64_t number);

// Runs the passes of pipeline `train` between two of them, with both, on a module that is tried: without options,
// statistics and checks. false: one has reported errors.
bool hd_pipeline_try(Module *m, PassCx *cx, const char *from, const char *to);

void hd_pipeline_print(const Pipeline *p, int first, Out *o); // from pass `first` on; reads back as the same pipeline
void hd_pipeline_list(Out *o);                                // the reference of passes and pipelines, from the tables
#endif
