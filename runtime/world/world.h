// The ranks of one run and what they tell each other beside the collectives of the plan: agreement on failures and
// stops, small gathers, and bytes sent to rank 0. Every function that is marked `all` is called by all ranks in the
// same order. Implementations: one rank alone (world.c), threads of one process (world_threads.c), processes over TCP
// (world_tcp.c).
#ifndef RUNTIME_WORLD_WORLD_H
#define RUNTIME_WORLD_WORLD_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct HdWorld HdWorld;
struct HdWorld {
    int rank, ranks;  // of the whole run
    int local_rank;   // among those of this host: which GPU
    int speaker; // the rank that prints what concerns the whole run: 0, or once that is gone the first of every host
    atomic_bool told; // it has said why the run ends: once is enough
    // all: `all` receives the ranks' bytes in order. false after hd_fail, which names the rank that is gone.
    bool (*gather)(HdWorld *w, const void *mine, size_t bytes, void *all);
    // to rank 0, and on rank 0 from rank `from`; in order, any size
    bool (*send)(HdWorld *w, const void *data, size_t bytes);
    bool (*receive)(HdWorld *w, int from, void *data, size_t bytes);
    // This rank gives up: every other rank's next or current call fails, naming this rank and `why`. Never blocks.
    void (*fail)(HdWorld *w, const char *why);
    // Whether no rank has given up so far; else false after hd_fail, which says who did and why. Never blocks, and any
    // thread of the rank may ask: what a target polls while it waits for other ranks.
    bool (*alive)(HdWorld *w);
    // Tells the watchdog what this rank is doing ("step 17"); cheap.
    void (*at)(HdWorld *w, const char *what, int64_t step);
    // What a rank is waiting for, in words ("; not completed: ..."), for the message about a rank that is gone; asked
    // from any thread until it is replaced (NULL: nothing). May itself be NULL: no rank can vanish.
    void (*waiting)(HdWorld *w, void (*say)(void *of, char *out, size_t size), void *of);
    void (*close)(HdWorld *w);
};

HdWorld *hd_world_alone(void); // one rank; nothing to close
// The worlds of `ranks` threads of this process: element r of the array is rank r's. Each is closed once; the last
// takes all memory with it. NULL after hd_fail.
HdWorld *hd_world_threads(int ranks);
bool hd_world_barrier(HdWorld *w);                             // all
bool hd_world_broadcast(HdWorld *w, void *data, size_t bytes); // all: rank 0's bytes
// all: true when `ok` on every rank. Else false with the failure of the lowest failed rank, so that each rank has the
// same message.
bool hd_world_agree(HdWorld *w, bool ok);
bool hd_world_names_rank(
    const char *why); // a failure that says itself whose it is: after an agreement every rank has the same words
int hd_world_most(HdWorld *w, int v); // all: the largest v of all ranks; -1: a rank is gone
#endif
