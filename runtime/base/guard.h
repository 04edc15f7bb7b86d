// Guards of storages. In a program whose plan has a guard, every value, buffer and workspace owns `guard` bytes
// before it and, after it, those up to the next multiple of 256 and `guard` more: its two guards. No action may write
// there.
// With --check each guard is filled when its storage gets its bytes, and compared after every action until other
// storages get these bytes, so that the action that writes beyond a value is named. Their filling is no number in any
// float type, so a kernel that reads beyond a value is likely to make one, which --check finds as well.
//
// Actions run one after another then, in the order of the plan, whatever their streams; this is what makes the bytes of
// a storage that comes later free, and an answer exact. Targets fill and read; what is alive and what is wrong is here.
#ifndef RUNTIME_BASE_GUARD_H
#define RUNTIME_BASE_GUARD_H
#include "runtime/heddle.h"

typedef struct {
    const HdProgram *program;
    const HdFunc *func;     // that runs; NULL: none does
    int next;               // of its storages: the first that has no bytes yet
    int n;                  // storages that have bytes: those that persist come first
    const HdGuarded **live;
    bool damaged;           // what was found first is kept, and nothing more is looked for
} HdGuards;

typedef struct { int64_t at, bytes; bool pinned; } HdGuardBytes; // in the arena, or the page-locked one

bool hd_guards_open(HdGuards *g, const HdProgram *p); // false after hd_fail. The storages that persist are live.
void hd_guards_close(HdGuards *g);
HdGuardBytes hd_guard_of(const HdGuards *g, const HdGuarded *s, bool after);
int64_t hd_guards_most(const HdProgram *p); // bytes of all guards that can be live at once, at most

// A function begins, whose arguments have bytes; an action of it begins; the function has ended. The first two return
// how many storages have got bytes: the last ones of `live`, whose guards are to be filled.
int hd_guards_enter(HdGuards *g, const HdFunc *f);
int hd_guards_next(HdGuards *g, int action);
void hd_guards_leave(HdGuards *g);

void hd_guard_fill(const HdGuardBytes *b, void *bytes); // what is to be there

// The damage of an action: the guard at the lowest address, the first and last byte that changed there, the first
// one's value, and how many other guards.
typedef struct {
    const HdGuarded *of;
    bool after;
    int64_t first, last; // addresses
    unsigned char found;
    int others;
} HdGuardDamage;
void hd_guard_compare(const HdGuards *g, const HdGuarded *s, bool after, const void *bytes, HdGuardDamage *d);
// Says what was damaged by action `by` of the function, -1: by none of it; the caller says which that is.
void hd_guard_tell(const HdGuards *g, const HdGuardDamage *d, int by, char *text, size_t size);
// "gpt.hd:14: gemm in blocks.3.mlp (action 12 of micro, stream compute): "
void hd_action_tell(const HdFunc *f, int index, char *text, size_t size);
#endif
