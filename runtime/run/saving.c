// A save in the background has two stages that a thread of each rank works at: its file, then on rank 0 the manifest
// and what is removed. Between them, and at the end, all ranks agree, on their main threads between two steps, since
// the world belongs to those. So no step waits for a disk.
#include "runtime/run/saving.h"
#include "runtime/base/host_memory.h"
#include "runtime/run/signals.h"
#include "runtime/text.h"
#include "runtime/world/world.h"
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static bool rank_0(const Saving *s) { return s->x->world->rank == 0; }

bool hd_saving_open(Saving *s, const Options *o, bool rank_0) {
    *s = (Saving){.o = o, .keep = {.dir = o->save, .keep = o->keep, .best = HUGE_VAL}, .last = hd_now()};
    if (!rank_0 || !o->save) return true;
    if (!hd_lock_take(&s->lock, o->save, hd_signal_stop)) return false;
    const bool continues = hd_checkpoint_continues(o->save, o->resume);
    if (!continues && !o->overwrite && !hd_checkpoint_free(o->save)) return false;
    s->keep.fresh = o->overwrite && !continues;
    if (continues) s->keep.best = hd_best_before(o->save);
    return true;
}

// --- memory for copies

static uint64_t host_id(void) { // equal on the ranks of one host
    char text[120] = "";
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, 50);
    if (fd >= 0) close(fd);
    const size_t used = n > 0 ? (size_t)n : 0;
    if (gethostname(text + used, sizeof text - used)) text[used] = 0;
    return XXH3_64bits(text, sizeof text);
}

// all, once: what the copies of this host's ranks take together, against what is free there with something to spare.
// Takes the memory where it fits.
static bool plan_copy(Saving *s) {
    HdWorld *w = s->x->world;
    const bool writes = hd_save_writes(s->x->program, w->rank);
    struct { uint64_t host; int64_t bytes; } mine = {host_id(), 0}, *all = calloc((size_t)w->ranks, sizeof *all);
    const char *asked = getenv("HEDDLE_SAVE_COPY");
    bool ok = (all || hd_fail("out of memory")) && hd_copy_plan(&s->copy, s->x);
    mine.bytes = writes ? s->copy.bytes : 0;
    if (!hd_world_agree(w, ok) || !w->gather(w, &mine, sizeof mine, all)) {
        free(all);
        return false;
    }
    double need = 0;
    for (int r = 0; r < w->ranks; r++)
        if (all[r].host == mine.host) need += (double)all[r].bytes;
    free(all);
    const double room = (double)hd_host_memory_free(""), most = 0.8 * room;
    const bool fits = need <= most && !(asked && !strcmp(asked, "0"));
    const int other = hd_world_most(w, !fits);
    char slow[300] = "";
    s->planned = true;
    s->fits = other == 0;
    if (s->fits && !hd_world_agree(w, !writes || hd_copy_reserve(&s->copy, s->x, slow, sizeof slow)))
        return false;
    if (*slow)
        hd_say(stderr, "note: the memory for copies of rank %d cannot be page-locked (%s): a save holds the steps up "
                       "for longer; let this process lock more memory (ulimit -l, the memory of the container)\n",
               w->rank, slow);
    if (other > 0 && rank_0(s) && need > most)
        hd_log_say(s->log, "checkpoints are written between steps: a copy takes %.2f GiB and this host has %.2f GiB",
                   need / 0x1p30, room / 0x1p30);
    else if (other > 0)
        hd_log_say(s->log, "checkpoints are written between steps: %s",
                   asked && !strcmp(asked, "0") ? "HEDDLE_SAVE_COPY=0" : "another host lacks memory for a copy");
    return other >= 0;
}

bool hd_saving_prepare(Saving *s) {
    const Options *o = s->o;
    return !o->save || !(o->save_every || o->save_seconds || o->keep_best) || plan_copy(s);
}

static bool take_copy(Saving *s) { // all
    const double begin = hd_now();
    const bool ok = hd_world_agree(s->x->world, !s->save.writes || hd_copy_take(&s->copy, s->x));
    if (ok) s->save.x = s->save.writes ? &s->copy.exec : s->x;
    if (ok)
        hd_log_say(s->log, "step %lld  saving in the background, %.2f GiB copied in %.2f s", (long long)s->save.at.step,
                   (double)s->copy.bytes / 0x1p30, hd_now() - begin);
    return ok;
}

// --- the work of a stage

static bool commit(Saving *s) {
    return !rank_0(s) || (hd_save_commit(&s->save) && (s->best || hd_keep_newest(&s->keep, s->save.at.step)));
}

static void *work(void *arg) {
    Saving *s = arg;
    s->good = s->stage == HD_SAVES_STATE ? hd_save_write(&s->save) : commit(s);
    if (!s->good) snprintf(s->why, sizeof s->why, "%s", hd_failure());
    atomic_store(&s->done, true);
    return NULL;
}

static void begin_work(Saving *s, SavingStage stage) {
    sigset_t all, before;
    s->stage = stage;
    atomic_store(&s->done, false);
    sigfillset(&all); // signals are for the threads that work
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->threaded = s->background && !pthread_create(&s->thread, NULL, work, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!s->threaded) work(s);
}

static bool end_work(Saving *s) {
    if (s->threaded) pthread_join(s->thread, NULL);
    s->threaded = false;
    return s->good || hd_fail("%s", s->why);
}

// --- one that is under way

static bool end_save(Saving *s, bool ok) {
    s->stage = HD_SAVES_NOTHING;
    hd_save_end(&s->save);
    if (!ok && s->best) s->keep.best = s->best_before;
    if (ok)
        hd_log_say(s->log, "step %lld  saved %s/checkpoint.safetensors%s", (long long)s->save.at.step, s->name,
                   s->best ? ", the best so far" : "");
    return ok;
}

bool hd_saving_go_on(Saving *s, bool wait) {
    while (s->stage != HD_SAVES_NOTHING) {
        const int busy = wait ? 0 : hd_world_most(s->x->world, !atomic_load(&s->done));
        if (busy) return busy > 0; // else a rank is gone
        const bool ok = end_work(s);
        if (s->stage == HD_SAVES_MANIFEST) return end_save(s, hd_world_agree(s->x->world, ok));
        if (!hd_save_gather(&s->save, ok)) return end_save(s, false);
        begin_work(s, HD_SAVES_MANIFEST);
    }
    return true;
}

bool hd_saving_make_way(Saving *s, int64_t step) {
    if (s->stage == HD_SAVES_NOTHING) return true;
    hd_log_say(s->log, "step %lld  waiting for the checkpoint of step %lld, which is still being written",
               (long long)step, (long long)s->save.at.step);
    return hd_saving_go_on(s, true);
}

bool hd_saving_start(Saving *s, const Progress *at, bool best, bool foreground) {
    HdWorld *w = s->x->world;
    s->best = best;
    s->best_before = s->keep.best;
    if (!best) s->last = hd_now();
    if (!hd_world_agree(w, !rank_0(s) || hd_lock_keep(&s->lock, s->o->save, hd_signal_stop))) return false;
    if (!hd_keep_name(&s->keep, at->step, best, s->name)) return false; // the same on all ranks
    bool ok = hd_save_begin(&s->save, s->x, s->name, &s->lock, at) && (foreground || s->planned || plan_copy(s));
    s->background = ok && !foreground && s->fits;
    ok = ok && (!s->background || take_copy(s));
    if (!ok) {
        hd_save_end(&s->save);
        return false;
    }
    if (best) s->keep.best = at->val_loss;
    begin_work(s, HD_SAVES_STATE);
    return s->background || hd_saving_go_on(s, true);
}

void hd_saving_close(Saving *s) {
    if (s->stage != HD_SAVES_NOTHING) end_work(s);
    hd_save_end(&s->save);
    hd_copy_free(&s->copy);
    hd_lock_release(&s->lock);
}
