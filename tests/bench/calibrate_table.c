// See calibrate_cases.h: the text of a device table.
#include "tests/bench/calibrate_cases.h"
#include <math.h>
#include <time.h>

typedef struct {
    Arena *a;
    Out o;
    double gap; // seconds that a graph's launch adds
    int lifted; // points that were above a larger one
} Writer;

static double us(const Writer *w, const Case *c) {
    const double t = (c->seconds - (c->direct ? 0 : w->gap)) / c->copies * 1e6;
    return t > 1e-3 ? t : 1e-3;
}

static bool same_line(const Case *a, const Case *b) {
    return a->fact == b->fact && a->number == b->number && !strcmp(a->words, b->words);
}

static const char *size_text(Arena *a, double n) {
    static const char *const units[] = {"", "KiB", "MiB", "GiB"};
    int u = 0;
    for (; u < 3 && n >= 1024 && fmod(n, 1024) == 0; u++) n /= 1024;
    return hd_sprintf(a, "%.0f%s", n, units[u]);
}

// The points of a line. Noise can make a larger size faster; it then gets the time of the smaller one. Rates likewise
// may not grow faster than sizes. `below`: the times of the line before, of products with fewer results.
static void put_line(Writer *w, const CaseList *l, int first, double *below, int n_below) {
    const Case *c = &l->cases.at[first];
    hd_printf(&w->o, "%s%s%s", hd_fact_keyword(c->fact), *c->words ? " " : "", c->words);
    if (c->number > 0) hd_printf(&w->o, " %.0f", c->number);
    double last = 0, at = 0;
    for (int i = first, k = 0; i < l->cases.n; i++) {
        const Case *p = &l->cases.at[i];
        if (!same_line(p, c)) continue;
        const bool rate = c->fact == FACT_ATTENTION;
        double v = rate ? p->flops / us(w, p) * 1e-6 : us(w, p);
        const double limit = rate ? (at > 0 ? 0.999 * last * p->at / at : v) : last; // 0.999: they are rounded
        const bool wrong = rate ? v > limit : v < limit;
        w->lifted += wrong;
        if (wrong) v = limit;
        if (k < n_below && v < below[k]) v = below[k], w->lifted++;
        if (k < n_below) below[k] = v;
        k++;
        last = v;
        at = p->at;
        hd_printf(&w->o, " %s:%.4g", size_text(w->a, p->at), v);
    }
    hd_puts(&w->o, "\n");
}

static void put_lines(Writer *w, const CaseList *l, FactId fact, const char *words) {
    double below[64] = {0};
    for (int i = 0; i < l->cases.n; i++) {
        const Case *c = &l->cases.at[i];
        int k = 0;
        while (!same_line(&l->cases.at[k], c)) k++;
        if (c->fact == fact && k == i && (!words || !strcmp(words, c->words)))
            put_line(w, l, i, below, fact == FACT_PRODUCT ? 64 : 0);
    }
}

static void put_shares(Writer *w, const CaseList *l) {
    // what `rows` says at so many bytes, on a line through its largest points
    const Case *largest = NULL;
    for (int i = 0; i < l->cases.n; i++)
        if (l->cases.at[i].fact == FACT_ROWS) largest = &l->cases.at[i];
    const double rate = largest->at / us(w, largest);
    for (int i = 0; i < l->cases.n; i++) {
        const Case *c = &l->cases.at[i];
        if (c->fact != FACT_SHARE) continue;
        const double share = c->bytes / us(w, c) / rate;
        hd_printf(&w->o, "share %s %.3f\n", c->words, share > 1 ? 1 : share < 0.001 ? 0.001 : share);
    }
}

static double both_ways(const Writer *w, const CaseList *l) {
    const Case *both = calibrate_find(l, "both_ways"), *in = NULL;
    for (int i = 0; i < l->cases.n; i++) {
        const Case *c = &l->cases.at[i];
        if (c->fact == FACT_COPY && !strcmp(c->words, "to-device") && c->at == both->at) in = c;
    }
    const double share = us(w, in) / us(w, both);
    return share > 1 ? 1 : share < 0.05 ? 0.05 : share;
}

// The speed that products keep beside the transfers of `fact` and `words`: T = Tc + (Tp - share Tc), where the
// transfers take Tc and the products alone Tp.
static double beside(const CaseList *l, FactId fact, const char *words, double gap) {
    const Case *alone = calibrate_find(l, "alone"), *both = calibrate_find(l, "beside"), *transfer = NULL;
    for (int i = 0; i < l->cases.n; i++) {
        const Case *c = &l->cases.at[i];
        if (c->fact == fact && !strcmp(c->words, words) && c->at == both->at) transfer = c;
    }
    const double tc = (transfer->seconds - gap) / transfer->copies * both->copies;
    const double share = 1 - (both->seconds - alone->seconds) / (tc > 1e-9 ? tc : 1e-9);
    return share > 1 ? 1 : share < 0.05 ? 0.05 : share;
}

static const char *short_name(Arena *a, const char *gpu) { // NVIDIA H100 80GB HBM3: H100
    if (!strncmp(gpu, "NVIDIA ", 7)) gpu += 7;
    return hd_strndup(a, gpu, strcspn(gpu, " "));
}

static void put_head(Writer *w, const Results *r) {
    char day[16];
    const time_t t = time(NULL);
    strftime(day, sizeof day, "%Y-%m-%d", gmtime(&t));
    const Case *direct = calibrate_find(&r->single, "direct");
    hd_printf(&w->o, "name %s\ngpu %s\nfrom tests/bench/calibrate, %s\nsms %d\ncopy-engines 2\n",
              short_name(w->a, r->gpu), r->gpu, day, r->sms);
    hd_printf(&w->o, "launch-direct %.3g\nlaunch-graph %.3g\n", us(w, direct), w->gap * 1e6);
    hd_printf(&w->o, "sustained %.3f\nbeside-collective %.3f\n", r->sustained,
              r->n_ranks ? beside(&r->ranks[r->n_ranks - 1], FACT_GATHER, "nvlink", w->gap) : 1);
    hd_printf(&w->o, "beside-copy %.3f\nboth-ways %.3f\n", beside(&r->single, FACT_COPY, "to-host", w->gap),
              both_ways(w, &r->single));
}

// Without other GPUs there is nothing to measure collectives among: the lines of the table in the tree stay.
static void put_collectives(Writer *w, const Results *r) {
    for (int f = FACT_GATHER; f <= FACT_SCATTER; f++)
        for (int i = 0; i < r->n_ranks; i++) put_lines(w, &r->ranks[i], (FactId)f, NULL);
    hd_puts(&w->o, "# One host: nothing was measured of a network, whose lines `calibrate --only=network` writes.\n");
    if (r->n_ranks) return;
    hd_puts(&w->o, "# One GPU: nothing was measured of collectives. These lines are those of two GPUs at the rate of\n"
                   "# copies within the device.\n");
    const Case *c = NULL;
    for (int i = 0; i < r->single.cases.n; i++)
        if (r->single.cases.at[i].fact == FACT_COPY && !strcmp(r->single.cases.at[i].words, "within"))
            c = &r->single.cases.at[i];
    for (int f = 0; f < 2; f++)
        hd_printf(&w->o, "%s nvlink 2 1KiB:%.4g %s:%.4g\n", f ? "reduce_scatter" : "all_gather", 12.0,
                  size_text(w->a, c->at), 12.0 + us(w, c));
}

static Writer writer(const Results *r, Arena *a) {
    Writer w = {.a = a, .o = hd_out(a)};
    const Case *few = calibrate_find(&r->single, "few"), *many = calibrate_find(&r->single, "many");
    const double each = (many->seconds - few->seconds) / (many->copies - few->copies);
    w.gap = few->seconds - each * few->copies;
    w.gap = w.gap > 1e-7 ? w.gap : 1e-7;
    return w;
}

const char *calibrate_lines(const Results *r, Arena *a) {
    Writer w = writer(r, a);
    put_lines(&w, &r->single, FACT_PRODUCT, "e4m3");
    for (int f = FACT_GATHER; f <= FACT_SCATTER; f++) put_lines(&w, &r->single, (FactId)f, NULL);
    return w.o.text;
}

const char *calibrate_table(const Results *r, Arena *a) {
    Writer w = writer(r, a);
    put_head(&w, r);
    hd_puts(&w.o, "# microseconds by k\n");
    if (r->single.fp8) put_lines(&w, &r->single, FACT_PRODUCT, "e4m3");
    put_lines(&w, &r->single, FACT_PRODUCT, "bf16");
    put_lines(&w, &r->single, FACT_PRODUCT, "f32");
    hd_puts(&w.o, "# TFLOP/s by positions\n");
    put_lines(&w, &r->single, FACT_ATTENTION, NULL);
    hd_puts(&w.o, "# microseconds by bytes read and written; shares of that rate\n");
    put_lines(&w, &r->single, FACT_ROWS, NULL);
    put_shares(&w, &r->single);
    hd_puts(&w.o, "# microseconds by bytes copied\n");
    put_lines(&w, &r->single, FACT_COPY, NULL);
    hd_puts(&w.o, "# microseconds by bytes that a rank receives\n");
    put_collectives(&w, r);
    return hd_sprintf(a,
                      "heddle-device 1\n# Written by tests/bench/calibrate. %d of its points lay above a larger one by "
                      "noise, and were moved to it.\n%s",
                      w.lifted, w.o.text);
}
