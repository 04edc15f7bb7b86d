// Values live at the peak, by line and op. See holders.h.
#include "passes/report/holders.h"
#include <string.h>

const char *hd_report_action(Arena *a, const Op *o) {
    if (!o) return "argument";
    const char *name = hd_op_info(o->kind)->mnemonic;
    const Func *k = hd_launched(o);
    return k ? hd_sprintf(a, "%s @%s", name, k->name) : name;
}

const char *hd_report_place(Arena *a, const Op *o) { // "  gpt2.hd:14"
    return o && o->loc.file ? hd_sprintf(a, "  %s:%d", o->loc.file, o->loc.line) : "";
}

// blocks.0.mlp and blocks.1.mlp: blocks.*.mlp
static const char *join_paths(Arena *a, const char *x, const char *y) {
    Out o = hd_out(a);
    while (*x && *y) {
        size_t n = strcspn(x, "."), m = strcspn(y, ".");
        if (n == m && strncmp(x, y, n) == 0) hd_putn(&o, x, n);
        else hd_puts(&o, "*");
        x += n;
        y += m;
        if (*x && *y) hd_puts(&o, "."), x++, y++;
    }
    if ((*x || *y) && !(o.n && o.text[o.n - 1] == '*')) hd_puts(&o, "*");
    return o.text;
}

static void add_holder(Holders *all, const Facts *r, int i, Arena *a) {
    const LiveItem *x = &r->live.at[i];
    const char *path = x->by && x->by->loc.path ? x->by->loc.path : "";
    Holder h = {hd_report_class(r, i), hd_report_action(a, x->by), hd_report_place(a, x->by), path, x->bytes, 1};
    if (x->buffer) h.action = "transient buffer";
    if (x->buffer && hd_has(&x->buffer->attrs, A_BUCKET))
        h.path = hd_word(&x->buffer->attrs, A_BUCKET, ""), h.place = "";
    for (int k = 0; k < all->n; k++) {
        Holder *old = &all->at[k];
        if (old->c != h.c || strcmp(old->action, h.action) != 0 || strcmp(old->place, h.place) != 0) continue;
        old->path = join_paths(a, old->path, h.path);
        old->bytes += h.bytes;
        old->n++;
        return;
    }
    hd_push(a, all, h);
}

Holders hd_report_holders(const Facts *r, Arena *a) {
    Holders all = {0};
    for (int i = 0; i < r->live.n; i++)
        if (hd_report_at_peak(r, i)) add_holder(&all, r, i, a);
    for (int k = 1; k < all.n; k++) { // insertion sort: equal ones keep their order
        const Holder h = all.at[k];
        int i = k;
        for (; i > 0 && all.at[i - 1].bytes < h.bytes; i--) all.at[i] = all.at[i - 1];
        all.at[i] = h;
    }
    return all;
}
