// A numpy array: "\x93NUMPY", two bytes of version, the length of the header (2 bytes, from version 2
// on 4), and the header: a Python dictionary with descr, fortran_order and shape.
#include "runtime/data/format.h"
#include "runtime/heddle.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *descr; DataType type; } types[] = {
    {"|u1", DATA_U8},  {"<u2", DATA_U16}, {"<i2", DATA_I16}, {"<u4", DATA_U32},
    {"<i4", DATA_I32}, {"<i8", DATA_I64}, {"<u8", DATA_I64}, // a u64 beyond i64 is outside every bound
    {"|b1", DATA_U8},  {"<f2", DATA_F16}, {"<f4", DATA_F32},
};

static const char *value_of(const char *header, const char *key) { // of 'key' in the dictionary; NULL: it is not there
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    return at + strspn(at, " :");
}

static bool type_of(const DataSource *s, const char *header, DataType *type) {
    const char *at = value_of(header, "'descr'");
    const size_t n = at && *at == '\'' ? strcspn(at + 1, "'") : 0;
    for (size_t i = 0; n && i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].descr) == n && !memcmp(types[i].descr, at + 1, n)) {
            *type = types[i].type;
            return true;
        }
    return hd_fail("%s: a numpy array of '%.*s'; data is u8, i16, u16, i32, u32, i64, bool, f16 or f32, little-endian: "
                   "np.save('%s.npy', array.astype(np.%s))",
                   s->path, n ? (int)(n < 16 ? n : 16) : 7, n ? at + 1 : "records", s->use->input->name,
                   s->use->input->dtype == HD_I32 ? "uint32" : "float32");
}

static bool wrong_shape(const DataSource *s, const char *at) { // false
    const size_t n = at ? strcspn(at, ")") : 0;
    return hd_fail("%s: a numpy array of the shape %.*s), whose first dimension is to count elements or rows: "
                   "np.save('%s.npy', array.reshape(-1))",
                   s->path, (int)(n < 60 ? n : 60), at ? at : "(?", s->use->input->name);
}

// The shape of an array in C's order. The products of its dimensions are in range.
static bool shape_of(const DataSource *s, const char *header, DataLayout *t) {
    const char *const shape = value_of(header, "'shape'"), *at = shape && *shape == '(' ? shape + 1 : NULL;
    const char *const order = value_of(header, "'fortran_order'");
    int64_t room = 1; // what they are without zeros
    t->count = 1;
    while (at && t->rank < HD_DATA_DIMS && *at >= '0' && *at <= '9') {
        char *end;
        errno = 0;
        const long long n = strtoll(at, &end, 10);
        if (errno || (n && room > INT64_MAX / 8 / n)) return wrong_shape(s, shape);
        t->dim[t->rank++] = n;
        t->count *= n;
        room *= n ? n : 1;
        at = end + (*end == ',');
        at += strspn(at, " ");
    }
    if (!at || !t->rank || *at != ')') return wrong_shape(s, shape);
    return t->rank == 1 || !order || strncmp(order, "True", 4) ||
           hd_fail("%s: a numpy array in Fortran's order, whose rows are not together: "
                   "np.save('%s.npy', np.ascontiguousarray(array))",
                   s->path, s->use->input->name);
}

bool hd_read_numpy(const DataSource *s, DataLayout *t) {
    char header[HD_HEAD_BYTES + 1];
    *t = (DataLayout){0};
    const int wide = s->read > 6 && s->head[6] > 1 ? 4 : 2;
    const int64_t begin = 8 + wide, length = s->read >= begin ? (int64_t)hd_format_word(s->head + 8, wide) : -1;
    if (length < 0 || length > s->read - begin)
        return hd_fail("%s begins as a numpy array does, and its header is cut short or larger than that of an array "
                       "of numbers",
                       s->path);
    memcpy(header, s->head + begin, (size_t)length);
    header[length] = 0;
    if (!type_of(s, header, &t->type) || !shape_of(s, header, t)) return false;
    t->head = begin + length;
    const int64_t held = (s->bytes - t->head) / hd_data_types[t->type].width;
    if (t->count > held)
        return hd_fail("%s: its header says %lld elements but the file holds %lld: it is cut short", s->path,
                       (long long)t->count, (long long)held);
    return hd_format_agrees(s, t->type, "header");
}
