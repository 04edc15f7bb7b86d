// The type rules of dropout and attention.
#include "ir/base/ints.h"
#include "ir/dropout.h"
#include "ir/shapes.h"
#include "ir/type_rules.h"
#include <math.h>
#include <string.h>

// Checks an op that drops some of so many elements. The sequences are along the first axis of x.
static const char *drawn(Rule *r, const Type *x, double elements) {
    const double p = hd_float(&r->o->attrs, A_P, 0);
    const int64_t batch = hd_int(&r->o->attrs, A_BATCH, 0);
    const Value *key = hd_key(r->o);
    const bool needed = r->o->func->module->stage >= STAGE_SHARDED;
    if (!(p >= 0 && p < 1)) WRONG("dropout: p = %g, and not a probability of 0 or more and less than 1", p);
    if (batch < 1 || x->rank < 2 || x->dim[0] % batch)
        WRONG("dropout needs a first axis that holds the %lld sequences of the batch, and another one; %s has none",
              ll(batch), TEXT(x));
    const int64_t ranks = hd_dropout_ranks(r->o);
    elements *= (double)ranks;
    if (elements / (double)batch > (double)HD_DROPOUT_ELEMENTS)
        WRONG("dropout has %.0f elements a sequence; 2^34 is the most", elements / (double)batch);
    if (hd_int(&r->o->attrs, A_SITE, 0) < 0 || hd_int(&r->o->attrs, A_SITE, 0) >= 65536) return "site is below 65536";
    if (!key && needed) return "dropout needs a key from stage sharded on";
    if (key && key->type != hd_type(r->cx, TY_I32, 1, (int64_t[]){HD_KEY}))
        WRONG("the key of dropout is i32[%d], not %s", HD_KEY, TEXT(key->type));
    return NULL;
}

const char *hd_rule_dropout(Rule *r) {
    if (r->o->n_in < 1 || r->o->n_in > 2) WRONG("dropout takes a tensor and a key, not %d operands", r->o->n_in);
    const char *e = hd_rule_floating(r, 0);
    const Attr *dims = hd_attr(&r->o->attrs, A_DIMS);
    if (hd_has(&r->o->attrs, A_OVER) != (dims != NULL)) return "dropout has both `over` and `dims`, or none";
    if (!e && dims && (dims->n != 1 || dims->ints[0] < 1 || dims->ints[0] >= IN(0)->rank))
        WRONG("dims of dropout are one dimension of %s behind the first, which has the sequences", TEXT(IN(0)));
    if (!e) e = drawn(r, IN(0), (double)hd_type_count(IN(0)));
    return e ? e : hd_rule_give(r, IN(0));
}

static const char *implementation(Rule *r) {
    const Attrs *as = &r->o->attrs;
    const char *impl = hd_word(as, A_IMPL, "generated"), *other = hd_word(as, A_ELSE, "generated");
    const bool cudnn = !strcmp(impl, "cudnn"), forward = !hd_is_backward(r->o);
    const bool own = !strcmp(other, "tensor_cores") || !strcmp(other, "generated") ||
                     (forward && !strcmp(other, "wgmma"));
    if (cudnn && hd_draws(r->o)) return "cudnn draws other numbers: attention with dropout is generated";
    const bool wgmma = !strcmp(impl, "wgmma") || !strcmp(impl, "wgmma_ordered");
    if (wgmma && hd_draws(r->o)) return "attention on wgmma has no dropout: tensor_cores or generated";
    if (!cudnn && strcmp(impl, "tensor_cores") && !wgmma && strcmp(impl, "generated"))
        WRONG("no implementation %s of attention: cudnn, tensor_cores, wgmma, wgmma_ordered or generated", impl);
    if (!own || (hd_has(as, A_ELSE) && !cudnn))
        WRONG("impl = %s, else = %s: only cudnn has an else: %stensor_cores or generated", impl, other,
              forward ? "wgmma, " : "");
    return NULL;
}

static const char *documents(Rule *r, const AttentionShape *s) {
    const Value *starts = hd_attention_starts(r->o);
    if (!starts) return NULL;
    if (!s->causal) return "attention with documents looks back within each: it needs causal = true";
    if (starts->type != hd_type(r->cx, TY_I32, 2, (int64_t[]){s->batch, s->seq}))
        WRONG("documents of attention are integers i32[%lld,%lld], as documents(tokens, eot = ..) gives them, not %s",
              ll(s->batch), ll(s->seq), TEXT(starts->type));
    return NULL;
}

// softcap and sink. Kernels keep scores without their factor, as which a sink has to be written too.
static const char *bent(Rule *r, int64_t heads, double scale, DType dtype) {
    const Attrs *as = &r->o->attrs;
    const double softcap = hd_float(as, A_SOFTCAP, 0);
    const Value *sink = hd_attention_sink(r->o);
    if (hd_has(as, A_SOFTCAP) && !(softcap > 0 && softcap <= HD_MOST_SOFTCAP))
        WRONG("softcap = %g: the bound of scores is above 0 and at most %g; without softcap they have none", softcap,
              HD_MOST_SOFTCAP);
    if ((softcap > 0 || sink) && !(scale > 0))
        WRONG("attention with %s needs a scale above 0, not %g", sink ? "a sink" : "softcap", scale);
    if (sink && sink->type != hd_type(r->cx, dtype == TY_F64 ? TY_F64 : TY_F32, 1, &heads))
        WRONG("the sink is %s; attention of %lld heads has one logit for each head: f32[%lld]", TEXT(sink->type),
              ll(heads), ll(heads));
    return NULL;
}

// Checks q, k, v (or packed q, k, v); gives the types of q (also that of o), of k and of the log-sum-exp.
typedef struct {
    const Type *q, *k, *lse;
} AttentionTypes;
static const char *attention_operands(Rule *r, AttentionTypes *t) {
    const Attrs *as = &r->o->attrs;
    bool grad = hd_is_backward(r->o), packed = hd_has(as, A_PACKED);
    int n = hd_attention_operands(r->o);
    const bool starts = hd_has(as, A_DOCUMENTS);
    const bool sink = hd_has(as, A_SINK);
    if (r->o->n_in != n + starts + sink + (hd_key(r->o) != NULL))
        WRONG("%s takes %d operands%s%s%s, not %d", hd_op_info(r->o->kind)->mnemonic, n,
              starts ? ", the starts of documents" : "", sink ? ", a sink" : "", hd_draws(r->o) ? " and a key" : "",
              r->o->n_in);
    const char *e = implementation(r);
    if (!e) e = hd_rule_floating(r, grad);
    if (e) return e;
    int64_t heads = hd_int(as, A_HEADS, 1), kv = hd_int(as, A_KV_HEADS, heads);
    const Type *x = IN(grad);
    if (x->rank != 3) WRONG("attention needs [batch, seq, heads*size], not %s", TEXT(x));
    if (heads < 1 || kv < 1 || heads % kv)
        WRONG("%lld heads cannot share %lld kv_heads: they do not divide", ll(heads), ll(kv));
    const int64_t parts = packed && heads <= x->dim[2] ? heads + 2 * kv : heads; // of more the sum might overflow
    if (parts > x->dim[2] || x->dim[2] % parts)
        WRONG("the last axis of %s does not divide into %lld heads", TEXT(x), ll(parts));
    AttentionShape s = hd_attention_shape(r->o);
    if (hd_has(as, A_WINDOW) && (!s.causal || s.window < 1))
        WRONG("attention: window = %lld%s", ll(hd_int(as, A_WINDOW, 0)),
              s.causal ? ": a token sees at least itself, so the least is 1"
                       : " looks back from each token, which attention with causal = true does");
    e = documents(r, &s);
    if (!e) e = bent(r, s.heads, s.scale, s.dtype);
    if (e) return e;
    if (hd_attention_masked(&s) && hd_attention_on(r->o, "cudnn"))
        return "attention on cudnn has no window and no documents: wgmma, tensor_cores or generated";
    if ((s.softcap > 0 || s.sink) && hd_attention_on(r->o, "cudnn"))
        return "attention on cudnn has no softcap and no sink: wgmma, tensor_cores or generated";
    const bool ordered = hd_attention_on(r->o, "wgmma_ordered"), wgmma = ordered || hd_attention_on(r->o, "wgmma");
    if (hd_attention_on(r->o, "tensor_cores") && !hd_attention_suits_tensor_cores(&s))
        WRONG("attention on tensor cores is for bf16 and f16 and heads of 16, 32, ... 256 elements, not %lld of %s",
              ll(s.size), hd_dtype_text(s.dtype));
    if (ordered && !grad) return "attention on wgmma_ordered is the backward pass: wgmma";
    if (wgmma && !(ordered ? hd_attention_suits_ordered : hd_attention_suits_wgmma)(&s))
        WRONG("attention on %s is for heads of %s elements of bf16 or f16, not heads of %lld of %s",
              ordered ? "wgmma_ordered" : "wgmma", ordered ? "64 or 128" : "64, 96, 128, 192 or 256", ll(s.size),
              hd_dtype_text(s.dtype));
    t->q = hd_type(r->cx, s.dtype, 3, (int64_t[]){s.batch, s.seq, heads * s.size});
    t->k = hd_type(r->cx, s.dtype, 3, (int64_t[]){s.batch, s.seq, kv * s.size});
    t->lse = hd_type(r->cx, s.dtype == TY_F64 ? TY_F64 : TY_F32, 3, (int64_t[]){s.batch, heads, s.seq});
    for (int i = 1; i < 3 && !packed; i++)
        if (IN(grad + i) != t->k)
            WRONG("attention: %s is %s; with %lld of %lld heads it must be %s", i == 1 ? "k" : "v", TEXT(IN(grad + i)),
                  ll(kv), ll(heads), TEXT(t->k));
    return hd_draws(r->o) ? drawn(r, x, (double)heads * (double)s.seq * (double)s.seq * (double)s.batch) : NULL;
}

const char *hd_rule_attention(Rule *r) {
    AttentionTypes t;
    const char *e = attention_operands(r, &t);
    if (!e) e = hd_rule_give(r, t.q);
    return e ? e : hd_rule_give(r, t.lse);
}

const char *hd_rule_attention_grad(Rule *r) {
    AttentionTypes t;
    int n = hd_attention_operands(r->o);
    const char *e = attention_operands(r, &t);
    if (e) return e;
    if (IN(0) != t.q || IN(n - 2) != t.q)
        WRONG("do is %s and o is %s; both must be %s", TEXT(IN(0)), TEXT(IN(n - 2)), TEXT(t.q));
    if (IN(n - 1) != t.lse) WRONG("lse is %s; it must be %s", TEXT(IN(n - 1)), TEXT(t.lse));
    if (hd_has(&r->o->attrs, A_PACKED)) return hd_rule_give(r, IN(1));
    e = hd_rule_give(r, t.q);
    if (!e) e = hd_rule_give(r, t.k);
    return e ? e : hd_rule_give(r, t.k);
}

static const char *cache(Rule *r, AttrId a, DType d, int64_t row) {
    const Symbol *s = hd_rule_symbol(r, a, SYM_BUFFER);
    const int64_t n = s && s->type ? hd_type_count(s->type) : 0;
    if (!s || !s->type) WRONG("%s names no buffer", hd_attr_info(a)->text);
    if (s->type->dtype != d || n < row || n % row)
        WRONG("@%s, of type %s, does not hold rows of %lld %s", s->name, TEXT(s->type), ll(row),
              hd_dtype_text(d));
    return NULL;
}

const char *hd_rule_sink_grad(Rule *r) {
    const Type *x = IN(0), *lse = IN(2), *sink = IN(3);
    const char *e = hd_rule_floating(r, 0);
    if (e) return e;
    const DType real = x->dtype == TY_F64 ? TY_F64 : TY_F32;
    const int64_t heads = sink->rank == 1 ? sink->dim[0] : 0;
    if (x->rank != 3 || IN(1) != x) WRONG("sink_grad needs do and o of one type [batch, seq, heads*size]: %s, %s",
                                          TEXT(x), TEXT(IN(1)));
    if (sink->dtype != real || heads < 1 || x->dim[2] % heads)
        WRONG("a sink of %s has no logit for each head of %s", TEXT(sink), TEXT(x));
    const Type *should = hd_type(r->cx, real, 3, (int64_t[]){x->dim[0], heads, x->dim[1]});
    if (lse != should) WRONG("lse is %s; it must be %s", TEXT(lse), TEXT(should));
    return hd_rule_give(r, hd_type(r->cx, real, 3, (int64_t[]){x->dim[0], x->dim[1], heads}));
}

const char *hd_rule_attention_step(Rule *r) {
    const Attrs *as = &r->o->attrs;
    const int64_t heads = hd_int(as, A_HEADS, 1), kv = hd_int(as, A_KV_HEADS, heads);
    const bool packed = hd_has(as, A_PACKED);
    const int operands = hd_step_operands(r->o);
    const int64_t whole = heads + (packed ? 2 * kv : 0);
    if (r->o->n_in != operands + hd_has(as, A_SINK))
        WRONG("attention_step takes %s%s, not %d operands",
              packed ? "q, k, v in one, a position" : "q, a position, k, v", hd_has(as, A_SINK) ? ", a sink" : "",
              r->o->n_in);
    const Type *q = IN(0);
    const char *e = hd_rule_floating(r, 0);
    if (e) return e;
    if (q->rank != 3 || q->dim[0] != 1 || q->dim[1] != 1)
        WRONG("attention_step is of one token, [1, 1, heads*size], not %s", TEXT(q));
    if (heads < 1 || kv < 1 || heads % kv)
        WRONG("%lld heads cannot share %lld kv_heads: they do not divide", ll(heads), ll(kv));
    if (!q->dim[2] || q->dim[2] % whole)
        WRONG("the last axis of %s does not divide into %lld heads", TEXT(q), ll(whole));
    const StepParts parts = hd_step_parts(r->o);
    if (IN(1) != hd_type(r->cx, TY_I32, 2, (int64_t[]){1, 1})) WRONG("a position is i32[1,1], not %s", TEXT(IN(1)));
    const Type *should = hd_type(r->cx, q->dtype, 3, (int64_t[]){1, 1, kv * parts.size});
    if (!packed && (IN(2) != should || IN(3) != should))
        WRONG("k is %s and v is %s; with %lld of %lld heads both must be %s", TEXT(IN(2)), TEXT(IN(3)), ll(kv),
              ll(heads), TEXT(should));
    if (hd_has(as, A_WINDOW) && hd_int(as, A_WINDOW, 0) < 1)
        WRONG("window = %lld: a token sees at least itself, so the least is 1", ll(hd_int(as, A_WINDOW, 0)));
    const double scale = hd_float(as, A_SCALE, 1 / sqrt((double)parts.size));
    if ((e = bent(r, heads, scale, q->dtype))) return e;
    if ((e = cache(r, A_KEYS, q->dtype, kv * parts.size)) || (e = cache(r, A_VALUES, q->dtype, kv * parts.size)))
        return e;
    const Symbol *keys = hd_named(r->o, A_KEYS), *values = hd_named(r->o, A_VALUES);
    if (keys == values) WRONG("@%s would hold keys and values", keys->name);
    if (hd_type_count(keys->type) != hd_type_count(values->type))
        WRONG("@%s and @%s do not hold equally many positions", keys->name, values->name);
    return hd_rule_give(r, hd_type(r->cx, q->dtype, 3, (int64_t[]){1, 1, heads * parts.size}));
}
