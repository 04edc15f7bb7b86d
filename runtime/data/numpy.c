// A numpy array of one dimension: "\x93NUMPY", two bytes of version, the length of the header (2 bytes, from version 2
// on 4), and the header: a Python dictionary with descr, fortran_order and shape.
#include "runtime/data/format.h"
#include "runtime/heddle.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *descr; TokenFormat type; } types[] = {
    {"|u1", TOKENS_U8},  {"<u2", TOKENS_U16}, {"<i2", TOKENS_I16}, {"<u4", TOKENS_U32},
    {"<i4", TOKENS_I32}, {"<i8", TOKENS_I64}, {"<u8", TOKENS_I64}, // a u64 beyond i64 is no token either
};

static const char *value_of(const char *header, const char *key) { // of 'key' in the dictionary; NULL: it is not there
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    return at + strspn(at, " :");
}

static bool type_of(const DataSource *s, const char *header, TokenFormat *type) {
    const char *at = value_of(header, "'descr'");
    const size_t n = at && *at == '\'' ? strcspn(at + 1, "'") : 0;
    for (size_t i = 0; n && i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].descr) == n && !memcmp(types[i].descr, at + 1, n)) {
            *type = types[i].type;
            return true;
        }
    return hd_fail("%s: a numpy array of '%.*s'; tokens are u8, u16, u32, i32 or i64, little-endian: "
                   "np.save('tokens.npy', array.astype(np.uint32))",
                   s->path, n ? (int)(n < 16 ? n : 16) : 7, n ? at + 1 : "records");
}

static bool count_of(const DataSource *s, const char *header, int64_t *count) {
    const char *at = value_of(header, "'shape'");
    char *end = NULL;
    errno = 0;
    if (at && *at == '(' && at[1] >= '0' && at[1] <= '9') *count = strtoll(at + 1, &end, 10);
    if (end && !errno && end[0] == ',' && end[1] == ')') return true;
    const size_t n = at ? strcspn(at, ")") : 0;
    return hd_fail("%s: a numpy array of the shape %.*s); tokens are an array of one dimension: "
                   "np.save('tokens.npy', array.reshape(-1))",
                   s->path, (int)(n < 60 ? n : 60), at ? at : "(?");
}

bool hd_read_numpy(const DataSource *s, TokenLayout *t) {
    char header[HD_HEAD_BYTES + 1];
    const int wide = s->read > 6 && s->head[6] > 1 ? 4 : 2;
    const int64_t begin = 8 + wide, length = s->read >= begin ? (int64_t)hd_format_word(s->head + 8, wide) : -1;
    if (length < 0 || length > s->read - begin)
        return hd_fail("%s begins as a numpy array does, and its header is cut short or larger than that of an array "
                       "of numbers",
                       s->path);
    memcpy(header, s->head + begin, (size_t)length);
    header[length] = 0;
    if (!type_of(s, header, &t->type) || !count_of(s, header, &t->count)) return false;
    t->head = begin + length;
    t->documents = 0;
    const int64_t held = (s->bytes - t->head) / hd_token_types[t->type].width;
    if (t->count > held)
        return hd_fail("%s: its header says %lld tokens but the file holds %lld: it is cut short", s->path,
                       (long long)t->count, (long long)held);
    return hd_format_agrees(s, t->type, "header");
}
