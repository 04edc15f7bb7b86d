// The storages of a planned function: which values share one, whose bytes it takes, when it is alive. plan-memory decides here what
// shares (in-place results, stores that need no copy) before it packs.
#ifndef PASSES_LIFETIMES_H
#define PASSES_LIFETIMES_H
#include "passes/access.h"
#include "passes/clocks.h"

typedef struct Touch { int op; struct Touch *next; } Touch;
typedef struct {
    int leader;           // value id of the storage it was merged into; its own id: not merged
    int64_t bytes;        // 0: no bytes of the shared region (an argument, a view, stored in place)
    int from, to;         // ops of its first and last access, in program order
    Touch *touches;       // every op that reads or writes it
    const Symbol *buffer; // its bytes are part of this buffer, from byte `at` on
    int64_t at;
} Storage;

typedef struct {
    const Func *f;
    Home *homes;
    Clocks clocks;
    Op **ops;          // by op id
    Storage *storage;  // by value id of a root
    int stored, overwritten; // stores made in place, launches that overwrite an operand
} Lifetimes;

// Also of a finished plan: what is in place there is in place here.
Lifetimes hd_lifetimes(const Func *f, Arena *a);
// The storage of a value; NULL when the value is an argument or a view.
Storage *hd_storage_of(const Lifetimes *l, const Value *v);
// Gives results that are only stored the bytes they are stored to (`inplace` on the store), and results of pointwise launches the
// bytes of an operand that dies there (`inplace` on the launch).
void hd_share_storage(Lifetimes *l, Arena *a);
// The first op in program order that may take over the storage's bytes: every access of the storage has ended before that op
// and every later one that starts a storage or uses a workspace. n_ops: none may. One stream: the op after the last access.
int hd_storage_end(const Lifetimes *l, const Storage *s);
#endif
