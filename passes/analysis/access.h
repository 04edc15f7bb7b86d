// The accesses of an op: the operands it reads, the results it writes, the parts of buffers it reads or writes, and its
// workspace. The scheduler, the planner and the plan's verifier all use this one description. Alias ops (view, reshape)
// and synchronisation touch nothing: whatever reads an alias reads the storage it refers to.
#ifndef PASSES_ANALYSIS_ACCESS_H
#define PASSES_ANALYSIS_ACCESS_H
#include "ir/homes.h"

typedef enum { AT_VALUE, AT_BUFFER, AT_WORKSPACE } AccessPlace;
typedef struct {
    AccessPlace at;
    bool write;
    bool order;           // touches no byte: only starts after the earlier accesses of the buffer (`after`), or after
                          // the op that made the value (operands of fence)
    int index;            // AT_VALUE: which operand (read) or result (write)
    const Value *value;   // AT_VALUE
    const Symbol *buffer; // AT_BUFFER
    int64_t lo, hi;       // AT_BUFFER: bytes [lo, hi) of the buffer; AT_WORKSPACE: [0, size)
} Access;
typedef VEC(Access) Accesses;

// Fills `list` (emptied first) with the accesses of op `o`, of a storage stage.
void hd_accesses(const Op *o, Arena *a, Accesses *list);

static inline bool hd_is_event(const Op *o) { return hd_op_is(o, TRAIT_RECORDS | TRAIT_WAITS); }
static inline bool hd_copies_to_host(const Op *o) { // a value, which waits there
    return hd_op_is(o, TRAIT_COPIES) && o->n_in && o->n_out && o->out[0]->place.space == SPACE_HOST;
}

// Whether a launch may write its result 0 over operand `k`. Result and operand must hold one element for each point of
// the kernel's space, and the kernel must only do pointwise work, so that each element is read before it is written, by
// the thread that writes it.
bool hd_launch_may_overwrite(const Op *o, int k);
// Whether the op that makes the operand of `store` may write it straight into the buffer, as far as types and
// attributes decide. Scheduling keeps the order that this needs; plan-memory does it where the bytes are free in time.
bool hd_store_may_be_in_place(const Op *store);

// Whether a transient buffer is what its bucket names: its bytes stay as they are until the end of the function that
// uses it, where the runtime's --check looks at them.
bool hd_stays(const Module *m, const Symbol *b);

// Buffers that persist: whether others may have the bytes of one for a part of a function; whether it has all its bytes
// for itself.
static inline bool hd_is_lent(const Symbol *s) { return s->kind == SYM_BUFFER && s->type && hd_has(&s->attrs, A_LENT); }
static inline bool hd_is_kept(const Symbol *s) {
    return s->kind == SYM_BUFFER && s->type && !hd_has(&s->attrs, A_TRANSIENT) && !hd_has(&s->attrs, A_LENT);
}
#endif
