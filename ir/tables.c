// ops.def, attrs.def and symbols.def as look-up tables.
#include "ir/ir.h"
#include "ir/random.h"

#define T (1u << STAGE_TENSOR)
#define S (1u << STAGE_SHARDED)
#define K (1u << STAGE_KERNELS)
#define P (1u << STAGE_PLAN)
#define PURE TRAIT_PURE
#define EFFECT TRAIT_EFFECT
#define COMMUTES TRAIT_COMMUTES
#define ALIAS TRAIT_ALIAS
#define EXPLICIT TRAIT_EXPLICIT
#define SOURCE TRAIT_SOURCE
#define SYNC TRAIT_SYNC
#define ANY_SPACE TRAIT_ANY_SPACE
#define BESIDE TRAIT_BESIDE
#define MOVES TRAIT_MOVES
#define STOPS TRAIT_STOPS
#define MATMUL TRAIT_MATMUL
#define ATTENTION TRAIT_ATTENTION
#define COLLECTIVE TRAIT_COLLECTIVE
#define LOSS TRAIT_LOSS
#define LOOKUP TRAIT_LOOKUP
#define LAUNCH TRAIT_LAUNCH
#define RETURN TRAIT_RETURN
#define RECORDS TRAIT_RECORDS
#define WAITS TRAIT_WAITS
#define OPENS TRAIT_OPENS
#define CLOSES TRAIT_CLOSES
static const OpInfo ops[] = {
#define ELT(id, text, n, also, by, each, formula)                                                                      \
    {.mnemonic = text, .n_in = n, .n_out = 1, .attrs = "", .stages = T | S | K, .row = true,                           \
     .traits = TRAIT_PURE | TRAIT_ELEMENTWISE | (also), .meaning = #formula, .flops = each, .doc = "pointwise"},
#define OP(id, text, in, out, list, fields, about)                                                                     \
    {.mnemonic = text, .n_in = in, .n_out = out, .attrs = list, fields.doc = about},
#define stages(x) .stages = x,
#define traits(x) .traits = x,
#define classes(x) .classes = x,
#define row(x) .row = true,
#define map(x) .map = true,
#include "ir/ops.def"
};
#undef T
#undef S
#undef K
#undef P

static const AttrInfo attrs[] = {
#define ATTR(id, text, kind, doc) {text, AK_##kind, doc},
#include "ir/attrs.def"
};

static const struct { const char *keyword, *attrs; } symbols[] = {
#define SYMBOL(id, keyword, attrs, doc) {keyword, attrs},
#include "ir/symbols.def"
};

static const struct { const char *text, *of; } kinds[] = {
    {"", ""},
#define KIND(id, text, of, doc) {text, of},
#include "ir/kinds.def"
};

KindId hd_kind(const Attrs *as) {
    const char *word = hd_word(as, A_KIND, "");
    int k = N_KINDS - 1;
    while (k && strcmp(kinds[k].text, word)) k--;
    return (KindId)k;
}

void hd_set_kind(Ctx *cx, Attrs *as, KindId k) { hd_set_word(cx, as, A_KIND, hd_intern(cx, kinds[k].text)); }

bool hd_kind_fits(const Attrs *as, const char *of) {
    return !hd_has(as, A_KIND) || strstr(kinds[hd_kind(as)].of, of) != NULL;
}

static const char *const spaces[] = {
#define SPACE(id, text, doc) text,
#include "ir/spaces.def"
};

const char *hd_space_text(Space s) { return spaces[s]; }

bool hd_space_parse(const char *text, Space *s) {
    int i = 0;
    while (i < N_SPACES && strcmp(spaces[i], text)) i++;
    *s = i < N_SPACES ? (Space)i : SPACE_DEVICE;
    return i < N_SPACES;
}

Space hd_space(const Attrs *as) {
    Space s;
    hd_space_parse(hd_word(as, A_SPACE, spaces[SPACE_DEVICE]), &s);
    return s;
}

static const unsigned char uses[N_ATTRS] = {
#define READ USE_READ
#define WRITE USE_WRITE
#define ORDER USE_ORDER
#define RESULT USE_RESULT
#define OPERAND(id, use) [A_##id] = use,
#include "ir/operands.def"
#undef OPERAND
#undef READ
#undef WRITE
#undef ORDER
#undef RESULT
};

unsigned hd_operand_uses(AttrId a) { return uses[a]; }

int hd_names(const Attr *a, const char *const **names) {
    bool one = attrs[a->id].kind == AK_SYM;
    *names = one ? &a->s : a->strs;
    return one ? 1 : a->n;
}

const OpInfo *hd_op_info(OpKind k) { return &ops[k]; }
const AttrInfo *hd_attr_info(AttrId a) { return &attrs[a]; }
const char *hd_symbol_keyword(SymbolKind k) { return symbols[k].keyword; }
const char *hd_symbol_attrs(SymbolKind k) { return symbols[k].attrs; }

const char *hd_stage_text(Stage s) {
    static const char *const text[] = {"tensor", "sharded", "kernels", "plan"};
    return text[s];
}

// Letter i of n in a list that ends at '-' or the end; a letter with * repeats as often as n needs.
static char letter(const char *list, int n, int i) {
    int listed = 0, star = -1;
    for (const char *s = list; *s && *s != '-'; s += 1 + (s[1] == '*'))
        if (*s != ' ') {
            if (s[1] == '*') star = listed;
            listed++;
        }
    const int more = star < 0 ? 0 : n - listed;
    for (const char *s = list; *s && *s != '-'; s++) {
        if (*s == ' ' || *s == '*') continue;
        i -= star-- == 0 ? 1 + more : 1;
        if (i < 0) return *s;
    }
    return 'd';
}

// The row of the op does not count the starts of attention's documents and the key of its dropout.
char hd_operand_class(const Op *o, int i) {
    if (!ops[o->kind].classes) return 'd';
    const bool keyed = hd_key(o) != NULL, starts = hd_has(&o->attrs, A_DOCUMENTS);
    if (keyed && i == o->n_in - 1) return 't';
    return starts && i == o->n_in - 1 - keyed ? 'i' : letter(ops[o->kind].classes, o->n_in - keyed - starts, i);
}

char hd_class_of_result(OpKind k, int i) {
    const char *results = ops[k].classes ? strchr(ops[k].classes, '>') : NULL;
    return results ? letter(results + 1, ops[k].n_out, i) : 'd';
}

char hd_result_class(const Value *v) { return v->def ? hd_class_of_result(v->def->kind, v->index) : 'd'; }

bool hd_op_find(const char *mnemonic, OpKind *k) {
    for (int i = 0; i < N_OPS; i++)
        if (!strcmp(ops[i].mnemonic, mnemonic)) {
            *k = (OpKind)i;
            return true;
        }
    return false;
}

bool hd_attr_find(const char *text, AttrId *a) {
    for (int i = 0; i < N_ATTRS; i++)
        if (attrs[i].text[0] == text[0] && !strcmp(attrs[i].text, text)) { // hd_infer asks for every op
            *a = (AttrId)i;
            return true;
        }
    return false;
}

int hd_attr_allowed(const char *list, AttrId a) {
    const char *name = attrs[a].text;
    const size_t n = strlen(name);
    if (*list == '*') return 1;
    for (const char *p = list; (p = strstr(p, name)) != NULL; p += n) {
        const bool begins = p == list || p[-1] == ' ', ends = !p[n] || p[n] == ' ' || p[n] == '?';
        if (begins && ends) return p[n] == '?' ? 1 : 2;
    }
    return 0;
}

// Aliases and the beginning of a life say something about storage; the return and the ends of capture regions say
// something about the function.
bool hd_is_action(const Op *o) {
    switch (o->kind) {
    case OP_BEGIN: case OP_FENCE: case OP_RETURN: case OP_CAPTURE: case OP_CAPTURE_END: return false;
    default: return !hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE);
    }
}

bool hd_is_pure(const Op *o) {
    for (int i = 0; i < o->n_out; i++)
        if (o->out[i]->into) return false;
    return (hd_op_is(o, TRAIT_PURE) || o->kind == OP_GEMM) && !hd_has(&o->attrs, A_INTO);
}
