// Attention as cuDNN operation graphs, built through its C backend API.
//
// cuDNN recognises the fused kernel by the shape of the graph: the forward is two products around a softmax written out
// as operations, the backward the usual recomputation. The backward leaves out the f32 accumulator of dq that cuDNN's
// own front end inserts. Without it one block sums each element of dq in one order, so results repeat bit for bit; the
// price is a workspace for dS. Builder functions do nothing after the first failure; `why` keeps cuDNN's explanation of
// it.
#include "runtime/cuda/exec.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int64_t dim[4], stride[4]; } Shape; // batch, heads, positions, size
enum { REAL, VIRTUAL, BY_VALUE };
enum { MAX_OPS = 32, FIRST_FREE_ID = 100, MAX_PLANS = 8 };
enum { ID_SCALE = 50, ID_NEG_INF, ID_ONE }; // by value; operands in memory are HD_SDPA_* + 1
static const int32_t f32 = HD_CUDNN_DATA_FLOAT, i32 = HD_CUDNN_DATA_INT32, boolean = HD_CUDNN_DATA_BOOLEAN;

typedef struct {
    const HdCudaApi *api;
    const HdAttention *t;
    int32_t half; // the data type of q
    Dnn ops[MAX_OPS], made[HD_DNN_PARTS];
    int n_ops, n_made;
    int64_t next_id;
    bool failed;
    char *why;
    size_t why_size;
} Builder;

static void fail(Builder *b, DnnStatus s, const char *what) {
    char detail[512] = "";
    if (b->failed) return;
    b->failed = true;
    b->api->cudnnGetLastErrorString(detail, sizeof detail);
    for (char *p = detail; *p; p++)
        if (*p == '\n') *p = ' ';
    snprintf(b->why, b->why_size, "%s: %s%s%s", what, b->api->cudnnGetErrorString(s), *detail ? ": " : "", detail);
}

static Dnn make(Builder *b, DnnKind kind) {
    Dnn d = NULL;
    if (b->failed) return NULL;
    DnnStatus s = b->api->cudnnBackendCreateDescriptor(kind, &d);
    if (s != HD_CUDNN_STATUS_SUCCESS) return fail(b, s, "descriptor"), NULL;
    if (b->n_made < HD_DNN_PARTS) b->made[b->n_made++] = d;
    return d;
}

static void set(Builder *b, Dnn d, DnnAttribute name, DnnType type, int64_t count, const void *values) {
    if (b->failed) return;
    DnnStatus s = b->api->cudnnBackendSetAttribute(d, name, type, count, values);
    char what[64];
    snprintf(what, sizeof what, "attribute %d", name);
    if (s != HD_CUDNN_STATUS_SUCCESS) fail(b, s, what);
}

static void set_descriptor(Builder *b, Dnn d, DnnAttribute name, Dnn value) {
    set(b, d, name, HD_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finish(Builder *b, Dnn d, const char *what) {
    if (b->failed) return;
    DnnStatus s = b->api->cudnnBackendFinalize(d);
    if (s != HD_CUDNN_STATUS_SUCCESS) fail(b, s, what);
}

static Dnn tensor(Builder *b, int64_t id, int32_t type, Shape s, int kind) {
    Dnn d = make(b, HD_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t align = 16, unique = id ? id : b->next_id++;
    bool yes = true;
    set(b, d, HD_CUDNN_ATTR_TENSOR_UNIQUE_ID, HD_CUDNN_TYPE_INT64, 1, &unique);
    set(b, d, HD_CUDNN_ATTR_TENSOR_DATA_TYPE, HD_CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, d, HD_CUDNN_ATTR_TENSOR_DIMENSIONS, HD_CUDNN_TYPE_INT64, 4, s.dim);
    set(b, d, HD_CUDNN_ATTR_TENSOR_STRIDES, HD_CUDNN_TYPE_INT64, 4, s.stride);
    set(b, d, HD_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, HD_CUDNN_TYPE_INT64, 1, &align);
    if (kind == VIRTUAL) set(b, d, HD_CUDNN_ATTR_TENSOR_IS_VIRTUAL, HD_CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == BY_VALUE) set(b, d, HD_CUDNN_ATTR_TENSOR_IS_BY_VALUE, HD_CUDNN_TYPE_BOOLEAN, 1, &yes);
    finish(b, d, "tensor");
    return d;
}

static Dnn temporary(Builder *b, int32_t type, Shape s) { return tensor(b, 0, type, s, VIRTUAL); }

static void add_op(Builder *b, Dnn op, const char *what) {
    finish(b, op, what);
    if (b->n_ops < MAX_OPS) b->ops[b->n_ops++] = op;
}

// y = mode(x, other, where); precision boolean for comparisons; axis only for GEN_INDEX
static Dnn pointwise(Builder *b, int32_t mode, int32_t precision, int64_t axis, Dnn x, Dnn other, Dnn where, Dnn y) {
    Dnn p = make(b, HD_CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(b, p, HD_CUDNN_ATTR_POINTWISE_MODE, HD_CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(b, p, HD_CUDNN_ATTR_POINTWISE_MATH_PREC, HD_CUDNN_TYPE_DATA_TYPE, 1, &precision);
    if (axis >= 0) set(b, p, HD_CUDNN_ATTR_POINTWISE_AXIS, HD_CUDNN_TYPE_INT64, 1, &axis);
    finish(b, p, "pointwise");
    Dnn op = make(b, HD_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (other) set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other);
    if (where) set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_POINTWISE_TDESC, where);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(b, op, "pointwise operation");
    return y;
}

static Dnn arithmetic(Builder *b, int32_t mode, Dnn x, Dnn other, Dnn y) {
    return pointwise(b, mode, f32, -1, x, other, NULL, y);
}

static Dnn product(Builder *b, Dnn x, Dnn y, Dnn out) {
    Dnn m = make(b, HD_CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(b, m, HD_CUDNN_ATTR_MATMUL_COMP_TYPE, HD_CUDNN_TYPE_DATA_TYPE, 1, &f32);
    finish(b, m, "product");
    Dnn op = make(b, HD_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_MATMUL_BDESC, y);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    add_op(b, op, "product operation");
    return out;
}

static Dnn reduce(Builder *b, int32_t how, Dnn x, Dnn y) {
    Dnn r = make(b, HD_CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(b, r, HD_CUDNN_ATTR_REDUCTION_OPERATOR, HD_CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    set(b, r, HD_CUDNN_ATTR_REDUCTION_COMP_TYPE, HD_CUDNN_TYPE_DATA_TYPE, 1, &f32);
    finish(b, r, "reduction");
    Dnn op = make(b, HD_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    add_op(b, op, "reduction operation");
    return y;
}

static Dnn reshape(Builder *b, Dnn x, Dnn y) {
    Dnn op = make(b, HD_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(b, op, HD_CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_op(b, op, "reshape operation");
    return y;
}

static Shape dense(int64_t batch, int64_t heads, int64_t rows, int64_t cols) {
    return (Shape){{batch, heads, rows, cols}, {heads * rows * cols, rows * cols, cols, 1}};
}

static Shape transposed(Shape s) {
    return (Shape){{s.dim[0], s.dim[1], s.dim[3], s.dim[2]}, {s.stride[0], s.stride[1], s.stride[3], s.stride[2]}};
}

// [batch, seq, heads * size] in memory, rows `row` elements apart
static Shape in_memory(const HdAttention *t, int64_t heads, int64_t row) {
    return (Shape){{t->batch, heads, t->seq, t->size}, {t->seq * row, t->size, row, 1}};
}

static Shape scores(const HdAttention *t) { return dense(t->batch, t->heads, t->seq, t->seq); }
static Shape per_row(const HdAttention *t) { return dense(t->batch, t->heads, t->seq, 1); }
static Dnn number(Builder *b, int64_t id) { return tensor(b, id, f32, dense(1, 1, 1, 1), BY_VALUE); }
static Dnn operand(Builder *b, int pointer, int32_t type, Shape s) { return tensor(b, pointer + 1, type, s, REAL); }

static Dnn mask(Builder *b, Dnn s) { // -inf where the key comes after the query
    const HdAttention *t = b->t;
    if (!t->causal) return s;
    Dnn row = pointwise(b, HD_CUDNN_POINTWISE_GEN_INDEX, f32, 2, s, NULL, NULL, temporary(b, i32, scores(t)));
    Dnn col = pointwise(b, HD_CUDNN_POINTWISE_GEN_INDEX, f32, 3, s, NULL, NULL, temporary(b, i32, scores(t)));
    Dnn seen = pointwise(b, HD_CUDNN_POINTWISE_CMP_GE, boolean, -1, row, col, NULL, temporary(b, boolean, scores(t)));
    return pointwise(b, HD_CUDNN_POINTWISE_BINARY_SELECT, f32, -1, s, number(b, ID_NEG_INF), seen,
                     temporary(b, f32, scores(t)));
}

static void forward(Builder *b) {
    const HdAttention *t = b->t;
    Shape q = in_memory(t, t->heads, t->q_stride), k = in_memory(t, t->kv_heads, t->k_stride),
          v = in_memory(t, t->kv_heads, t->v_stride);
    Dnn s = product(b, operand(b, HD_SDPA_Q, b->half, q), operand(b, HD_SDPA_K, b->half, transposed(k)),
                    temporary(b, f32, scores(t)));
    s = arithmetic(b, HD_CUDNN_POINTWISE_MUL, s, number(b, ID_SCALE), temporary(b, f32, scores(t)));
    s = mask(b, s);
    Dnn top = reduce(b, HD_CUDNN_REDUCE_TENSOR_MAX, s, temporary(b, f32, per_row(t)));
    Dnn e = arithmetic(b, HD_CUDNN_POINTWISE_SUB, s, top, temporary(b, f32, scores(t)));
    e = arithmetic(b, HD_CUDNN_POINTWISE_EXP, e, NULL, temporary(b, f32, scores(t)));
    Dnn sum = reduce(b, HD_CUDNN_REDUCE_TENSOR_ADD, e, temporary(b, f32, per_row(t)));
    Dnn log = arithmetic(b, HD_CUDNN_POINTWISE_LOG, sum, NULL, temporary(b, f32, per_row(t)));
    arithmetic(b, HD_CUDNN_POINTWISE_ADD, top, log, operand(b, HD_SDPA_LSE, f32, per_row(t)));
    Dnn p = arithmetic(b, HD_CUDNN_POINTWISE_DIV, e, sum, temporary(b, b->half, scores(t)));
    product(b, p, operand(b, HD_SDPA_V, b->half, v),
            operand(b, HD_SDPA_O, b->half, in_memory(t, t->heads, t->o_stride)));
}

// out = left x right, summed over the query heads that share a key head
static void shared_product(Builder *b, Dnn left, Dnn right, Dnn out) {
    const HdAttention *t = b->t;
    if (t->heads == t->kv_heads) product(b, left, right, out);
    else
        reduce(b, HD_CUDNN_REDUCE_TENSOR_ADD,
               product(b, left, right, temporary(b, b->half, dense(t->batch, t->heads, t->seq, t->size))), out);
}

static void backward(Builder *b) {
    const HdAttention *t = b->t;
    Shape q = in_memory(t, t->heads, t->q_stride), k = in_memory(t, t->kv_heads, t->k_stride),
          v = in_memory(t, t->kv_heads, t->v_stride);
    Shape o = in_memory(t, t->heads, t->o_stride), s1 = per_row(t), ss = scores(t);
    Dnn tq = operand(b, HD_SDPA_Q, b->half, q), tk = operand(b, HD_SDPA_K, b->half, transposed(k)),
        tv = operand(b, HD_SDPA_V, b->half, transposed(v));
    Dnn tdo = operand(b, HD_SDPA_DO, b->half, o), to = operand(b, HD_SDPA_O, b->half, o), scale = number(b, ID_SCALE);

    Dnn x =
        arithmetic(b, HD_CUDNN_POINTWISE_MUL, tdo, to, temporary(b, f32, in_memory(t, t->heads, t->heads * t->size)));
    x = reduce(b, HD_CUDNN_REDUCE_TENSOR_ADD, x, temporary(b, f32, s1));
    Dnn sum = arithmetic(b, HD_CUDNN_POINTWISE_MUL, x, number(b, ID_ONE), operand(b, HD_SDPA_SUM, f32, s1));

    Dnn s = product(b, tq, tk, temporary(b, f32, ss));
    s = arithmetic(b, HD_CUDNN_POINTWISE_MUL, s, scale, temporary(b, f32, ss));
    s = arithmetic(b, HD_CUDNN_POINTWISE_SUB, s, operand(b, HD_SDPA_LSE, f32, s1), temporary(b, f32, ss));
    s = mask(b, s);
    Dnn p = arithmetic(b, HD_CUDNN_POINTWISE_EXP, s, NULL, temporary(b, f32, ss));
    shared_product(b, reshape(b, p, temporary(b, b->half, transposed(ss))), tdo, operand(b, HD_SDPA_DV, b->half, v));

    Dnn dp = product(b, tdo, tv, temporary(b, f32, ss));
    dp = arithmetic(b, HD_CUDNN_POINTWISE_SUB, dp, sum, temporary(b, f32, ss));
    dp = arithmetic(b, HD_CUDNN_POINTWISE_MUL, dp, p, temporary(b, f32, ss));
    Dnn ds = arithmetic(b, HD_CUDNN_POINTWISE_MUL, dp, scale, temporary(b, f32, ss));
    shared_product(b, reshape(b, ds, temporary(b, b->half, transposed(ss))), tq, operand(b, HD_SDPA_DK, b->half, k));
    // A reshape keeps the bytes: k again, with its own strides in memory. With dense strides this form reads other
    // elements and gives a wrong dq that repeats bit for bit (seen with 9.14 and 9.19; tests/gpu/runtime_check.c
    // compares with plain loops).
    Dnn keys = reshape(b, tk, temporary(b, b->half, k));
    product(b, ds, keys, operand(b, HD_SDPA_DQ, b->half, q));
}

static Dnn graph_of(Builder *b, DnnHandle handle) {
    Dnn g = make(b, HD_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (handle) set(b, g, HD_CUDNN_ATTR_OPERATIONGRAPH_HANDLE, HD_CUDNN_TYPE_HANDLE, 1, &handle);
    set(b, g, HD_CUDNN_ATTR_OPERATIONGRAPH_OPS, HD_CUDNN_TYPE_BACKEND_DESCRIPTOR, b->n_ops, b->ops);
    finish(b, g, "operation graph");
    return g;
}

static int configurations(Builder *b, Dnn graph, const char *device_json, Dnn *configs) {
    Dnn h = make(b, HD_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int32_t mode = HD_CUDNN_HEUR_MODE_A;
    int64_t n = 0;
    set_descriptor(b, h, HD_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(b, h, HD_CUDNN_ATTR_ENGINEHEUR_MODE, HD_CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (device_json) {
        Dnn d = make(b, HD_CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
        set(b, d, HD_CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, HD_CUDNN_TYPE_CHAR, (int64_t)strlen(device_json),
            device_json);
        finish(b, d, "device properties");
        set_descriptor(b, h, HD_CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, d);
    }
    finish(b, h, "heuristics");
    if (b->failed) return 0;
    DnnStatus s = b->api->cudnnBackendGetAttribute(h, HD_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                   HD_CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL);
    if (s != HD_CUDNN_STATUS_SUCCESS) fail(b, s, "heuristics");
    if (n > MAX_PLANS) n = MAX_PLANS;
    for (int i = 0; i < n; i++) configs[i] = make(b, HD_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (b->failed || n == 0) return 0;
    s = b->api->cudnnBackendGetAttribute(h, HD_CUDNN_ATTR_ENGINEHEUR_RESULTS, HD_CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &n,
                                         configs);
    if (s != HD_CUDNN_STATUS_SUCCESS) fail(b, s, "heuristics");
    return (int)n;
}

// The first configuration, in the heuristic's order, that compiles and fits; the order does not depend on timing.
static bool first_plan(Builder *b, DnnHandle handle, Dnn *configs, int n, int64_t limit, HdAttentionState *out) {
    const HdCudaApi *api = b->api;
    int64_t smallest = -1;
    for (int i = 0; i < n && !b->failed; i++) {
        Dnn p = NULL;
        int64_t got = 0, bytes = 0;
        if (api->cudnnBackendCreateDescriptor(HD_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p) !=
            HD_CUDNN_STATUS_SUCCESS)
            break;
        if (handle) set(b, p, HD_CUDNN_ATTR_EXECUTION_PLAN_HANDLE, HD_CUDNN_TYPE_HANDLE, 1, &handle);
        set_descriptor(b, p, HD_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[i]);
        bool ok = !b->failed && api->cudnnBackendFinalize(p) == HD_CUDNN_STATUS_SUCCESS &&
                  api->cudnnBackendGetAttribute(p, HD_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, HD_CUDNN_TYPE_INT64, 1,
                                                &got, &bytes) == HD_CUDNN_STATUS_SUCCESS;
        if (ok && bytes <= limit) {
            out->plan = p;
            out->workspace = bytes;
            return true;
        }
        if (ok && (smallest < 0 || bytes < smallest)) smallest = bytes;
        api->cudnnBackendDestroyDescriptor(p);
    }
    if (b->failed) return false;
    if (smallest >= 0)
        snprintf(b->why, b->why_size, "its plans need %lld bytes of workspace or more, the program provides %lld",
                 (long long)smallest, (long long)limit);
    else snprintf(b->why, b->why_size, "none of its %d configurations could be built", n);
    return false;
}

bool hd_cudnn_plan(const HdCudaApi *api, DnnHandle handle, const char *device_json, const HdAttention *t, int64_t limit,
                   HdAttentionState *out, char *why, size_t why_size) {
    Builder b = {.api = api, .t = t, .half = t->dtype == HD_F16 ? HD_CUDNN_DATA_HALF : HD_CUDNN_DATA_BFLOAT16,
                 .next_id = FIRST_FREE_ID, .why = why, .why_size = why_size};
    *out = (HdAttentionState){.plan = NULL};
    Dnn configs[MAX_PLANS] = {NULL};
    (t->grad ? backward : forward)(&b);
    int n = configurations(&b, graph_of(&b, handle), device_json, configs);
    bool ok = first_plan(&b, handle, configs, n, limit, out);
    // cuDNN does not document whether a plan copies the descriptors it was made from, so they live as long as the plan.
    out->n_parts = b.n_made;
    memcpy(out->parts, b.made, sizeof b.made);
    if (!ok) hd_cudnn_free(api, out);
    return ok;
}

void hd_cudnn_free(const HdCudaApi *api, HdAttentionState *s) {
    if (s->plan) api->cudnnBackendDestroyDescriptor(s->plan);
    while (s->n_parts > 0) api->cudnnBackendDestroyDescriptor(s->parts[--s->n_parts]);
    s->plan = NULL;
}

bool hd_cudnn_execute(const HdCudaApi *api, DnnHandle handle, const HdAttentionState *s, const HdAttention *t,
                      const uint64_t *pointers, uint64_t workspace, char *why, size_t why_size) {
    float scale = t->scale, lowest = -INFINITY, one = 1;
    int64_t ids[HD_SDPA_POINTERS + 3];
    void *places[HD_SDPA_POINTERS + 3], *scratch = (void *)(uintptr_t)workspace;
    int n = 0, last = t->grad ? HD_SDPA_POINTERS : HD_SDPA_LSE + 1;
    for (int i = 0; i < last; i++, n++) {
        ids[n] = i + 1;
        places[n] = (void *)(uintptr_t)pointers[i];
    }
    ids[n] = ID_SCALE, places[n++] = &scale;
    if (t->causal) ids[n] = ID_NEG_INF, places[n++] = &lowest;
    if (t->grad) ids[n] = ID_ONE, places[n++] = &one;
    Builder b = {.api = api, .t = t, .why = why, .why_size = why_size};
    Dnn pack = make(&b, HD_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&b, pack, HD_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, HD_CUDNN_TYPE_INT64, n, ids);
    set(&b, pack, HD_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, HD_CUDNN_TYPE_VOID_PTR, n, places);
    set(&b, pack, HD_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, HD_CUDNN_TYPE_VOID_PTR, 1, &scratch);
    finish(&b, pack, "variant pack");
    if (!b.failed) {
        DnnStatus r = api->cudnnBackendExecute(handle, s->plan, pack);
        if (r != HD_CUDNN_STATUS_SUCCESS) fail(&b, r, "execution");
    }
    if (pack) api->cudnnBackendDestroyDescriptor(pack);
    return !b.failed;
}
