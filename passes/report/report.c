// The two forms of the report. The numbers come from facts.c and traffic.c.
#include "passes/report/report.h"
#include "passes/report/holders.h"
#include "passes/report/timeline.h"
#include "ir/base/ints.h"
#include <string.h>

// --- JSON

static void put_int(Out *o, const char *key, int64_t v) { hd_put_json(o, "  \"%s\": %lld,\n", key, ll(v)); }

static void put_string(Out *o, const char *key, const char *s) {
    hd_put_json(o, "  \"%s\": \"%s\",\n", key, s);
}

static void put_traffics(Out *o, const char *key, const Traffics *list) {
    hd_put_json(o, "  \"%s\": {", key);
    for (int i = 0; i < list->n; i++) {
        const Traffic *t = &list->at[i];
        hd_put_json(o, "%s\"%s\": {\"count\": %lld, \"bytes\": %lld, \"exposed_bytes\": %lld}", i ? ", " : "", t->name,
                    ll(t->count), ll(t->bytes), ll(t->exposed));
    }
    hd_puts(o, "},\n");
}

static void put_implementations(Out *o, const char *key, const ImplementedList *list) {
    hd_put_json(o, "  \"%s\": [", key);
    for (int i = 0; i < list->n; i++) {
        const Implemented *x = &list->at[i];
        hd_put_json(o, "%s{\"op\": \"%s\", \"impl\": \"%s\", \"else\": ", i ? ", " : "", x->op, x->impl);
        if (x->otherwise) hd_put_json(o, "\"%s\"", x->otherwise);
        else hd_puts(o, "null");
        if (x->drops) hd_puts(o, ", \"why\": \"dropout draws other numbers than cuDNN's\"");
        hd_put_json(o, ", \"count\": %lld}", ll(x->count));
    }
    hd_puts(o, "],\n");
}

static int64_t reduced_bytes(const Facts *r) { // that a rank receives in a step to add up gradients
    for (int i = 0; i < r->kinds.n; i++)
        if (!strcmp(r->kinds.at[i].name, "reduce_scatter")) return r->kinds.at[i].bytes;
    return 0;
}

static void put_padding(const Facts *r, Out *o) { // of buckets, and the buckets of the root
    put_int(o, "padding_bytes", r->padding);
    if (r->pieces.n) hd_puts(o, "  \"root\": [");
    for (int i = 0; i < r->pieces.n; i++)
        hd_put_json(o, "%s{\"bucket\": \"%s\", \"gradient_bytes\": %lld}", i ? ", " : "", r->pieces.at[i].name,
                    ll(r->pieces.at[i].bytes));
    if (r->pieces.n) hd_puts(o, "],\n");
}

static void put_unproved(const Facts *r, Out *o) {
    hd_puts(o, "  \"unproved\": [");
    for (int i = 0; i < r->unproved.n; i++) {
        if (i) hd_puts(o, ", ");
        hd_put_json(o, "\"%s\"", r->unproved.at[i].text);
    }
    hd_puts(o, "],\n");
}

static void put_products(const Facts *r, Out *o) { // those that became one, and those of the logits
    if (r->merged)
        hd_put_json(o, "  \"products\": {\"merged\": %lld, \"into\": %lld},\n", ll(r->merged->ints[0]),
                    ll(r->merged->ints[1]));
    if (r->loss_scale > 1) hd_put_json(o, "  \"loss_scale\": %lld,\n", ll(r->loss_scale));
    if (r->chunks > 1)
        hd_put_json(o, "  \"logits\": {\"chunks\": %lld, \"bytes\": %lld},\n", ll(r->chunks), ll(r->chunk_bytes));
    if (r->whole) {
        hd_puts(o, "  \"logits\": {\"chunks\": 1, \"why\": ");
        hd_put_json(o, "\"%s\"", r->whole);
        hd_puts(o, "},\n");
    }
}

static void put_json(const Facts *r, double seconds, Out *o) {
    hd_puts(o, "{\n");
    put_int(o, "ranks", r->ranks);
    hd_puts(o, "  \"mesh\": {");
    for (int i = 0, n = 0; i < N_AXES; i++)
        if (hd_mesh_says(&r->mesh, i))
            hd_put_json(o, "%s\"%s\": %lld", n++ ? ", " : "", hd_axis_name(i), ll(r->mesh.size[i]));
    hd_puts(o, "},\n");
    put_string(o, "strategy", r->strategy);
    hd_put_json(o, "  \"reduction\": {\"order\": \"%s\", \"bytes\": %lld, \"kept_bytes\": %lld},\n", r->reduction,
                ll(reduced_bytes(r)), ll(r->kept));
    if (r->overlaps) {
        hd_puts(o, "  \"overlap\": {\"streams\": [");
        for (int i = 0; i < r->overlaps->n; i++) hd_put_json(o, "%s\"%s\"", i ? ", " : "", r->overlaps->strs[i]);
        hd_put_json(o, "], \"held_bytes\": %lld},\n", ll(r->held));
    }
    hd_report_rounded_json(r, o);
    put_products(r, o);
    hd_report_experts_json(r, o);
    hd_report_pools_json(r, o);
    hd_report_beside_json(r, o);
    put_int(o, "parameters", r->parameters);
    put_int(o, "buckets", r->buckets);
    put_padding(r, o);
    put_int(o, "peak_bytes", r->peak);
    put_int(o, "lower_bound_bytes", r->bound);
    put_int(o, "persistent_bytes", r->persistent);
    put_int(o, "transient_bytes", r->peak - r->persistent);
    put_int(o, "host_pinned_bytes", r->pinned);
    put_string(o, "peak_at", r->at ? r->at->name : "");
    hd_puts(o, "  \"classes\": {");
    for (int i = 0; i < N_CLASSES; i++)
        if (i != CLASS_KV_CACHE || r->classes[i]) // of programs that write text
            hd_put_json(o, "%s\"%s\": %lld", i ? ", " : "", hd_report_class_text[i], ll(r->classes[i]));
    hd_puts(o, "},\n");
    if (r->guard) hd_put_json(o, "  \"guard\": {\"each\": %lld, \"bytes\": %lld},\n", ll(r->guard), ll(r->guards));
    put_traffics(o, "collectives", &r->kinds);
    put_traffics(o, "streams", &r->streams);
    put_int(o, "gathered_units_max", r->gathered_max);
    put_int(o, "live_grad_buffers_max", r->gradients_max);
    put_implementations(o, "attention", &r->attention);
    put_int(o, "graphs", r->regions.n);
    put_int(o, "kernels", r->kernels);
    put_int(o, "actions_per_step", r->actions);
    hd_put_json(o, "  \"flops_per_step\": %.0f,\n", r->flops);
    if (r->model_flops > 0) hd_put_json(o, "  \"model_flops_per_step\": %.0f,\n", r->model_flops);
    hd_report_capture(r, o);
    hd_report_predicted(r, o);
    hd_report_recomputed(r, o);
    hd_report_offloaded(r, o);
    if (seconds >= 0) hd_put_json(o, "  \"compile_seconds\": %.6f,\n", seconds);
    put_unproved(r, o);
    hd_put_json(o, "  \"verified\": %s\n}\n", r->verified ? "true" : "false");
}

// --- text

static double gib(int64_t bytes) { return (double)bytes / (double)(1 << 30); }

static double share(const Facts *r, int64_t bytes) { // of the peak, in percent
    return r->peak ? 100.0 * (double)bytes / (double)r->peak : 0.0;
}

static void put_classes(const Facts *r, Out *o) {
    hd_show(o, "\n%20s  %7s  class\n", "bytes", "share");
    for (int i = 0; i < N_CLASSES; i++)
        if (r->classes[i])
            hd_show(o, "%20lld  %5.1f %%  %s\n", ll(r->classes[i]), share(r, r->classes[i]),
                    hd_report_class_text[i]);
    if (r->guard)
        hd_show(o, "%20lld  %5.1f %%  guards, %lld bytes before and after each storage\n", ll(r->guards),
                share(r, r->guards), ll(r->guard));
    hd_show(o, "%20lld  100.0 %%  in all\n", ll(r->peak));
    if (r->pinned) hd_show(o, "%20lld           pinned host memory\n", ll(r->pinned));
}

static void put_holders(const Facts *r, Arena *a, Out *o) {
    enum { MOST = 16 };
    const Holders all = hd_report_holders(r, a);
    const Op *during = r->live.during;
    hd_show(o, "\npeak in @%s during op %d: [%s] %s  %s%s; live then:\n", r->at->name, during->id,
            during->stream ? during->stream : "", hd_report_action(a, during),
            during->loc.path ? during->loc.path : "", hd_report_place(a, during));
    for (int k = 0; k < MOST && k < all.n; k++) {
        const Holder *h = &all.at[k];
        hd_show(o, "%20lld  %5d x  %-11s  %s  %s%s\n", ll(h->bytes), h->n, hd_report_class_text[h->c], h->action,
                h->path, h->place);
    }
    if (all.n > MOST) hd_show(o, "%20s  and %d smaller kinds\n", "", all.n - MOST);
}

static void put_traffic_rows(const Traffics *list, const char *what, Out *o) {
    for (int i = 0; i < list->n; i++) {
        const Traffic *t = &list->at[i];
        hd_show(o, "%20lld  %10lld  %20lld  %s%s\n", ll(t->bytes), ll(t->count), ll(t->exposed), what, t->name);
    }
}

static void put_pieces_text(const Facts *r, Out *o) {
    for (int i = 0; i < r->pieces.n; i++)
        hd_show(o, "%s@%s of %lld bytes", i ? ", " : "the root moves in pieces, with gradients: ",
                r->pieces.at[i].name, ll(r->pieces.at[i].bytes));
    if (r->pieces.n) hd_puts(o, "\n");
}

static void put_communication(const Facts *r, Out *o) {
    if (!r->kinds.n) return;
    hd_show(o, "\n%20s  %10s  %20s  a rank receives in a step (exposed: no product can run meanwhile)\n", "bytes",
            "times", "exposed");
    put_traffic_rows(&r->kinds, "", o);
    put_traffic_rows(&r->streams, "stream ", o);
    hd_show(
        o, "at most %d gathered units and %d whole gradients of units at once; %lld bytes of padding in %d buckets\n",
        r->gathered_max, r->gradients_max, ll(r->padding), r->buckets);
    put_pieces_text(r, o);
    hd_show(o, "reduce = %s: gradients take %lld bytes received in a step and %lld bytes of memory throughout\n",
            r->reduction, ll(reduced_bytes(r)), ll(r->kept));
    for (int i = 0; r->overlaps && i < r->overlaps->n; i++)
        hd_show(o, "%s runs on beside the next micro-batch", r->overlaps->strs[i]);
    if (r->overlaps) hd_show(o, ", and holds up to %lld bytes until that waits for it\n", ll(r->held));
}

static void put_text(const Facts *r, double seconds, Arena *a, Out *o) {
    if (r->ranks > 1)
        hd_show(o, "%lld ranks, %s, %s; of one rank:\n", ll(r->ranks), hd_mesh_text(a, &r->mesh, true), r->strategy);
    hd_show(o, "device memory  %lld bytes (%.2f GiB), lower bound %lld, gap %.2f %%; %s", ll(r->peak), gib(r->peak),
            ll(r->bound), r->peak ? 100.0 * (double)(r->peak - r->bound) / (double)r->peak : 0.0,
            r->verified ? "verified" : "NOT VERIFIED");
    for (int i = 0; i < r->unproved.n; i++) hd_show(o, "; not proved: %s", r->unproved.at[i].text);
    hd_puts(o, "\n");
    put_classes(r, o);
    if (r->at && r->live.during) put_holders(r, a, o);
    put_communication(r, o);
    hd_report_pools_text(r, o);
    hd_report_rounded_text(r, o);
    if (r->merged)
        hd_show(o, "\nproducts of one operand: %lld became %lld\n", ll(r->merged->ints[0]), ll(r->merged->ints[1]));
    if (r->loss_scale > 1) hd_show(o, "\nthe gradient of the loss is multiplied by %lld\n", ll(r->loss_scale));
    if (r->chunks > 1)
        hd_show(o, "\nlogits and their gradient in %lld chunks of %lld bytes\n", ll(r->chunks), ll(r->chunk_bytes));
    if (r->whole) hd_show(o, "\nlogits in one piece: %s\n", r->whole);
    hd_report_experts_text(r, o);
    hd_report_beside_text(r, o);
    hd_report_recomputed_text(r, o);
    hd_report_offloaded_text(r, o);
    hd_report_predicted_text(r, o);
    for (int i = 0; i < r->attention.n; i++) {
        const Implemented *x = &r->attention.at[i];
        hd_puts(o, i ? ", " : "\n");
        hd_show(o, "%lld x %s by %s", ll(x->count), x->op, x->impl);
        if (!strcmp(x->impl, "cudnn")) hd_show(o, " (else %s)", x->otherwise ? x->otherwise : "nothing: it stops");
        if (x->drops) hd_puts(o, " (dropout draws other numbers than cuDNN's)");
    }
    if (r->attention.n) hd_puts(o, " in a step\n");
    hd_report_capture_text(r, o);
    hd_show(o, "\n%d kernels, %d graphs, %.4g floating-point operations a step\n", r->kernels, r->regions.n,
            r->flops);
    if (seconds >= 0) hd_show(o, "compiled in %.3f s\n", seconds);
}

void hd_report(const Module *m, double seconds, const ReportTexts *texts) {
    Arena *a = hd_arena_new();
    Facts r = hd_report_facts(m, a);
    if (texts->json) put_json(&r, seconds, texts->json);
    if (texts->text) put_text(&r, seconds, a, texts->text);
    if (texts->plan) hd_timeline_plan(m, &r, a, texts->plan);
    if (texts->page && r.device) hd_timeline_predicted(m, &r, a, texts->page);
    if (texts->page && !r.device && !m->cx->diags.errors)
        hd_error(m->cx, (Span){0},
                 "a timeline predicts times, and there is no device table for this target: give one with "
                 "--device-model=FILE");
    hd_arena_free(a);
}
