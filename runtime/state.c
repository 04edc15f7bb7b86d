// Parameters in and out of the device arena, in pieces of a bounded size.
#include "runtime/state.h"
#include "runtime/random.h"
#include "runtime/safetensors.h"
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { PIECE = 1 << 22 }; // elements moved at a time

static const HdBackend *backend(const HdProgram *p) { return p->backend; }

static uint16_t to_bf16(float f) { // round to nearest even; NaN stays NaN
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 64);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static uint16_t to_f16(float f) { // round to nearest even
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); // rounds past the largest, 65504
    if (u < 0x38800000u) {                                  // subnormal: a multiple of 2^-24
        float a;
        memcpy(&a, &u, 4);
        return (uint16_t)(sign | (uint16_t)lrintf(a * 0x1p24f));
    }
    return (uint16_t)(sign | (uint16_t)((u + 0xfffu + (u >> 13 & 1) - 0x38000000u) >> 13));
}

static const HdBucket *bucket(const HdProgram *p, const HdParam *q) { return &p->buckets[q->bucket]; }

// Byte offset of element `first` of a parameter in its bucket's storage at `base`, of elements of `size` bytes.
static int64_t element(const HdParam *q, int64_t base, int64_t first, int64_t size) { return base + (q->at + first) * size; }

// Writes elements [first, first+n) of a parameter: the master copy and, where it is apart, the compute copy.
static bool put(HdExec *x, const HdProgram *p, const HdParam *q, int64_t first, int64_t n, const float *v) {
    const HdBucket *b = bucket(p, q);
    if (!backend(p)->write(x, element(q, b->master, first, 4), v, (size_t)n * 4)) return false;
    if (b->compute < 0) return true;
    if (b->compute_dtype == HD_F32) return backend(p)->write(x, element(q, b->compute, first, 4), v, (size_t)n * 4);
    uint16_t *h = malloc((size_t)n * 2);
    if (!h) {
        hd_fail("out of memory");
        return false;
    }
    for (int64_t i = 0; i < n; i++) h[i] = b->compute_dtype == HD_BF16 ? to_bf16(v[i]) : to_f16(v[i]);
    bool ok = backend(p)->write(x, element(q, b->compute, first, 2), h, (size_t)n * 2);
    free(h);
    return ok;
}

typedef struct { const HdParam *q; uint64_t seed, stream; int64_t first, count; float *out; } Fill;

static void *fill(void *arg) {
    const Fill *f = arg;
    if (f->q->init == HD_INIT_NORMAL || f->q->init == HD_INIT_UNIFORM) {
        hd_random_fill(f->seed, f->stream, f->first, f->count, f->q->init == HD_INIT_NORMAL, f->q->std, f->out);
        return NULL;
    }
    float v = f->q->init == HD_INIT_ZEROS ? 0 : f->q->init == HD_INIT_ONES ? 1 : (float)f->q->std;
    for (int64_t i = 0; i < f->count; i++) f->out[i] = v;
    return NULL;
}

static void fill_parallel(Fill all) { // the values do not depend on how the work is cut
    enum { MOST = 16 };
    Fill part[MOST];
    pthread_t thread[MOST];
    bool started[MOST];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = all.count < 65536 || cores < 2 ? 1 : cores > MOST ? MOST : (int)cores;
    for (int i = 0; i < n; i++) {
        int64_t lo = all.count * i / n, hi = all.count * (i + 1) / n;
        part[i] = all;
        part[i].first += lo;
        part[i].out += lo;
        part[i].count = hi - lo;
        started[i] = i + 1 < n && !pthread_create(&thread[i], NULL, fill, &part[i]);
        if (!started[i]) fill(&part[i]);
    }
    for (int i = 0; i < n; i++)
        if (started[i]) pthread_join(thread[i], NULL);
}

typedef bool PieceFn(HdExec *x, const HdProgram *p, int k, int64_t first, int64_t n, float *v, void *data);

static bool each_piece(HdExec *x, const HdProgram *p, PieceFn *fn, void *data) {
    float *v = malloc(sizeof *v * PIECE);
    bool ok = v != NULL;
    if (!ok) hd_fail("out of memory");
    for (int k = 0; ok && k < p->n_params; k++)
        for (int64_t at = 0; ok && at < p->params[k].count; at += PIECE) {
            int64_t n = p->params[k].count - at;
            ok = fn(x, p, k, at, n < PIECE ? n : PIECE, v, data);
        }
    free(v);
    return ok;
}

static bool init_piece(HdExec *x, const HdProgram *p, int k, int64_t first, int64_t n, float *v, void *data) {
    fill_parallel((Fill){&p->params[k], *(uint64_t *)data, (uint64_t)k, first, n, v});
    return put(x, p, &p->params[k], first, n, v);
}

bool hd_state_init(HdExec *x, const HdProgram *p, int64_t seed) {
    uint64_t s = (uint64_t)seed;
    return each_piece(x, p, init_piece, &s);
}

static bool same_shape(const HdParam *q, const StTensor *t) {
    if (t->rank != q->rank) return false;
    for (int i = 0; i < q->rank; i++)
        if (t->dim[i] != q->dim[i]) return false;
    return true;
}

static void shape_text(char *buf, size_t size, int rank, const int64_t *dim) {
    size_t n = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < rank && n < size; i++) n += (size_t)snprintf(buf + n, size - n, "%s%lld", i ? "," : "", (long long)dim[i]);
    if (n < size) snprintf(buf + n, size - n, "]");
}

static bool fits(const StFile *f, const HdParam *q, const char *name) {
    const StTensor *t = hd_st_find(f, name);
    char want[96], have[96];
    shape_text(want, sizeof want, q->rank, q->dim);
    if (!t) {
        hd_fail("%s has no tensor '%s' %s: it is of another model", f->path, name, want);
        return false;
    }
    shape_text(have, sizeof have, t->rank, t->dim);
    if (!same_shape(q, t)) hd_fail("%s: tensor '%s' is %s, this model's is %s", f->path, name, have, want);
    return same_shape(q, t);
}

static bool import_piece(HdExec *x, const HdProgram *p, int k, int64_t first, int64_t n, float *v, void *data) {
    const StFile *f = data;
    const HdParam *q = &p->params[k];
    const StTensor *t = hd_st_find(f, q->name);
    if (!hd_st_floats(f, t, first, n, v)) {
        hd_fail("%s: tensor '%s' is %s; F32, BF16 and F16 are read", f->path, q->name, t->dtype);
        return false;
    }
    return put(x, p, q, first, n, v);
}

bool hd_state_import(HdExec *x, const HdProgram *p, const char *path) {
    StFile f;
    if (!hd_st_open(&f, path)) return false;
    bool ok = true;
    for (int k = 0; ok && k < p->n_params; k++) ok = fits(&f, &p->params[k], p->params[k].name);
    ok = ok && each_piece(x, p, import_piece, &f);
    hd_st_close(&f);
    return ok;
}

typedef struct { StWriter w; int role; } Save;
static const char *const roles[] = {"", "moment1.", "moment2."};

static int64_t home(const HdBucket *b, int role) { return role == 0 ? b->master : role == 1 ? b->moment1 : b->moment2; }

static bool save_piece(HdExec *x, const HdProgram *p, int k, int64_t first, int64_t n, float *v, void *data) {
    Save *s = data;
    if (!backend(p)->read(x, element(&p->params[k], home(bucket(p, &p->params[k]), s->role), first, 4), v, (size_t)n * 4)) return false;
    hd_st_put(&s->w, v, (size_t)n * 4);
    return !s->w.failed;
}

static bool write_state(HdExec *x, const HdProgram *p, const char *path, int n_roles, int n_meta, const StMeta *meta) {
    Save s = {.role = 0};
    if (!hd_st_create(&s.w, path, n_roles > 1)) return false; // other programs expect parameters and nothing else
    for (int r = 0; r < n_roles; r++)
        for (int k = 0; k < p->n_params; k++) {
            char name[512];
            snprintf(name, sizeof name, "%s%s", roles[r], p->params[k].name);
            hd_st_declare(&s.w, name, p->params[k].rank, p->params[k].dim);
        }
    hd_st_begin(&s.w, n_meta, meta);
    for (s.role = 0; s.role < n_roles && !s.w.failed; s.role++)
        if (!each_piece(x, p, save_piece, &s)) s.w.failed = true; // the message is already there
    return hd_st_finish(&s.w);
}

bool hd_state_export(HdExec *x, const HdProgram *p, const char *path) {
    StMeta meta[] = {{(char *)"format", (char *)"pt"}, {(char *)"model", (char *)(uintptr_t)p->model}};
    return write_state(x, p, path, 1, 2, meta);
}

static bool checkpoint_path(const char *dir, char *path, size_t size) {
    if ((size_t)snprintf(path, size, "%s/checkpoint.safetensors", dir) < size) return true;
    hd_fail("the folder's name has %zu bytes; at most %zu are possible", strlen(dir), size - sizeof "/checkpoint.safetensors");
    return false;
}

bool hd_state_save(HdExec *x, const HdProgram *p, const char *dir, const Progress *at) {
    char path[4096], step[24], seed[24], tokens[24];
    if (mkdir(dir, 0777) && errno != EEXIST) {
        hd_fail("cannot make the folder %s: %s", dir, strerror(errno));
        return false;
    }
    if (!checkpoint_path(dir, path, sizeof path)) return false;
    snprintf(step, sizeof step, "%lld", (long long)at->step);
    snprintf(seed, sizeof seed, "%lld", (long long)at->seed);
    snprintf(tokens, sizeof tokens, "%lld", (long long)at->data_tokens);
    StMeta meta[] = {{(char *)"heddle_checkpoint", (char *)"1"}, {(char *)"model", (char *)(uintptr_t)p->model},
                     {(char *)"model_hash", (char *)(uintptr_t)p->model_hash}, {(char *)"step", step}, {(char *)"seed", seed},
                     {(char *)"data_tokens", tokens}};
    return write_state(x, p, path, 3, 6, meta);
}

static bool resume_piece(HdExec *x, const HdProgram *p, int k, int64_t first, int64_t n, float *v, void *data) {
    const StFile *f = data;
    const HdParam *q = &p->params[k];
    for (int r = 0; r < 3; r++) {
        char name[512];
        snprintf(name, sizeof name, "%s%s", roles[r], q->name);
        if (!hd_st_floats(f, hd_st_find(f, name), first, n, v)) {
            hd_fail("%s: tensor '%s' is not F32", f->path, name);
            return false;
        }
        bool ok = r == 0 ? put(x, p, q, first, n, v) : backend(p)->write(x, element(q, home(bucket(p, q), r), first, 4), v, (size_t)n * 4);
        if (!ok) return false;
    }
    return true;
}

static int64_t count_of(const StFile *f, const char *key, int64_t most) { // -1: absent or no such number
    const char *text = hd_st_meta(f, key);
    char *end;
    if (!text || *text < '0' || *text > '9') return -1;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    return *end || errno || v > most ? -1 : v;
}

static bool acceptable(const StFile *f, const HdProgram *p) {
    const char *version = hd_st_meta(f, "heddle_checkpoint"), *model = hd_st_meta(f, "model"), *hash = hd_st_meta(f, "model_hash");
    if (!version || strcmp(version, "1")) {
        hd_fail("%s is no checkpoint of this program (to start from its weights, use --init)", f->path);
        return false;
    }
    if (!hd_st_checksum_ok(f)) {
        hd_fail("%s is damaged: its checksum does not match its contents", f->path);
        return false;
    }
    for (int k = 0; k < p->n_params; k++)
        for (int r = 0; r < 3; r++) {
            char name[512];
            snprintf(name, sizeof name, "%s%s", roles[r], p->params[k].name);
            if (!fits(f, &p->params[k], name)) return false;
        }
    if (count_of(f, "step", INT32_MAX) < 0 || count_of(f, "seed", INT64_MAX) < 0 || count_of(f, "data_tokens", INT64_MAX) < 0) {
        hd_fail("%s: its step, seed or data_tokens is no number this program can go on from", f->path);
        return false;
    }
    if (!hash || strcmp(hash, p->model_hash)) {
        hd_fail("%s was written by another model or train block (%s, hash %s; this program: %s, hash %s)", f->path, model ? model : "?",
                hash ? hash : "none", p->model, p->model_hash);
        return false;
    }
    return true;
}

bool hd_state_resume(HdExec *x, const HdProgram *p, const char *dir, Progress *at) {
    char path[4096];
    StFile f;
    if (!checkpoint_path(dir, path, sizeof path) || !hd_st_open(&f, path)) return false;
    bool ok = acceptable(&f, p) && each_piece(x, p, resume_piece, &f);
    if (ok) {
        *at = (Progress){count_of(&f, "step", INT32_MAX), count_of(&f, "seed", INT64_MAX), count_of(&f, "data_tokens", INT64_MAX)};
        int32_t step = (int32_t)at->step;
        if (p->step >= 0) ok = backend(p)->write(x, p->step, &step, 4);
    }
    hd_st_close(&f);
    return ok;
}

typedef struct { FILE *f; XXH3_state_t *state; } Hashing;

static bool hash_piece(HdExec *x, const HdProgram *p, int k, int64_t first, int64_t n, float *v, void *data) {
    Hashing *h = data;
    const HdParam *q = &p->params[k];
    if (!first) XXH3_128bits_reset(h->state);
    if (!backend(p)->read(x, element(q, bucket(p, q)->master, first, 4), v, (size_t)n * 4)) return false;
    XXH3_128bits_update(h->state, v, (size_t)n * 4);
    if (first + n < q->count) return true;
    XXH128_hash_t d = XXH3_128bits_digest(h->state);
    fprintf(h->f, "param %s %016llx%016llx\n", q->name, (unsigned long long)d.high64, (unsigned long long)d.low64);
    return true;
}

bool hd_state_hashes(HdExec *x, const HdProgram *p, FILE *f) {
    Hashing h = {f, XXH3_createState()};
    if (!h.state) hd_fail("out of memory");
    bool ok = h.state && each_piece(x, p, hash_piece, &h);
    XXH3_freeState(h.state);
    return ok;
}

static bool check_piece(HdExec *x, const HdProgram *p, int k, int64_t first, int64_t n, float *v, void *data) {
    (void)data;
    const HdParam *q = &p->params[k];
    const HdBucket *b = bucket(p, q);
    const struct { const char *what; int64_t at; } role[] = {{"gradient of ", b->grad}, {"parameter ", b->master}, {"first moment of ", b->moment1}, {"second moment of ", b->moment2}};
    for (int r = 0; r < 4; r++) {
        if (role[r].at < 0) continue;
        if (!backend(p)->read(x, element(q, role[r].at, first, 4), v, (size_t)n * 4)) return false;
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(v[i])) {
                hd_fail("%s%s: element %lld is %g", role[r].what, q->name, (long long)(first + i), (double)v[i]);
                return false;
            }
    }
    return true;
}

bool hd_state_check(HdExec *x, const HdProgram *p) { return each_piece(x, p, check_piece, NULL); }
