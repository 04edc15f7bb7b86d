// The values that wait for the backward pass, and the parts of the two passes. See offload.h.
#include "passes/offload/offload.h"
#include <string.h>

// Ops of the main stream that take time.
static bool works(const Op *o) {
    return !hd_is_alias(o) && !hd_op_is(o, TRAIT_RETURN) && !hd_has(&o->attrs, A_COMM) && !hd_has(&o->attrs, A_ON);
}

static bool is_backward(const Op *o) { return hd_has(&o->attrs, A_BWD); }

// --- parts

static const char *part_of(const Offload *w, const Op *o, bool layers) {
    const char *path = o->loc.path ? o->loc.path : "";
    return layers ? hd_layer_of(&w->layers, path) : hd_intern_part(w->layers.cx, path, strcspn(path, "."));
}

static void find_parts(Offload *w, bool backward, Parts *parts, int *part) {
    PtrMap seen = {0};
    bool layers = false;
    for (const Op *o = w->f->first; o && !layers; o = o->next) layers = *part_of(w, o, true) != 0;
    for (const Op *o = w->f->first; o; o = o->next) {
        if (!works(o) || is_backward(o) != backward) continue;
        const char *instance = part_of(w, o, layers);
        bool begins = *instance && hd_ptr_get(&seen, instance) < 0;
        if (begins) hd_ptr_set(w->a, &seen, instance, 1);
        if (!parts->n) hd_push(w->a, parts, o->id); // part 0 may be empty
        if (begins) hd_push(w->a, parts, o->id);
        part[o->id] = parts->n - 1;
    }
}

// --- values

typedef struct {
    int *first;  // by value id of a root: the first op of the backward pass that reads it, plus 1
    bool *unfit; // it is written again, or other ops read it late
} Readers;

static Readers find_readers(const Offload *w) {
    Readers r = {HD_NEWN(w->a, int, w->f->n_values + 1), HD_NEWN(w->a, bool, w->f->n_values + 1)};
    for (const Op *o = w->f->first; o; o = o->next) {
        if (hd_is_alias(o)) continue;
        int over = hd_inplace_result(o) >= 0 ? (int)hd_int(&o->attrs, A_INPLACE, -1) : -1;
        for (int i = 0; i < o->n_in; i++) {
            const Value *root = w->homes[o->in[i]->id].root;
            if (!root) continue;
            if (i == over || (!is_backward(o) && r.first[root->id])) r.unfit[root->id] = true;
            else if (is_backward(o) && !r.first[root->id]) r.first[root->id] = o->id + 1;
        }
    }
    return r;
}

static const char *place_of(const Value *v) {
    const Attr *places = hd_attr(&v->def->attrs, A_PLACES);
    const char *path = places && places->n == v->def->n_out ? places->strs[v->index] : v->def->loc.path;
    return path ? path : "";
}

// Made from weights alone, by a kernel, or from nothing: it costs nothing to recompute, less than to copy.
static bool is_cheap(const Offload *w, const Op *o) {
    bool cheap = hd_op_is(o, TRAIT_LAUNCH) || !o->n_in;
    for (int i = 0; i < o->n_in && cheap; i++) {
        const Symbol *b = w->homes[o->in[i]->id].buffer;
        const char *class = b ? hd_word(&b->attrs, A_CLASS, "") : "";
        cheap = !strcmp(class, "shards") || !strcmp(class, "weights");
    }
    return cheap;
}

static void find_values(Offload *w, const int *part) {
    const Readers r = find_readers(w);
    for (Op *o = w->f->first; o; o = o->next) {
        if (!works(o) || is_backward(o) || o->id >= w->backward.at[0] || hd_space(&o->attrs) != SPACE_DEVICE) continue;
        if (is_cheap(w, o)) continue;
        for (int i = 0; i < o->n_out; i++) {
            Value *v = o->out[i];
            int first = r.first[v->id] - 1;
            if (first < 0 || r.unfit[v->id] || w->homes[v->id].root != v || !hd_type_bytes(v->type)) continue;
            Waiting x = {.root = v, .bytes = (double)hd_type_bytes(v->type), .place = place_of(v), .made = o->id,
                         .first = first, .made_in = part[o->id], .first_in = part[first]};
            hd_push(w->a, &w->values, x);
        }
    }
}

Offload hd_offload_find(Func *f, int64_t ahead, Arena *a) {
    Offload w = {.f = f, .a = a, .n_ops = f->n_ops, .homes = hd_homes(f, a), .ops = HD_NEWN(a, Op *, f->n_ops + 1),
                 .seconds = HD_NEWN(a, double, f->n_ops + 1), .ahead = (int)ahead, .model = hd_model(f->module),
                 .layers = hd_layers(f->module, a)};
    int *part = HD_NEWN(a, int, f->n_ops + 1);
    for (Op *o = f->first; o; o = o->next) {
        w.ops[o->id] = o;
        if (w.model && works(o)) w.seconds[o->id] = hd_model_seconds(w.model, o);
    }
    find_parts(&w, false, &w.forward, part);
    find_parts(&w, true, &w.backward, part);
    if (w.backward.n) find_values(&w, part);
    w.made = HD_NEWN(a, Waiting *, w.values.n + 1);
    w.read = HD_NEWN(a, Waiting *, w.values.n + 1);
    return w;
}
