// The optimizer's groups: optimizer { default adamw { ... } group "*.bias", wte { weight_decay = 0; lr = 0.1x; } }. A
// group names parameters, or modules with all that is in them; in quotes * stands for any text. Each rate of a
// parameter is that of the last group that names the parameter and says the rate. Rates that differ from the
// optimizer's own become an attribute of the parameter, by which fsdp makes a bucket of each unit's parameters
// of equal rates. A group of matrices may have an optimizer of its own: group "*.w" muon { momentum = 0.95; }. That of
// a parameter is the one of the last group that names the parameter and an optimizer.
#include "frontend/model/sema.h"
#include <ctype.h>
#include <string.h>

typedef struct {
    const Node *decay_at;
    double lr, decay; // negative where the group does not say it
    bool decays;      // a parameter of it does
    const char *optimizer; // NULL: the group says none
    const Func *kernel;    // NULL: it is the default
    OwnOptimizer own;
} Group;

typedef struct {
    const Group *lr, *decay, *optimizer; // NULL: the default's
    Span at; // what `optimizer` names the parameter by
} Own; // of a parameter

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

static bool read_momentum(Front *f, const Node *n, Group *g) {
    const Val v = hd_lower_expr(f, f->root, n);
    if (v.kind == VAL_BAD) return false;
    g->own.momentum = hd_val_is_number(v) ? hd_val_number(v) : -1;
    return (g->own.momentum >= 0 && g->own.momentum <= 0.9999999) ||
           hd_front_error(f, n->span, "momentum of a group is a number from 0 to 0.9999999");
}

static bool read_nesterov(Front *f, const Node *n, Group *g) {
    const Val v = hd_lower_expr(f, f->root, n);
    if (v.kind == VAL_BAD) return false;
    g->own.nesterov = hd_val_is_number(v) ? hd_val_number(v) : -1;
    return g->own.nesterov == 0 || g->own.nesterov == 1 || hd_front_error(f, n->span, "nesterov of a group is 0 or 1");
}

static bool is_word(const Node *n, const char *word) { return n->kind == N_NAME && !strcmp(n->name, word); }

static bool read_adjust_lr(Front *f, const Node *n, Group *g) {
    if (!is_word(n, "original") && !is_word(n, "match_rms_adamw"))
        return hd_front_error(f, n->span, "adjust_lr of a group is original or match_rms_adamw");
    g->own.rate_for = n->name;
    return true;
}

static bool read_precision(Front *f, const Node *n, Group *g) {
    if (!is_word(n, "bf16") && !is_word(n, "f32"))
        return hd_front_error(f, n->span, "precision of a group, in which muon multiplies matrices, is bf16 or f32");
    g->own.precision = n->name;
    return true;
}

// group wte adamw { ... }: back to the default optimizer.
static bool read_optimizer(Front *f, const Node *n, Group *g) {
    const char *usual = hd_settings_word(f, A_OPTIMIZER);
    if (!n) return true;
    g->optimizer = n->name;
    if (hd_is_own_optimizer(n->name) || !strcmp(n->name, usual)) return true;
    return hd_front_error(f, n->span, "the optimizer of a group is muon, or the default, which is %s; not '%s'", usual,
                          n->name);
}

static bool read_group(Front *f, const Node *group, Group *g) {
    static const struct { const char *name; bool own, (*read)(Front *f, const Node *n, Group *g); } settings[] = {
        {"lr", false, read_lr},           {"weight_decay", false, read_decay},  {"momentum", true, read_momentum},
        {"nesterov", true, read_nesterov}, {"adjust_lr", true, read_adjust_lr}, {"precision", true, read_precision}};
    enum { SETTINGS = sizeof settings / sizeof *settings };
    *g = (Group){.lr = -1, .decay = -1, .own = {0.95, 1, "match_rms_adamw", "bf16"}};
    if (!read_optimizer(f, group->b, g)) return false;
    const bool own = g->optimizer && hd_is_own_optimizer(g->optimizer);
    if (!group->n && !g->optimizer) return hd_front_error(f, group->span, "a group without settings changes nothing");
    for (int k = 0; k < group->n; k++) {
        const Node *item = group->kids[k];
        int i = 0;
        while (i < SETTINGS && strcmp(settings[i].name, item->name) != 0) i++;
        if (i == SETTINGS)
            return hd_front_error(f, item->span, "a group sets %s, not '%s'",
                                  own ? "lr, weight_decay, momentum, nesterov, adjust_lr and precision"
                                      : "lr and weight_decay", item->name);
        if (settings[i].own && !own)
            return hd_front_error(f, item->span, "%s is a setting of groups of matrices that muon updates, such as "
                                                 "group \"*.w\" muon { %s = ...; }", item->name, item->name);
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
        if (g->optimizer) own[k].optimizer = g, own[k].at = at;
        if (g->lr >= 0) own[k].lr = g;
        if (g->decay >= 0) own[k].decay = g;
        g->decays |= hd_has(&p->attrs, A_DECAY);
    }
    if (any && !trained)
        hd_warning(f->cx, at, "the rates of '%s' change nothing: every parameter that it names is frozen", pattern);
    return any || hd_front_error(f, at, "no parameter has the name '%s', and no module with parameters", pattern);
}

// train.precision.moments = bf16 is for states that are kept element by element.
static bool keeps_f32(Front *f, Span at) {
    return strcmp(hd_settings_word(f, A_MOMENTS), "bf16") ||
           hd_front_error(f, at, "muon keeps its momentum in f32, and train.precision.moments = bf16: choose moments = "
                                 "f32, or another optimizer for this group");
}

static void tell_own(const Group *g, const char *names, Out *own) {
    hd_printf(own, "%s%s: %s", own->n ? "; " : "", names, g->optimizer);
    if (!g->kernel) return;
    hd_puts(own, " momentum "), hd_put_float(own, g->own.momentum);
    hd_printf(own, "%s %s %s", g->own.nesterov > 0 ? " nesterov" : "", g->own.rate_for, g->own.precision);
}

static bool apply(Front *f, const Node *node, Group *g, Own *own, Out *text, Out *owners) {
    const int before = text->n ? (int)text->n + 2 : 0;
    if (!node->a) return nameless(f, node->span);
    if (!read_group(f, node, g)) return false;
    if (g->optimizer && hd_is_own_optimizer(g->optimizer)) {
        if (!keeps_f32(f, node->b->span)) return false;
        g->kernel = hd_lower_own_optimizer(f, g->optimizer, &g->own);
    }
    for (int k = 0; k < node->a->n; k++) {
        const char *pattern = hd_pattern(f, node->a->kids[k]);
        if (!pattern) return nameless(f, node->a->kids[k]->span);
        if (!apply_to(f, g, pattern, node->a->kids[k]->span, own)) return false;
        hd_printf(text, "%s%s", k ? " " : text->n ? "; " : "", pattern);
    }
    if (g->optimizer) tell_own(g, text->text + before, owners);
    hd_puts(text, ":");
    if (g->lr >= 0) hd_puts(text, " lr "), hd_put_float(text, g->lr);
    if (g->decay >= 0) hd_puts(text, " weight_decay "), hd_put_float(text, g->decay);
    if (g->decay > 0 && !g->decays)
        hd_warning(f->cx, g->decay_at->span, "weight_decay changes nothing: no parameter of this group decays");
    return true;
}

static bool set_optimizer(Front *f, Symbol *p, Own own) {
    const char *usual = hd_settings_word(f, A_OPTIMIZER);
    if (!own.optimizer || !own.optimizer->kernel) return true;
    hd_set_word(f->cx, &p->attrs, A_UPDATED_BY, own.optimizer->kernel->name);
    if (p->type->rank == 2) return true;
    hd_front_error(f, own.at, "muon updates matrices, and parameter '%s' is %s: name matrices alone, or say 'group "
                              "\"%s\" %s { }' behind it", p->name, hd_type_text(f->cx, p->type), p->name, usual);
    hd_note(f->cx, p->span, "declared here");
    return false;
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
    Out text = hd_out(f->arena), owners = hd_out(f->arena);
    bool ok = true;
    for (int k = 0; k < f->groups.n; k++) ok &= apply(f, f->groups.at[k], &groups[k], own, &text, &owners);
    for (int k = 0; ok && k < f->params.n; k++) ok = set_optimizer(f, f->params.at[k], own[k]);
    for (int k = 0; ok && k < f->params.n; k++) set_rates(f, f->params.at[k], own[k]);
    if (ok && f->groups.n)
        hd_set_word(f->cx, &hd_config(f->module, "train")->attrs, A_GROUPS, hd_intern(f->cx, text.text));
    if (ok && owners.n)
        hd_set_word(f->cx, &hd_config(f->module, "train")->attrs, A_OWNERS, hd_intern(f->cx, owners.text));
    return ok;
}
