// The sources of a program's inputs: data for each, read at the same rows, and the order of rows.
#ifndef RUNTIME_DATA_FEED_H
#define RUNTIME_DATA_FEED_H
#include "runtime/data/data.h"

typedef struct { // that files are for: the arguments of the loss, or of a function
    const char *function, *model;
    int n;
    const HdInput *at;
    int64_t batch, seq;
} HdInputs;
HdInputs hd_inputs(const HdProgram *p); // of the loss
HdInputs hd_inputs_of_call(const HdProgram *p, const HdCall *c);

typedef struct {
    const HdInput *input;
    Data data; // n 0: it has the elements of another input
    int of;    // the input whose data it reads, itself or HdInput.next
    size_t row_bytes;
    char *room; // for the micro-batches of a step
} FeedSource;

typedef struct {
    int n; // sources, one an input; 0: nothing was opened
    FeedSource *at;
    int64_t rows;  // of each
    int64_t batch; // sequences of a micro-batch: a row for each
} Feed;

// `given`: names of files, each alone or as INPUT=NAME. Names alone are for the one input that needs data, where it is
// one. There is room for `batches` micro-batches. `option` is for messages: data or val. false after hd_fail: an input
// has no data, no input has that name, files do not fit their input or have other numbers of rows.
// `formats`: values of --format, each a type, or INPUT=TYPE.
bool hd_feed_open(Feed *f, const HdInputs *p, const char *option, Names given, Names formats, int64_t batches);
void hd_feed_close(Feed *f);
bool hd_feed_same_kind(const Feed *a, const Feed *b); // as hd_data_same_kind, for each input
const Data *hd_feed_first(const Feed *f);             // the data of the first input that has some; NULL: none is open
// Micro-batch m gets sequences first, first+1, ... Every epoch visits each row of the data once, in its own order (a
// keyed permutation), so a sequence number is the whole position in the data. false after hd_fail as hd_data_read.
bool hd_feed_batch(Feed *f, uint64_t seed, int64_t first, int64_t m);
// Sequence number `slot` of the room gets a row, counted in the order of the data and wrapping at the end.
bool hd_feed_row(Feed *f, int64_t row, int64_t slot);
const void *hd_feed_at(const Feed *f, int input, int64_t m); // micro-batch m of an input
size_t hd_feed_bytes(const Feed *f, int input);              // of a micro-batch

// The names of `given` that are for an input, without INPUT=; of input -1 those that are alone. The caller frees
// names->at. false after hd_fail: no input is called so.
bool hd_feed_names(const HdInputs *p, const char *option, Names given, int input, Names *names);
#endif
