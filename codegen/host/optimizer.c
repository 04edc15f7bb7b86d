// The optimizer of the host target: calls of the runtime for `update`, and its arithmetic as C.
#include "codegen/host/places.h"
#include "ir/base/ints.h"
#include "ir/optimizer.h"
#include "ir/rounding.h"

static const char *update_name(Emit *e, const Func *k) {
    return hd_sprintf(e->a, "update_%s", hd_emit_identifier(e, k));
}

// What is orthogonalized stands behind the states.
static void put_direction(Emit *e, const Op *o, int n, const char *states) {
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS);
    const char *space = at(e, hd_emit_workspace(e, o));
    hd_emit_line(e, o, "hd_host_update(direction_%s, %lld, %s, %s, %s, %s, %s, %d, (float *[]){%s}, NULL, HD_F32, "
                       "%s);",
                 update_name(e, hd_update_kernel(o)), ll(hd_type_count(master->type)), hd_emit_decayed(e, o),
                 hd_emit_number(e->a, hd_float(&o->attrs, A_WEIGHT_DECAY, 0), false),
                 hd_emit_number(e->a, hd_float(&o->attrs, A_LR_SCALE, 1), false),
                 f32(e, at(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_GRADIENT, ""), 0))),
                 f32(e, at(e, hd_emit_buffer(e, o, master->name, 0))), n, states, f32(e, in(e, o, 0)));
    hd_emit_line(e, o, "hd_host_orthogonalize(x, %s, %s, %s);", hd_emit_turn(e, o, NULL, ""), f32(e, space), space);
}

static void put_lines(Emit *e, const Op *o, const char *states) {
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS), *weights = hd_named(o, A_WEIGHTS);
    const double decay = hd_int(&o->attrs, A_DECAYED, 0) ? hd_float(&o->attrs, A_WEIGHT_DECAY, 0) : 0;
    if (!hd_type_count(master->type)) return;
    hd_emit_line(e, o, "hd_host_update_lines(x, %s, %s, %s, %s, %s, %s, (float *[]){%s}, %s, %s, %s, %s);",
                 hd_emit_lined(e, o, ""), update_name(e, hd_update_kernel(o)), hd_emit_number(e->a, decay, false),
                 hd_emit_number(e->a, hd_float(&o->attrs, A_LR_SCALE, 1), false),
                 f32(e, at(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_GRADIENT, ""), 0))),
                 f32(e, at(e, hd_emit_buffer(e, o, master->name, 0))), states,
                 weights ? at(e, hd_emit_buffer(e, o, weights->name, 0)) : "NULL",
                 hd_emit_dtype(weights ? weights->type->dtype : TY_F32), f32(e, in(e, o, 0)),
                 at(e, hd_emit_workspace(e, o)));
}

// Master weights in bf16: how they are rounded, as C.
static const char *rounding_of(Emit *e, const Op *o) {
    if (!hd_has(&o->attrs, A_ROUNDING)) return "NULL";
    const EmitRounding r = hd_emit_rounding(e, o);
    return hd_sprintf(e->a, "&(const HdRounding){%s, 0x%xu, %d, (const HdRounded[]){%s}, %s, %s}",
                      i32(e, at(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_ROUNDING, ""), 0))), HD_ROUNDING_KEY, r.n,
                      r.n ? r.rows : "{0}", r.before, r.place);
}

void hd_host_print_update(Emit *e, const Op *o) {
    const Symbol *master = hd_named(o, A_MASTER_WEIGHTS), *weights = hd_named(o, A_WEIGHTS), *s;
    Out states = hd_out(e->a);
    DType d = TY_F32;
    int n = 0;
    for (; (s = hd_state(e->m, &o->attrs, n)); n++) {
        const char *place = at(e, hd_emit_buffer(e, o, s->name, 0));
        d = s->type->dtype;
        hd_printf(&states, "%s%s", n ? ", " : "", d == TY_F32 ? f32(e, place) : place);
    }
    const bool turns = hd_optimizer_turn(hd_update_kernel(o)) != NULL;
    if (hd_has_lines(hd_update_kernel(o))) {
        put_lines(e, o, n ? states.text : "0");
        return;
    }
    if (turns) {
        if (d != TY_F32) hd_emit_error(e, o->span, "target host keeps the states of a matrix in f32 alone");
        hd_printf(&states, "%s%s", n++ ? ", " : "", f32(e, at(e, hd_emit_workspace(e, o))));
        put_direction(e, o, n, states.text);
    }
    const bool rounds = master->type->dtype == TY_BF16, narrow = d != TY_F32 || rounds;
    const char *place = at(e, hd_emit_buffer(e, o, master->name, 0)), *type = narrow ? "void" : "float";
    const char *how = rounds ? hd_sprintf(e->a, ", %s", rounding_of(e, o)) : "";
    const char *copy = rounds    ? ""
                       : weights ? hd_sprintf(e->a, "%s, %s, ", at(e, hd_emit_buffer(e, o, weights->name, 0)),
                                              hd_emit_dtype(weights->type->dtype))
                                 : "NULL, HD_F32, ";
    hd_emit_line(e, o, "hd_host_update%s(%s, %lld, %s, %s, %s, %s, %s, %d, %s(%s *[]){%s}, %s%s%s);",
                 rounds ? "_rounded" : narrow ? "_narrow" : "", update_name(e, hd_update_kernel(o)),
                 ll(hd_type_count(master->type)), hd_emit_decayed(e, o),
                 hd_emit_number(e->a, hd_float(&o->attrs, A_WEIGHT_DECAY, 0), false),
                 hd_emit_number(e->a, hd_float(&o->attrs, A_LR_SCALE, 1), false),
                 f32(e, at(e, hd_emit_buffer(e, o, hd_word(&o->attrs, A_GRADIENT, ""), 0))),
                 rounds ? place : f32(e, place), n, narrow ? hd_sprintf(e->a, "%s, ", hd_emit_dtype(d)) : "", type,
                 n ? states.text : "0", copy, f32(e, in(e, o, 0)), how);
}

// The update of a run of elements, all of which decay or none; `direction`: what is orthogonalized before it.
static void elements(Emit *e, const Func *k, bool direction) {
    Out *o = e->c;
    const int states = k->n_args - OPT_STATE;
    const bool turns = hd_optimizer_turn(k) != NULL;
    hd_printf(o, "static void %s%s(int64_t n, const float *scalars, float decay, const float *gradients, "
                 "float *master,\n    float *const *states) {\n    const float lr = scalars[0], factor = scalars[1];\n"
                 "    const float correction1 = scalars[2], correction2 = scalars[3];\n", direction ? "direction_" : "",
              update_name(e, k));
    if (turns) hd_printf(o, "    float *const matrix = states[%d];\n", states);
    for (int i = 0; i < states; i++) hd_printf(o, "    float *const p%d = states[%d];\n", i, i);
    hd_puts(o, "    (void)states, (void)gradients, (void)factor, (void)lr, (void)decay;\n"
               "    (void)correction1, (void)correction2;\n"
               "#pragma omp simd\n    for (int64_t i = 0; i < n; i++) {\n");
    hd_puts(o, hd_is_rule(k) ? "        const float total = factor != factor ? factor : gradients[i];\n"
                               "        float weights = master[i];\n        (void)total;\n"
                             : "        const float gradient = gradients[i] * factor;\n"
                               "        float weights = master[i];\n        (void)gradient;\n");
    if (direction) {
        hd_puts(o, "        float direction;\n        (void)weights;\n");
        hd_puts(o, hd_emit_direction(e, k, "        ", "p", "[i]"));
        hd_puts(o, "        matrix[i] = direction;\n    }\n}\n\n");
        return;
    }
    if (turns) hd_puts(o, "        const float turned = matrix[i];\n");
    hd_puts(o, hd_emit_update(e, k, "        ", "p", "[i]"));
    hd_puts(o, "        master[i] = weights;\n    }\n}\n\n");
}

// An HdLineUpdate.
static void line_optimizer(Emit *e, const Func *k) {
    const int states = k->n_args - OPT_STATE, means = hd_emit_means(k);
    Out *o = e->c;
    hd_printf(o, "static void %s(int stage, int64_t n, const float *scalars, float decay, const HdLine *in,\n"
                 "                 float *const *out) {\n    const float lr = scalars[0], factor = scalars[1];\n"
                 "    const float correction1 = scalars[2], correction2 = scalars[3];\n"
                 "    (void)lr, (void)decay, (void)correction1, (void)correction2;\n    switch (stage) {\n",
              update_name(e, k));
    for (int stage = 0; stage <= means + states; stage++) {
        if (stage > means && hd_state_per(k, stage - means - 1) == PER_ELEMENT) continue;
        hd_printf(o, "    case %d:\n#pragma omp simd\n        for (int64_t i = 0; i < n; i++) {\n"
                     "            const float gradient = in[0].at[i * in[0].step] * factor;\n"
                     "            float weights = in[1].at[i * in[1].step], result = 0;\n"
                     "            (void)gradient, (void)weights, (void)result;\n", stage);
        for (int i = 0; i < states + means && i < states + stage; i++)
            hd_printf(o, "            const float %s%d = in[%d].at[i * in[%d].step];\n", i < states ? "state" : "mean",
                      i < states ? i : i - states, 2 + i, 2 + i);
        for (int i = 0; i < states; i++)
            if (stage == means && hd_state_per(k, i) == PER_ELEMENT)
                hd_printf(o, "            float next%d;\n", i);
        hd_printf(o, "%s            out[0][i] = %s;\n", hd_emit_lines(e, k, stage, "            "),
                  stage == means ? "weights" : "result");
        for (int i = 0; i < states; i++)
            if (stage == means && hd_state_per(k, i) == PER_ELEMENT)
                hd_printf(o, "            out[%d][i] = next%d;\n", 1 + i, i);
        hd_puts(o, "        }\n        break;\n");
    }
    hd_puts(o, "    }\n}\n\n");
}

void hd_host_optimizer(Emit *e, const Func *k) {
    if (hd_has_lines(k)) line_optimizer(e, k);
    else elements(e, k, false);
    if (hd_optimizer_turn(k)) elements(e, k, true);
}
