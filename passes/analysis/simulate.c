// A discrete-event simulation over the actions of a step. See simulate.h.
#include "passes/analysis/simulate.h"
#include "passes/analysis/seam.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LEAST_RATE = 0.2;

const char *const hd_work_text[N_WORKS] = {
#define X(id, text) text,
    HD_WORKS(X)
#undef X
};

Work hd_work(const Op *o) {
    if (hd_op_is(o, TRAIT_MATMUL)) return WORK_PRODUCTS;
    if (hd_op_is(o, TRAIT_ATTENTION)) return WORK_ATTENTION;
    if (hd_op_is(o, TRAIT_COLLECTIVE)) return WORK_COLLECTIVES;
    if (hd_op_is(o, TRAIT_COPIES)) return hd_copy_way(o) == COPY_WITHIN ? WORK_KERNELS : WORK_COPIES;
    return hd_op_is(o, TRAIT_SYNC) ? WORK_SYNC : WORK_KERNELS;
}

typedef struct {
    VEC(int) queue; // actions in order; -1 - r: run r begins, for all streams that do not run on
    bool runs_on;   // where one function of the step ends and the next begins
    int at, by;     // the next entry; the action that let the stream come here
    bool runs;
    double left, since; // seconds of the running action if it were alone; when the stream was last let go on
} Lane;

typedef struct {
    Arena *a;
    const DeviceModel *d;
    Simulation *s;
    Lane *lanes;
    int *record; // by action: of a wait, the record that it waits for; -1: none
    double *done; // by action: when a record was reached; negative: not yet
    VEC(int) last; // by event: the last action that records it, plus 1
    double now, not_before;
} Sim;

// --- the actions of a step

static int stream_number(Sim *x, const char *name, int *cap) {
    Simulation *s = x->s;
    for (int i = 0; i < s->n_streams; i++)
        if (strcmp(s->streams[i], name) == 0) return i;
    if (s->n_streams == *cap) return 0; // counted before
    s->streams[s->n_streams] = name;
    return s->n_streams++;
}

static int64_t count_actions(const Module *m, const Symbol *step, int64_t *runs) {
    int64_t n = 0, times;
    *runs = 0;
    const Func *f;
    for (int i = 0; (f = hd_segment(m, step, i, &times)); i++) {
        n += times * f->n_ops;
        *runs += times;
    }
    return n;
}

static void find_streams(Sim *x, const Module *m) {
    int cap = 1;
    for (const Symbol *y = m->symbols; y; y = y->next) cap += y->kind == SYM_STREAM;
    x->s->streams = HD_NEWN(x->a, const char *, cap);
    for (const Symbol *y = m->symbols; y; y = y->next)
        if (y->kind == SYM_STREAM) stream_number(x, y->name, &cap);
    if (!x->s->n_streams) stream_number(x, "compute", &cap);
    x->lanes = HD_NEWN(x->a, Lane, x->s->n_streams);
    for (int i = 0; i < x->s->n_streams; i++) x->lanes[i].by = -1;
}

// A wait is for the last record of its event, in the order in which functions run.
static int find_record(Sim *x, const Op *o, int action) {
    const int64_t event = hd_int(&o->attrs, A_EVENT, -1);
    if (!hd_op_is(o, TRAIT_RECORDS | TRAIT_WAITS) || event < 0 || event >= 1 << 20) return -1;
    while (x->last.n <= event) hd_push(x->a, &x->last, 0);
    if (hd_op_is(o, TRAIT_WAITS)) return x->last.at[event] - 1;
    x->last.at[event] = action + 1;
    return -1;
}

static void add_action(Sim *x, const Op *o, int run) {
    Simulation *s = x->s;
    int none = 0;
    SimAction c = {.op = o, .run = run, .work = hd_work(o), .seconds = hd_model_seconds(x->d, o), .cause = -1};
    if (c.work == WORK_PRODUCTS || c.work == WORK_ATTENTION) c.seconds /= s->rate;
    s->joules += hd_model_joules(x->d, o);
    if (hd_op_is(o, TRAIT_OPENS)) c.seconds = hd_model_graph(x->d);
    if (c.work != WORK_SYNC && c.seconds <= 0) return;
    c.stream = stream_number(x, o->stream ? o->stream : "compute", &none);
    x->record[s->n_actions] = find_record(x, o, s->n_actions);
    x->done[s->n_actions] = -1;
    hd_push(x->a, &x->lanes[c.stream].queue, s->n_actions);
    s->actions[s->n_actions++] = c;
}

static void add_run(Sim *x, const Func *f) {
    Simulation *s = x->s;
    SimRun *r = &s->runs[s->n_runs];
    *r = (SimRun){.f = f, .first = s->n_actions};
    for (int i = 0; i < s->n_streams; i++)
        if (!s->n_runs || !x->lanes[i].runs_on) hd_push(x->a, &x->lanes[i].queue, -1 - s->n_runs);
    bool captured = false;
    for (const Op *o = f->first; o; o = o->next) {
        add_action(x, o, s->n_runs);
        if (hd_op_is(o, TRAIT_OPENS)) captured = true, s->host += hd_model_graph(x->d);
        else if (hd_op_is(o, TRAIT_CLOSES)) captured = false;
        else if (!captured && hd_is_action(o)) s->host += hd_model_direct(x->d);
    }
    r->n = s->n_actions - r->first;
    s->n_runs++;
}

// --- time

// The work before the first action of a run: its batch from the host.
static double gap_before(const Sim *x, const Func *f) {
    double seconds = 0;
    for (int i = 0; i < f->n_args; i++)
        seconds += hd_model_copy(x->d, COPY_TO_DEVICE, (double)hd_type_bytes(f->args[i]->type), false);
    return seconds;
}

// All joined streams have ended, and the next run begins.
static bool begin_run(Sim *x, int run) {
    const int n = x->s->n_streams;
    int last = -1;
    if (run == x->s->n_runs) return false;
    for (int i = 0; i < n; i++) {
        const Lane *l = &x->lanes[i];
        if (run && l->runs_on) continue;
        if (l->runs || l->at == l->queue.n || l->queue.at[l->at] != -1 - run) return false;
        if (last < 0 || l->since > x->lanes[last].since) last = i;
    }
    x->not_before = x->now + gap_before(x, x->s->runs[run].f);
    x->s->runs[run].start = x->now;
    for (int i = 0; i < n; i++) {
        if (run && x->lanes[i].runs_on) continue;
        x->lanes[i].at++;
        x->lanes[i].by = x->lanes[last].by;
    }
    return true;
}

static void start_action(Sim *x, Lane *l, int i) {
    SimAction *c = &x->s->actions[i];
    c->start = x->now;
    c->cause = l->by;
    l->left = c->seconds;
    l->runs = true;
}

// Takes what costs no time off the head of a stream, and starts an action there. Whether anything happened.
static bool step_lane(Sim *x, Lane *l) {
    if (l->runs || l->at == l->queue.n || l->queue.at[l->at] < 0 || x->now < x->not_before) return false;
    const int i = l->queue.at[l->at], r = x->record[i];
    SimAction *c = &x->s->actions[i];
    if (c->seconds > 0) return start_action(x, l, i), true;
    if (r >= 0 && x->done[r] < 0) return false;
    c->start = c->end = x->now;
    if (r >= 0 && x->done[r] > l->since) {
        c->start = l->since > x->not_before ? l->since : x->not_before;
        l->by = x->s->actions[r].cause;
        l->since = x->done[r];
    }
    c->cause = l->by;
    if (hd_op_is(c->op, TRAIT_RECORDS)) x->done[i] = x->now;
    l->at++;
    return true;
}

typedef struct { int works[N_WORKS], ways[N_COPY_WAYS]; } Running;

static Running running(const Sim *x) {
    Running r = {0};
    for (int i = 0; i < x->s->n_streams; i++) {
        const Lane *l = &x->lanes[i];
        if (!l->runs) continue;
        const SimAction *c = &x->s->actions[l->queue.at[l->at]];
        r.works[c->work]++;
        if (c->work == WORK_COPIES) r.ways[hd_copy_way(c->op)]++;
    }
    return r;
}

static int kernels(const Running *r) {
    return r->works[WORK_PRODUCTS] + r->works[WORK_ATTENTION] + r->works[WORK_KERNELS];
}

static double rate(const Sim *x, const SimAction *c, const Running *r) {
    if (c->work == WORK_COLLECTIVES || c->work == WORK_SYNC) return 1;
    const double collective = r->works[WORK_COLLECTIVES] ? hd_model_beside(x->d) : 1;
    const double copy = r->works[WORK_COPIES] ? hd_model_beside_copy(x->d) : 1;
    if (c->work != WORK_COPIES) return collective * copy / kernels(r);
    const CopyWay way = hd_copy_way(c->op);
    const bool both = r->ways[way == COPY_TO_HOST ? COPY_TO_DEVICE : COPY_TO_HOST] > 0;
    return (both ? hd_model_both_ways(x->d) : 1) / r->ways[way];
}

static void account(SimRun *run, const Running *r, double dt) {
    const bool compute = kernels(r) > 0;
    bool any = false;
    for (int w = 0; w < WORK_SYNC; w++) {
        run->busy[w] += r->works[w] ? dt : 0;
        any |= r->works[w] > 0;
    }
    if (!compute && r->works[WORK_COLLECTIVES]) run->exposed_collectives += dt;
    else if (!compute && r->works[WORK_COPIES]) run->exposed_copies += dt;
    run->idle += any ? 0 : dt;
}

// To the end of the next action. false: nothing runs, and nothing is about to.
static bool advance(Sim *x, int run) {
    const Running r = running(x);
    double dt = x->now < x->not_before ? x->not_before - x->now : -1;
    for (int i = 0; i < x->s->n_streams; i++) {
        const Lane *l = &x->lanes[i];
        if (!l->runs) continue;
        const double t = l->left / rate(x, &x->s->actions[l->queue.at[l->at]], &r);
        if (dt < 0 || t < dt) dt = t;
    }
    if (dt < 0) return false;
    x->now += dt;
    account(&x->s->runs[run], &r, dt);
    for (int i = 0; i < x->s->n_streams; i++) {
        Lane *l = &x->lanes[i];
        if (!l->runs) continue;
        const int k = l->queue.at[l->at];
        SimAction *c = &x->s->actions[k];
        l->left -= dt * rate(x, c, &r);
        if (c->work == WORK_COLLECTIVES && !kernels(&r)) c->exposed += dt / r.works[WORK_COLLECTIVES];
        if (l->left > 1e-12) continue;
        c->end = x->now;
        l->by = k;
        l->since = x->now;
        l->runs = false;
        l->at++;
    }
    return true;
}

static void run_all(Sim *x) {
    int run = -1;
    for (bool more = true; more;) {
        for (bool again = true; again;) {
            again = begin_run(x, run + 1);
            run += again;
            for (int i = 0; i < x->s->n_streams; i++) again |= step_lane(x, &x->lanes[i]);
        }
        more = run >= 0 && advance(x, run);
        if (run >= 0) x->s->runs[run].end = x->now;
    }
    for (int i = 0; i < x->s->n_streams; i++) x->s->stuck |= x->lanes[i].at < x->lanes[i].queue.n;
}

static void find_path(Simulation *s) {
    int last = -1;
    double end = s->device;
    for (int i = 0; i < s->n_actions; i++)
        if (s->actions[i].seconds > 0 && (last < 0 || s->actions[i].end >= s->actions[last].end)) last = i;
    for (int i = last; i >= 0; i = s->actions[i].cause) {
        const SimAction *c = &s->actions[i];
        s->path[c->work] += c->end - c->start;
        s->gaps += end - c->end;
        end = c->start;
    }
    s->gaps += end + s->path[WORK_SYNC];
}

static Simulation simulate(const Module *m, const Symbol *step, const DeviceModel *d, double rate, Arena *a) {
    Simulation s = {.rate = rate};
    Sim x = {.a = a, .d = d, .s = &s};
    int64_t runs, n = count_actions(m, step, &runs), times;
    s.actions = HD_NEWN(a, SimAction, n + 1);
    s.runs = HD_NEWN(a, SimRun, runs + 1);
    x.record = HD_NEWN(a, int, n + 1);
    x.done = HD_NEWN(a, double, n + 1);
    find_streams(&x, m);
    for (int i = 0; i < s.n_streams; i++) x.lanes[i].runs_on = hd_overlaps(step, s.streams[i]);
    const Func *f;
    for (int i = 0; (f = hd_segment(m, step, i, &times)); i++)
        for (int64_t k = 0; k < times; k++) add_run(&x, f);
    run_all(&x);
    // loss, further results and norm go to the host at the end
    const int numbers =
        hd_has(&step->attrs, A_LOSS) + hd_has(&step->attrs, A_NORM) + hd_n_numbers(&step->attrs) - 1;
    s.device = x.now + numbers * hd_model_copy(d, COPY_TO_HOST, 4, false);
    find_path(&s);
    return s;
}

// --- power

typedef struct { double at, watts; } Draw; // from then on the device draws so much more

static int by_time(const void *a, const void *b) {
    const Draw *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

// The power that the step draws over time, as changes in order of time. Returns their number.
static int draws_of(const Simulation *s, const DeviceModel *d, Draw *draws) {
    int n = 0;
    for (int i = 0; i < s->n_actions; i++) {
        const SimAction *c = &s->actions[i];
        if (c->end <= c->start) continue;
        const double watts = hd_model_joules(d, c->op) / (c->end - c->start);
        draws[n++] = (Draw){c->start, watts};
        draws[n++] = (Draw){c->end, -watts};
    }
    qsort(draws, (size_t)n, sizeof *draws, by_time);
    return n;
}

// The least time of a step at the power limit. The device holds the limit over `window` seconds: energy that one window
// leaves is gone, so a long optimizer step that draws less than the limit gives nothing to the products before it.
static double least_seconds(const Simulation *s, const DeviceModel *d, Arena *a) {
    const double power = hd_model_power(d), window = hd_model_power_window(d);
    if (power <= 0) return 0;
    if (window <= 0 || s->device <= window) return fmax(s->joules / power, s->device);
    Draw *draws = HD_NEWN(a, Draw, 2 * s->n_actions + 1);
    const int n = draws_of(s, d, draws);
    const int windows = (int)ceil(s->device / window);
    const double length = s->device / windows; // none is shorter than the others
    double least = 0, watts = 0, now = 0;
    for (int w = 0, i = 0; w < windows; w++) {
        const double end = w + 1 < windows ? length * (w + 1) : s->device;
        double joules = 0;
        for (; i < n && draws[i].at < end; i++) {
            joules += watts * (draws[i].at - now);
            now = draws[i].at;
            watts += draws[i].watts;
        }
        joules += watts * (end - now);
        now = end;
        least += fmax(length, joules / power);
    }
    return least;
}

// At the power limit a step takes as long as its energy takes to arrive. The clock falls until it does; what waits for
// memory or for a link takes no longer then.
Simulation hd_simulate(const Module *m, const Symbol *step, const DeviceModel *d, Arena *a) {
    enum { ROUNDS = 4 }; // each makes up for what the chain of the one before lacks; the chain may become another one
    Simulation s = simulate(m, step, d, 1, a);
    const double least = least_seconds(&s, d, a);
    if (s.device >= least) return s;
    for (int i = 0; i < ROUNDS; i++) {
        const double clocked = s.path[WORK_PRODUCTS] + s.path[WORK_ATTENTION];
        const double rate = s.rate * clocked / (clocked + least - s.device);
        if (!(rate > LEAST_RATE) || fabs(s.device - least) < 1e-4 * least) break;
        s = simulate(m, step, d, rate < 1 ? rate : 1, a);
    }
    s.gaps += least - s.device;
    s.device = least;
    return s;
}
