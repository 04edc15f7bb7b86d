// A run of one rank, and the functions that every kind of world builds on gather.
#include "runtime/world/world.h"
#include "runtime/heddle.h"
#include "runtime/world/text.h"
#include <stdlib.h>
#include <string.h>

static bool alone_gather(HdWorld *w, const void *mine, size_t bytes, void *all) {
    (void)w;
    if (bytes) memmove(all, mine, bytes);
    return true;
}

static bool alone_send(HdWorld *w, const void *data, size_t bytes) {
    (void)w, (void)data, (void)bytes;
    return hd_fail("rank 0 sends to itself");
}

static bool alone_receive(HdWorld *w, int from, void *data, size_t bytes) {
    (void)w, (void)data, (void)bytes;
    return hd_fail("there is no rank %d to receive from", from);
}

static void alone_fail(HdWorld *w, const char *why) { (void)w, (void)why; }
static bool alone_alive(HdWorld *w) { return w != NULL; }
static void alone_at(HdWorld *w, const char *what, int64_t step) { (void)w, (void)what, (void)step; }
static void alone_close(HdWorld *w) { (void)w; }

HdWorld *hd_world_alone(void) {
    static HdWorld w = {.ranks = 1, .gather = alone_gather, .send = alone_send, .receive = alone_receive,
                        .fail = alone_fail, .alive = alone_alive, .at = alone_at, .close = alone_close};
    return &w;
}

bool hd_world_barrier(HdWorld *w) { return w->gather(w, NULL, 0, NULL); }

// The ranks' bytes in order, for the caller to free; NULL after hd_fail.
static void *gathered(HdWorld *w, const void *mine, size_t bytes) {
    char *all = malloc((size_t)w->ranks * bytes + 1);
    if (!all) {
        hd_fail("out of memory");
        w->fail(w, hd_failure());
    }
    if (all && w->gather(w, mine, bytes, all)) return all;
    free(all);
    return NULL;
}

bool hd_world_broadcast(HdWorld *w, void *data, size_t bytes) {
    char *all = gathered(w, data, bytes);
    if (all) memcpy(data, all, bytes);
    free(all);
    return all != NULL;
}

bool hd_world_agree(HdWorld *w, bool ok) {
    enum { TEXT = 900 };
    if (w->ranks == 1) return ok;
    char mine[TEXT + 1] = {(char)ok};
    if (!ok) strncpy(mine + 1, hd_failure(), TEXT - 1);
    char *all = gathered(w, mine, sizeof mine);
    bool good = all != NULL;
    for (int r = 0; good && r < w->ranks; r++)
        if (!all[(size_t)r * sizeof mine]) {
            char *why = all + (size_t)r * sizeof mine + 1;
            hd_text_clean(why, TEXT);
            good = hd_fail("%s", why);
        }
    free(all);
    return good;
}

bool hd_world_names_rank(const char *why) { return !strncmp(why, "rank ", 5) && why[5] >= '0' && why[5] <= '9'; }

int hd_world_most(HdWorld *w, int v) {
    if (w->ranks == 1) return v;
    int *all = gathered(w, &v, sizeof v), most = all ? v : -1;
    for (int r = 0; all && r < w->ranks; r++)
        if (all[r] > most) most = all[r];
    free(all);
    return most;
}

int64_t hd_decayed_here(const HdExec *x, int64_t decayed, int64_t count, bool sharded) {
    if (sharded) decayed -= count * x->shard_index;
    return decayed < 0 ? 0 : decayed > count ? count : decayed;
}
