// config.json beside weights: compared with the program at --init, written with --export=DIR --as=hf.
#include "runtime/checkpoint/hub.h"
#include "runtime/checkpoint/aside.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/base/hub_config.h"
#include "runtime/text.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096, MOST = 64 << 20 };

// --- files

static bool is_folder(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

// NAME in the folder of --init: itself, or that of the file. false: the path is too long.
static bool beside(const char *init, const char *name, char *path) {
    const char *slash = strrchr(init, '/');
    if (is_folder(init)) return snprintf(path, PATH, "%s/%s", init, name) < PATH;
    return snprintf(path, PATH, "%.*s%s", slash ? (int)(slash - init) + 1 : 0, init, name) < PATH;
}

static char *read_text(const char *path, size_t *n) { // malloc'ed; NULL with errno: 0 where it is no such file
    FILE *f = fopen(path, "rb");
    struct stat st;
    char *text = NULL;
    errno = f ? 0 : errno;
    if (f && !fstat(fileno(f), &st) && S_ISREG(st.st_mode) && st.st_size <= MOST) text = malloc((size_t)st.st_size + 1);
    if (text) *n = fread(text, 1, (size_t)st.st_size, f);
    if (f) fclose(f);
    return text;
}

static bool write_text(const char *path, const char *text, size_t n) {
    char aside[PATH + HD_ASIDE];
    const int fd = hd_open_aside(path, aside, sizeof aside);
    if (fd < 0) return false;
    FILE *f = fdopen(fd, "wb");
    bool ok = f && fwrite(text, 1, n, f) == n;
    if ((f ? fclose(f) : close(fd)) != 0) ok = false;
    if (ok && !rename(aside, path)) return true;
    hd_fail("cannot write %s: %s", path, strerror(errno));
    unlink(aside);
    return false;
}

// --- --init

// Says of the weights' files, not of what is computed.
static bool says_nothing(const char *key) {
    static const char *const keys[] = {"architectures", "torch_dtype", "dtype", "transformers_version", "bos_token_id",
                                       "eos_token_id", "pad_token_id", "initializer_range"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i]) || hd_hub_is_below(key, keys[i])) return true;
    return false;
}

// Numbers for which transformers has a default that depends on the family: what is absent there may be equal.
static bool has_default(const char *key) {
    static const char *const keys[] = {"rope_theta", "rope_local_base_freq", "rms_norm_eps", "layer_norm_epsilon"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

static void tell(const char *path, const char *key, const char *there, const char *here) {
    hd_say(stderr, "note: %s: \"%s\" is %s there, %s in this program, which computes something else with these "
                   "weights\n", path, key, there, here);
}

static void compare(const HdHubConfig *here, const HdHubConfig *there, const char *path) {
    for (int i = 0; i < here->n; i++) {
        const HdHubValue *v = &here->at[i], *w = hd_hub_find(there, v->key);
        if (says_nothing(v->key) || hd_hub_same(v, w)) continue;
        if (w || hd_hub_is_below(v->key, "rope_scaling")) tell(path, v->key, w ? w->text : "absent", v->text);
        else if (has_default(v->key))
            hd_say(stderr, "note: %s does not say \"%s\", so that the default of transformers counts; this program has "
                           "%s\n", path, v->key, v->text);
    }
    for (int i = 0; i < there->n; i++) { // of the rotations also what this program does not have
        const HdHubValue *w = &there->at[i];
        if (!strncmp(w->key, "rope_", 5) && !hd_hub_find(here, w->key) && !hd_hub_same(w, NULL))
            tell(path, w->key, w->text, "absent");
    }
}

bool hd_hub_compare(const HdProgram *p, const char *init) {
    char path[PATH];
    size_t n = 0;
    if (!p->hub_config || !beside(init, "config.json", path) || access(path, F_OK) != 0) return true;
    char *text = read_text(path, &n);
    HdHubConfig here = {0}, there = {0};
    bool ok = text || hd_fail("cannot read %s: %s", path, errno ? strerror(errno) : "it is no file below 64 MiB");
    if (ok && !hd_hub_read(&there, text, n)) ok = hd_fail("%s is not JSON, or no object", path);
    if (ok && !hd_hub_read(&here, p->hub_config, strlen(p->hub_config)))
        ok = hd_fail("the model's own description for Hugging Face is no JSON: compile it again");
    if (ok) compare(&here, &there, path);
    hd_hub_free(&here);
    hd_hub_free(&there);
    free(text);
    return ok;
}

// --- --export=DIR --as=hf

bool hd_hub_weights(const char *dir, char *path, size_t size) {
    return snprintf(path, size, "%s/model.safetensors", dir) < (int)size || hd_fail("%s: the path is too long", dir);
}

// A folder in which there is a model may be that of an earlier export alone, whose config.json begins as the program's.
static bool replaces_own(const HdProgram *p, const char *dir) {
    char path[PATH];
    static const char mark[] = ", \"torch_dtype\": ";
    size_t n = 0;
    const size_t own = strlen(p->hub_config) - 1; // without the end of the object
    if (snprintf(path, PATH, "%s/config.json", dir) >= PATH || access(path, F_OK)) return true;
    char *text = read_text(path, &n);
    const bool same = text && n > own && !memcmp(text, p->hub_config, own) &&
                      !strncmp(text + own, mark, n - own < strlen(mark) ? n - own : strlen(mark));
    free(text);
    return same || hd_fail("--export=%s: the folder holds a model with another config.json, which would be destroyed; "
                           "give another folder", dir);
}

bool hd_hub_prepare(const HdProgram *p, const char *dir, const char *init) {
    struct stat a, b;
    char path[PATH];
    if (!p->hub_config)
        return hd_fail("--as=hf: model %s does not say what config.json holds: give it fn huggingface(), as "
                       "heddlec --from-hf writes it and frontend/LANGUAGE.md describes", p->model);
    if (!stat(dir, &a) && !S_ISDIR(a.st_mode)) return hd_fail("--export=%s is no folder, and --as=hf writes one", dir);
    if (!is_folder(dir) && !hd_checkpoint_make(dir)) return false;
    if (access(dir, W_OK | X_OK)) return hd_fail("--export: cannot write the folder %s: %s", dir, strerror(errno));
    if (init && beside(init, ".", path) && !stat(path, &a) && !stat(dir, &b) && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino)
        return hd_fail("--init and --export are one folder, %s: writing one would destroy the other", dir);
    return replaces_own(p, dir);
}

static bool copy_file(const char *init, const char *dir, const char *name) { // where it is there
    char from[PATH], to[PATH];
    size_t n = 0;
    if (!beside(init, name, from) || snprintf(to, PATH, "%s/%s", dir, name) >= PATH)
        return hd_fail("%s: the path is too long", dir);
    if (access(from, F_OK)) return true;
    char *text = read_text(from, &n);
    const bool ok = text ? write_text(to, text, n)
                         : hd_fail("cannot read %s: %s", from, errno ? strerror(errno) : "it is no file");
    free(text);
    return ok;
}

bool hd_hub_write(const HdProgram *p, const char *dir, const char *init, const char *dtype) {
    static const char *const tokenizer[] = {"tokenizer.json", "tokenizer_config.json", "tokenizer.model",
                                            "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
                                            "generation_config.json", "chat_template.jinja"};
    char path[PATH];
    const size_t n = strlen(p->hub_config), room = n + 64;
    char *text = malloc(room);
    if (!text || snprintf(path, PATH, "%s/config.json", dir) >= PATH) {
        free(text);
        return hd_fail("%s: the path is too long", dir);
    }
    // the object without its end, and one more member
    const int size = snprintf(text, room, "%.*s, \"torch_dtype\": \"%s\"}\n", (int)n - 1, p->hub_config, dtype);
    bool ok = write_text(path, text, (size_t)size);
    free(text);
    for (size_t i = 0; ok && init && i < sizeof tokenizer / sizeof *tokenizer; i++)
        ok = copy_file(init, dir, tokenizer[i]);
    return ok;
}
