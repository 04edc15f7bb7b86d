// The mesh: how a module declares it, and which ranks form a group.
#include "ir/mesh.h"
#include "ir/base/ints.h"

static const char *const names[] = {
#define AXIS(id, name, data, storage, doc) name,
#include "ir/axes.def"
#undef AXIS
};

const char *hd_axis_name(int axis) { return names[axis]; }

int hd_axis_called(const char *name) {
    int a = 0;
    while (a < N_AXES && strcmp(names[a], name) != 0) a++;
    return a;
}

// --- attributes

Mesh hd_mesh(const Module *m) {
    Mesh mesh = {0};
    for (int a = 0; a < N_AXES; a++) mesh.size[a] = 1;
    const Symbol *schedule = hd_symbol_find(m, "schedule");
    if (schedule) mesh.uneven = hd_int(&schedule->attrs, A_UNEVEN, 0);
    const Attr *list = schedule ? hd_attr(&schedule->attrs, A_MESH) : NULL;
    const Attr *sizes = schedule ? hd_attr(&schedule->attrs, A_SIZES) : NULL;
    for (int i = 0; list && sizes && i < list->n && i < sizes->n; i++) {
        int a = hd_axis_called(list->strs[i]);
        if (a < N_AXES) mesh.size[a] = sizes->ints[i];
    }
    return mesh;
}

bool hd_mesh_says(const Mesh *mesh, int axis) { return !(HD_OWN_AXES >> axis & 1) || mesh->size[axis] > 1; }

Axes hd_mesh_said(const Mesh *mesh, Axes axes) {
    for (int a = 0; a < N_AXES; a++)
        if (!hd_mesh_says(mesh, a)) axes &= ~(1u << a);
    return axes;
}

void hd_set_mesh(Ctx *cx, Attrs *as, const Mesh *mesh) {
    const char *said[N_AXES];
    int64_t sizes[N_AXES];
    int n = 0;
    for (int a = 0; a < N_AXES; a++)
        if (hd_mesh_says(mesh, a)) said[n] = names[a], sizes[n++] = mesh->size[a];
    hd_set_words(cx, as, A_MESH, n, said);
    hd_set_ints(cx, as, A_SIZES, n, sizes);
}

Axes hd_axes(const Attrs *as, AttrId id) {
    const Attr *list = hd_attr(as, id);
    Axes axes = 0;
    for (int i = 0; list && i < list->n; i++) axes |= 1u << hd_axis_called(list->strs[i]);
    return axes & HD_ALL_AXES;
}

void hd_set_axes(Ctx *cx, Attrs *as, AttrId id, Axes axes) {
    const char *list[N_AXES];
    int n = 0;
    for (int a = 0; a < N_AXES; a++)
        if (axes >> a & 1) list[n++] = names[a];
    hd_set_words(cx, as, id, n, list);
}

const char *hd_axes_text(Arena *arena, Axes axes) {
    Out o = hd_out(arena);
    for (int a = 0; a < N_AXES; a++)
        if (axes >> a & 1) hd_printf(&o, "%s%s", !o.n ? "" : axes >> a > 1 ? ", " : " and ", names[a]);
    return o.n ? o.text : "no axis";
}

const char *hd_mesh_text(Arena *arena, const Mesh *mesh, bool named) {
    Out o = hd_out(arena);
    for (int a = 0; a < N_AXES; a++)
        if (hd_mesh_says(mesh, a))
            hd_printf(&o, "%s%s%s%lld", o.n ? " x " : "", named ? names[a] : "", named ? " " : "", ll(mesh->size[a]));
    return o.text;
}

// --- groups

int64_t hd_mesh_ranks(const Mesh *mesh, Axes over) {
    int64_t n = 1;
    for (int a = 0; a < N_AXES; a++) n *= over >> a & 1 ? mesh->size[a] : 1;
    return n;
}

int64_t hd_mesh_number(const Mesh *mesh, Axes over, int64_t rank) {
    int64_t number = 0, step = 1;
    for (int a = 0; a < N_AXES; rank /= mesh->size[a++]) {
        if (!(over >> a & 1)) continue;
        number += rank % mesh->size[a] * step;
        step *= mesh->size[a];
    }
    return number;
}

int64_t hd_mesh_member(const Mesh *mesh, Axes over, int64_t rank, int64_t i) {
    int64_t member = 0, step = 1;
    for (int a = 0; a < N_AXES; a++) {
        int64_t n = mesh->size[a], *from = over >> a & 1 ? &i : NULL;
        member += (from ? *from : rank) % n * step;
        if (from) *from /= n;
        rank /= n;
        step *= n;
    }
    return member;
}

Axes hd_mesh_live(const Mesh *mesh) {
    Axes live = 0;
    for (int a = 0; a < N_AXES; a++) live |= (mesh->size[a] > 1 ? 1u : 0u) << a;
    return live;
}

// --- hosts

// The largest part of an axis of `size` ranks that divides it and has at most `most`.
static int64_t part_of(int64_t size, int64_t most) {
    int64_t part = most < size ? most : size;
    while (part > 1 && size % part) part--;
    return part > 1 ? part : 1;
}

int64_t hd_mesh_host(const Mesh *mesh, int64_t most) {
    int64_t host = 1;
    for (int a = 0; a < N_AXES; a++) {
        const int64_t part = part_of(mesh->size[a], most / host);
        host *= part;
        if (part < mesh->size[a]) break;
    }
    return host;
}

int64_t hd_mesh_on_host(const Mesh *mesh, Axes over, int64_t host) {
    int64_t on = 1;
    for (int a = 0; a < N_AXES; a++) {
        const int64_t part = part_of(mesh->size[a], host);
        if (over >> a & 1) on *= part;
        host /= part;
    }
    return on;
}

const char *hd_host_wrong(Arena *a, const Mesh *mesh, int64_t host) {
    if (host < 1) return hd_sprintf(a, "host = %lld is no number of ranks", ll(host));
    const int64_t ranks = hd_mesh_ranks(mesh, HD_ALL_AXES), fits = hd_mesh_host(mesh, host);
    if (host >= ranks || fits == host) return NULL;
    return hd_sprintf(a, "host = %lld cuts the mesh %s unevenly: ranks fill hosts from the innermost axis outwards, so "
                      "a host holds whole axes and a divisor of the next one; choose %lld, or %lld for one host",
                      ll(host), hd_mesh_text(a, mesh, true), ll(fits), ll(ranks));
}

// --- checks

static const char *list_wrong(const Module *m, const Attr *list) {
    for (int i = 0; i < list->n; i++) {
        int a = hd_axis_called(list->strs[i]);
        bool again = i && a <= hd_axis_called(list->strs[i - 1]);
        if (a == N_AXES || again)
            return hd_internf(m->cx, "%s %s %s; the axes are, in this order, %s", hd_attr_info(list->id)->text,
                              again && a < N_AXES ? "has no place here for axis" : "names no axis:", list->strs[i],
                              hd_axes_text(m->cx->arena, HD_ALL_AXES));
    }
    return NULL;
}

static bool check_list(const Module *m, const Symbol *s, const Attr *list) {
    const char *wrong = list ? list_wrong(m, list) : NULL;
    if (wrong) hd_error(m->cx, s->span, "%s @%s: %s", hd_symbol_keyword(s->kind), s->name, wrong);
    return !wrong;
}

const char *hd_split_wrong(const Module *m, const Attr *split, const Type *whole) {
    const char *wrong = list_wrong(m, split);
    Attrs as = {1, 1, (Attr *)(uintptr_t)split};
    Mesh mesh = hd_mesh(m);
    int64_t ranks = hd_mesh_ranks(&mesh, hd_axes(&as, split->id));
    if (wrong || hd_type_count(whole) % ranks == 0) return wrong;
    return hd_internf(m->cx, "%s does not divide into %lld parts over %s", hd_type_text(m->cx, whole), ll(ranks),
                      hd_axes_text(m->cx->arena, hd_axes(&as, split->id)));
}

static bool check_sizes(const Module *m, const Symbol *s, const Attr *list, const Attr *sizes) {
    if (!list || !sizes || list->n != sizes->n) {
        hd_error(m->cx, s->span, "the mesh has %d axes and %d sizes", list ? list->n : 0, sizes ? sizes->n : 0);
        return false;
    }
    Mesh mesh = hd_mesh(m);
    int64_t ranks = 1;
    for (int a = 0; a < N_AXES; a++)
        ranks = mesh.size[a] < 1 || mesh.size[a] > HD_MAX_RANKS / ranks ? HD_MAX_RANKS + 1 : ranks * mesh.size[a];
    if (ranks > HD_MAX_RANKS)
        hd_error(m->cx, s->span, "a mesh of %s ranks is none: sizes start at 1, and there are at most %d ranks",
                 hd_mesh_text(m->cx->arena, &mesh, false), HD_MAX_RANKS);
    return ranks <= HD_MAX_RANKS;
}

static void check_host(const Module *m, const Symbol *s) {
    const Mesh mesh = hd_mesh(m);
    const char *wrong = hd_host_wrong(m->cx->arena, &mesh, hd_int(&s->attrs, A_HOST, 1));
    if (wrong) hd_error(m->cx, s->span, "%s @%s: %s", hd_symbol_keyword(s->kind), s->name, wrong);
}

void hd_mesh_check(const Module *m) {
    for (const Symbol *s = m->symbols; s; s = s->next) {
        const Attr *mesh = hd_attr(&s->attrs, A_MESH), *sizes = hd_attr(&s->attrs, A_SIZES);
        bool ok = check_list(m, s, hd_attr(&s->attrs, A_OVER)) && check_list(m, s, hd_attr(&s->attrs, A_SPLIT)) &&
                  check_list(m, s, hd_attr(&s->attrs, A_COPIED));
        if (!check_list(m, s, mesh) || !ok || ((mesh || sizes) && !check_sizes(m, s, mesh, sizes))) continue;
        if (hd_has(&s->attrs, A_HOST)) check_host(m, s);
    }
}
