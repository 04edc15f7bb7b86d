// Parameters that are split along a dimension over ranks. In row-major order a part is runs of consecutive elements of
// the whole: with dimensions [a, b, c], of which b is split into n parts, a runs of b/n*c elements each. Parts of an
// uneven first dimension are one run, and the last ones of them are shorter in the whole than in storage.
#include "runtime/checkpoint/pieces.h"
#include "runtime/world/mesh.h"

HdSplit hd_split_of(const HdProgram *p, const HdParam *q) {
    return p->splits && q - p->params < p->n_params ? p->splits[q - p->params] : (HdSplit){0, 0, 0};
}

int hd_parts(const HdProgram *p, const HdParam *q) { return hd_group_ranks(p, hd_split_of(p, q).over); }

int hd_part(const HdProgram *p, const HdParam *q, int rank) {
    return hd_group_number(p, hd_split_of(p, q).over, rank);
}

HdParam hd_whole(const HdProgram *p, const HdParam *q) {
    HdParam whole = *q;
    const HdSplit split = hd_split_of(p, q);
    const int parts = hd_parts(p, q);
    if (split.size) {
        whole.count = whole.count / whole.dim[0] * split.size;
        whole.dim[0] = split.size;
        return whole;
    }
    if (parts > 1) whole.dim[split.along] *= parts;
    whole.count *= parts;
    return whole;
}

int64_t hd_model_size(const HdProgram *p) {
    int64_t n = 0;
    for (int k = 0; k < p->n_params; k++) n += hd_whole(p, &p->params[k]).count;
    return n;
}

static int64_t run_of(const HdProgram *p, const HdParam *q) {
    int64_t n = 1;
    for (int i = hd_split_of(p, q).along; i < q->rank; i++) n *= q->dim[i];
    return n;
}

int64_t hd_part_count(const HdProgram *p, const HdParam *q, int part) {
    if (!hd_split_of(p, q).size) return q->count;
    const int64_t left = hd_whole(p, q).count - part * q->count;
    return left < 0 ? 0 : left < q->count ? left : q->count;
}

HdSpan hd_whole_run(const HdProgram *p, const HdParam *q, int part, int64_t first, int64_t count) {
    if (!hd_split_of(p, q).over) return (HdSpan){first, count};
    if (hd_split_of(p, q).size) {
        const int64_t own = hd_part_count(p, q, part) - first;
        return own <= 0 ? (HdSpan){-1, count} : (HdSpan){part * q->count + first, count < own ? count : own};
    }
    const int64_t run = run_of(p, q), rest = run - first % run;
    return (HdSpan){first / run * run * hd_parts(p, q) + part * run + first % run, count < rest ? count : rest};
}

int64_t hd_part_before(const HdProgram *p, const HdParam *q, int part, int64_t whole) {
    if (!hd_split_of(p, q).over) return whole;
    if (hd_split_of(p, q).size) {
        const int64_t own = hd_part_count(p, q, part), before = whole - part * q->count;
        return before < 0 ? 0 : before < own ? before : own;
    }
    const int64_t run = run_of(p, q), all = run * hd_parts(p, q), mine = whole % all - part * run;
    return whole / all * run + (mine < 0 ? 0 : mine < run ? mine : run);
}
