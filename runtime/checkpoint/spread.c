// Pieces of parameters on several threads: reading files, converting and copying keep one core busy for longer than a
// disk or a GPU needs.
#include "runtime/checkpoint/pieces.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    HdExec *x;
    HdRole role;
    HdPieceFn *fn;
    void *data;
    pthread_mutex_t lock; // of what follows
    int k;                // the next piece: its parameter and first element, and how many came before it
    int64_t at, taken;
    int64_t failed; // the first piece that failed; -1: none
    char why[900];
} Spread;
typedef struct { int k; int64_t first, n, number; } Piece;

static bool next(Spread *s, Piece *piece) { // false at the end, and after a failure
    const int n_params = hd_piece_params(s->x->program, s->role);
    pthread_mutex_lock(&s->lock);
    while (s->k < n_params && s->at >= hd_piece_span(s->x, s->role, s->k).count) {
        s->k++;
        s->at = 0;
    }
    const bool some = s->k < n_params && s->failed < 0;
    if (some) {
        const HdSpan span = hd_piece_span(s->x, s->role, s->k);
        const int64_t left = span.count - s->at;
        *piece = (Piece){s->k, span.first + s->at, left < HD_PIECE ? left : HD_PIECE, s->taken++};
        s->at += piece->n;
    }
    pthread_mutex_unlock(&s->lock);
    return some;
}

// Pieces are taken in order and each that was taken is finished, so the first failure is the same in every run.
static void keep_failure(Spread *s, int64_t number) {
    pthread_mutex_lock(&s->lock);
    if (s->failed < 0 || number < s->failed) {
        s->failed = number;
        snprintf(s->why, sizeof s->why, "%s", hd_failure());
    }
    pthread_mutex_unlock(&s->lock);
}

static void *work(void *arg) {
    Spread *s = arg;
    Piece p;
    HdPieceRoom room = {0};
    while (next(s, &p)) {
        if (!hd_piece_room(&room, p.n) || !s->fn(s->x, p.k, p.first, p.n, room.v, s->data)) keep_failure(s, p.number);
    }
    free(room.v);
    return NULL;
}

bool hd_spread_pieces(HdExec *x, HdRole role, HdPieceFn *fn, void *data) {
    enum { MOST = 8 }; // more of them only wait for memory
    Spread s = {.x = x, .role = role, .fn = fn, .data = data, .failed = -1};
    pthread_t thread[MOST];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t pieces = 0;
    int n = 0;
    for (int k = 0; k < hd_piece_params(x->program, role); k++)
        pieces += (hd_piece_span(x, role, k).count + HD_PIECE - 1) / HD_PIECE;
    const int64_t wanted = pieces < cores ? pieces : cores;
    pthread_mutex_init(&s.lock, NULL);
    while (n < MOST && n + 1 < wanted && !pthread_create(&thread[n], NULL, work, &s)) n++;
    work(&s);
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&s.lock);
    return s.failed < 0 || hd_fail("%s", s.why);
}
