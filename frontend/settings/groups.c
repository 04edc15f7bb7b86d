// The optimizer's groups: optimizer { default adamw { ... } group "*.bias", wte { weight_decay = 0; lr = 0.1x; } }. A
// group names parameters, or modules with all that is in them; in quotes * stands for any text. Each rate of a
// parameter is that of the last group that names the parameter and says the rate. Rates that differ from the
// optimizer's own become an attribute of the parameter, by which fsdp makes a bucket of each unit's parameters
// of equal rates. A group may have an optimizer of its own: group "*.w" muon { momentum = 0.95; }. That of a parameter
// is the one of the last group that names the parameter and an optimizer.
#include "frontend/model/sema.h"
#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

typedef struct {
    const Node *decay_at;
    double lr, decay; // negative where the group does not say it
    bool trains, decays; // a parameter of it does
    const char *optimizer; // NULL: the group says none
    bool is_own;           // and it is not the default
    const Func *kernel[3]; // by the axes of a parameter, once one of the group has so many
    OwnOptimizer own;
} Group;

typedef struct {
    const Group *lr, *decay; // NULL: the default's
    Group *optimizer;
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

// Numbers of optimizers that only groups have.
static const struct { const char *name, *of; size_t at; double low, high; bool whole; const char *is; } numbers[] = {
    {"momentum", "muon", offsetof(OwnOptimizer, momentum), 0, 0.9999999, false, "a number from 0 to 0.9999999"},
    {"nesterov", "muon", offsetof(OwnOptimizer, nesterov), 0, 1, true, "0 or 1"},
    {"beta2_decay", "adafactor", offsetof(OwnOptimizer, beta2_decay), -1, 0, false, "a number from -1 to 0"},
    {"eps1", "adafactor", offsetof(OwnOptimizer, eps1), 0, 1, false, "a number from 0 to 1"},
    {"eps2", "adafactor", offsetof(OwnOptimizer, eps2), 0, 1, false, "a number from 0 to 1"},
    {"d", "adafactor", offsetof(OwnOptimizer, d), 1, 1e6, false, "a number from 1 to 1000000"}};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static bool read_number(Front *f, const Node *n, Group *g, int i) {
    const Val v = hd_lower_expr(f, f->root, n);
    if (v.kind == VAL_BAD) return false;
    const double x = hd_val_is_number(v) ? hd_val_number(v) : -2;
    *(double *)(void *)((char *)&g->own + numbers[i].at) = x;
    return (x >= numbers[i].low && x <= numbers[i].high && (!numbers[i].whole || x == trunc(x))) ||
           hd_front_error(f, n->span, "%s of a group is %s", numbers[i].name, numbers[i].is);
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
    return hd_front_error(f, n->span, "the optimizer of a group is muon, adafactor, or the default, which is %s; not "
                                      "'%s'", usual, n->name);
}

typedef bool ReadSetting(Front *f, const Node *n, Group *g);
static const struct { const char *name, *of; ReadSetting *read; } settings[] = { // `of`: the only optimizer with it
    {"lr", NULL, read_lr}, {"weight_decay", NULL, read_decay}, {"adjust_lr", "muon", read_adjust_lr},
    {"precision", "muon", read_precision}};
enum { SETTINGS = sizeof settings / sizeof *settings };

// Of setting `name`: its optimizer or NULL, and how it is read or which number it is. false: there is none.
static bool setting_called(const char *name, const char **of, ReadSetting **read, int *number) {
    *read = NULL;
    for (int i = 0; i < SETTINGS; i++)
        if (!strcmp(settings[i].name, name)) return *read = settings[i].read, *of = settings[i].of, true;
    for (*number = 0; *number < NUMBERS; ++*number)
        if (!strcmp(numbers[*number].name, name)) return *of = numbers[*number].of, true;
    return false;
}

static const char *settings_of(Front *f, const char *optimizer) { // "lr, weight_decay and d"
    Out text = hd_out(f->scratch);
    const char *last = NULL, *all[SETTINGS + NUMBERS];
    int n = 0;
    for (int i = 0; i < SETTINGS; i++)
        if (!settings[i].of || (optimizer && !strcmp(settings[i].of, optimizer))) all[n++] = settings[i].name;
    for (int i = 0; i < NUMBERS; i++)
        if (optimizer && !strcmp(numbers[i].of, optimizer)) all[n++] = numbers[i].name;
    last = all[n - 1];
    for (int i = 0; i + 1 < n; i++) hd_printf(&text, "%s%s", i ? ", " : "", all[i]);
    hd_printf(&text, " and %s", last);
    return text.text;
}

static bool read_setting(Front *f, const Node *item, Group *g) {
    const char *of = NULL, *own = g->is_own ? g->optimizer : NULL;
    ReadSetting *read;
    int number = 0;
    if (!setting_called(item->name, &of, &read, &number))
        return hd_front_error(f, item->span, "a group sets %s, not '%s'", settings_of(f, own), item->name);
    if (of && (!own || strcmp(of, own) != 0))
        return hd_front_error(f, item->span, "%s is a setting of groups that %s updates, such as group \"*.w\" %s { "
                              "%s = ...; }", item->name, of, of, item->name);
    if (!item->a || item->a->n != 1 || item->n)
        return hd_front_error(f, item->span, "%s of a group takes one value", item->name);
    return read ? read(f, item->a->kids[0], g) : read_number(f, item->a->kids[0], g, number);
}

static bool read_group(Front *f, const Node *group, Group *g) {
    *g = (Group){.lr = -1, .decay = -1, .own = {0.95, 1, "match_rms_adamw", "bf16", -0.8, 0x1p-23, 1e-3, 1}};
    if (!read_optimizer(f, group->b, g)) return false;
    g->is_own = g->optimizer && hd_is_own_optimizer(g->optimizer);
    if (!group->n && !g->optimizer) return hd_front_error(f, group->span, "a group without settings changes nothing");
    for (int k = 0; k < group->n; k++)
        if (!read_setting(f, group->kids[k], g)) return false;
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
        trained = g->trains = true;
        if (g->optimizer) own[k].optimizer = g, own[k].at = at;
        if (g->lr >= 0) own[k].lr = g;
        if (g->decay >= 0) own[k].decay = g;
        g->decays |= hd_has(&p->attrs, A_DECAY);
    }
    if (any && !trained)
        hd_warning(f->cx, at, "the rates of '%s' change nothing: every parameter that it names is frozen", pattern);
    return any || hd_front_error(f, at, "no parameter has the name '%s', and no module with parameters", pattern);
}

// train.precision.moments = bf16 is for states that are kept element by element, and master = bf16 or kahan for weights
// that are updated so.
static bool keeps_f32(Front *f, Span at, const char *optimizer) {
    const char *master = hd_settings_word(f, A_MASTER);
    if (strcmp(master, "f32") != 0)
        return hd_front_error(f, at, "%s keeps its weights in f32, and train.precision.master = %s: choose master = "
                              "f32, or another optimizer for this group", optimizer, master);
    return strcmp(hd_settings_word(f, A_MOMENTS), "bf16") ||
           hd_front_error(f, at, "%s keeps its %s in f32, and train.precision.moments = bf16: choose moments = f32, or "
                          "another optimizer for this group", optimizer,
                          strcmp(optimizer, "muon") ? "states" : "momentum");
}

static void tell_own(const Group *g, const char *names, Out *own) {
    hd_printf(own, "%s%s: %s", own->n ? "; " : "", names, g->optimizer);
    if (!g->is_own) return;
    if (!strcmp(g->optimizer, "adafactor")) {
        for (int i = 0; i < NUMBERS; i++)
            if (!strcmp(numbers[i].of, "adafactor")) {
                hd_printf(own, " %s ", numbers[i].name);
                hd_put_float(own, *(const double *)(const void *)((const char *)&g->own + numbers[i].at));
            }
        return;
    }
    hd_puts(own, " momentum "), hd_put_float(own, g->own.momentum);
    hd_printf(own, "%s %s %s", g->own.nesterov > 0 ? " nesterov" : "", g->own.rate_for, g->own.precision);
}

static bool apply(Front *f, const Node *node, Group *g, Own *own, Out *text, Out *owners) {
    const int before = text->n ? (int)text->n + 2 : 0;
    if (!node->a) return nameless(f, node->span);
    if (!read_group(f, node, g)) return false;
    if (g->is_own && !keeps_f32(f, node->b->span, g->optimizer)) return false;
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

// What a group says counts for the parameters of which no later group says the same.
static void warn_overridden(Front *f, const Group *g, const Node *node, const Own *own) {
    bool lr = g->lr < 0, decay = g->decay < 0, optimizer = !g->optimizer;
    for (int k = 0; k < f->params.n; k++) {
        lr |= own[k].lr == g;
        decay |= own[k].decay == g;
        optimizer |= own[k].optimizer == g;
    }
    const char *what = !g->trains ? NULL : !lr ? "lr" : !decay ? "weight_decay" : !optimizer ? "the optimizer" : NULL;
    if (what)
        hd_warning(f->cx, node->span, "%s of this group changes nothing: later groups say it for every parameter that "
                                      "it names", what);
}

static bool set_optimizer(Front *f, Symbol *p, Own own) {
    const char *usual = hd_settings_word(f, A_OPTIMIZER);
    Group *const g = own.optimizer;
    const int rank = p->type->rank;
    if (!g || !g->is_own) return true;
    if (rank <= 2 && !g->kernel[rank]) g->kernel[rank] = hd_lower_own_optimizer(f, g->optimizer, rank, &g->own);
    if (rank <= 2 && g->kernel[rank]) {
        hd_set_word(f->cx, &p->attrs, A_UPDATED_BY, g->kernel[rank]->name);
        return true;
    }
    hd_front_error(f, own.at, "%s updates matrices%s, and parameter '%s' is %s: name matrices alone, or say 'group "
                   "\"%s\" %s { }' behind it", g->optimizer, strcmp(g->optimizer, "muon") ? " and vectors" : "",
                   p->name, hd_type_text(f->cx, p->type), p->name, usual);
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
    for (int k = 0; ok && k < f->groups.n; k++) warn_overridden(f, &groups[k], f->groups.at[k], own);
    for (int k = 0; ok && k < f->params.n; k++) ok = set_optimizer(f, f->params.at[k], own[k]);
    for (int k = 0; ok && k < f->params.n; k++) set_rates(f, f->params.at[k], own[k]);
    if (ok && f->groups.n)
        hd_set_word(f->cx, &hd_config(f->module, "train")->attrs, A_GROUPS, hd_intern(f->cx, text.text));
    if (ok && owners.n)
        hd_set_word(f->cx, &hd_config(f->module, "train")->attrs, A_OWNERS, hd_intern(f->cx, owners.text));
    return ok;
}
