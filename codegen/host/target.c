// The host target: how each op of a plan becomes a statement of C.
#include "codegen/host/places.h"
#include "ir/base/ints.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include "ir/ssd.h"
#include <math.h>

static void host_launch(Emit *e, const Op *o) {
    const Func *k = hd_launched(o);
    if (!k) HD_BUG("launch of no kernel");
    Out t = hd_out(e->a);
    hd_printf(&t, "%s(", hd_emit_kernel_name(e, k));
    for (int i = 0; i < o->n_in; i++) hd_printf(&t, "%s%s", i ? ", " : "", in(e, o, i));
    for (int i = 0; i < o->n_out; i++) hd_printf(&t, "%s%s", i || o->n_in ? ", " : "", out(e, o, i));
    if (hd_host_has_column_sums(k)) hd_printf(&t, ", %s", workspace(e, o));
    hd_puts(&t, ");");
    hd_emit_line(e, o, "%s", t.text);
}

static void host_gemm(Emit *e, const Op *o) {
    const int g = hd_emit_gemm(e, o), bias = hd_operand_of(o, ROLE_BIAS), scale = hd_operand_of(o, ROLE_SCALE_A);
    if (scale >= 0) {
        hd_emit_line(e, o, "hd_host_gemm_scaled(&gemms[%d], %s, %s, %s, %s, %s, %s);", g, in(e, o, 0), in(e, o, 1),
                     f32(e, in(e, o, scale)), f32(e, in(e, o, hd_operand_of(o, ROLE_SCALE_B))), out(e, o, 0),
                     workspace(e, o));
        return;
    }
    const char *call = hd_kind(&o->func->attrs) == KIND_DECODE ? "hd_host_gemm_row" : "hd_host_gemm";
    hd_emit_line(e, o, "%s(&gemms[%d], %s, %s, %s, %s, %s);", call, g, in(e, o, 0), in(e, o, 1),
                 bias < 0 ? "NULL" : in(e, o, bias), out(e, o, 0), workspace(e, o));
}

// The runtime's tiles hold heads of up to 512.
static void host_attention(Emit *e, const Op *o) {
    AttentionShape s = hd_attention_shape(o);
    int64_t place[9];
    Out t = hd_out(e->a);
    no_f64(e, o);
    if (s.size > 512)
        hd_emit_error(e, o->span,
                      "target host runs attention heads of up to 512 values, not %lld: use more heads or target cuda",
                      ll(s.size));
    int n = hd_emit_attention_operands(e, o, place), lse = s.grad ? 5 : 4;
    for (int i = 0; i < n; i++) hd_printf(&t, ", %s", i == lse ? f32(e, at(e, place[i])) : at(e, place[i]));
    const Value *starts = hd_attention_starts(o), *sink = hd_attention_sink(o), *key = hd_key(o);
    hd_printf(&t, ", %s", starts ? i32(e, at(e, hd_emit_value(e, starts))) : "NULL");
    if (!s.grad) hd_printf(&t, ", %s", sink ? f32(e, at(e, hd_emit_value(e, sink))) : "NULL");
    hd_printf(&t, ", %s", key ? i32(e, at(e, hd_emit_value(e, key))) : "NULL");
    hd_emit_line(e, o, "hd_host_attention%s(&attentions[%d]%s, %s);", s.grad ? "_grad" : "", hd_emit_attention(e, o),
                 t.text, workspace(e, o));
}

static void host_attention_step(Emit *e, const Op *o) {
    const StepParts p = hd_step_parts(o);
    const int64_t heads = p.heads, size = p.size, positions = hd_cached_positions(o);
    const char *buffers[2], *part[3];
    no_f64(e, o);
    if (size > 512)
        hd_emit_error(e, o->span,
                      "target host runs attention heads of up to 512 values, not %lld: use more heads or target cuda",
                      ll(size));
    for (int i = 0; i < 2; i++)
        buffers[i] = at(e, hd_emit_buffer(e, o, hd_named(o, i ? A_VALUES : A_KEYS)->name, 0));
    for (int i = 0; i < 3; i++)
        part[i] = at(e, hd_emit_value(e, o->in[p.in[i]]) + p.at[i] * hd_dtype_bytes(o->in[0]->type->dtype));
    const Value *sink = hd_attention_sink(o);
    hd_emit_line(e, o, "hd_host_attention_step(&(const HdAttentionStep){%s, %lld, %lld, %lld, %lld, %lld, %s, %s}, %s, "
                       "%s, %s, %s, %s, %s, %s, %s, %s);",
                 hd_emit_dtype(o->in[0]->type->dtype), ll(heads), ll(p.kv_heads), ll(size),
                 ll(positions), ll(hd_int(&o->attrs, A_WINDOW, positions)),
                 hd_emit_number(e->a, hd_float(&o->attrs, A_SCALE, 1 / sqrt((double)size)), false),
                 hd_emit_number(e->a, hd_float(&o->attrs, A_SOFTCAP, 0), false), part[0], i32(e, in(e, o, 1)),
                 part[1], part[2], sink ? f32(e, at(e, hd_emit_value(e, sink))) : "NULL", buffers[0], buffers[1],
                 out(e, o, 0), f32(e, workspace(e, o)));
}

// The runtime's tiles hold so many values of a head and of a state.
static void host_ssd(Emit *e, const Op *o) {
    enum { MOST = 512 };
    const SsdShape s = hd_ssd_shape(o);
    const Value *const *v = (const Value *const *)o->in + s.grad, *d = hd_ssd_skip(o), *starts = hd_ssd_starts(o);
    Out t = hd_out(e->a);
    no_f64(e, o);
    if (s.size > MOST || s.state > MOST)
        hd_emit_error(e, o->span,
                      "target host runs ssd with heads and states of up to %d values, not %lld and %lld: use more "
                      "heads, a smaller state or target cuda", MOST, ll(s.size), ll(s.state));
    hd_printf(&t, "&(const HdSsd){%s, %s, %s, %s, %lld, %lld, %lld, %lld, %lld, %lld, %lld}",
              hd_emit_dtype(s.dtype), hd_emit_dtype(v[1]->type->dtype), hd_emit_dtype(v[2]->type->dtype),
              hd_emit_dtype(d ? d->type->dtype : TY_F32), ll(s.batch), ll(s.seq), ll(s.heads), ll(s.size),
              ll(s.groups), ll(s.state), ll(s.chunk));
    for (int i = 0; i < 5 + s.grad; i++) hd_printf(&t, ", %s", in(e, o, i));
    hd_printf(&t, ", %s", d ? at(e, hd_emit_value(e, d)) : "NULL");
    hd_printf(&t, ", %s", starts ? i32(e, at(e, hd_emit_value(e, starts))) : "NULL");
    for (int i = 0; i < o->n_out; i++)
        hd_printf(&t, ", %s", s.grad && i % 3 == 2 ? f32(e, out(e, o, i)) : out(e, o, i));
    if (s.grad && !d) hd_puts(&t, ", NULL");
    hd_emit_line(e, o, "hd_host_ssd%s(%s, %s);", s.grad ? "_grad" : "", t.text, workspace(e, o));
}

static const char *shape(Emit *e, const Type *t) {
    return hd_sprintf(e->a, "%s, %lld, %lld", hd_emit_dtype(t->dtype), ll(hd_type_rows(t)), ll(hd_type_cols(t)));
}

static void host_cross_entropy(Emit *e, const Op *o) {
    no_f64(e, o);
    bool grad = hd_is_backward(o);
    const char *weights = hd_loss_weights(o) ? f32(e, in(e, o, o->n_in - 1)) : "NULL";
    hd_emit_line(e, o, "hd_host_%s(%s, %s, %s, %s, %lld%s%s, %s%s%s, %s);", hd_op_info(o->kind)->mnemonic,
                 shape(e, o->in[0]->type), in(e, o, 0), i32(e, in(e, o, 1)), weights, ll(hd_loss_ignored(o)),
                 grad ? ", " : "", grad ? f32(e, in(e, o, 2)) : "", f32(e, out(e, o, 0)), grad ? ", " : "",
                 grad ? out(e, o, 1) : "", workspace(e, o));
}

static void host_embedding_grad(Emit *e, const Op *o) {
    no_f64(e, o);
    const Type *dy = o->in[0]->type;
    DType d = hd_result_type(o, 0)->dtype;
    if (d != TY_F32) HD_BUG("embedding_grad makes f32, not %s", hd_dtype_text(d));
    hd_emit_line(e, o, "hd_host_embedding_grad(%s, %lld, %lld, %lld, %s, %s, %s, %s, %s);", hd_emit_dtype(dy->dtype),
                 ll(hd_type_rows(dy)), ll(hd_table_rows(o)), ll(hd_type_cols(dy)), in(e, o, 0), i32(e, in(e, o, 1)),
                 f32(e, out(e, o, 0)), hd_has(&o->attrs, A_ACCUMULATE) ? "true" : "false", workspace(e, o));
}

// --- parts of a vocabulary

static void host_own_index(Emit *e, const Op *o) {
    hd_emit_line(e, o, "hd_host_own_index(%lld, %s, %s, %s);", ll(hd_type_count(o->in[0]->type)),
                 hd_emit_own_part(e, o, hd_int(&o->attrs, A_ROWS, 0)), i32(e, in(e, o, 0)), i32(e, out(e, o, 0)));
}

static void host_loss_of_parts(Emit *e, const Op *o) {
    no_f64(e, o);
    hd_emit_line(e, o, "hd_host_loss_of_parts(%lld, %lld, %s, %s, %s, %s, %lld, %s, %s);", ll(o->in[0]->type->dim[0]),
                 ll(hd_type_count(o->out[1]->type)), f32(e, in(e, o, 0)), f32(e, in(e, o, 1)), i32(e, in(e, o, 2)),
                 o->n_in > 3 ? f32(e, in(e, o, 3)) : "NULL", ll(hd_loss_ignored(o)), f32(e, out(e, o, 0)),
                 f32(e, out(e, o, 1)));
}

// --- mixtures of experts

static void host_top_k(Emit *e, const Op *o) {
    no_f64(e, o);
    hd_emit_line(e, o, "hd_host_top_k(%s, %lld, %s, %s, %s, %s);", shape(e, o->in[0]->type),
                 ll(hd_int(&o->attrs, A_K, 0)), in(e, o, 0), out(e, o, 0), i32(e, out(e, o, 1)), workspace(e, o));
}

static void host_top_k_grad(Emit *e, const Op *o) {
    no_f64(e, o);
    hd_emit_line(e, o, "hd_host_top_k_grad(%s, %lld, %s, %s, %s);", shape(e, o->out[0]->type),
                 ll(hd_type_cols(o->in[0]->type)), in(e, o, 0), i32(e, in(e, o, 1)), out(e, o, 0));
}

static void host_dispatch(Emit *e, const Op *o) {
    const int64_t n = hd_type_count(o->in[0]->type), k = hd_type_cols(o->in[0]->type);
    hd_emit_line(e, o, "hd_host_dispatch(%lld, %lld, %lld, %lld, %lld, %lld, %s, %s, %s, %s, %s, %s);", ll(n), ll(k),
                 ll(hd_int(&o->attrs, A_EXPERTS, 0)), ll(hd_int(&o->attrs, A_CAPACITY, n)),
                 ll(hd_int(&o->attrs, A_RUNS, 1)), ll(hd_type_count(o->out[0]->type)), i32(e, in(e, o, 0)),
                 i32(e, out(e, o, 0)), i32(e, out(e, o, 1)), i32(e, out(e, o, 2)), i32(e, out(e, o, 3)),
                 workspace(e, o));
}

static void host_route(Emit *e, const Op *o) {
    const int64_t n = hd_type_rows(o->in[0]->type);
    const bool bounded = hd_has(&o->attrs, A_CAPACITY);
    hd_emit_line(e, o, "hd_host_route(%lld, %lld, %lld, %lld, %s, %lld, %s, %s, %s, %s, %s);", ll(n),
                 ll(hd_type_cols(o->in[0]->type)), ll(hd_int(&o->attrs, A_EXPERTS, 0)),
                 ll(hd_type_cols(o->out[1]->type)), hd_emit_own_part(e, o, 1), ll(hd_int(&o->attrs, A_CAPACITY, n)),
                 i32(e, in(e, o, 0)), i32(e, out(e, o, 0)), i32(e, out(e, o, 1)), i32(e, out(e, o, 2)),
                 bounded ? i32(e, hd_sprintf(e->a, "hd_base(x) + %lld", ll(hd_emit_bound_wanted(e)))) : "NULL");
}

static void host_take(Emit *e, const Op *o) {
    const Type *x = o->in[0]->type;
    no_f64(e, o);
    hd_emit_line(e, o, "hd_host_take(%s, %lld, %lld, %lld, %s, %s, %s);", hd_emit_dtype(x->dtype), ll(hd_type_rows(x)),
                 ll(hd_type_count(o->in[1]->type)), ll(hd_type_cols(x)), in(e, o, 0), i32(e, in(e, o, 1)),
                 out(e, o, 0));
}

// "dtype, rows, tokens, k, cols" of rows y that slots combine
static const char *combined(Emit *e, const Type *y, const Type *slots) {
    return hd_sprintf(e->a, "%s, %lld, %lld, %lld, %lld", hd_emit_dtype(y->dtype), ll(hd_type_rows(y)),
                      ll(hd_type_rows(slots)), ll(hd_type_cols(slots)), ll(hd_type_cols(y)));
}

static void host_combine(Emit *e, const Op *o) {
    no_f64(e, o);
    hd_emit_line(e, o, "hd_host_combine(%s, %s, %s, %s, %s, %s);", combined(e, o->in[0]->type, o->in[1]->type),
                 in(e, o, 0), i32(e, in(e, o, 1)), o->n_in > 2 ? f32(e, in(e, o, 2)) : "NULL", out(e, o, 0),
                 hd_has(&o->attrs, A_STEPWISE) ? "true" : "false");
}

static void host_combine_grad(Emit *e, const Op *o) {
    no_f64(e, o);
    hd_emit_line(e, o, "hd_host_combine_grad(%s, %s, %s, %s, %s, %s, %s, %s);",
                 combined(e, o->in[1]->type, o->in[2]->type), in(e, o, 0), in(e, o, 1), i32(e, in(e, o, 2)),
                 f32(e, in(e, o, 3)), i32(e, in(e, o, 4)), out(e, o, 0), f32(e, out(e, o, 1)));
}

// source, rows of the table, workspace
static const char *gathered(Emit *e, const Op *o) {
    const int source = hd_operand_of(o, ROLE_SOURCE);
    if (source < 0) return "NULL, 0, NULL";
    return hd_sprintf(e->a, "%s, %lld, %s", i32(e, in(e, o, source)), ll(hd_type_rows(o->in[0]->type)),
                      workspace(e, o));
}

static void host_grouped(Emit *e, const Op *o) {
    const Product p = hd_product(o);
    no_f64(e, o);
    hd_emit_line(e, o, "hd_host_grouped(%s, %lld, %lld, %lld, %lld, %s, %s, %s, %s, %s, %s);",
                 hd_emit_dtype(o->in[0]->type->dtype), ll(p.m), ll(p.n), ll(p.k), ll(hd_type_count(o->in[2]->type)),
                 p.tb ? "true" : "false", in(e, o, 0), in(e, o, 1), i32(e, in(e, o, 2)), out(e, o, 0), gathered(e, o));
}

static void host_grouped_grad(Emit *e, const Op *o) {
    const Product p = hd_product(o);
    no_f64(e, o);
    hd_emit_line(e, o, "hd_host_grouped_grad(%s, %s, %lld, %lld, %lld, %lld, %s, %s, %s, %s);",
                 hd_emit_dtype(o->in[0]->type->dtype), hd_emit_dtype(o->out[0]->type->dtype), ll(p.k), ll(p.m),
                 ll(p.n), ll(hd_type_count(o->in[2]->type)), in(e, o, 0), in(e, o, 1), i32(e, in(e, o, 2)),
                 out(e, o, 0));
}

static void host_store(Emit *e, const Op *o) {
    const Type *t = o->in[0]->type;
    const char *dtype = hd_emit_dtype(t->dtype);
    hd_emit_line(e, o, "hd_host_copy(%s, %s, %lld, %s, %s, %s);", dtype, dtype, ll(hd_type_count(t)), in(e, o, 0),
                 out(e, o, 0), hd_has(&o->attrs, A_ACCUMULATE) ? "true" : "false");
}

static const char *anywhere(Emit *e, Place p) {
    return p.space == SPACE_DEVICE ? at(e, p.offset)
                                   : hd_sprintf(e->a, "hd_pinned(x, 0x%llx)", (unsigned long long)p.offset);
}

static void host_copy(Emit *e, const Op *o) {
    Place to, from = hd_emit_copied(e, o, &to);
    hd_emit_line(e, o, "memmove(%s, %s, %lld);", anywhere(e, to), anywhere(e, from),
                 ll(hd_type_bytes(hd_result_type(o, 0))));
}

static void host_zero(Emit *e, const Op *o) {
    hd_emit_line(e, o, "memset(%s, 0, %lld);", out(e, o, 0), ll(hd_type_bytes(hd_result_type(o, 0))));
}

// "n, buffers, counts" of an op over gradient buffers.
static const char *gradients(Emit *e, const Op *o) {
    const Attr *list = hd_attr(&o->attrs, A_BUFFERS);
    Out buffers = hd_out(e->a), counts = hd_out(e->a);
    for (int i = 0; i < list->n; i++) {
        const Symbol *s = hd_symbol_find(e->m, list->strs[i]);
        hd_printf(&buffers, "%s%s", i ? ", " : "", f32(e, at(e, hd_emit_buffer(e, o, list->strs[i], 0))));
        hd_printf(&counts, "%s%lld", i ? ", " : "", ll(hd_type_count(s->type)));
    }
    hd_emit_line(e, o,
                 "_Static_assert(HD_HOST_NORM_BLOCK == %d, \"the runtime is of another version than the compiler\");",
                 HD_NORM_BLOCK);
    return hd_sprintf(e->a, "%d, (const float *[]){%s}, (const int64_t[]){%s}", list->n, buffers.text, counts.text);
}

static const char *loss_scale(Emit *e, const Op *o) {
    return hd_emit_number(e->a, (double)hd_int(&o->attrs, A_LOSS_SCALE, 1), true);
}

static void host_grad_norm(Emit *e, const Op *o) {
    const char *list = gradients(e, o);
    hd_emit_line(e, o, "hd_host_grad_norm(%s, %s, %s, %s);", list, loss_scale(e, o), f32(e, out(e, o, 0)),
                 workspace(e, o));
}

static void host_square_sums(Emit *e, const Op *o) {
    const char *list = gradients(e, o);
    const char *exact = hd_has(&o->attrs, A_EXACT) ? "exact_" : "";
    hd_emit_line(e, o, "hd_host_%ssquare_sums(%s, (double *)(%s));", exact, list, out(e, o, 0));
}

static void host_root_sum(Emit *e, const Op *o) {
    hd_emit_line(e, o, "hd_host_%sroot_sum(%lld, (const double *)(%s), %s, %s);",
                 hd_has(&o->attrs, A_EXACT) ? "exact_" : "", ll(hd_type_count(o->in[0]->type)), in(e, o, 0),
                 loss_scale(e, o), f32(e, out(e, o, 0)));
}

static void host_tree_sum(Emit *e, const Op *o) {
    hd_emit_line(e, o, "hd_host_tree_sum(%lld, %lld, %s, %s);", ll(o->in[0]->type->dim[0]),
                 ll(hd_type_count(o->out[0]->type)), f32(e, in(e, o, 0)), f32(e, out(e, o, 0)));
}

static void host_step_scalars(Emit *e, const Op *o) {
    const char *history = hd_word(&o->attrs, A_HISTORY, NULL);
    hd_emit_line(e, o, "hd_host_step_scalars(&optimizers[%d], %s, %s, %s);", hd_emit_optimizer(e, o),
                 o->n_in ? f32(e, in(e, o, 0)) : "NULL",
                 i32(e, at(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_COUNTER, ""), 0))), f32(e, out(e, o, 0)));
    if (history)
        hd_emit_line(e, o, "hd_host_skip_outlier(&optimizers[%d], %s, %s, %s, %s);", hd_emit_optimizer(e, o),
                     f32(e, in(e, o, 0)), f32(e, in(e, o, 1)), f32(e, at(e, hd_emit_buffer(e, o, history, 0))),
                     f32(e, out(e, o, 0)));
}

static void host_dropout_keys(Emit *e, const Op *o) {
    hd_emit_line(e, o, "hd_host_dropout_keys(%s, %lld, %lld, %s, %s);",
                 i32(e, at(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_COUNTER, ""), 0))),
                 ll(hd_int(&o->attrs, A_SITES, 0)), ll(hd_int(&o->attrs, A_STRIDE, 0)),
                 hd_has(&o->attrs, A_OVER) ? hd_emit_own_part(e, o, 1) : "0", i32(e, out(e, o, 0)));
}

static void host_update(Emit *e, const Op *o) { hd_host_print_update(e, o); }

// "first, count, n, tensors" of a rank's part of a bucket.
static const char *part_of_tensors(Emit *e, const Op *o, const Symbol *part) {
    const int64_t count = hd_type_count(part->type);
    return hd_sprintf(e->a, "(int64_t)hd_own_part(x, %d, %lld), %lld, %d, (const int64_t[]){%s}", hd_emit_comm(e, o),
                      ll(count), ll(count), hd_tensors(e->m, part)->n / 2, hd_emit_tensors(e, part));
}

static void host_all_max(Emit *e, const Op *o) {
    const Attr *parts = hd_attr(&o->attrs, A_BUFFERS);
    const char *to = f32(e, out(e, o, 0));
    int64_t done = 0;
    for (int i = 0; i < parts->n; i++) {
        const Symbol *part = hd_symbol_find(e->m, parts->strs[i]);
        hd_emit_line(e, o, "hd_host_tensor_scales(%s, HD_E4M3, %s, %s, %s + %lld, %d);",
                     hd_emit_dtype(part->type->dtype), part_of_tensors(e, o, part),
                     at(e, hd_emit_buffer(e, o, part->name, 0)), to, ll(done),
                     HD_SCALE_STRIDE);
        done += HD_SCALE_STRIDE * (hd_tensors(e->m, part)->n / 2);
    }
    hd_emit_line(e, o, "hd_host_all_max(x, %d, %lld, %s);", hd_emit_comm(e, o), ll(done), to);
}

static void gather_tensors(Emit *e, const Op *o, const Exchange *x) {
    const Symbol *part = hd_named(o, A_BUFFER);
    const int64_t bytes = hd_type_count(x->part);
    const char *own = hd_sprintf(e->a, "%s + hd_own_part(x, %d, %lld)", at(e, x->to), x->comm, ll(bytes));
    const int64_t scales = hd_emit_buffer(e, o, hd_word(&o->attrs, A_SCALES_IN, ""),
                                          HD_SCALE_STRIDE * hd_int(&o->attrs, A_FIRST, 0));
    hd_emit_line(e, o, "hd_host_quantize_tensors(%s, HD_E4M3, %s, %s, %s, %d, %s);", hd_emit_dtype(x->part->dtype),
                 part_of_tensors(e, o, part), at(e, x->from), f32(e, at(e, scales)), HD_SCALE_STRIDE, own);
    hd_emit_line(e, o, "hd_host_all_gather(x, %d, %s, %s, %lld);", x->comm, own, at(e, x->to), ll(bytes));
}

// This rank's rows are quantized in their place, or their scales found there.
static void gather_quantized(Emit *e, const Op *o, const Exchange *x) {
    const int64_t row = hd_int(&o->attrs, A_QUANTIZED, 1), rows = hd_type_count(x->part) / row;
    const bool scales = hd_has(&o->attrs, A_SCALES);
    const int64_t bytes = scales ? rows * hd_dtype_bytes(TY_F32) : rows * row;
    const char *own = hd_sprintf(e->a, "%s + hd_own_part(x, %d, %lld)", at(e, x->to), x->comm, ll(bytes));
    DType d;
    if (!hd_dtype_parse(hd_word(&o->attrs, A_OUT, ""), &d)) HD_BUG("quantizes to no type");
    hd_emit_line(e, o, "hd_host_quantize(%s, %s, %lld, %lld, %s, %s, %s);", hd_emit_dtype(x->part->dtype),
                 hd_emit_dtype(d), ll(rows), ll(row), at(e, x->from), scales ? "NULL" : own, scales ? own : "NULL");
    hd_emit_line(e, o, "hd_host_all_gather(x, %d, %s, %s, %lld);", x->comm, own, at(e, x->to), ll(bytes));
}

// Sums over ranks are in the dtype of the parts; the rest moves bytes.
static void host_collective(Emit *e, const Op *o) {
    const Exchange x = hd_emit_exchange(e, o);
    const DType to = hd_result_type(o, 0)->dtype;
    const int64_t n = hd_type_count(x.part), bytes = n * hd_dtype_bytes(to);
    if (hd_has(&o->attrs, A_QUANTIZED)) {
        if (hd_int(&o->attrs, A_QUANTIZED, 1)) gather_quantized(e, o, &x);
        else gather_tensors(e, o, &x);
        return;
    }
    const bool sums = hd_collective(o)->sums;
    const char *from = at(e, x.from);
    if (sums && hd_has(&o->attrs, A_OUT)) {
        hd_emit_line(e, o, "hd_host_reduce_wide(x, %d, %s, %s, %s, %s, %lld);", x.comm,
                     hd_emit_dtype(hd_named(o, A_BUFFER) ? hd_named(o, A_BUFFER)->type->dtype : o->in[0]->type->dtype),
                     hd_has(&o->attrs, A_TREE) ? "true" : "false", from, at(e, x.to), ll(n));
        return;
    }
    if (to != x.part->dtype) { // rounded in the place of this rank's part
        from = hd_sprintf(e->a, "%s + hd_own_part(x, %d, %lld)", at(e, x.to), x.comm, ll(bytes));
        hd_emit_line(e, o, "hd_host_copy(%s, %s, %lld, %s, %s, false);", hd_emit_dtype(x.part->dtype),
                     hd_emit_dtype(to), ll(n), at(e, x.from), from);
    }
    if (hd_collective(o)->exchanges) {
        hd_emit_line(e, o, "hd_host_exchange(x, %d, %s, %s, %lld, %lld);", x.comm, from, at(e, x.to), ll(bytes),
                     ll(hd_emit_moved(e, o) * hd_dtype_bytes(to)));
        return;
    }
    if (hd_has(&o->attrs, A_TREE)) {
        hd_emit_line(e, o, "hd_host_reduce_tree(x, %d, %s, %s, %lld);", x.comm, from, at(e, x.to), ll(n));
        return;
    }
    hd_emit_line(e, o, "hd_host_%s(x, %d, %s%s%s, %s, %lld);", hd_op_info(o->kind)->mnemonic, x.comm,
                 sums ? hd_emit_dtype(to) : "", sums ? ", " : "", from, at(e, x.to), ll(sums ? n : bytes));
}

// A wait for what no earlier op of its function records is for the function before.
static void host_event(Emit *e, const Op *o) {
    const char *call = hd_op_is(o, TRAIT_RECORDS) ? "record" : "wait_before";
    for (const Op *p = o->prev; p && hd_op_is(o, TRAIT_WAITS) && !strcmp(call, "wait_before"); p = p->prev)
        if (hd_op_is(p, TRAIT_RECORDS) && hd_emit_event(e, p) == hd_emit_event(e, o)) call = "wait";
    hd_emit_line(e, o, "hd_host_%s(x, %d);", call, hd_emit_event(e, o));
}

static void kernels(Emit *e) {
    hd_puts(e->c, "#include \"heddle_host.h\"\n\n");
    hd_emit_prelude(e->m, PRELUDE_HOST, e->c);
    hd_puts(e->c, "\n");
    for (const Func *k = e->m->funcs; k; k = k->next) {
        if (k->is_kernel && hd_kind(&k->attrs) == KIND_OPTIMIZER) hd_host_optimizer(e, k);
        if (!k->is_kernel || !hd_host_launches(e->m, k, NULL)) continue;
        if (hd_kind(&k->attrs) == KIND_MAP) hd_host_map(e, k);
        else hd_host_rows(e, k);
    }
}

static const char *const prologue[] = {"char *const base = hd_base(x);", "(void)base;", NULL};
static const OpPrinter ops[N_OPS] = {
#define OP(id, mnemonic, n_in, n_out, attrs, fields, doc) [OP_##id] = {.of = OP_##id, fields},
#define print(x) .print = host_##x,
#include "ir/ops.def"
};

const Target hd_host_target = {.name = "host",
                               .backend = "hd_host_backend",
                               .kernels = kernels, .prologue = prologue, .stream_functions = true,
                               .start = "hd_host_start(argv);",
                               .op = ops};
