// The ranks of one process: gathers, bytes to rank 0, agreement, and failures that wake everybody. An alarm ends a test
// that hangs.
#include "runtime/heddle.h"
#include "runtime/text.h"
#include "runtime/world/world.h"
#include "tests/unit/check.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_RANKS = 8, LIMIT_SECONDS = 600 };

typedef struct { HdWorld *w; bool (*work)(HdWorld *w); bool ok; char why[200]; } Rank;

static void *rank_main(void *arg) {
    Rank *r = arg;
    r->ok = r->work(r->w);
    if (!r->ok) snprintf(r->why, sizeof r->why, "%s", hd_failure());
    r->w->close(r->w);
    return NULL;
}

// Runs `work` on every rank of a run of n; a rank's result and message are in rank[].
static void on_ranks(int n, bool (*work)(HdWorld *w), Rank rank[MOST_RANKS]) {
    pthread_t thread[MOST_RANKS];
    HdWorld *w = hd_world_threads(n);
    CHECK(w != NULL);
    if (!w) exit(1);
    alarm(LIMIT_SECONDS);
    for (int r = 0; r < n; r++) rank[r] = (Rank){.w = &w[r], .work = work};
    for (int r = 0; r < n; r++)
        if (pthread_create(&thread[r], NULL, rank_main, &rank[r])) exit(1);
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    alarm(0);
}

static void all_good(bool (*work)(HdWorld *w)) {
    for (int n = 1; n <= MOST_RANKS; n++) {
        Rank rank[MOST_RANKS];
        on_ranks(n, work, rank);
        for (int r = 0; r < n; r++)
            if (!rank[r].ok) CHECK_TEXT(rank[r].why, "no failure");
    }
}

static bool wrong(const char *what) {
    hd_fail("%s", what);
    return false;
}

static bool gathers(HdWorld *w) {
    enum { MOST = 50 };
    int all[MOST_RANKS * MOST], mine[MOST];
    for (int round = 0; round < 300; round++) {
        const int n = round % MOST;
        for (int i = 0; i < n; i++) mine[i] = w->rank * 1000000 + round * 100 + i;
        if (!w->gather(w, mine, (size_t)n * sizeof *mine, all)) return false;
        for (int r = 0; r < w->ranks; r++)
            for (int i = 0; i < n; i++)
                if (all[r * n + i] != r * 1000000 + round * 100 + i) return wrong("another rank's bytes");
    }
    return true;
}

TEST(gather_is_in_rank_order) { all_good(gathers); }

static bool agrees(HdWorld *w) {
    for (int round = 0; round < 100; round++) {
        int v = w->rank == 0 ? round : -1;
        if (!hd_world_barrier(w) || !w->share(w, &v, sizeof v) || v != round) return wrong("sharing");
        if (hd_world_most(w, w->rank == round % w->ranks ? 7 : -3) != 7) return wrong("most");
        if (!hd_world_agree(w, true)) return wrong("agreement");
        hd_fail("rank %d of round %d", w->rank, round);
        const int lowest = round % w->ranks;
        char want[40];
        snprintf(want, sizeof want, "rank %d of round %d", lowest, round);
        if (hd_world_agree(w, w->rank < lowest)) return wrong("a failure that nobody sees");
        if (strcmp(hd_failure(), want) != 0) return false;
    }
    return true;
}

TEST(agreement_is_on_the_lowest_failure) { all_good(agrees); }

// The bytes that an agreement moves, whoever fails: a byte and a word a rank, and one text for all.
static _Atomic size_t moved;
static HdWorld honest;

static bool counting_gather(HdWorld *w, const void *mine, size_t bytes, void *all) {
    moved += bytes * (size_t)w->ranks;
    return honest.gather(w, mine, bytes, all);
}
static bool counting_collect(HdWorld *w, const void *mine, size_t bytes, void *on_zero) {
    moved += bytes;
    return honest.collect(w, mine, bytes, on_zero);
}
static bool counting_share(HdWorld *w, void *data, size_t bytes) {
    moved += bytes;
    return honest.share(w, data, bytes);
}
static bool counting_send(HdWorld *w, const void *data, size_t bytes) {
    moved += bytes;
    return honest.send(w, data, bytes);
}

static bool agrees_cheaply(HdWorld *w) {
    enum { GOOD = 5, TEXT = 900 };
    if (!hd_world_barrier(w)) return false;
    if (w->rank == 0) {
        honest = *w;
        moved = 0;
    }
    if (!hd_world_barrier(w)) return false; // the test's own words are copied before any rank counts
    w->gather = counting_gather, w->collect = counting_collect, w->share = counting_share, w->send = counting_send;
    const size_t ranks = (size_t)w->ranks;
    const bool good = hd_world_agree(w, true);
    if (!hd_world_barrier(w)) return false;
    if (!good || moved != (ranks > 1 ? GOOD * ranks : 0)) return wrong("an agreement moves more than a word a rank");
    hd_fail("the last rank");
    if (!hd_world_barrier(w)) return false;
    const bool bad = !hd_world_agree(w, w->rank < w->ranks - 1);
    if (!hd_world_barrier(w)) return false;
    if (!bad || strcmp(hd_failure(), "the last rank") != 0) return wrong("another verdict");
    if (moved != (ranks > 1 ? 2 * GOOD * ranks + TEXT * (ranks + 1) : 0)) return wrong("more than one rank sends");
    return true;
}

TEST(an_agreement_moves_a_word_a_rank) { all_good(agrees_cheaply); }

static bool collects(HdWorld *w) {
    int all[MOST_RANKS], word[3] = {w->rank, 7 * w->rank, 1};
    for (int round = 0; round < 200; round++) {
        const int mine = 1000 * round + w->rank;
        memset(all, 0, sizeof all);
        if (!w->collect(w, &mine, sizeof mine, all)) return false;
        for (int r = 0; r < w->ranks; r++)
            if (all[r] != (w->rank ? 0 : 1000 * round + r)) return wrong("another rank's bytes, or not on rank 0");
        if (w->rank == 0) word[0] = word[1] = round;
        if (!w->share(w, word, sizeof word) || word[0] != round || word[1] != round) return wrong("not rank 0's bytes");
    }
    return true;
}

TEST(rank_0_collects_and_shares) { all_good(collects); }

static bool letters(HdWorld *w) { // cut in one way by the sender and in another by the receiver
    enum { N = 100000 };
    unsigned char *bytes = malloc(N);
    bool ok = bytes != NULL;
    for (int from = 1; ok && from < w->ranks; from++) {
        for (int i = 0; i < N; i++) bytes[i] = (unsigned char)(w->rank ? i * 7 + i / 256 + w->rank : 0);
        size_t at = 0;
        for (size_t part = 1; ok && w->rank == from && at < N; at += part, part = part * 3 + 1) {
            if (part > N - at) part = N - at;
            ok = w->send(w, bytes + at, part);
        }
        for (size_t part = 5; ok && w->rank == 0 && at < N; at += part, part = part * 2) {
            if (part > N - at) part = N - at;
            ok = w->receive(w, from, bytes + at, part);
        }
        for (int i = 0; ok && w->rank == 0 && i < N; i++)
            if (bytes[i] != (unsigned char)(i * 7 + i / 256 + from)) ok = wrong("other bytes came than were sent");
    }
    free(bytes);
    return ok;
}

TEST(bytes_to_rank_0_are_a_stream) { all_good(letters); }

// --- failures

static int victim; // the rank that gives up, after some common work

static bool gives_up_among_gathers(HdWorld *w) {
    int all[MOST_RANKS];
    for (int round = 0;; round++) {
        if (w->rank == victim && round == 20) {
            w->fail(w, "the disk is full");
            w->fail(w, "a later failure is not told");
        }
        if (!w->gather(w, &round, sizeof round, all)) return w->alive(w) ? wrong("alive after a failure") : false;
        if (round > 20) return wrong("a gather without one rank");
    }
}

static bool gives_up_while_others_send(HdWorld *w) { // rank 0 reads from the victim, the others send to rank 0
    char byte = 1;
    if (!hd_world_barrier(w)) return false;
    if (w->rank == victim) {
        usleep(2000);
        w->fail(w, "the disk is full");
        return wrong("rank x: the disk is full");
    }
    if (w->rank == 0) return w->receive(w, victim, &byte, 1);
    return w->send(w, &byte, 1) && hd_world_barrier(w);
}

static bool gives_up_while_others_poll(HdWorld *w) {
    if (!hd_world_barrier(w)) return false;
    if (w->rank == victim) w->fail(w, "the disk is full");
    while (w->alive(w)) usleep(50);
    return false;
}

static void all_fail(bool (*work)(HdWorld *w), int first_victim) {
    for (int n = 1; n <= MOST_RANKS; n++)
        for (victim = first_victim; victim < n; victim++) {
            Rank rank[MOST_RANKS];
            on_ranks(n, work, rank);
            char want[40];
            snprintf(want, sizeof want, "rank %d: the disk is full", victim);
            for (int r = 0; r < n; r++)
                if (rank[r].ok) CHECK_TEXT("success", want);
                else if (r != victim) CHECK_TEXT(rank[r].why, want);
        }
}

TEST(a_failure_ends_gathers) { all_fail(gives_up_among_gathers, 0); }
TEST(a_failure_ends_sends_and_receives) { all_fail(gives_up_while_others_send, 1); }
TEST(a_failure_is_seen_by_polling) { all_fail(gives_up_while_others_poll, 0); }

static bool passes_on_what_was_agreed(HdWorld *w) { // whoever is quickest tells it: the words say whose failure it is
    if (!hd_world_barrier(w)) return false;
    if (w->rank == victim) w->fail(w, "rank 0 has no GPU");
    while (w->alive(w)) usleep(50);
    return false;
}

TEST(a_failure_that_names_its_rank_is_told_as_it_is) {
    for (victim = 1; victim < 3; victim++) {
        Rank rank[MOST_RANKS];
        on_ranks(3, passes_on_what_was_agreed, rank);
        for (int r = 0; r < 3; r++)
            if (rank[r].ok || r != victim) CHECK_TEXT(rank[r].ok ? "success" : rank[r].why, "rank 0 has no GPU");
    }
}

static bool uneven(HdWorld *w) {
    char mine[2] = {0}, all[2 * MOST_RANKS];
    return w->gather(w, mine, w->rank == w->ranks - 1 ? 2 : 1, all);
}

TEST(parts_of_different_sizes_are_refused) {
    Rank rank[MOST_RANKS];
    on_ranks(3, uneven, rank);
    for (int r = 0; r < 3; r++) CHECK(!rank[r].ok && strstr(rank[r].why, "different sizes") != NULL);
}

TEST(no_text_commands_a_terminal) {
    static const struct { const char *sent, *shown; } cases[] = {
        {"rank 3: caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80\n", "rank 3: caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80?"},
        {"\033[2J\033]0;title\007", "?[2J?]0;title?"},
        {"a\rb\tc\177", "a?b?c?"},
        {"\xc2\x9b" "2J", "??2J"},                  // the same command in one character of UTF-8
        {"\x9b" "2J \xff\xfe \xc3", "?2J ?? ?"},
        {"\xe2\x80\xae" "abc", "???abc"},           // from right to left
        {"\xc0\x9b \xe0\x80\x9b \xed\xa0\x80", "?? ??? ???"}, // longer than need be, half of a pair
        {"\xf4\x90\x80\x80 \xf0\x80\x80\x80", "???? ????"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[80];
        snprintf(text, sizeof text, "%s", cases[i].sent);
        hd_text_clean(text, sizeof text);
        CHECK_TEXT(text, cases[i].shown);
    }
    char full[4] = {'a', 'b', 'c', 'd'}, none[1] = {'x'};
    hd_text_clean(full, sizeof full);
    CHECK_TEXT(full, "abc");
    hd_text_clean(none, 0);
    CHECK_INT(none[0], 'x');
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
