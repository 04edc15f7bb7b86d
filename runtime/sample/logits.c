// See logits.h.
#include "runtime/sample/logits.h"
#include "runtime/sample/call.h"

static const HdFunc *function(const HdProgram *p) { return p->logits_step.segments[0].func; }

bool hd_logits_there(const HdProgram *p, const char *option) {
    const char *name = p->n_inputs ? p->inputs[0].name : "tokens";
    return p->logits_step.n_segments == 1 ||
           hd_fail("--%s: this program was compiled without the function 'logits' of its model: compile it with --set "
                   "schedule.logits=on; where model %s has no such function, write beside 'loss': fn logits(%s: "
                   "i32[batch, seq]) { return ...; }, which returns what its cross_entropy takes",
                   option, p->model, name);
}

int64_t hd_logits_seq(const HdProgram *p) { return function(p)->args[0].dim[1]; }
int64_t hd_logits_vocab(const HdProgram *p) { return function(p)->results[0].dim[2]; }

bool hd_logits_run(HdExec *x, const int32_t *tokens) {
    const HdProgram *p = x->program;
    x->step = &p->logits_step;
    x->begins = x->ends = true;
    return p->backend->write(x, function(p)->args[0].offset, tokens, (size_t)hd_logits_seq(p) * sizeof *tokens) &&
           p->backend->run(x, function(p));
}

bool hd_logits_read(HdExec *x, int64_t token, int64_t n, float *rows) {
    const HdProgram *p = x->program;
    const int64_t row = hd_logits_vocab(p) * (int64_t)sizeof *rows;
    return p->backend->read(x, function(p)->results[0].offset + token * row, rows, (size_t)(n * row));
}

// --- a token

static const HdFunc *of_token(const HdProgram *p) { return p->decode_step.segments[0].func; }

bool hd_decode_there(const HdProgram *p) { return p->decode_step.n_segments == 1; }

bool hd_decode_run(HdExec *x, int32_t token, int32_t position) {
    const HdProgram *p = x->program;
    const HdFunc *f = of_token(p);
    x->step = &p->decode_step;
    x->begins = x->ends = true;
    return p->backend->write(x, f->args[0].offset, &token, sizeof token) &&
           p->backend->write(x, f->args[1].offset, &position, sizeof position) && p->backend->run(x, f);
}

bool hd_decode_again(HdExec *x) {
    const HdProgram *p = x->program;
    x->step = &p->decode_step;
    x->begins = x->ends = true;
    return p->backend->run(x, of_token(p));
}

bool hd_decode_choose(HdExec *x, const HdPick *how, int64_t n) {
    const HdFunc *f = of_token(x->program);
    const int64_t logits = f->results[0].offset;
    return x->program->backend->choose(x, how, logits, n, f->args[0].offset, f->args[1].offset) &&
           x->program->backend->post(x, 1, &logits, sizeof(int32_t));
}

bool hd_decode_chosen(HdExec *x, int32_t *token) { return x->program->backend->collect(x, token); }

bool hd_decode_read(HdExec *x, float *row) {
    const HdProgram *p = x->program;
    return p->backend->read(x, of_token(p)->results[0].offset, row, (size_t)hd_logits_vocab(p) * sizeof *row);
}

// --- a file

bool hd_logits_write(HdExec *x, HdWorld *w, Feed *data, const char *path) {
    const HdCallOut to = {&x->program->logits_step, function(x->program), "logits", "logits", path};
    return hd_call_write(x, w, data, &to);
}
