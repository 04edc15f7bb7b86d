// What a data file is follows from its content. A row per format in a table (format.c) has the bytes that such files
// begin with, the format's name, and a reader or, for a format that is not read, the way to convert it. Raw files begin
// with no such bytes: their names, --format and a look at their words decide (raw.c).
#ifndef RUNTIME_DATA_FORMAT_H
#define RUNTIME_DATA_FORMAT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    TOKENS_BY_FILE, // as its content and its name say
    TOKENS_BYTES, TOKENS_U16, TOKENS_U32, TOKENS_I32, TOKENS_I64, // which --format may ask for
    TOKENS_U8, TOKENS_I16,                                        // of arrays and indices only
    TOKENS_KINDS
} TokenFormat;
typedef struct { const char *name; int width; bool is_signed; } TokenType; // width: bytes a token, little-endian
extern const TokenType hd_token_types[TOKENS_KINDS];

enum { HD_HEAD_BYTES = 1024 };
typedef struct { // a file that is being opened
    const char *path;
    int fd;
    int64_t bytes;                     // its size
    unsigned char head[HD_HEAD_BYTES]; // how it begins, `read` bytes
    int64_t read;
    TokenFormat asked; // by --format
} DataSource;
typedef struct {
    TokenFormat type;
    int64_t head, count; // bytes before the first token; tokens
    int64_t documents;   // by an index; 0: nothing says
} TokenLayout;

// Finds the tokens of a file by reading its head, its size and, if there is one, its index. false after hd_fail: it is
// of another format, which the message names with the way to convert, or it contradicts itself or --format.
bool hd_format_layout(const DataSource *s, TokenLayout *t);

// --- for the readers

typedef bool HdDataReader(const DataSource *s, TokenLayout *t); // as hd_format_layout
HdDataReader hd_read_llmc, hd_read_numpy, hd_read_raw;
// Megatron's files are a .bin and an index beside it. Whether there is such an index; *ok: as hd_format_layout.
bool hd_read_megatron(const DataSource *s, TokenLayout *t, bool *ok);
// Whether --format says what the file says of itself; `what` says it. false after hd_fail.
bool hd_format_agrees(const DataSource *s, TokenFormat type, const char *what);
bool hd_format_ends(const char *path, const char *end);
bool hd_format_text(const DataSource *s); // it begins like text: no control characters, mostly ASCII
uint64_t hd_format_word(const unsigned char *p, int width); // little-endian
// As many bytes as there are from `at` on, at most `bytes`; -1 with errno.
int64_t hd_format_bytes(int fd, void *to, int64_t bytes, int64_t at);
#endif
