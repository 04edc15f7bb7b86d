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

int hd_program_average(const Emit *e) {
    const Symbol *b = e->m->symbols, *s;
    while (b && (b->kind != SYM_BUCKET || stateless(b))) b = b->next;
    for (int i = 0; b && (s = hd_state(e->m, &b->attrs, i)); i++)
        if (!strcmp(state_name(s), HD_AVERAGE)) return i + 1;
    return 0;
}

int hd_program_states(Emit *e) {
    const Symbol *b = e->m->symbols, *s;
    int n = 0;
    while (b && (b->kind != SYM_BUCKET || stateless(b))) b = b->next;
    for (; b && (s = hd_state(e->m, &b->attrs, n)); n++)
        hd_printf(e->c, "%s%s", n ? ", " : "static const char *const states[] = {", // of the optimizer
                  hd_emit_quoted(e, state_name(s)));
    if (n) hd_puts(e->c, "};\n\n");
    return n;
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
    for (int i = 0; i < HD_MAX_STATES; i++)
        hd_printf(e->c, "%s%lld", i ? ", " : "", ll(buffer_offset(e, b, hd_state(e->m, &b->attrs, i), &other)));
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
