#include "runtime/log/summary.h"
#include "runtime/text.h"
#include <stdlib.h>
#include <string.h>

static HdSummaryKind *kind_of(HdSummary *s, const char *op) {
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->kind[i].op, op)) return &s->kind[i];
    if (s->n == HD_SUMMARY_KINDS) return NULL;
    s->kind[s->n] = (HdSummaryKind){.op = op};
    return &s->kind[s->n++];
}

void hd_summary_add(HdSummary *s, const HdAction *a, int stream, double from, double us) {
    HdSummaryKind *k = kind_of(s, a->op);
    if (from + us > s->end) s->end = from + us;
    if (!stream && !strcmp(a->op, "wait")) {
        s->waited += us;
        s->waits++;
    }
    if (!k) return;
    k->count++;
    k->us += us;
    k->flops += a->flops;
    k->bytes += a->bytes;
}

static int by_time(const void *a, const void *b) {
    const HdSummaryKind *x = a, *y = b;
    return x->us < y->us ? 1 : x->us > y->us ? -1 : strcmp(x->op, y->op);
}

void hd_summary_print(HdSummary *s, double peak, FILE *f) {
    double total = 0;
    if (!s->n) hd_say(f, "no step was profiled\n");
    if (!s->n) return;
    for (int i = 0; i < s->n; i++) total += s->kind[i].us;
    qsort(s->kind, (size_t)s->n, sizeof *s->kind, by_time);
    hd_say(f, "%-24s %6s %10s %6s %9s", "op", "count", "us", "share", "TFLOP/s");
    if (peak > 0) hd_say(f, " %6s", "peak");
    hd_say(f, " %8s\n", "GB/s");
    for (int i = 0; i < s->n; i++) {
        const HdSummaryKind *k = &s->kind[i];
        const double rate = k->us > 0 ? k->flops / k->us * 1e-6 : 0;
        hd_say(f, "%-24s %6d %10.1f %5.1f%% %9.*f", k->op, k->count, k->us, total > 0 ? 100 * k->us / total : 0,
               peak > 0 ? 1 : 4, rate);
        if (peak > 0) hd_say(f, " %5.1f%%", 100e12 * rate / peak);
        hd_say(f, " %8.*f\n", peak > 0 ? 0 : 2, k->us > 0 ? k->bytes / k->us * 1e-3 : 0);
    }
    hd_say(f, "%-24s %6s %10.1f\n", "all", "", total);
    if (s->waits)
        hd_say(f, "step %.3f ms, of which the compute stream spends %.3f ms in %d waits for other streams\n",
               s->end * 1e-3, s->waited * 1e-3, s->waits);
}
