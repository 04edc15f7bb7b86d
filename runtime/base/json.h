// JSON as profiles and the headers of safetensors files hold it.
#ifndef RUNTIME_BASE_JSON_H
#define RUNTIME_BASE_JSON_H
#include "runtime/heddle.h"
#include <stdio.h>

void hd_json_string(FILE *f, const char *text); // with its quotes; NULL is ""

// Chrome traces: a process is a rank, a thread is one of its streams. The events that name one ("process_name",
// "thread_name"):
void hd_json_name(FILE *f, const char *what, int rank, int stream, const char *name);
// An action from `start` on for `us` microseconds; `more`: fields beside those of the plan, as ", \"x\": 1".
void hd_json_action(FILE *f, const HdFunc *func, int index, int rank, int stream, double start, double us,
                    const char *more);
#endif
