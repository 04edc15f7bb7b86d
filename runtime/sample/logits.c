// See logits.h.
#include "runtime/sample/logits.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

static const HdFunc *function(const HdProgram *p) { return p->logits_step.segments[0].func; }

bool hd_logits_there(const HdProgram *p, const char *option) {
    const char *name = p->n_inputs ? p->inputs[0].name : "tokens";
    return p->logits_step.n_segments == 1 ||
           hd_fail("--%s: this program was compiled without the function 'logits' of its model: compile it with --set "
                   "schedule.logits=on; where model %s has no such function, write beside 'loss': fn logits(%s: "
                   "i32[batch, seq]) { return ...; }, which returns what its cross_entropy takes",
                   option, p->model, name);
}

int64_t hd_logits_seq(const HdProgram *p) { return function(p)->args[0].dim[1]; }
int64_t hd_logits_vocab(const HdProgram *p) { return function(p)->results[0].dim[2]; }

bool hd_logits_run(HdExec *x, const int32_t *tokens) {
    const HdProgram *p = x->program;
    x->step = &p->logits_step;
    x->begins = x->ends = true;
    return p->backend->write(x, function(p)->args[0].offset, tokens, (size_t)hd_logits_seq(p) * sizeof *tokens) &&
           p->backend->run(x, function(p));
}

bool hd_logits_read(HdExec *x, int64_t token, int64_t n, float *rows) {
    const HdProgram *p = x->program;
    const int64_t row = hd_logits_vocab(p) * (int64_t)sizeof *rows;
    return p->backend->read(x, function(p)->results[0].offset + token * row, rows, (size_t)(n * row));
}

// --- a token

static const HdFunc *of_token(const HdProgram *p) { return p->decode_step.segments[0].func; }

bool hd_decode_there(const HdProgram *p) { return p->decode_step.n_segments == 1; }

bool hd_decode_run(HdExec *x, int32_t token, int32_t position) {
    const HdProgram *p = x->program;
    const HdFunc *f = of_token(p);
    x->step = &p->decode_step;
    x->begins = x->ends = true;
    return p->backend->write(x, f->args[0].offset, &token, sizeof token) &&
           p->backend->write(x, f->args[1].offset, &position, sizeof position) && p->backend->run(x, f);
}

bool hd_decode_again(HdExec *x) {
    const HdProgram *p = x->program;
    x->step = &p->decode_step;
    x->begins = x->ends = true;
    return p->backend->run(x, of_token(p));
}

bool hd_decode_choose(HdExec *x, int64_t n) {
    const HdFunc *f = of_token(x->program);
    const int64_t logits = f->results[0].offset;
    return x->program->backend->choose(x, logits, n, f->args[0].offset, f->args[1].offset) &&
           x->program->backend->post(x, 1, &logits, sizeof(int32_t));
}

bool hd_decode_chosen(HdExec *x, int32_t *token) { return x->program->backend->collect(x, token); }

bool hd_decode_read(HdExec *x, float *row) {
    const HdProgram *p = x->program;
    return p->backend->read(x, of_token(p)->results[0].offset, row, (size_t)hd_logits_vocab(p) * sizeof *row);
}

// --- a file

static bool enough_room(const char *path, int64_t bytes) {
    struct statvfs s;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    if (statvfs(slash ? folder : ".", &s)) return true; // writing says what is wrong
    const int64_t room = (int64_t)s.f_bavail * (int64_t)s.f_frsize;
    return bytes <= room || hd_fail("--logits=%s would take %.1f GiB, and %.1f GiB are free there: give less --data, "
                                    "such as its first sequences in a file of their own",
                                    path, (double)bytes / 0x1p30, (double)room / 0x1p30);
}

// A header of numpy is padded with blanks to a multiple of 64 bytes.
static bool put_header(FILE *f, int64_t rows, int64_t seq, int64_t vocab) {
    enum { PREFIX = 10, BLOCK = 64 };
    char text[4 * BLOCK];
    size_t n = (size_t)snprintf(text, sizeof text,
                                "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld, %lld), }",
                                (long long)rows, (long long)seq, (long long)vocab);
    while ((PREFIX + n + 1) % BLOCK) text[n++] = ' ';
    text[n++] = '\n';
    const unsigned char prefix[PREFIX] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)n,
                                          (unsigned char)(n >> 8)};
    return fwrite(prefix, 1, PREFIX, f) == PREFIX && fwrite(text, 1, n, f) == n;
}

static FILE *create(const HdProgram *p, const char *path, int64_t rows) {
    const int64_t seq = hd_logits_seq(p), vocab = hd_logits_vocab(p);
    if (!enough_room(path, rows * seq * vocab * (int64_t)sizeof(float))) return NULL;
    FILE *f = fopen(path, "we");
    if (f && put_header(f, rows, seq, vocab)) return f;
    hd_fail("cannot write %s: %s", path, strerror(errno));
    if (f) fclose(f);
    return NULL;
}

static bool write_row(HdExec *x, Feed *data, int64_t row, float *room, FILE *f, const char *path) {
    const int64_t seq = hd_logits_seq(x->program), n = seq * hd_logits_vocab(x->program);
    return hd_logits_run(x, hd_feed_at(data, 0, 0)) && hd_logits_read(x, 0, seq, room) &&
           (!f || fwrite(room, sizeof *room, (size_t)n, f) == (size_t)n ||
            hd_fail("cannot write %s: %s, in sequence %lld of %lld", path, strerror(errno), (long long)row + 1,
                    (long long)data->rows));
}

bool hd_logits_write(HdExec *x, HdWorld *w, Feed *data, const char *path) {
    const HdProgram *p = x->program;
    float *room = malloc((size_t)(hd_logits_seq(p) * hd_logits_vocab(p)) * sizeof *room);
    FILE *f = w->rank || !room ? NULL : create(p, path, data->rows);
    bool ok = room ? w->rank || f : hd_fail("out of memory: logits of a sequence");
    ok = hd_world_agree(w, ok);
    for (int64_t i = 0; ok && i < data->rows; i++) {
        w->at(w, "logits of sequence", i + 1);
        ok = hd_world_agree(w, hd_feed_row(data, i, 0)) && hd_world_agree(w, write_row(x, data, i, room, f, path));
    }
    if (f && fclose(f) && ok) ok = hd_fail("cannot write %s: %s", path, strerror(errno));
    free(room);
    return hd_world_agree(w, ok);
}
