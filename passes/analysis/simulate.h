// When every action of a step runs on a device, as its table predicts: streams go on side by side, each in its order;
// waits and the ends of functions hold them up. An action beside something else is slower by the shares of the table.
#ifndef PASSES_ANALYSIS_SIMULATE_H
#define PASSES_ANALYSIS_SIMULATE_H
#include "ir/machine/device_model.h"

#define HD_WORKS(X)                                                                                                    \
    X(PRODUCTS, "products") X(ATTENTION, "attention") X(KERNELS, "kernels") X(COLLECTIVES, "collectives")              \
    X(COPIES, "copies") X(SYNC, "sync")
typedef enum {
#define X(id, text) WORK_##id,
    HD_WORKS(X)
#undef X
    N_WORKS
} Work; // copies: between device and host. sync: record, wait and the like, of which waits may take time
extern const char *const hd_work_text[N_WORKS];
Work hd_work(const Op *o);

typedef struct {
    const Op *op;
    int run, stream;
    Work work;
    double seconds;    // alone
    double start, end; // of the step
    double exposed;    // of a collective: beside no kernel; where several run so, each has an equal part of the time
    int cause;         // the action whose end let this one start; -1: the start of the step
} SimAction;
typedef struct { // a function of the step, each time it runs
    const Func *f;
    int first, n; // actions
    double start, end;
    double busy[N_WORKS];                   // seconds in which such work runs
    double exposed_collectives, exposed_copies; // ... and no product, attention or kernel beside it
    double idle;                            // nothing runs
} SimRun;
typedef struct {
    int n_actions, n_runs, n_streams;
    SimAction *actions; // in the plan's order, run by run
    SimRun *runs;
    const char **streams;
    double device, host;  // seconds of the step on the device, and of the host to issue it
    double joules;        // that the step takes on the device; 0: the table does not say
    double rate;          // the share of the table's rate that products and attention keep: 1, or what power allows
    double path[N_WORKS]; // of the chain of actions that ends last
    double gaps;          // on that chain, between actions: graphs that start, batches that arrive
    bool stuck;           // a wait that nothing ends: verify-plan refuses such a plan
} Simulation;

Simulation hd_simulate(const Module *m, const Symbol *step, const DeviceModel *d, Arena *a);
static inline double hd_step_seconds(const Simulation *s) { return s->device > s->host ? s->device : s->host; }
#endif
