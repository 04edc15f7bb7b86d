// Layers of a model that writes them as members: `l0 = Block; l1 = Block;` in place of `repeat(2) Block`. Passes cut a
// model at its layers (passes/analysis/places.h). Instances of a repeated module have numbers in their paths. Layers
// that stand in no `repeat` become the attribute `layers` of config @schedule.
//
// A layer is an instance of a module of the file of which several stand in no `repeat`. It is the outermost such
// instance that is no stack of layers itself. A stack contains a `repeat`, a stack, or at least STACK instances of one
// module.
#include "frontend/model/sema.h"

enum { STACK = 3 }; // a layer often has two of a module: two norms, or attention to itself and to another sequence

typedef struct {
    Front *f;
    PtrMap count; // by declaration: instances that stand in no `repeat`
    Names paths, types;
} Search;

// The member's instance, if its module is one of the file; NULL: it is something else.
static Instance *instance_of(const Front *f, const Member *m) {
    const bool is = m->value.kind == VAL_INSTANCE && hd_front_in_user(f, m->value.instance->decl->span);
    return is ? m->value.instance : NULL;
}

static bool is_stack(const Front *f, const Instance *i) {
    PtrMap count = {0};
    for (int k = 0; k < i->members.n; k++) {
        const Instance *in = instance_of(f, &i->members.at[k]);
        if (i->members.at[k].value.kind == VAL_REPEAT || (in && is_stack(f, in))) return true;
        const int before = in ? hd_ptr_get(&count, in->decl) : -1;
        if (before + 1 >= STACK) return true;
        if (in) hd_ptr_set(f->scratch, &count, in->decl, before < 0 ? 1 : before + 1);
    }
    return false;
}

static void find(Search *s, const Instance *i) {
    for (int k = 0; k < i->members.n; k++) {
        const Instance *in = instance_of(s->f, &i->members.at[k]);
        if (!in) continue;
        if (hd_ptr_get(&s->count, in->decl) < 2 || is_stack(s->f, in)) {
            find(s, in);
            continue;
        }
        hd_push(s->f->scratch, &s->paths, in->path);
        hd_push(s->f->scratch, &s->types, in->decl->name);
    }
}

void hd_layers_emit(Front *f, Attrs *schedule) {
    Search s = {.f = f};
    for (int k = 0; k < f->instances.n; k++) {
        const Instance *i = f->instances.at[k];
        if (i->number >= 0) continue;
        const int before = hd_ptr_get(&s.count, i->decl);
        hd_ptr_set(f->scratch, &s.count, i->decl, before < 0 ? 1 : before + 1);
    }
    find(&s, f->root);
    if (!s.paths.n) return;
    hd_set_words(f->cx, schedule, A_LAYERS, s.paths.n, s.paths.at);
    hd_set_words(f->cx, schedule, A_LAYER_TYPES, s.types.n, s.types.at);
}
