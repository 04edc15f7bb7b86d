// The functions of a program's steps, as a run calls them.
#include "runtime/steps.h"
#include "runtime/mesh.h"

static bool takes_batch(const HdProgram *p, const HdFunc *f) { // (tokens, targets), both i32[batch, seq]
    if (f->n_args != 2) return false;
    for (int i = 0; i < 2; i++)
        if (f->args[i].dtype != HD_I32 || f->args[i].rank != 2 || f->args[i].dim[0] != p->batch ||
            f->args[i].dim[1] != p->seq)
            return false;
    return true;
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

bool hd_steps_check(const HdProgram *p) {
    if (!p->train_step.n_segments || p->train_step.loss < 0 || p->train_step.norm < 0)
        hd_fail("this program holds no training step");
    else if (batches(p, &p->train_step) != p->micro ||
             (p->eval_step.n_segments && (batches(p, &p->eval_step) != 1 || p->eval_step.loss < 0)))
        hd_fail("the loss of model %s does not take (tokens: i32[batch, seq], targets: i32[batch, seq]); a "
                "program can train on nothing else",
                p->model);
    else return true;
    return false;
}

int64_t hd_step_sequences(const HdProgram *p) { return p->batch * p->micro * hd_readers(p); }
