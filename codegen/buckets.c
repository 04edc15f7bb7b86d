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
        if (s && !hd_is_whole(e->m, b)) return s->type->dtype;
    }
    return TY_F32;
}

static const char *state_name(const Symbol *s) {
    const char *dot = strrchr(s->name, '.');
    return dot ? dot + 1 : s->name;
}

// Whether state `i` of a bucket has not a number for each element: HdProgram.params has what it is of each parameter.
static bool of_lines(const Emit *e, const Symbol *bucket, int i) {
    const Func *k = hd_func_find(e->m, hd_word(&bucket->attrs, A_UPDATED_BY, ""));
    return k && hd_state_per(k, i) != PER_ELEMENT;
}

// The state of a bucket that has the name; NULL: its optimizer has none.
static const Symbol *state_called(const Emit *e, const Symbol *bucket, const char *name) {
    const Symbol *s;
    for (int i = 0; (s = hd_state(e->m, &bucket->attrs, i)); i++)
        if (!strcmp(state_name(s), name) && !of_lines(e, bucket, i)) return s;
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
            if (of_lines(e, b, i)) continue;
            while (k < all.n && strcmp(all.at[k], state_name(s)) != 0) k++;
            if (k == all.n && all.n < 2 * HD_MAX_STATES) all.at[all.n++] = state_name(s);
        }
    return all;
}

void hd_program_known_states(const Emit *e, Out *fields) {
    const StateNames all = state_names(e);
    for (int i = 0; i < all.n; i++) {
        if (!strcmp(all.at[i], HD_AVERAGE)) hd_printf(fields, "    .average = %d,\n", i + 1);
        if (!strcmp(all.at[i], HD_COMPENSATION)) hd_printf(fields, "    .compensation = %d,\n", i + 1);
    }
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
    hd_printf(e->c, "    {%s, %lld, %lld, %s, %s, %lld, {",
              hd_emit_quoted(e, b->name), ll(size), ll(shard),
              hd_emit_dtype(compute ? compute->type->dtype : b->type->dtype), hd_emit_dtype(b->type->dtype),
              ll(master));
    const StateNames all = state_names(e);
    for (int i = 0; i < HD_MAX_STATES; i++) {
        const Symbol *s = i < all.n ? state_called(e, b, all.at[i]) : NULL;
        hd_printf(e->c, "%s%lld", i ? ", " : "", ll(buffer_offset(e, b, s, &other)));
    }
    hd_printf(e->c, "}, %lld, %lld, %s, %s, %lld, %u, %s},\n", ll(g), ll(c), yes(optimizer), yes(grad), ll(next),
              hd_axes(&b->attrs, A_SPLIT), yes(stateless(b)));
}

// A state of lines is a bucket of its own, which has no states.
static int put_line_buckets(Emit *e, const Symbol *b) {
    const Symbol *s;
    const Mesh mesh = hd_mesh(e->m);
    int n = 0;
    for (int i = 0; (s = hd_state(e->m, &b->attrs, i)); i++) {
        if (!of_lines(e, b, i)) continue;
        const int64_t shards = hd_mesh_ranks(&mesh, hd_axes(&b->attrs, A_SPLIT)),
                      shard = hd_lines(e->m, b, e->a).numbers[i];
        hd_printf(e->c, "    {%s, %lld, %lld, HD_F32, HD_F32, %lld, {", hd_emit_quoted(e, s->name), ll(shard * shards),
                  ll(shard), ll(hd_emit_buffer(e, NULL, s->name, 0)));
        for (int k = 0; k < HD_MAX_STATES; k++) hd_puts(e->c, k ? ", -1" : "-1");
        hd_printf(e->c, "}, -1, -1, %s, false, -1, %u, true},\n", yes(hd_type_count(s->type) != shard * shards),
                  hd_axes(&b->attrs, A_SPLIT));
        n++;
    }
    return n;
}

static void put_line(Emit *e, const Symbol *state, const Lined *l, int i, int per, int bucket, int64_t numbers) {
    const char *dims[] = {[PER_WHOLE] = "0, {0}", [PER_ROW] = hd_sprintf(e->a, "1, {%lld}", ll(l->rows)),
                          [PER_COLUMN] = hd_sprintf(e->a, "1, {%lld}", ll(l->cols))};
    const int64_t count = per == PER_ROW ? l->rows : per == PER_COLUMN ? l->cols : 1;
    hd_printf(e->c, "    {%s, %s, %lld, HD_INIT_ZEROS, 0.0, %d, %lld},\n",
              hd_emit_quoted(e, hd_sprintf(e->a, "%s.%s", state_name(state), l->param->name)), dims[per], ll(count),
              bucket, ll(l->rank * numbers + l->line[i]));
}

int hd_program_lines(Emit *e) {
    const Symbol *s;
    int n = 0, bucket = 0;
    for (const Symbol *b = e->m->symbols; b; b = b->next) bucket += b->kind == SYM_BUCKET;
    for (const Symbol *b = e->m->symbols; b; b = b->next)
        for (int i = 0; b->kind == SYM_BUCKET && (s = hd_state(e->m, &b->attrs, i)); i++) {
            if (!of_lines(e, b, i)) continue;
            const Func *k = hd_func_find(e->m, hd_word(&b->attrs, A_UPDATED_BY, ""));
            const Lines x = hd_lines(e->m, b, e->a);
            for (int j = 0; j < x.n; j++) put_line(e, s, &x.list[j], i, hd_state_per(k, i), bucket, x.numbers[i]);
            n += x.n, bucket++;
        }
    return n;
}

int hd_program_buckets(Emit *e) {
    int n = 0, lines = 0;
    for (const Symbol *s = e->m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUCKET) continue;
        if (!n++)
            hd_puts(e->c, "static const HdBucket buckets[] = { // name, size, shard, dtypes of compute and master; "
                          "bytes of master, "
                          "states, grad, compute; "
                          "which are shards; bytes of next; the axes that split it; has it no states\n");
        put_bucket(e, s);
    }
    for (const Symbol *s = e->m->symbols; s; s = s->next)
        if (s->kind == SYM_BUCKET) lines += put_line_buckets(e, s);
    n += lines;
    if (n) hd_puts(e->c, "};\n\n");
    return n;
}
