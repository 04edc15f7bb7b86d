// The executor's communicators, and the watchdog that ends a run whose collectives do not.
#ifndef RUNTIME_CUDA_COMMS_H
#define RUNTIME_CUDA_COMMS_H
#include "runtime/cuda/exec.h"

// comms.c. all: a communicator for each of the program's, connected and used once; nothing where the program has none.
// Uses the arena's memory.
bool hd_comms_open(HdCuda *x);
void hd_comms_abort(HdCuda *x); // from any thread: what runs on the device ends without having done its work
void hd_comms_close(HdCuda *x); // after the graphs

// watchdog.c. What has completed is marked in host memory by the device itself, in graphs, too: the function that runs,
// the step before it, and per communicator the number of the last collective.
bool hd_watch_open(HdCuda *x);                     // before the communicators
void hd_watch_begin(HdCuda *x, const HdFunc *f);   // issued on the compute stream, before the streams part
void hd_watch_collective(HdCuda *x, int stream, int comm); // issued behind a collective
void hd_watch_end(HdCuda *x);
bool hd_watch_good(HdCuda *x);       // false after hd_cuda_fail: something failed, or the watchdog has ended this run;
                                     // results are worth nothing
const char *hd_watch_why(HdCuda *x); // of the watchdog, NULL: it is content
void hd_watch_quiet(HdCuda *x); // from now on communicators are nobody's business but the caller's
void hd_watch_close(HdCuda *x); // last of all
#endif
