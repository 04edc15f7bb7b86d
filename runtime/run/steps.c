// The functions of a program's steps, as a run calls them.
#include "runtime/run/steps.h"
#include "runtime/sample/call.h"
#include "runtime/world/mesh.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool takes_batch(const HdProgram *p, const HdFunc *f) { // all inputs, in their order
    bool same = f->n_args == p->n_inputs;
    for (int i = 0; same && i < f->n_args; i++) {
        const HdTensor *a = &f->args[i];
        const HdInput *in = &p->inputs[i];
        same = a->dtype == in->dtype && a->rank == in->rank && !memcmp(a->dim, in->dim, sizeof a->dim) &&
               (in->dtype == HD_I32 || in->dtype == HD_F32) && in->rank > 0 && in->dim[0] == p->batch;
    }
    return same;
}

// How many batches a step takes; -1: one of its functions takes something else.
static int64_t batches(const HdProgram *p, const HdStep *s) {
    int64_t n = 0;
    for (int i = 0; i < s->n_segments; i++) {
        if (s->segments[i].func->n_args && !takes_batch(p, s->segments[i].func)) return -1;
        n += s->segments[i].func->n_args ? s->segments[i].times : 0;
    }
    return n;
}

static bool gives_logits(const HdProgram *p, const HdStep *s) {
    const HdFunc *f = s->segments[0].func;
    if (s->n_segments != 1 || !p->n_inputs || f->n_args != 1 || f->n_results != 1) return false;
    const HdTensor *a = &f->args[0], *r = &f->results[0];
    const HdInput *in = &p->inputs[0];
    return a->dtype == HD_I32 && in->dtype == HD_I32 && a->rank == 2 && in->rank == 2 && a->dim[0] == 1 &&
           a->dim[1] == in->dim[1] && r->dtype == HD_F32 && r->rank == 3 && r->dim[0] == 1 && r->dim[1] == a->dim[1];
}

static bool is_one(const HdTensor *t) {
    return t->dtype == HD_I32 && t->rank == 2 && t->dim[0] == 1 && t->dim[1] == 1;
}

static bool gives_token(const HdProgram *p, const HdStep *s) {
    const HdFunc *f = s->segments[0].func, *all = p->logits_step.n_segments ? p->logits_step.segments[0].func : NULL;
    if (!all || s->n_segments != 1 || f->n_args != 2 || f->n_results != 1) return false;
    const HdTensor *r = &f->results[0];
    return is_one(&f->args[0]) && is_one(&f->args[1]) && r->dtype == HD_F32 && r->rank == 3 && r->dim[0] == 1 &&
           r->dim[1] == 1 && r->dim[2] == all->results[0].dim[2];
}

bool hd_steps_check(const HdProgram *p) {
    if (!p->train_step.n_segments || p->train_step.loss < 0 || p->train_step.norm < 0)
        hd_fail("this program holds no training step");
    else if (batches(p, &p->train_step) != p->micro ||
             (p->eval_step.n_segments && (batches(p, &p->eval_step) != 1 || p->eval_step.loss < 0)))
        hd_fail("no run can feed model %s: its loss has no argument, or one that is not f32 or i32 with batch as its "
                "first dimension",
                p->model);
    else if (p->train_step.n_results > HD_MOST_RESULTS || p->eval_step.n_results > HD_MOST_RESULTS)
        hd_fail("the loss of model %s has more than %d results beside itself", p->model, HD_MOST_RESULTS);
    else if (p->logits_step.n_segments && !gives_logits(p, &p->logits_step))
        hd_fail("the function of model %s for logits does not take one sequence of its first input, or returns no f32 "
                "for each of its tokens", p->model);
    else if (p->decode_step.n_segments && !gives_token(p, &p->decode_step))
        hd_fail("the function of model %s for one token does not take a token and its position, or returns no f32 for "
                "each token of the vocabulary", p->model);
    else return hd_calls_fit(p);
    return false;
}

const char *hd_scale_advice(const HdProgram *p, float loss, int bound, char *text, size_t size) {
    const long long scale = p->loss_scale;
    text[0] = 0;
    if (isnan(loss) && bound > 0)
        snprintf(text, size,
                 "; a rank has more tokens for another one than schedule.experts.bound lets travel: the first layer "
                 "where that is so needs --set schedule.experts.bound=%d, every token has room with %d, and "
                 "schedule.experts = gather has no bound", bound, p->bound_of_all);
    if (isfinite(loss) && scale > 1)
        snprintf(text, size,
                 "; gradients are multiplied by train.loss_scale = %lld: if that makes them too large for their type, "
                 "compile with --set train.loss_scale=auto or, where it is that, with a smaller one, such as --set "
                 "train.loss_scale=%lld, and --resume the last checkpoint",
                 scale, scale > 16 ? scale / 16 : 1);
    return text;
}

bool hd_step_skipped(const HdProgram *p, float norm, const float *z) {
    bool outlier = false;
    for (int i = 0; z && i < 2; i++) outlier |= p->skip_z[i] > 0 && (double)z[i] > p->skip_z[i];
    return outlier || (p->skips && !isfinite(norm));
}

int64_t hd_step_sequences(const HdProgram *p) { return p->batch * p->micro * hd_readers(p); }

int64_t hd_step_tokens(const HdProgram *p) { return hd_step_sequences(p) * (p->seq ? p->seq : 1); }
