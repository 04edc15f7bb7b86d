// The settings of a train block as a program and a checkpoint hold them (HdProgram.train, metadata `train`), and
// --resume-with: which of them may differ. Names are those of the train block: `clip`, `optimizer.lr.peak`. One of
// --resume-with means every setting with these words in its name: `lr` all of optimizer.lr, `peak` its peak; `all` all.
#ifndef RUNTIME_CHECKPOINT_SETTINGS_H
#define RUNTIME_CHECKPOINT_SETTINGS_H
#include "runtime/checkpoint/safetensors.h"

// Whether every name of --resume-with means a setting; else `wrong` is the first that does not, `names` all there are.
bool hd_settings_named(const char *with, const char *train, char *wrong, size_t wrong_size, char *names, size_t size);
bool hd_setting_may_change(const char *with, const char *name); // with NULL: none may

typedef struct {
    int differing, refused;      // settings that differ; those of them that --resume-with does not let change
    bool batch, seed, optimizer; // differ: sequences of a micro-batch, the seed, the kind of optimizer
    bool average;                // the checkpoint holds no average of its weights, and this program keeps one
    bool compensation;           // likewise of what weights in bf16 lack
    char said[1000];             // of the refused ones: "clip = 1.0 there, 0.5 in this program; ..."
    char names[400];             // likewise, for --resume-with: "clip,lr.peak"
} HdDifferences;
// Whether a checkpoint is of this program: its model is the same, and so are the settings but for those of `with`.
// Older ones say nothing of the model alone: where a setting differs, names and shapes of parameters have to do, which
// the caller compares. false after hd_fail.
bool hd_settings_fit(const StFile *f, const HdProgram *p, const char *with, HdDifferences *d);
typedef void HdEachSetting(const char *name, const char *value, int n, void *data); // the value has n bytes
// Calls fn for every setting of a train block, in its order, with name and value as the block has them.
void hd_settings_each(const char *train, HdEachSetting *fn, void *data);
// Says on stderr what `with` let change, a line for each, or that it changes nothing.
void hd_settings_tell(const StFile *f, const HdProgram *p, const HdDifferences *d, const char *with);
#endif
