// Contents: runs a function abstractly over a map from bytes to their contents. Program order is one order that the
// streams allow. It represents all of them once every access is ordered after the accesses that it conflicts with, so
// two things are checked together. A read must find its value in every byte and come after the op that wrote it. A
// write must come after the op that wrote the bytes before and after every op that has read them since. A value that
// takes over the bytes of another (in place) is a new content.
//
// The contents of a transient buffer are unknown until its life begins: with `begin`, after which its bytes are
// undefined, or with an op that writes all of it. Nothing of it is left at the function's end. A collective reads a
// rank's own bytes only while that rank's own op runs, so what holds for one rank's streams holds for all ranks.
// `after` does not order anything; it is ignored here.
//
// A function that follows another one's tail is checked as the joined function of the two (analysis/seam.h).
#include "passes/analysis/byte_map.h"
#include "passes/analysis/clocks.h"
#include "passes/verify/verify_plan.h"
#include "ir/base/ints.h"

// what an access touches, and its contents now or afterwards
typedef struct { int64_t lo, hi; Space space; int holds; } Bytes;

// Contents are numbers: 0 nothing, then the symbols (buffers), then the values of the function; below 0: a buffer that
// has just begun.
typedef struct {
    PlanCheck *c;
    Clocks clocks;
    ByteMap map[N_SPACES];
    const Symbol **symbol; // by id
    const Op **began;      // by symbol id: the op with which the life of a transient buffer begins
    Bytes *storage;        // by value id: the bytes of the storage that it is in, without those that guard it
    int *content;          // by value id
    Accesses list;
} Contents;

static int content_of_buffer(const Symbol *b) { return b->id + 1; }
static int content_of_value(const Contents *r, const Value *v) { return 1 + r->c->m->n_symbols + v->id; }

static const char *content_name(const Contents *r, int holds) {
    int id = holds - 1 - r->c->m->n_symbols;
    if (holds == 0) return "nothing yet";
    if (holds < 0) return hd_sprintf(r->c->a, "nothing since the life of @%s began", r->symbol[-holds - 1]->name);
    if (id < 0) return hd_sprintf(r->c->a, "buffer @%s", r->symbol[holds - 1]->name);
    for (int i = 0; i < r->c->f->n_args; i++)
        if (r->c->f->args[i]->id == id) return hd_plan_value(r->c, r->c->f->args[i]);
    return hd_sprintf(r->c->a, "%%%d", r->c->number[id]);
}

static void find_contents(Contents *r) {
    const Func *f = r->c->f;
    r->content = HD_NEWN(r->c->a, int, f->n_values + 1);
    for (int i = 0; i < f->n_args; i++) r->content[f->args[i]->id] = content_of_value(r, f->args[i]);
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) {
            int id = o->out[i]->id;
            const Symbol *b = hd_op_is(o, TRAIT_SOURCE) ? hd_named(o, A_BUFFER) : o->out[i]->into;
            if (b || hd_op_is(o, TRAIT_SOURCE)) r->content[id] = b ? content_of_buffer(b) : 0;
            else r->content[id] = hd_op_is(o, TRAIT_ALIAS) ? r->content[o->in[0]->id] : content_of_value(r, o->out[i]);
        }
}

static Bytes bytes_at(const Place *p, int64_t bytes, int holds) {
    return (Bytes){p->offset, p->offset + bytes, p->space, holds};
}

// The storage that holds each value: its own, that of another value, or a buffer where it is looked at or written.
static void find_storages(Contents *r) {
    const Func *f = r->c->f;
    const Home *homes = hd_homes(f, r->c->a);
    r->storage = HD_NEWN(r->c->a, Bytes, f->n_values + 1);
    for (int i = 0; i < f->n_args; i++)
        r->storage[f->args[i]->id] = bytes_at(&f->args[i]->place, hd_type_bytes(f->args[i]->type), 0);
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) {
            const Home h = homes[o->out[i]->id];
            const Symbol *b = h.buffer;
            r->storage[o->out[i]->id] = b ? bytes_at(&b->place, hd_type_bytes(b->type), 0)
                                          : bytes_at(&h.root->place, hd_type_bytes(h.root->type), 0);
        }
}

// The bytes that an access touches in its storage.
static Bytes touched(const Contents *r, const Op *o, const Access *x, Bytes *storage) {
    if (x->at == AT_WORKSPACE) {
        int64_t at = hd_int(&o->attrs, A_WORKSPACE_AT, 0);
        return *storage = (Bytes){at, at + x->hi, SPACE_DEVICE, 0};
    }
    if (x->at == AT_BUFFER) {
        const Place *p = &x->buffer->place;
        int holds = content_of_buffer(x->buffer);
        *storage = bytes_at(p, hd_type_bytes(x->buffer->type), 0);
        return (Bytes){p->offset + x->lo, p->offset + x->hi, p->space, hd_op_is(o, TRAIT_BEGINS) ? -holds : holds};
    }
    *storage = r->storage[x->value->id];
    return bytes_at(&x->value->place, hd_type_bytes(x->value->type), r->content[x->value->id]);
}

// The same, and what guards it at an end of the storage: these bytes hold what is next to them, and nothing may come
// between.
static Bytes bytes_of(const Contents *r, const Op *o, const Access *x) {
    Bytes storage;
    Bytes b = touched(r, o, x, &storage);
    int64_t lo = b.lo, hi = b.hi;
    hd_plan_guarded(r->c, &lo, &hi);
    if (b.lo == storage.lo) b.lo = lo;
    if (b.hi == storage.hi) b.hi = hi;
    return b;
}

// "the guard of " where bytes from `lo` on are not the storage's own.
static const char *guard_of(const Contents *r, const Op *o, const Access *x, int64_t lo) {
    Bytes storage;
    touched(r, o, x, &storage);
    return r->c->guard && (lo < storage.lo || lo >= storage.hi) ? "the guard of " : "";
}

static const char *touches(const Contents *r, const Access *x) {
    if (x->at == AT_WORKSPACE) return "its workspace";
    if (x->at == AT_BUFFER) return hd_sprintf(r->c->a, "buffer @%s", x->buffer->name);
    return hd_plan_value(r->c, x->value);
}

// Adds the buffer that a view refers to.
static const char *owner(const Contents *r, const Access *x) {
    int holds = x->at == AT_VALUE ? r->content[x->value->id] : 0;
    if (holds <= 0 || holds > r->c->m->n_symbols || !r->symbol[holds - 1]) return touches(r, x);
    return hd_sprintf(r->c->a, "%s in buffer @%s", hd_plan_value(r->c, x->value), r->symbol[holds - 1]->name);
}

// The op that writes what a read should have found: the last one before the read, else the first one after it.
static const char *maker(const Contents *r, const Op *reader, Bytes b) {
    const Op *before = NULL, *behind = NULL;
    Accesses list = {0};
    for (const Op *o = r->c->f->first; o; o = o->next) {
        hd_accesses(o, r->c->a, &list);
        for (int i = 0; i < list.n; i++) {
            Bytes w = bytes_of(r, o, &list.at[i]);
            if (!list.at[i].write || list.at[i].order || w.holds != b.holds || w.space != b.space || w.lo >= b.hi ||
                b.lo >= w.hi)
                continue;
            if (o->id < reader->id) before = o;
            else if (o->id > reader->id && !behind) behind = o;
        }
    }
    if (before) return hd_sprintf(r->c->a, "%s wrote them before", hd_plan_op(r->c, before));
    return behind ? hd_sprintf(r->c->a, "%s writes them, after it", hd_plan_op(r->c, behind))
                  : "no op of the function writes them";
}

static void race(Contents *r, const Op *o, const Access *x, int other, const char *does, int64_t lo, int64_t hi) {
    Space space = bytes_of(r, o, x).space;
    const Op *p = r->c->ops[other];
    hd_plan_wrong(r->c, o, o->span,
                  "%s bytes %s (%s%s) that %s %s, and nothing orders the two: "
                  "record an event on %s after op %s and wait for it on %s before op %s",
                  x->write ? "writes" : "reads", hd_plan_range(r->c, space, lo, hi), guard_of(r, o, x, lo),
                  touches(r, x), hd_plan_op(r->c, p), does, p->stream, hd_plan_number(r->c, p), o->stream,
                  hd_plan_number(r->c, o));
}

// The last reader of each stream: when it has ended, so have the earlier ones of that stream.
static Reader *add_reader(Contents *r, const Reader *list, int op) {
    Reader *now = HD_NEW(r->c->a, Reader);
    *now = (Reader){op, NULL};
    for (; list; list = list->next) {
        if (r->clocks.stream_of[list->op] == r->clocks.stream_of[op]) continue;
        Reader *copy = HD_NEW(r->c->a, Reader);
        *copy = (Reader){list->op, now->next};
        now->next = copy;
    }
    return now;
}

// One error per access is enough.
static void read_bytes(Contents *r, const Op *o, const Access *x) {
    Bytes b = bytes_of(r, o, x);
    if (b.lo >= b.hi) return;
    ByteMap *m = &r->map[b.space];
    bool said = false;
    for (BytePos p = hd_bytes_cut(m, b.lo, b.hi); hd_bytes_before(m, p, b.hi); p = hd_bytes_next(m, p)) {
        Cell *cell = &hd_bytes_range(m, p)->cell;
        int64_t lo = hd_bytes_range(m, p)->lo, hi = hd_bytes_hi(m, p);
        if (cell->holds != b.holds && !said) {
            const char *by = cell->writer >= 0
                                 ? hd_sprintf(r->c->a, ", written by %s", hd_plan_op(r->c, r->c->ops[cell->writer]))
                                 : "";
            const char *guard = guard_of(r, o, x, lo);
            hd_plan_wrong(r->c, o, o->span, "%s bytes %s of %s%s, which hold %s%s: %s", *guard ? "needs" : "reads",
                          hd_plan_range(r->c, b.space, lo, hi), guard, owner(r, x), content_name(r, cell->holds), by,
                          maker(r, o, (Bytes){lo, hi, b.space, b.holds}));
            said = true;
        } else if (cell->writer >= 0 && !said && !hd_before(&r->clocks, cell->writer, o->id)) {
            race(r, o, x, cell->writer, "writes", lo, hi);
            said = true;
        }
        if (!cell->readers || cell->readers->op != o->id) cell->readers = add_reader(r, cell->readers, o->id);
    }
}

static bool is_argument(const Contents *r, int holds) {
    for (int i = 0; i < r->c->f->n_args; i++)
        if (content_of_value(r, r->c->f->args[i]) == holds) return true;
    return false;
}

static void write_bytes(Contents *r, const Op *o, const Access *x) {
    Bytes b = bytes_of(r, o, x);
    if (b.lo >= b.hi) return;
    ByteMap *m = &r->map[b.space];
    bool said = false;
    for (BytePos p = hd_bytes_cut(m, b.lo, b.hi); !said && hd_bytes_before(m, p, b.hi); p = hd_bytes_next(m, p)) {
        const Cell *cell = &hd_bytes_range(m, p)->cell;
        int64_t lo = hd_bytes_range(m, p)->lo, hi = hd_bytes_hi(m, p);
        if (is_argument(r, cell->holds)) {
            hd_plan_wrong(r->c, o, o->span, "writes %s over bytes %s of argument %s", touches(r, x),
                          hd_plan_range(r->c, b.space, lo, hi), content_name(r, cell->holds));
            said = true;
        }
        if (cell->writer >= 0 && cell->writer != o->id && !said && !hd_before(&r->clocks, cell->writer, o->id)) {
            race(r, o, x, cell->writer, "writes", lo, hi);
            said = true;
        }
        for (const Reader *reader = cell->readers; reader && !said; reader = reader->next) {
            if (reader->op == o->id || hd_before(&r->clocks, reader->op, o->id)) continue;
            race(r, o, x, reader->op, "reads", lo, hi);
            said = true;
        }
    }
    hd_bytes_set(m, b.lo, b.hi, (Cell){.writer = o->id, .holds = b.holds});
}

// The life of a transient buffer begins once, before any other access.
static void follow_life(Contents *r, const Op *o, const Access *x) {
    if (x->at != AT_BUFFER || !hd_has(&x->buffer->attrs, A_TRANSIENT)) return;
    const Op **began = &r->began[x->buffer->id];
    bool whole = x->write && x->lo == 0 && x->hi == hd_type_bytes(x->buffer->type);
    if (*began && *began != o && hd_op_is(o, TRAIT_BEGINS))
        hd_plan_wrong(r->c, o, o->span, "begins the life of @%s, which %s has begun", x->buffer->name,
                      hd_plan_op(r->c, *began));
    else if (!*began && !whole)
        hd_plan_wrong(r->c, o, o->span,
                      "%s part of transient buffer @%s, and no op before it begins the life of that buffer",
                      x->write ? "writes" : "reads", x->buffer->name);
    if (!*began) *began = o;
}

// Whether an op may touch the same bytes twice in this way: a buffer that it updates in place, a result in the place of
// its operand.
static bool declared(const Op *o, const Access *x, Bytes bx, const Access *y, Bytes by) {
    if (bx.lo != by.lo || bx.hi != by.hi) return false;
    if (x->at == AT_BUFFER && y->at == AT_BUFFER)
        return x->buffer == y->buffer && x->write != y->write && !hd_has(&o->attrs, A_COMM);
    const Access *read = x->write ? y : x, *write = x->write ? x : y;
    if (read->write || read->at != AT_VALUE) return false;
    if (write->at != AT_VALUE || write->index != hd_inplace_result(o)) return false;
    return read->index == hd_int(&o->attrs, A_INPLACE, -1) ||
           (hd_op_is(o, TRAIT_LAUNCH) && hd_launch_may_overwrite(o, read->index));
}

static void check_overlaps(Contents *r, const Op *o) {
    for (int i = 0; i < r->list.n; i++) {
        const Access *x = &r->list.at[i];
        if (!x->write || x->order) continue;
        Bytes bx = bytes_of(r, o, x);
        for (int k = 0; k < r->list.n; k++) {
            const Access *y = &r->list.at[k];
            if (k == i || y->order || (y->write && k > i)) continue;
            Bytes by = bytes_of(r, o, y);
            bool apart = bx.space != by.space || bx.lo >= by.hi || by.lo >= bx.hi || bx.lo >= bx.hi || by.lo >= by.hi;
            if (apart || declared(o, x, bx, y, by)) continue;
            hd_plan_wrong(r->c, o, o->span, "writes %s over %s, which it %s, in bytes %s", touches(r, x), touches(r, y),
                          y->write ? "writes too" : "still reads",
                          hd_plan_range(r->c, bx.space, bx.lo > by.lo ? bx.lo : by.lo, bx.hi < by.hi ? bx.hi : by.hi));
        }
    }
}

// Writes and reads of buffers stay inside them.
static void check_bounds(Contents *r, const Op *o) {
    for (int i = 0; i < r->list.n; i++) {
        const Access *x = &r->list.at[i];
        if (x->at == AT_BUFFER && !x->order && (x->lo < 0 || x->hi > hd_type_bytes(x->buffer->type)))
            hd_plan_wrong(r->c, o, o->span, "%s bytes [%lld, %lld) of buffer @%s, which has %lld",
                          x->write ? "writes" : "reads", ll(x->lo), ll(x->hi), x->buffer->name,
                          ll(hd_type_bytes(x->buffer->type)));
    }
}

// Bytes that the function finds filled: buffers, and its arguments.
static void fill(Contents *r, const Place *p, int64_t bytes, int holds) {
    int64_t lo = p->offset, hi = lo + bytes;
    hd_plan_guarded(r->c, &lo, &hi);
    if (bytes > 0) hd_bytes_set(&r->map[p->space], lo, hi, (Cell){.writer = -1, .holds = holds});
}

static bool persists(const Symbol *s) { return s->kind == SYM_BUFFER && !hd_has(&s->attrs, A_TRANSIENT); }

// The tail of the function before uses its transient buffers, whose contents that function's own check proved.
static void fill_left(Contents *r) {
    Carried left = hd_carried(r->c->joined, r->c->a);
    for (int i = 0; i < left.n; i++) {
        fill(r, &left.at[i]->place, hd_type_bytes(left.at[i]->type), content_of_buffer(left.at[i]));
        r->began[left.at[i]->id] = r->c->f->first;
    }
}

// A transient gradient that its bucket names: the runtime looks at it after the step.
static bool stays(const Contents *r, const Symbol *s) {
    return r->c->part_of[s->id] == PART_GRAD && hd_has(&s->attrs, A_TRANSIENT) && r->began[s->id];
}

// At the end every buffer that persists must be whole again: results made in its bytes have been stored.
static void check_buffer(Contents *r, const Symbol *b) {
    ByteMap *m = &r->map[b->place.space];
    int64_t lo = b->place.offset, hi = lo + hd_type_bytes(b->type);
    if (lo == hi) return;
    hd_plan_guarded(r->c, &lo, &hi);
    for (BytePos p = hd_bytes_cut(m, lo, hi); hd_bytes_before(m, p, hi); p = hd_bytes_next(m, p)) {
        const Cell *cell = &hd_bytes_range(m, p)->cell;
        if (cell->holds == content_of_buffer(b)) continue;
        hd_plan_wrong(r->c, cell->writer >= 0 ? r->c->ops[cell->writer] : NULL, r->c->f->span,
                      "leaves %s in bytes %s of buffer @%s, and no store makes it the buffer's",
                      content_name(r, cell->holds),
                      hd_plan_range(r->c, b->place.space, hd_bytes_range(m, p)->lo, hd_bytes_hi(m, p)), b->name);
        return;
    }
}

// An op whose results are all unread has lost its user: dead ops are removed long before a plan.
static void check_used(Contents *r, const Uses *uses) {
    for (const Op *o = r->c->f->first; o; o = o->next) {
        int used = 0;
        for (int i = 0; i < o->n_out; i++) used += uses->count[o->out[i]->id] + (o->out[i]->into != NULL);
        bool effect = hd_op_is(o, TRAIT_EFFECT) && !hd_op_is(o, TRAIT_MATMUL);
        if (o->n_out && !used && !effect && !hd_is_alias(o))
            hd_plan_wrong(r->c, o, o->span, "makes %s, which no op reads or stores", hd_plan_value(r->c, o->out[0]));
    }
}

static bool in_bounds(Contents *r) {
    int before = r->c->found.n;
    for (const Op *o = r->c->f->first; o; o = o->next) {
        hd_accesses(o, r->c->a, &r->list);
        check_bounds(r, o);
    }
    return r->c->found.n == before;
}

void hd_check_contents(PlanCheck *c) {
    Cell nothing = {.writer = -1};
    Contents r = {.c = c, .clocks = hd_clocks(c->f, c->a)};
    for (int i = 0; i < N_SPACES; i++) r.map[i] = hd_bytes(c->a, c->bytes[i], nothing);
    r.symbol = HD_NEWN(c->a, const Symbol *, c->m->n_symbols + 1);
    r.began = HD_NEWN(c->a, const Op *, c->m->n_symbols + 1);
    find_contents(&r);
    find_storages(&r);
    for (const Symbol *s = c->m->symbols; s; s = s->next) {
        r.symbol[s->id] = s;
        if (persists(s)) fill(&r, &s->place, hd_type_bytes(s->type), content_of_buffer(s));
    }
    for (int i = 0; i < c->f->n_args; i++) {
        const Value *v = c->f->args[i];
        fill(&r, &v->place, hd_type_bytes(v->type), r.content[v->id]);
    }
    if (!in_bounds(&r)) return; // the run would leave the arena
    if (c->joined) fill_left(&r);
    for (const Op *o = c->f->first; o; o = o->next) {
        if (c->joined && o->id == c->joined->tail) memset(r.began, 0, sizeof *r.began * (size_t)c->m->n_symbols);
        hd_accesses(o, c->a, &r.list);
        check_overlaps(&r, o);
        for (int i = 0; i < r.list.n; i++)
            if (!r.list.at[i].order) follow_life(&r, o, &r.list.at[i]);
        for (int i = 0; i < r.list.n; i++)
            if (!r.list.at[i].write) read_bytes(&r, o, &r.list.at[i]);
        for (int i = 0; i < r.list.n; i++)
            if (r.list.at[i].write && !r.list.at[i].order) write_bytes(&r, o, &r.list.at[i]);
    }
    for (const Symbol *s = c->m->symbols; s; s = s->next)
        if (persists(s) || stays(&r, s)) check_buffer(&r, s);
    Uses uses = hd_uses(c->f, c->a);
    check_used(&r, &uses);
}
