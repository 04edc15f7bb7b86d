// Boxes of a parameter's indices: per dimension where the box starts and how far it goes. Files of a checkpoint hold
// boxes, so that what they say does not depend on how buckets are laid out, and a box may be cut along any dimension.
// The elements of a box are in row-major order.
#ifndef RUNTIME_CHECKPOINT_BOXES_H
#define RUNTIME_CHECKPOINT_BOXES_H
#include "runtime/checkpoint/pieces.h"

enum { HD_MOST_DIMS = 6, HD_MOST_BOXES = 2 * HD_MOST_DIMS, HD_BOX_TEXT = 300 };
typedef struct { int rank; int64_t start[HD_MOST_DIMS], extent[HD_MOST_DIMS]; } HdBox;

int64_t hd_box_count(const HdBox *b); // elements
// Consecutive elements of a parameter as boxes, one behind the other: at most two for each dimension. Their number.
int hd_span_boxes(const HdParam *q, HdSpan s, HdBox out[HD_MOST_BOXES]);

// Elements of a parameter that are consecutive in a box as well, where they begin at its element `at`.
typedef struct { int64_t first, count, at; } HdRun;
// The first run of elements of a box, `from` or later. false: there is none.
bool hd_box_run(const HdBox *b, const HdParam *q, int64_t from, HdRun *run);

bool hd_box_is(const HdBox *b, const StTensor *t); // whether a tensor has as many indices in every dimension
bool hd_box_inside(const HdBox *b, const HdParam *q);
// Whether no element is in two of n boxes.
bool hd_boxes_apart(const HdBox *const *b, int n, const HdParam *q);

void hd_box_name(char *out, size_t size, const char *param, const HdBox *b); // of its tensor: NAME[2,0]
void hd_box_text(char *out, size_t size, const HdBox *b);                    // [2,0]+[3,41]
bool hd_box_parse(const char **text, HdBox *b); // the same, and the blank after it
#endif
