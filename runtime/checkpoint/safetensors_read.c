// Reading safetensors: a small strict JSON reader for the header's fixed grammar, every offset checked against the
// file.
#include "runtime/dtypes.h"
#include "runtime/base/json_read.h"
#include "runtime/checkpoint/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct { HdJson text; StFile *f; } Json;

static int integers(Json *j, int64_t *v, int most) { // [a, b]: how many; -1: malformed
    int n = 0;
    if (!hd_json_take(&j->text, '[')) return -1;
    if (hd_json_take(&j->text, ']')) return 0;
    do {
        if (n == most || !hd_json_integer(&j->text, &v[n++])) return -1;
    } while (hd_json_take(&j->text, ','));
    return hd_json_take(&j->text, ']') ? n : -1;
}

static void *grow(void *p, int n, size_t size) { // room for one more
    return (n & (n - 1)) == 0 ? realloc(p, size * (size_t)(n ? 2 * n : 1)) : p;
}

static bool metadata(Json *j) {
    if (!hd_json_take(&j->text, '{')) return false;
    if (hd_json_take(&j->text, '}')) return true;
    do {
        StFile *f = j->f;
        StMeta *grown = grow(f->meta, f->n_meta, sizeof *grown);
        if (!grown) return false;
        f->meta = grown;
        StMeta *m = &f->meta[f->n_meta];
        *m = (StMeta){hd_json_text(&j->text), NULL};
        f->n_meta++;
        if (!m->key || !hd_json_take(&j->text, ':') || !(m->value = hd_json_text(&j->text))) return false;
    } while (hd_json_take(&j->text, ','));
    return hd_json_take(&j->text, '}');
}

static const HdDtypeInfo *known(const char *dtype) {
    for (int i = 0; i < HD_DTYPES; i++)
        if (!strcmp(dtype, hd_dtypes[i].safetensors)) return &hd_dtypes[i];
    return NULL;
}

static int64_t width(const char *dtype) {
    static const struct { const char *name; int64_t bytes;
    } others[] = {{"I64", 8}, {"U64", 8},  {"U32", 4},     {"I16", 2},    {"U16", 2},
                  {"I8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    if (known(dtype)) return (int64_t)known(dtype)->bytes;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(dtype, others[i].name)) return others[i].bytes;
    return 0;
}

static bool consistent(const StFile *f, const StTensor *t) {
    int64_t bytes = width(t->dtype);
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] && bytes > INT64_MAX / 2 / t->dim[i]) return false;
        bytes *= t->dim[i];
    }
    return t->begin >= 0 && t->begin <= t->end && t->end <= (int64_t)f->data_bytes &&
           (t->end - t->begin == bytes || !width(t->dtype));
}

static bool tensor(Json *j, StTensor *t) {
    if (!hd_json_take(&j->text, '{')) return false;
    int64_t range[2] = {-1, -1};
    do {
        char *key = hd_json_text(&j->text);
        bool ok = key && hd_json_take(&j->text, ':');
        if (ok && !strcmp(key, "dtype")) {
            char *d = hd_json_text(&j->text);
            ok = d && strlen(d) < sizeof t->dtype;
            if (ok) strcpy(t->dtype, d);
            free(d);
        } else if (ok && !strcmp(key, "shape")) {
            t->rank = integers(j, t->dim, 8);
            ok = t->rank >= 0;
        } else if (ok && !strcmp(key, "data_offsets")) {
            ok = integers(j, range, 2) == 2;
        } else {
            ok = false;
        }
        free(key);
        if (!ok) return false;
    } while (hd_json_take(&j->text, ','));
    t->begin = range[0];
    t->end = range[1];
    return hd_json_take(&j->text, '}') && consistent(j->f, t);
}

static bool entry(Json *j) { // "name": tensor, or the metadata
    StFile *f = j->f;
    char *name = hd_json_text(&j->text);
    if (!name || !hd_json_take(&j->text, ':')) {
        free(name);
        return false;
    }
    if (!strcmp(name, "__metadata__")) {
        free(name);
        return metadata(j);
    }
    StTensor *grown = grow(f->tensors, f->n, sizeof *grown);
    if (!grown) {
        free(name);
        return false;
    }
    f->tensors = grown;
    f->tensors[f->n] = (StTensor){.name = name};
    return tensor(j, &f->tensors[f->n++]);
}

static bool header(Json *j) {
    if (!hd_json_take(&j->text, '{')) return false;
    if (!hd_json_take(&j->text, '}')) {
        do {
            if (!entry(j)) return false;
        } while (hd_json_take(&j->text, ','));
        if (!hd_json_take(&j->text, '}')) return false;
    }
    hd_json_blanks(&j->text);
    return j->text.p == j->text.end;
}

static int by_begin(const void *a, const void *b) {
    const StTensor *x = *(const StTensor *const *)a, *y = *(const StTensor *const *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end != y->end ? (x->end < y->end ? -1 : 1) : 0;
}

// Two tensors in the same bytes: a name that is there twice, or a header that was changed. false after hd_fail.
static bool are_disjoint(const StFile *f) {
    const StTensor **list = malloc(sizeof *list * (size_t)(f->n + 1));
    bool good = list != NULL;
    if (!list) return hd_fail("%s: no memory for its %d tensors", f->path, f->n);
    for (int i = 0; i < f->n; i++) list[i] = &f->tensors[i];
    qsort(list, (size_t)f->n, sizeof *list, by_begin);
    for (int i = 1; i < f->n && good; i++) {
        const StTensor *a = list[i - 1], *b = list[i];
        if (a->end <= b->begin) continue;
        good = hd_fail("%s: tensors '%s' and '%s' share bytes %lld to %lld of its data: write the file again", f->path,
                       a->name, b->name, (long long)b->begin, (long long)(a->end < b->end ? a->end : b->end) - 1);
    }
    free(list);
    return good;
}

// What a file is by how it begins, with the way to safetensors; NULL: nothing is known of it.
static const char *other_format(const unsigned char *at, size_t bytes) {
    static const struct { const char *magic; size_t bytes; const char *is; } known[] = {
#define SAVE "safetensors.torch.save_file(torch.load(FILE, map_location='cpu', weights_only=True), 'model.safetensors')"
        {"PK\3\4", 4, "a file of torch.save; in Python: " SAVE},
        {"\x80\2", 2, "a file of an old torch.save, or another Python pickle; in Python: " SAVE},
        {"GGUF", 4, "a model of llama.cpp (GGUF); take the safetensors files that it was made from"},
        {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file, as Keras writes; save its arrays with safetensors.numpy.save_file"},
        {"\xc6\xd7\x34\x01", 4, "a model of llm.c; start from the weights that it was made from, such as gpt2 of the "
                                   "hub, or save its tensors with safetensors.numpy.save_file"}};
    for (size_t i = 0; at && i < sizeof known / sizeof *known; i++)
        if (bytes >= known[i].bytes && !memcmp(at, known[i].magic, known[i].bytes)) return known[i].is;
    return NULL;
}

bool hd_st_open(StFile *f, const char *path) {
    *f = (StFile){.path = path};
    int fd = open(path, O_RDONLY | O_NONBLOCK); // open() must not wait for a pipe, which is refused below
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        hd_fail("cannot read %s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return false;
    }
    f->map_bytes = S_ISREG(st.st_mode) ? (size_t)st.st_size : 0;
    void *m = f->map_bytes ? mmap(NULL, f->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    f->map = m == MAP_FAILED ? NULL : m;
    if (f->map_bytes && !f->map) return hd_fail("cannot map %s: %s", path, strerror(errno));
    uint64_t n = 0;
    if (f->map_bytes >= 8)
        for (int i = 7; i >= 0; i--) n = n << 8 | f->map[i];
    const char *is = other_format(f->map, f->map_bytes);
    if (!f->map || f->map_bytes < 8 || n > f->map_bytes - 8) {
        if (S_ISDIR(st.st_mode)) hd_fail("%s is a folder, not a safetensors file", path);
        else if (is) hd_fail("%s is not a safetensors file: it is %s", path, is);
        else hd_fail("%s is not a safetensors file, or is cut short inside its header", path);
        hd_st_close(f);
        return false;
    }
    f->data = f->map + 8 + n;
    f->data_bytes = f->map_bytes - 8 - (size_t)n;
    Json j = {{(const char *)f->map + 8, (const char *)f->data}, f};
    if (!header(&j)) {
        hd_fail("%s: malformed header near byte %lld, or data cut short", path,
                (long long)(j.text.p - (const char *)f->map));
        hd_st_close(f);
        return false;
    }
    if (are_disjoint(f)) return true;
    hd_st_close(f);
    return false;
}

void hd_st_close(StFile *f) {
    if (f->map) munmap((void *)(uintptr_t)f->map, f->map_bytes);
    for (int i = 0; i < f->n; i++) free(f->tensors[i].name);
    for (int i = 0; i < f->n_meta; i++) {
        free(f->meta[i].key);
        free(f->meta[i].value);
    }
    free(f->tensors);
    free(f->meta);
    *f = (StFile){0};
}

const StTensor *hd_st_find(const StFile *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->tensors[i].name, name)) return &f->tensors[i];
    return NULL;
}

const char *hd_st_meta(const StFile *f, const char *key) {
    for (int i = 0; i < f->n_meta; i++)
        if (!strcmp(f->meta[i].key, key)) return f->meta[i].value;
    return NULL;
}

bool hd_st_floats(const StFile *f, const StTensor *t, int64_t first, int64_t count, float *out) {
    const HdDtypeInfo *d = known(t->dtype);
    if (!d || !d->fits_f32) return false;
    hd_load_f32((HdDtype)(d - hd_dtypes), f->data + t->begin, first, count, out);
    return true;
}

bool hd_st_checksum_ok(const StFile *f) {
    const StTensor *t = hd_st_find(f, "__checksum__");
    if (!t || t->end - t->begin != 16 || t->end != (int64_t)f->data_bytes) return false;
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits(f->map, f->map_bytes - 16));
    return !memcmp(c.digest, f->data + t->begin, 16);
}
