// Dependences from reads and writes. Storage with an owner in the function is one cell; buffers are ranges of bytes,
// since stores and views touch parts. An edge is left out only where another edge implies it directly (a writer after a
// reader of the same cell).
#include "passes/analysis/deps.h"
#include "passes/analysis/range_map.h"

typedef struct {
    Arena *a;
    const Home *homes;
    Cell *cells;         // by value id: the storage of a root
    RangeMap **maps;     // by symbol id: the contents of a buffer; NULL until the function touches it
    int *seen;           // by op id: the op that already depends on it, plus 1
    VEC(int) pred;
    int op;
    VEC(const char *) comms; // that collectives have used, and the last op on each: a communicator has one order
    VEC(int) last;
} Walk;

static void depend(Walk *w, int on) {
    if (on < 0 || on == w->op || w->seen[on] == w->op + 1) return;
    w->seen[on] = w->op + 1;
    hd_push(w->a, &w->pred, on);
}

static void read_cell(Walk *w, Cell *c) {
    depend(w, c->writer);
    if (c->readers && c->readers->op == w->op) return;
    Reader *r = HD_NEW(w->a, Reader);
    *r = (Reader){w->op, c->readers};
    c->readers = r;
}

static void write_cell(Walk *w, Cell *c) {
    for (const Reader *r = c->readers; r; r = r->next) depend(w, r->op);
    if (!c->readers || c->readers->op == w->op) depend(w, c->writer);
    *c = (Cell){.writer = w->op};
}

static RangeMap *map_of(Walk *w, const Symbol *b) {
    RangeMap **m = &w->maps[b->id];
    if (!*m) {
        *m = HD_NEW(w->a, RangeMap);
        **m = hd_ranges(w->a, hd_type_bytes(b->type), (Cell){.writer = -1});
    }
    return *m;
}

// `after`: follows every earlier access without being one.
static void follow_cell(Walk *w, const Cell *c) {
    if (!c->readers) depend(w, c->writer);
    for (const Reader *r = c->readers; r; r = r->next) depend(w, r->op);
}

static void follow_buffer(Walk *w, const Symbol *b) {
    const RangeMap *m = w->maps[b->id];
    for (int i = 0; m && i < m->n; i++) follow_cell(w, &hd_range(m, i)->cell);
}

static void touch_range(Walk *w, const Symbol *b, int64_t lo, int64_t hi, bool write) {
    RangeMap *m = map_of(w, b);
    if (hi > m->top) hi = m->top;
    if (lo < 0 || lo >= hi) return; // outside the buffer: the verifier of the input reports it
    int end, first = hd_ranges_cut(m, lo, hi, &end);
    for (int i = first; i < end; i++) {
        if (write) write_cell(w, &hd_range(m, i)->cell);
        else read_cell(w, &hd_range(m, i)->cell);
    }
    if (write) hd_ranges_set(m, first, end, (Cell){.writer = w->op});
}

// The operand of a fence: after the op that made it, or wrote what it views.
static void follow_value(Walk *w, const Value *v) {
    Home h = w->homes[v->id];
    if (h.root) depend(w, w->cells[h.root->id].writer);
    const RangeMap *m = h.buffer ? w->maps[h.buffer->id] : NULL;
    for (int i = 0; m && i < m->n; i++)
        if (hd_range(m, i)->lo < h.at + hd_type_bytes(v->type) && hd_range_hi(m, i) > h.at)
            depend(w, hd_range(m, i)->cell.writer);
}

static void touch(Walk *w, const Access *x) {
    if (x->order && x->at == AT_VALUE) follow_value(w, x->value);
    else if (x->order) follow_buffer(w, x->buffer);
    else if (x->at == AT_BUFFER) touch_range(w, x->buffer, x->lo, x->hi, x->write);
    if (x->at != AT_VALUE || x->order) return;
    Home h = w->homes[x->value->id];
    if (h.buffer) touch_range(w, h.buffer, h.at, h.at + hd_type_bytes(x->value->type), x->write);
    else if (x->write) write_cell(w, &w->cells[h.root->id]);
    else read_cell(w, &w->cells[h.root->id]);
}

static void follow_comm(Walk *w, const Op *o) {
    const char *comm = hd_word(&o->attrs, A_COMM, NULL);
    if (!comm) return;
    int i = 0;
    while (i < w->comms.n && w->comms.at[i] != comm) i++;
    if (i == w->comms.n) {
        hd_push(w->a, &w->comms, comm);
        hd_push(w->a, &w->last, -1);
    }
    depend(w, w->last.at[i]);
    w->last.at[i] = o->id;
}

Deps hd_deps(const Func *f, Arena *a) {
    Walk w = {.a = a, .homes = hd_homes(f, a), .cells = HD_NEWN(a, Cell, f->n_values + 1),
              .seen = HD_NEWN(a, int, f->n_ops + 1)};
    for (int i = 0; i < f->n_values; i++) w.cells[i].writer = -1;
    w.maps = HD_NEWN(a, RangeMap *, f->module->n_symbols + 1);
    int *start = HD_NEWN(a, int, f->n_ops + 1);
    Accesses list = {0};
    for (const Op *o = f->first; o; o = o->next) {
        start[o->id] = w.pred.n;
        w.op = o->id;
        follow_comm(&w, o);
        hd_accesses(o, a, &list);
        for (int i = 0; i < list.n; i++) touch(&w, &list.at[i]); // reads come before writes
    }
    start[f->n_ops] = w.pred.n;
    return (Deps){start, w.pred.at};
}
