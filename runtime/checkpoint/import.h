// Declarations that the parts of --init share: open files, and which tensor of them each parameter is.
#ifndef RUNTIME_CHECKPOINT_IMPORT_H
#define RUNTIME_CHECKPOINT_IMPORT_H
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/state.h"

typedef struct {
    const StFile *file;
    const StTensor *tensor;
    char *name;         // after --init-rename
    bool ignored, taken; // by --init-ignore; by a parameter
} WeightsEntry;

typedef struct {
    const HdInitRules *rules;
    const char *path; // as it was given, or of the index in a folder
    int n;
    char **names;
    StFile *files;
    bool own_names; // a checkpoint: parameters have their own names there
    int n_entries;
    WeightsEntry *entries;   // all tensors of all files
    WeightsEntry **by_name;  // the same, sorted
    int fresh;               // parameters without a tensor
    int n_params;
    WeightsEntry ***of; // of each parameter, its tensors (hd_file_tensors); NULL: it starts fresh
} Weights;

// Finds a tensor for each parameter, by the name that it has in files. false after hd_fail.
bool hd_match_tensors(Weights *w, const HdProgram *p);
void hd_match_free(Weights *w);
#endif
