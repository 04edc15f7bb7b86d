// An update with means of rows, columns and whole parameters (templates/lines.cu, ir/optimizer.h): a kernel for each
// mean, one for the elements and one for each state of lines, which serve all parameters of the bucket.
#include "codegen/cuda/cuda.h"
#include "ir/base/ints.h"
#include "ir/optimizer.h"

static const char *number(Emit *e, double v) { // of f32
    Out o = hd_out(e->a);
    hd_puts(&o, "(");
    hd_put_float(&o, (double)(float)v);
    hd_puts(&o, "f)");
    return o.text;
}

static const char *place_of(int per) {
    static const char *const places[] = {
        [PER_WHOLE] = "0", [PER_ROW] = "r", [PER_COLUMN] = "c", [PER_ELEMENT] = "i"};
    return places[per];
}

typedef struct {
    Emit *e;
    const Op *o;
    const Func *k;
    const int *per;
    const Op *mean[HD_MAX_MEANS];
    int states, means;
} Work;

// The formals of states and means before `stage`, and their names.
static const char *formals(const Work *w, int stage, bool list) {
    Out o = hd_out(w->e->a);
    for (int i = 0; i < w->states; i++) hd_printf(&o, ", %skept%d", list ? "" : "float *", i);
    for (int i = 0; i < w->means && i < stage; i++) hd_printf(&o, ", %smeans%d", list ? "" : "const float *", i);
    return o.text;
}

// NAME_at: of one element, with the rates of the update. That of elements stores their states.
static const char *function_of(const Work *w, int stage, const char *name) {
    Out o = hd_out(w->e->a);
    const double decay = hd_int(&w->o->attrs, A_DECAYED, 0) ? hd_float(&w->o->attrs, A_WEIGHT_DECAY, 0) : 0,
                 scale = hd_float(&w->o->attrs, A_LR_SCALE, 1);
    hd_printf(&o, "__device__ __forceinline__ float %s_at(const float *grad, const float *master,\n    const float "
                  "*scalars, i64 r, i64 c, i64 cols%s) {\n", name, formals(w, stage, false));
    hd_printf(&o, "    const i64 i = r * cols + c;\n    const float lr = %s, factor = scalars[1], decay = %s;\n"
                  "    const float correction1 = scalars[2], correction2 = scalars[3];\n"
                  "    const float gradient = __fmul_rn(grad[i], factor);\n    float weights = master[i], result = 0;\n"
                  "    (void)lr, (void)decay, (void)correction1, (void)correction2, (void)gradient, (void)weights, "
                  "(void)result;\n",
              scale == 1 ? "scalars[0]" : hd_sprintf(w->e->a, "__fmul_rn(scalars[0], %s)", number(w->e, scale)),
              number(w->e, decay));
    for (int i = 0; i < w->states; i++)
        hd_printf(&o, "    const float state%d = kept%d[%s];\n", i, i, place_of(hd_state_per(w->k, i)));
    for (int i = 0; i < w->means && i < stage; i++)
        hd_printf(&o, "    const float mean%d = means%d[%s];\n", i, i, place_of(w->per[w->mean[i]->out[0]->id]));
    for (int i = 0; i < w->states; i++)
        if (stage == w->means && hd_state_per(w->k, i) == PER_ELEMENT) hd_printf(&o, "    float next%d;\n", i);
    hd_puts(&o, hd_emit_lines(w->e, w->k, stage, "    "));
    for (int i = 0; i < w->states; i++)
        if (stage == w->means && hd_state_per(w->k, i) == PER_ELEMENT)
            hd_printf(&o, "    kept%d[i] = next%d;\n", i, i);
    hd_printf(&o, "    return %s;\n}\n", stage == w->means ? "weights" : "result");
    return o.text;
}

// The kernels of a stage: the first, and what finishes it or -1.
static void put_stage(const Work *w, int stage, int out[2]) {
    static const char *const kinds[] = {[PER_WHOLE] = "WHOLE", [PER_ROW] = "ROW", [PER_COLUMN] = "COLUMN"};
    Emit *e = w->e;
    const Symbol *weights = hd_named(w->o, A_WEIGHTS);
    const bool mean = stage < w->means, elements = stage == w->means;
    const int to = mean ? w->per[w->mean[stage]->out[0]->id] : 0,
              of = mean ? w->per[w->mean[stage]->in[0]->id] : elements ? PER_ELEMENT
                                                                       : hd_state_per(w->k, stage - w->means - 1);
    const char *numbers = hd_sprintf(
        e->a, "#define LN_ROW 1\n#define LN_COLUMN 2\n#define LN_WHOLE 3\n#define LN_ELEMENTS 4\n#define LN_STATE 5\n"
              "#define LN_STAGE LN_%s\n#define LN_OF %d\n#define LN_FORMALS %s\n#define LN_T %s\n"
              "#define LN_COMPUTE %d\n",
        mean ? kinds[to] : elements ? "ELEMENTS" : "STATE", of, formals(w, stage, false),
        hd_cuda_type(weights ? weights->type->dtype : TY_F32), elements && weights);
    const char *name = hd_cuda_name(e, hd_sprintf(e->a, "%s_%d", hd_emit_identifier(e, w->k), stage),
                                    hd_sprintf(e->a, "%s%s", numbers, function_of(w, stage, "one")));
    const char *text = hd_sprintf(
        e->a, "%s%s", function_of(w, stage, name),
        hd_cuda_template(e, "lines",
                         hd_sprintf(e->a, "#define LN_KERNEL %s\n#define LN_FINISH %s_finish\n#define LN_AT(r, c) "
                                          "%s_at(grad, master, scalars, r, c, cols%s)\n%s", name, name, name,
                                    formals(w, stage, true), numbers)));
    out[0] = hd_cuda_kernel(e, name, text, 0, false);
    out[1] = mean && to != PER_ROW ? hd_cuda_kernel(e, hd_sprintf(e->a, "%s_finish", name), text, 0, false) : -1;
}

void hd_cuda_put_lines(Emit *e, const Op *o, int n_states, const char *const *state) {
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS), *weights = hd_named(o, A_WEIGHTS);
    Work w = {.e = e, .o = o, .k = hd_update_kernel(o), .states = n_states};
    int *per = HD_NEWN(e->a, int, w.k->n_values + 1), at[2];
    hd_optimizer_per(w.k, per);
    w.per = per;
    for (const Op *p = w.k->first; p; p = p->next)
        if (hd_op_is(p, TRAIT_AVERAGES)) w.mean[w.means++] = p;
    Out kernels = hd_out(e->a), list = hd_out(e->a);
    hd_puts(&kernels, ", .kernel = {");
    for (int stage = 0; stage <= w.means + w.states; stage++) {
        const bool none = stage > w.means && hd_state_per(w.k, stage - w.means - 1) == PER_ELEMENT;
        if (!none) put_stage(&w, stage, at);
        hd_printf(&kernels, "%s{%d, %d}", stage ? ", " : "", none ? -1 : at[0], none ? -1 : at[1]);
    }
    hd_puts(&kernels, "}");
    for (int i = 0; i < n_states; i++) hd_printf(&list, "%s%s", i ? ", " : "", state[i]);
    hd_emit_line(e, o, "hd_cuda_update_lines(x, %d, %s, %s, %s, (const uint64_t[]){%s}, %s, %d, %s, %s);",
                 hd_emit_stream(e, o), hd_emit_lined(e, o, kernels.text),
                 hd_cuda_device(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_GRADIENT, ""), 0)),
                 hd_cuda_device(e, hd_emit_buffer(e, o, master->name, 0)), n_states ? list.text : "0",
                 weights ? hd_cuda_device(e, hd_emit_buffer(e, o, weights->name, 0)) : "0",
                 weights ? (int)hd_dtype_bytes(weights->type->dtype) : 0, hd_cuda_device(e, hd_emit_value(e, o->in[0])),
                 hd_cuda_device(e, hd_emit_workspace(e, o)));
}
