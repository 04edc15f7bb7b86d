// Which checkpoints stay. The link `latest` is replaced by one rename after the checkpoint is whole on the disk, and
// only then are older ones removed: a run that is killed at any moment leaves a link to a whole checkpoint.
#include "runtime/checkpoint/keep.h"
#include "runtime/checkpoint/pieces.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECKPOINT "checkpoint.safetensors"
#define KEPT "checkpoint-" // and the step
enum { PATH = HD_CHECKPOINT_PATH };

static bool join(char path[PATH], const char *dir, const char *name) {
    return hd_checkpoint_path(dir, name, path, PATH);
}

// --- finding

static bool there(const char *dir, const char *name) {
    char path[PATH];
    return join(path, dir, name) && !access(path, F_OK);
}

bool hd_checkpoint_find(const char *name, char dir[PATH], char path[PATH]) {
    struct stat st;
    const char *slash = strrchr(name, '/');
    if (!stat(name, &st) && !S_ISDIR(st.st_mode)) {
        snprintf(path, PATH, "%s", name);
        snprintf(dir, PATH, "%.*s", slash == name ? 1 : slash ? (int)(slash - name) : 1, slash ? name : ".");
        return true;
    }
    const bool linked = there(name, "latest/" CHECKPOINT);
    snprintf(dir, PATH, linked ? "%s/latest" : "%s", name);
    return join(path, dir, CHECKPOINT) && !access(path, F_OK);
}

static bool same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool hd_checkpoint_continues(const char *save, const char *resume) {
    char dir[PATH], path[PATH], outer[PATH + 4];
    struct stat a, b;
    if (!resume || stat(save, &a)) return false;
    hd_checkpoint_find(resume, dir, path);
    snprintf(outer, sizeof outer, "%s/..", dir); // of checkpoint-STEP and best
    return (!stat(dir, &b) && same(&a, &b)) || (!stat(outer, &b) && same(&a, &b));
}

// --- kept ones by their steps

static int64_t step_of(const char *name) { // -1: not the folder of a kept checkpoint
    const size_t n = strlen(KEPT), digits = strncmp(name, KEPT, n) ? 0 : strspn(name + n, "0123456789");
    return digits && digits < 18 && !name[n + digits] ? strtoll(name + n, NULL, 10) : -1;
}

int64_t hd_keep_newest_in(const char *dir) {
    DIR *d = opendir(dir);
    int64_t newest = -1;
    for (const struct dirent *e; d && (e = readdir(d));) {
        char manifest[PATH];
        const int64_t step = step_of(e->d_name);
        if (step > newest && join(manifest, e->d_name, CHECKPOINT) && there(dir, manifest)) newest = step;
    }
    if (d) closedir(d);
    return newest;
}

bool hd_checkpoint_free(const char *save) {
    const int64_t newest = hd_keep_newest_in(save);
    char kept[40] = ""; // what --resume names behind the folder; by itself it finds the first two
    if (newest >= 0) snprintf(kept, sizeof kept, "/" KEPT "%lld", (long long)newest);
    const char *const from[] = {"", "/latest", kept, "/best"};
    for (int i = 0; i < 4; i++) {
        char manifest[PATH];
        snprintf(manifest, PATH, "%s/" CHECKPOINT, from[i]);
        if ((i && !*from[i]) || !there(save, manifest + 1)) continue;
        return hd_fail("--save=%s: the folder holds the checkpoint of another run, %s%s: continue it with "
                       "--resume=%s%s, replace it with --overwrite, or save elsewhere",
                       save, save, manifest, save, i < 2 ? "" : from[i]);
    }
    return true;
}

// --- removing

static void remove_kept(const char *dir, int64_t step) {
    char name[40], path[PATH];
    snprintf(name, sizeof name, KEPT "%lld", (long long)step);
    if (!join(path, dir, name)) return;
    hd_checkpoint_remove(path);
    rmdir(path); // unless something else is in it
}

static int newest_first(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

// Of the checkpoints before `step` the newest `keep` stay. Later ones are left alone, unless all others go: they
// are of this run before it began again from an older step.
static void remove_others(const char *dir, int64_t step, int64_t keep, bool all) {
    DIR *d = opendir(dir);
    int64_t *steps = NULL, n = 0;
    for (const struct dirent *e; d && (e = readdir(d));) {
        const int64_t other = step_of(e->d_name);
        if (other < 0 || other == step || (other > step && !all)) continue;
        int64_t *grown = realloc(steps, sizeof *steps * (size_t)(n + 1));
        if (!grown) break; // the next save removes them
        steps = grown;
        steps[n++] = other;
    }
    if (d) closedir(d);
    if (n) qsort(steps, (size_t)n, sizeof *steps, newest_first);
    for (int64_t i = all ? 0 : keep; i < n; i++) remove_kept(dir, steps[i]);
    free(steps);
}

// --- saving

static bool link_latest(const char *dir, const char *to) {
    char path[PATH], made[PATH];
    struct stat st;
    if (!join(path, dir, "latest") || !join(made, dir, "latest.tmp")) return false;
    if (!lstat(path, &st) && !S_ISLNK(st.st_mode)) return hd_fail("cannot make the link %s: a file has its name", path);
    unlink(made);
    if (symlink(to, made) || rename(made, path)) return hd_fail("cannot make the link %s: %s", path, strerror(errno));
    return hd_checkpoint_on_disk(dir);
}

static bool unlink_latest(const char *dir) { // the newest checkpoint is the folder's own
    char path[PATH];
    struct stat st;
    if (join(path, dir, "latest") && !lstat(path, &st) && S_ISLNK(st.st_mode)) unlink(path);
    return true;
}

static bool folder_name(int64_t step, char folder[40]) {
    snprintf(folder, 40, KEPT "%lld", (long long)step);
    return true;
}

bool hd_keep_name(const Keep *k, int64_t step, bool best, char name[PATH]) {
    char folder[40];
    if (best) return join(name, k->dir, "best");
    if (k->keep) return folder_name(step, folder) && join(name, k->dir, folder);
    snprintf(name, PATH, "%s", k->dir);
    return true;
}

bool hd_keep_newest(Keep *k, int64_t step) {
    char folder[40];
    bool ok = k->keep ? folder_name(step, folder) && link_latest(k->dir, folder) : unlink_latest(k->dir);
    if (ok && k->keep) hd_checkpoint_remove(k->dir); // one that was replaced each time
    if (ok && (k->keep || k->fresh)) remove_others(k->dir, k->keep ? step : -1, k->keep - 1, k->fresh);
    k->fresh = false;
    return ok;
}

double hd_best_before(const char *dir) {
    char path[PATH];
    StFile f;
    if (!join(path, dir, "best/" CHECKPOINT) || access(path, F_OK) || !hd_st_open(&f, path)) return HUGE_VAL;
    const char *text = hd_st_meta(&f, "val_loss");
    const double loss = text ? strtod(text, NULL) : HUGE_VAL;
    hd_st_close(&f);
    return isfinite(loss) ? loss : HUGE_VAL;
}
