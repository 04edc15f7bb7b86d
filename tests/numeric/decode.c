// The function of one token (pass decode) against the one of a whole window: token after token of a sequence, the
// logits are those of the window, without rounding and in f32.
#include "tests/numeric/finite.h"
#include "tests/numeric/examples.h"

static const Model texts[] = {
    {"gpt2", "examples/gpt2/gpt2.hd", {"layers=2", "heads=2", "dim=12", "seq=7", "vocab=13", NULL}},
    {"llama", "examples/llama/llama.hd",
     {"layers=2", "heads=4", "kv_heads=2", "dim=16", "hidden=10", "seq=7", "vocab=13", NULL}},
    {"llama, window", "examples/llama/llama.hd",
     {"layers=2", "heads=4", "kv_heads=1", "dim=16", "hidden=10", "seq=7", "vocab=13", "window=3", NULL}},
    {"tiny, seq = dim", "examples/tiny/tiny.hd", {"layers=1", "heads=2", "dim=8", "seq=8", "vocab=11", NULL}},
};
enum { N_TEXTS = sizeof texts / sizeof *texts };

static double token_by_token(Test *t, Loaded *l, EvalMode mode) {
    Func *logits = NULL, *decode = NULL;
    double most = 0;
    fill_parameters(l, mode);
    if (!hd_func_of_kind(l->m, KIND_LOGITS, &logits) || !hd_func_of_kind(l->m, KIND_DECODE, &decode) || !decode) {
        fail(t, "there is no function of kind decode");
        return 0;
    }
    Tensor window = hd_tensor(l->arena, logits->args[0]->type), one[2];
    Tensor all = hd_tensor(l->arena, hd_return(logits)->in[0]->type),
           row = hd_tensor(l->arena, hd_return(decode)->in[0]->type);
    const int64_t seq = hd_type_count(window.type), vocab = hd_type_count(row.type);
    for (int64_t i = 0; i < seq; i++) window.data[i] = (double)((5 * i + 3) % vocab);
    for (int i = 0; i < 2; i++) one[i] = hd_tensor(l->arena, decode->args[i]->type);
    const char *wrong = hd_eval(l->e, logits, &window, &all);
    for (int64_t i = 0; i < seq && !wrong; i++) {
        one[0].data[0] = window.data[i];
        one[1].data[0] = (double)i;
        wrong = hd_eval(l->e, decode, one, &row);
        for (int64_t k = 0; k < vocab; k++) most = fmax(most, fabs(row.data[k] - all.data[i * vocab + k]));
        t->compared += (int)vocab;
    }
    if (wrong) fail(t, "%s", wrong);
    return most;
}

int main(void) {
    Test t = {0};
    for (int i = 0; i < N_TEXTS; i++) {
        static const struct { EvalMode mode; double bound; } rows[] = {{EVAL_EXACT, 1e-11}, {EVAL_ROUNDED, 1e-5}};
        t.name = texts[i].name;
        for (int k = 0; k < 2; k++) {
            Loaded l = load(&t, &texts[i], "schedule.logits=on",
                            "simplify,cse,autodiff,precision,simplify,cse,dce,decode");
            const double off = l.m ? token_by_token(&t, &l, rows[k].mode) : 0;
            if (!(off <= rows[k].bound)) fail(&t, "logits off by %.3g, more than %.3g", off, rows[k].bound);
            unload(&l);
        }
    }
    printf("%d logits compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
