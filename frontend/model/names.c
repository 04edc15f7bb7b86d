// Names that are looked up while a model is elaborated: what a file declares, arguments, and values of a call.
#include "frontend/model/names.h"
#include "frontend/model/sema.h"

void hd_bindings_add(Arena *a, Bindings *to, Binding b) {
    hd_push(a, &to->list, b);
    hd_name_add(a, &to->names, b.name);
}

void hd_bindings_cut(Arena *a, Bindings *to, int n) {
    hd_name_cut(a, &to->names, n);
    to->list.n = n;
}

const Binding *hd_bindings_find(const Bindings *of, const char *name) {
    const int k = hd_name_at(&of->names, name);
    return k < 0 ? NULL : &of->list.at[k];
}

int hd_items_add(Arena *a, Items *items, const Node *file, int k) {
    const Node *n = file->kids[k];
    if (n->kind != N_FN && n->kind != N_LET && n->kind != N_MODULE) return -1;
    PtrMap *map = n->kind == N_MODULE ? &items->modules : &items->values;
    const int first = hd_ptr_get(map, n->name);
    if (first < 0) hd_ptr_set(a, map, n->name, k);
    return first;
}

const Node *hd_find_item(const Front *f, NodeKind kind, const char *name) {
    const Items *user = &f->user_items, *prelude = &f->prelude_items;
    int k = hd_ptr_get(kind == N_MODULE ? &user->modules : &user->values, name);
    if (k >= 0) return f->user->kids[k]->kind == kind ? f->user->kids[k] : NULL;
    k = hd_ptr_get(kind == N_MODULE ? &prelude->modules : &prelude->values, name);
    return k < 0 ? NULL : f->prelude->kids[k];
}
