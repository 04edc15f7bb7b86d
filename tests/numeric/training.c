// The compiled program against the evaluator, on a real step in the middle of a training run: the program trains three
// steps and exports its weights; from those the evaluator computes the loss and the gradient norm of step four, and the
// program, which trains four steps, must report the same.
//   numeric_training HEDDLEC FOLDER   (the compiler; a folder for what it makes)
#include "runtime/data/feed.h"
#include "runtime/heddle.h"
#include "tests/numeric/examples.h"

enum { STEPS = 3 };
static const char data[] = "examples/gpt2/gpt2.hd", options[] = "--format=bytes"; // any bytes
static const Model model = {
    "tiny", "examples/tiny/tiny.hd", {"layers=2", "heads=2", "dim=32", "seq=16", "train.batch=4", NULL}};

static bool shell(Test *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool shell(Test *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *command = hd_vsprintf(t->arena, fmt, ap);
    va_end(ap);
    if (system(command) == 0) return true;
    fail(t, "failed: %s", command);
    return false;
}

// f32 weights out of a safetensors file: 8 bytes of header length, a JSON header, data.
static bool read_weights(Test *t, Loaded *l, const char *path) {
    size_t size;
    const char *file = hd_read_file(l->arena, path, &size);
    uint64_t head = 0;
    if (file && size > 8) memcpy(&head, file, 8);
    for (const Symbol *s = l->m->symbols; head && s; s = s->next) {
        if (s->kind != SYM_PARAM) continue;
        const char *entry = strstr(file + 8, hd_sprintf(l->arena, "\"%s\":", s->name));
        const char *offset = entry ? strstr(entry, "\"data_offsets\":[") : NULL;
        Tensor p = hd_eval_storage(l->e, s->name);
        uint64_t at = offset ? 8 + head + strtoull(offset + 16, NULL, 10) : size;
        if (at + 4 * (uint64_t)hd_type_count(p.type) > size) {
            fail(t, "%s does not hold @%s", path, s->name);
            return false;
        }
        for (int64_t i = 0; i < hd_type_count(p.type); i++) {
            float v;
            memcpy(&v, file + at + 4 * (uint64_t)i, 4);
            p.data[i] = (double)v;
        }
    }
    if (!head) fail(t, "cannot read %s", path);
    return head != 0;
}

static bool read_batch(Test *t, Loaded *l, const Func *micro) {
    Feed d = {0};
    int64_t batch = micro->args[0]->type->dim[0], seq = micro->args[0]->type->dim[1], n = batch * seq;
    const Attrs *train = &hd_config(l->m, "train")->attrs;
    int64_t vocab = hd_int(&hd_config(l->m, "model")->attrs, A_VOCAB, 256);
    const HdInput inputs[] = {{"tokens", HD_I32, 2, {batch, seq}, -1, vocab, 0},
                              {"targets", HD_I32, 2, {batch, seq}, 0, vocab, 0}};
    const HdInputs all = {"the loss", "tiny", 2, inputs, batch, seq};
    bool ok = hd_feed_open(&d, &all, "data", (Names){1, (const char *[]){data}},
                           (Names){1, (const char *[]){"bytes"}}, 1) &&
              hd_feed_batch(&d, (uint64_t)hd_int(train, A_SEED, 1), STEPS * batch, 0);
    if (!ok) fail(t, "%s", hd_failure());
    for (int k = 0; k < 2 && ok; k++) {
        l->in[k] = hd_tensor(l->arena, micro->args[k]->type);
        for (int64_t i = 0; i < n; i++) l->in[k].data[i] = ((const int32_t *)hd_feed_at(&d, k, 0))[i];
    }
    hd_feed_close(&d);
    return ok;
}

static void near(Test *t, const char *what, double got, double want, double bound) {
    printf("%s: %s %.9g, evaluator %.9g\n", t->name, what, got, want);
    t->compared++;
    if (!(fabs(got - want) <= bound * fabs(want))) fail(t, "%s is %.9g, not %.9g", what, got, want);
}

static void check(Test *t, const char *heddlec, const char *folder, const char *compute, EvalMode mode, double bound) {
    Loaded l = load(t, &model, compute, "simplify,cse,autodiff,precision,simplify,cse,dce");
    Out sets = hd_out(l.arena);
    for (int i = 0; model.sets[i]; i++) hd_printf(&sets, " --set %s", model.sets[i]);
    const char *program = hd_sprintf(l.arena, "%s/numeric_training_program", folder);
    bool ran =
        l.m && shell(t, "%s %s%s --set %s -o %s", heddlec, model.file, sets.text, compute, program) &&
        shell(t, "%s --data=%s %s --steps=%d --export=%s.weights > %s.log 2>&1", program, data, options, STEPS, program,
              program) &&
        shell(t, "%s --data=%s %s --steps=%d --digest=%s.digest > %s.log 2>&1", program, data, options, STEPS + 1,
              program, program);
    if (ran) {
        l.e = hd_eval_new(l.m, mode, l.arena);
        const Func *micro = hd_func_find(l.m, "micro");
        double norm = 0, loss = 0, got_loss = 0, got_norm = 0;
        if (read_weights(t, &l, hd_sprintf(l.arena, "%s.weights", program)) && read_batch(t, &l, micro)) {
            loss = loss_at(t, l.e, micro, l.in);
            for (const Symbol *s = l.m->symbols; s; s = s->next) {
                if (s->kind != SYM_PARAM) continue;
                Tensor g = hd_eval_gradient(l.e, s->name);
                for (int64_t i = 0; i < hd_type_count(g.type); i++) norm += g.data[i] * g.data[i];
            }
            size_t size;
            const char *digest = hd_read_file(l.arena, hd_sprintf(l.arena, "%s.digest", program), &size);
            const char *line = digest ? strstr(digest, hd_sprintf(l.arena, "\n%d ", STEPS + 1)) : NULL;
            if (!line || sscanf(line, "%*d %la %la", &got_loss, &got_norm) != 2)
                fail(t, "the digest lacks step %d", STEPS + 1);
            near(t, "loss", got_loss, loss, bound);
            near(t, "norm", got_norm, sqrt(norm), bound);
        }
    }
    unload(&l);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s HEDDLEC FOLDER\n", argv[0]);
        return 2;
    }
    // f32: sums of a few thousand terms in other orders, 2^-24 sqrt(4096) with room for cancellation. bf16: both round
    // to bf16, but kernels keep what they hold themselves in f32; 2^-9 a rounding, some twenty of them (see models.c).
    Test t = {.name = "f32"};
    check(&t, argv[1], argv[2], "train.precision.compute=f32", EVAL_EXACT, 1e-5);
    t.name = "bf16";
    check(&t, argv[1], argv[2], "train.precision.compute=bf16", EVAL_ROUNDED, 16 * 0x1p-9);
    printf("%d numbers compared, %d failures\n", t.compared, t.failures);
    return t.failures != 0;
}
