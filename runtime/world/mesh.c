// Which ranks form a group.
#include "runtime/world/mesh.h"
#include "runtime/world/world.h"
#include <stdio.h>

int hd_group_ranks(const HdProgram *p, unsigned over) {
    int n = 1;
    for (int a = 0; a < p->n_axes; a++) n *= over >> a & 1 ? p->axes[a].ranks : 1;
    return n;
}

int hd_group_number(const HdProgram *p, unsigned over, int rank) {
    int number = 0, step = 1;
    for (int a = 0; a < p->n_axes; rank /= p->axes[a++].ranks) {
        if (!(over >> a & 1)) continue;
        number += rank % p->axes[a].ranks * step;
        step *= p->axes[a].ranks;
    }
    return number;
}

int hd_group_member(const HdProgram *p, unsigned over, int rank, int i) {
    int member = 0, step = 1;
    for (int a = 0; a < p->n_axes; a++) {
        const int n = p->axes[a].ranks;
        int *from = over >> a & 1 ? &i : NULL;
        member += (from ? *from : rank) % n * step;
        if (from) *from /= n;
        rank /= n;
        step *= n;
    }
    return member;
}

uint64_t hd_own_part(const HdExec *x, int comm, int64_t part_bytes) {
    return (uint64_t)hd_group_number(x->program, x->program->comms[comm].over, x->world->rank) * (uint64_t)part_bytes;
}

int64_t hd_number_along(const HdExec *x, unsigned axes) { return hd_group_number(x->program, axes, x->world->rank); }

int64_t hd_decayed_here(const HdExec *x, int64_t decayed, int64_t count, unsigned split) {
    decayed -= count * hd_number_along(x, split);
    return decayed < 0 ? 0 : decayed > count ? count : decayed;
}

int hd_ranks(const HdProgram *p) { return hd_group_ranks(p, ~0u); }

static unsigned data_axes(const HdProgram *p) {
    unsigned axes = 0;
    for (int a = 0; a < p->n_axes; a++) axes |= (p->axes[a].data ? 1u : 0u) << a;
    return axes;
}

int hd_readers(const HdProgram *p) { return hd_group_ranks(p, data_axes(p)); }

int hd_reader(const HdProgram *p, int rank) { return hd_group_number(p, data_axes(p), rank); }

unsigned hd_split_axes(const HdProgram *p) {
    unsigned axes = 0;
    for (int i = 0; i < p->n_buckets; i++) axes |= p->buckets[i].split;
    for (int i = 0; p->splits && i < p->n_params; i++) axes |= p->splits[i].over;
    return axes;
}

int hd_shard(const HdExec *x, const HdBucket *b) { return hd_group_number(x->program, b->split, x->world->rank); }

unsigned hd_live_axes(const HdProgram *p) {
    unsigned axes = 0;
    for (int a = 0; a < p->n_axes; a++) axes |= (p->axes[a].ranks > 1 ? 1u : 0u) << a;
    return axes;
}

bool hd_says_axis(const HdProgram *p, int axis) {
    return (p->axes[axis].data && !p->axes[axis].owns) || p->axes[axis].ranks > 1;
}

const char *hd_mesh_say(const HdProgram *p, const char *assigns, const char *between, char *out, size_t size) {
    size_t n = 0;
    *out = 0;
    for (int a = 0; a < p->n_axes && n < size; a++)
        if (hd_says_axis(p, a))
            n += (size_t)snprintf(out + n, size - n, "%s%s%s%d", n ? between : "", p->axes[a].name, assigns,
                                  p->axes[a].ranks);
    return out;
}
