// C expressions of where the operands and results of an op are, for the files that print calls.
#ifndef CODEGEN_HOST_PLACES_H
#define CODEGEN_HOST_PLACES_H
#include "codegen/host/host.h"

static inline const char *at(Emit *e, int64_t offset) {
    return offset < 0 ? "NULL" : hd_sprintf(e->a, "base + 0x%llx", (unsigned long long)offset);
}
static inline const char *in(Emit *e, const Op *o, int i) { return at(e, hd_emit_value(e, o->in[i])); }
static inline const char *out(Emit *e, const Op *o, int i) { return at(e, hd_emit_result(e, o, i)); }
static inline const char *workspace(Emit *e, const Op *o) { return at(e, hd_emit_workspace(e, o)); }

// Library functions of the host compute in f32.
static inline void no_f64(Emit *e, const Op *o) {
    if (o->in[0]->type->dtype == TY_F64)
        hd_emit_error(e, o->span, "target host has no %s in f64: use f32, bf16 or f16", hd_op_info(o->kind)->mnemonic);
}
static inline const char *f32(Emit *e, const char *place) {
    return strcmp(place, "NULL") ? hd_sprintf(e->a, "(float *)(%s)", place) : place;
}
static inline const char *i32(Emit *e, const char *place) { return hd_sprintf(e->a, "(int32_t *)(%s)", place); }
#endif
