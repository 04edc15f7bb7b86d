// The settings of one block (train, schedule, target); none where the module has no such config.
#ifndef PASSES_SETTINGS_H
#define PASSES_SETTINGS_H
#include "ir/ir.h"

static inline const Attrs *hd_settings(const Module *m, const char *block) {
    static const Attrs none;
    const Symbol *s = hd_symbol_find(m, block);
    return s && s->kind == SYM_CONFIG ? &s->attrs : &none;
}
#endif
