// See history.h.
#include "runtime/checkpoint/history.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool hd_history_read(HdExec *x, float history[HD_HISTORY_Z]) {
    const HdProgram *p = x->program;
    return p->backend->read(x, p->train_step.history, history, sizeof *history * HD_HISTORY_Z);
}

void hd_history_text(const float history[HD_HISTORY_Z], char text[HD_HISTORY_TEXT]) {
    int n = 0;
    for (int i = 0; i < HD_HISTORY_Z; i++)
        n += snprintf(text + n, (size_t)(HD_HISTORY_TEXT - n), "%s%.9g", i ? " " : "", (double)history[i]);
}

static bool is_count(float v) { return v >= 0 && v < 2 * HD_HISTORY_STEPS && v == floorf(v); }

static bool parse(const char *text, float history[HD_HISTORY_Z]) {
    char *end;
    for (int i = 0; i < HD_HISTORY_Z; i++, text = end) {
        history[i] = strtof(text, &end);
        if (end == text || !isfinite(history[i])) return false;
    }
    return !*text && is_count(history[HD_HISTORY_STEPS]) && is_count(history[HD_HISTORY_Z - 1]);
}

bool hd_history_write(HdExec *x, const char *path, const char *text) {
    const HdProgram *p = x->program;
    float history[HD_HISTORY_Z];
    if (!parse(text, history))
        return hd_fail("%s: its history is not %d losses and norms and how many there were", path, HD_HISTORY_STEPS);
    return p->backend->write(x, p->train_step.history, history, sizeof history);
}
