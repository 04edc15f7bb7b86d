// The entry of the front end, and what all its parts use to report errors.
#include "frontend/frontend.h"
#include "frontend/syntax/parser.h"
#include "frontend/builtins/builtin_modules.h"
#include "frontend/model/sema.h"

// --- places

static bool in_prelude(const Front *f, Span s) {
    const Source *p = &f->cx->diags.sources.at[0];
    for (int k = 0; k < f->cx->diags.sources.n; k++)
        if (f->cx->diags.sources.at[k].text == hd_prelude) p = &f->cx->diags.sources.at[k];
    return p->text == hd_prelude && s.lo >= p->base && s.lo <= p->base + p->len;
}

Span hd_front_site(const Front *f, Span s) {
    if (!in_prelude(f, s)) return s;
    for (const Frame *x = f->frame; x; x = x->caller)
        if (hd_front_in_user(f, x->call)) return x->call;
    return f->use;
}

const char *hd_front_text(Front *f, Span s) {
    const Source *src;
    int line, col;
    Out o = hd_out(f->arena);
    if (!hd_locate(&f->cx->diags, s, &src, &line, &col)) return "";
    for (uint32_t k = s.lo; k < s.hi; k++) {
        const char c = src->text[k - src->base];
        const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
        if (!space) hd_printf(&o, "%c", c);
        else if (o.n && o.text[o.n - 1] != ' ') hd_puts(&o, " ");
    }
    return o.text;
}

// --- errors

static void report(Front *f, Span s, const char *text) {
    enum { MANY = 100 };
    if (f->stop) return;
    s = hd_front_site(f, s);
    const Diags *d = &f->cx->diags;
    for (int k = 0; k < d->list.n; k++) // the same line in another instance
        if (d->list.at[k].span.lo == s.lo && d->list.at[k].span.hi == s.hi && !strcmp(d->list.at[k].text, text)) return;
    hd_error(f->cx, s, "%s", text);
    const Frame *x = f->frame;
    while (x && x->caller && !hd_front_in_user(f, x->call)) x = x->caller;
    if (x && x->caller && x->call.lo != s.lo) hd_note(f->cx, x->call, "in '%s' of %s, called from here", x->fn->name,
                                                      x->instance ? x->instance->decl->name : "the file");
    if (d->errors >= MANY) f->stop = true;
}

bool hd_front_error(Front *f, Span s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    report(f, s, hd_vsprintf(f->arena, fmt, ap));
    va_end(ap);
    return false;
}

Val hd_front_bad(Front *f, Span s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    report(f, s, hd_vsprintf(f->arena, fmt, ap));
    va_end(ap);
    return (Val){0};
}

bool hd_front_enter(Front *f, Span s) {
    if (f->stop || f->unwind) return false;
    if (++f->steps > MAX_STEPS) hd_front_error(f, s, "the model takes more than %d evaluations", MAX_STEPS);
    else if (f->depth >= MAX_DEPTH) hd_front_error(f, s, "calls and expressions nest more than %d deep", MAX_DEPTH);
    else {
        f->depth++;
        return true;
    }
    f->stop = true;
    return false;
}

void hd_front_leave(Front *f) { f->depth--; }

// --- the file as a whole

static bool check_name(Front *f, const Node *block, const char *what) {
    if (block->name == f->model->name) return true;
    return hd_front_error(f, block->span, "%s of '%s', but the model is '%s'", what, block->name, f->model->name);
}

static bool check_items(Front *f) {
    const Node *file = f->user;
    const Node *blocks[N_NODE_KINDS] = {0}; // of which a file has one
    bool ok = true;
    for (int k = 0; k < f->prelude->n; k++) hd_items_add(f->arena, &f->prelude_items, f->prelude, k);
    for (int k = 0; k < file->n && !f->stop; k++) {
        const Node *n = file->kids[k];
        const bool block = n->kind == N_TRAIN || n->kind == N_SCHEDULE || n->kind == N_MODEL;
        const int same = hd_items_add(f->arena, &f->user_items, file, k);
        const Node *first = block ? blocks[n->kind] : same < 0 ? NULL : file->kids[same];
        if (block && !first) blocks[n->kind] = n;
        if (!first) continue;
        ok = hd_front_error(f, n->span,
                            !block ? "%s '%s' is declared twice"
                            : hd_front_one_file(f, n->span, first->span)
                                ? "a file has one %s; '%s' is another"
                                : "a file and its imports have one %s; '%s' is another",
                            n->kind == N_TRAIN      ? "train block"
                            : n->kind == N_SCHEDULE ? "schedule block"
                            : n->kind == N_MODEL    ? "model"
                            : n->kind == N_FN       ? "function"
                            : n->kind == N_LET      ? "constant"
                                                    : "module",
                            n->name);
        hd_note(f->cx, first->span, "first here");
    }
    f->model = blocks[N_MODEL];
    if (!f->model)
        return hd_front_error(f, (Span){file->span.lo, file->span.lo},
                              "no model in this file%s: it needs 'model NAME(...)' with a function 'loss'",
                              f->files.n > 1 ? " and its imports" : "");
    for (int k = 0; k < file->n; k++) {
        if (file->kids[k]->kind == N_TRAIN) ok &= check_name(f, file->kids[k], "train block");
        if (file->kids[k]->kind == N_SCHEDULE) ok &= check_name(f, file->kids[k], "schedule block");
    }
    return ok;
}

// The values of @loss, by id, on which its result depends; all: or another effect of it, as further results.
static bool *live_values(Front *f, bool all) {
    bool *live = HD_NEWN(f->scratch, bool, f->func->n_values + 1);
    for (const Op *o = f->func->last; o; o = o->prev) {
        bool needed = hd_op_is(o, TRAIT_RETURN) || (all && !o->n_out);
        for (int k = 0; k < o->n_out; k++) needed |= live[o->out[k]->id];
        const int n = hd_op_is(o, TRAIT_RETURN) && !all ? 1 : o->n_in;
        for (int k = 0; k < n && needed; k++) live[o->in[k]->id] = true;
    }
    return live;
}

// Which parameters, by index, the result of @loss depends on.
static bool *reached_params(Front *f) {
    const bool *live = live_values(f, false);
    bool *reached = HD_NEWN(f->scratch, bool, f->params.n + 1);
    for (const Op *o = f->func->first; o; o = o->next)
        if (hd_param_read(o, 0) && live[o->out[0]->id])
            reached[hd_int(&hd_named(o, A_PARAM)->attrs, A_INDEX, 0)] = true;
    return reached;
}

static void warn_of_arguments(Front *f) {
    const bool *live = live_values(f, true);
    for (int k = 0; k < f->func->n_args; k++)
        if (!live[f->func->args[k]->id])
            hd_warning(f->cx, f->loss->c->kids[k]->span, "nothing reads argument '%s' of 'loss': a run asks for its "
                       "data and changes nothing by it; leave it out", f->func->args[k]->name);
}

// A parameter without a gradient would train to nothing: it is a mistake of the model.
static bool all_reached(Front *f) {
    const bool *reached = reached_params(f);
    bool ok = true;
    for (int k = 0; k < f->params.n && !f->stop; k++) {
        if (reached[k]) continue;
        ok = hd_front_error(f, f->params.at[k]->span, "the loss does not depend on %s '%s'",
                            hd_has(&f->params.at[k]->attrs, A_KERNEL) ? "buffer" : "parameter", f->params.at[k]->name);
    }
    return ok;
}

static bool lower(Front *f, Node *const *sets, int n_sets) {
    if (!check_items(f) || !hd_constants(f) || !hd_bind_model_args(f, sets, n_sets)) return false;
    f->settings = hd_settings_read(f, sets, n_sets);
    if (!f->settings) return false;
    f->batch = hd_settings_batch(f);
    hd_config(f->module, "model"); // configs come before the parameters
    hd_config(f->module, "train");
    hd_config(f->module, "schedule");
    if (!hd_elaborate(f)) return false;
    hd_paths_units(f);
    if (!hd_lower_loss(f) || !all_reached(f)) return false;
    warn_of_arguments(f);
    if (!hd_updates_check(f) || !hd_lower_optimizer(f) || !hd_frozen_apply(f) || !hd_groups_apply(f)) return false;
    hd_settings_emit(f);
    hd_facts_emit(f);
    hd_hub_emit(f);
    return hd_lower_logits(f) && hd_lower_calls(f);
}

// --- settings that are text

static const Node *default_of(const Node *file, const char *name, size_t len) { // of an argument of the model
    for (int k = 0; file && k < file->n; k++) {
        const Node *model = file->kids[k]->kind == N_MODEL ? file->kids[k] : NULL;
        for (int j = 0; model && j < model->c->n; j++) {
            const Node *arg = model->c->kids[j];
            if (strlen(arg->name) == len && !strncmp(arg->name, name, len)) return arg->a;
        }
    }
    return NULL;
}

static bool is_text(const Node *n) {
    return n && (n->kind == N_TEXT || (n->kind == N_BINARY && n->op >= BIN_ADD && (is_text(n->a) || is_text(n->b))));
}

static const char *quote_each(const Front *f, const char *set, const char *value) {
    Out o = hd_out(f->arena);
    hd_printf(&o, "%.*s", (int)(value - set), set);
    for (const char *at = value; *at; at += strcspn(at, ","), at += *at == ',')
        hd_printf(&o, "%s\"%.*s\"", at > value ? "," : "", (int)strcspn(at, ","), at);
    return o.text;
}

// A shell takes the quotes from `--set pattern="M-M*-"`: an argument whose default is text gets them back, and so does
// each of a list of patterns.
static const char *with_quotes(const Front *f, const char *set) {
    const char *value = strchr(set, '=');
    if (value && strchr(value, '*') && !strchr(value, '"') && hd_setting_names(set, (size_t)(value - set)))
        return quote_each(f, set, value + 1);
    if (!value || strchr(value, '"') || !is_text(default_of(f->user, set, (size_t)(value - set)))) return set;
    return hd_sprintf(f->arena, "%.*s\"%s\"", (int)(value + 1 - set), set, value + 1);
}

Module *hd_frontend_part(Ctx *cx, const char *name, const char *text, size_t len, int first_line, const SetOption *sets,
                         int n_sets) {
    Front f = {.cx = cx, .arena = cx->arena, .file = hd_intern(cx, name)};
    int errors = cx->diags.errors;
    hd_memory_used_by("reading '%s'", name);
    f.prelude = hd_parse_source(cx, PARSE_FILE, "prelude", hd_prelude, strlen(hd_prelude), 1);
    if (!f.prelude) HD_BUG("the prelude does not parse");
    hd_front_read(&f, text, len, first_line);
    Node **options = HD_NEWN(cx->arena, Node *, n_sets + 1);
    for (int k = 0; k < n_sets; k++) {
        const char *given = with_quotes(&f, sets[k].text);
        options[k] = hd_parse_source(cx, PARSE_SET, "--set", given, strlen(given), 1);
    }
    if (cx->diags.errors > errors) return NULL;
    f.module = hd_module_new(cx, STAGE_TENSOR);
    f.scratch = hd_arena_new();
    bool ok = lower(&f, options, n_sets) && hd_check_ops(f.module, "the loss");
    hd_arena_free(f.scratch);
    return ok && cx->diags.errors == errors ? f.module : NULL;
}

Module *hd_frontend(Ctx *cx, const char *name, const char *text, size_t len, const SetOption *sets, int n_sets) {
    return hd_frontend_part(cx, name, text, len, 1, sets, n_sets);
}

const Node *hd_frontend_ast(Ctx *cx, const char *name, const char *text, size_t len, int first_line) {
    return hd_parse_source(cx, PARSE_FILE, name, text, len, first_line);
}
