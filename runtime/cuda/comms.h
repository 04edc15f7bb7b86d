// The executor's communicators, and the watchdog that ends a run whose collectives never end.
#ifndef RUNTIME_CUDA_COMMS_H
#define RUNTIME_CUDA_COMMS_H
#include "runtime/cuda/exec.h"

// comms.c. all: makes a communicator for each of the program's, connects it and uses it once. Does nothing where the
// program has none. Uses the arena's memory.
bool hd_comms_open(HdCuda *x);
void hd_comms_abort(HdCuda *x); // from any thread: work on the device ends unfinished
void hd_comms_close(HdCuda *x); // after the graphs

// watchdog.c. The device itself marks in host memory what has completed, in graphs too: the function that runs, the
// step before it, and for each communicator the number of the last collective.
bool hd_watch_open(HdCuda *x);                     // before the communicators
void hd_watch_begin(HdCuda *x, const HdFunc *f);   // issued on the compute stream, before other streams start
void hd_watch_collective(HdCuda *x, int stream, int comm); // issued after a collective
void hd_watch_end(HdCuda *x);
bool hd_watch_good(HdCuda *x);       // false after hd_cuda_fail: something failed, or the watchdog has ended this run,
                                     // and results are invalid
const char *hd_watch_why(HdCuda *x); // the watchdog's failure; NULL: none
void hd_watch_quiet(HdCuda *x); // from now on only the caller uses the communicators
void hd_watch_close(HdCuda *x); // last of all
#endif
