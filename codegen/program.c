// The program around the actions: tables of tensors, parameters, actions and functions, the HdProgram, and main. It is
// the same for every target. Order of the text: tables that functions refer to, functions, tables that refer to
// functions.
#include "codegen/emit.h"
#include "ir/machine/cost.h"
#include "ir/machine/device_model.h"
#include "ir/layout.h"
#include "ir/base/ints.h"
#include <ctype.h>

void hd_emit_dims(Out *o, const Type *t) {
    hd_printf(o, "%d, {", t ? t->rank : 0);
    for (int i = 0; t && i < t->rank; i++) hd_printf(o, "%s%lld", i ? ", " : "", ll(t->dim[i]));
    hd_puts(o, t && t->rank ? "}" : "0}");
}

// --- functions

static void put_actions(Emit *e, const Func *f) {
    Out *o = &e->body;
    const DeviceModel *device = hd_model(e->m);
    int n = 0;
    hd_printf(o, "static const HdAction actions_%s[] = {\n", hd_emit_identifier(e, f));
    for (const Op *p = f->first; p; p = p->next) {
        if (!hd_is_action(p)) continue;
        double flops, bytes;
        hd_cost(p, &flops, &bytes);
        const char *name = hd_op_info(p->kind)->mnemonic;
        const Func *k = hd_launched(p);
        const char *line = p->loc.file ? hd_sprintf(e->a, "%s:%d", p->loc.file, p->loc.line) : "";
        const double floor = device ? 1e6 * hd_model_floor(device, p) : 0;
        hd_printf(o, "    {%s, %s, %s, %s, %.6g, %.6g, %.6g},\n",
                  hd_emit_quoted(e, k ? hd_emit_kernel_name(e, k) : name),
                  hd_emit_quoted(e, p->stream ? p->stream : "compute"), hd_emit_quoted(e, p->loc.path),
                  hd_emit_quoted(e, line), flops, bytes, floor);
        n++;
    }
    if (!n) hd_puts(o, "    {\"\", \"\", \"\", \"\", 0, 0, 0},\n");
    hd_puts(o, "};\n\n");
}

// Among the planned functions; of NULL: how many there are.
int hd_program_func(const Emit *e, const Func *f) {
    int n = 0;
    for (const Func *g = e->m->funcs; g != f; g = g->next) n += !g->is_kernel;
    return n;
}

static const char *identifier(Emit *e, const char *name) {
    char *text = hd_strdup(e->a, name);
    for (char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    return text;
}

const char *hd_emit_identifier(Emit *e, const Func *f) {
    const char *text = identifier(e, f->name);
    return strcmp(text, f->name) ? hd_sprintf(e->a, "%s_%d", text, hd_program_func(e, f)) : text; // a.b is not a_b
}

static void open_body(Emit *e, const char *kind, const char *name) {
    hd_printf(&e->body, "%s void %s(HdExec *x) {\n", kind, name);
    for (int i = 0; e->target->prologue[i]; i++) hd_printf(&e->body, "    %s\n", e->target->prologue[i]);
}

static void put_action(Emit *e, const Op *p, int func, int index) {
    hd_printf(&e->body, "\n    hd_action(x, &funcs[%d], %d);\n", func, index);
    EmitOp *const print = e->target->op[p->kind].print;
    (print ? print : hd_emit_unprintable)(e, p);
}

// A function for each capture region, and one for all of them and what is between them.
static void put_body(Emit *e, const Func *f, int func) {
    int n = 0;
    bool inside = false;
    for (const Op *p = f->first; p; p = p->next) {
        inside = (inside || hd_op_is(p, TRAIT_OPENS)) && !hd_op_is(p, TRAIT_CLOSES);
        if (hd_op_is(p, TRAIT_OPENS))
            open_body(e, "HD_CAPTURED static", hd_sprintf(e->a, "region_%d", hd_emit_region(e, p)));
        if (hd_is_action(p) && inside) put_action(e, p, func, n);
        if (hd_op_is(p, TRAIT_CLOSES)) hd_puts(&e->body, "}\n\n");
        n += hd_is_action(p);
    }
    n = 0;
    open_body(e, "static", hd_sprintf(e->a, "run_%s", hd_emit_identifier(e, f)));
    for (const Op *p = f->first; p; p = p->next) {
        inside = (inside || hd_op_is(p, TRAIT_OPENS)) && !hd_op_is(p, TRAIT_CLOSES);
        if (hd_is_action(p) && !inside) put_action(e, p, func, n);
        if (hd_op_is(p, TRAIT_OPENS)) {
            hd_printf(&e->body, "\n    hd_cuda_region(x, %d); ", hd_emit_region(e, p));
            hd_emit_comment(&e->body, hd_word(&p->attrs, A_REGION, ""));
        }
        n += hd_is_action(p);
    }
    hd_puts(&e->body, "}\n\n");
}

// One function for each stream that has actions; actions are counted over the whole plan.
static void put_bodies(Emit *e, const Func *f, int func) {
    Out table = hd_out(e->a);
    for (int s = 0; s < hd_emit_streams(e); s++) {
        const char *name = hd_sprintf(e->a, "run_%s_%s", hd_emit_identifier(e, f),
                                      identifier(e, hd_emit_stream_name(e, s)));
        int n = 0, own = 0;
        for (const Op *p = f->first; p; p = p->next) {
            if (!hd_is_action(p)) continue;
            if (hd_emit_stream(e, p) == s) {
                if (!own++) open_body(e, "static", name);
                put_action(e, p, func, n);
            }
            n++;
        }
        if (own) hd_puts(&e->body, "}\n\n");
        hd_printf(&table, "%s%s", s ? ", " : "", own ? name : "0");
    }
    hd_printf(&e->body, "static void (*const streams_%s[])(HdExec *x) = {%s};\n\n", hd_emit_identifier(e, f),
              table.text);
}

void hd_program_functions(Emit *e) {
    int index = 0;
    for (const Func *f = e->m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        put_actions(e, f);
        (e->target->stream_functions ? put_bodies : put_body)(e, f, index++);
    }
}

// --- tables

static void put_rows(Out *o, const char *type, const char *name, int n, const char *const *rows) {
    if (!n) return;
    hd_printf(o, "static const %s %s[] = {\n", type, name);
    for (int i = 0; i < n; i++) hd_printf(o, "    /* %d */ %s,\n", i, rows[i]);
    hd_puts(o, "};\n\n");
}

void hd_program_tables(Emit *e) {
    Out *o = e->c;
    hd_printf(o, "static const HdFunc funcs[%d];\n\n", hd_program_func(e, NULL));
    put_rows(o, "HdGemm", "gemms", e->gemms.n, e->gemms.at);
    put_rows(o, "HdAttention", "attentions", e->attentions.n, e->attentions.at);
    put_rows(o, "HdOptimizer", "optimizers", e->optimizers.n, e->optimizers.at);
    hd_puts(o, "static const char *const streams[] = {");
    for (int s = 0; s < hd_emit_streams(e); s++)
        hd_printf(o, "%s%s", s ? ", " : "", hd_emit_quoted(e, hd_emit_stream_name(e, s)));
    hd_puts(o, "};\n\n");
    if (e->sources.n) {
        hd_puts(o, "static const HdSource sources[] = {\n");
        for (int i = 0; i < e->sources.n; i++) {
            hd_printf(o, "    {%s,\n     ", hd_emit_quoted(e, e->sources.at[i].name));
            hd_emit_string(o, e->sources.at[i].text, "     ");
            hd_puts(o, "},\n");
        }
        hd_puts(o, "};\n\n");
    }
    if (e->kernels.n) {
        hd_puts(o, "static const HdKernel kernels[] = {\n");
        for (int i = 0; i < e->kernels.n; i++)
            hd_printf(o, "    {%s, %d, %d, true},\n", hd_emit_quoted(e, e->kernels.at[i].name), e->kernels.at[i].source,
                      e->kernels.at[i].shared_bytes);
        hd_puts(o, "};\n\n");
    }
}

static void put_tensor(Emit *e, const char *name, const Value *v) {
    hd_printf(e->c, "    {%s, %s, ", hd_emit_quoted(e, name), hd_emit_dtype(v->type->dtype));
    hd_emit_dims(e->c, v->type);
    hd_printf(e->c, ", %lld},\n", ll(hd_emit_value(e, v)));
}

static void put_tensors(Emit *e, const Func *f) {
    const Op *r = hd_return(f);
    if (f->n_args) {
        hd_printf(e->c, "static const HdTensor args_%s[] = {\n", hd_emit_identifier(e, f));
        for (int i = 0; i < f->n_args; i++) put_tensor(e, f->args[i]->name, f->args[i]);
        hd_puts(e->c, "};\n");
    }
    if (r && r->n_in) {
        hd_printf(e->c, "static const HdTensor results_%s[] = {\n", hd_emit_identifier(e, f));
        for (int i = 0; i < r->n_in; i++) put_tensor(e, hd_sprintf(e->a, "%d", i), r->in[i]);
        hd_puts(e->c, "};\n");
    }
}

static void put_funcs(Emit *e) {
    for (const Func *f = e->m->funcs; f; f = f->next)
        if (!f->is_kernel) put_tensors(e, f);
    hd_puts(e->c, "static const HdFunc funcs[] = {\n");
    for (const Func *f = e->m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        const Op *r = hd_return(f);
        const char *name = hd_emit_identifier(e, f);
        int results = r ? r->n_in : 0, actions = 0;
        for (const Op *p = f->first; p; p = p->next) actions += hd_is_action(p);
        hd_printf(e->c, "    {%s, %d, %d, %d, %s, %s, actions_%s, %s%s},\n", hd_emit_quoted(e, f->name), f->n_args,
                  results, actions, f->n_args ? hd_sprintf(e->a, "args_%s", name) : "0",
                  results ? hd_sprintf(e->a, "results_%s", name) : "0", name,
                  e->target->stream_functions ? "0, streams_" : "run_",
                  hd_sprintf(e->a, e->target->stream_functions ? "%s" : "%s, 0", name));
    }
    hd_puts(e->c, "};\n\n");
}

static const char *yes(bool b) { return b ? "true" : "false"; }

// In the order of their numbers, which is that of their functions' text.
static void put_regions(Emit *e) {
    if (!e->regions.n) return;
    hd_puts(e->c, "static const HdRegion regions[] = { // name, what issues it\n");
    for (int i = 0; i < e->regions.n; i++)
        hd_printf(e->c, "    {%s, region_%d},\n", hd_emit_quoted(e, e->regions.at[i]), i);
    hd_puts(e->c, "};\n\n");
}

// Whether a collective over a communicator is so.
static bool any(const Emit *e, const Symbol *comm, bool (*is)(const Op *o)) {
    for (const Func *f = e->m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            if (hd_op_is(o, TRAIT_COLLECTIVE) && is(o) && hd_named(o, A_COMM) == comm) return true;
    return false;
}

static bool exchanges(const Op *o) { return hd_exchanges(o) || hd_collective(o)->exchanges; }
static bool compares(const Op *o) { return hd_collective(o)->compares; }
static bool moves_values(const Op *o) { return o->n_in > 0; }

static int put_comms(Emit *e) {
    int n = 0;
    for (const Symbol *s = e->m->symbols; s; s = s->next) {
        if (s->kind != SYM_COMM) continue;
        const char *on = hd_word(&s->attrs, A_ON, "compute");
        Axes over = hd_axes(&s->attrs, A_OVER);
        if (!n++) hd_puts(e->c, "static const HdComm comms[] = { // name, axes, stream, whether parts are exchanged, "
                                 "whether it moves values, whether numbers are compared\n");
        hd_printf(e->c, "    {%s, %u, %d, %s, %s, %s}, // over %s\n", hd_emit_quoted(e, s->name), over,
                  hd_emit_stream_index(e, on), yes(any(e, s, exchanges)),
                  yes((over & HD_OWN_AXES) && any(e, s, moves_values)), // between ranks that share those of a model
                  yes(any(e, s, compares)),
                  hd_axes_text(e->a, over));
    }
    if (n) hd_puts(e->c, "};\n\n");
    return n;
}

static void put_axes(Emit *e) {
    Mesh mesh = hd_mesh(e->m);
    hd_puts(e->c, "static const HdAxis axes[] = { // name, ranks, whether they read different sequences, and own "
                  "parameters\n");
    for (int a = 0; a < N_AXES; a++)
        hd_printf(e->c, "    {\"%s\", %lld, %s, %s},\n", hd_axis_name(a), ll(mesh.size[a]), yes(HD_DATA_AXES >> a & 1),
                  yes(HD_EXPERT_AXES >> a & 1));
    hd_puts(e->c, "};\n\n");
}

static bool any_split(const Emit *e) {
    bool any = false;
    for (const Symbol *s = e->m->symbols; s; s = s->next) any |= s->kind == SYM_PARAM && s->layout;
    return any;
}

// How ranks share a parameter: the axes and the dimension, which is one.
static void put_split(Emit *e, const Symbol *p) {
    const Mesh mesh = hd_mesh(e->m);
    int64_t size = 0;
    int along = -1;
    for (int a = 0; a < N_AXES; a++) {
        const int at = hd_layout_at(p->layout, a), d = hd_layout_dim(at);
        if (at == LAYOUT_WHOLE) continue;
        if (hd_layout_uneven(at)) size = mesh.uneven;
        if (hd_layout_uneven(at) && d)
            hd_emit_error(e, p->span, "parameter @%s has uneven parts of columns, which programs cannot store",
                          p->name);
        if (along >= 0 && along != d)
            hd_emit_error(e, p->span, "parameter @%s is split along two dimensions, which programs cannot store",
                          p->name);
        along = d;
    }
    hd_printf(e->c, "    {%u, %d, %lld}, // %s\n", hd_layout_axes(p->layout), along < 0 ? 0 : along, ll(size),
              p->name);
}

static void put_param(Emit *e, const Symbol *p) {
    static const struct {
        const char *word, *text;
    } inits[] = {
#define INIT(id, word, ...) {word, "HD_INIT_" #id},
#include "runtime/inits.def"
    };
    const char *bucket = hd_word(&p->attrs, A_BUCKET, NULL), *init = hd_word(&p->attrs, A_INIT, "zeros"), *text = NULL;
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++)
        if (!strcmp(inits[i].word, init)) text = inits[i].text;
    if (!bucket || !text) {
        hd_emit_error(e, p->span,
                      bucket ? "parameter @%s: unknown init %s"
                             : "parameter @%s is in no bucket%.0s: run fsdp before codegen",
                      p->name, init);
        return;
    }
    if (!strcmp(init, "orthogonal") && p->type->rank != 2)
        hd_emit_error(e, p->span, "parameter @%s: init orthogonal is for a matrix", p->name);
    hd_printf(e->c, "    {%s, ", hd_emit_quoted(e, p->name));
    hd_emit_dims(e->c, p->type);
    hd_printf(e->c, ", %lld, %s, %s, %d, %lld},\n", ll(hd_type_count(p->type)), text,
              hd_emit_number(e->a, hd_float(&p->attrs, A_STD, 0), true), hd_emit_index(e, SYM_BUCKET, bucket),
              ll(hd_int(&p->attrs, A_OFFSET, 0)));
}

static bool has_of_files(const Emit *e, AttrId what) { // AS or TRANSPOSED, of any parameter
    for (const Symbol *s = e->m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM && hd_has(&s->attrs, what)) return true;
    return false;
}

// Parameters in canonical order: by `index`, then by position in the text.
static int put_params(Emit *e, int *lines) {
    VEC(const Symbol *) list = {0};
    for (const Symbol *s = e->m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM && !hd_has(&s->attrs, A_LOGGED)) hd_push(e->a, &list, s);
    for (int i = 1; i < list.n; i++) // insertion sort: stable, and the list is almost always sorted
        for (int k = i;
             k > 0 && hd_int(&list.at[k - 1]->attrs, A_INDEX, k - 1) > hd_int(&list.at[k]->attrs, A_INDEX, k); k--) {
            const Symbol *s = list.at[k];
            list.at[k] = list.at[k - 1];
            list.at[k - 1] = s;
        }
    if (!list.n) return 0;
    hd_puts(e->c, "static const HdParam params[] = { // name, shape, count, init; bucket and first element in it\n");
    for (int i = 0; i < list.n; i++) put_param(e, list.at[i]);
    *lines = hd_program_lines(e);
    hd_puts(e->c, "};\n\n");
    if (any_split(e)) {
        hd_puts(e->c, "static const HdSplit splits[] = { // of each parameter: axes, dimension, uneven size\n");
        for (int i = 0; i < list.n; i++) put_split(e, list.at[i]);
        hd_puts(e->c, "};\n\n");
    }
    if (has_of_files(e, A_AS)) {
        hd_puts(e->c, "static const char *const file_names[] = { // of parameters, in files of weights\n");
        for (int i = 0; i < list.n; i++) {
            const char *as = hd_word(&list.at[i]->attrs, A_AS, NULL);
            hd_printf(e->c, "    %s,\n", as ? hd_emit_quoted(e, as) : "0");
        }
        hd_puts(e->c, "};\n\n");
    }
    if (has_of_files(e, A_TRANSPOSED)) {
        hd_puts(e->c, "static const unsigned char file_turned[] = { // axes are the other way round there\n    ");
        for (int i = 0; i < list.n; i++)
            hd_printf(e->c, "%d,%s", hd_has(&list.at[i]->attrs, A_TRANSPOSED), i % 32 == 31 ? "\n    " : " ");
        hd_puts(e->c, "\n};\n\n");
    }
    return list.n;
}

// --- the program

static int64_t setting_int(const Emit *e, AttrId id, int64_t otherwise) {
    const Attr *a = hd_emit_setting(e->m, id);
    return a ? a->i : otherwise;
}

static void put_text(Emit *e, const char *field, const char *text) {
    hd_printf(e->c, "    .%s = ", field);
    hd_emit_string(e->c, text ? text : "", "        ");
    hd_puts(e->c, ",\n");
}

static void put_setting(Emit *e, const char *field, AttrId id) {
    const Attr *a = hd_emit_setting(e->m, id);
    put_text(e, field, a ? a->s : "");
}

// The streams beside the main one that run products and kernels, a bit for each.
static unsigned computing(Emit *e) {
    unsigned bits = 0;
    for (const Func *f = e->m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            if (o->kind == OP_GEMM || hd_op_is(o, TRAIT_LAUNCH | TRAIT_SQUARES))
                bits |= 1u << hd_emit_stream(e, o);
    return bits & ~1u;
}

static int64_t arena_bytes(Emit *e, Space space) {
    enum { NOTED = 16 }; // bytes
    const Symbol *s = hd_space_arena(e->m, space);
    const int64_t behind = space == SPACE_DEVICE ? hd_emit_bound_wanted(e) : 0;
    return behind ? behind + NOTED : s ? hd_int(&s->attrs, A_BYTES, 0) : 0;
}

// Of the exchange that has the most choices a token: in percent of an equal share of all tokens.
static int64_t bound_of_all(const Emit *e) {
    int64_t most = 0;
    for (const Func *f = e->m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next) {
            if (o->kind != OP_ROUTE) continue;
            const int64_t k = hd_type_cols(o->in[0]->type), ranks = hd_type_cols(o->out[1]->type);
            const int64_t all = hd_ceil_div(100 * ranks, k < ranks ? k : ranks);
            if (all > most) most = all;
        }
    return most;
}

static void put_bounds(Emit *e) {
    const int64_t wanted = hd_emit_bound_wanted(e);
    if (wanted) hd_printf(e->c, "    .bound_wanted = %lld, .bound_of_all = %lld,\n", ll(wanted), ll(bound_of_all(e)));
}

static int64_t sharing(Emit *e) { // ranks that share the work of a micro-batch
    Axes over = 0;
    for (const Symbol *s = e->m->symbols; s; s = s->next)
        if (s->kind == SYM_PARAM) over |= hd_layout_axes(s->layout);
    const Mesh mesh = hd_mesh(e->m);
    return hd_mesh_ranks(&mesh, over);
}

static void put_steps(Emit *e, Out *fields) {
    hd_program_step(e, KIND_TRAIN, "train_step", fields);
    hd_program_step(e, KIND_EVAL, "eval_step", fields);
    if (hd_step(e->m, KIND_LOGITS)) hd_program_step(e, KIND_LOGITS, "logits_step", fields);
    if (hd_step(e->m, KIND_DECODE)) hd_program_step(e, KIND_DECODE, "decode_step", fields);
    hd_program_calls(e, fields);
    hd_program_guarded(e, fields);
    hd_program_indexed(e, fields);
}

static void put_program(Emit *e, int n_params, int n_lines, int n_buckets, int n_states, int n_comms) {
    static const Attrs none;
    const Symbol *train = hd_symbol_find(e->m, "train");
    Out *o = e->c;
    const int64_t micro = setting_int(e, A_MICRO, 1);
    const int n_inputs = hd_program_inputs(e);
    Out steps = hd_out(e->a);
    put_steps(e, &steps);
    hd_puts(o, "static const HdProgram program = {\n");
    hd_puts(o, steps.text);
    put_setting(e, "model", A_MODEL);
    put_setting(e, "source", A_SOURCE);
    put_text(e, "target", e->target->name);
    put_setting(e, "arch", A_ARCH);
    put_text(e, "plan_hash", hd_emit_plan_hash(e));
    put_text(e, "model_hash", hd_emit_model_hash(e));
    put_text(e, "model_core", hd_emit_model_core(e));
    put_text(e, "train", hd_emit_train(e));
    hd_puts(o, "    .report = report, .report_text = report_text, .timeline = timeline,\n");
    hd_printf(o, "    .arena_bytes = %lld, .pinned_bytes = %lld,\n", ll(arena_bytes(e, SPACE_DEVICE)),
              ll(arena_bytes(e, SPACE_HOST)));
    hd_printf(o, "    .batch = %lld, .seq = %lld, .micro = %lld, .n_inputs = %d, .inputs = %s,\n",
              ll(setting_int(e, A_BATCH, 0)), ll(setting_int(e, A_SEQ, 0)), ll(micro), n_inputs,
              n_inputs ? "inputs" : "0");
    if (setting_int(e, A_LOSS_SCALE, 1) > 1)
        hd_printf(o, "    .loss_scale = %lld,\n", ll(setting_int(e, A_LOSS_SCALE, 1)));
    const double flops = (double)setting_int(e, A_MODEL_FLOPS, 0) * (double)micro / (double)sharing(e);
    hd_printf(o, "    .model_flops = %.17g, .seed = %lld,\n", flops,
              ll(setting_int(e, A_SEED, 1)));
    hd_printf(o, "    .lr = %s, // for the log\n", hd_emit_rate(e, train ? &train->attrs : &none));
    if (train && hd_has(&train->attrs, A_ON_NAN)) hd_puts(o, "    .skips = true,\n");
    put_bounds(e);
    if (train && *hd_emit_limits(e, &train->attrs)) hd_printf(o, "    %s,\n", hd_emit_limits(e, &train->attrs) + 2);
    hd_printf(o, "    .n_axes = %d, .axes = axes,\n", N_AXES);
    hd_printf(o, "    .n_comms = %d, .comms = %s, .n_buckets = %d, .buckets = %s,\n", n_comms, n_comms ? "comms" : "0",
              n_buckets, n_buckets ? "buckets" : "0");
    hd_printf(o, "    .n_states = %d, .states = %s,\n", n_states, n_states ? "states" : "0");
    hd_program_known_states(e, o);
    if (hd_program_state_type(e) != TY_F32)
        hd_printf(o, "    .state_dtype = %s,\n", hd_emit_dtype(hd_program_state_type(e)));
    hd_printf(o, "    .n_params = %d, .params = %s,\n", n_params, n_params ? "params" : "0");
    if (n_lines) hd_printf(o, "    .n_lines = %d,\n", n_lines);
    if (has_of_files(e, A_AS)) hd_puts(o, "    .file_names = file_names,\n");
    if (has_of_files(e, A_TRANSPOSED)) hd_puts(o, "    .file_turned = file_turned,\n");
    if (hd_emit_setting(e->m, A_HUB_CONFIG)) put_setting(e, "hub_config", A_HUB_CONFIG);
    if (any_split(e)) hd_puts(o, "    .splits = splits,\n");
    hd_printf(o, "    .n_funcs = %d, .funcs = funcs, .backend = &%s,\n", hd_program_func(e, NULL), e->target->backend);
    hd_printf(o, "    .n_sources = %d, .n_kernels = %d, .n_gemms = %d, .sources = %s, .kernels = %s, .gemms = %s,\n",
              e->sources.n, e->kernels.n, e->gemms.n, e->sources.n ? "sources" : "0", e->kernels.n ? "kernels" : "0",
              e->gemms.n ? "gemms" : "0");
    hd_printf(o, "    .n_streams = (int)(sizeof streams / sizeof *streams), .n_events = %d, .n_attentions = %d,\n",
              e->n_events, e->attentions.n);
    if (e->lanes > 1) hd_printf(o, "    .lanes = %d,\n", e->lanes);
    if (computing(e)) hd_printf(o, "    .computing = 0x%x,\n", computing(e));
    hd_printf(o, "    .streams = streams, .attentions = %s, .n_regions = %d, .regions = %s,\n};\n\n",
              e->attentions.n ? "attentions" : "0", e->regions.n, e->regions.n ? "regions" : "0");
}

void hd_program_main(Emit *e) {
    put_funcs(e);
    int n_lines = 0, n_params = put_params(e, &n_lines);
    put_axes(e);
    put_regions(e);
    int n_buckets = hd_program_buckets(e), n_states = hd_program_states(e), n_comms = put_comms(e);
    put_program(e, n_params, n_lines, n_buckets, n_states, n_comms);
    hd_puts(e->c, "#ifndef HEDDLE_NO_MAIN\nint main(int argc, char **argv) {\n");
    if (e->target->start) hd_printf(e->c, "    %s\n", e->target->start);
    hd_puts(e->c, "    return hd_main(argc, argv, &program);\n}\n"
                  "#else\n"
                  "const HdProgram *const HEDDLE_NO_MAIN = &program; // a shared object is asked for it\n"
                  "#endif\n");
}
