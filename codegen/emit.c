// Text helpers, addresses and table rows shared by the emitters.
#include "codegen/emit.h"
#include "ir/mesh.h"
#include "ir/base/ints.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include "ir/machine/workspace.h"
#include "ir/machine/symmetric.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// --- text

void hd_emit_line(Emit *e, const Op *o, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = hd_vsprintf(e->a, fmt, ap);
    va_end(ap);
    const bool placed = o && (o->loc.path || o->loc.file);
    hd_printf(&e->body, placed ? "    %s " : "    %s", text);
    if (placed) hd_emit_comment(&e->body, hd_emit_where(e, o));
    else hd_puts(&e->body, "\n");
}

const char *hd_emit_where(Emit *e, const Op *o) {
    const char *path = o->loc.path ? o->loc.path : "";
    return o->loc.file ? hd_sprintf(e->a, "%s%s%s:%d", path, *path ? " " : "", o->loc.file, o->loc.line) : path;
}

void hd_emit_comment(Out *o, const char *text) {
    hd_puts(o, "// ");
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        const bool good = (n = hd_text_char(text, left)) && *text != '\\' && !(text[0] == '?' && text[1] == '?');
        if (good) hd_putn(o, text, n);
        else hd_printf(o, "<%02x>", (unsigned char)*text), n = 1;
    }
    hd_puts(o, "\n");
}

void hd_emit_string(Out *o, const char *text, const char *indent) {
    hd_puts(o, "\"");
    const char *end = text + strlen(text);
    for (const char *s = text; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        const size_t n = hd_text_char(s, (size_t)(end - s));
        if (c == '"' || c == '\\') hd_printf(o, "\\%c", c);
        else if (c == '\n') hd_puts(o, "\\n");
        else if (c == '\t') hd_puts(o, "\\t");
        else if (c == '?') hd_puts(o, s > text && s[-1] == '?' ? "\\?" : "?"); // no trigraphs
        else if (!n) hd_printf(o, "\\%03o", c);
        else hd_putn(o, s, n), s += n - 1;
        if (c == '\n' && s[1]) hd_printf(o, "\"\n%s\"", indent);
    }
    hd_puts(o, "\"");
}

const char *hd_emit_quoted(Emit *e, const char *text) {
    Out o = hd_out(e->a);
    hd_emit_string(&o, text ? text : "", "");
    return o.text;
}

void hd_emit_error(Emit *e, Span s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    hd_error(e->cx, s, "%s", hd_vsprintf(e->a, fmt, ap));
    va_end(ap);
    e->failed = true;
}

const char *hd_emit_number(Arena *a, double v, bool f64) {
    if (isnan(v)) return f64 ? "(double)NAN" : "NAN";
    if (isinf(v)) return hd_sprintf(a, "%s%sINFINITY", v < 0 ? "-" : "", f64 ? "(double)" : "");
    Out o = hd_out(a);
    hd_put_float(&o, v);
    if (!f64) hd_puts(&o, "f");
    return o.text;
}

const char *hd_emit_kernel_name(Emit *e, const Func *k) {
    int n = 0, at = -1;
    for (const Func *f = e->m->funcs; f; f = f->next, n++)
        if (f == k) at = n;
    if (at < 0) HD_BUG("kernel @%s is not in the module", k->name);
    if (!e->kernel_names) e->kernel_names = HD_NEWN(e->a, const char *, n);
    if (!e->kernel_names[at]) {
        const char *text = hd_kernel_text(e->a, k);
        for (int i = 0; i < n; i++) // a.b and a_b are the same identifier
            if (e->kernel_names[i] && !strcmp(e->kernel_names[i], text)) text = hd_sprintf(e->a, "%s_%d", text, at);
        e->kernel_names[at] = text;
    }
    return e->kernel_names[at];
}

// --- places

static void missing(Emit *e, Span s, const char *what) {
    if (!e->failed) hd_emit_error(e, s, "%s has no address: run plan-memory before codegen", what);
}

const Attr *hd_emit_setting(const Module *m, AttrId id) {
    for (const Symbol *s = m->symbols; s; s = s->next)
        if (s->kind == SYM_CONFIG && hd_attr(&s->attrs, id)) return hd_attr(&s->attrs, id);
    return NULL;
}

int64_t hd_emit_buffer(Emit *e, const Op *user, const char *buffer, int64_t element) {
    const Symbol *s = hd_symbol_find(e->m, buffer);
    if (!s || s->kind != SYM_BUFFER || !s->type)
        HD_BUG("%s names no buffer: @%s", hd_op_info(user->kind)->mnemonic, buffer);
    if (!s->place.placed || s->place.space) missing(e, s->span, hd_sprintf(e->a, "buffer @%s", buffer));
    return s->place.offset + element * hd_dtype_bytes(s->type->dtype);
}

static Place place_of(Emit *e, const Value *v, const char *buffer, int64_t element) {
    const Symbol *s = v ? NULL : hd_symbol_find(e->m, buffer);
    Place p = v ? v->place : s->place;
    if (!p.placed) missing(e, v ? v->func->span : s->span, v ? "a value" : hd_sprintf(e->a, "buffer @%s", buffer));
    if (s) p.offset += element * hd_dtype_bytes(s->type->dtype);
    return p;
}

Place hd_emit_copied(Emit *e, const Op *o, Place *to) {
    *to = place_of(e, o->n_out ? o->out[0] : NULL, hd_word(&o->attrs, A_INTO, ""), hd_int(&o->attrs, A_OFFSET, 0));
    return place_of(e, o->n_in ? o->in[0] : NULL, hd_word(&o->attrs, A_BUFFER, ""), 0);
}

const char *hd_emit_decayed(Emit *e, const Op *o) {
    long long decayed = hd_int(&o->attrs, A_DECAYED, 0);
    const Symbol *part = hd_named(o, A_MASTER_WEIGHTS);
    if (hd_int(&o->attrs, A_RANKS, 1) == 1) return hd_sprintf(e->a, "%lld", decayed);
    return hd_sprintf(e->a, "hd_decayed_here(x, %lld, %lld, %u)", decayed, (long long)hd_type_count(part->type),
                      hd_axes(&part->attrs, A_SPLIT));
}

int64_t hd_emit_value(Emit *e, const Value *v) {
    if (v->place.placed && !v->place.space) return v->place.offset;
    const Op *d = v->def;
    if (d && hd_op_is(d, TRAIT_SOURCE))
        return hd_emit_buffer(e, d, hd_word(&d->attrs, A_BUFFER, ""), hd_int(&d->attrs, A_OFFSET, 0));
    if (d && hd_op_is(d, TRAIT_ALIAS)) return hd_emit_value(e, d->in[0]);
    missing(e, d ? d->span : v->func->span,
            d ? hd_sprintf(e->a, "result %d of %s", v->index, hd_op_info(d->kind)->mnemonic)
              : hd_sprintf(e->a, "argument %%%s", v->name));
    return 0;
}

int64_t hd_emit_result(Emit *e, const Op *o, int i) {
    const char *into = hd_word(&o->attrs, A_INTO, NULL);
    if (!into) return hd_emit_value(e, o->out[i]);
    return i ? hd_emit_value(e, o->out[i - 1]) : hd_emit_buffer(e, o, into, hd_int(&o->attrs, A_OFFSET, 0));
}

static int64_t comm_ranks(const Emit *e, const Op *o) {
    const Mesh mesh = hd_mesh(e->m);
    return hd_mesh_ranks(&mesh, hd_axes(&hd_named(o, A_COMM)->attrs, A_OVER));
}

int64_t hd_emit_bound_wanted(const Emit *e) {
    const Symbol *arena = hd_space_arena(e->m, SPACE_DEVICE);
    const int64_t end = arena ? hd_int(&arena->attrs, A_BYTES, 0) : 0;
    for (const Func *f = e->m->funcs; f; f = f->next)
        for (const Op *o = f->is_kernel ? NULL : f->first; o; o = o->next)
            if (o->kind == OP_ROUTE && hd_has(&o->attrs, A_CAPACITY)) return hd_ceil_div(end, 16) * 16;
    return 0;
}

const char *hd_emit_tensors(const Emit *e, const Symbol *part) {
    const Attr *list = hd_tensors(e->m, part);
    Out text = hd_out(e->a);
    for (int i = 0; i < list->n; i++) hd_printf(&text, "%s%lld", i ? ", " : "", ll(list->ints[i]));
    return text.text;
}

int64_t hd_emit_moved(Emit *e, const Op *o) {
    const Type *t = hd_result_type(o, 0);
    const int64_t rows = hd_type_rows(t) / comm_ranks(e, o);
    return hd_int(&o->attrs, A_CAPACITY, rows) * hd_type_cols(t);
}

Exchange hd_emit_exchange(Emit *e, const Op *o) {
    const Symbol *b = hd_named(o, A_BUFFER);
    const Type *part = !hd_gathers(o) ? hd_result_type(o, 0) : b ? b->type : o->in[0]->type;
    if (hd_collective(o)->exchanges) {
        Type t = *part;
        t.dim[0] /= comm_ranks(e, o);
        part = hd_type(e->m->cx, t.dtype, t.rank, t.dim);
    }
    return (Exchange){.comm = hd_emit_comm(e, o),
                      .from = b ? hd_emit_buffer(e, o, b->name, 0) : hd_emit_value(e, o->in[0]),
                      .to = hd_emit_result(e, o, 0), .part = part};
}

int64_t hd_emit_workspace(Emit *e, const Op *o) {
    int64_t have = hd_int(&o->attrs, A_WORKSPACE_BYTES, 0), least = hd_workspace(o, e->target == &hd_cuda_target).least;
    if (have < least)
        hd_emit_error(e, o->span, "%s needs a workspace of %lld bytes and has %lld: run select before codegen",
                      hd_op_info(o->kind)->mnemonic, ll(least), ll(have));
    if (!have) return -1;
    if (!hd_has(&o->attrs, A_WORKSPACE_AT))
        missing(e, o->span, hd_sprintf(e->a, "the workspace of %s", hd_op_info(o->kind)->mnemonic));
    return hd_int(&o->attrs, A_WORKSPACE_AT, 0);
}

void hd_emit_unprintable(Emit *e, const Op *o) {
    hd_emit_error(e, o->span, "target %s cannot run %s in a plan: it belongs into a kernel", e->target->name,
                  hd_op_info(o->kind)->mnemonic);
}

// --- streams and events

static void find_streams(Emit *e) {
    if (e->streams.n) return;
    hd_push(e->a, &e->streams, "compute");
    for (const Symbol *s = e->m->symbols; s; s = s->next)
        if (s->kind == SYM_STREAM && strcmp(s->name, "compute") != 0) hd_push(e->a, &e->streams, s->name);
}

int hd_emit_streams(Emit *e) {
    find_streams(e);
    return e->streams.n;
}

const char *hd_emit_stream_name(Emit *e, int stream) {
    find_streams(e);
    return e->streams.at[stream];
}

int hd_emit_stream_index(Emit *e, const char *stream) {
    find_streams(e);
    for (int i = 0; i < e->streams.n; i++)
        if (!strcmp(stream ? stream : "compute", e->streams.at[i])) return i;
    HD_BUG("stream %s is not declared", stream);
}

int hd_emit_stream(Emit *e, const Op *o) { return hd_emit_stream_index(e, o->stream); }

int hd_emit_index(const Emit *e, SymbolKind kind, const char *name) {
    int n = 0;
    for (const Symbol *s = e->m->symbols; s; s = s->next) {
        if (s->kind == kind && !strcmp(s->name, name)) return n;
        n += s->kind == kind;
    }
    return -1;
}

int hd_emit_comm(Emit *e, const Op *o) {
    const char *name = hd_word(&o->attrs, A_COMM, "");
    int at = hd_emit_index(e, SYM_COMM, name);
    if (at < 0) HD_BUG("comm @%s is not declared", name);
    return at;
}

const char *hd_emit_own_part(Emit *e, const Op *o, int64_t size) {
    const Axes over = hd_axes(&o->attrs, A_OVER);
    const Mesh mesh = hd_mesh(e->m);
    int n = 0;
    if (hd_mesh_ranks(&mesh, over) == 1) return "(uint64_t)0";
    for (const Symbol *s = e->m->symbols; s; s = s->next) {
        if (s->kind != SYM_COMM) continue;
        if (hd_axes(&s->attrs, A_OVER) == over) return hd_sprintf(e->a, "hd_own_part(x, %d, %lld)", n, ll(size));
        n++;
    }
    hd_emit_error(e, o->span, "%s is over %s, and no comm is", hd_op_info(o->kind)->mnemonic, hd_axes_text(e->a, over));
    return "0";
}

int hd_emit_region(Emit *e, const Op *o) {
    const char *name = hd_word(&o->attrs, A_REGION, "");
    int i = 0;
    while (i < e->regions.n && strcmp(e->regions.at[i], name) != 0) i++;
    if (i == e->regions.n) hd_push(e->a, &e->regions, name);
    return i;
}

int hd_emit_event(Emit *e, const Op *o) {
    int event = (int)hd_int(&o->attrs, A_EVENT, 0);
    if (event >= e->n_events) e->n_events = event + 1;
    return event;
}

// --- rows of tables

typedef VEC(const char *) Rows;

static int row(Emit *e, void *table, const char *text) {
    Rows *rows = table;
    for (int i = 0; i < rows->n; i++)
        if (!strcmp(rows->at[i], text)) return i;
    hd_push(e->a, rows, text);
    return rows->n - 1;
}

static const char *scaling(const Op *o) {
    if (hd_scales_of_squares(o)) return "HD_SCALED_SQUARES";
    if (hd_has(&o->attrs, A_BLOCKS)) return "HD_SCALED_BLOCKS";
    return hd_scales_of_rows(o) ? "HD_SCALED_ROWS" : "HD_SCALED_WHOLE";
}

int hd_emit_gemm(Emit *e, const Op *o) {
    Product p = hd_product(o);
    DType d = hd_result_type(o, 0)->dtype;
    const char *epi = strcmp(hd_word(&o->attrs, A_EPILOGUE, "none"), "bias") ? "HD_EPI_NONE" : "HD_EPI_BIAS";
    Out t = hd_out(e->a);
    hd_printf(&t, "{.m = %lld, .n = %lld, .k = %lld%s%s%s", ll(p.m), ll(p.n), ll(p.k), p.ta ? ", .ta = true" : "",
              p.tb ? ", .tb = true" : "", hd_has(&o->attrs, A_ACCUMULATE) ? ", .accumulate = true" : "");
    if (hd_has(&o->attrs, A_COLUMNS)) hd_printf(&t, ", .columns = %lld", ll(hd_int(&o->attrs, A_COLUMNS, 0)));
    if (hd_has(&o->attrs, A_ALIGN)) hd_printf(&t, ", .align = %lld", ll(hd_int(&o->attrs, A_ALIGN, 0)));
    if (hd_has(&o->attrs, A_SCALED))
        hd_printf(&t, ", .scaled = %s%s", scaling(o),
                  hd_has(&o->attrs, A_FAST) ? ", .fast = true" : "");
    if (hd_has(&o->attrs, A_BLOCKS)) hd_printf(&t, ", .block = %d", HD_BLOCK);
    hd_printf(&t, ", .a = %s, .b = %s, .d = %s, .epilogue = %s, .batch = %lld, .workspace_bytes = %lld}",
              hd_emit_dtype(o->in[0]->type->dtype), hd_emit_dtype(o->in[1]->type->dtype), hd_emit_dtype(d), epi,
              ll(p.batches < 1 ? 1 : p.batches), ll(hd_int(&o->attrs, A_WORKSPACE_BYTES, 0)));
    return row(e, &e->gemms, t.text);
}

int hd_emit_attention(Emit *e, const Op *o) {
    AttentionShape s = hd_attention_shape(o);
    Out t = hd_out(e->a);
    hd_printf(&t, "{.batch = %lld, .seq = %lld, .heads = %lld, .kv_heads = %lld, .size = %lld", ll(s.batch), ll(s.seq),
              ll(s.heads), ll(s.kv_heads), ll(s.size));
    hd_printf(&t, ", .q_stride = %lld, .k_stride = %lld, .v_stride = %lld, .o_stride = %lld", ll(s.q_stride),
              ll(s.kv_stride), ll(s.kv_stride), ll(s.o_stride));
    hd_printf(&t, "%s%s, .scale = %s, .dtype = %s, .workspace_bytes = %lld", s.causal ? ", .causal = true" : "",
              s.grad ? ", .grad = true" : "", hd_emit_number(e->a, (double)(float)s.scale, false),
              hd_emit_dtype(s.dtype), ll(hd_int(&o->attrs, A_WORKSPACE_BYTES, 0)));
    if (s.window < s.seq) hd_printf(&t, ", .window = %lld", ll(s.window));
    if (s.documents) hd_puts(&t, ", .documents = true");
    if (s.softcap > 0) hd_printf(&t, ", .softcap = %s", hd_emit_number(e->a, s.softcap, false));
    if (s.sink) hd_puts(&t, ", .sink = true");
    if (hd_draws(o))
        hd_printf(&t, ", .each = %lld, .threshold = 0x%08xu, .factor = %s", ll(s.batch / hd_int(&o->attrs, A_BATCH, 1)),
                  hd_dropout_threshold(o), hd_emit_number(e->a, hd_dropout_factor(o), false));
    if (hd_has(&o->attrs, A_OVER)) hd_puts(&t, ", .part = true");
    if (e->target->attention) hd_puts(&t, e->target->attention(e, o));
    hd_puts(&t, "}");
    return row(e, &e->attentions, t.text);
}

int hd_emit_attention_operands(Emit *e, const Op *o, int64_t at[9]) {
    AttentionShape s = hd_attention_shape(o);
    Value *const *groups[2] = {o->in + s.grad, o->out}; // q, k, v; and, of the backward pass, their gradients
    int n = 0;
    if (s.grad) at[n++] = hd_emit_value(e, o->in[0]);
    for (int g = 0; g <= s.grad; g++) {
        for (int i = 0; i < 3; i++)
            at[n++] = hd_emit_value(e, groups[g][s.packed ? 0 : i]) + s.part[i] * hd_dtype_bytes(s.dtype);
        Value *const *between = s.grad ? o->in + hd_attention_operands(o) - 2 : o->out; // o and the log-sum-exp
        for (int i = 0; i < 2 && !g; i++) at[n++] = hd_emit_value(e, between[i]);
    }
    return n;
}

static void number(Emit *e, Out *t, const Attrs *as, AttrId id, const char *field) {
    const Attr *a = hd_attr(as, id);
    if (!a) return;
    if (hd_attr_info(id)->kind == AK_INT) hd_printf(t, ", .%s = %lld", field, (long long)a->i);
    else hd_printf(t, ", .%s = %s", field, hd_emit_number(e->a, a->f, true));
}

static const char *upper(Emit *e, const char *word) {
    char *text = hd_sprintf(e->a, "%s", word);
    for (char *c = text; *c; c++) *c = (char)toupper((unsigned char)*c);
    return text;
}

const char *hd_emit_points(Emit *e, const Attrs *as, AttrId id) {
    const Attr *a = hd_attr(as, id);
    Out t = hd_out(e->a);
    for (int i = 0; a && i < a->n; i++)
        hd_printf(&t, "%s%s", i ? ", " : "",
                  hd_emit_number(e->a, id == A_LR_STEPS ? (double)a->ints[i] : a->floats[i], true));
    return hd_sprintf(e->a, "{%s}", t.n ? t.text : "");
}

const char *hd_emit_rate(Emit *e, const Attrs *as) {
    Out t = hd_out(e->a);
    const Attr *steps = hd_attr(as, A_LR_STEPS), *rates = hd_attr(as, A_LR_RATES);
    const char *kind = hd_word(as, A_LR, "constant");
    const bool pointless = !strcmp(kind, "points") && (!steps || !rates || !steps->n || steps->n != rates->n);
    if (!hd_has(as, A_LR_PEAK) || pointless) return "{.peak = -1.0}"; // unknown
    hd_printf(&t, "{.kind = HD_LR_%s", upper(e, kind));
    number(e, &t, as, A_LR_PEAK, "peak");
    number(e, &t, as, A_LR_FLOOR, "floor");
    number(e, &t, as, A_LR_WARMUP, "warmup");
    number(e, &t, as, A_LR_TOTAL, "total");
    number(e, &t, as, A_LR_DECAY, "decay");
    if (hd_has(as, A_LR_SHAPE)) hd_printf(&t, ", .shape = HD_FALL_%s", upper(e, hd_word(as, A_LR_SHAPE, "")));
    if (steps && rates)
        hd_printf(&t, ", .points = %d, .steps = (const double[])%s, .rates = (const double[])%s", steps->n,
                  hd_emit_points(e, as, A_LR_STEPS), hd_emit_points(e, as, A_LR_RATES));
    hd_puts(&t, "}");
    return t.text;
}

double hd_emit_beta(const Op *o, int i) { // 1: 1 - beta^t is 0, as without one
    const Attr *betas = hd_attr(&o->attrs, A_BETAS);
    return betas && i < betas->n ? betas->floats[i] : 1.0;
}

const char *hd_emit_limits(Emit *e, const Attrs *as) {
    const double loss = hd_float(as, A_SKIP_LOSS_Z, 0), norm = hd_float(as, A_SKIP_NORM_Z, 0);
    if (loss == 0 && norm == 0) return "";
    return hd_sprintf(e->a, ", .skip_z = {%s, %s}", hd_emit_number(e->a, loss, true), hd_emit_number(e->a, norm, true));
}

int hd_emit_optimizer(Emit *e, const Op *o) {
    Out t = hd_out(e->a);
    hd_printf(&t, "{.beta1 = %s, .beta2 = %s", hd_emit_number(e->a, hd_emit_beta(o, 0), true),
              hd_emit_number(e->a, hd_emit_beta(o, 1), true));
    number(e, &t, &o->attrs, A_CLIP, "clip");
    hd_printf(&t, ", .loss_scale = %s", hd_emit_number(e->a, (double)hd_int(&o->attrs, A_LOSS_SCALE, 1), true));
    hd_printf(&t, ", .lr = %s%s%s}", hd_emit_rate(e, &o->attrs), hd_has(&o->attrs, A_ON_NAN) ? ", .skips = true" : "",
              hd_emit_limits(e, &o->attrs));
    return row(e, &e->optimizers, t.text);
}

// A product of HdTurned, in the table of products where a library computes it.
static int turn_product(Emit *e, bool own, const char *sizes, const char *dtype, int64_t batch, int64_t like) {
    if (own) return 0;
    return row(e, &e->gemms, hd_sprintf(e->a, "{%s, .a = %s, .b = %s, .d = %s, .epilogue = HD_EPI_NONE, "
                                              ".batch = %lld, .like = %lld}", sizes, dtype, dtype, dtype, ll(batch),
                                        ll(like)));
}

static void put_turned(Emit *e, Out *t, const Op *o, const Turned *m, const char *dtype, EmitSymmetric *own) {
    const bool tall = m->rows > m->cols;
    const int64_t least = tall ? m->cols : m->rows, like = hd_turned_like(o, m->rows, m->cols);
    const bool wide = !own, half = own && hd_turned_symmetric(o, m->rows, m->cols);
    const char *square = hd_sprintf(e->a, ".m = %lld, .n = %lld, .k = %lld, .%s = true", ll(least), ll(least),
                                    ll(tall ? m->rows : m->cols), tall ? "ta" : "tb");
    const char *twice = hd_sprintf(e->a, ".m = %lld, .n = %lld, .k = %lld, .accumulate = true", ll(least), ll(least),
                                   ll(least));
    const char *step = hd_sprintf(e->a, ".m = %lld, .n = %lld, .k = %lld, .accumulate = true", ll(m->rows),
                                  ll(m->cols), ll(least));
    const int first = turn_product(e, wide || half, square, dtype, m->batch, like),
              second = turn_product(e, wide || half, twice, dtype, m->batch, like),
              third = turn_product(e, wide, step, dtype, m->batch, like);
    hd_printf(t, "{%lld, %lld, %lld, %lld, %lld, %s, {%d, %d, %d}, {%s, %s}}, ", ll(m->rank), ll(m->at), ll(m->batch),
              ll(m->rows), ll(m->cols), hd_emit_number(e->a, m->scale, false), first, second, third,
              half ? own(e, o, tall, false) : "{0}", half ? own(e, o, false, true) : "{0}");
}

const char *hd_emit_turn(Emit *e, const Op *o, EmitSymmetric *own, const char *more) {
    const bool wide = !own;
    const Op *turn = hd_optimizer_turn(hd_update_kernel(o));
    const Symbol *part = hd_named(o, A_MASTER_WEIGHTS);
    const TurnedSpace s = hd_turned_space(o, !wide);
    const Turned *list;
    const int n = wide ? hd_turned(o, e->a, &list) : hd_turned_batches(o, e->a, &list);
    DType d = TY_F32;
    hd_dtype_parse(hd_word(&turn->attrs, A_OUT, ""), &d);
    Out t = hd_out(e->a);
    hd_printf(&t, "&(const HdTurn){.split = %u, .dtype = %s, .n = %d, .list = (const HdTurned[]){",
              hd_axes(&part->attrs, A_SPLIT), hd_emit_dtype(d), n);
    for (int i = 0; i < n; i++) put_turned(e, &t, o, &list[i], hd_emit_dtype(d), own);
    hd_printf(&t, "%s}, .x = %lld, .g = %lld, .h = %lld, .sums = %lld, .lanes = %d, .lane = %lld%s}",
              n ? "" : "{0}", ll(s.x), ll(s.g), ll(s.h), ll(s.sums), s.lanes, ll(s.lane), more);
    if (s.lanes > e->lanes) e->lanes = s.lanes;
    return t.text;
}
