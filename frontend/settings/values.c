// Values of settings, each read as the kind of its row says; the errors say what would do instead.
#include "frontend/settings/settings.h"
#include "ir/optimizer.h"

const char *hd_path_text(Front *f, const Node *n) {
    if (n->kind == N_NAME) return n->name;
    const char *of = n->kind == N_DOT || n->kind == N_INDEX ? hd_path_text(f, n->a) : NULL;
    if (!of || n->kind == N_DOT) return of ? hd_internf(f->cx, "%s.%s", of, n->name) : NULL;
    int64_t first, last;
    if (hd_path_is_condition(n)) return hd_internf(f->cx, "%s[%s]", of, hd_front_text(f, n->b->span));
    if (!hd_path_index(f, n, &first, &last)) return NULL;
    if (n->b == n->c) return hd_internf(f->cx, "%s[%lld]", of, (long long)first);
    return n->c ? hd_internf(f->cx, "%s[%lld..%lld]", of, (long long)first, (long long)last)
                : hd_internf(f->cx, "%s[%lld..]", of, (long long)first);
}

static const char *given_text(Front *f, const Node *n) {
    const char *path = hd_path_text(f, n);
    if (path) return hd_sprintf(f->arena, "'%s'", path);
    if (n->kind == N_LIST || n->kind == N_CALL || n->kind == N_NAMED || n->kind == N_INDEX) return "this";
    Val v = hd_lower_expr(f, f->root, n);
    return v.kind == VAL_BAD ? NULL : hd_val_text(f, v);
}

static const char *with_commas(Front *f, const char *words) {
    Out o = hd_out(f->arena);
    for (const char *s = words; *s; s++) hd_printf(&o, *s == ' ' ? ", " : "%c", *s);
    return o.text;
}

const char *hd_setting_number_text(Front *f, double v) {
    Out o = hd_out(f->arena);
    hd_put_float(&o, v);
    return o.text;
}

bool hd_setting_wrong(Front *f, const SettingRow *row, const Node *n, const char *needed) {
    const char *got = given_text(f, n);
    if (got) hd_front_error(f, n->span, "%s must be %s, not %s", row->path, needed, got);
    return false;
}

static bool is_integer(const SettingRow *row) { return row->kind == KIND_INT || row->kind == KIND_POWER; }

// A number from low to high; an integer for INT and POWER, or a word of `choices`, which is 0. Names that are not
// arguments of the model are words, not numbers.
static bool read_number(Front *f, const SettingRow *row, const Node *n, Val *v) {
    bool integer = is_integer(row), power = row->kind == KIND_POWER, found = true;
    if (integer && row->choices[0] && n->kind == N_NAME && hd_in_words(n->name, row->choices)) {
        *v = hd_val_int(0);
        return true;
    }
    const char *needed =
        integer ? hd_sprintf(f->arena, "%s%s%s from %lld to %lld", row->choices, row->choices[0] ? " or " : "",
                             power ? "a power of two" : "an integer", (long long)row->low, (long long)row->high)
                : hd_sprintf(f->arena, "a number from %s to %s", hd_setting_number_text(f, row->low),
                             hd_setting_number_text(f, row->high));
    if (n->kind == N_NAME) hd_find_arg(f, f->root, n->name, &found);
    if (!found || n->kind == N_DOT || n->kind == N_LIST || n->kind == N_NAMED)
        return hd_setting_wrong(f, row, n, needed);
    *v = hd_lower_expr(f, f->root, n);
    if (v->kind == VAL_BAD) return false;
    double x = hd_val_is_number(*v) ? hd_val_number(*v) : row->low - 1;
    if (x < row->low || x > row->high || (integer && v->kind != VAL_INT) || (power && v->i & (v->i - 1)))
        return hd_setting_wrong(f, row, n, needed);
    if (!integer) *v = hd_val_float(x);
    return true;
}

// A number of steps, or a share of them below 1.
static bool read_share(Front *f, const SettingRow *row, const Node *n, Val *v) {
    *v = hd_lower_expr(f, f->root, n);
    if (v->kind == VAL_BAD) return false;
    const double x = hd_val_is_number(*v) ? hd_val_number(*v) : -1;
    return (x >= 0 && x <= row->high && (v->kind == VAL_INT || x < 1)) ||
           hd_setting_wrong(f, row, n, "a number of steps, or a share of all steps from 0.0 to below 1.0");
}

static bool one_value(Front *f, const SettingRow *row, const Node *values, Span s, int n) {
    if (values && values->n == n) return true;
    const bool list = values && values->n == 1 && values->kids[0]->kind == N_LIST;
    return hd_front_error(f, values ? values->span : s, "%s takes %d value%s, not %s%d%s", row->path, n,
                          n == 1 ? "" : "s", list ? "a list of " : "",
                          list ? values->kids[0]->n : values ? values->n : 0,
                          list ? ": they stand alone, with commas between them" : "");
}

static bool declares_module(const Node *list, const char *name) {
    for (int k = 0; list && k < list->n; k++) {
        const Node *n = list->kids[k];
        if (n->kind == N_MODULE && n->name == name) return true;
        if ((n->kind == N_MODULE || n->kind == N_MODEL) && declares_module(n, name)) return true;
        if (n->kind == N_WHEN && (declares_module(n->b, name) || declares_module(n->c, name))) return true;
    }
    return false;
}

// `graph Block.attn, Head;`: a list of places instead of one of a few words.
static bool is_list(const Front *f, const SettingRow *row, const Node *values) {
    if (row->high == 0 || !values || !values->n) return false;
    const Node *n = values->kids[0];
    return values->n > 1 || n->kind == N_DOT || n->kind == N_INDEX ||
           (n->kind == N_NAME && (declares_module(f->user, n->name) || declares_module(f->prelude, n->name)));
}

static bool read_word(Front *f, const SettingRow *row, const Node *n, const char **word) {
    *word = hd_path_text(f, n);
    if (*word && hd_in_words(*word, row->choices)) {
        if (!strcmp(*word, "zero0")) *word = hd_intern(f->cx, "none"); // two names of one strategy
        return true;
    }
    if (*word && row->attr == A_OPTIMIZER && hd_is_own_optimizer(*word))
        return hd_front_error(f, n->span, "%s is of groups of parameters, beside the default of all others: optimizer "
                              "adamw { group \"*.w\" %s { } }", *word, *word);
    if (row->attr == A_OPTIMIZER && n->kind == N_CALL)
        return hd_front_error(f, n->span, "the settings of an optimizer stand in braces: optimizer adamw { lr = 1e-3; "
                                          "}");
    const char *needed = hd_sprintf(f->arena, "%s%s%s", strchr(row->choices, ' ') ? "one of " : "",
                                    with_commas(f, row->choices),
                                    row->high != 0 ? ", or names of modules such as Block.mlp" : "");
    const char *called = *word ? hd_suggest_choice(*word, row->choices) : NULL;
    if (!called) return hd_setting_wrong(f, row, n, needed);
    return hd_front_error(f, n->span, "%s must be %s, not '%s'; it is called %s", row->path, needed, *word, called);
}

bool hd_setting_read(Front *f, Settings *set, AttrId attr, const Node *n, int layer) {
    const SettingRow *row = hd_setting_row(attr);
    Setting *s = hd_setting(set, attr);
    s->span = n->span;
    s->layer = layer;
    return row->kind == KIND_WORD    ? read_word(f, row, n, &s->word)
           : row->kind == KIND_SHARE ? read_share(f, row, n, &s->v)
                                     : read_number(f, row, n, &s->v);
}

static bool read_paths(Front *f, const SettingRow *row, const Node *values, bool more, Setting *s) {
    if (!more) s->paths = (Paths){0}, s->none = false;
    for (int k = 0; k < values->n; k++) {
        int errors = f->cx->diags.errors;
        const char *path = hd_path_text(f, values->kids[k]);
        if (!path && f->cx->diags.errors > errors) return false; // a wrong index
        if (!path) return hd_setting_wrong(f, row, values->kids[k], "names of modules such as Block.mlp");
        s->none |= !strcmp(path, "none");
        if (strcmp(path, "none")) hd_push(f->arena, &s->paths, (const Node *)values->kids[k]);
    }
    return true;
}

// Names of parameters and modules, or functions, as written: what they name is not known yet (frozen.c, calls.c).
static bool read_named(Front *f, const SettingRow *row, const Node *values, bool more, Setting *s) {
    if (!more) s->paths = (Paths){0};
    for (int k = 0; k < values->n; k++) {
        const Node *n = values->kids[k];
        if (!hd_pattern(f, n))
            return hd_setting_wrong(f, row, n, row->attr == A_FUNCTIONS
                                                   ? "names of functions of the model, such as hidden, score"
                                                   : "names of parameters or modules, such as wte or \"*.bias\"");
        if (n->kind != N_NAME || strcmp(n->name, "none") != 0) hd_push(f->arena, &s->paths, n);
    }
    return true;
}

bool hd_setting_value(Front *f, Settings *set, const SettingRow *row, Setting *s, const Node *values, Span at,
                      int layer, bool more) {
    switch (row->kind) {
    case KIND_INT:
    case KIND_POWER:
    case KIND_FLOAT: return one_value(f, row, values, at, 1) && read_number(f, row, values->kids[0], &s->v);
    case KIND_SHARE: return one_value(f, row, values, at, 1) && read_share(f, row, values->kids[0], &s->v);
    case KIND_WORD:
        s->paths = (Paths){0};
        s->word = "places";
        if (is_list(f, row, values)) return read_paths(f, row, values, false, s);
        return one_value(f, row, values, at, 1) && read_word(f, row, values->kids[0], &s->word);
    case KIND_PATHS: return !values || read_paths(f, row, values, more, s);
    case KIND_NAMED: return values ? read_named(f, row, values, more, s) : one_value(f, row, NULL, at, 1);
    case KIND_RATE:
        return one_value(f, row, values, at, 1) && hd_rate_read(f, set, row, values->kids[0], layer);
    case KIND_PAIR:
        if (!one_value(f, row, values, at, 2)) return false;
        for (int k = 0; k < 2; k++) {
            Val v;
            if (!read_number(f, row, values->kids[k], &v)) return false;
            s->pair[k] = hd_val_number(v);
        }
        return true;
    }
    return false;
}
