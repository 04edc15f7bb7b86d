// The storages of a planned function: results of ops, and the transient buffers that the function uses; which values
// share one, whose bytes it takes, when it is alive. plan-memory uses this to decide what shares bytes (results in
// place, results in buffers) before it packs.
//
// A buffer that is lent is two storages of a function that fills it again: the first lives from the start to its last
// access before that, the second from there to the end. Any other function has it as one, which lives all the time.
#ifndef PASSES_ANALYSIS_LIFETIMES_H
#define PASSES_ANALYSIS_LIFETIMES_H
#include "passes/analysis/access.h"
#include "passes/analysis/seam.h"
#include "passes/analysis/clocks.h"

typedef struct Touch { int op; struct Touch *next; } Touch; // op: a place in the order of Lifetimes.ops
typedef struct {
    int leader;           // the storage it was merged into; its own index: not merged
    int64_t bytes;        // 0: no bytes of the shared region (an argument, a view)
    int from, to;         // its first and last access, as places in the order of Lifetimes.ops
    Touch *touches;       // every op that reads or writes it
    const Symbol *buffer; // its bytes are part of this buffer, from byte `at` on, and
    Op *store;            // this op, which says so, has nothing to move
    int64_t at;
    const Symbol *transient; // it is this buffer, or a life of this one that is lent; NULL: the result of an op
    bool carried;            // its function's tail still uses it in the function after (analysis/seam.h)
    Space space;
} Storage;

typedef VEC(int) OpIds;

typedef struct {
    const Func *f;
    Home *homes;
    Clocks clocks;     // of ops by their places, as all numbers of ops here
    const int *time;   // by op id: its place in the order in which lives are counted (analysis/times.h)
    Op **ops;          // in that order
    Storage *storage;  // by value id of a root; then transient buffers
    int n_storages;
    const int *slots;  // by symbol id: the storage of a transient buffer that the function uses; 0: none
    const int *left;   // and of one that the function before uses in its tail: the first `tail` ops of f; or the first
                       // life of one that is lent
    const int *filled; // by symbol id: the op that fills a buffer which is lent, 0: none does; NULL: none is lent
    int tail;
    OpIds *starts;     // by stream: its ops that start a storage or use a workspace, in order
    int *last;         // scratch of hd_storage_end, by stream
    const bool *busy;  // by symbol id: buffers that the tail of a function before may still use; NULL: none
    int stored, overwritten; // stores that move nothing, launches that overwrite an operand
} Lifetimes;

// Also for a finished plan: what is in place there is in place here. `tail`: of a joined function (analysis/seam.h).
Lifetimes hd_lifetimes(const Func *f, int tail, Arena *a);
// The storage of a value; NULL when the value is an argument or a view. The storage of a transient buffer; NULL: the
// function does not use it.
Storage *hd_storage_of(const Lifetimes *l, const Value *v);
Storage *hd_storage_of_buffer(const Lifetimes *l, const Symbol *b); // of one that is lent: its last life
Storage *hd_storage_left(const Lifetimes *l, const Symbol *b); // of a buffer that the tail uses
// The storages of a buffer that is lent: its only life, or the two. Returns how many have accesses.
int hd_lives_of_lent(const Lifetimes *l, const Symbol *b, Storage *lives[2]);
// Gives results that are only stored the bytes they are stored to, and results of pointwise launches the bytes of an
// operand that dies there (`inplace` on the launch).
void hd_share_storage(Lifetimes *l, Arena *a);
void hd_place_stores(Lifetimes *l, Arena *a); // the first of the two
// Results that have the bytes they are stored to say `into`, and their stores go. The lifetimes are no longer those of
// the function then.
void hd_write_straight(Lifetimes *l);
// By symbol id: the buffers that the tail of a function before may still use; NULL: no tail does.
const bool *hd_busy_buffers(const Func *f, const Seams *seams, Arena *a);
// By op id: the stores that go. This depends on the order of each stream and on events alone, so it is known before
// there are regions and addresses. For a function that has its events; ids are dense.
const bool *hd_placed_stores(const Func *f, const Seams *seams, Arena *a);
// The first op, in the order of Lifetimes.ops, that may take over the storage's bytes: every access of the storage has
// ended before that op and before every later one that starts a storage or uses a workspace. n_ops: none may. With one
// stream: the op after the last access. Clocks grow along a stream, so a binary search in each stream finds it.
int hd_storage_end(const Lifetimes *l, const Storage *s);

// Workspaces that have the same bytes, as many as the largest needs. `from` and `end` are as a storage's: the first op
// that uses them, and the first that may take them over.
typedef struct { int from, end; int64_t bytes; VEC(Op *) by; } WorkArea;
typedef struct { int n; WorkArea *at; } WorkAreas;
// Every workspace has an area of its own, unless several streams use workspaces. Then ops that follow each other on a
// stream share one for as long as another stream has not seen that the first has ended.
WorkAreas hd_work_areas(const Lifetimes *l, Arena *a);
#endif
