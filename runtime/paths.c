// Checks, before the first step, the files that a run writes: an output that cannot be written, or would overwrite an
// input, is reported before any work can be lost.
#include "runtime/checkpoint/pieces.h"
#include "runtime/options.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct { const char *option, *path; } OutputPath;

static bool same_file(const char *a, const char *b) {
    struct stat s, t;
    if (!strcmp(a, b)) return true;
    return !stat(a, &s) && !stat(b, &t) && s.st_dev == t.st_dev && s.st_ino == t.st_ino && S_ISREG(s.st_mode);
}

static bool writable(const OutputPath *w) {
    struct stat st;
    const bool there = !stat(w->path, &st);
    int wrong = there && S_ISDIR(st.st_mode) ? EISDIR : 0;
    if (!wrong && there && access(w->path, W_OK)) wrong = errno;
    if (!wrong && !there) {
        const char *slash = strrchr(w->path, '/');
        char *folder = slash ? strndup(w->path, slash == w->path ? 1 : (size_t)(slash - w->path)) : strdup(".");
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

static bool apart(const OutputPath *w, const char *option, const char *path) {
    return !path || !same_file(w->path, path) ||
           hd_fail("--%s and --%s are one file, %s: writing one would destroy the other", option, w->option, w->path);
}

static bool apart_from_data(const OutputPath *w, const char *option, const FileList *data) {
    bool ok = true;
    for (int i = 0; ok && i < data->n; i++) ok = apart(w, option, data->at[i]);
    return ok;
}

static bool check_writes(const Options *o, const FileList *data, const FileList *val) {
    const OutputPath writes[] = {
        {"log", o->log}, {"digest", o->digest}, {"export", o->export_to},
        {"profile", o->profile}, {"timeline", o->timeline}};
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        const OutputPath *w = &writes[i];
        if (!w->path) continue;
        if (!apart_from_data(w, "data", data) || !apart_from_data(w, "val", val) || !apart(w, "init", o->init))
            return false;
        for (size_t k = 0; k < i; k++)
            if (!apart(w, writes[k].option, writes[k].path)) return false;
        if (!writable(w)) return false;
    }
    return true;
}

bool hd_paths_check(const Options *o) {
    FileList data = {0}, val = {0};
    const bool ok = hd_files_expand(&data, o->data) && hd_files_expand(&val, o->val) && check_writes(o, &data, &val) &&
                    (!o->save || save_folder(o->save));
    hd_files_free(&data);
    hd_files_free(&val);
    return ok;
}
