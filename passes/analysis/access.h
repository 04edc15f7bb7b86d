// What an op touches: the operands it reads, the results it writes, the parts of buffers it reads or writes, and its
// workspace. This is the one place that says so; the scheduler, the planner and the plan's verifier all ask here. Alias
// ops (view, reshape) and synchronisation touch nothing: whoever reads an alias reads the storage behind it.
#ifndef PASSES_ANALYSIS_ACCESS_H
#define PASSES_ANALYSIS_ACCESS_H
#include "ir/ir.h"

typedef enum { AT_VALUE, AT_BUFFER, AT_WORKSPACE } AccessPlace;
typedef struct {
    AccessPlace at;
    bool write;
    bool order;           // touches no byte: only starts behind the earlier accesses of the buffer (`after`)
    int index;            // AT_VALUE: which operand (read) or result (write)
    const Value *value;   // AT_VALUE
    const Symbol *buffer; // AT_BUFFER
    int64_t lo, hi;       // AT_BUFFER: bytes [lo, hi) of the buffer; AT_WORKSPACE: [0, size)
} Access;
typedef VEC(Access) Accesses;

// Fills `list` (emptied first) with what op `o` of a storage stage touches.
void hd_accesses(const Op *o, Arena *a, Accesses *list);

// Alias ops do no work: their result is storage that something else filled.
static inline bool hd_is_alias(const Op *o) { return hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE); }

// The result that takes over the bytes of operand `inplace`: dlogits of cross_entropy_grad, else result 0; -1 for other
// ops.
int hd_inplace_result(const Op *o);
// Whether a launch may write its result 0 over operand `k`: result and operand hold one element for each point of the
// kernel's space, and the kernel only does pointwise work, so that each element is read before it is written and by
// nobody else.
bool hd_launch_may_overwrite(const Op *o, int k);

// Where the bytes of a value are: `root` (an argument, or a result with storage of its own), or bytes from `at` on of a
// buffer.
typedef struct { const Value *root; const Symbol *buffer; int64_t at; } Home;
Home *hd_homes(const Func *f, Arena *a); // by value id
#endif
