// The kind of a data file follows from its content. A row per format in a table (format.c) has the bytes that such
// files begin with, the format's name, and a reader or, for a format that is not read, the way to convert it. Raw files
// begin with no such bytes: their names, --format and a look at their words decide (raw.c).
#ifndef RUNTIME_DATA_FORMAT_H
#define RUNTIME_DATA_FORMAT_H
#include "runtime/heddle.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    DATA_BY_FILE, // as its content and its name say
    DATA_BYTES, DATA_U16, DATA_U32, DATA_I32, DATA_I64, DATA_U8, DATA_I16, DATA_F16, DATA_BF16, DATA_F32,
    DATA_KINDS
} DataType;
typedef struct {
    const char *name;
    int width; // bytes an element, little-endian
    bool is_signed, floats;
    HdDtype as; // of floats
} DataTypeInfo;
extern const DataTypeInfo hd_data_types[DATA_KINDS];

typedef struct { // what data is for
    const HdInput *input;
    bool windows; // a file that says no rows is one sequence, which is cut into windows
    bool ahead;   // another input has the elements one further on
} DataUse;
static inline bool hd_use_tokens(const DataUse *u) { return u->windows && u->input->dtype == HD_I32; }

DataType hd_data_type(const char *name); // that --format calls so; DATA_BY_FILE: none is

enum { HD_HEAD_BYTES = 1024, HD_DATA_DIMS = 8 };
typedef struct { // a file that is being opened
    const char *path;
    int fd;
    int64_t bytes;                     // its size
    unsigned char head[HD_HEAD_BYTES]; // how it begins, `read` bytes
    int64_t read;
    DataType asked; // by --format
    const DataUse *use;
} DataSource;
typedef struct {
    DataType type;
    int64_t head, count; // bytes before the first element; elements
    int rank;            // of an array; 0: the file says no shape
    int64_t dim[HD_DATA_DIMS];
    int64_t documents;   // by an index; 0: nothing says
} DataLayout;

// Finds the elements of a file by reading its head, its size and, if there is one, its index. false after hd_fail: it
// is of another format, which the message names with the way to convert, or it contradicts itself or --format.
bool hd_format_layout(const DataSource *s, DataLayout *t);

// --- for the readers

typedef bool HdDataReader(const DataSource *s, DataLayout *t); // as hd_format_layout
HdDataReader hd_read_llmc, hd_read_numpy, hd_read_safetensors, hd_read_raw;
// Megatron's files are a .bin and an index beside it. Whether there is such an index; *ok: as hd_format_layout.
bool hd_read_megatron(const DataSource *s, DataLayout *t, bool *ok);
// Whether --format says what the file says of itself; `what` says it. false after hd_fail.
bool hd_format_agrees(const DataSource *s, DataType type, const char *what);
bool hd_format_ends(const char *path, const char *end);
bool hd_format_text(const DataSource *s); // it begins like text: no control characters, mostly ASCII
uint64_t hd_format_word(const unsigned char *p, int width); // little-endian
// As many bytes as there are from `at` on, at most `bytes`; -1 with errno.
int64_t hd_format_bytes(int fd, void *to, int64_t bytes, int64_t at);
#endif
