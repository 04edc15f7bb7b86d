// Any text: the .hir parser and the verifier report errors or accept it; what they accept prints, parses again and
// prints to the same bytes, autodiff and precision accept or refuse its loss, and the clean-up passes keep it valid and
// compute the same bits.
#include "passes/manager/manager.h"
#include "tests/fuzz/values.h"
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Out print(const Module *m, Arena *a) {
    Out o = hd_out(a);
    hd_print_module(m, &o);
    return o;
}

static Module *parse(Ctx *cx, const char *text, size_t n) {
    return hd_parse_module(cx, text, n, hd_source_add(&cx->diags, "fuzz", text, n, 1));
}

static void fail(const char *what, const Ctx *cx, const char *text) {
    Out o = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &o);
    fprintf(stderr, "%s\n%s\n%s", what, text, o.text);
    abort();
}

static void check_round_trip(const Out *once) {
    Ctx *cx = hd_ctx_new();
    Module *m = parse(cx, once->text, once->n);
    if (!m || !hd_verify(m)) fail("the printed module does not parse and verify", cx, once->text);
    if (strcmp(print(m, cx->arena).text, once->text) != 0)
        fail("the printed module prints differently", cx, once->text);
    hd_ctx_free(cx);
}

static void check_passes(Ctx *cx, Module *m, const Out *once) {
    if (m->stage != STAGE_TENSOR && m->stage != STAGE_SHARDED) return;
    const bool *which = hd_values_small(m, cx->arena);
    Values before = hd_values(m, which, cx->arena);
    Pipeline p = {0};
    ManagerOptions options = {.verify_each = true};
    if (!hd_pipeline_parse(cx, "simplify,cse,dce,simplify,cse,dce", &p) || !hd_manager_run(m, &p, &options))
        fail("the clean-up passes fail on this module", cx, once->text);
    Values after = hd_values(m, which, cx->arena);
    if (!hd_values_equal(&before, &after)) fail("the clean-up passes change a value", cx, once->text);
}

// Where there is a loss, its gradient and a lower compute dtype are made, or refused with an error.
static void check_gradient(const Out *once) {
    Ctx *cx = hd_ctx_new();
    Module *m = parse(cx, once->text, once->n);
    Pipeline p = {0};
    ManagerOptions options = {.verify_each = true};
    const Symbol *train = m ? hd_symbol_find(m, "train") : NULL;
    Func *loss;
    if (m && m->stage == STAGE_TENSOR && hd_func_of_kind(m, KIND_LOSS, &loss) && loss &&
        (!train || train->kind == SYM_CONFIG)) {
        hd_set_word(cx, &hd_config(m, "train")->attrs, A_COMPUTE, "bf16");
        bool ok = hd_pipeline_parse(cx, "autodiff,precision,simplify,cse,dce", &p) && hd_manager_run(m, &p, &options);
        if (!ok && !cx->diags.errors) fail("the gradient fails without an error", cx, once->text);
    }
    hd_ctx_free(cx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Ctx *cx = hd_ctx_new();
    const char *text = hd_strndup(cx->arena, (const char *)data, size);
    Module *m = parse(cx, text, size);
    bool good = m && hd_verify(m);
    if (good) {
        Out once = print(m, cx->arena);
        check_round_trip(&once);
        check_gradient(&once);
        check_passes(cx, m, &once);
    } else {
        if (!cx->diags.errors) fail("the module is refused without an error", cx, text);
        Out o = hd_out(cx->arena);
        hd_diags_print(&cx->diags, &o);
    }
    hd_ctx_free(cx);
    return 0;
}
