// The file of --log apart from its steps: the line that a run begins with, and what stays of it when a run resumes.
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/settings.h"
#include "runtime/world/mesh.h"
#include "runtime/base/json.h"
#include "runtime/log/log.h"
#include "runtime/text.h"
#include "version.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

double hd_wall_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void put_text(FILE *f, const char *name, const char *text) {
    fprintf(f, ", \"%s\": ", name);
    hd_json_string(f, text);
}

static void put_count(FILE *f, const char *name, int64_t n) { fprintf(f, ", \"%s\": %lld", name, (long long)n); }

static void put_value(FILE *f, const char *value, int n) { // a number or a word
    char text[1024], *end;
    snprintf(text, sizeof text, "%.*s", n, value);
    strtod(text, &end);
    if (end != text && !*end) fputs(text, f);
    else hd_json_string(f, text);
}

// A value of the train block is a number, a word, or a list of them.
static void put_setting(const char *name, const char *value, int n, void *file) {
    FILE *f = file;
    fputs(", ", f);
    hd_json_string(f, name);
    fputs(": ", f);
    if (*value != '[') {
        put_value(f, value, n);
        return;
    }
    fputs("[", f);
    for (const char *at = value + 1; *at != ']' && at < value + n; at += strspn(at, ", ")) {
        const int item = (int)strcspn(at, ",]");
        if (at > value + 1) fputs(", ", f);
        put_value(f, at, item);
        at += item;
    }
    fputs("]", f);
}

// Elements of a step in each value whose losses are counted.
static void put_counted(FILE *f, const HdProgram *p) {
    const HdStep *s = &p->train_step;
    fputs(", \"fp8_elements\": {", f);
    for (int i = 0; i < s->n_counted; i++)
        fprintf(f, "%s\"%s\": %lld", i ? ", " : "", s->counted[i],
                (long long)(s->counted_of[i] * p->micro * hd_readers(p)));
    fputs("}", f);
}

void hd_log_header(FILE *f, const HdProgram *p, const Options *o, const LogStart *start) {
    fputs("{\"heddle\": ", f);
    hd_json_string(f, HEDDLE_VERSION);
    put_text(f, "model", p->model);
    put_text(f, "source", p->source);
    put_text(f, "target", p->target);
    put_text(f, "arch", p->arch);
    put_text(f, "device", start->device);
    put_count(f, "parameters", hd_model_size(p));
    fputs(", \"mesh\": {", f);
    for (int a = 0, n = 0; a < p->n_axes; a++)
        if (hd_says_axis(p, a)) fprintf(f, "%s\"%s\": %d", n++ ? ", " : "", p->axes[a].name, p->axes[a].ranks);
    fprintf(f, "}, \"settings\": {\"accumulate\": %lld", (long long)p->micro);
    hd_settings_each(p->train, put_setting, f);
    fputs("}", f);
    put_count(f, "seq", p->seq);
    put_count(f, "seed", start->at->seed);
    put_text(f, "model_hash", p->model_hash);
    put_text(f, "plan_hash", p->plan_hash);
    if (*start->choices) put_text(f, "choices", start->choices);
    put_count(f, "device_memory", p->arena_bytes);
    put_count(f, "pinned_memory", p->pinned_bytes);
    if (p->train_step.n_counted) put_counted(f, p);
    put_text(f, "data", start->data);
    put_count(f, "data_tokens", start->data_tokens);
    put_count(f, "steps", o->steps);
    put_count(f, "after", start->at->step);
    fprintf(f, ", \"time\": %.3f}\n", hd_wall_time());
}

static bool stays(const char *line, ssize_t n, int64_t step) {
    static const char begins[] = "{\"step\": ";
    if (line[n - 1] != '\n') return false; // of a run that was killed meanwhile
    return strncmp(line, begins, sizeof begins - 1) || strtoll(line + sizeof begins - 1, NULL, 10) <= step;
}

bool hd_log_cut(const char *path, int64_t step) {
    struct stat st;
    char *line = NULL;
    size_t room = 0;
    off_t kept = 0;
    bool whole = true, ours = true;
    FILE *f = stat(path, &st) || !S_ISREG(st.st_mode) ? NULL : fopen(path, "r");
    if (!f) return true; // opening it to write says what is wrong
    for (ssize_t n; whole && ours && (n = getline(&line, &room, f)) > 0;) {
        ours = *line == '{';
        whole = ours && stays(line, n, step);
        if (whole) kept += n;
    }
    free(line);
    fclose(f);
    if (!ours)
        return hd_fail("--log=%s: the file holds something else than the log of a run, which would go on in it; give "
                       "another name",
                       path);
    if (whole) return true;
    if (truncate(path, kept)) return hd_fail("cannot write %s: %s", path, strerror(errno));
    hd_say(stderr, "note: %s: what it held of steps after %lld is removed\n", path, (long long)step);
    return true;
}
