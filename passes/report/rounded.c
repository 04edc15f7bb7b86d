// Gathers that round the master weights of a rank, in both forms of the report: what a step moves for that, and what
// the copies that it replaces would hold. And those that quantize: how many, and how many do not.
#include "passes/report/facts.h"
#include "ir/base/ints.h"
#include "passes/settings.h"
#include <string.h>

static void add_gather(Facts *r, const Op *o, int64_t runs, bool *seen) {
    const Symbol *from = hd_symbol_find(o->func->module, hd_word(&o->attrs, A_BUFFER, ""));
    const Type *t = from ? from->type : o->in[0]->type;
    const int64_t rounded = hd_type_count(t) * hd_dtype_bytes(hd_result_type(o, 0)->dtype);
    const int64_t moved = hd_type_bytes(t) + rounded;
    r->rounded.gathers += runs;
    r->rounded.moved += runs * moved;
    if (r->device) r->rounded.seconds += (double)runs * hd_model_rows(r->device, (double)moved);
    if (from && !seen[from->id]) r->rounded.saved += rounded;
    if (from) seen[from->id] = true;
}

// A gather of scales goes with that of the elements.
static void count_quantized(const Module *m, const Op *o, int64_t runs, Facts *r) {
    const Symbol *into = hd_named(o, A_INTO);
    if (!into || strcmp(hd_word(&into->attrs, A_CLASS, ""), "weights") || hd_has(&o->attrs, A_SCALES)) return;
    if (strcmp(hd_word(hd_settings(m, "train"), A_GATHER, ""), "fp8")) return;
    if (hd_has(&o->attrs, A_QUANTIZED)) r->quantized.gathers += runs;
    else r->quantized.others += runs;
}

static void count_sum(const Module *m, const Op *o, int64_t runs, Facts *r) {
    const Symbol *from = hd_named(o, A_BUFFER);
    if (!from || strcmp(hd_word(hd_settings(m, "train"), A_GRAD, ""), "bf16")) return;
    if (hd_has(&o->attrs, A_OUT)) r->sums.half += runs * hd_type_count(from->type);
    else r->sums.f32 += runs * hd_type_count(from->type);
}

void hd_report_rounded(const Module *m, Facts *r, Arena *a) {
    const Symbol *step = hd_step(m, KIND_TRAIN);
    bool *seen = HD_NEWN(a, bool, m->n_symbols + 1);
    for (const Func *f = m->funcs; f; f = f->next) {
        const int64_t runs = f->is_kernel ? 0 : hd_runs(step, f);
        for (const Op *o = f->first; o && runs > 0; o = o->next) {
            if (o->kind == OP_REDUCE_SCATTER) count_sum(m, o, runs, r);
            if (!hd_gathers(o)) continue;
            if (hd_has(&o->attrs, A_OUT) && !hd_has(&o->attrs, A_QUANTIZED)) add_gather(r, o, runs, seen);
            count_quantized(m, o, runs, r);
        }
    }
    const char *asked = hd_word(hd_settings(m, "schedule"), A_WEIGHTS_FROM, ""),
               *compute = hd_word(hd_settings(m, "train"), A_COMPUTE, "f32"),
               *master = hd_word(hd_settings(m, "train"), A_MASTER, "f32");
    if (!step || r->rounded.gathers || strcmp(asked, "master")) return;
    r->rounded.why = !strcmp(compute, "f32")      ? "compute = f32, so nothing is rounded"
                     : strcmp(master, "f32") != 0 ? "weights are kept in bf16, so what is gathered is rounded already"
                                                  : "every rank updates all weights, so none are gathered";
}

void hd_report_rounded_json(const Facts *r, Out *o) {
    const Rounded *x = &r->rounded;
    if (r->sums.half || r->sums.f32)
        hd_put_json(o, "  \"gradients_sent\": {\"bf16\": %lld, \"f32\": %lld},\n", ll(r->sums.half), ll(r->sums.f32));
    if (r->quantized.gathers)
        hd_put_json(o, "  \"quantized\": {\"gathers\": %lld, \"others\": %lld},\n", ll(r->quantized.gathers),
                    ll(r->quantized.others));
    if (x->why) hd_put_json(o, "  \"rounded\": {\"gathers\": 0, \"why\": \"%s\"},\n", x->why);
    if (!x->gathers) return;
    hd_put_json(o, "  \"rounded\": {\"gathers\": %lld, \"saved_bytes\": %lld, \"moved_bytes\": %lld", ll(x->gathers),
                ll(x->saved), ll(x->moved));
    if (r->device) hd_put_json(o, ", \"seconds\": %.9f", x->seconds);
    hd_puts(o, "},\n");
}

void hd_report_rounded_text(const Facts *r, Out *o) {
    const Rounded *x = &r->rounded;
    if (r->sums.half || r->sums.f32)
        hd_show(o, "grad = bf16: sums over ranks take %lld elements of gradients in bf16 in a step, and %lld in f32: "
                "buckets with tables, heads and what has several contributions, and what a rank keeps whole\n",
                ll(r->sums.half), ll(r->sums.f32));
    if (r->quantized.gathers)
        hd_show(o, "gather = fp8: %lld gathers of weights in a step are in one byte with scales, and %lld are of "
                "weights that are read otherwise as well\n", ll(r->quantized.gathers), ll(r->quantized.others));
    if (x->why) hd_show(o, "weights = master has no effect: %s\n", x->why);
    if (!x->gathers) return;
    hd_show(o,
            "weights = master: %lld gathers round master weights in a step and move %lld bytes of memory for that",
            ll(x->gathers), ll(x->moved));
    if (r->device) hd_show(o, ", %.2f ms", 1e3 * x->seconds);
    hd_show(o, "; copies would hold %lld bytes\n", ll(x->saved));
}
