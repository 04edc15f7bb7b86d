// The contents of a checkpoint's manifest: which of them has which elements of a parameter. One rank writes it
// (save.c), every rank reads it (resume.c).
#ifndef RUNTIME_CHECKPOINT_MANIFEST_H
#define RUNTIME_CHECKPOINT_MANIFEST_H
#include "runtime/checkpoint/boxes.h"

#define HD_MANIFEST "3"     // heddle_checkpoint: boxes
#define HD_MANIFEST_FLAT "2" // of older programs: buckets, each a flat vector of which every file has an equal part

// A box that one file holds. tensor: NULL: the box has a tensor of its own; else of older checkpoints, the name of a
// flat one, in which the box begins at element `at`.
typedef struct { int file; HdBox box; const char *tensor; int64_t at; } HdPart;
typedef struct { HdPart *at; int n, capacity; } HdParts;
typedef struct {
    const char *folder;
    int files;
    HdParts *of; // by parameter: boxes that have every element once
} HdManifest;

// The elements of a parameter, of the part that the file's writer has, that the program writes into a file.
HdSpan hd_written_span(const HdProgram *p, const HdParam *q, int file);
int hd_written_files(const HdProgram *p);
int hd_written_boxes(const HdProgram *p, const HdParam *q, int file, HdBox out[HD_MOST_BOXES]); // the same as boxes

// Whether each of those parameters of the program is there with its shape; false after hd_fail.
bool hd_manifest_fits(const StFile *f, const HdProgram *p, int first, int end);
bool hd_manifest_read(HdManifest *m, const StFile *f, const HdProgram *p); // false after hd_fail
void hd_manifest_free(HdManifest *m, const HdProgram *p);

// A number of metadata and the blank behind it; -1 or false: absent, or no number up to `most`.
bool hd_take_number(const char **text, int64_t most, int64_t *v);
int64_t hd_count_of(const StFile *f, const char *key, int64_t most);
const char *hd_meta_of(const StFile *f, const char *kind, const char *name); // of key "KIND NAME"
const char *hd_meta_number(const StFile *f, const char *kind, int number);
#endif
