// See choices.h.
#include "runtime/cuda/choices.h"
#include "runtime/cuda/exec.h"
#include "runtime/text.h"
#include "runtime/world/world.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 512, MOST = 16 << 20, WHAT = sizeof(LtAlgo) };
static const char first_line[] = "heddle choices 1";

static bool append(HdCuda *x, const char *line, size_t n) { // with its end
    HdChoices *c = &x->choices;
    if (c->n + n + 2 > c->room) {
        const size_t room = 2 * (c->n + n + 2);
        char *grown = realloc(c->made, room);
        if (!grown) return hd_cuda_fail(x, "out of host memory");
        c->made = grown;
        c->room = room;
    }
    memcpy(c->made + c->n, line, n);
    memcpy(c->made + c->n + n, "\n", 2);
    c->n += n + 1;
    return true;
}

// The line of `text` that begins with `begin`: what follows there, and its bytes; NULL: there is none.
static const char *find_line(const char *text, const char *begin, size_t *n) {
    const size_t length = strlen(begin);
    for (const char *at = text; *at; at += *n + (at[*n] == '\n')) {
        *n = strcspn(at, "\n");
        if (*n < length || memcmp(at, begin, length)) continue;
        *n -= length;
        return at + length;
    }
    return NULL;
}

// The lines that say what the choices are for: library and device.
static bool begin(HdCuda *x) {
    char line[LINE];
    const size_t version = x->head.program->n_gemms ? x->api.cublasLtGetVersion() : 0; // 0: it is not open
    int n = snprintf(line, sizeof line, "library cuBLASLt %zu", version);
    if (!append(x, first_line, sizeof first_line - 1) || !append(x, line, (size_t)n)) return false;
    n = snprintf(line, sizeof line, "device %s, %d SM", x->device_name, x->sms);
    return append(x, line, (size_t)n);
}

static bool fits(HdCuda *x, const char *key) { // the file's line of library or device is the one of this process
    HdChoices *c = &x->choices;
    size_t there = 0, here = 0;
    const char *theirs = find_line(c->text, key, &there), *ours = find_line(c->made, key, &here);
    if (theirs && ours && there == here && !memcmp(theirs, ours, here)) return true;
    return hd_cuda_fail(x, "--choices=%s: the file is for %s%.*s, this run has %s%.*s, and their algorithms differ. "
                           "The name of a new file makes this run record its own algorithms there",
                        c->path, key, theirs ? (int)there : 7, theirs ? theirs : "unknown", key, (int)here, ours);
}

static bool read_file(HdCuda *x) {
    HdChoices *c = &x->choices;
    FILE *f = fopen(c->path, "r");
    if (!f) return errno == ENOENT || hd_cuda_fail(x, "--choices=%s: cannot be read: %s", c->path, strerror(errno));
    c->text = calloc(1, MOST + 1);
    const size_t n = c->text ? fread(c->text, 1, MOST, f) : 0;
    const bool bad = ferror(f);
    fclose(f);
    if (!c->text) return hd_cuda_fail(x, "out of host memory");
    if (bad) return hd_cuda_fail(x, "--choices=%s: cannot be read", c->path);
    const size_t first = strcspn(c->text, "\n");
    if (strlen(c->text) != n || first != sizeof first_line - 1 || memcmp(c->text, first_line, first))
        return hd_cuda_fail(x, "--choices=%s: the file is no list of algorithms, which begins with \"%s\". The name "
                               "of a new file makes this run record its own algorithms there",
                            c->path, first_line);
    return fits(x, "library ") && fits(x, "device ");
}

bool hd_choices_open(HdCuda *x, const char *path) {
    x->choices.path = path;
    return begin(x) && (!path || read_file(x));
}

bool hd_choices_given(const HdChoices *c) { return c->text != NULL; }

static int digit(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static bool decode(const char *text, size_t n, HdChoice *out) {
    unsigned char bytes[WHAT];
    char *end;
    if (n < 2 * WHAT + 2 || text[2 * WHAT] != ' ') return false;
    for (size_t i = 0; i < WHAT; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    memcpy(&out->algo, bytes, WHAT);
    if (digit(text[2 * WHAT + 1]) < 0) return false;
    out->workspace = strtoull(text + 2 * WHAT + 1, &end, 10);
    return end == text + n;
}

bool hd_choices_find(HdCuda *x, const char *name, HdChoice *out) {
    char key[LINE];
    size_t n = 0;
    snprintf(key, sizeof key, "product %s = ", name);
    const char *at = find_line(x->choices.text, key, &n);
    if (!at)
        return hd_cuda_fail(x, "--choices=%s: no choice for the product %s; it was written by another program, or "
                               "under another batch or mesh",
                            x->choices.path, name);
    return decode(at, n, out) ||
           hd_cuda_fail(x, "--choices=%s: the line of product %s is damaged", x->choices.path, name);
}

bool hd_choices_add(HdCuda *x, const char *name, const HdChoice *choice) {
    static const char digits[] = "0123456789abcdef";
    char key[LINE], line[2 * LINE], hex[2 * WHAT + 1];
    unsigned char bytes[WHAT];
    size_t found;
    memcpy(bytes, &choice->algo, WHAT);
    for (size_t i = 0; i < WHAT; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[2 * WHAT] = 0;
    snprintf(key, sizeof key, "product %s = ", name);
    if (find_line(x->choices.made, key, &found)) return true; // an equal product
    const int n = snprintf(line, sizeof line, "%s%s %llu", key, hex, (unsigned long long)choice->workspace);
    return append(x, line, (size_t)n);
}

static bool add_attentions(HdCuda *x) {
    char line[LINE];
    size_t n;
    for (int i = 0; i < x->head.program->n_attentions; i++) {
        if (x->attentions.states && x->attentions.states[i].plan)
            snprintf(line, sizeof line, "attention %d = cuDNN %zu", i, x->api.cudnnGetVersion());
        else snprintf(line, sizeof line, "attention %d = kernel", i);
        if (!append(x, line, strlen(line))) return false;
        if (hd_choices_given(&x->choices) && (!find_line(x->choices.text, line, &n) || n))
            return hd_cuda_fail(x, "--choices=%s: this run has '%s', the file has not", x->choices.path, line);
    }
    return true;
}

// Under another name first: another rank or run may read it meanwhile.
static bool write_file(HdCuda *x) {
    const HdChoices *c = &x->choices;
    char temporary[4200];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.part-%ld", c->path, (long)getpid()) >= sizeof temporary)
        return hd_cuda_fail(x, "--choices: the name of the file is too long");
    FILE *f = fopen(temporary, "w");
    bool ok = f && fwrite(c->made, 1, c->n, f) == c->n;
    if (f) ok = !fclose(f) && ok;
    ok = ok && !rename(temporary, c->path);
    if (ok) return true;
    const int why = errno;
    if (f) unlink(temporary);
    return hd_cuda_fail(x, "--choices=%s: cannot be written: %s", c->path, strerror(why));
}

bool hd_choices_settle(HdCuda *x) {
    HdChoices *c = &x->choices;
    HdKey key;
    if (x->failed || !add_attentions(x)) return false;
    hd_key_start(&key);
    hd_key_add(&key, c->made, c->n);
    snprintf(x->head.choices, sizeof x->head.choices, "%016llx", (unsigned long long)key.word[0]);
    return !c->path || hd_choices_given(c) || x->head.world->rank || write_file(x);
}

void hd_choices_close(HdCuda *x) {
    free(x->choices.text);
    free(x->choices.made);
    x->choices = (HdChoices){0};
}
