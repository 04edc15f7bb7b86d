// Whole parameters in canonical order, on rank 0: the owners of shards send it their pieces. The bytes do not depend on
// the mesh. Also the search for values that are not finite, which every rank does in its own storage.
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/state.h"
#include "runtime/dtypes.h"
#include "runtime/world/mesh.h"
#include "runtime/world/world.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static bool read_floats(HdExec *x, const HdParam *q, HdRole role, int64_t first, int64_t n, float *v) {
    if (hd_read_floats(x, q, role, first, n, v)) return true;
    x->world->fail(x->world, hd_failure()); // others wait for these bytes
    return false;
}

// all: elements [first, first+n) of a parameter, of the part that the rank `like` has, to rank 0. A shard comes from
// the rank that has it in that rank's group.
static bool collect_part(HdExec *x, const HdParam *q, HdRole role, int like, int64_t first, int64_t n, float *v) {
    const HdBucket *b = &x->program->buckets[q->bucket];
    HdWorld *w = x->world;
    const bool cut = hd_sharded(b, role);
    const int64_t lowest = cut ? (q->at + first) / b->shard : 0, highest = cut ? (q->at + first + n - 1) / b->shard : 0;
    for (int s = (int)lowest; n && s <= (int)highest; s++) {
        const int owner = cut ? hd_group_member(x->program, b->split, like, s) : like;
        if (w->rank != 0 && w->rank != owner) continue;
        const HdSpan has = cut ? hd_shard_span(b, q, s) : (HdSpan){0, q->count};
        const int64_t from = has.first > first ? has.first : first;
        const int64_t end = has.first + has.count < first + n ? has.first + has.count : first + n;
        float *at = v + (from - first);
        const size_t bytes = (size_t)(end - from) * sizeof *v;
        if (w->rank == owner && !read_floats(x, q, role, from, end - from, at)) return false;
        if (owner != 0 && !(w->rank ? w->send(w, at, bytes) : w->receive(w, owner, at, bytes))) return false;
    }
    return true;
}

// all: elements [first, first+n) of the whole of a parameter to rank 0. part: room for as many.
static bool collect(HdExec *x, const HdParam *q, HdRole role, int64_t first, int64_t n, float *v, float *part) {
    const HdProgram *p = x->program;
    const unsigned over = hd_split_of(p, q).over;
    if (!over) return collect_part(x, q, role, 0, first, n, v);
    for (int i = 0; i < hd_parts(p, q); i++) {
        const int64_t from = hd_part_before(p, q, i, first), end = hd_part_before(p, q, i, first + n);
        if (!collect_part(x, q, role, hd_group_member(p, over, 0, i), from, end - from, part)) return false;
        for (int64_t at = from; at < end && !x->world->rank;) {
            const HdSpan run = hd_whole_run(p, q, i, at, end - at);
            memcpy(v + (run.first - first), part + (at - from), sizeof *v * (size_t)run.count);
            at += run.count;
        }
    }
    return true;
}

// all: fn sees every element of every parameter, on rank 0, until it returns false; of one that has no such role, its
// weights. The pieces are sent to the end all the same, so that no rank waits for ever.
static bool stream(HdExec *x, HdRole role, HdPieceFn *fn, void *data) {
    const HdProgram *p = x->program;
    HdPieceRoom room = {0}; // of a piece and of one that is received
    bool ok = true;
    for (int k = 0; k < p->n_params; k++)
        for (int64_t at = 0, count = hd_whole(p, &p->params[k]).count; at < count; at += HD_PIECE) {
            const int64_t left = count - at, n = left < HD_PIECE ? left : HD_PIECE;
            const HdParam *q = &p->params[k];
            const bool here = hd_piece_room(&room, 2 * n);
            if (!here) x->world->fail(x->world, hd_failure());
            if (!here || !collect(x, q, hd_saves(p, q, (int)role) ? role : HD_MASTER, at, n, room.v, room.v + n)) {
                free(room.v);
                return false;
            }
            ok = ok && (x->world->rank != 0 || fn(x, k, at, n, room.v, data));
        }
    free(room.v);
    return ok;
}

// --- one file of weights

// A narrower value is written where values were read already. A parameter that is turned in its file is kept whole.
typedef struct { StWriter w; HdDtype dtype; float *whole; } Export;

static void put_values(Export *e, float *v, int64_t n) {
    if (e->dtype != HD_F32) hd_store_f32(e->dtype, v, n, v, 0); // in place
    hd_st_put(&e->w, v, (size_t)n * hd_dtypes[e->dtype].bytes);
}

static bool put_turned(Export *e, const HdParam *q, int64_t first, int64_t n, const float *v) {
    const int64_t rows = q->dim[0], cols = q->dim[1];
    if (!first) {
        free(e->whole);
        e->whole = malloc(sizeof *v * (size_t)(q->count + rows)); // and a row of the file
    }
    if (!e->whole) return hd_fail("out of memory: %s is turned for its file", q->name);
    memcpy(e->whole + first, v, (size_t)n * sizeof *v);
    float *row = e->whole + q->count;
    for (int64_t c = 0; first + n == q->count && c < cols; c++) {
        for (int64_t r = 0; r < rows; r++) row[r] = e->whole[r * cols + c];
        put_values(e, row, rows);
    }
    return true;
}

static bool export_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    Export *e = data;
    if (!hd_file_turned(x->program, k)) put_values(e, v, n);
    else {
        const HdParam whole = hd_whole(x->program, &x->program->params[k]);
        if (!put_turned(e, &whole, first, n, v)) return false;
    }
    return !e->w.failed;
}

static bool begin_export(const HdProgram *p, StWriter *w, const char *path, HdDtype dtype) {
    StMeta meta[] = {{(char *)"format", (char *)"pt"}, {(char *)"model", (char *)(uintptr_t)p->model}};
    if (!hd_st_create(w, path, false)) return false; // other programs expect parameters and nothing else
    for (int k = 0; k < p->n_params; k++) {
        const HdParam q = hd_whole(p, &p->params[k]);
        const int64_t turned[2] = {q.dim[1], q.dim[0]};
        const int less = strstr(hd_file_name(p, k), HD_EACH) != NULL; // axes of a tensor
        for (int64_t n = 0; n < hd_file_tensors(p, k); n++) {
            char *name = hd_file_tensor(p, k, n);
            if (!name) return hd_fail("out of memory");
            hd_st_declare_as(w, name, dtype, q.rank - less, hd_file_turned(p, k) ? turned : q.dim + less);
            free(name);
        }
    }
    hd_st_begin(w, 2, meta);
    return true;
}

bool hd_state_export(HdExec *x, const char *path, HdDtype dtype, bool averaged) {
    Export e = {.dtype = dtype};
    const bool writer = x->world->rank == 0;
    if (!hd_world_agree(x->world, !writer || begin_export(x->program, &e.w, path, dtype))) return false;
    const bool ok = stream(x, averaged ? hd_average_role(x->program) : HD_MASTER, export_piece, &e);
    free(e.whole);
    if (!writer) return ok;
    if (!ok) e.w.failed = true; // hd_fail was called already
    return hd_st_finish(&e.w);
}

// --- a hash of each parameter

typedef struct { FILE *f; XXH3_state_t *state; } Hashing;

static bool hash_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    Hashing *h = data;
    const HdParam *q = &x->program->params[k];
    if (!first) XXH3_128bits_reset(h->state);
    XXH3_128bits_update(h->state, v, (size_t)n * 4);
    if (first + n < hd_whole(x->program, q).count) return true;
    XXH128_hash_t d = XXH3_128bits_digest(h->state);
    fprintf(h->f, "param %s %016llx%016llx\n", q->name, (unsigned long long)d.high64, (unsigned long long)d.low64);
    return true;
}

bool hd_state_hashes(HdExec *x, FILE *f) {
    Hashing h = {f, XXH3_createState()};
    if (!h.state) hd_fail("out of memory");
    const bool ok = hd_world_agree(x->world, h.state != NULL) && stream(x, HD_MASTER, hash_piece, &h);
    XXH3_freeState(h.state);
    return ok;
}

// --- values that are not finite

static const char *text_of(const HdProgram *p, HdRole role, char *text, size_t size) {
    if (role == HD_MASTER || role == HD_GRAD) return role == HD_GRAD ? "gradient of" : "parameter";
    snprintf(text, size, "%s of", p->states[role - HD_STATE]);
    return text;
}

// Where to look: the last action of a step that computes in the parameter's module, which makes the gradient or follows
// it directly; or the update of its unit. Which action made the first such value is not known once the step is over:
// the update is in place, so the state before it is gone. Empty where there is no such action.
static void tell_action(const HdProgram *p, const HdParam *q, HdRole role, char *out, size_t size) {
    const bool update = role != HD_GRAD;
    const char *unit = p->buckets[q->bucket].name, *dot = strrchr(q->name, '.'), *path = update ? unit : q->name;
    const size_t n = update ? strlen(unit) : dot ? (size_t)(dot - q->name) : 0;
    for (int i = p->train_step.n_segments - 1; i >= 0; i--) {
        const HdFunc *f = p->train_step.segments[i].func;
        for (int k = f->n_actions - 1; k >= 0; k--) {
            const HdAction *a = &f->actions[k];
            const bool works =
                !strcmp(a->stream, "compute") && strcmp(a->op, "wait") != 0 && strcmp(a->op, "record") != 0;
            if (!works || update != !strcmp(a->op, "update") || strlen(a->path) != n || strncmp(a->path, path, n) != 0)
                continue;
            snprintf(out, size,
                     "; see %s%s%s, action %d of @%s, the last that works on %s: the value may come from one before it",
                     a->op, *a->where ? " at " : "", a->where, k, f->name, update ? "this unit" : "this module");
            return;
        }
    }
}

typedef struct { HdRole role; bool after_step; } Look;

static bool check_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    const HdParam *q = &x->program->params[k];
    const Look *look = data;
    if (!hd_read_floats(x, q, look->role, first, n, v)) return false;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(v[i])) continue;
        const HdSpan at = hd_whole_run(x->program, q, hd_part(x->program, q, x->world->rank), first + i, 1);
        char rank[32] = "", action[300] = "", state[80];
        if (look->after_step) tell_action(x->program, q, look->role, action, sizeof action);
        if (x->world->ranks > 1) snprintf(rank, sizeof rank, ", on rank %d", x->world->rank);
        return hd_fail("%s %s (unit %s): element %lld is %g%s%s",
                       k < x->program->n_params ? text_of(x->program, look->role, state, sizeof state) : "state",
                       q->name, x->program->buckets[q->bucket].name, (long long)at.first, (double)v[i], rank, action);
    }
    return true;
}

bool hd_state_check(HdExec *x, bool after_step) {
    if (after_step && !hd_each_piece(x, HD_GRAD, check_piece, &(Look){HD_GRAD, true})) return false;
    for (int r = 0; r < hd_saved_roles(x->program); r++)
        if (!hd_each_piece(x, (HdRole)r, check_piece, &(Look){(HdRole)r, after_step})) return false;
    return true;
}
