// The facts that the ranks of a run must have in common besides their program: the options that change numbers or that
// every rank must follow, and the files they read.
#ifndef RUNTIME_RUN_IDENTITY_H
#define RUNTIME_RUN_IDENTITY_H
#include "runtime/run/options.h"
#include "runtime/world/world.h"

// all: true when every rank was started with the same. Else false after hd_fail, in the same words on every rank: the
// lowest rank that differs from rank 0, the item, and both values. Files are compared by name without folders, size,
// and a hash of HD_SAMPLES blocks spread over the file (the whole file where it is not larger than that); the
// checkpoint of --resume only by being there.
// Several files share the blocks.
bool hd_identity_same(HdWorld *w, const HdProgram *p, const Options *o);
// all: rank 0 warns where a rank runs other algorithms of libraries than itself, as on hosts with caches of their own.
// choices: of HdExec. false after hd_fail: a rank is gone, or memory.
bool hd_identity_choices(HdWorld *w, const char choices[HD_CHOICES]);
enum { HD_SAMPLES = 64, HD_SAMPLE_BYTES = 4096 };
#endif
