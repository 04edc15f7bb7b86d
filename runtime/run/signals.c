// The handler uses atomics, clock_gettime, signal and raise alone, which POSIX allows in handlers.
#include "runtime/run/signals.h"
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

enum { REPEAT_MS = 1000 };
static atomic_int stop;
static atomic_uint saves;
static _Atomic long long stopped_at, asked_at; // milliseconds

static long long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1; // never 0
}

static void on_save(int s) {
    const long long now = now_ms(), before = atomic_exchange(&asked_at, now);
    (void)s;
    if (!before || now - before >= REPEAT_MS) atomic_fetch_add(&saves, 1);
}

static void on_stop(int s) {
    const long long now = now_ms();
    int first = 0;
    if (atomic_compare_exchange_strong(&stop, &first, s)) {
        atomic_store(&stopped_at, now);
        return;
    }
    if (s == SIGPIPE || s == SIGUSR2) return;
    if (first == SIGUSR2 && atomic_compare_exchange_strong(&stop, &first, s)) { // the warning came before
        atomic_store(&stopped_at, now);
        return;
    }
    if (now - atomic_load(&stopped_at) < REPEAT_MS) return;
    signal(s, SIG_DFL);
    raise(s); // takes effect when the handler returns
}

static void handle(int s, void (*handler)(int), int flags) {
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;
    if (!sigaction(s, NULL, &old) && old.sa_handler != SIG_IGN) sigaction(s, &act, NULL);
}

void hd_catch_signals(void) {
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR2};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) handle(stops[i], on_stop, SA_RESTART);
    handle(SIGUSR1, on_save, SA_RESTART);
    signal(SIGXFSZ, SIG_IGN);
}

int hd_signal_stop(void) { return stop; }
unsigned hd_signal_saves(void) { return saves; }
