// --init: weights from safetensors. Tensors are found by the names that parameters have in files. Every rank reads
// exactly what it holds.
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/state.h"
#include "runtime/json_read.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    const char *path; // as it was given, or of the index in a folder
    int n;
    char **names;
    StFile *files;
    bool own_names; // a checkpoint: parameters have their own names there
    const StTensor **tensor; // of each parameter, and the file that holds it
    const StFile **of;
} Weights;

static bool exists(const char *path) {
    struct stat st;
    return !stat(path, &st);
}

static char *beside(const char *path, const char *name) { // a file in the folder of `path`; malloc'ed
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    char *all = malloc(n + strlen(name) + 1);
    if (all) sprintf(all, "%.*s%s", (int)n, path, name);
    return all;
}

static bool add_file(Weights *w, char *name) { // takes over `name`; a file that is there already is left out
    for (int i = 0; name && i < w->n; i++)
        if (!strcmp(w->names[i], name)) {
            free(name);
            return true;
        }
    char **names = name ? realloc(w->names, sizeof *names * (size_t)(w->n + 1)) : NULL;
    StFile *files = names ? realloc(w->files, sizeof *files * (size_t)(w->n + 1)) : NULL;
    if (names) w->names = names;
    if (files) w->files = files;
    if (!files) {
        free(name);
        return hd_fail("out of memory");
    }
    w->names[w->n] = name;
    if (!hd_st_open(&w->files[w->n], name)) {
        free(name);
        return false;
    }
    w->n++;
    return true;
}

// --- an index: {"metadata": {..}, "weight_map": {"tensor": "file", ...}}

static bool weight_map(Weights *w, HdJson *j) { // false with or without hd_fail
    if (!hd_json_take(j, '{')) return false;
    if (hd_json_take(j, '}')) return true;
    do {
        char *tensor = hd_json_text(j), *file = tensor && hd_json_take(j, ':') ? hd_json_text(j) : NULL;
        free(tensor);
        if (!file) return false;
        const bool inside = !strchr(file, '/') || hd_fail("%s names a file outside of its folder, %s", w->path, file);
        char *path = inside ? beside(w->path, file) : NULL;
        free(file);
        if (!inside || !add_file(w, path)) return false;
    } while (hd_json_take(j, ','));
    return hd_json_take(j, '}');
}

static bool read_index(Weights *w, HdJson *j) {
    bool found = false;
    if (!hd_json_take(j, '{')) return false;
    do {
        char *key = hd_json_text(j);
        const bool map = key && !strcmp(key, "weight_map");
        found |= map;
        const bool ok = key && hd_json_take(j, ':') && (map ? weight_map(w, j) : hd_json_skip(j));
        free(key);
        if (!ok) return false;
    } while (hd_json_take(j, ','));
    return hd_json_take(j, '}') && found;
}

static bool open_index(Weights *w) {
    enum { MOST = 64 << 20 };
    FILE *f = fopen(w->path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st)) {
        hd_fail("cannot read %s: %s", w->path, strerror(errno));
        if (f) fclose(f);
        return false;
    }
    const size_t size = S_ISREG(st.st_mode) && st.st_size <= MOST ? (size_t)st.st_size : 0;
    char *text = malloc(size + 1);
    const bool read = text && size && fread(text, 1, size, f) == size;
    fclose(f);
    HdJson j = {text, text + size};
    hd_fail("%s is not an index of safetensors files: {\"weight_map\": {\"TENSOR\": \"FILE\", ...}} is expected",
            w->path);
    const bool ok = read && read_index(w, &j);
    free(text);
    return ok;
}

// --- all files

static bool open_weights(Weights *w, const char *path, char **inside) { // inside: room for a name that is found
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "latest/checkpoint.safetensors", "checkpoint.safetensors"};
    enum { NAMES = sizeof names / sizeof *names };
    struct stat st;
    const size_t n = strlen(path);
    w->path = path;
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        for (int i = 0; i < NAMES && !*inside; i++) {
            *inside = malloc(n + strlen(names[i]) + 2);
            if (!*inside) return hd_fail("out of memory");
            sprintf(*inside, "%s/%s", path, names[i]);
            if (exists(*inside)) break;
            free(*inside);
            *inside = NULL;
        }
        if (!*inside) return hd_fail("the folder %s holds neither %s nor %s nor a checkpoint", path, names[0],
                                         names[1]);
        w->path = *inside;
    }
    const size_t m = strlen(w->path);
    if (m > 5 && !strcmp(w->path + m - 5, ".json")) return open_index(w);
    return add_file(w, strdup(w->path));
}

static void close_weights(Weights *w) {
    for (int i = 0; i < w->n; i++) {
        hd_st_close(&w->files[i]);
        free(w->names[i]);
    }
    free(w->names);
    free(w->files);
    free(w->tensor);
    free(w->of);
}

static bool find_tensor(Weights *w, const HdProgram *p, int k) {
    const HdParam *q = &p->params[k];
    const char *name = w->own_names ? q->name : hd_file_name(p, k);
    char want[96], have[200], of[400] = "";
    for (int i = 0; i < w->n && !w->tensor[k]; i++) {
        w->tensor[k] = hd_st_find(&w->files[i], name);
        w->of[k] = &w->files[i];
    }
    hd_shape_text(want, sizeof want, q->rank, q->dim);
    if (strcmp(name, q->name)) snprintf(of, sizeof of, " for parameter %s", q->name);
    if (!w->tensor[k])
        return hd_fail("%s has no tensor '%s' %s%s: it belongs to another model", w->path, name, want, of);
    hd_shape_text(have, sizeof have, w->tensor[k]->rank, w->tensor[k]->dim);
    if (!strcmp(have, want)) return true;
    if (*of) snprintf(of, sizeof of, " (parameter %s)", q->name);
    return hd_fail("%s: tensor '%s' is %s, this model's is %s%s", w->of[k]->path, name, have, want, of);
}

static bool is_taken(const Weights *w, const HdProgram *p, const StTensor *t) {
    for (int k = 0; k < p->n_params; k++)
        if (w->tensor[k] == t) return true;
    return false;
}

// Where parameters have names in files, each tensor must be one of them: a layer or a head that a model leaves out
// makes another model. Other programs leave alone what they do not know.
static bool nothing_else(const Weights *w, const HdProgram *p) {
    for (int i = 0; p->file_names && !w->own_names && i < w->n; i++)
        for (int t = 0; t < w->files[i].n; t++) {
            const StTensor *tensor = &w->files[i].tensors[t];
            char have[200];
            if (is_taken(w, p, tensor)) continue;
            hd_shape_text(have, sizeof have, tensor->rank, tensor->dim);
            return hd_fail("%s: tensor '%s' %s is no parameter of model %s", w->files[i].path, tensor->name, have,
                           p->model);
        }
    return true;
}

static bool find_all(Weights *w, const HdProgram *p) {
    w->tensor = calloc((size_t)p->n_params + 1, sizeof *w->tensor);
    w->of = calloc((size_t)p->n_params + 1, sizeof *w->of);
    if (!w->tensor || !w->of) return hd_fail("out of memory");
    const char *format = w->n ? hd_st_meta(&w->files[0], "heddle_checkpoint") : NULL;
    w->own_names = format != NULL;
    if (format && (!strcmp(format, HD_MANIFEST) || !strcmp(format, HD_MANIFEST_FLAT)))
        return hd_fail("%s lists the shards of a checkpoint and holds no weights itself: --resume=DIR --export=FILE "
                       "writes them as one file",
                       w->path);
    for (int k = 0; k < p->n_params; k++)
        if (!find_tensor(w, p, k)) return false;
    return nothing_else(w, p);
}

static bool import_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    const Weights *w = data;
    const HdParam *q = &x->program->params[k];
    if (hd_st_floats(w->of[k], w->tensor[k], first, n, v)) return hd_put_weights(x, q, first, n, v);
    return hd_fail("%s: tensor '%s' is %s; F32, BF16 and F16 are read", w->of[k]->path, w->tensor[k]->name,
                   w->tensor[k]->dtype);
}

bool hd_state_import(HdExec *x, const char *path) {
    Weights w = {0};
    char *inside = NULL;
    const bool ok = open_weights(&w, path, &inside) && find_all(&w, x->program) &&
                    hd_spread_pieces(x, HD_COMPUTE, import_piece, &w);
    close_weights(&w);
    free(inside);
    return ok;
}
