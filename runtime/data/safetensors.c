// A tensor of a safetensors file: the one that is called as the input, or the only one.
#include "runtime/checkpoint/safetensors.h"
#include "runtime/data/format.h"
#include <string.h>

static const struct { const char *name; DataType type; } types[] = {
    {"U8", DATA_U8},   {"BOOL", DATA_U8}, {"I16", DATA_I16}, {"U16", DATA_U16},   {"I32", DATA_I32}, {"U32", DATA_U32},
    {"I64", DATA_I64}, {"U64", DATA_I64}, {"F16", DATA_F16}, {"BF16", DATA_BF16}, {"F32", DATA_F32},
};

static bool layout_of(const DataSource *s, const StFile *f, const StTensor *t, DataLayout *out) {
    *out = (DataLayout){.rank = t->rank, .count = 1};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, t->dtype)) out->type = types[i].type;
    if (!out->type)
        return hd_fail("%s: its tensor '%s' holds %s; data is U8, BOOL, I16, U16, I32, U32, I64, F16, BF16 or F32",
                       s->path, t->name, t->dtype);
    if (!t->rank) return hd_fail("%s: its tensor '%s' is a scalar, and data has rows", s->path, t->name);
    memcpy(out->dim, t->dim, sizeof t->dim);
    out->count = (t->end - t->begin) / hd_data_types[out->type].width;
    out->head = (int64_t)(f->data - f->map) + t->begin;
    return true;
}

bool hd_read_safetensors(const DataSource *s, DataLayout *t) {
    StFile f;
    const char *name = s->use->input->name;
    if (!hd_st_open(&f, s->path)) return false;
    const StTensor *named = hd_st_find(&f, name), *found = named ? named : f.n == 1 ? &f.tensors[0] : NULL;
    const bool ok = found ? layout_of(s, &f, found, t)
                          : hd_fail("%s holds %d tensors, and none is called '%s': save the data under that name "
                                    "(weights are for --init)",
                                    s->path, f.n, name);
    hd_st_close(&f);
    return ok;
}
