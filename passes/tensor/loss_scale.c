// The scale of the loss. f16 has no numbers below 2^-24 and loses bits below 2^-14, and the gradient of a mean over n
// numbers begins with 1/n, divided by the micro-batches and ranks of a step. With a scale of at least their product the
// gradient begins with 1 or a little more, however many tokens a step has and however ranks share them:
//   %l = cross_entropy %z, %y             of 1000 rows, two micro-batches, four ranks: 8192
//   %s = sum %e;  %l = mul %s, 0.0005     one of each: 2048
// f32 and bf16 have exponents for all of that, and take 1.
#include "passes/tensor/loss_scale.h"
#include "ir/affine.h"
#include "ir/mesh.h"
#include "ir/optimizer.h"
#include "passes/settings.h"
#include <math.h>

// The factor of an op's result in its operand i: where the op is linear with a factor that the text says. 0: it is not.
static double passes_on(const Op *o, int i) {
    const Op *other = o->n_in == 2 ? o->in[1 - i]->def : NULL;
    while (other && other->kind == OP_BROADCAST) other = other->in[0]->def;
    const double constant = other && hd_op_is(other, TRAIT_CONSTANT) ? hd_float(&other->attrs, A_VALUE, 0) : 0;
    const Affine of = {true, 0, 1}, known = {true, constant, 0};
    return o->n_in > 2 ? 0 : fabs(hd_affine(o, i ? known : of, i ? of : known).factor);
}

// The largest factor with which a gradient begins: at the logits of a cross_entropy, and wherever the loss is no longer
// a sum of multiples. 0: nowhere.
static double largest_start(const Func *f, const bool *active, Arena *scratch) {
    double *factor = HD_NEWN(scratch, double, f->n_values), largest = 0;
    const Op *ret = hd_return(f);
    factor[ret->in[0]->id] = 1;
    for (const Op *o = ret->prev; o; o = o->prev) {
        const double here = o->n_out ? factor[o->out[0]->id] : 0;
        bool ends = here > 0;
        for (int i = 0; i < o->n_in; i++) {
            const double by = passes_on(o, i);
            if (!active[o->in[i]->id] || by == 0) continue;
            factor[o->in[i]->id] += here * by;
            ends = false;
        }
        const double rows = hd_op_is(o, TRAIT_LOSS) ? (double)hd_type_rows(o->in[0]->type) : 1;
        if (ends && active[o->out[0]->id]) largest = fmax(largest, here / rows);
    }
    return largest;
}

int64_t hd_loss_scale(Func *f, const bool *active, Arena *scratch) {
    Module *m = f->module;
    const Attrs *train = hd_settings(m, "train");
    const Attr *given = hd_attr(train, A_LOSS_SCALE);
    if (given && !HD_IS_LOSS_SCALE(given->i)) {
        hd_error(m->cx, hd_symbol_find(m, "train")->span,
                 "loss_scale is %lld; it must be a power of two from 1 to %d, or absent, which chooses one",
                 (long long)given->i, HD_MOST_LOSS_SCALE);
        return 0;
    }
    if (given || strcmp(hd_word(train, A_COMPUTE, "f32"), "f16") != 0) return given ? given->i : 1;
    const Mesh mesh = hd_mesh(m);
    const double start = largest_start(f, active, scratch),
                 parts = (double)hd_int(train, A_MICRO, 1) * (double)hd_mesh_readers(&mesh);
    int64_t scale = 1;
    while (scale < HD_MOST_LOSS_SCALE && (double)scale * start < parts && start > 0) scale *= 2;
    hd_set_int(m->cx, &hd_config(m, "train")->attrs, A_LOSS_SCALE, scale);
    return scale;
}
