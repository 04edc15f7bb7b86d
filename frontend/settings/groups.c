// The optimizer's groups: optimizer { default adamw { ... } group "*.bias", wte { weight_decay = 0; lr = 0.1x; } }. A
// group names parameters, or modules with all that is in them; in quotes * stands for any text. Each rate of a
// parameter is that of the last group that names the parameter and says the rate. Rates that differ from the
// optimizer's own rates becomes an attribute of the parameter, by which fsdp makes a bucket of each unit's parameters
// of equal rates.
#include "frontend/model/sema.h"
#include <ctype.h>
#include <string.h>

typedef struct {
    const Node *decay_at;
    double lr, decay; // negative where the group does not say it
    bool decays;      // a parameter of it does
} Group;

typedef struct { const Group *lr, *decay; } Own; // of a parameter; NULL: the optimizer's

bool hd_pattern_fits(const char *p, const char *s) {
    const char *star = NULL, *from = NULL;
    while (*s) {
        if (*p == '*') star = p++, from = s;
        else if (*p == *s) p++, s++;
        else if (star) p = star + 1, s = ++from;
        else return false;
    }
    while (*p == '*') p++;
    return !*p;
}

// --- what a group says

static bool read_lr(Front *f, const Node *n, Group *g) {
    if (n->kind != N_FACTOR || n->f > 1e6)
        return hd_front_error(f, n->span, "lr of a group is a factor from 0x to 1000000x on the optimizer's, such as "
                                          "0.1x");
    g->lr = n->f;
    return true;
}

static bool read_decay(Front *f, const Node *n, Group *g) {
    const Val v = hd_lower_expr(f, f->root, n);
    if (v.kind == VAL_BAD) return false;
    const double x = hd_val_is_number(v) ? hd_val_number(v) : -1;
    if (x < 0 || x > 1e6) return hd_front_error(f, n->span, "weight_decay of a group is a number from 0 to 1000000");
    g->decay = x;
    g->decay_at = n;
    return true;
}

static bool read_group(Front *f, const Node *group, Group *g) {
    static const struct { const char *name; bool (*read)(Front *f, const Node *n, Group *g); } settings[] = {
        {"lr", read_lr}, {"weight_decay", read_decay}};
    enum { SETTINGS = sizeof settings / sizeof *settings };
    *g = (Group){.lr = -1, .decay = -1};
    if (!group->n) return hd_front_error(f, group->span, "a group without settings changes nothing");
    for (int k = 0; k < group->n; k++) {
        const Node *item = group->kids[k];
        int i = 0;
        while (i < SETTINGS && strcmp(settings[i].name, item->name) != 0) i++;
        if (i == SETTINGS)
            return hd_front_error(f, item->span, "a group sets lr and weight_decay, not '%s'", item->name);
        if (!item->a || item->a->n != 1 || item->n)
            return hd_front_error(f, item->span, "%s of a group takes one value", item->name);
        if (!settings[i].read(f, item->a->kids[0], g)) return false;
    }
    return true;
}

// --- whom it names

static bool nameless(Front *f, Span at) {
    return hd_front_error(f, at, "a group names parameters or modules, such as wte or \"*.bias\"");
}

const char *hd_pattern(Front *f, const Node *n) {
    const char *text = n->kind == N_TEXT ? n->text : hd_path_text(f, n);
    size_t known = 0;
    while (text && (isalnum((unsigned char)text[known]) || (text[known] && strchr("_.*", text[known])))) known++;
    return text && known && !text[known] ? text : NULL;
}

bool hd_pattern_names(Front *f, const char *pattern, const Symbol *p) {
    return hd_pattern_fits(pattern, p->name) || hd_pattern_fits(hd_sprintf(f->arena, "%s.*", pattern), p->name);
}

static bool apply_to(Front *f, Group *g, const char *pattern, Span at, Own *own) {
    bool any = false, trained = false;
    for (int k = 0; k < f->params.n; k++) {
        const Symbol *p = f->params.at[k];
        if (hd_has(&p->attrs, A_KERNEL) || !hd_pattern_names(f, pattern, p)) continue;
        any = true;
        if (hd_has(&p->attrs, A_FROZEN)) continue;
        trained = true;
        if (g->lr >= 0) own[k].lr = g;
        if (g->decay >= 0) own[k].decay = g;
        g->decays |= hd_has(&p->attrs, A_DECAY);
    }
    if (any && !trained)
        hd_warning(f->cx, at, "the rates of '%s' change nothing: every parameter that it names is frozen", pattern);
    return any || hd_front_error(f, at, "no parameter has the name '%s', and no module with parameters", pattern);
}

static bool apply(Front *f, const Node *node, Group *g, Own *own, Out *text) {
    if (!node->a) return nameless(f, node->span);
    if (!read_group(f, node, g)) return false;
    for (int k = 0; k < node->a->n; k++) {
        const char *pattern = hd_pattern(f, node->a->kids[k]);
        if (!pattern) return nameless(f, node->a->kids[k]->span);
        if (!apply_to(f, g, pattern, node->a->kids[k]->span, own)) return false;
        hd_printf(text, "%s%s", k ? " " : text->n ? "; " : "", pattern);
    }
    hd_puts(text, ":");
    if (g->lr >= 0) hd_puts(text, " lr "), hd_put_float(text, g->lr);
    if (g->decay >= 0) hd_puts(text, " weight_decay "), hd_put_float(text, g->decay);
    if (g->decay > 0 && !g->decays)
        hd_warning(f->cx, g->decay_at->span, "weight_decay changes nothing: no parameter of this group decays");
    return true;
}

static void set_rates(Front *f, Symbol *p, Own own) {
    const double decay = hd_settings_number(f, "weight_decay");
    if (own.lr && own.lr->lr != 1) hd_set_float(f->cx, &p->attrs, A_LR_SCALE, own.lr->lr);
    if (!own.decay || !own.decay->decays || own.decay->decay == decay) return;
    if (own.decay->decay > 0) hd_set_float(f->cx, &p->attrs, A_WEIGHT_DECAY, own.decay->decay);
    else hd_unset(&p->attrs, A_DECAY);
}

bool hd_groups_apply(Front *f) {
    Own *own = HD_NEWN(f->arena, Own, f->params.n + 1);
    Group *groups = HD_NEWN(f->arena, Group, f->groups.n + 1);
    Out text = hd_out(f->arena);
    bool ok = true;
    for (int k = 0; k < f->groups.n; k++) ok &= apply(f, f->groups.at[k], &groups[k], own, &text);
    for (int k = 0; ok && k < f->params.n; k++) set_rates(f, f->params.at[k], own[k]);
    if (ok && f->groups.n)
        hd_set_word(f->cx, &hd_config(f->module, "train")->attrs, A_GROUPS, hd_intern(f->cx, text.text));
    return ok;
}
