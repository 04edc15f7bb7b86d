// The command line of a tool as a table. The reader, --help, the man page and the completions of shells are made from
// the same rows. Every tool also takes --help, --version, --print-man and --print-completion.
#ifndef IR_BASE_ARGS_H
#define IR_BASE_ARGS_H
#include "ir/base/out.h"
#include "ir/base/vec.h"
#include <stdbool.h>

typedef enum {
    ARG_ON, ARG_OFF, // bool
    ARG_TEXT,        // const char *, not empty
    ARG_ANY_TEXT,    // const char *, which may be empty
    ARG_FILE,        // const char *: a file that is read
    ARG_LIST,        // ArgList: the option may be repeated
    ARG_COUNT,       // int64_t, at least 1
    ARG_SIZE,        // int64_t: bytes, written like 80GiB
    ARG_MAYBE_SIZE,  // the same after =, or no value: then it is -1
    ARG_WORD,        // int: which of the words in `value`, host|cuda
    ARG_INPUT,       // const char *: the argument that belongs to no option
    ARG_ENVIRONMENT, // a variable: for --help and the man page only
    ARG_HELP, ARG_VERSION, ARG_MAN, ARG_COMPLETION // common to all tools
} ArgKind;

typedef VEC(const char *) ArgList;
typedef struct {
    const char *name, *value; // --set and KEY=VALUE; no value: NULL
    char letter;              // o for -o; 0: none
    ArgKind kind;
    size_t field;             // offset in the struct of the tool's arguments
    const char *doc;
} ArgRow;
typedef struct { const ArgRow *rows; int n; size_t base; } ArgGroup; // base: offset of the struct that holds the fields
typedef struct {
    const char *name, *brief, *about; // one line; a paragraph
    const ArgGroup *groups;
    int n_groups;
    const char *of_others; // what to say of an option with a value that the tool does not have; NULL: nothing
} Tool;

#define HD_ARG_GROUP(rows, base) {rows, sizeof rows / sizeof *rows, base}

// Fills the fields of `into`, which hold the defaults. Refuses an --output that is also read, by whatever name. -1:
// continue; else the exit status: 0 after printing what --help and its like ask for, 2 after an error on stderr.
int hd_args_read(const Tool *t, Arena *a, int argc, char **argv, void *into);
int hd_args_bad(const Tool *t, const char *what, const char *arg); // prints it on stderr; returns 2
// Writes to a file; NULL or "-": standard output. False after an error on stderr.
bool hd_args_write(const char *path, const Out *text);
const char *hd_args_word(Arena *a, const ArgRow *r, int word);     // of an ARG_WORD

// args_pages.c
const ArgRow *hd_args_row(const Tool *t, int i, size_t *base); // of the tool, then those common to all; NULL at the end
void hd_args_help(const Tool *t, Out *o);
void hd_args_man(const Tool *t, Out *o);
void hd_args_completion(const Tool *t, const char *shell, Out *o);
#endif
