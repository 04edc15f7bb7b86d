// Checkpoints. DIR/checkpoint.safetensors is the checkpoint; one rename replaces the older one. Where nothing is
// sharded it holds everything. Otherwise it is a manifest: it names a folder beside it with one file for each shard,
// and holds the size and checksum of each file, and which boxes of every parameter are in which file.
// A folder that the checkpoint does not name was left by an interrupted save or is about to be removed; the next save
// removes it.
#include "runtime/checkpoint/history.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/state.h"
#include "runtime/dtypes.h"
#include "runtime/world/mesh.h"
#include "runtime/world/world.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECKPOINT "checkpoint.safetensors"
enum { PATH = HD_CHECKPOINT_PATH, NUMBER = 24, FOLDER = sizeof((HdSave *)0)->folder };

bool hd_checkpoint_path(const char *dir, const char *name, char *path, size_t size) {
    if ((size_t)snprintf(path, size, "%s/%s", dir, name) < size) return true;
    return hd_fail("the folder's name has %zu bytes; at most %zu are possible", strlen(dir), size - strlen(name) - 2);
}

bool hd_checkpoint_folder(const char *name, size_t size) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    const size_t n = strnlen(name, size);
    return n > 5 && n < size && !strncmp(name, "step-", 5) && strspn(name, allowed) == n;
}

// --- metadata: keys and values made one at a time

typedef struct { StMeta *at; int n, capacity; bool failed; } Meta;

static void add(Meta *m, const char *key, const char *value) {
    if (m->n == m->capacity) {
        const int capacity = m->capacity ? 2 * m->capacity : 32;
        StMeta *grown = realloc(m->at, sizeof *grown * (size_t)capacity);
        if (!grown) {
            m->failed = true;
            return;
        }
        m->at = grown;
        m->capacity = capacity;
    }
    m->at[m->n] = (StMeta){strdup(key), strdup(value)};
    if (!m->at[m->n].key || !m->at[m->n].value) m->failed = true;
    m->n++;
}

static void add_number(Meta *m, const char *key, int64_t v) {
    char text[NUMBER];
    snprintf(text, sizeof text, "%lld", (long long)v);
    add(m, key, text);
}

static void release(Meta *m) {
    for (int i = 0; i < m->n; i++) {
        free(m->at[i].key);
        free(m->at[i].value);
    }
    free(m->at);
}

static void add_common(Meta *m, const HdExec *x, const char *format, const Progress *at) {
    const HdProgram *p = x->program;
    add(m, "heddle_checkpoint", format);
    add(m, "model", p->model);
    add(m, "model_hash", p->model_hash);
    if (p->model_core) add(m, "model_core", p->model_core);
    add(m, "train", p->train ? p->train : "");
    if (*x->choices) add(m, "choices", x->choices);
    add_number(m, "step", at->step);
    add_number(m, "seed", at->seed);
    add_number(m, "data_tokens", at->data_tokens);
    add_number(m, "sequences", at->sequences);
    if (at->optimizer_start) add_number(m, "optimizer_start", at->optimizer_start);
    if (at->scored) {
        char history[HD_HISTORY_TEXT];
        hd_history_text(at->history, history);
        add(m, "history", history);
    }
    if (!at->validated) return;
    char text[40];
    snprintf(text, sizeof text, "%a", at->val_loss);
    add(m, "val_loss", text);
}

// --- one file that holds everything

typedef struct { StWriter *w; HdRole role; } Whole;

// A state that is not finite never replaces one that is.
static bool all_finite(const HdProgram *p, const float *v, int64_t n, int role, const char *of, int64_t first) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return hd_fail("nothing is saved: element %lld of %s%s%s is %g", (long long)(first + i),
                           role ? p->states[role - HD_STATE] : "", role ? " of " : "", of, (double)v[i]);
    return true;
}

static HdDtype saved_as(const HdProgram *p, const HdParam *q, int role) {
    return hd_stored_as(p, &p->buckets[q->bucket], (HdRole)role);
}

static bool save_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    const Whole *s = data;
    const HdParam *q = &x->program->params[k];
    const HdDtype dtype = saved_as(x->program, q, (int)s->role);
    const size_t bytes = (size_t)n * hd_dtypes[dtype].bytes;
    void *narrow = dtype == HD_F32 ? NULL : malloc(bytes), *as = narrow ? narrow : v;
    bool ok = dtype == HD_F32 || narrow || hd_fail("out of memory");
    ok = ok && hd_read_values(x, q, s->role, first, n, as);
    if (ok && narrow) hd_load_f32(dtype, narrow, 0, n, v);
    ok = ok && all_finite(x->program, v, n, (int)s->role, q->name, first);
    if (ok) hd_st_put(s->w, as, bytes);
    free(narrow);
    return ok && !s->w->failed;
}

static bool begin(StWriter *w, Meta *m) { // after the declarations
    if (m->failed) {
        w->failed = true;
        hd_fail("out of memory: cannot keep what %s says of itself", w->path);
    }
    hd_st_begin(w, m->n, m->at);
    release(m);
    return !w->failed;
}

static bool save_whole(HdExec *x, const char *path, const HdLock *lock, const Progress *at) {
    const HdProgram *p = x->program;
    StWriter w = {0};
    Meta m = {0};
    if (!hd_st_create(&w, path, true)) return false;
    for (int r = 0; r < hd_saved_roles(p); r++)
        for (int k = 0; k < hd_saved_params(p); k++) {
            char name[512];
            if (!hd_saves(p, &p->params[k], r)) continue;
            hd_saved_name(p, r, p->params[k].name, name, sizeof name);
            hd_st_declare_as(&w, name, saved_as(p, &p->params[k], r), p->params[k].rank, p->params[k].dim);
        }
    add_common(&m, x, "1", at);
    bool ok = begin(&w, &m);
    for (int r = 0; ok && r < hd_saved_roles(p); r++)
        ok = hd_each_piece(x, (HdRole)r, save_piece, &(Whole){&w, (HdRole)r});
    if (!ok || !hd_lock_mine(lock)) w.failed = true; // hd_fail was called already
    return hd_st_finish(&w);
}

// --- a folder of shards and a manifest

static bool put_shard(HdExec *x, StWriter *w, int shard) { // in the order in which it is declared
    const HdProgram *p = x->program;
    HdPieceRoom room = {0};
    bool ok = true;
    for (int r = 0; r < hd_saved_roles(p); r++)
        for (int k = 0; k < hd_saved_params(p); k++) {
            const HdSpan s = hd_written_span(p, &p->params[k], shard);
            if (!hd_saves(p, &p->params[k], r)) continue;
            for (int64_t at = 0; ok && at < s.count; at += HD_PIECE) {
                const int64_t m = s.count - at < HD_PIECE ? s.count - at : HD_PIECE;
                ok = hd_piece_room(&room, m) && save_piece(x, k, s.first + at, m, room.v, &(Whole){w, (HdRole)r});
            }
        }
    free(room.v);
    return ok;
}

static void declare_boxes(StWriter *w, const HdProgram *p, int role, int k, int file) {
    const HdParam *q = &p->params[k];
    HdBox boxes[HD_MOST_BOXES];
    if (!hd_saves(p, q, role)) return;
    for (int i = 0, n = hd_written_boxes(p, q, file, boxes); i < n; i++) {
        char of[512], name[512];
        hd_box_name(of, sizeof of, q->name, &boxes[i]);
        hd_saved_name(p, role, of, name, sizeof name);
        hd_st_declare_as(w, name, saved_as(p, q, role), q->rank, boxes[i].extent);
    }
}

static bool save_shard(HdExec *x, const char *path, const Progress *at, HdShardFile *written) {
    const HdProgram *p = x->program;
    const int shard = hd_group_number(p, hd_split_axes(p), x->world->rank);
    StWriter w = {0};
    Meta m = {0};
    if (!hd_st_create(&w, path, true)) return false;
    for (int r = 0; r < hd_saved_roles(p); r++)
        for (int k = 0; k < hd_saved_params(p); k++)
            declare_boxes(&w, p, r, k, shard);
    add_common(&m, x, "shard", at);
    add_number(&m, "shard", shard);
    add_number(&m, "shards", hd_written_files(p));
    if (!begin(&w, &m) || !put_shard(x, &w, shard)) w.failed = true; // the message is already there
    const bool ok = hd_st_finish(&w);
    written->bytes = w.written;
    memcpy(written->digest, w.digest, sizeof written->digest);
    return ok;
}

// A growing text of a parameter's boxes.
typedef struct { char *at; size_t n, room; } Text;

static bool append(Text *t, const char *what) {
    const size_t n = strlen(what), room = 2 * (t->n + n) + 200;
    if (t->n + n >= t->room) {
        char *grown = realloc(t->at, room);
        if (!grown) return false;
        t->at = grown;
        t->room = room;
    }
    memcpy(t->at + t->n, what, n + 1);
    t->n += n;
    return true;
}

static bool append_boxes(Text *t, const HdProgram *p, const HdParam *q, int file) {
    HdBox boxes[HD_MOST_BOXES];
    bool ok = true;
    for (int i = 0, n = hd_written_boxes(p, q, file, boxes); ok && i < n; i++) {
        char text[HD_BOX_TEXT], where[HD_BOX_TEXT + NUMBER];
        hd_box_text(text, sizeof text, &boxes[i]);
        snprintf(where, sizeof where, " %d %s", file, text);
        ok = append(t, where);
    }
    return ok;
}

static void add_boxes(Meta *m, const HdProgram *p) { // of every parameter, in every file
    Text t = {0};
    const int n_files = hd_written_files(p);
    for (int k = 0; k < hd_saved_params(p) && !m->failed; k++) {
        const HdParam *q = &p->params[k];
        char key[600], shape[96];
        hd_shape_text(shape, sizeof shape, q->rank, hd_whole(p, q).dim);
        t.n = 0;
        bool ok = append(&t, shape);
        for (int i = 0; ok && i < n_files; i++) ok = append_boxes(&t, p, q, i);
        snprintf(key, sizeof key, "param %s", q->name);
        if (ok) add(m, key, t.at);
        else m->failed = true;
    }
    free(t.at);
}

static bool save_manifest(const HdExec *x, const char *path, const char *folder, const Progress *at,
                          const HdShardFile *file, int n_files) {
    const HdProgram *p = x->program;
    StWriter w = {0};
    Meta m = {0};
    if (!hd_st_create(&w, path, true)) return false;
    add_common(&m, x, HD_MANIFEST, at);
    add(&m, "folder", folder);
    add_number(&m, "shards", n_files);
    for (int s = 0; s < n_files; s++) {
        char key[32], value[80];
        int n = snprintf(value, sizeof value, "%lld ", (long long)file[s].bytes);
        for (int i = 0; i < 16; i++) n += snprintf(value + n, sizeof value - (size_t)n, "%02x", file[s].digest[i]);
        snprintf(key, sizeof key, "shard %d", s);
        add(&m, key, value);
    }
    add_boxes(&m, p);
    begin(&w, &m);
    return hd_st_finish(&w);
}

// --- folders

static bool begins(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

static void remove_files(DIR *d, const char *beginning) { // plain files only: a link belongs to the user
    struct stat st;
    rewinddir(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (begins(e->d_name, beginning) && !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
            S_ISREG(st.st_mode))
            unlinkat(dirfd(d), e->d_name, 0);
}

static void empty_folder(const char *path) { // of shard files
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); // a link belongs to the user
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0) close(fd);
    if (!d) return;
    remove_files(d, "rank-");
    closedir(d);
}

static void remove_folder(const char *path) { // unless something else is in it
    empty_folder(path);
    rmdir(path);
}

bool hd_checkpoint_on_disk(const char *dir) {
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool ok = fd >= 0 && (!fsync(fd) || errno == EINVAL);
    if (!ok) hd_fail("cannot write the folder %s: %s", dir, strerror(errno));
    if (fd >= 0) close(fd);
    return ok;
}

// the names in the folder that holds `path`
static bool parent_on_disk(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n && path[n - 1] != '/') n--;
    while (n > 1 && path[n - 1] == '/') n--;
    char parent[PATH];
    snprintf(parent, sizeof parent, "%.*s", n ? (int)n : 1, n ? path : ".");
    return hd_checkpoint_on_disk(parent);
}

bool hd_checkpoint_make(const char *dir) {
    if (!mkdir(dir, 0777)) return parent_on_disk(dir);
    return errno == EEXIST || hd_fail("cannot make the folder %s: %s", dir, strerror(errno));
}

static bool is_shards(const char *name) { // what choose_folder makes, not a user's step-5-good
    if (!begins(name, "step-")) return false;
    const size_t n = strspn(name + 5, "0123456789");
    return n && (!name[5 + n] || !strcmp(name + 5 + n, ".1"));
}

// removes the shard files of other checkpoints; keep NULL: of all
static bool forget_others(const char *dir, const char *keep) {
    if (!hd_checkpoint_on_disk(dir)) return false; // the new checkpoint has its final name
    DIR *d = opendir(dir);
    if (!d) return true; // another save removes them
    for (const struct dirent *e; (e = readdir(d));) {
        char path[PATH];
        if (!is_shards(e->d_name) || (keep && !strcmp(e->d_name, keep))) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < sizeof path) remove_folder(path);
    }
    remove_files(d, CHECKPOINT ".tmp."); // of processes that were killed
    closedir(d);
    return true;
}

void hd_checkpoint_remove(const char *dir) {
    char path[PATH];
    if (hd_checkpoint_path(dir, CHECKPOINT, path, sizeof path) && (!unlink(path) || errno == ENOENT))
        forget_others(dir, NULL);
}

// The name of a folder that the present checkpoint, if any, does not need: step-N, or step-N.1 where the checkpoint
// names step-N. Where a checkpoint is there and cannot be read, only a folder that is new is surely not its own.
static bool choose_folder(const char *dir, const char *manifest, int64_t step, char name[FOLDER]) {
    StFile old;
    struct stat st;
    char path[PATH];
    if (!hd_checkpoint_make(dir)) return false;
    const bool there = !lstat(manifest, &st) || errno != ENOENT, known = there && hd_st_open(&old, manifest);
    for (int attempt = 0; attempt < 2; attempt++) {
        snprintf(name, FOLDER, attempt ? "step-%lld.1" : "step-%lld", (long long)step);
        if (!hd_checkpoint_path(dir, name, path, sizeof path)) break;
        const char *used = known ? hd_st_meta(&old, "folder") : NULL;
        if ((used && !strcmp(used, name)) || (there && !known && !lstat(path, &st))) continue;
        if (known) hd_st_close(&old);
        if (!hd_checkpoint_make(path)) return false;
        if (lstat(path, &st) || !S_ISDIR(st.st_mode))
            return hd_fail("cannot save in %s: it is a link or no folder, and not Heddle's", path);
        empty_folder(path);
        return true;
    }
    if (known) hd_st_close(&old);
    return hd_fail("cannot save in %s: %s cannot be read, so none of its shards may be replaced", path, manifest);
}

// --- the parts of a save

// Which of the files a rank has, and the rank that writes one. One copy of everything is written, by the group of rank
// 0 over all axes that split.
static int file_number(const HdProgram *p, int rank) { return hd_group_number(p, hd_split_axes(p), rank); }
static int writer(const HdProgram *p, int file) { return hd_group_member(p, hd_split_axes(p), 0, file); }

static bool agree_on_folder(HdSave *s) { // all
    HdWorld *w = s->x->world;
    if (!hd_world_agree(w, w->rank != 0 || choose_folder(s->dir, s->path, s->at.step, s->folder))) return false;
    if (!w->share(w, s->folder, sizeof s->folder)) return false;
    const bool named = hd_checkpoint_folder(s->folder, sizeof s->folder);
    if (!named) hd_fail("rank 0 has sent something that cannot name the folder of a checkpoint's shards");
    return hd_world_agree(w, named);
}

static bool is_sharded(const HdProgram *p) { // no rank holds all of the model
    for (int i = 0; i < p->n_buckets; i++)
        if (p->buckets[i].optimizer_sharded) return true;
    for (int k = 0; k < p->n_params; k++)
        if (hd_parts(p, &p->params[k]) > 1) return true;
    return false;
}

bool hd_save_writes(const HdProgram *p, int rank) {
    return rank == (is_sharded(p) ? writer(p, file_number(p, rank)) : 0);
}

bool hd_save_begin(HdSave *s, HdExec *x, const char *dir, const HdLock *lock, const Progress *at) {
    const HdProgram *p = x->program;
    const int rank = x->world->rank;
    *s = (HdSave){.x = x, .lock = lock, .at = *at};
    s->sharded = is_sharded(p);
    s->writes = hd_save_writes(p, rank);
    const bool named = hd_checkpoint_path(dir, CHECKPOINT, s->path, sizeof s->path); // the same on all ranks
    if (!named) return false;
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    if (!s->sharded) return hd_world_agree(x->world, rank != 0 || hd_checkpoint_make(dir));
    if (!agree_on_folder(s)) return false;
    s->all = calloc((size_t)x->world->ranks, sizeof *s->all);
    if (!s->all) hd_fail("out of memory");
    return hd_world_agree(x->world, s->all && hd_checkpoint_path(dir, s->folder, s->place, sizeof s->place - FOLDER));
}

bool hd_save_write(HdSave *s) {
    char path[PATH], name[FOLDER];
    if (!s->writes) return true;
    if (!s->sharded)
        return save_whole(s->x, s->path, s->lock, &s->at) && hd_lock_mine(s->lock) && forget_others(s->dir, NULL);
    snprintf(name, sizeof name, "rank-%d.safetensors", file_number(s->x->program, s->x->world->rank));
    return hd_checkpoint_path(s->place, name, path, sizeof path) && save_shard(s->x, path, &s->at, &s->mine);
}

bool hd_save_gather(HdSave *s, bool ok) {
    HdWorld *w = s->x->world;
    ok = hd_world_agree(w, ok) && (!s->sharded || w->gather(w, &s->mine, sizeof s->mine, s->all));
    for (int i = 0; ok && s->sharded && i < hd_written_files(s->x->program); i++)
        s->all[i] = s->all[writer(s->x->program, i)]; // which is not before i
    if (!ok && s->sharded && w->rank == 0) remove_folder(s->place);
    return ok;
}

// Every shard is on the disk before the manifest gets its final name.
bool hd_save_commit(HdSave *s) {
    const HdProgram *p = s->x->program;
    if (!s->sharded) return true;
    const bool replaces = hd_checkpoint_on_disk(s->place) && hd_checkpoint_on_disk(s->dir) && hd_lock_mine(s->lock) &&
                          save_manifest(s->x, s->path, s->folder, &s->at, s->all, hd_written_files(p));
    if (!replaces) remove_folder(s->place); // else it belongs to the checkpoint, whatever happens from here on
    return replaces && hd_lock_mine(s->lock) && forget_others(s->dir, s->folder);
}

void hd_save_end(HdSave *s) {
    free(s->all);
    s->all = NULL;
}

bool hd_state_save(HdExec *x, const char *dir, const HdLock *lock, const Progress *at) {
    HdSave s;
    const bool ok = hd_save_begin(&s, x, dir, lock, at) && hd_save_gather(&s, hd_save_write(&s)) &&
                    hd_world_agree(x->world, x->world->rank != 0 || hd_save_commit(&s));
    hd_save_end(&s);
    return ok;
}
