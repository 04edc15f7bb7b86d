// The ranks of one run and what they exchange besides the collectives of the plan: agreement on failures and stops,
// small gathers, and bytes sent to rank 0. Every rank calls each function marked `all`, in the same order.
// Implementations: one rank alone (world.c), threads of one process (world_threads.c), processes over TCP
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
    // the rank that prints messages about the whole run: 0 or, once that is gone, the first of every host (-1: another
    // one than this)
    int speaker;
    atomic_bool told; // this rank has printed why the run ends
    // all: `all` receives the ranks' bytes in order. false after hd_fail, which names the rank that is gone. It moves
    // ranks x ranks x bytes through rank 0: for small parts. The next two move ranks x bytes.
    bool (*gather)(HdWorld *w, const void *mine, size_t bytes, void *all);
    // all: `on_zero` receives the ranks' bytes in order, on rank 0 only. The others do not wait for it.
    bool (*collect)(HdWorld *w, const void *mine, size_t bytes, void *on_zero);
    bool (*share)(HdWorld *w, void *data, size_t bytes); // all: `data` becomes rank 0's
    // send: to rank 0; receive: on rank 0 from rank `from`. In order, any size.
    bool (*send)(HdWorld *w, const void *data, size_t bytes);
    bool (*receive)(HdWorld *w, int from, void *data, size_t bytes);
    // This rank gives up: every other rank's next or current call fails and names this rank and `why`. Never blocks.
    void (*fail)(HdWorld *w, const char *why);
    // Whether no rank has given up so far; else false after hd_fail, which says which rank did and why. Never blocks;
    // any thread of the rank may call it. A target polls it while it waits for other ranks.
    bool (*alive)(HdWorld *w);
    // Tells the watchdog what this rank is doing ("step 17"); cheap.
    void (*at)(HdWorld *w, const char *what, int64_t step);
    // Describes what a rank waits for ("; not completed: ..."), for the message about a rank that is gone. Any thread
    // may call it until it is replaced (NULL: nothing). `waiting` itself may be NULL: no rank can vanish.
    void (*waiting)(HdWorld *w, void (*say)(void *of, char *out, size_t size), void *of);
    void (*close)(HdWorld *w);
};

HdWorld *hd_world_alone(void); // one rank; nothing to close
// The worlds of `ranks` threads of this process: element r of the array is rank r's. Each is closed once; the last one
// frees all memory. NULL after hd_fail.
HdWorld *hd_world_threads(int ranks);
bool hd_world_barrier(HdWorld *w);                             // all
// all: true when `ok` is true on every rank. Else false with the failure of the lowest rank that failed, so that each
// rank has the same message. Only that rank sends it.
bool hd_world_agree(HdWorld *w, bool ok);
// all, after rank 0 has chosen `who`: false after hd_fail on every rank with the text of hd_failure() on rank `who`.
bool hd_world_fail_as(HdWorld *w, int who);
// a failure whose text names its rank: after an agreement every rank has the same words
bool hd_world_names_rank(const char *why);
int hd_world_most(HdWorld *w, int v); // all: the largest v of all ranks; -1: a rank is gone
#endif
