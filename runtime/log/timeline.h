// The page of a measured step, for both targets: runtime/log/timeline.html with the plan's part of the data, which the
// program carries, and the times that a profile has.
#ifndef RUNTIME_LOG_TIMELINE_H
#define RUNTIME_LOG_TIMELINE_H
#include "runtime/heddle.h"

typedef struct { const HdFunc *f; int index, lane; double start, end; } HdSpan; // an action; seconds of the step
typedef struct {
    const char *device;
    int n_lanes, lanes_of_rank; // rows of the page: the streams of each rank
    const char *const *lanes;
    int n;
    const HdSpan *spans; // of one lane in the order in which they ran
} HdSpans;

// Writes the page; false after hd_fail.
bool hd_timeline_write(const HdProgram *p, const HdSpans *s, const char *path);
#endif
