// Event files of TensorBoard: records with checksums, each a protocol buffer of type Event that holds scalars.
#ifndef RUNTIME_LOG_EVENTS_H
#define RUNTIME_LOG_EVENTS_H
#include "runtime/heddle.h"
#include <stdio.h>

typedef struct { FILE *f; char *path; int error; } Events; // error: errno of the first failed write

// Makes the folder where there is none and a new file in it, whose name is this run's alone. after: the step from which
// the run goes on, 0 for a new one: TensorBoard drops what earlier files of the folder hold of later steps. false after
// hd_fail.
bool hd_events_open(Events *e, const char *dir, int64_t after);
void hd_events_scalar(Events *e, int64_t step, const char *tag, double value);
void hd_events_flush(Events *e);
bool hd_events_close(Events *e); // false after hd_fail: an earlier write failed
uint32_t hd_crc32c(const void *data, size_t bytes);
#endif
