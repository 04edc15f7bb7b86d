// The pointwise functions, printed from the `meaning` column of ir/ops.def: R(0.5) becomes 0.5f (or 0.5), exp becomes
// the target's spelling of exp for the type. Only functions that the module's kernels use are printed.
#include "codegen/emit.h"
#include "ir/optimizer.h"
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

// How f32 functions are printed: FORM_ROUNDED, for optimizers, rounds every operation by itself, as the host does.
typedef enum { FORM_F32, FORM_F64, FORM_ROUNDED, N_FORMS } Form;
static const struct { const char *type, *prefix, *suffix; } forms[N_FORMS] = {
    [FORM_F32] = {"float", "h_", ""}, [FORM_F64] = {"double", "h_", "_d"}, [FORM_ROUNDED] = {"float", "rounded_", ""}};

// Another spelling of the function on CUDA, where overrides.def has one for the form.
static const char *override(OpKind k, Form form) {
    static const struct { OpKind op; Form form; const char *text; } rows[] = {
#define CUDA(id, text) {OP_##id, FORM_F32, text},
#define ROUNDED(id, text) {OP_##id, FORM_ROUNDED, text},
#include "codegen/cuda/overrides.def"
#undef CUDA
#undef ROUNDED
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == k && rows[i].form == form) return rows[i].text;
    return NULL;
}

static void put_function(OpKind k, PreludeKind kind, Form form, Out *o) {
    const OpInfo *info = hd_op_info(k);
    const char *t = forms[form].type;
    hd_printf(o, "static %s %s %s%s%s(", kind == PRELUDE_HOST ? "inline" : "__device__ __forceinline__", t,
              forms[form].prefix, info->mnemonic, forms[form].suffix);
    for (int i = 0; i < info->n_in; i++) hd_printf(o, "%s%s %c", i ? ", " : "", t, 'a' + i);
    hd_puts(o, ") { return ");
    const char *text = kind == PRELUDE_CUDA ? override(k, form) : NULL;
    if (text) hd_puts(o, text);
    else put_meaning(o, info->meaning, kind, form == FORM_F64);
    hd_puts(o, "; }\n");
}

static const char *number_of(Emit *e, const Func *k, const Value *v) {
    if (v->def) return hd_sprintf(e->a, "v%d", v->id);
    return v->index < OPT_STATE ? k->args[v->index]->name : hd_sprintf(e->a, "s%d", v->index - OPT_STATE);
}

// The statements before `end`.
static Out statements(Emit *e, const Func *k, const Op *end, const char *indent, const char *before,
                      const char *after) {
    Out o = hd_out(e->a);
    for (int i = OPT_STATE; i < k->n_args; i++)
        hd_printf(&o, "%sconst float s%d = %s%d%s;\n", indent, i - OPT_STATE, before, i - OPT_STATE, after);
    int mean = 0;
    for (const Op *p = k->first; p != end; p = p->next) {
        if (hd_op_is(p, TRAIT_AVERAGES)) {
            hd_printf(&o, "%sconst float v%d = mean%d;\n", indent, p->out[0]->id, mean++);
            continue;
        }
        if (p->kind == OP_ORTHOGONALIZE) {
            hd_printf(&o, "%sconst float v%d = turned;\n", indent, p->out[0]->id);
            continue;
        }
        hd_printf(&o, "%sconst float v%d = ", indent, p->out[0]->id);
        if (hd_op_is(p, TRAIT_CONSTANT)) hd_puts(&o, hd_emit_number(e->a, hd_float(&p->attrs, A_VALUE, 0), false));
        else hd_printf(&o, "%s%s(", forms[FORM_ROUNDED].prefix, hd_op_info(p->kind)->mnemonic);
        for (int i = 0; i < p->n_in; i++) hd_printf(&o, "%s%s", i ? ", " : "", number_of(e, k, p->in[i]));
        hd_puts(&o, hd_op_is(p, TRAIT_CONSTANT) ? ";\n" : ");\n");
    }
    return o;
}

const char *hd_emit_direction(Emit *e, const Func *k, const char *indent, const char *before, const char *after) {
    const Op *turn = hd_optimizer_turn(k);
    Out o = statements(e, k, turn, indent, before, after);
    hd_printf(&o, "%sdirection = %s;\n", indent, number_of(e, k, turn->in[0]));
    return o.text;
}

static const Op *mean_number(const Func *k, int number) { // NULL: there are fewer
    for (const Op *o = k->first; o; o = o->next)
        if (hd_op_is(o, TRAIT_AVERAGES) && !number--) return o;
    return NULL;
}

int hd_emit_means(const Func *k) {
    int n = 0;
    while (mean_number(k, n)) n++;
    return n;
}

const char *hd_emit_lines(Emit *e, const Func *k, int stage, const char *indent) {
    const Op *mean = mean_number(k, stage), *ret = hd_return(k);
    const int means = hd_emit_means(k);
    Out o = statements(e, k, mean ? mean : ret, indent, "state", "");
    if (stage != means)
        hd_printf(&o, "%sresult = %s;\n", indent, number_of(e, k, mean ? mean->in[0] : ret->in[stage - means]));
    for (int i = 0; stage == means && i < ret->n_in; i++)
        if (!i) hd_printf(&o, "%sweights = %s;\n", indent, number_of(e, k, ret->in[i]));
        else if (hd_state_per(k, i - 1) == PER_ELEMENT)
            hd_printf(&o, "%snext%d = %s;\n", indent, i - 1, number_of(e, k, ret->in[i]));
    return o.text;
}

const char *hd_emit_update(Emit *e, const Func *k, const char *indent, const char *before, const char *after) {
    const Op *ret = hd_return(k);
    Out o = statements(e, k, ret, indent, before, after);
    hd_printf(&o, "%sweights = %s;\n", indent, number_of(e, k, ret->in[0]));
    for (int i = 1; i < ret->n_in; i++)
        hd_printf(&o, "%s%s%d%s = %s;\n", indent, before, i - 1, after, number_of(e, k, ret->in[i]));
    return o.text;
}

void hd_emit_prelude(const Module *m, PreludeKind kind, Out *o) {
    bool used[N_FORMS][N_OPS] = {{false}};
    for (const Func *f = m->funcs; f; f = f->next) {
        if (!f->is_kernel) continue;
        const Form f32 = hd_kind(&f->attrs) == KIND_OPTIMIZER ? FORM_ROUNDED : FORM_F32;
        for (const Op *p = f->first; p; p = p->next)
            if (hd_op_is(p, TRAIT_ELEMENTWISE)) used[p->out[0]->type->dtype == TY_F64 ? FORM_F64 : f32][p->kind] = true;
    }
    for (int k = 0; k < N_OPS; k++)
        for (int form = 0; form < N_FORMS; form++)
            if (used[form][k]) put_function((OpKind)k, kind, (Form)form, o);
}
