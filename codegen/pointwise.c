// The pointwise functions, printed from the `meaning` column of ir/ops.def: R(0.5) becomes 0.5f (or 0.5), exp becomes
// the target's spelling of exp for the type. Only functions that the module's kernels use are printed.
#include "codegen/emit.h"
#include <ctype.h>
#include <string.h>

typedef struct { const char *name, *host, *cuda, *f64; } MathName;
static const MathName math_names[] = { // name in ops.def, host f32, CUDA f32, f64
    {"exp", "hd_exp", "expf", "exp"},     {"log", "logf", "logf", "log"},     {"sqrt", "sqrtf", "sqrtf", "sqrt"},
    {"sin", "sinf", "sinf", "sin"},       {"cos", "cosf", "cosf", "cos"},     {"tanh", "hd_tanh", "tanhf", "tanh"},
    {"erf", "erff", "erff", "erf"},       {"fabs", "fabsf", "fabsf", "fabs"},
    {"pow", "powf", "powf", "pow"},
};

void hd_emit_math(Out *o, const char *s, size_t n, PreludeKind kind, bool f64) {
    for (size_t i = 0; i < sizeof math_names / sizeof *math_names; i++) {
        const MathName *m = &math_names[i];
        if (strlen(m->name) != n || strncmp(m->name, s, n) != 0) continue;
        hd_puts(o, f64 ? m->f64 : kind == PRELUDE_HOST ? m->host : m->cuda);
        return;
    }
    hd_putn(o, s, n);
}

// Prints `meaning` for one element type. R(<number>) is the only use of R.
static void put_meaning(Out *o, const char *meaning, PreludeKind kind, bool f64) {
    for (const char *s = meaning; *s;) {
        if (s[0] == 'R' && s[1] == '(') {
            const char *end = strchr(s, ')');
            if (!end) HD_BUG("unclosed R( in the meaning \"%s\"", meaning);
            size_t n = (size_t)(end - s) - 2;
            hd_putn(o, s + 2, n);
            if (!memchr(s + 2, '.', n)) hd_puts(o, ".0");
            if (!f64) hd_puts(o, "f");
            s = end + 1;
        } else if (isalpha((unsigned char)*s)) {
            size_t n = 1;
            while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
            hd_emit_math(o, s, n, kind, f64);
            s += n;
        } else {
            hd_putn(o, s++, 1);
        }
    }
}

// A cheaper spelling of the same function for f32 on CUDA, where overrides.def has one.
static const char *override(OpKind k, PreludeKind kind, bool f64) {
    static const struct { OpKind op; const char *text; } rows[] = {
#define CUDA(id, text) {OP_##id, text},
#include "codegen/cuda/overrides.def"
#undef CUDA
    };
    for (size_t i = 0; kind == PRELUDE_CUDA && !f64 && i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == k) return rows[i].text;
    return NULL;
}

static void put_function(OpKind k, PreludeKind kind, bool f64, Out *o) {
    const OpInfo *info = hd_op_info(k);
    const char *t = f64 ? "double" : "float";
    hd_printf(o, "static %s %s h_%s%s(", kind == PRELUDE_HOST ? "inline" : "__device__ __forceinline__", t,
              info->mnemonic, f64 ? "_d" : "");
    for (int i = 0; i < info->n_in; i++) hd_printf(o, "%s%s %c", i ? ", " : "", t, 'a' + i);
    hd_puts(o, ") { return ");
    const char *text = override(k, kind, f64);
    if (text) hd_puts(o, text);
    else put_meaning(o, info->meaning, kind, f64);
    hd_puts(o, "; }\n");
}

void hd_emit_prelude(const Module *m, PreludeKind kind, Out *o) {
    bool used[2][N_OPS] = {{false}};
    for (const Func *f = m->funcs; f; f = f->next) {
        if (!f->is_kernel) continue;
        for (const Op *p = f->first; p; p = p->next)
            if (hd_op_is(p, TRAIT_ELEMENTWISE)) used[p->out[0]->type->dtype == TY_F64][p->kind] = true;
    }
    for (int k = 0; k < N_OPS; k++)
        for (int f64 = 0; f64 < 2; f64++)
            if (used[f64][k]) put_function((OpKind)k, kind, f64, o);
}
