// Checks, before the first step, the files that a run writes: an output that cannot be written, or would overwrite an
// input, is reported before any work can be lost.
#include "runtime/checkpoint/keep.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/run/options.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct { const char *option, *path; } OutputPath;

static const char *name_in_folder(const char *path, char **folder) { // to be freed
    const char *slash = strrchr(path, '/');
    *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    return slash ? slash + 1 : path;
}

static bool same(const struct stat *s, const struct stat *t) {
    return s->st_dev == t->st_dev && s->st_ino == t->st_ino;
}

// Files that are not there yet are the same when they would be made in one folder under one name.
static bool same_file(const char *a, const char *b) {
    struct stat s, t;
    if (!strcmp(a, b)) return true;
    if (!stat(a, &s) && !stat(b, &t)) return same(&s, &t) && S_ISREG(s.st_mode);
    char *in_a, *in_b;
    const bool named = !strcmp(name_in_folder(a, &in_a), name_in_folder(b, &in_b));
    const bool one = named && in_a && in_b && !stat(in_a, &s) && !stat(in_b, &t) && same(&s, &t);
    free(in_a);
    free(in_b);
    return one;
}

static bool writable(const OutputPath *w) {
    struct stat st;
    const bool there = !stat(w->path, &st);
    int wrong = there && S_ISDIR(st.st_mode) ? EISDIR : 0;
    if (!wrong && there && access(w->path, W_OK)) wrong = errno;
    if (!wrong && !there) {
        char *folder;
        name_in_folder(w->path, &folder);
        if (!folder || stat(folder, &st)) wrong = errno;
        else if (!S_ISDIR(st.st_mode)) wrong = ENOTDIR;
        else if (access(folder, W_OK | X_OK)) wrong = errno;
        free(folder);
    }
    if (wrong) hd_fail("--%s: cannot write %s: %s", w->option, w->path, strerror(wrong));
    return !wrong;
}

static bool save_folder(const char *dir) {
    struct stat st;
    if (stat(dir, &st) && !hd_checkpoint_make(dir)) {
        char why[900];
        snprintf(why, sizeof why, "%s", hd_failure());
        return hd_fail("--save: %s", why);
    }
    int wrong = stat(dir, &st) ? errno : 0;
    if (!wrong && !S_ISDIR(st.st_mode)) wrong = ENOTDIR;
    if (!wrong && access(dir, W_OK | X_OK)) wrong = errno;
    if (wrong) hd_fail("--save: cannot make or write the folder %s: %s", dir, strerror(wrong));
    return !wrong;
}

// The file of a tensor format says by its name what others will take it for.
static bool named_right(const OutputPath *w) {
    static const char *const others[] = {".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".h5", ".npz", ".csv", ".json",
                                         ".bin"};
    const bool weights = !strcmp(w->option, "export"), array = !strcmp(w->option, "logits") ||
                                                               !strcmp(w->option, "output");
    for (size_t i = 0; (weights || array) && i < sizeof others / sizeof *others; i++)
        if (hd_format_ends(w->path, others[i]))
            return hd_fail("--%s=%s: %s is written, which no program expects in %s: end the name in %s", w->option,
                           w->path, weights ? "safetensors" : "numpy's format or safetensors", others[i],
                           weights ? ".safetensors" : ".npy or .safetensors");
    return true;
}

static bool begins(const char *head, const char *with) { return !strncmp(head, with, strlen(with)); }

static bool is_digest(const char *head) { // STEP LOSS NORM, in hexadecimal, or param NAME HASH
    const size_t step = strspn(head, "0123456789");
    const char *loss = head + step + strspn(head + step, " -");
    return begins(head, "param ") || (step && (begins(loss, "0x") || begins(loss, "nan ") || begins(loss, "inf ")));
}

// Whether a file that begins with `head` is what the option writes: an older one may be replaced, and nothing else.
static bool is_ours(const char *option, const unsigned char *bytes) {
    const char *head = (const char *)bytes;
    if (!strcmp(option, "log")) return begins(head, "{\"heddle\": ") || begins(head, "{\"step\": ");
    if (!strcmp(option, "digest")) return is_digest(head);
    if (!strcmp(option, "profile")) return begins(head, "{\"displayTimeUnit\": ");
    if (!strcmp(option, "timeline")) return begins(head, "<!DOCTYPE html>");
    return begins(head, "\x93NUMPY") || (!bytes[7] && bytes[8] == '{'); // safetensors: the length of its header first
}

// A checkpoint says in the header of its safetensors file that it is one.
static bool is_checkpoint(FILE *f, const unsigned char *head) {
    enum { MOST = 1 << 28 };
    size_t n = 0;
    for (int i = 0; i < 8; i++) n |= (size_t)head[i] << 8 * i;
    char *text = n < MOST ? malloc(n + 1) : NULL;
    const size_t got = text && !fseek(f, 8, SEEK_SET) ? fread(text, 1, n, f) : 0;
    if (text) text[got] = 0; // JSON has no NUL
    const bool found = text && strstr(text, "\"heddle_checkpoint\"");
    free(text);
    return found;
}

static bool replaces_ours(const OutputPath *w) {
    unsigned char head[33] = {0};
    struct stat st;
    FILE *f = stat(w->path, &st) || !S_ISREG(st.st_mode) || !st.st_size ? NULL : fopen(w->path, "rbe");
    if (!f) return true; // nothing is lost
    const bool read = fread(head, 1, sizeof head - 1, f) > 0, saved = head[8] == '{' && is_checkpoint(f, head);
    fclose(f);
    if (saved)
        return hd_fail("--%s=%s is a checkpoint: writing it would destroy that; give another name", w->option, w->path);
    return !read || is_ours(w->option, head) ||
           hd_fail("--%s=%s: the file is there and holds something else than --%s writes; give another name, or remove "
                   "it", w->option, w->path, w->option);
}

static bool apart(const OutputPath *w, const char *option, const char *path) {
    return !path || !same_file(w->path, path) ||
           hd_fail("--%s and --%s are one file, %s: writing one would destroy the other", option, w->option, w->path);
}

static bool apart_from_data(const OutputPath *w, const char *option, const FileList *data) {
    bool ok = true;
    for (int i = 0; ok && i < data->n; i++) ok = apart(w, option, data->at[i]);
    return ok;
}

// A checkpoint is found by its manifest, which no other output may replace.
static bool apart_from_checkpoint(const OutputPath *w, const char *option, const char *dir) {
    char folder[HD_CHECKPOINT_PATH], manifest[HD_CHECKPOINT_PATH] = "";
    if (!dir) return true;
    hd_checkpoint_find(dir, folder, manifest);
    return !same_file(w->path, manifest) ||
           hd_fail("--%s=%s is the manifest of the checkpoint in --%s=%s: writing it would destroy the checkpoint",
                   w->option, w->path, option, dir);
}

typedef struct { OutputPath at[7]; int n; } OutputPaths;

static OutputPaths outputs(const Options *o) { // that are given
    const OutputPath all[] = {
        {"log", o->log}, {"digest", o->digest}, {"export", o->as ? NULL : o->export_to},
        {"profile", o->profile}, {"timeline", o->timeline}, {"logits", o->logits},
        {"output", o->output}};
    OutputPaths given = {.n = 0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].path) given.at[given.n++] = all[i];
    return given;
}

static bool check_writes(const Options *o, const FileList *data, const FileList *val) {
    const OutputPaths writes = outputs(o);
    for (int i = 0; i < writes.n; i++) {
        const OutputPath *w = &writes.at[i];
        if (!apart_from_data(w, "data", data) || !apart_from_data(w, "val", val) || !apart(w, "init", o->init))
            return false;
        if (same_file(w->path, "/proc/self/exe"))
            return hd_fail("--%s=%s is this program: writing it would destroy the program", w->option, w->path);
        if (!named_right(w) || !apart_from_checkpoint(w, "save", o->save) ||
            !apart_from_checkpoint(w, "resume", o->resume))
            return false;
        for (int k = 0; k < i; k++)
            if (!apart(w, writes.at[k].option, writes.at[k].path)) return false;
        if (!writable(w)) return false;
    }
    return true;
}

// The files that an option gives an input; of input -1, those for no input by name.
static bool files_of(const HdInputs *p, const char *option, Names given, int input, FileList *files) {
    Names names;
    const bool ok = hd_feed_names(p, option, given, input, &names) && hd_files_expand(files, names);
    free(names.at);
    return ok;
}

bool hd_paths_check(const HdProgram *p, const Options *o) {
    bool ok = true;
    const HdInputs of_loss = hd_inputs(p), of_data = hd_options_inputs(p, o);
    const int n = of_data.n > of_loss.n ? of_data.n : of_loss.n;
    for (int i = -1; ok && i < n; i++) {
        FileList data = {0}, val = {0};
        ok = files_of(&of_data, "data", o->data, i, &data) && files_of(&of_loss, "val", o->val, i, &val) &&
             check_writes(o, &data, &val);
        hd_files_free(&data);
        hd_files_free(&val);
    }
    const OutputPaths writes = outputs(o);
    for (int i = 0; ok && i < writes.n; i++) ok = replaces_ours(&writes.at[i]);
    return ok && (!o->save || save_folder(o->save));
}
