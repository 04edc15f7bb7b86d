// --init: weights from safetensors: which files they are in, and their values. Every rank reads exactly what it holds.
#include "runtime/checkpoint/import.h"
#include "runtime/checkpoint/keep.h"
#include "runtime/base/json_read.h"
#include "runtime/world/world.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

// Weights of a folder that PyTorch has written.
static const char *torch_folder(const char *path) {
    static const char *const written[][2] = {
        {"pytorch_model.bin", ": pytorch_model.bin is of torch.save; in Python: from_pretrained(FOLDER)"
                              ".save_pretrained(NEW) of transformers writes safetensors"},
        {"pytorch_model.bin.index.json", ": its pytorch_model-*.bin are of torch.save; in Python: "
                                         "from_pretrained(FOLDER).save_pretrained(NEW) of transformers writes "
                                         "safetensors"},
        {".metadata", ": it is a distributed checkpoint of PyTorch; python -m "
                      "torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE makes one file of it, and "
                      "safetensors.torch.save_file writes that"}};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, written[i][0]);
        if (exists(name)) return written[i][1];
    }
    return "";
}

static bool is_of_hub(const char *path) { // OWNER/NAME, and there is no folder OWNER
    const char *slash = strchr(path, '/');
    char owner[256];
    const size_t n = slash ? (size_t)(slash - path) : 0;
    if (!n || n >= sizeof owner || *path == '.' || !slash[1] || strchr(slash + 1, '/')) return false;
    memcpy(owner, path, n);
    owner[n] = 0;
    return !exists(owner);
}

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
        const int64_t kept = *inside ? -1 : hd_keep_newest_in(path);
        if (kept >= 0)
            return hd_fail("the folder %s has no link `latest` to a checkpoint; the newest in it is "
                           "--init=%s/checkpoint-%lld", path, path, (long long)kept);
        if (!*inside) return hd_fail("the folder %s holds neither %s nor %s nor a checkpoint%s", path, names[0],
                                     names[1], torch_folder(path));
        w->path = *inside;
    }
    if (stat(path, &st) && is_of_hub(path))
        return hd_fail("cannot read %s: %s; a model of the hub is downloaded first, as hf download %s "
                       "--local-dir=FOLDER does", path, strerror(errno), path);
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
    hd_match_free(w);
}

// Elements [first, first+n) of a matrix whose file has the other axis first: for each row of the file, those that stand
// together there.
static bool turned_floats(const Weights *w, const HdParam *q, int k, int64_t first, int64_t n, float *v) {
    const int64_t rows = q->dim[0], cols = q->dim[1];
    float *run = malloc(sizeof *run * (size_t)(n / cols + 2));
    bool ok = run != NULL;
    for (int64_t c = 0; ok && c < cols; c++) {
        // rows that have column c within the piece
        const int64_t from = (first - c + cols - 1) / cols, end = (first + n - c + cols - 1) / cols;
        if (from >= end) continue;
        ok = hd_st_floats(w->of[k][0]->file, w->of[k][0]->tensor, c * rows + from, end - from, run);
        for (int64_t r = from; ok && r < end; r++) v[r * cols + c - first] = run[r - from];
    }
    free(run);
    return ok;
}

// Elements [first, first+n) of the whole of a parameter, which is one tensor or one for each number of its first axis.
// Result: the tensor whose type is not read; NULL: all are.
static const WeightsEntry *plain_floats(const Weights *w, int k, int64_t each, int64_t first, int64_t n, float *v) {
    for (int64_t at = first; at < first + n;) {
        const WeightsEntry *e = w->of[k][at / each];
        const int64_t left = each - at % each, more = left < first + n - at ? left : first + n - at;
        if (!hd_st_floats(e->file, e->tensor, at % each, more, v + (at - first))) return e;
        at += more;
    }
    return NULL;
}

static bool import_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    const Weights *w = data;
    const HdParam *q = &x->program->params[k];
    const bool turned = !w->own_names && hd_file_turned(x->program, k);
    const HdParam whole = hd_whole(x->program, q);
    const WeightsEntry *wrong = NULL;
    if (!w->of[k]) return true; // it starts fresh
    const int64_t each = whole.count / (w->own_names ? 1 : hd_file_tensors(x->program, k));
    for (int64_t at = 0; !wrong && at < n;) {
        const HdSpan run = hd_whole_run(x->program, q, hd_part(x->program, q, x->world->rank), first + at, n - at);
        if (run.first < 0) memset(v + at, 0, sizeof *v * (size_t)run.count);
        else if (!turned) wrong = plain_floats(w, k, each, run.first, run.count, v + at);
        else if (!turned_floats(w, &whole, k, run.first, run.count, v + at)) wrong = w->of[k][0];
        at += run.count;
    }
    if (!wrong) return hd_put_given(x, q, first, n, v);
    return hd_fail("%s: tensor '%s' is %s; F32, BF16 and F16 are read", wrong->file->path, wrong->tensor->name,
                   wrong->tensor->dtype);
}

bool hd_state_import(HdExec *x, const char *path, const HdInitRules *rules) {
    static const HdInitRules none = {0};
    Weights w = {.rules = rules ? rules : &none};
    char *inside = NULL;
    const bool ok = open_weights(&w, path, &inside) && hd_match_tensors(&w, x->program) &&
                    (!w.fresh || hd_state_init(x, w.rules->seed)) &&
                    hd_spread_pieces(x, HD_COMPUTE, import_piece, &w);
    close_weights(&w);
    free(inside);
    return ok;
}
