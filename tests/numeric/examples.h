// The whole-model cases of the numeric tests: the example models in a small size, and a model of ops over various axes,
// with parameters and a batch filled in.
#ifndef TESTS_NUMERIC_EXAMPLES_H
#define TESTS_NUMERIC_EXAMPLES_H
#include "frontend/frontend.h"
#include "passes/manager/manager.h"
#include "tests/numeric/harness.h"
#include <stdlib.h>

typedef struct { const char *name, *file, *sets[12]; } Model;
static const Model models[] = {
    {"gpt2", "examples/gpt2/gpt2.hd",
     {"layers=2", "heads=2", "dim=12", "seq=5", "vocab=13", "train.batch=2", "train.accumulate=2", NULL}},
    {"llama", "examples/llama/llama.hd",
     {"layers=2", "heads=4", "kv_heads=2", "dim=16", "hidden=10", "seq=5", "vocab=13", "train.batch=2", NULL}},
    {"axes", "tests/numeric/axes.hd", {NULL}},
    {"tiny", "examples/tiny/tiny.hd", {"layers=1", "heads=2", "dim=8", "seq=6", "vocab=11", "train.batch=3", NULL}},
};
enum { N_MODELS = sizeof models / sizeof *models };

typedef struct { Ctx *cx; Arena *arena; Module *m; Eval *e; Tensor in[4]; } Loaded;

// Compiles a model, with one more setting, through `pipeline`. m is NULL after failing the test.
static Loaded load(Test *t, const Model *model, const char *setting, const char *pipeline) {
    Loaded l = {.cx = hd_ctx_new(), .arena = hd_arena_new()};
    t->arena = l.arena;
    size_t len = 0;
    const char *text = hd_read_file(l.cx->arena, model->file, &len);
    if (!text) {
        fail(t, "cannot read %s", model->file);
        return l;
    }
    SetOption sets[13];
    int n = 0;
    for (; model->sets[n]; n++) sets[n].text = model->sets[n];
    sets[n++].text = setting;
    Pipeline p;
    ManagerOptions options = hd_manager_defaults();
    options.verify_each = true;
    l.m = hd_frontend(l.cx, model->file, text, len, sets, n);
    if (!l.m || !hd_pipeline_parse(l.cx, pipeline, &p) || !hd_manager_run(l.m, &p, &options)) {
        Out out = hd_out(l.arena);
        hd_diags_print(&l.cx->diags, &out);
        fail(t, "does not compile with %s and %s:\n%s", setting, pipeline, out.text);
        l.m = NULL;
    }
    return l;
}

// The k-th element of parameter `index`: weights around 0, those that start at 1 around 1. The same in every stage and
// dtype: on a lattice of 1/64, which is exact in bf16.
static double parameter(const Symbol *s, int64_t k) {
    uint64_t state = (uint64_t)hd_int(&s->attrs, A_INDEX, 0) * 1000003u + (uint64_t)k;
    double one = strcmp(hd_word(&s->attrs, A_INIT, "zeros"), "ones") == 0;
    return one + floor(uniform(&state, -32, 32)) / 64;
}

static void fill_batch(Loaded *l, const Func *f) {
    uint64_t state = 7;
    double vocab = (double)hd_int(&hd_config(l->m, "model")->attrs, A_VOCAB, 2);
    for (int i = 0; i < f->n_args; i++) {
        l->in[i] = hd_tensor(l->arena, f->args[i]->type);
        for (int64_t k = 0, n = hd_type_count(l->in[i].type); k < n; k++)
            l->in[i].data[k] = floor(uniform(&state, 0, vocab));
    }
}

// At stage tensor: parameters into their symbols.
static inline void fill_parameters(Loaded *l, EvalMode mode) {
    l->e = hd_eval_new(l->m, mode, l->arena);
    for (const Symbol *s = l->m->symbols; s; s = s->next) {
        if (s->kind != SYM_PARAM) continue;
        Tensor p = hd_eval_storage(l->e, s->name);
        for (int64_t k = 0, n = hd_type_count(p.type); k < n; k++) p.data[k] = parameter(s, k);
    }
    fill_batch(l, hd_func_find(l->m, "micro"));
}

static void unload(Loaded *l) {
    hd_arena_free(l->arena);
    hd_ctx_free(l->cx);
}
#endif
