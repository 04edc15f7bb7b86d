// A roofline in words: the time of each source line's actions, the least that their bytes or their arithmetic could
// take on such a device, and what lies between.
#include "runtime/cuda/losses.h"
#include "runtime/text.h"
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 32 };                          // lines of the table
static const double NOTABLE = 0.02, NEAR = 0.75; // of the step; of the floor

static bool same(const HdAction *a, const HdAction *b) { // in every layer of a model
    return !strcmp(a->op, b->op) && !strcmp(a->where, b->where) && a->flops == b->flops && a->bytes == b->bytes;
}

void hd_losses_add(HdLosses *l, const HdAction *a, double us) {
    int i = 0;
    if (a->floor <= 0) return;
    while (i < l->n && !same(l->at[i].action, a)) i++;
    if (i == l->capacity) {
        const int more = l->capacity ? 2 * l->capacity : 64;
        HdLoss *grown = realloc(l->at, (size_t)more * sizeof *grown);
        if (!grown) {
            l->full = true;
            return;
        }
        l->at = grown;
        l->capacity = more;
    }
    if (i == l->n) l->at[l->n++] = (HdLoss){.action = a};
    l->at[i].count++;
    l->at[i].us += us;
}

static double least(const HdLoss *l) { return l->count * l->action->floor; }
static double lost(const HdLoss *l) { return l->us > least(l) ? l->us - least(l) : 0; }

static int by_loss(const void *a, const void *b) {
    const HdLoss *x = a, *y = b;
    const double p = lost(x), q = lost(y);
    if (p != q) return p < q ? 1 : -1;
    const int op = strcmp(x->action->op, y->action->op);
    return op ? op : strcmp(x->action->where, y->action->where);
}

void hd_losses_print(HdLosses *l, double step, FILE *out) {
    double all = 0, floors = 0, losses = 0;
    int marked = 0;
    if (!l->n) return;
    qsort(l->at, (size_t)l->n, sizeof *l->at, by_loss);
    hd_say(out,
           "what each line's actions take beyond their floor, by the table of the device that was compiled for\n");
    hd_say(out, "%-24s %-28s %6s %10s %6s %10s %8s %10s\n", "op", "line", "count", "us", "share", "floor", "of floor",
           "beyond");
    for (int i = 0; i < l->n; i++) {
        const HdLoss *x = &l->at[i];
        const double share = step > 0 ? x->us / step : 0, reached = x->us > 0 ? least(x) / x->us : 1;
        const bool mark = share > NOTABLE && reached < NEAR;
        all += x->us;
        floors += least(x);
        losses += lost(x);
        marked += mark;
        if (i >= SHOWN && !mark) continue;
        hd_say(out, "%-24s %-28s %6d %10.1f %5.1f%% %10.1f %7.1f%% %10.1f%s\n", x->action->op, x->action->where,
               x->count, x->us, 100 * share, least(x), 100 * reached, lost(x), mark ? " *" : "");
    }
    if (l->n > SHOWN) hd_say(out, "(%d lines in all)\n", l->n);
    hd_say(out, "%-24s %-28s %6s %10.1f %6s %10.1f %7.1f%% %10.1f\n", "all", "", "", all, "", floors,
           all > 0 ? 100 * floors / all : 100, losses);
    if (marked)
        hd_say(out, "*: more than %.0f %% of the step, and its floor is less than %.0f %% of its time\n",
               100 * NOTABLE, 100 * NEAR);
    if (l->full) hd_say(out, "memory ran out: the table is not complete\n");
}

void hd_losses_free(HdLosses *l) {
    free(l->at);
    *l = (HdLosses){0};
}
