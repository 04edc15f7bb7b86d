// The mesh of ranks: each rank has a coordinate along every axis of axes.def. Ranks that differ only along a set of
// axes form a group, in which they are numbered with the innermost axis of the set running fastest.
#ifndef IR_MESH_H
#define IR_MESH_H
#include "ir/ir.h"

enum { HD_AXIS_COPY, HD_AXIS_SPLIT, HD_AXIS_OWN, HD_AXIS_BOTH = HD_AXIS_SPLIT | HD_AXIS_OWN }; // axes.def: columns
enum { HD_AXIS_SAME, HD_AXIS_OTHER };
enum {
#define AXIS(id, name, data, storage, doc) AXIS_##id,
#include "ir/axes.def"
#undef AXIS
    N_AXES
};
typedef unsigned Axes; // a set of axes: bit 1 << AXIS_*
enum {
    HD_ALL_AXES = (1 << N_AXES) - 1,
    HD_SPLIT_AXES = 0 // what a bucket begins with: passes and verifiers ask the bucket
#define AXIS(id, name, data, storage, doc) | (HD_AXIS_##storage & HD_AXIS_SPLIT) / HD_AXIS_SPLIT << AXIS_##id
#include "ir/axes.def"
#undef AXIS
    ,
    HD_OWN_AXES = 0 // along which a parameter may be split by one of its dimensions
#define AXIS(id, name, data, storage, doc) | (HD_AXIS_##storage & HD_AXIS_OWN) / HD_AXIS_OWN << AXIS_##id
#include "ir/axes.def"
#undef AXIS
    ,
    HD_COPY_AXES = HD_ALL_AXES & ~HD_SPLIT_AXES, // of a bucket whose parameters are split over no other
    HD_DATA_AXES = 0 // along which ranks read other sequences
#define AXIS(id, name, data, storage, doc) | HD_AXIS_##data << AXIS_##id
#include "ir/axes.def"
#undef AXIS
    ,
    HD_EXPERT_AXES = HD_OWN_AXES & HD_DATA_AXES, // whose ranks own parameters, and compute them for the data of all
    HD_MAX_RANKS = 1 << 16
};
typedef struct {
    int64_t size[N_AXES]; // ranks along each axis
    int64_t uneven;       // the size of the whole of every dimension that has uneven parts (layout.h); 0: none has
} Mesh;

const char *hd_axis_name(int axis);
int hd_axis_called(const char *name); // N_AXES: none is
Mesh hd_mesh(const Module *m);                          // of config @schedule; axes that it does not list have one rank
void hd_set_mesh(Ctx *cx, Attrs *as, const Mesh *mesh); // `mesh` and `sizes`
const char *hd_mesh_text(Arena *a, const Mesh *mesh, bool names); // "4 x 2", "shard 4 x replicate 2"
// Whether a text names the axis: one along which parameters may be split is named where it has several ranks.
bool hd_mesh_says(const Mesh *mesh, int axis);
Axes hd_mesh_said(const Mesh *mesh, Axes axes);          // those of them that a text names
int64_t hd_mesh_ranks(const Mesh *mesh, Axes over);     // in a group over a set of axes
static inline int64_t hd_mesh_readers(const Mesh *mesh) { return hd_mesh_ranks(mesh, HD_DATA_AXES); } // of other data
int64_t hd_mesh_number(const Mesh *mesh, Axes over, int64_t rank);           // of a rank in its group
int64_t hd_mesh_member(const Mesh *mesh, Axes over, int64_t rank, int64_t i); // rank i of the group of `rank`
Axes hd_mesh_live(const Mesh *mesh);                    // the axes with more than one rank

// Hosts: ranks with consecutive numbers share one, so the innermost axes stay within it. A host has all ranks along
// some of these axes, and of the next one a part that divides it: no two groups over an axis are cut in another way.
int64_t hd_mesh_host(const Mesh *mesh, int64_t most); // the most ranks of a host that is so and has at most so many
int64_t hd_mesh_on_host(const Mesh *mesh, Axes over, int64_t host); // of the ranks of a group, by such a host
const char *hd_host_wrong(Arena *a, const Mesh *mesh, int64_t host); // what is, as text; NULL: nothing

Axes hd_axes(const Attrs *as, AttrId id); // of a list of names; unknown ones are left out: hd_verify refuses them
void hd_set_axes(Ctx *cx, Attrs *as, AttrId id, Axes axes);
const char *hd_axes_text(Arena *a, Axes axes); // "shard and replicate"
// The fault of a `split` of these elements, as text; NULL: nothing.
const char *hd_split_wrong(const Module *m, const Attr *split, const Type *whole);
void hd_mesh_check(const Module *m); // reports what is wrong with the mesh and every list of axes
#endif
