// Replaces a value in all its readers through a table of uses, at the cost of the uses rather than of the function. The
// table still describes the old value.
#ifndef PASSES_ANALYSIS_REDIRECT_H
#define PASSES_ANALYSIS_REDIRECT_H
#include "ir/ir.h"

static inline void hd_redirect(const Uses *uses, Value *old, Value *now) {
    for (int i = 0; i < uses->count[old->id]; i++) {
        Op *user = uses->users[old->id][i];
        for (int j = 0; j < user->n_in; j++)
            if (user->in[j] == old) user->in[j] = now;
    }
}
#endif
