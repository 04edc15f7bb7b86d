// References of ops, attributes and symbols.
#include "ir/reference.h"

static void list_count(Out *o, int n) {
    if (n < 0) hd_puts(o, "n");
    else hd_printf(o, "%d", n);
}

static void list_traits(Out *o, uint64_t traits) {
    static const struct { uint64_t bit; const char *text;
    } names[] = {
#define TRAIT(id, text, doc) {TRAIT_##id, text},
#include "ir/traits.def"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (traits & names[i].bit) hd_printf(o, " %s", names[i].text);
}

static void list_operands(Out *o, const OpOperand *x) {
    if (x->is) hd_puts(o, "    operands:");
    for (const OpOperand *first = x; x->is; x++) {
        hd_printf(o, "%s %s", x == first ? "" : ",", hd_role_text(x->role));
        if (x->is == OPERAND_WITH) hd_printf(o, " (with %s)", hd_attr_info(x->with)->text);
        if (!x[1].is) hd_puts(o, "\n");
    }
}

void hd_list_ops(Out *o) {
    for (int k = 0; k < N_OPS; k++) {
        const OpInfo *info = hd_op_info((OpKind)k);
        hd_printf(o, "%s : ", info->mnemonic);
        list_count(o, info->n_in);
        hd_puts(o, " -> ");
        list_count(o, info->n_out);
        hd_puts(o, ";");
        list_traits(o, info->traits);
        hd_puts(o, "; at");
        for (int s = 0; s < N_STAGES; s++)
            if (info->stages >> s & 1) hd_printf(o, " %s", hd_stage_text((Stage)s));
        hd_puts(o, "\n");
        if (*info->attrs) hd_printf(o, "    attributes: %s\n", info->attrs);
        if (info->classes) hd_printf(o, "    classes: %s\n", info->classes);
        list_operands(o, info->operands);
        if (info->meaning) hd_printf(o, "    = %s\n", info->meaning);
        if (info->doc && *info->doc) hd_printf(o, "    %s\n", info->doc);
    }
}

void hd_list_attrs(Out *o) {
    static const char *const kinds[] = {"flag",  "integer",    "number",    "word",    "text",
                                        "@name", "[integers]", "[numbers]", "[words]", "[@names]"};
    for (int a = 0; a < N_ATTRS; a++) {
        const AttrInfo *info = hd_attr_info((AttrId)a);
        hd_printf(o, "%s : %s\n    %s\n", info->text, kinds[info->kind], info->doc);
    }
}

void hd_list_symbols(Out *o) {
    static const char *const docs[] = {
#define SYMBOL(id, keyword, attrs, doc) doc,
#include "ir/symbols.def"
    };
    for (int k = 0; k < N_SYMBOL_KINDS; k++) {
        const char *attrs = hd_symbol_attrs((SymbolKind)k);
        hd_printf(o, "%s\n    %s\n", hd_symbol_keyword((SymbolKind)k), docs[k]);
        if (*attrs) hd_printf(o, "    attributes: %s\n", attrs[0] == '*' ? "any" : attrs);
    }
}
