// The tables of buckets and of the optimizer's states.
#include "codegen/emit.h"
#include "ir/base/ints.h"
#include "ir/mesh.h"
#include "ir/optimizer.h"
#include <string.h>

// Where a buffer of a bucket is; -1: there is none. `sharded`: it holds one rank's shard.
static int64_t buffer_offset(Emit *e, const Symbol *bucket, const Symbol *s, bool *sharded) {
    *sharded = s && hd_type_count(s->type) != hd_type_count(bucket->type);
    return s ? hd_emit_buffer(e, NULL, s->name, 0) : -1;
}

static int64_t part_offset(Emit *e, const Symbol *bucket, AttrId part, bool *sharded) {
    return buffer_offset(e, bucket, hd_symbol_find(e->m, hd_word(&bucket->attrs, part, "")), sharded);
}

static bool stateless(const Symbol *bucket) {
    return hd_has(&bucket->attrs, A_FROZEN) || hd_has(&bucket->attrs, A_KERNEL);
}

DType hd_program_state_type(const Emit *e) {
    for (const Symbol *b = e->m->symbols; b; b = b->next) {
        const Symbol *s = b->kind == SYM_BUCKET ? hd_state(e->m, &b->attrs, 0) : NULL;
        if (s) return s->type->dtype;
    }
    return TY_F32;
}

static const char *state_name(const Symbol *s) {
    const char *dot = strrchr(s->name, '.');
    return dot ? dot + 1 : s->name;
}

// The state of a bucket that has the name; NULL: its optimizer has none.
static const Symbol *state_called(const Emit *e, const Symbol *bucket, const char *name) {
    const Symbol *s;
    for (int i = 0; (s = hd_state(e->m, &bucket->attrs, i)); i++)
        if (!strcmp(state_name(s), name)) return s;
    return NULL;
}

typedef struct { const char *at[2 * HD_MAX_STATES]; int n; } StateNames;

// Those of every bucket's optimizer, each once.
static StateNames state_names(const Emit *e) {
    StateNames all = {.n = 0};
    const Symbol *s;
    for (const Symbol *b = e->m->symbols; b; b = b->next)
        for (int i = 0; b->kind == SYM_BUCKET && (s = hd_state(e->m, &b->attrs, i)); i++) {
            int k = 0;
            while (k < all.n && strcmp(all.at[k], state_name(s)) != 0) k++;
            if (k == all.n && all.n < 2 * HD_MAX_STATES) all.at[all.n++] = state_name(s);
        }
    return all;
}

int hd_program_average(const Emit *e) {
    const StateNames all = state_names(e);
    for (int i = 0; i < all.n; i++)
        if (!strcmp(all.at[i], HD_AVERAGE)) return i + 1;
    return 0;
}

int hd_program_states(Emit *e) {
    const StateNames all = state_names(e);
    for (int i = 0; i < all.n; i++)
        hd_printf(e->c, "%s%s", i ? ", " : "static const char *const states[] = {", hd_emit_quoted(e, all.at[i]));
    if (all.n) hd_puts(e->c, "};\n\n");
    if (all.n > HD_MAX_STATES)
        hd_emit_error(e, (Span){0}, "the optimizers have more than %d states of different names", HD_MAX_STATES);
    return all.n;
}

static const char *yes(bool b) { return b ? "true" : "false"; }

static void put_bucket(Emit *e, const Symbol *b) {
    bool optimizer, other, grad;
    const Symbol *compute = hd_symbol_find(e->m, hd_word(&b->attrs, A_WEIGHTS, hd_word(&b->attrs, A_NEXT, "")));
    int64_t size = hd_type_count(b->type);
    const Mesh mesh = hd_mesh(e->m);
    const int64_t shard = size / hd_mesh_ranks(&mesh, hd_axes(&b->attrs, A_SPLIT));
    int64_t master = part_offset(e, b, A_MASTER_WEIGHTS, &optimizer);
    int64_t g = part_offset(e, b, A_GRADIENT, &grad), c = part_offset(e, b, A_WEIGHTS, &other),
            next = part_offset(e, b, A_NEXT, &other);
    hd_printf(e->c, "    {%s, %lld, %lld, %s, %lld, {",
              hd_emit_quoted(e, b->name), ll(size), ll(shard),
              hd_emit_dtype(compute ? compute->type->dtype : b->type->dtype), ll(master));
    const StateNames all = state_names(e);
    for (int i = 0; i < HD_MAX_STATES; i++) {
        const Symbol *s = i < all.n ? state_called(e, b, all.at[i]) : NULL;
        hd_printf(e->c, "%s%lld", i ? ", " : "", ll(buffer_offset(e, b, s, &other)));
    }
    hd_printf(e->c, "}, %lld, %lld, %s, %s, %lld, %u, %s},\n", ll(g), ll(c), yes(optimizer), yes(grad), ll(next),
              hd_axes(&b->attrs, A_SPLIT), yes(stateless(b)));
}

int hd_program_buckets(Emit *e) {
    int n = 0;
    for (const Symbol *s = e->m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUCKET) continue;
        if (!n++)
            hd_puts(e->c, "static const HdBucket buckets[] = { // name, size, shard, compute dtype; bytes of master, "
                          "states, grad, compute; "
                          "which are shards; bytes of next; the axes that split it; has it no states\n");
        put_bucket(e, s);
    }
    if (n) hd_puts(e->c, "};\n\n");
    return n;
}
