// Files without a header: text, or numbers of one width. --format says which, else the name, and then the content must
// not look like something else. Numbers of u16 fill every word alike. Of u32 the second word of two is 0 or, of a large
// vocabulary, small; of i64 the last three of four are 0.
#include "runtime/data/format.h"
#include "runtime/heddle.h"
#include <string.h>

enum { LOOK = 4096, WORDS = LOOK / 2, LARGEST_HIGH = 64 }; // words looked at; a high word of tokens is smaller

// The words at the beginning, and as many in the middle: a file may begin with a long padding.
static int look(const DataSource *s, uint16_t words[WORDS]) {
    unsigned char b[LOOK];
    int64_t n = s->read / 8 * 8;
    memcpy(b, s->head, (size_t)n);
    const int64_t middle = s->bytes / 16 * 8, room = LOOK - n;
    const int64_t got = middle >= n ? hd_format_bytes(s->fd, b + n, room, middle) : 0;
    if (got > 0) n += got / 8 * 8;
    for (int64_t i = 0; i < n / 2; i++) words[i] = (uint16_t)hd_format_word(b + 2 * i, 2);
    return (int)(n / 2);
}

typedef struct { const char *format, *why; } Guess;

static Guess guess(const DataSource *s) { // what u16 numbers look like; format NULL: u16, or nothing says
    uint16_t words[WORDS];
    const int n = look(s, words);
    int quarter = 0, zero[4] = {0}, high = 0, fractions = 0;
    for (int i = 0; i + 4 <= n; i += 4) {
        const uint16_t *w = words + i;
        if (!(w[0] | w[1] | w[2] | w[3])) continue; // padding says nothing
        for (int k = 0; k < 4; k++) zero[k] += !w[k];
        for (int k = 1; k < 4; k += 2) high = w[k] > high ? w[k] : high;
        for (int k = 1; k < 4; k += 2) fractions += !w[k] || (w[k] >= 0x3f80 && w[k] < 0x4980); // f32 of 1 to 2^20
        quarter++;
    }
    const int low_zeros = zero[0] + zero[2], high_zeros = zero[1] + zero[3];
    if (quarter < 4) return (Guess){NULL, NULL};
    if (zero[2] == quarter && zero[3] == quarter && 2 * zero[1] >= quarter)
        return (Guess){"i64", "three of four 16-bit words are 0"};
    if (high < LARGEST_HIGH && high_zeros >= quarter && 4 * low_zeros <= high_zeros)
        return (Guess){"u32", "every second 16-bit word is 0, or nearly"};
    if (low_zeros == 2 * quarter && fractions == 2 * quarter)
        return (Guess){"f32", "words that whole numbers have as f32"};
    if (low_zeros == 2 * quarter && 4 * zero[3] <= quarter)
        return (Guess){"big-endian", "every second 16-bit word is 0, from the first on"};
    return (Guess){NULL, NULL};
}

static bool looks_u16(const DataSource *s) {
    const Guess g = guess(s);
    if (hd_format_text(s))
        return hd_fail("%s is text by its content, not a file of tokens; --format=bytes trains on its bytes", s->path);
    if (!g.format) return true;
    if (!strcmp(g.format, "f32"))
        return hd_fail("%s looks like f32 numbers (%s), not u16 tokens; in Python: "
                       "np.fromfile(FILE, '<f4').astype('<u4').tofile(OUT), then --format=u32; --format=u16 if it is "
                       "u16 after all",
                       s->path, g.why);
    if (!strcmp(g.format, "big-endian"))
        return hd_fail("%s looks like big-endian numbers (%s), not u16 tokens; in Python: "
                       "np.fromfile(FILE, '>u4').astype('<u4').tofile(OUT), then --format=u32; --format=u16 if it is "
                       "u16 after all",
                       s->path, g.why);
    return hd_fail("%s looks like %s tokens (%s), and a .bin without a header is read as u16; --format=%s reads it as "
                   "%s, --format=u16 as u16",
                   s->path, g.format, g.why, g.format, g.format);
}

static bool unknown(const DataSource *s) {
    return hd_fail("%s is no data file: its name ends neither in .txt nor in .bin, and it has no header of tokens; %s",
                   s->path,
                   hd_format_ends(s->path, ".csv") || hd_format_ends(s->path, ".tsv")
                       ? "heddle-data FILE -o FOLDER --field=COLUMN makes tokens of a column of the table; "
                         "--format=bytes trains on all of its text"
                   : hd_format_text(s) ? "--format=bytes trains on its text"
                                     : "--format=bytes, u16, u32, i32 or i64 says what it holds");
}

static bool needs_type(const DataSource *s) { // of numbers that are no tokens nothing says it
    const char *name = s->use->input->name;
    return hd_fail("%s has no header that says what it holds for %s: --format=%s=u8, or i16, u16, i32, u32, i64%s; "
                   "or in Python np.save('%s.npy', array)",
                   s->path, name, name, s->use->input->dtype == HD_I32 ? "" : ", f16, bf16 or f32", name);
}

// Text in UTF-16 without a mark: of a script with an alphabet every second byte is 0, and few of the others are.
static bool looks_utf8(const DataSource *s) {
    int64_t zeros[2] = {0}, pairs = s->read / 2;
    for (int64_t i = 0; i < 2 * pairs; i++) zeros[i % 2] += !s->head[i];
    const bool big = zeros[0] > zeros[1];
    if (2 * zeros[!big] < pairs || 8 * zeros[big] > pairs || pairs < 4) return true;
    return hd_fail("%s looks like text in UTF-16 (every second byte is 0, or nearly): iconv -f UTF-16%s -t UTF-8 FILE "
                   "> NEW.txt; --format=bytes reads it as it is",
                   s->path, big ? "BE" : "LE");
}

bool hd_read_raw(const DataSource *s, DataLayout *t) {
    if (!s->asked && !hd_use_tokens(s->use)) return needs_type(s);
    const bool text = hd_format_ends(s->path, ".txt"), bin = hd_format_ends(s->path, ".bin");
    if (!s->asked && !text && !bin) return unknown(s);
    *t = (DataLayout){.type = s->asked ? s->asked : bin ? DATA_U16 : DATA_BYTES};
    if (!s->asked && bin && !looks_u16(s)) return false;
    if (!s->asked && text && !looks_utf8(s)) return false;
    const DataTypeInfo *type = &hd_data_types[t->type];
    if (s->bytes % type->width)
        return hd_fail("%s: %lld bytes are not a whole number of %s tokens", s->path, (long long)s->bytes, type->name);
    t->count = s->bytes / type->width;
    return true;
}
