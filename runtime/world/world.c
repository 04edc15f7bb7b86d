// A run of one rank, and the functions that every kind of world builds on gather.
#include "runtime/world/world.h"
#include "runtime/heddle.h"
#include "runtime/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool alone_gather(HdWorld *w, const void *mine, size_t bytes, void *all) {
    (void)w;
    if (bytes) memmove(all, mine, bytes);
    return true;
}

static bool alone_share(HdWorld *w, void *data, size_t bytes) {
    (void)w, (void)data, (void)bytes;
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
    static HdWorld w = {.ranks = 1, .gather = alone_gather, .collect = alone_gather, .share = alone_share,
                        .send = alone_send, .receive = alone_receive, .fail = alone_fail, .alive = alone_alive,
                        .at = alone_at, .close = alone_close};
    return &w;
}

bool hd_world_barrier(HdWorld *w) { return w->gather(w, NULL, 0, NULL); }

// On rank 0 the ranks' bytes in order, for the caller to free. false after hd_fail.
static bool collected(HdWorld *w, const void *mine, size_t bytes, void **all) {
    *all = w->rank ? NULL : malloc((size_t)w->ranks * bytes + 1);
    if (!w->rank && !*all) {
        hd_fail("out of memory");
        w->fail(w, hd_failure());
        return false;
    }
    if (w->collect(w, mine, bytes, *all)) return true;
    free(*all);
    *all = NULL;
    return false;
}

bool hd_world_fail_as(HdWorld *w, int who) {
    enum { TEXT = 900 };
    char text[TEXT] = "";
    if (w->rank == who) snprintf(text, sizeof text, "%s", hd_failure());
    if (who && w->rank == who && !w->send(w, text, sizeof text)) return false;
    if (who && !w->rank && !w->receive(w, who, text, sizeof text)) return false;
    if (!w->share(w, text, sizeof text)) return false;
    hd_text_clean(text, sizeof text);
    return hd_fail("%s", text);
}

bool hd_world_agree(HdWorld *w, bool ok) {
    if (w->ranks == 1) return ok;
    const char mine = (char)ok;
    void *all;
    int32_t failed = 0; // the lowest rank that did, counted from 1
    if (!collected(w, &mine, sizeof mine, &all)) return false;
    for (int r = w->ranks - 1; all && r >= 0; r--)
        if (!((const char *)all)[r]) failed = r + 1;
    free(all);
    if (!w->share(w, &failed, sizeof failed)) return false;
    if (!failed) return ok; // a rank 0 that does not hear of a failure does not undo it
    if (failed > 0 && failed <= w->ranks) return hd_world_fail_as(w, failed - 1);
    return hd_fail("rank 0 names a rank that is not in the run");
}

bool hd_world_names_rank(const char *why) { return !strncmp(why, "rank ", 5) && why[5] >= '0' && why[5] <= '9'; }

int hd_world_most(HdWorld *w, int v) {
    if (w->ranks == 1) return v;
    void *all;
    int most = v;
    if (!collected(w, &v, sizeof v, &all)) return -1;
    for (int r = 0; all && r < w->ranks; r++)
        if (((const int *)all)[r] > most) most = ((const int *)all)[r];
    free(all);
    if (!w->share(w, &most, sizeof most)) return -1;
    return most > v ? most : v;
}
