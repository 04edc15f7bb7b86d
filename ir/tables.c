// ops.def, traits.def, roles.def, collectives.def, attrs.def and symbols.def as look-up tables.
#include "ir/ir.h"
#include "ir/dropout.h"
#include "ir/shapes.h"

#define T (1u << STAGE_TENSOR)
#define S (1u << STAGE_SHARDED)
#define K (1u << STAGE_KERNELS)
#define P (1u << STAGE_PLAN)
__extension__ enum { // in the rows: PURE is TRAIT_PURE
#define TRAIT(id, text, doc) id = TRAIT_##id,
#include "ir/traits.def"
};
const OpInfo hd_op_table[N_OPS] = {
#define ELT(id, text, n, also, by, each, formula)                                                                      \
    {.mnemonic = text, .n_in = n, .n_out = 1, .attrs = "", .stages = T | S | K, .row = true,                           \
     .traits = PURE | ELEMENTWISE | SCALAR | (also), .meaning = #formula, .flops = each, .doc = "pointwise"},
#define OP(id, text, in, out, list, fields, about)                                                                     \
    {.mnemonic = text, .n_in = in, .n_out = out, .attrs = list, fields.doc = about},
#define stages(x) .stages = x,
#define traits(x) .traits = x,
#define classes(x) .classes = x,
#define row(x) .row = true,
#define map(x) .map = true,
#define chosen(x) .chosen = true,
#define operands(...) .operands = {__VA_ARGS__},
#define HAS(role) {OPERAND_ALWAYS, ROLE_##role, N_ATTRS}
#define WITH(attr, role) {OPERAND_WITH, ROLE_##role, A_##attr}
#include "ir/ops.def"
};
#undef T
#undef S
#undef K
#undef P
#undef HAS
#undef WITH

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

static const CollectiveInfo collectives[N_OPS] = {
#define GATHERS true, false, false
#define SCATTERS false, false, false
#define EXCHANGES false, true, false
#define COMPARES false, false, true
#define COLLECTIVE(id, inverse, moves, sums, fact, name) [OP_##id] = {OP_##inverse, moves, sums},
#include "ir/collectives.def"
#undef GATHERS
#undef SCATTERS
#undef EXCHANGES
#undef COMPARES
};

const CollectiveInfo *hd_collective(const Op *o) {
    return hd_op_is(o, TRAIT_COLLECTIVE) ? &collectives[o->kind] : NULL;
}

// Of two ranks NCCL's reduce-scatter adds two numbers, which is the tree: a sum of two does not depend on their order.
bool hd_exchanges(const Op *o) {
    if (!hd_op_is(o, TRAIT_COLLECTIVE) || !hd_collective(o)->sums) return false;
    const Type *whole = o->n_in ? o->in[0]->type : hd_named(o, A_BUFFER)->type, *part = hd_result_type(o, 0);
    return hd_has(&o->attrs, A_OUT) || (hd_has(&o->attrs, A_TREE) && whole->dim[0] > 2 * part->dim[0]);
}

static const char *const roles[] = {
#define ROLE(id, text) text,
#include "ir/roles.def"
};

const char *hd_role_text(Role r) { return roles[r]; }

static bool is_there(const Op *o, const OpOperand *x) { return x->is == OPERAND_ALWAYS || hd_has(&o->attrs, x->with); }

int hd_operand_of(const Op *o, Role r) {
    int n = 0;
    for (const OpOperand *x = hd_op_table[o->kind].operands; x->is; n += is_there(o, x), x++)
        if (x->role == r) return is_there(o, x) && n < o->n_in ? n : -1;
    return -1;
}

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

// The row of the op does not count the starts of attention's documents, its sink and the key of its dropout.
char hd_operand_class(const Op *o, int i) {
    if (i == hd_attention_sink_at(o)) return 's';
    if (!hd_op_table[o->kind].classes) return 'd';
    const bool keyed = hd_key(o) != NULL, starts = hd_has(&o->attrs, A_DOCUMENTS);
    if (keyed && i == o->n_in - 1) return 't';
    return starts && i == o->n_in - 1 - keyed ? 'i' : letter(hd_op_table[o->kind].classes, o->n_in - keyed - starts, i);
}

char hd_class_of_result(OpKind k, int i) {
    const char *results = hd_op_table[k].classes ? strchr(hd_op_table[k].classes, '>') : NULL;
    return results ? letter(results + 1, hd_op_table[k].n_out, i) : 'd';
}

char hd_result_class(const Value *v) { return v->def ? hd_class_of_result(v->def->kind, v->index) : 'd'; }

bool hd_in_parts(const Op *o) { return hd_op_table[o->kind].classes && strchr(hd_op_table[o->kind].classes, 'p'); }

bool hd_op_find(const char *mnemonic, OpKind *k) {
    for (int i = 0; i < N_OPS; i++)
        if (!strcmp(hd_op_table[i].mnemonic, mnemonic)) {
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
    return !hd_op_is(o, TRAIT_ALIAS | TRAIT_SOURCE | TRAIT_ORDERS | TRAIT_RETURN | TRAIT_OPENS | TRAIT_CLOSES |
                            TRAIT_BEGINS);
}

bool hd_is_pure(const Op *o) {
    for (int i = 0; i < o->n_out; i++)
        if (o->out[i]->into) return false;
    return hd_op_is(o, TRAIT_PURE | TRAIT_MATMUL) && !hd_has(&o->attrs, A_INTO);
}
