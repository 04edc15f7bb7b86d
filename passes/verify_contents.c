// Contents: runs a function abstractly over a map from bytes to what they hold. Program order is one order that the streams allow; it
// stands for all of them once every access is shown to be ordered after the accesses it conflicts with, so both are checked together:
// a read must find its value in every byte, and must come after the op that wrote it; a write must come after the op that wrote the
// bytes before and after every op that has read them since. A value that takes over the bytes of another (in place) is another content.
#include "passes/clocks.h"
#include "passes/range_map.h"
#include "passes/verify_plan.h"

typedef long long ll;
typedef struct { int64_t lo, hi; bool host; int holds; } Bytes; // what an access touches, and what is or will be there

// Contents are numbers: 0 nothing, then the buffers, then the values of the function.
typedef struct {
    PlanCheck *c;
    Clocks clocks;
    RangeMap device, pinned;
    const Symbol **buffer; // of the module, both arenas
    int n_buffers;
    int *content;          // by value id
    Accesses list;
} Run;

static const char *content_name(const Run *r, int holds) {
    if (holds == 0) return "nothing yet";
    if (holds <= r->n_buffers) return hd_sprintf(r->c->a, "buffer @%s", r->buffer[holds - 1]->name);
    int id = holds - 1 - r->n_buffers;
    for (int i = 0; i < r->c->f->n_args; i++)
        if (r->c->f->args[i]->id == id) return hd_plan_value(r->c, r->c->f->args[i]);
    return hd_sprintf(r->c->a, "%%%d", r->c->number[id]);
}

static int content_of_buffer(const Run *r, const Symbol *b) {
    for (int i = 0; i < r->n_buffers; i++)
        if (r->buffer[i] == b) return i + 1;
    return 0;
}

static void find_contents(Run *r) {
    const Func *f = r->c->f;
    r->content = HD_NEWN(r->c->a, int, f->n_values + 1);
    for (int i = 0; i < f->n_args; i++) r->content[f->args[i]->id] = 1 + r->n_buffers + f->args[i]->id;
    for (const Op *o = f->first; o; o = o->next)
        for (int i = 0; i < o->n_out; i++) {
            int id = o->out[i]->id;
            if (hd_op_is(o, TRAIT_SOURCE)) r->content[id] = content_of_buffer(r, hd_symbol_find(r->c->m, hd_word(&o->attrs, A_BUFFER, "")));
            else r->content[id] = hd_op_is(o, TRAIT_ALIAS) ? r->content[o->in[0]->id] : 1 + r->n_buffers + id;
        }
}

static Bytes bytes_of(const Run *r, const Op *o, const Access *x) {
    if (x->at == AT_WORKSPACE) {
        int64_t at = hd_int(&o->attrs, A_WORKSPACE_AT, 0);
        return (Bytes){at, at + x->hi, false, 0};
    }
    if (x->at == AT_BUFFER) {
        int64_t at = x->buffer->place.offset;
        return (Bytes){at + x->lo, at + x->hi, x->buffer->place.host, content_of_buffer(r, x->buffer)};
    }
    int64_t at = x->value->place.offset;
    return (Bytes){at, at + hd_type_bytes(x->value->type), x->value->place.host, r->content[x->value->id]};
}

static const char *touches(const Run *r, const Access *x) {
    if (x->at == AT_WORKSPACE) return "its workspace";
    if (x->at == AT_BUFFER) return hd_sprintf(r->c->a, "buffer @%s", x->buffer->name);
    return hd_plan_value(r->c, x->value);
}

static void race(Run *r, const Op *o, const Access *x, int other, const char *does, int64_t lo, int64_t hi) {
    const Op *p = r->c->ops[other];
    hd_plan_wrong(r->c, o, o->span, "%s bytes [0x%llx, 0x%llx) (%s) that %s %s, and nothing orders the two: record an event on %s behind op %d and wait for it on %s before op %d",
                  x->write ? "writes" : "reads", (ll)lo, (ll)hi, touches(r, x), hd_plan_op(r->c, p), does, p->stream, p->id, o->stream, o->id);
}

// One finding an access is enough.
static void read_bytes(Run *r, const Op *o, const Access *x) {
    Bytes b = bytes_of(r, o, x);
    if (b.lo >= b.hi) return;
    RangeMap *m = b.host ? &r->pinned : &r->device;
    int end, first = hd_ranges_cut(m, b.lo, b.hi, &end);
    bool said = false;
    for (int i = first; i < end; i++) {
        Cell *cell = &m->v.at[i].cell;
        int64_t lo = m->v.at[i].lo, hi = hd_range_hi(m, i);
        if (cell->holds != b.holds && !said) {
            const char *by = cell->writer >= 0 ? hd_sprintf(r->c->a, ", written by %s", hd_plan_op(r->c, r->c->ops[cell->writer])) : "";
            hd_plan_wrong(r->c, o, o->span, "reads bytes [0x%llx, 0x%llx) of %s, which hold %s%s", (ll)lo, (ll)hi, touches(r, x), content_name(r, cell->holds), by);
            said = true;
        } else if (cell->writer >= 0 && !said && !hd_before(&r->clocks, cell->writer, o->id)) {
            race(r, o, x, cell->writer, "writes", lo, hi);
            said = true;
        }
        if (cell->readers && cell->readers->op == o->id) continue;
        Reader *reader = HD_NEW(r->c->a, Reader);
        *reader = (Reader){o->id, cell->readers};
        cell->readers = reader;
    }
}

static bool is_argument(const Run *r, int holds) {
    int id = holds - 1 - r->n_buffers;
    for (int i = 0; i < r->c->f->n_args; i++)
        if (r->c->f->args[i]->id == id) return true;
    return false;
}

static void write_bytes(Run *r, const Op *o, const Access *x) {
    Bytes b = bytes_of(r, o, x);
    if (b.lo >= b.hi) return;
    RangeMap *m = b.host ? &r->pinned : &r->device;
    int end, first = hd_ranges_cut(m, b.lo, b.hi, &end);
    bool said = false;
    for (int i = first; i < end && !said; i++) {
        const Cell *cell = &m->v.at[i].cell;
        int64_t lo = m->v.at[i].lo, hi = hd_range_hi(m, i);
        if (is_argument(r, cell->holds)) {
            hd_plan_wrong(r->c, o, o->span, "writes %s over bytes [0x%llx, 0x%llx) of argument %s", touches(r, x), (ll)lo, (ll)hi, content_name(r, cell->holds));
            said = true;
        }
        if (cell->writer >= 0 && cell->writer != o->id && !said && !hd_before(&r->clocks, cell->writer, o->id)) {
            race(r, o, x, cell->writer, "writes", lo, hi);
            said = true;
        }
        for (const Reader *p = cell->readers; p && !said; p = p->next) {
            if (p->op == o->id || hd_before(&r->clocks, p->op, o->id)) continue;
            race(r, o, x, p->op, "reads", lo, hi);
            said = true;
        }
    }
    hd_ranges_set(m, first, end, (Cell){.writer = o->id, .holds = b.holds});
}

// Whether an op may touch the same bytes twice in this way: a buffer that it updates where it stands, a result in place of its operand,
// a store that finds its operand already there.
static bool declared(const Op *o, const Access *x, Bytes bx, const Access *y, Bytes by) {
    if (bx.lo != by.lo || bx.hi != by.hi) return false;
    if (x->at == AT_BUFFER && y->at == AT_BUFFER) return x->write != y->write;
    const Access *read = x->write ? y : x, *write = x->write ? x : y;
    if (read->write || read->at != AT_VALUE) return false;
    if (o->kind == OP_STORE) return write->at == AT_BUFFER && hd_has(&o->attrs, A_INPLACE);
    if (write->at != AT_VALUE || write->index != hd_inplace_result(o)) return false;
    return read->index == hd_int(&o->attrs, A_INPLACE, -1) || (o->kind == OP_LAUNCH && hd_launch_may_overwrite(o, read->index));
}

static void check_overlaps(Run *r, const Op *o) {
    for (int i = 0; i < r->list.n; i++) {
        const Access *x = &r->list.at[i];
        if (!x->write) continue;
        Bytes bx = bytes_of(r, o, x);
        for (int k = 0; k < r->list.n; k++) {
            const Access *y = &r->list.at[k];
            if (k == i || (y->write && k > i)) continue;
            Bytes by = bytes_of(r, o, y);
            if (bx.host != by.host || bx.lo >= by.hi || by.lo >= bx.hi || bx.lo >= bx.hi || by.lo >= by.hi || declared(o, x, bx, y, by)) continue;
            hd_plan_wrong(r->c, o, o->span, "writes %s over %s, which it %s, in bytes [0x%llx, 0x%llx)", touches(r, x), touches(r, y), y->write ? "writes too" : "still reads",
                          (ll)(bx.lo > by.lo ? bx.lo : by.lo), (ll)(bx.hi < by.hi ? bx.hi : by.hi));
        }
    }
}

// Writes and reads of buffers stay inside them.
static void check_bounds(Run *r, const Op *o) {
    for (int i = 0; i < r->list.n; i++) {
        const Access *x = &r->list.at[i];
        if (x->at == AT_BUFFER && (x->lo < 0 || x->hi > hd_type_bytes(x->buffer->type)))
            hd_plan_wrong(r->c, o, o->span, "%s bytes [%lld, %lld) of buffer @%s, which has %lld", x->write ? "writes" : "reads", (ll)x->lo, (ll)x->hi, x->buffer->name, (ll)hd_type_bytes(x->buffer->type));
    }
}

static void check_store(Run *r, const Op *o) {
    const Symbol *b = hd_symbol_find(r->c->m, hd_word(&o->attrs, A_INTO, ""));
    if (!b || !hd_has(&o->attrs, A_INPLACE)) return;
    int64_t at = b->place.offset + hd_int(&o->attrs, A_OFFSET, 0) * hd_dtype_bytes(b->type->dtype);
    if (o->in[0]->place.offset != at)
        hd_plan_wrong(r->c, o, o->span, "is in place, but %s is at 0x%llx and its bytes of @%s are at 0x%llx", hd_plan_value(r->c, o->in[0]), (ll)o->in[0]->place.offset, b->name, (ll)at);
}

// Bytes that the function finds filled: buffers, and its arguments.
static void fill(Run *r, const Place *p, int64_t bytes, int holds) {
    if (bytes == 0) return;
    RangeMap *m = p->host ? &r->pinned : &r->device;
    int end, first = hd_ranges_cut(m, p->offset, p->offset + bytes, &end);
    hd_ranges_set(m, first, end, (Cell){.writer = -1, .holds = holds});
}

// At the end every buffer must be whole again: a result made inside it has been stored.
static void check_buffers(Run *r) {
    for (int k = 0; k < r->n_buffers; k++) {
        const Symbol *b = r->buffer[k];
        if (hd_type_bytes(b->type) == 0) continue;
        RangeMap *m = b->place.host ? &r->pinned : &r->device;
        int end, first = hd_ranges_cut(m, b->place.offset, b->place.offset + hd_type_bytes(b->type), &end);
        for (int i = first; i < end; i++) {
            const Cell *cell = &m->v.at[i].cell;
            if (cell->holds == k + 1) continue;
            hd_plan_wrong(r->c, cell->writer >= 0 ? r->c->ops[cell->writer] : NULL, r->c->f->span, "leaves %s in bytes [0x%llx, 0x%llx) of buffer @%s, and no store makes it the buffer's", content_name(r, cell->holds),
                          (ll)m->v.at[i].lo, (ll)hd_range_hi(m, i), b->name);
            break;
        }
    }
}

// An op all of whose results nobody reads has lost its user: dead ops are removed long before a plan.
static void check_used(Run *r, const Uses *uses) {
    for (const Op *o = r->c->f->first; o; o = o->next) {
        int used = 0;
        for (int i = 0; i < o->n_out; i++) used += uses->count[o->out[i]->id];
        bool effect = hd_op_is(o, TRAIT_EFFECT) && o->kind != OP_GEMM;
        if (o->n_out && !used && !effect && !hd_is_alias(o)) hd_plan_wrong(r->c, o, o->span, "makes %s, which nobody reads or stores", hd_plan_value(r->c, o->out[0]));
    }
}

void hd_check_contents(PlanCheck *c) {
    Run r = {.c = c, .clocks = hd_clocks(c->f, c->a)};
    Cell nothing = {.writer = -1};
    r.device = hd_ranges(c->a, c->arena_bytes, nothing);
    r.pinned = hd_ranges(c->a, c->pinned_bytes, nothing);
    int n = 0;
    for (const Symbol *s = c->m->symbols; s; s = s->next) n += s->kind == SYM_BUFFER;
    r.buffer = HD_NEWN(c->a, const Symbol *, n + 1);
    for (const Symbol *s = c->m->symbols; s; s = s->next)
        if (s->kind == SYM_BUFFER) r.buffer[r.n_buffers++] = s;
    find_contents(&r);
    for (int i = 0; i < r.n_buffers; i++) fill(&r, &r.buffer[i]->place, hd_type_bytes(r.buffer[i]->type), i + 1);
    for (int i = 0; i < c->f->n_args; i++) fill(&r, &c->f->args[i]->place, hd_type_bytes(c->f->args[i]->type), r.content[c->f->args[i]->id]);
    int before = c->found.n;
    for (const Op *o = c->f->first; o; o = o->next) {
        hd_accesses(o, c->a, &r.list);
        check_bounds(&r, o);
    }
    if (c->found.n > before) return; // the run would leave the arena
    for (const Op *o = c->f->first; o; o = o->next) {
        hd_accesses(o, c->a, &r.list);
        check_overlaps(&r, o);
        if (o->kind == OP_STORE) check_store(&r, o);
        for (int i = 0; i < r.list.n; i++)
            if (!r.list.at[i].write) read_bytes(&r, o, &r.list.at[i]);
        for (int i = 0; i < r.list.n; i++)
            if (r.list.at[i].write) write_bytes(&r, o, &r.list.at[i]);
    }
    check_buffers(&r);
    Uses uses = hd_uses(c->f, c->a);
    check_used(&r, &uses);
}
