// Frozen parameters: those that are marked `frozen` and those that train { frozen = wte, "blocks.*.base"; } names. They
// have the attribute `frozen`, by which autodiff gives them no gradient, and fsdp no state and no update.
#include "frontend/model/sema.h"
#include <string.h>

static bool freeze(Front *f, const Node *n) {
    const char *pattern = hd_pattern(f, n);
    bool any = false;
    for (int k = 0; k < f->params.n; k++) {
        if (hd_has(&f->params.at[k]->attrs, A_KERNEL) || !hd_pattern_names(f, pattern, f->params.at[k])) continue;
        any = true;
        hd_set_flag(f->cx, &f->params.at[k]->attrs, A_FROZEN);
    }
    return any || hd_front_error(f, n->span, "train.frozen: no parameter has the name '%s', and no module with "
                                             "parameters", pattern);
}

// blocks.*.w of blocks.3.w: the same for every instance of a repeated module.
static const char *without_numbers(Front *f, const char *name) {
    Out o = hd_out(f->arena);
    for (const char *at = name; *at;) {
        const size_t n = strcspn(at, "."), digits = strspn(at, "0123456789");
        if (at > name) hd_puts(&o, ".");
        if (n && digits == n) hd_puts(&o, "*");
        else hd_printf(&o, "%.*s", (int)n, at);
        at += n + (at[n] == '.');
    }
    return hd_intern(f->cx, o.text);
}

// The frozen parameters in their order: one name for those of all instances, where all of them are frozen.
static const char *names_of(Front *f) {
    PtrMap trained = {0}, said = {0};
    Out o = hd_out(f->arena);
    for (int k = 0; k < f->params.n; k++)
        if (!hd_has(&f->params.at[k]->attrs, A_FROZEN))
            hd_ptr_set(f->arena, &trained, without_numbers(f, f->params.at[k]->name), 1);
    for (int k = 0; k < f->params.n; k++) {
        const Symbol *p = f->params.at[k];
        const char *all = without_numbers(f, p->name), *name = hd_ptr_get(&trained, all) < 0 ? all : p->name;
        if (!hd_has(&p->attrs, A_FROZEN) || hd_ptr_get(&said, name) >= 0) continue;
        hd_ptr_set(f->arena, &said, name, 1);
        hd_printf(&o, "%s%s", o.n ? " " : "", name);
    }
    return o.n ? hd_intern(f->cx, o.text) : NULL;
}

bool hd_frozen_apply(Front *f) {
    const Paths *list = hd_settings_paths(f, A_FROZEN_PARAMETERS);
    int frozen = 0, buffers = 0;
    for (int k = 0; k < list->n; k++)
        if (!freeze(f, list->at[k])) return false;
    for (int k = 0; k < f->params.n; k++) frozen += hd_has(&f->params.at[k]->attrs, A_FROZEN);
    for (int k = 0; k < f->params.n; k++) buffers += hd_has(&f->params.at[k]->attrs, A_KERNEL);
    if (frozen && frozen + buffers == f->params.n)
        return hd_front_error(f, f->model->span, "every parameter of %s is frozen: there is nothing to train",
                              f->model->name);
    const char *names = names_of(f);
    if (names) hd_set_word(f->cx, &hd_config(f->module, "train")->attrs, A_FROZEN_PARAMETERS, names);
    return true;
}
