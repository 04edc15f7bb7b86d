// The places of a list of schedule (`recompute`, `keep`, `offload`, `graph`) or train (`fp8`, `except`), and the ops in
// them. A place is the path of a module instance, blocks.3.attn, or that with the name of a `let`; everything below it
// belongs to it. If several lists have places around an op, the one with the innermost place decides.
#ifndef PASSES_ANALYSIS_PLACES_H
#define PASSES_ANALYSIS_PLACES_H
#include "ir/ir.h"
#include "ir/base/ptr_map.h"

typedef struct {
    Module *m;
    AttrId list;       // of config @schedule or @train
    const char *config;
    const Attr *paths; // NULL: nothing is listed
    PtrMap at;         // path to its place in the list (the first one)
    bool *found;       // by place: some path that was asked for is in it
    bool *border;      // by place: it is an instance with a border; NULL: none is
} Places;

Places hd_places(Module *m, AttrId list, Arena *a);
Places hd_train_places(Module *m, AttrId list, Arena *a);
Places hd_places_of(Module *m, int n, const char *const *paths, Arena *a); // any others
// How many components of `path` the innermost place around it has; 0: none is. `widest` (may be NULL): the index of the
// outermost place, or of the innermost one with a border.
int hd_place_of(Places *p, const char *path, int *widest);
// Finds the borders of places to recompute: by place, the instance whose inputs are kept.
const char *const *hd_places_borders(Places *p, Arena *a);
// false after reporting the places in which nothing was found; `nothing` says what they lack, and what to do.
bool hd_places_found(const Places *p, const char *nothing);
// false after reporting a place that is in both lists.
bool hd_places_differ(const Places *p, const Places *q);

// Layers: the instances of a repeated module, which have numbers, and those that config @schedule lists, since they are
// members that stand in a row (frontend/builtins/layers.c). In a flat model these are l0 to l7.
typedef struct {
    Ctx *cx;
    const Attr *paths, *types; // NULL: it lists none
    PtrMap at;
} Layers;

Layers hd_layers(const Module *m, Arena *a);
const char *hd_layer_of(const Layers *l, const char *path);      // the innermost layer around a place; "": none is
const char *hd_layer_kind(const Layers *l, const char *layer);   // equal for layers that repeat one module
int hd_layer_number(const Layers *l, const char *layer);         // among its equals or in its list; -1: of no layer

// The innermost instance of a repeated module around a place: the path up to its last number, blocks.3 of
// blocks.3.mlp.act; "" when it has none.
const char *hd_instance_of_path(Ctx *cx, const char *path);
const char *hd_place_pattern(Ctx *cx, const char *path); // blocks.*.attn of blocks.3.attn, for all instances together
#endif
