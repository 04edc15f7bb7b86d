// Changes to what a finished plan gathers quantized.
#ifndef TESTS_UNIT_PLAN_GATHERS_H
#define TESTS_UNIT_PLAN_GATHERS_H
#include "ir/ir.h"
#include <string.h>

// The optimizer's op before a gather that has written what it gathers; NULL: none.
static Op *update_of(const Op *o) {
    const char *from = o->kind == OP_ALL_GATHER ? hd_word(&o->attrs, A_BUFFER, "") : "";
    for (Op *p = o->prev; *from && p; p = p->prev)
        if (p->kind == OP_UPDATE && (!strcmp(hd_word(&p->attrs, A_MASTER_WEIGHTS, ""), from) ||
                                    !strcmp(hd_word(&p->attrs, A_WEIGHTS, ""), from)))
            return p;
    return NULL;
}

// Of a gather that quantizes: rows of another length, scales for elements or the other way round, elements as they are.
static bool change_rows(Op *o, uint64_t how) {
    Ctx *cx = o->func->module->cx;
    const int64_t row = hd_int(&o->attrs, A_QUANTIZED, 2);
    if (how == 1) hd_set_int(cx, &o->attrs, A_QUANTIZED, row / 2);
    else if (how == 2) hd_unset(&o->attrs, A_QUANTIZED);
    else if (hd_has(&o->attrs, A_SCALES)) hd_unset(&o->attrs, A_SCALES);
    else hd_set_flag(cx, &o->attrs, A_SCALES);
    return true;
}

// Of a gather of tensors with one scale each: those of the tensors before or after; as rows; the bytes as they are.
static bool change_scales(Op *o, uint64_t how) {
    Ctx *cx = o->func->module->cx;
    if (how < 2) hd_set_int(cx, &o->attrs, A_FIRST, hd_int(&o->attrs, A_FIRST, 0) + (how ? 1 : -1));
    else if (how == 2) hd_set_int(cx, &o->attrs, A_QUANTIZED, 32), hd_unset(&o->attrs, A_SCALES_IN);
    else hd_unset(&o->attrs, A_QUANTIZED), hd_unset(&o->attrs, A_SCALES_IN), hd_unset(&o->attrs, A_FIRST);
    return true;
}

// Of an all_max: a buffer less, two in the other order, the master weights of one, or one twice.
static bool change_parts(Op *o, uint64_t random) {
    Ctx *cx = o->func->module->cx;
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    const int n = list->n, at = (int)(random / 4 % (uint64_t)n);
    const char *names[64];
    if (n < 2 || n > 64) return false;
    for (int i = 0; i < n; i++) names[i] = list->strs[i];
    const Symbol *part = hd_symbol_find(o->func->module, names[at]);
    const Symbol *k = hd_symbol_find(o->func->module, hd_word(&part->attrs, A_BUCKET, ""));
    if (random % 4 == 0) names[at] = names[n - 1];
    if (random % 4 == 1) names[0] = list->strs[at ? at : 1], names[at ? at : 1] = list->strs[0];
    if (random % 4 == 2) names[at] = hd_word(&k->attrs, A_MASTER_WEIGHTS, names[at]);
    if (random % 4 == 3) names[at] = names[at ? at - 1 : n - 1];
    hd_set_words(cx, &o->attrs, A_BUFFERS, random % 4 ? n : n - 1, names);
    return true;
}
#endif
