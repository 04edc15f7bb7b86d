// Which buffers that persist lend their bytes, and where they are. See lent.h.
#include "passes/memory/lent.h"
#include "passes/analysis/live.h"
#include "ir/base/ints.h"
#include <stdlib.h>

// The most bytes alive in a function; and when buffers that are lent have theirs all the time.
static void lent_and_kept(const Func *f, int64_t lent_bytes, int64_t *lent, int64_t *kept, Arena *a) {
    Live live = hd_live(f, 0, SPACE_DEVICE, a);
    int64_t *change = HD_NEWN(a, int64_t, f->n_ops + 2), now = 0, most = 0;
    for (int i = 0; i < live.n; i++) {
        if (live.at[i].buffer && hd_is_lent(live.at[i].buffer)) continue;
        change[live.at[i].from] += live.at[i].bytes;
        change[live.at[i].to + 1] -= live.at[i].bytes;
    }
    for (int i = 0; i < f->n_ops; i++)
        if ((now += change[i]) > most) most = now;
    if (live.peak > *lent) *lent = live.peak;
    if (most + lent_bytes > *kept) *kept = most + lent_bytes;
}

void hd_lend_less(Module *m, Arena *a) {
    enum { WORTH = 256 }; // this part of what is alive
    int64_t bytes = 0, lent = 0, kept = 0;
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (hd_is_lent(s)) bytes += hd_align(hd_type_bytes(s->type));
    for (Func *f = bytes ? m->funcs : NULL; f; f = f->next)
        if (!f->is_kernel) hd_renumber(f), lent_and_kept(f, bytes, &lent, &kept, a);
    if (kept - lent > lent / WORTH) return;
    for (Symbol *s = m->symbols; s; s = s->next)
        if (hd_is_lent(s)) hd_unset(&s->attrs, A_LENT);
}

typedef struct { int64_t start, end; } Taken;

static int by_start(const void *a, const void *b) {
    const Taken *x = a, *y = b;
    return x->start != y->start ? (x->start < y->start ? -1 : 1) : (x->end > y->end) - (x->end < y->end);
}

const int64_t *hd_place_lent(int n, int n_lent, const int *of, const Interval *values, int64_t *offset, Arena *a) {
    Taken *taken = HD_NEWN(a, Taken, n + n_lent + 1);
    int64_t *found = HD_NEWN(a, int64_t, n_lent + 1);
    for (int i = 0, next; i < n_lent; i = next) {
        for (next = i + 1; next < n_lent && of[next] == of[i];) next++;
        const int64_t size = hd_align(values[i].size);
        int64_t at = 0;
        int k = 0;
        for (int v = 0; v < n; v++) {
            bool meets = v < i; // another buffer
            for (int life = i; life < next && v >= n_lent; life++)
                meets |= values[v].upper > values[life].lower && values[v].lower < values[life].upper;
            if (meets) taken[k++] = (Taken){offset[v], offset[v] + hd_align(values[v].size)};
        }
        qsort(taken, (size_t)k, sizeof *taken, by_start);
        for (int t = 0; t < k && taken[t].start - at < size; t++)
            if (taken[t].end > at) at = taken[t].end;
        for (int life = i; life < next; life++) offset[life] = at;
        found[of[i]] = at;
    }
    return found;
}
