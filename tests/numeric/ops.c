// Every op of the table on a real target: small functions go through the pipeline `infer`, codegen and the C compiler
// as one program, run, and are compared with the evaluator's run of the same plan. Pointwise ops get their cases from
// the table, others from op_cases.h; an op without a case fails, with --coverage before anything is built. Memory is
// poisoned before each case, so an element nobody wrote is a NaN. On a machine without a compiler: --build=FILE.so
// beforehand elsewhere, --load=FILE.so there, with the same other options.
//   numeric_ops [--build=FILE.so|--load=FILE.so] [--target=host|cuda] [--arch=sm_90] [--dtypes=f32,bf16,f16,f64]
//   [--pipeline=TEXT] [--plan=FILE.hir] [--keep=FILE] [--coverage] [--part] [--verbose] [--random=FIRST,COUNT]
//   [--with=OP,...] [--guard] [--device] [CASE...]
// --device: the cuda target is a GPU and not the emulator, whose sums of FP8 products are exact to f32 (bounds.h).
// --part: of the cases a part that has its turn (tests/unit/part.h).
// --with: of the cases those that have one of these ops.
// --guard: with bytes around every value, which no kernel may write.
// --random: functions of random ops with these seeds instead of the cases; --dtypes then names one dtype.
#include "codegen/build.h"
#include "codegen/codegen.h"
#include "passes/manager/manager.h"
#include "runtime/heddle.h"
#include "runtime/world/world.h"
#include "tests/numeric/bounds.h"
#include "tests/numeric/encoded.h"
#include "tests/numeric/harness.h"
#include "tests/numeric/op_cases.h"
#include "tests/numeric/random_graph.h"
#include "tests/unit/part.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    const char *target, *arch, *dtypes, *pipeline, *plan, *keep, *build, *load, *with;
    bool coverage, part, verbose, device, guard;
    int first, count; // seeds of random functions, instead of the cases
    int n_only;
    char **only;
} Options;

// --- the module's text

static const char *dtype_names[] = {"f32", "bf16", "f16", "f64"};

static uint64_t hash(uint64_t h, const char *text) {
    while (*text) h = h * 31 + (uint64_t)*text++;
    return h;
}

static bool has_op(Arena *a, const char *text, const char *ops) {
    for (const char *s = text; *s; s++) { // behind a result, or first in its line
        if (strncmp(s, "= ", 2) && (strncmp(s, "  ", 2) || s[2] == '%')) continue;
        s += 2;
        const char *op = hd_sprintf(a, ",%.*s,", (int)strcspn(s, " "), s);
        if (strstr(hd_sprintf(a, ",%s,", ops), op)) return true;
    }
    return false;
}

// Case n is the function @c<n>_<dtype>. Its numbers come from its text, so that other cases leave them as they are.
typedef VEC(uint64_t) Seeds;

static void put_case(Out *o, const Options *opt, Seeds *seeds, const char *text, int dtype) {
    int number = seeds->n;
    hd_push(o->arena, seeds, hash(hash(17, text), dtype_names[dtype]));
    if (opt->dtypes &&
        !strstr(hd_sprintf(o->arena, ",%s,", opt->dtypes), hd_sprintf(o->arena, ",%s,", dtype_names[dtype])))
        return;
    if (opt->with && !has_op(o->arena, text, opt->with)) return;
    hd_printf(o, "func @c%d_%s", number, dtype_names[dtype]);
    for (const char *s = text; *s; s++) {
        if (*s == '$') hd_puts(o, dtype_names[dtype]);
        else if (*s == '#') hd_puts(o, dtype == 3 ? "f64" : "f32");
        else hd_putn(o, s, 1);
    }
    hd_puts(o, "\n");
}

// A pointwise op over full rows, and mixed with everything that broadcasts: columns, one value a row, rows that repeat,
// a scalar.
static void put_pointwise(Out *o, const Options *opt, Seeds *seeds, OpKind k) {
    Arena *a = o->arena;
    static const char *const shapes[][2] = {{"[37,65]", "[37,65]"}, {"[37,65]", "[65]"}, {"[37,65]", "[37,1]"},
                                            {"[3,5,65]", "[5,65]"}, {"[5000]", ""},      {"[65]", "[9,65]"}};
    const OpInfo *info = hd_op_info(k);
    bool positive = k == OP_LOG || k == OP_SQRT || k == OP_RSQRT || k == OP_DIV || k == OP_POW;
    bool shapes_too = k == OP_SUB || k == OP_SILU_GRAD; // loops do not depend on the op: two of them see every shape
    if (info->n_in > 2) return; // op_cases.h has them
    for (int s = 0; s < (shapes_too ? 6 : 1); s++) {
        const char *big = s == 5 ? shapes[s][1] : shapes[s][0], *p = positive ? "p" : "a";
        const char *text =
            info->n_in == 1
                ? hd_sprintf(a, "(%%%s0: $%s) -> $%s {\n  %%0 = %s %%%s0 : $%s\n  return %%0\n}", p, big, big,
                             info->mnemonic, p, big)
                : hd_sprintf(a, "(%%%s0: $%s, %%%s1: $%s) -> $%s {\n  %%0 = %s %%%s0, %%%s1 : $%s\n  return %%0\n}", p,
                             shapes[s][0], p, shapes[s][1], big, info->mnemonic, p, p, big);
        for (int d = 0; d < 4; d++)
            if (d == 0 || (d == 3 && !s) || k == OP_SUB || k == OP_GELU) put_case(o, opt, seeds, text, d);
    }
}

// Function @r<seed>_<dtype>: 12 random ops.
static void put_random(Ctx *cx, Out *o, int seed, const char *dtype) {
    Ctx *own = hd_ctx_new();
    Out text = hd_out(cx->arena);
    const DType dtypes[] = {TY_F32, TY_BF16, TY_F16, TY_F64};
    DType d = TY_F32;
    for (int i = 0; i < 4; i++)
        if (!strcmp(dtype, dtype_names[i])) d = dtypes[i];
    const char *name = hd_sprintf(cx->arena, "r%d_%s", seed, dtype);
    hd_print_module(random_graph_of(own, own->arena, name, (uint64_t)seed, d, false, true, 12, 8).m, &text);
    hd_printf(o, "%s\n", strstr(text.text, "func @"));
    hd_ctx_free(own);
}

static const char *random_text(Ctx *cx, const Options *opt) {
    Out o = hd_out(cx->arena);
    hd_printf(&o, "stage sharded\nconfig @target {target = %s%s%s}\n", opt->target, opt->arch ? ", arch = " : "",
              opt->arch ? opt->arch : "");
    for (int seed = opt->first; seed < opt->first + opt->count; seed++)
        put_random(cx, &o, seed, opt->dtypes ? opt->dtypes : dtype_names[seed % 3]);
    return o.text;
}

static const char *module_text(Arena *a, const Options *opt, Seeds *seeds) {
    Out o = hd_out(a);
    hd_printf(&o, "stage sharded\nconfig @target {target = %s%s%s}\n%s%s", opt->target, opt->arch ? ", arch = " : "",
              opt->arch ? opt->arch : "", op_buffers, op_lines);
    for (int k = 0; k < N_OPS; k++)
        if (hd_op_info((OpKind)k)->traits & TRAIT_ELEMENTWISE) put_pointwise(&o, opt, seeds, (OpKind)k);
    for (size_t i = 0; i < sizeof op_cases / sizeof *op_cases; i++)
        for (int d = 0; d < 4; d++)
            if (op_cases[i].dtypes >> d & 1) put_case(&o, opt, seeds, op_cases[i].text, d);
    return o.text;
}

// --- what is put into memory

// An operand %n: scores of a bad router.
static double bad_score(uint64_t *seed) {
    static const double scores[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0, 0, 0, 1, 1, 1, -1, -1, 2};
    return scores[(int)uniform(seed, 0, sizeof scores / sizeof *scores)];
}

static void fill(const char *name, Tensor t, uint64_t *seed) {
    double lo = -2, hi = 2;
    if (name[0] == 'p') { lo = 0.1; hi = 2; }
    if (name[0] == 's') { lo = -0.1; hi = 0.1; }
    if (t.type->dtype == TY_I32) { lo = 0; hi = name[0] == 'i' ? strtod(name + 1, NULL) : 5; }
    for (int64_t i = 0; i < hd_type_count(t.type); i++) {
        double v = uniform(seed, lo, hi);
        t.data[i] = !strcmp(name, "n")          ? bad_score(seed)
                    : t.type->dtype == TY_I32 ? floor(v)
                                              : hd_round(t.type->dtype, v);
    }
}

// Does a function read or write storage?
static bool has_storage(const Func *f) {
    for (const Op *o = f->first; o; o = o->next)
        if (hd_op_is(o, TRAIT_SOURCE) ||
            (hd_op_is(o, TRAIT_EFFECT) && o->kind != OP_RETURN && !(o->kind == OP_GEMM && o->n_out)))
            return true;
    return false;
}

// --- running

typedef struct {
    Test *t;
    const Options *opt;
    Seeds seeds;
    Module *m;
    const HdProgram *p;
    HdExec *x;
    const char *(*failure)(void);
} OpProgram;

static bool put_tensor(OpProgram *r, int64_t offset, Tensor t) {
    size_t bytes = (size_t)hd_type_bytes(t.type);
    char *raw = hd_alloc(r->t->arena, bytes + 1);
    encode(t.type->dtype, t.data, hd_type_count(t.type), raw);
    if (r->p->backend->write(r->x, offset, raw, bytes)) return true;
    fail(r->t, "write: %s", r->failure());
    return false;
}

// A tensor of the target's memory.
static bool get_tensor(OpProgram *r, int64_t offset, Tensor t) {
    size_t bytes = (size_t)hd_type_bytes(t.type);
    char *raw = hd_alloc(r->t->arena, bytes + 1);
    if (!r->p->backend->read(r->x, offset, raw, bytes)) {
        fail(r->t, "read: %s", r->failure());
        return false;
    }
    for (int64_t i = 0; i < hd_type_count(t.type); i++) t.data[i] = decode(t.type->dtype, raw, i);
    return true;
}

// `magnitudes`: what each element adds up without signs, in tensor cores that multiply FP8; NULL: it is no such sum.
static void compare(OpProgram *r, const Func *f, const char *what, int64_t offset, Tensor want,
                    const double *magnitudes) {
    const Bound bound = bound_of(want.type->dtype, f, r->opt->target);
    double *allowed = allowed_errors(r->t->arena, &bound, f, want);
    for (int64_t i = 0; magnitudes && i < hd_type_count(want.type); i++) allowed[i] += FP8_SUM * fabs(magnitudes[i]);
    const Tensor got = hd_tensor(r->t->arena, want.type);
    if (!get_tensor(r, offset, got)) return;
    double worst = 0;
    for (int64_t i = 0; i < hd_type_count(want.type); i++) {
        const double x = got.data[i], y = want.data[i], off = fabs(x - y);
        r->t->compared++;
        bool same = x == y || (isnan(x) && isnan(y));
        if (!same && !(off <= allowed[i])) {
            fail(r->t, "%s[%lld] of %s is %.9g, not %.9g (off by %.3g, allowed %.3g)", what, (long long)i,
                 hd_type_text(r->m->cx, want.type), x, y, off, allowed[i]);
            return;
        }
        if (!same && allowed[i] > 0) worst = fmax(worst, off / allowed[i]);
    }
    if (r->opt->verbose)
        printf("%s %s %s: %.2f of the bound\n", r->t->name, what, hd_type_text(r->m->cx, want.type), worst);
}

static bool put_bytes(OpProgram *r, int64_t offset, int64_t bytes, int value) {
    char *raw = malloc((size_t)bytes + 1);
    memset(raw, value, (size_t)bytes);
    const bool ok = r->p->backend->write(r->x, offset, raw, (size_t)bytes);
    if (!ok) fail(r->t, "write: %s", r->failure());
    free(raw);
    return ok;
}

// Bytes of 0xff are a NaN; results of i32 begin with other ones, since many ops write -1. Guards are left alone, and so
// is what lies between them.
static bool poison(OpProgram *r, const Func *f, const HdFunc *hf) {
    bool ok = r->opt->guard || put_bytes(r, 0, r->p->arena_bytes, 0xff);
    for (int i = 0; i < hf->n_results && ok; i++) {
        const Type *type = hd_return(f)->in[i]->type;
        ok = put_bytes(r, hf->results[i].offset, hd_type_bytes(type), type->dtype == TY_I32 ? 0x81 : 0xff);
    }
    return ok;
}

static const HdFunc *find_func(const HdProgram *p, const char *name) {
    for (int i = 0; i < p->n_funcs; i++)
        if (!strcmp(p->funcs[i].name, name)) return &p->funcs[i];
    return NULL;
}

// The function that the evaluator runs: a copy of f whose gradients of attention read the o that the target returned,
// given as one more argument behind `in` (bounds.def says why).
static Func *reference_of(OpProgram *r, const Func *f, const HdFunc *hf, Tensor *in) {
    Func *copy = hd_func_clone(r->m, f, hd_free_name(r->m, f->name));
    const Op *ret = hd_return(copy);
    for (int i = 0; ret && i < ret->n_in; i++) {
        const Value *o = ret->in[i];
        if (!o->def || o->def->kind != OP_ATTENTION || o->index) continue;
        in[copy->n_args] = hd_tensor(r->t->arena, o->type);
        get_tensor(r, hf->results[i].offset, in[copy->n_args]);
        Value *given = hd_arg_add(copy, o->type, hd_sprintf(r->t->arena, "o%d", i));
        for (Op *use = copy->first; use; use = use->next)
            for (int k = 0; k < use->n_in && use->kind == OP_ATTENTION_GRAD; k++)
                if (use->in[k] == o) use->in[k] = given;
    }
    hd_renumber(copy);
    return copy;
}

// The product of FP8 factors that a value is; NULL: it is none.
static const Op *fp8_product(const Value *v) {
    const Op *o = v->def;
    while (o && hd_op_is(o, TRAIT_ALIAS)) o = o->in[0]->def;
    return o && hd_has(&o->attrs, A_SCALED) ? o : NULL;
}

static Value *without_signs(Builder *b, Value *v) {
    Attrs wide = {0}, back = {0};
    hd_set_word(b->f->module->cx, &wide, A_OUT, "f32");
    hd_set_word(b->f->module->cx, &back, A_OUT, hd_dtype_text(v->type->dtype));
    Value *x = hd_build1(b, OP_ABS, hd_build1(b, OP_CAST, v, NULL, &wide, NULL), NULL, NULL, NULL);
    return hd_build1(b, OP_CAST, x, NULL, &back, NULL);
}

// The results of f, where those that are FP8 products are sums of magnitudes.
static const char *magnitudes_of(OpProgram *r, const Func *f, const Tensor *in, Tensor *out) {
    Func *copy = hd_func_clone(r->m, f, hd_free_name(r->m, f->name));
    for (Op *o = copy->first; o; o = o->next) {
        Builder b = hd_builder_before(o);
        for (int i = 0; i < 2 && hd_has(&o->attrs, A_SCALED); i++) o->in[i] = without_signs(&b, o->in[i]);
    }
    hd_renumber(copy);
    const char *wrong = hd_eval(hd_eval_new(r->m, EVAL_ROUNDED, r->t->arena), copy, in, out);
    hd_func_remove(r->m, copy);
    return wrong;
}

static void run_case(OpProgram *r, const Func *f) {
    Arena *keep = r->t->arena, *a = r->t->arena = hd_arena_new();
    Eval *e = hd_eval_new(r->m, EVAL_ROUNDED, a);
    const int number = atoi(f->name + 1);
    uint64_t seed = r->opt->count ? (uint64_t)number : r->seeds.at[number];
    Tensor in[HD_MAX_IN], out[HD_MAX_IN];
    const HdFunc *hf = find_func(r->p, f->name);
    r->t->name = f->name;
    bool ok = hf && poison(r, f, hf);
    if (!hf) fail(r->t, "the program has no such function");
    bool storage = has_storage(f);
    for (const Symbol *s = r->m->symbols; storage && ok && s; s = s->next) {
        if (s->kind != SYM_BUFFER || hd_has(&s->attrs, A_TRANSIENT)) continue;
        Tensor t = hd_eval_storage(e, s->name);
        fill(strcmp(s->name, "t.v") ? s->name : "p", t, &seed);
        ok = put_tensor(r, s->place.offset, t);
    }
    for (int i = 0; ok && i < f->n_args; i++) {
        in[i] = hd_tensor(a, f->args[i]->type);
        fill(f->args[i]->name, in[i], &seed);
        ok = put_tensor(r, hf->args[i].offset, in[i]);
    }
    if (ok && !r->p->backend->run(r->x, hf)) {
        fail(r->t, "%s", r->failure());
        ok = false;
    }
    Func *reference = ok ? reference_of(r, f, hf, in) : NULL;
    const char *wrong = ok ? hd_eval(e, reference, in, out) : NULL;
    if (reference) hd_func_remove(r->m, reference);
    const Op *ret = hd_return(f);
    bool sums = false;
    Tensor sizes[HD_MAX_IN];
    for (int i = 0; ok && !wrong && r->opt->device && i < ret->n_in; i++) sums |= fp8_product(ret->in[i]) != NULL;
    if (sums) wrong = magnitudes_of(r, f, in, sizes);
    if (wrong) fail(r->t, "evaluator: %s", wrong);
    else if (ok) {
        for (int i = 0; i < hf->n_results; i++)
            compare(r, f, hd_sprintf(a, "result %d", i), hf->results[i].offset, out[i],
                    sums && fp8_product(ret->in[i]) ? sizes[i].data : NULL);
        for (const Symbol *s = r->m->symbols; storage && s; s = s->next)
            if (s->kind == SYM_BUFFER && !hd_has(&s->attrs, A_TRANSIENT))
                compare(r, f, s->name, s->place.offset, hd_eval_storage(e, s->name), NULL);
    }
    hd_arena_free(a);
    r->t->arena = keep;
}

static const Func *find_case(const Module *m, const char *name) {
    const Func *f = hd_func_find(m, name);
    return f && !f->is_kernel ? f : NULL;
}

static void run_cases(OpProgram *r) {
    for (const Func *f = r->m->funcs; f && !r->opt->n_only; f = f->next)
        if (!f->is_kernel) run_case(r, f);
    for (int i = 0; i < r->opt->n_only; i++) {
        const Func *f = find_case(r->m, r->opt->only[i]);
        if (f) run_case(r, f);
        else fail(r->t, "there is no case '%s'", r->opt->only[i]);
    }
}

// --- coverage

// Ops that no target computes: they are gone before a plan, or order streams.
static bool exempt(const OpInfo *info) {
    return info->stages == 1u << STAGE_TENSOR || (info->stages & ~(1u << STAGE_SHARDED)) == 1u << STAGE_TENSOR ||
           info->traits & TRAIT_SYNC || info == hd_op_info(OP_FENCE);
}

static void cover(Test *t, const Module *m) {
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->first; o; o = o->next) t->covered[o->kind] = true;
}

static void check_coverage(Test *t) {
    int n = 0;
    t->name = "coverage";
    for (int k = 0; k < N_OPS; k++) n += t->covered[k];
    printf("cases compute %d ops\n", n);
    for (int k = 0; k < N_OPS; k++)
        if (!t->covered[k] && !exempt(hd_op_info((OpKind)k)))
            fail(t, "no case computes %s: add one to tests/numeric/op_cases.h", hd_op_info((OpKind)k)->mnemonic);
}

// --- the program

static void keep_part(Module *m) { // cases do not call each other; kernels stay
    for (Func *f = m->funcs, *next; f; f = next) {
        next = f->next;
        if (!f->is_kernel && !in_part((size_t)atoi(f->name + 1))) hd_func_remove(m, f);
    }
}

static Module *plan(Ctx *cx, Test *t, const Options *opt, Seeds *seeds) {
    size_t n;
    const char *text = opt->count ? random_text(cx, opt) : module_text(cx->arena, opt, seeds), *name = "op_cases";
    n = strlen(text);
    if (opt->keep) hd_write_file(hd_sprintf(cx->arena, "%s.hir", opt->keep), text, n);
    uint32_t base = hd_source_add(&cx->diags, name, text, n, 1);
    Module *m = hd_parse_module(cx, text, n, base);
    if (!m || !hd_verify(m)) return NULL;
    if (opt->part) keep_part(m);
    cover(t, m);
    if (opt->plan) {
        if (!(text = hd_read_file(cx->arena, opt->plan, &n))) return NULL;
        m = hd_parse_module(cx, text, n, hd_source_add(&cx->diags, opt->plan, text, n, 1));
    } else {
        Pipeline p;
        ManagerOptions options = hd_manager_defaults();
        if (!hd_pipeline_parse(cx, opt->pipeline, &p)) return NULL;
        if (opt->guard && !hd_pipeline_option(cx, &p, "plan-memory", "guard", 256)) return NULL;
        if (!hd_manager_run(m, &p, &options)) return NULL;
    }
    if (!m || !hd_verify(m)) return NULL;
    cover(t, m);
    return m;
}

static bool build_program(Ctx *cx, const OpProgram *r, const char *path) {
    Out c = hd_out(cx->arena), cuda = hd_out(cx->arena);
    return hd_codegen_c(r->m, &(ProgramTexts){"", "", ""}, &c, &cuda) &&
           hd_build_shared(cx, &(Build){.target = r->opt->target, .output = path}, &c);
}

static const HdProgram *load_program(Ctx *cx, OpProgram *r, const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const HdProgram *const *program = library ? dlsym(library, "hd_built_program") : NULL;
    if (!program) {
        hd_error(cx, (Span){0, 0}, "cannot load %s: %s", path, dlerror());
        return NULL;
    }
    void *failure = dlsym(library, "hd_failure");
    memcpy(&r->failure, &failure, sizeof failure);
    return *program;
}

// Builds the program in a folder of its own and loads it.
static const HdProgram *build_and_load(Ctx *cx, OpProgram *r) {
    char folder[] = "/tmp/heddle-ops-XXXXXX";
    if (!mkdtemp(folder)) {
        hd_error(cx, (Span){0, 0}, "cannot make a folder in /tmp");
        return NULL;
    }
    const char *path = hd_sprintf(cx->arena, "%s/ops.so", folder), *text = hd_sprintf(cx->arena, "%s.c", path);
    const HdProgram *p = build_program(cx, r, path) ? load_program(cx, r, path) : NULL;
    if (r->opt->keep) rename(text, hd_sprintf(cx->arena, "%s.c", r->opt->keep));
    unlink(text);
    unlink(path);
    rmdir(folder);
    return p;
}

static void test(Ctx *cx, Test *t, const Options *opt) {
    OpProgram r = {.t = t, .opt = opt};
    r.m = plan(cx, t, opt, &r.seeds);
    if (r.m && opt->coverage) check_coverage(t);
    else if (r.m && opt->build) t->compared += build_program(cx, &r, opt->build);
    else if (r.m) r.p = opt->load ? load_program(cx, &r, opt->load) : build_and_load(cx, &r);
    HdProgram guarded;
    if (r.p && opt->guard) { // indices out of range are cases, too
        guarded = *r.p;
        guarded.indexed_in = NULL;
        r.p = &guarded;
    }
    if (r.p) {
        r.x = r.p->backend->open(r.p, hd_world_alone(), &(HdOpen){0});
        if (r.x) r.x->check = opt->guard;
        if (r.x) run_cases(&r);
        else fail(t, "cannot open the program: %s", r.failure());
        if (r.x) r.p->backend->close(r.x);
        if (!opt->n_only && !opt->dtypes && !opt->with && !opt->count) check_coverage(t);
    }
    Out o = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &o);
    fputs(o.text, stderr);
    t->failures += cx->diags.errors;
}

int main(int argc, char **argv) {
    Options opt = {.target = "host", .pipeline = "infer"};
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--target=", 9)) opt.target = argv[i] + 9;
        else if (!strncmp(argv[i], "--arch=", 7)) opt.arch = argv[i] + 7;
        else if (!strncmp(argv[i], "--dtypes=", 9)) opt.dtypes = argv[i] + 9;
        else if (!strncmp(argv[i], "--pipeline=", 11)) opt.pipeline = argv[i] + 11;
        else if (!strncmp(argv[i], "--plan=", 7)) opt.plan = argv[i] + 7;
        else if (!strncmp(argv[i], "--build=", 8)) opt.build = argv[i] + 8;
        else if (!strncmp(argv[i], "--load=", 7)) opt.load = argv[i] + 7;
        else if (!strncmp(argv[i], "--with=", 7)) opt.with = argv[i] + 7;
        else if (!strncmp(argv[i], "--keep=", 7)) opt.keep = argv[i] + 7;
        else if (sscanf(argv[i], "--random=%d,%d", &opt.first, &opt.count) == 2) continue;
        else if (!strcmp(argv[i], "--coverage")) opt.coverage = true;
        else if (!strcmp(argv[i], "--part")) opt.part = true;
        else if (!strcmp(argv[i], "--verbose")) opt.verbose = true;
        else if (!strcmp(argv[i], "--device")) opt.device = true;
        else if (!strcmp(argv[i], "--guard")) opt.guard = true;
        else if (!strncmp(argv[i], "--", 2)) {
            fprintf(stderr, "numeric_ops: there is no option %s\n", argv[i]);
            return 2;
        } else {
            opt.only = argv + i;
            opt.n_only = argc - i;
            break;
        }
    }
    Ctx *cx = hd_ctx_new();
    Test t = {.name = "ops", .arena = cx->arena};
    test(cx, &t, &opt);
    printf("%d elements compared, %d failures", t.compared, t.failures);
    if (opt.part) printf(" (HEDDLE_TEST_PART=%s)", test_part());
    printf("\n");
    hd_ctx_free(cx);
    return t.failures || (!t.compared && !opt.coverage);
}
