// A program with a guard under --check: two launches on two streams, of which one writes wherever the test says.
#include "tests/fake_cuda/opened.h"
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, KEPT = 1024, GIVEN = KEPT + 256 + 2 * GUARD, FIRST = 4096, LATER = FIRST + 256 };
enum { SIDE = 8192, AWAY = 512 };
static const HdGuarded persist[] = {{"buffer @kept", KEPT, 4, -1, false}};
static const HdGuarded own[] = {{"argument %x", GIVEN, 4, -1, false}, {"result %0", FIRST, 4, 0, false},
                                {"workspace", SIDE, 8, 2, false},     {"result %1", AWAY, 12, 2, true},
                                {"result %2", LATER, 4, 4, false}}; // %0 is dead then: its guard has bytes of %2
static const HdAction actions[] = {{"launch", "compute", "head", "gpt.hd:12", 0, 0, 0},
                                   {"record", "compute", "", "", 0, 0, 0},
                                   {"wait", "side", "", "", 0, 0, 0},
                                   {"launch", "side", "blocks.0", "gpt.hd:14", 0, 0, 0},
                                   {"launch", "compute", "", "", 0, 0, 0}};
static struct { int64_t first, side, later, host, zero; } at; // where the actions write; 0: they do not
static const HdFunc micro;

static void add_one(HdExec *x, int stream, int64_t offset) {
    hd_cuda_launch(x, stream, 0, one, 1, &(HdArg){.word = hd_device(x, offset)});
}

static void run(HdExec *x) {
    hd_action(x, &micro, 0);
    add_one(x, 0, at.first);
    hd_action(x, &micro, 1);
    hd_cuda_record(x, 0, 0);
    hd_action(x, &micro, 2);
    hd_cuda_wait(x, 1, 0);
    hd_action(x, &micro, 3);
    add_one(x, 1, at.side);
    if (at.zero) hd_cuda_zero(x, 1, hd_device(x, at.zero), 4);
    if (at.host) hd_pinned(x, at.host)[0]++;
    hd_action(x, &micro, 4);
    add_one(x, 0, at.later);
}

static const HdFunc micro = {.name = "micro", .run = run, .n_actions = 5, .actions = actions};
static const HdGuardedList own_list = {5, own};

static HdExec *guarded(HdProgram *p, bool check) {
    *p = small_program();
    p->guard = GUARD;
    p->guarded = (HdGuardedList){1, persist};
    p->guarded_in = &own_list;
    p->n_funcs = 1;
    p->funcs = &micro;
    p->pinned_bytes = 4096;
    at.first = FIRST;
    at.side = SIDE;
    at.later = LATER;
    at.host = at.zero = 0;
    HdExec *x = opened(p, false);
    x->check = check;
    return x;
}

// One action writes to `where`, and the run says so.
static void caught(int64_t *where, int64_t offset, const char *message) {
    HdProgram p;
    HdExec *x = guarded(&p, true);
    CHECK(p.backend->run(x, &micro));
    *where = offset;
    CHECK(!p.backend->run(x, &micro) && failed_with(message));
    p.backend->close(x);
}

static void between_runs(void) {
    HdProgram p;
    HdExec *x = guarded(&p, true);
    CHECK(p.backend->run(x, &micro) && p.backend->write(x, KEPT - 2, "abcd", 4) && !p.backend->run(x, &micro));
    CHECK(failed_with("micro: before its first action: --check: bytes 2 to 1 before buffer @kept were written; the "
                      "first was 0x84 and is 0x61"));
    p.backend->close(x);
}

static void all(void) {
    HdProgram p;
    int value = 0;
    HdExec *x = guarded(&p, true);
    for (int i = 0; i < 3; i++) CHECK(p.backend->run(x, &micro));
    CHECK(p.backend->read(x, SIDE, &value, sizeof value) && value == 3);
    p.backend->close(x);
    x = guarded(&p, false); // nobody looks
    at.first = FIRST + 4;
    CHECK(p.backend->run(x, &micro) && p.backend->sync(x));
    p.backend->close(x);
    caught(&at.first, FIRST + 4,
           "gpt.hd:12: launch in head (action 0 of micro, stream compute): --check: bytes 1 to 1 after the end of its "
           "result %0 were written; the first was 0x");
    caught(&at.first, GIVEN - 4, "(action 0 of micro, stream compute): --check: bytes 4 to 4 before argument %x were");
    caught(&at.side, FIRST + 260 - 4,
           "gpt.hd:14: launch in blocks.0 (action 3 of micro, stream side): --check: bytes 253 to 253 after the end of "
           "result %0 of launch in head, gpt.hd:12 were written");
    caught(&at.side, KEPT + 256 + GUARD - 4, "--check: bytes 505 to 505 after the end of buffer @kept were");
    caught(&at.side, SIDE + 8, "--check: bytes 1 to 1 after the end of workspace of wait were");
    caught(&at.zero, GIVEN - GUARD - 2,
           "--check: bytes 507 to 508 after the end of buffer @kept were written; the first was 0x86 and is 0x00; 1 "
           "other guard changed, too");
    caught(&at.host, AWAY + 12,
           "(action 3 of micro, stream side): --check: bytes 1 to 1 after the end of result %1 of wait");
    caught(&at.later, LATER - 4,
           "launch (action 4 of micro, stream compute): --check: bytes 4 to 4 before its result %2");
    between_runs();
}

void guards(void) {
    all();
    setenv("FAKE_CUDA_ASYNC", "1", 1);
    all();
    HdProgram p;
    HdExec *x = guarded(&p, true);
    setenv("FAKE_CUDA_FAIL", "cuMemcpyDtoHAsync:1", 1);
    CHECK(!p.backend->run(x, &micro) &&
          failed_with("(action 0 of micro, stream compute): cannot copy guards: CUDA_ERROR_INJECTED"));
    p.backend->close(x);
}
