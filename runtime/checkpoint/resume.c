// Resuming from a checkpoint of any mesh and strategy: every rank reads the elements it holds from whichever file has
// them (save.c), several pieces at a time. A file is checked as a whole while it is read, and the run begins only when
// that has ended well. All files are open before the first one is read, since a run beside this one may remove them.
#include "runtime/checkpoint/history.h"
#include "runtime/checkpoint/keep.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/settings.h"
#include "runtime/checkpoint/state.h"
#include "runtime/text.h"
#include "runtime/world/world.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATH = 4096 };

typedef struct Check Check;
typedef struct {
    StFile main;    // everything, or the manifest
    Check *main_check; // where it holds everything
    const char *dir;
    HdManifest parts; // folder == NULL: everything is in `main`
    const char *with; // of --resume-with
    bool averaged;    // the average of the weights takes their place
    HdDifferences differences;
    StFile *shard;
    bool *opened; // those that this rank needs
    Check **check;
} Source;

static int64_t sequences_of(const StFile *f, const HdProgram *p) { // older checkpoints of one rank do not say
    const int64_t most = INT64_MAX / 2 / (p->seq > 0 ? p->seq : 1); // leaves room to count their tokens and the run's
    if (hd_st_meta(f, "sequences")) return hd_count_of(f, "sequences", most);
    return hd_count_of(f, "step", INT32_MAX) * p->batch * p->micro;
}

static int64_t optimizer_start_of(const StFile *f) { // it began after this step
    const char *key = "optimizer_start";
    return hd_st_meta(f, key) ? hd_count_of(f, key, hd_count_of(f, "step", INT32_MAX)) : 0;
}

static bool read_layout(Source *s, const HdProgram *p) {
    const bool ok = hd_manifest_read(&s->parts, &s->main, p);
    s->shard = calloc((size_t)s->parts.files + 1, sizeof *s->shard);
    s->opened = calloc((size_t)s->parts.files + 1, sizeof *s->opened);
    s->check = calloc((size_t)s->parts.files + 1, sizeof *s->check);
    return ok && ((s->shard && s->opened && s->check) || hd_fail("%s: out of memory", s->main.path));
}

// --- shards

static bool same_meta(const StFile *a, const StFile *b, const char *key) {
    const char *x = hd_st_meta(a, key), *y = hd_st_meta(b, key);
    return x && y && !strcmp(x, y);
}

static bool belongs(const Source *s, const StFile *f, const char *path, int number) {
    static const char *const keys[] = {"model_hash", "step", "seed", "shards"};
    bool same = hd_count_of(f, "shard", INT32_MAX) == number;
    for (size_t i = 0; same && i < sizeof keys / sizeof *keys; i++) same = same_meta(&s->main, f, keys[i]);
    if (same) return true;
    const char *shard = hd_st_meta(f, "shard"), *shards = hd_st_meta(f, "shards"), *step = hd_st_meta(f, "step");
    if (shard && shards && step)
        hd_fail("%s is shard %s of %s of step %s: %s needs shard %d of %d of step %s of the same run", path,
                shard, shards, step, s->main.path, number, s->parts.files, hd_st_meta(&s->main, "step"));
    else hd_fail("%s is not a shard of a checkpoint", path);
    return false;
}

static bool undamaged(const StFile *f, const char *path) {
    return hd_st_checksum_ok(f) || hd_fail("%s is damaged: its checksum does not match its contents", path);
}

// the file is the one in the manifest, unchanged
static bool as_written(const Source *s, const StFile *f, const char *path, int number) {
    char want[80];
    if (!undamaged(f, path)) return false;
    int n = snprintf(want, sizeof want, "%lld ", (long long)f->map_bytes);
    for (int i = 0; i < 16; i++)
        n += snprintf(want + n, sizeof want - (size_t)n, "%02x", f->data[f->data_bytes - 16 + (size_t)i]);
    const char *told = hd_meta_number(&s->main, "shard", number);
    if (told && !strcmp(told, want)) return true;
    return hd_fail("%s is from another save than %s", path, s->main.path);
}

// --- checks on threads of their own

enum { WHOLE = -1 }; // a file that holds everything
struct Check {
    const Source *s;
    const StFile *f;
    int number; // of a shard, or WHOLE
    bool started, good;
    pthread_t thread;
    char path[PATH], why[900];
};

static void *check(void *arg) {
    Check *c = arg;
    c->good = c->number == WHOLE ? undamaged(c->f, c->path) : as_written(c->s, c->f, c->path, c->number);
    if (!c->good) snprintf(c->why, sizeof c->why, "%s", hd_failure());
    return NULL;
}

static Check *check_of(const Source *s, const StFile *f, const char *path, int number) { // NULL after hd_fail
    Check *c = calloc(1, sizeof *c);
    if (!c) {
        hd_fail("out of memory: cannot check %s", path);
        return NULL;
    }
    c->s = s;
    c->f = f;
    c->number = number;
    snprintf(c->path, sizeof c->path, "%s", path);
    return c;
}

static void check_start(Check *c) {
    if (!c) return;
    c->started = !pthread_create(&c->thread, NULL, check, c);
    if (!c->started) check(c);
}

static bool check_end(Check **at) { // frees it; false after hd_fail. NULL: there was nothing to check
    Check *c = *at;
    if (!c) return true;
    if (c->started) pthread_join(c->thread, NULL);
    const bool good = c->good || hd_fail("%s", c->why);
    free(c);
    *at = NULL;
    return good;
}

static bool open_one(Source *s, int number) {
    char folder[PATH], name[40], path[PATH];
    StFile *f = &s->shard[number];
    snprintf(name, sizeof name, "rank-%d.safetensors", number);
    if (!hd_checkpoint_path(s->dir, s->parts.folder, folder, sizeof folder) ||
        !hd_checkpoint_path(folder, name, path, sizeof path))
        return false;
    if (!hd_st_open(f, path)) return false;
    s->opened[number] = true;
    f->path = NULL; // inside this range
    return belongs(s, f, path, number) && (s->check[number] = check_of(s, f, path, number)) != NULL;
}

// Elements of a box that begin with its element `at`, from the shard that has it.
static bool shard_floats(Source *s, const HdProgram *p, int role, int k, const HdPart *part, int64_t at, int64_t n,
                         float *out) {
    char name[512], of[512];
    const StFile *f = &s->shard[part->file]; // open_shards
    hd_box_name(of, sizeof of, p->params[k].name, &part->box);
    hd_saved_name(p, role, part->tensor ? part->tensor : of, name, sizeof name);
    const StTensor *t = hd_st_find(f, name);
    const bool fits = t && (part->tensor ? t->rank == 1 && part->at + at + n <= t->dim[0] : hd_box_is(&part->box, t));
    if (fits && hd_st_floats(f, t, part->at + at, n, out)) return true;
    return hd_fail("%s/%s/rank-%d.safetensors does not hold all of '%s'", s->dir, s->parts.folder, part->file, name);
}

// Opens the shards that hold elements of the whole of a parameter.
static bool open_range(Source *s, const HdParam *q, const HdParts *parts, HdSpan span) {
    HdRun run;
    for (int i = 0; span.count && i < parts->n; i++) {
        const HdPart *part = &parts->at[i];
        if (s->opened[part->file] || !hd_box_run(&part->box, q, span.first, &run)) continue;
        if (run.first < span.first + span.count && !open_one(s, part->file)) return false;
    }
    return true;
}

static HdRole holder(int role) { return role == HD_MASTER ? HD_COMPUTE : (HdRole)role; } // for hd_piece_span

static bool open_shards(HdExec *x, Source *s) { // all that this rank reads from
    for (int r = 0; r < hd_saved_roles(x->program); r++)
        for (int k = 0; k < hd_saved_params(x->program); k++) {
            const HdProgram *p = x->program;
            const HdParam *q = &p->params[k], whole = hd_whole(p, q);
            const HdSpan here = hd_piece_span(x, holder(r), k);
            const int part = hd_part(p, q, x->world->rank);
            for (int64_t at = 0; at < here.count;) {
                const HdSpan run = hd_whole_run(p, q, part, here.first + at, here.count - at);
                if (run.first >= 0 && !open_range(s, &whole, &s->parts.of[k], run)) return false;
                at += run.count;
            }
        }
    return true;
}

// --- reading

// Elements of the whole of a parameter.
static bool floats(Source *s, const HdProgram *p, int role, int k, int64_t first, int64_t n, float *out) {
    const HdParam whole = hd_whole(p, &p->params[k]);
    if (!s->parts.folder) {
        char name[512];
        hd_saved_name(p, role, p->params[k].name, name, sizeof name);
        if (hd_st_floats(&s->main, hd_st_find(&s->main, name), first, n, out)) return true;
        return hd_fail("%s: tensor '%s' is not F32", s->main.path, name);
    }
    HdRun run;
    for (int i = 0; i < s->parts.of[k].n; i++) {
        const HdPart *part = &s->parts.of[k].at[i];
        for (int64_t at = first; hd_box_run(&part->box, &whole, at, &run) && run.first < first + n;) {
            const int64_t left = first + n - run.first, count = run.count < left ? run.count : left;
            if (!shard_floats(s, p, role, k, part, run.at, count, out + (run.first - first))) return false;
            at = run.first + count;
        }
    }
    return true;
}

// Whether the checkpoint has that role, and it means the same here.
static bool holds(const Source *s, const HdProgram *p, int role) {
    if (role == HD_MASTER) return true;
    return !s->differences.optimizer && !(s->differences.average && hd_is_average(p, role)) &&
           !(s->differences.compensation && hd_is_compensation(p, role));
}

typedef struct { Source *s; int role; } Resume;

static bool resume_piece(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    const Resume *r = data;
    const HdParam *q = &x->program->params[k];
    const bool fresh = !holds(r->s, x->program, r->role);
    const bool averaged = r->role == HD_MASTER && r->s->averaged &&
                          hd_saves(x->program, q, (int)hd_average_role(x->program));
    const int from = averaged ? (int)hd_average_role(x->program) : r->role;
    const bool with_weights = hd_is_average(x->program, r->role) || hd_is_compensation(x->program, r->role);
    if (fresh && with_weights) return true; // they were written before, and this with them
    if (fresh) memset(v, 0, sizeof *v * (size_t)n);
    for (int64_t at = 0; !fresh && at < n;) {
        const HdSpan run = hd_whole_run(x->program, q, hd_part(x->program, q, x->world->rank), first + at, n - at);
        if (run.first < 0) memset(v + at, 0, sizeof *v * (size_t)run.count);
        else if (!floats(r->s, x->program, from, k, run.first, run.count, v + at)) return false;
        at += run.count;
    }
    if (r->role == HD_MASTER) return hd_put_given(x, q, first, n, v);
    const HdDtype dtype = hd_stored_as(x->program, &x->program->buckets[q->bucket], (HdRole)r->role);
    return hd_write_as(x, dtype, hd_place(x, q, (HdRole)r->role, first), v, n);
}

// States of lines begin anew with the optimizer.
static bool resume_line(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data) {
    const Resume *r = data;
    const HdParam *q = &x->program->params[k];
    if (k < x->program->n_params) return true;
    if (r->s->differences.optimizer) memset(v, 0, sizeof *v * (size_t)n);
    else if (!floats(r->s, x->program, HD_MASTER, k, first, n, v)) return false;
    return hd_write_as(x, HD_F32, hd_place(x, q, HD_MASTER, first), v, n);
}

static bool lines_fit(const Source *s, const HdProgram *p, bool manifest) {
    if (s->differences.optimizer) return true;
    if (manifest) return hd_manifest_fits(&s->main, p, p->n_params, hd_saved_params(p));
    for (int k = p->n_params; k < hd_saved_params(p); k++)
        if (!hd_tensor_fits(&s->main, &p->params[k], p->params[k].name)) return false;
    return true;
}

static bool file_fits(const Source *s, const HdProgram *p, int first, int end) { // in these roles
    for (int k = 0; k < p->n_params; k++)
        for (int r = first; r < end; r++) {
            char name[512];
            if (!hd_saves(p, &p->params[k], r) || !holds(s, p, r)) continue;
            hd_saved_name(p, r, p->params[k].name, name, sizeof name);
            const HdParam whole = hd_whole(p, &p->params[k]);
            if (!hd_tensor_fits(&s->main, &whole, name)) return false;
        }
    return true;
}

static bool acceptable(Source *s, const HdProgram *p) {
    const StFile *f = &s->main;
    const char *format = hd_st_meta(f, "heddle_checkpoint");
    const bool manifest = format && (!strcmp(format, HD_MANIFEST) || !strcmp(format, HD_MANIFEST_FLAT));
    if (format && !manifest && strspn(format, "0123456789") == strlen(format) && atoi(format) > atoi(HD_MANIFEST))
        return hd_fail("%s was written by a newer Heddle, in format %.9s; this program reads formats up to %s: compile "
                       "it again with that Heddle", f->path, format, HD_MANIFEST);
    if (!format || (!manifest && strcmp(format, "1") != 0))
        return hd_fail("%s is not a checkpoint of this program (to start from its weights, use --init)", f->path);
    if (manifest && !undamaged(f, f->path)) return false; // before it names other files
    if (!manifest && !(s->main_check = check_of(s, f, f->path, WHOLE))) return false;
    if (!(manifest ? hd_manifest_fits(f, p, 0, p->n_params) : file_fits(s, p, HD_MASTER, HD_STATE))) return false;
    if (hd_count_of(f, "step", INT32_MAX) < 0 || hd_count_of(f, "seed", INT64_MAX) < 0 ||
        hd_count_of(f, "data_tokens", INT64_MAX) < 0 || sequences_of(f, p) < 0 || optimizer_start_of(f) < 0)
        return hd_fail("%s: its step, seed, data_tokens, sequences or optimizer_start is not a number that this "
                       "program can continue from",
                       f->path);
    if (!hd_settings_fit(f, p, s->with, &s->differences)) return false;
    if (s->averaged && !holds(s, p, (int)hd_average_role(p)))
        return hd_fail("--weights=ema: %s holds no average of its weights for this program; leave the option out, or "
                       "resume with the train block that it was written with", f->path);
    return lines_fit(s, p, manifest) && (manifest || file_fits(s, p, HD_STATE, hd_saved_roles(p)));
}

static bool open_state(HdExec *x, Source *s) { // everything that read_state needs
    const HdProgram *p = x->program;
    if (!acceptable(s, p)) return false;
    return !strcmp(hd_st_meta(&s->main, "heddle_checkpoint"), "1") || (read_layout(s, p) && open_shards(x, s));
}

static bool read_state(HdExec *x, Source *s, Progress *at) {
    const HdProgram *p = x->program;
    for (int r = 0; r < hd_saved_roles(p); r++)
        if (!hd_spread_pieces(x, holder(r), resume_piece, &(Resume){s, r})) return false;
    if (p->n_lines && !hd_spread_pieces(x, HD_MASTER, resume_line, &(Resume){s, HD_MASTER})) return false;
    *at = (Progress){.step = hd_count_of(&s->main, "step", INT32_MAX), .seed = hd_count_of(&s->main, "seed", INT64_MAX),
                     .data_tokens = hd_count_of(&s->main, "data_tokens", INT64_MAX),
                     .sequences = sequences_of(&s->main, p), .optimizer_start = optimizer_start_of(&s->main)};
    if (s->differences.seed) at->seed = p->seed;
    if (s->differences.optimizer) at->optimizer_start = at->step;
    const char *history = hd_history_kept(p) ? hd_st_meta(&s->main, "history") : NULL;
    if (history && !hd_history_write(x, s->main.path, history)) return false;
    const int32_t step = (int32_t)(at->step - at->optimizer_start);
    return p->train_step.counter < 0 || p->backend->write(x, p->train_step.counter, &step, sizeof step);
}

// Reads while the files that are open are checked. Where `good` is false, what was opened is checked: damage is the
// reason of whatever else was found.
static bool read_checked(HdExec *x, Source *s, bool good, Progress *at) {
    check_start(s->main_check);
    for (int i = 0; i < s->parts.files; i++) check_start(s->check[i]);
    good = good && read_state(x, s, at);
    good = check_end(&s->main_check) && good;
    for (int i = 0; i < s->parts.files; i++) good = check_end(&s->check[i]) && good;
    return good;
}

static void close_source(Source *s, const HdProgram *p) {
    for (int i = 0; s->opened && i < s->parts.files; i++)
        if (s->opened[i]) hd_st_close(&s->shard[i]);
    for (int i = 0; s->check && i < s->parts.files; i++) free(s->check[i]);
    free(s->main_check);
    hd_st_close(&s->main);
    hd_manifest_free(&s->parts, p);
    free(s->shard);
    free(s->opened);
    free(s->check);
}

// A checkpoint is known by the checksum at the end of its manifest.
static void id_of(const StFile *f, unsigned char id[16]) {
    if (f->data_bytes >= 16) memcpy(id, f->data + f->data_bytes - 16, 16);
}

static bool replaced(const char *path, const unsigned char id[16]) { // keeps the present failure
    char why[900];
    unsigned char now[16] = {0};
    StFile f;
    snprintf(why, sizeof why, "%s", hd_failure());
    const bool open = hd_st_open(&f, path);
    if (open) id_of(&f, now);
    if (open) hd_st_close(&f);
    hd_fail("%s", why);
    return open && memcmp(now, id, sizeof now) != 0;
}

// Whether all ranks have the same checkpoint open. -1: a rank is gone.
static int same_everywhere(HdWorld *w, const unsigned char id[16]) {
    enum { HALF = 1 << 30 };
    uint32_t hash;
    memcpy(&hash, id, sizeof hash);
    const int mine = (int)(hash % HALF), most = hd_world_most(w, mine);
    const int other = most < 0 ? -1 : hd_world_most(w, HALF - mine); // HALF - the least one
    return other < 0 ? -1 : most == HALF - other;
}

enum { READ, REPLACED, FAILED }; // the worst of all ranks counts

static int outcome(HdExec *x, bool ok, const char *path, const unsigned char id[16]) {
    return hd_world_most(x->world, ok ? READ : replaced(path, id) ? REPLACED : FAILED);
}

static void tell_choices(const StFile *f, const HdExec *x) {
    const char *then = hd_st_meta(f, "choices");
    if (then && *x->choices && strcmp(then, x->choices))
        hd_say(stderr,
               "note: the checkpoint was written under other algorithms of libraries (choices %s, here %s): the bits "
               "are not those of a run without a stop. --choices=FILE, with the file of that run, repeats them\n",
               then, x->choices);
}

static bool open_main(StFile *f, const char *dir, const char *path) {
    const int64_t newest = access(path, F_OK) ? hd_keep_newest_in(dir) : -1;
    if (newest < 0) return hd_st_open(f, path);
    return hd_fail("%s: no checkpoint there, and no link `latest` to one; the newest in that folder is "
                   "--resume=%s/checkpoint-%lld", dir, dir, (long long)newest);
}

// Opens everything, and reads it where all ranks have opened one and the same checkpoint. Result: REPLACED: another
// run has replaced it meanwhile; READ: *ok says whether all is well; else after hd_fail.
static int resume_once(HdExec *x, const char *dir, const char *path, const HdResumeRules *rules, Progress *at,
                       bool *ok, unsigned char id[16]) {
    Source s = {.dir = dir, .with = rules->with, .averaged = rules->averaged};
    memset(id, 0, 16);
    *ok = open_main(&s.main, dir, path);
    if (*ok) id_of(&s.main, id);
    const bool there = *ok;
    *ok = there && open_state(x, &s);
    int worst = outcome(x, *ok, path, id);
    if (worst == READ) {
        const int same = same_everywhere(x->world, id);
        worst = same < 0 ? FAILED : same ? READ : REPLACED;
        if (same < 0) *ok = false;
    }
    if (worst == READ || (worst == FAILED && there && !*ok)) *ok = read_checked(x, &s, *ok, at);
    if (worst == READ) worst = outcome(x, *ok, path, id);
    if (worst == READ && *ok && x->world->rank == 0) {
        hd_settings_tell(&s.main, x->program, &s.differences, s.with);
        tell_choices(&s.main, x);
    }
    close_source(&s, x->program);
    return worst;
}

// A run beside this one may replace the checkpoint before all ranks have opened it, and remove its shards. The ranks
// begin again until they have one and the same open. Reading that takes however long it takes: what is open stays.
// Ranks that have different ones and see no change are in different folders, or their file systems lag behind.
bool hd_state_resume(HdExec *x, const char *name, const HdResumeRules *rules, Progress *at) {
    static const HdResumeRules none = {0};
    const double patience = 30, lag = 5; // seconds: while the checkpoint changes, and while it does not
    enum { NO, CHANGING, STILL };
    char dir[PATH], path[PATH];
    unsigned char id[2][16] = {{0}, {0}};
    if (strlen(name) + 40 > PATH) return hd_fail("the name %s is too long", name); // on every rank
    const double begin = hd_now();
    double changed = begin;
    for (int i = 0;; i = !i) {
        bool ok;
        hd_checkpoint_find(name, dir, path); // one that is not there is an error of opening it
        if (resume_once(x, dir, path, rules ? rules : &none, at, &ok, id[i]) != REPLACED) return ok;
        const int other = hd_world_most(x->world, memcmp(id[0], id[1], sizeof *id) != 0);
        const double now = hd_now();
        if (other > 0) changed = now;
        const int here = now - changed > lag ? STILL : now - begin > patience ? CHANGING : NO;
        const int late = other < 0 ? -1 : hd_world_most(x->world, here);
        if (late < 0) return false; // a rank is gone
        if (late == STILL)
            return hd_fail("%s: the ranks see different checkpoints there: each of them needs the same files", path);
        if (late == CHANGING)
            return hd_fail("%s: another run replaces it faster than all ranks can open it, for %.0f s", path, patience);
        if (!other) nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
}
