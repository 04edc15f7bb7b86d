// References of ops, attributes and symbols.
#include "ir/reference.h"

static void list_count(Out *o, int n) {
    if (n < 0) hd_puts(o, "n");
    else hd_printf(o, "%d", n);
}

static void list_traits(Out *o, unsigned traits) {
    static const struct { unsigned bit; const char *text;
    } names[] = {
        {TRAIT_PURE, "pure"},         {TRAIT_EFFECT, "effect"},
        {TRAIT_COMMUTES, "commutes"}, {TRAIT_ELEMENTWISE, "elementwise"},
        {TRAIT_ALIAS, "alias"},       {TRAIT_EXPLICIT, "explicit"},
        {TRAIT_SOURCE, "source"},     {TRAIT_SYNC, "sync"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (traits & names[i].bit) hd_printf(o, " %s", names[i].text);
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
