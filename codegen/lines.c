// The table of an update with means of rows, columns and whole parameters (ir/optimizer.h).
#include "codegen/emit.h"
#include "ir/base/ints.h"
#include "ir/mesh.h"
#include "ir/optimizer.h"

static void put_list(Out *t, const char *name, int n, const int64_t *v) {
    hd_printf(t, ", .%s = {", name);
    for (int i = 0; i < n || !i; i++) hd_printf(t, "%s%lld", i ? ", " : "", i < n ? ll(v[i]) : 0);
    hd_puts(t, "}");
}

const char *hd_emit_lined(Emit *e, const Op *o, const char *more) {
    const Func *k = hd_update_kernel(o);
    const Lines x = hd_lined(o, e->a);
    const LineSpace space = hd_line_space(o);
    const int states = k->n_args - OPT_STATE, means = hd_emit_means(k);
    int *per = HD_NEWN(e->a, int, k->n_values + 1), n = 0;
    int64_t of[HD_MAX_MEANS], to[HD_MAX_MEANS], kept[HD_MAX_STATES];
    hd_optimizer_per(k, per);
    for (const Op *p = k->first; p; p = p->next)
        if (hd_op_is(p, TRAIT_AVERAGES)) of[n] = per[p->in[0]->id], to[n] = per[p->out[0]->id], n++;
    for (int i = 0; i < states; i++) kept[i] = hd_state_per(k, i);
    Out t = hd_out(e->a);
    hd_printf(&t, "&(const HdLines){.split = %u, .n = %d, .n_states = %d, .n_means = %d, .list = (const HdLined[]){",
              hd_axes(&hd_named(o, A_MASTER_WEIGHTS)->attrs, A_SPLIT), x.n, states, means);
    for (int i = 0; i < x.n; i++) {
        const Lined *l = &x.list[i];
        hd_printf(&t, "{%lld, %lld, %lld, %lld, {", ll(l->rank), ll(l->at), ll(l->rows), ll(l->cols));
        for (int s = 0; s < states || !s; s++) hd_printf(&t, "%s%lld", s ? ", " : "", states ? ll(l->line[s]) : 0);
        hd_puts(&t, "}}, ");
    }
    hd_puts(&t, x.n ? "}" : "{0}}");
    put_list(&t, "per", states, kept);
    put_list(&t, "of", means, of);
    put_list(&t, "to", means, to);
    put_list(&t, "mean", means, space.mean);
    put_list(&t, "fresh", states, space.fresh);
    hd_printf(&t, ", .sums = %lld%s}", ll(space.sums), more);
    return t.text;
}
