// The elements that the files of one input hold, numbered as if they were in one file.
#ifndef RUNTIME_DATA_DATA_H
#define RUNTIME_DATA_DATA_H
#include "runtime/data/files.h"
#include "runtime/data/format.h"
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *path;
    int64_t first, count; // elements: the number of the first among those of all files
    int64_t bytes, head;  // of the file when it was opened; before its first element
    const DataTypeInfo *type;
} DataFile;

enum { HD_DATA_OPEN = 32 }; // files held open at a time
typedef struct {
    int n; // files; 0: nothing was opened
    FileList list;
    DataFile *files;
    DataUse use;
    int64_t count;        // elements of all files
    int64_t row, step;    // elements of a row, from the first of a row to the first of the next one
    bool windows;         // the files have no rows of their own: windows of `row` elements, which may cross files
    int64_t documents;    // of the files whose index counts them
    const char *text, *numbers; // the first file of bytes, of tokens that are wider than a byte; NULL: none
    char *name;           // for messages: the file, or the first of several and their number
    unsigned char *bytes; // room for the bytes of a row
    struct { int file, fd; } open[HD_DATA_OPEN]; // a file is in slot (its number mod HD_DATA_OPEN); fd -1: none
} Data;

// Opens the files that `names` mean, whose elements are numbered in order of the files' names as if they were one file.
// It reads their sizes and headers and nothing else. There must be at least one row.
// The elements of a file follow from its content (format.h), for raw files also from the name and `format`. All files
// hold bytes, or all hold numbers of a type and in rows that the input can have. false after hd_fail.
bool hd_data_open(Data *d, Names names, DataType format, const DataUse *use);
void hd_data_close(Data *d);
bool hd_data_same_kind(const Data *a, const Data *b); // false after hd_fail: bytes in one, tokens in the other
int64_t hd_data_rows(const Data *d);
// The n <= row elements from number `at` on, as the input's type, which is of four bytes. false after hd_fail: one is
// no value of the input, or a file has changed or cannot be read.
bool hd_data_read(Data *d, const HdInput *as, int64_t at, int64_t n, void *out);
#endif
