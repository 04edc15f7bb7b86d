// Which elements of a parameter a rank holds, where they are, and how they are written.
#include "runtime/checkpoint/state.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/bits.h"
#include "runtime/dtypes.h"
#include "runtime/world/mesh.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int hd_weight_roles(const HdProgram *p, HdRole roles[HD_WEIGHT_ROLES]) {
    int n = 0;
    roles[n++] = HD_MASTER;
    roles[n++] = HD_COMPUTE;
    roles[n++] = HD_NEXT;
    if (p->average) roles[n++] = hd_average_role(p);
    return n;
}

const char *hd_saved_name(const HdProgram *p, int role, const char *of, char *name, size_t size) {
    if (role == HD_MASTER) snprintf(name, size, "%s", of);
    else snprintf(name, size, "%s.%s", p->states[role - HD_STATE], of);
    return name;
}

bool hd_saves(const HdProgram *p, const HdParam *q, int role) {
    return role == HD_MASTER || hd_home(&p->buckets[q->bucket], (HdRole)role) >= 0;
}

static const HdBucket *bucket(const HdExec *x, const HdParam *q) { return &x->program->buckets[q->bucket]; }

int64_t hd_home(const HdBucket *b, HdRole role) {
    switch (role) {
    case HD_MASTER: return b->master;
    case HD_GRAD: return b->grad;
    case HD_COMPUTE: return b->compute;
    case HD_NEXT: return b->next;
    default: return b->state[role - HD_STATE];
    }
}

bool hd_sharded(const HdBucket *b, HdRole role) {
    return role == HD_GRAD ? b->grad_sharded : role != HD_NEXT && b->optimizer_sharded;
}

static HdSpan common(HdSpan a, HdSpan b) {
    const int64_t first = a.first > b.first ? a.first : b.first;
    const int64_t end = a.first + a.count < b.first + b.count ? a.first + a.count : b.first + b.count;
    return end > first ? (HdSpan){first, end - first} : (HdSpan){0, 0};
}

HdSpan hd_shard_span(const HdBucket *b, const HdParam *q, int shard) {
    return common((HdSpan){0, q->count}, (HdSpan){shard * b->shard - q->at, b->shard});
}

HdSpan hd_span(const HdExec *x, const HdParam *q, HdRole role) {
    const HdBucket *b = bucket(x, q);
    if (hd_home(b, role) < 0) return (HdSpan){0, 0};
    return hd_sharded(b, role) ? hd_shard_span(b, q, hd_shard(x, b)) : (HdSpan){0, q->count};
}

HdDtype hd_stored_as(const HdProgram *p, const HdBucket *b, HdRole role) {
    if (role >= HD_STATE && role < HD_STATE + HD_STATES) return p->state_dtype;
    return role == HD_COMPUTE || role == HD_NEXT ? b->compute_dtype : role == HD_MASTER ? b->master_dtype : HD_F32;
}

int64_t hd_place(const HdExec *x, const HdParam *q, HdRole role, int64_t element) {
    const HdBucket *b = bucket(x, q);
    const int64_t before = hd_sharded(b, role) ? hd_shard(x, b) * b->shard : 0;
    return hd_home(b, role) + (q->at + element - before) * (int64_t)hd_dtypes[hd_stored_as(x->program, b, role)].bytes;
}

bool hd_read_values(HdExec *x, const HdParam *q, HdRole role, int64_t first, int64_t n, void *v) {
    const size_t bytes = hd_dtypes[hd_stored_as(x->program, bucket(x, q), role)].bytes;
    return x->program->backend->read(x, hd_place(x, q, role, first), v, (size_t)n * bytes);
}

bool hd_read_floats(HdExec *x, const HdParam *q, HdRole role, int64_t first, int64_t n, float *v) {
    const HdDtype dtype = hd_stored_as(x->program, bucket(x, q), role);
    if (dtype == HD_F32) return hd_read_values(x, q, role, first, n, v);
    void *narrow = malloc((size_t)n * hd_dtypes[dtype].bytes);
    const bool ok = narrow ? hd_read_values(x, q, role, first, n, narrow) : hd_fail("out of memory");
    if (ok) hd_load_f32(dtype, narrow, 0, n, v);
    free(narrow);
    return ok;
}

// of the buffers that are here one is whole, or all are the same shard
static HdSpan weights_span(const HdExec *x, const HdParam *q) {
    const HdSpan s[] = {hd_span(x, q, HD_MASTER), hd_span(x, q, HD_COMPUTE), hd_span(x, q, HD_NEXT)};
    const HdSpan most = s[1].count > s[0].count ? s[1] : s[0];
    return s[2].count > most.count ? s[2] : most;
}

HdSpan hd_piece_span(const HdExec *x, HdRole role, int k) {
    const HdParam *q = &x->program->params[k];
    return role == HD_COMPUTE ? weights_span(x, q) : hd_span(x, q, role);
}

int hd_piece_params(const HdProgram *p, HdRole role) { return role == HD_COMPUTE ? p->n_params : hd_saved_params(p); }

bool hd_piece_room(HdPieceRoom *r, int64_t n) {
    if (n <= r->n) return true;
    free(r->v);
    r->v = malloc((size_t)n * sizeof *r->v);
    r->n = r->v ? n : 0;
    return r->v || hd_fail("out of memory");
}

bool hd_each_piece(HdExec *x, HdRole role, HdPieceFn *fn, void *data) {
    const HdProgram *p = x->program;
    HdPieceRoom room = {0};
    bool ok = true;
    const int n = hd_piece_params(p, role);
    for (int k = 0; ok && k < n; k++) {
        const HdSpan s = hd_piece_span(x, role, k);
        for (int64_t at = 0; ok && at < s.count; at += HD_PIECE) {
            const int64_t left = s.count - at, m = left < HD_PIECE ? left : HD_PIECE;
            ok = hd_piece_room(&room, m) && fn(x, k, s.first + at, m, room.v, data);
        }
    }
    free(room.v);
    return ok;
}

// --- weights

bool hd_write_as(HdExec *x, HdDtype dtype, int64_t offset, const float *v, int64_t n) {
    const size_t bytes = (size_t)n * hd_dtypes[dtype].bytes;
    if (dtype == HD_F32) return x->program->backend->write(x, offset, v, bytes);
    void *narrow = malloc(bytes);
    if (!narrow) return hd_fail("out of memory");
    hd_store_f32(dtype, v, n, narrow, 0);
    const bool ok = x->program->backend->write(x, offset, narrow, bytes);
    free(narrow);
    return ok;
}

bool hd_put_weights(HdExec *x, const HdParam *q, int64_t first, int64_t n, const float *v) {
    const HdBucket *b = bucket(x, q);
    HdRole roles[HD_WEIGHT_ROLES];
    for (int i = 0, count = hd_weight_roles(x->program, roles); i < count; i++) {
        const HdRole role = roles[i];
        const HdSpan here = common(hd_span(x, q, role), (HdSpan){first, n});
        if (!here.count) continue;
        const int64_t place = hd_place(x, q, role, here.first);
        const float *from = v + (here.first - first);
        if (!hd_write_as(x, hd_stored_as(x->program, b, role), place, from, here.count)) return false;
    }
    return true;
}

bool hd_put_given(HdExec *x, const HdParam *q, int64_t first, int64_t n, float *v) {
    const HdBucket *b = bucket(x, q);
    const HdRole role = (HdRole)(HD_STATE + x->program->compensation - 1);
    if (!hd_put_weights(x, q, first, n, v)) return false;
    const HdSpan here = x->program->compensation ? common(hd_span(x, q, role), (HdSpan){first, n}) : (HdSpan){0, 0};
    float *const lacks = v + (here.first - first);
    if (!here.count) return true;
    for (int64_t i = 0; i < here.count; i++)
        lacks[i] -= b->master_dtype == HD_BF16 ? hd_from_bf16(hd_to_bf16(lacks[i])) : lacks[i];
    return hd_write_as(x, hd_stored_as(x->program, b, role), hd_place(x, q, role, here.first), lacks, here.count);
}

// --- shapes

void hd_shape_text(char *buf, size_t size, int rank, const int64_t *dim) {
    size_t n = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%lld", i ? "," : "", (long long)dim[i]);
    if (n < size) snprintf(buf + n, size - n, "]");
}

const char *hd_file_name(const HdProgram *p, int k) {
    const char *name = p->file_names ? p->file_names[k] : NULL;
    return name ? name : p->params[k].name;
}

int64_t hd_file_tensors(const HdProgram *p, int k) {
    return strstr(hd_file_name(p, k), HD_EACH) ? hd_whole(p, &p->params[k]).dim[0] : 1;
}

char *hd_file_tensor(const HdProgram *p, int k, int64_t n) {
    const char *name = hd_file_name(p, k), *mark = strstr(name, HD_EACH);
    const size_t size = strlen(name) + 24;
    char *s = malloc(size);
    if (s && mark)
        snprintf(s, size, "%.*s%lld%s", (int)(mark - name), name, (long long)n, mark + strlen(HD_EACH));
    else if (s) snprintf(s, size, "%s", name);
    return s;
}

bool hd_file_turned(const HdProgram *p, int k) { return p->file_turned && p->file_turned[k]; }

bool hd_shape_fits(const char *path, const HdParam *q, const char *name, const char *have) {
    char want[96];
    hd_shape_text(want, sizeof want, q->rank, q->dim);
    if (have && !strcmp(have, want)) return true;
    if (have) hd_fail("%s: tensor '%s' is %s, this model's is %s", path, name, have, want);
    else hd_fail("%s has no tensor '%s' %s: it belongs to another model", path, name, want);
    return false;
}

bool hd_tensor_fits(const StFile *f, const HdParam *q, const char *name) {
    const StTensor *t = hd_st_find(f, name);
    char have[200];
    if (t) hd_shape_text(have, sizeof have, t->rank, t->dim);
    return hd_shape_fits(f->path, q, name, t ? have : NULL);
}
