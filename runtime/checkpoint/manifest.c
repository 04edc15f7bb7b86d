// Reads manifests of both forms (manifest.h). Of a flat one each file's part of a parameter is cut into boxes, so that
// nothing else needs to know of buckets.
#include "runtime/checkpoint/manifest.h"
#include "runtime/world/mesh.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096 };

// --- what a program writes: one copy of everything

int hd_written_files(const HdProgram *p) { return hd_group_ranks(p, hd_split_axes(p)); }

HdSpan hd_written_span(const HdProgram *p, const HdParam *q, int file) {
    const HdBucket *b = &p->buckets[q->bucket];
    const unsigned split = hd_split_axes(p);
    const int rank = hd_group_member(p, split, 0, file);
    const unsigned cut = hd_split_of(p, q).over | (b->optimizer_sharded ? b->split : 0);
    if (hd_group_number(p, split & ~cut, rank)) return (HdSpan){0, 0}; // along those axes all have the same
    HdSpan s = {0, q->count};
    if (b->optimizer_sharded) s = hd_shard_span(b, q, hd_group_number(p, b->split, rank));
    const int64_t own = hd_part_count(p, q, hd_part(p, q, rank)) - s.first;
    return own <= 0 ? (HdSpan){0, 0} : (HdSpan){s.first, s.count < own ? s.count : own};
}

// --- metadata

int hd_written_boxes(const HdProgram *p, const HdParam *q, int file, HdBox out[HD_MOST_BOXES]) {
    const int part = hd_part(p, q, hd_group_member(p, hd_split_axes(p), 0, file));
    const int n = hd_span_boxes(q, hd_written_span(p, q, file), out);
    const int along = hd_split_of(p, q).along;
    for (int i = 0; i < n && part; i++) out[i].start[along] += part * q->dim[along];
    return n;
}

bool hd_take_number(const char **text, int64_t most, int64_t *v) {
    char *end;
    if (!*text || **text < '0' || **text > '9') return false;
    errno = 0;
    const long long n = strtoll(*text, &end, 10);
    if (errno || n > most || (*end && *end != ' ')) return false;
    *v = n;
    *text = *end ? end + 1 : end;
    return true;
}

int64_t hd_count_of(const StFile *f, const char *key, int64_t most) {
    const char *text = hd_st_meta(f, key);
    int64_t v;
    return hd_take_number(&text, most, &v) && !*text ? v : -1;
}

const char *hd_meta_of(const StFile *f, const char *kind, const char *name) {
    char key[600];
    snprintf(key, sizeof key, "%s %s", kind, name);
    return hd_st_meta(f, key);
}

const char *hd_meta_number(const StFile *f, const char *kind, int number) {
    char name[24];
    snprintf(name, sizeof name, "%d", number);
    return hd_meta_of(f, kind, name);
}

bool hd_manifest_fits(const StFile *f, const HdProgram *p, int first, int end) {
    for (int k = first; k < end; k++) {
        const char *text = hd_meta_of(f, "param", p->params[k].name), *begin = text ? strchr(text, '[') : NULL;
        char shape[200];
        if (begin) snprintf(shape, sizeof shape, "%.*s", (int)strcspn(begin, "]") + 1, begin);
        const HdParam whole = hd_whole(p, &p->params[k]);
        if (!hd_shape_fits(f->path, &whole, whole.name, begin ? shape : NULL)) return false;
    }
    return true;
}

// --- parts

static bool push(HdParts *parts, HdPart part) {
    if (parts->n == parts->capacity) {
        const int capacity = parts->capacity ? 2 * parts->capacity : 4;
        HdPart *grown = realloc(parts->at, sizeof *grown * (size_t)capacity);
        if (!grown) return hd_fail("out of memory");
        parts->at = grown;
        parts->capacity = capacity;
    }
    parts->at[parts->n++] = part;
    return true;
}

static bool covers(const HdParts *parts, const HdParam *q) { // each element once
    const HdBox **boxes = malloc(sizeof *boxes * ((size_t)parts->n + 1));
    int64_t left = q->count;
    bool ok = boxes || hd_fail("out of memory");
    for (int i = 0; ok && i < parts->n; i++) {
        boxes[i] = &parts->at[i].box;
        ok = hd_box_inside(boxes[i], q) && hd_box_count(boxes[i]) <= left;
        if (ok) left -= hd_box_count(boxes[i]);
    }
    ok = ok && !left && hd_boxes_apart(boxes, parts->n, q);
    free(boxes);
    return ok;
}

// "SHAPE FILE BOX FILE BOX ...": the shape is known to fit.
static bool read_boxes(HdManifest *m, const StFile *f, const HdParam *q, HdParts *parts) {
    const char *text = hd_meta_of(f, "param", q->name);
    text += strcspn(text, "]");
    if (text[0] && text[1] == ' ') text += 2;
    else return q->count == 0;
    while (*text) {
        HdPart part = {0};
        int64_t file;
        if (!hd_take_number(&text, m->files - 1, &file) || !hd_box_parse(&text, &part.box)) return false;
        part.file = (int)file;
        if (!push(parts, part)) return false;
    }
    return covers(parts, q);
}

// --- manifests of buckets

typedef struct { const char *name; int64_t size, shard; } Cut; // of a bucket
typedef struct { Cut *at; int n; } Cuts;

static bool read_cuts(const HdManifest *m, const StFile *f, Cuts *c) {
    while (hd_meta_number(f, "bucket", c->n)) c->n++;
    c->at = calloc((size_t)c->n + 1, sizeof *c->at);
    for (int i = 0; c->at && i < c->n; i++) {
        Cut *cut = &c->at[i];
        const char *text = hd_meta_number(f, "bucket", i);
        if (!hd_take_number(&text, INT64_MAX / 8, &cut->size) || !hd_take_number(&text, INT64_MAX / 8, &cut->shard) ||
            !cut->shard || !*text || (cut->size - 1) / cut->shard >= m->files)
            return false;
        cut->name = text;
    }
    return c->at != NULL;
}

// "BUCKET AT SHAPE"
static bool read_place(const StFile *f, const Cuts *c, const HdParam *q, HdParts *parts) {
    const char *text = hd_meta_of(f, "param", q->name);
    int64_t bucket, at;
    if (!hd_take_number(&text, c->n - 1, &bucket) || !hd_take_number(&text, INT64_MAX / 8, &at)) return false;
    const Cut *cut = &c->at[bucket];
    if (at > cut->size - q->count) return false;
    for (int64_t first = 0; first < q->count;) {
        const int64_t file = (at + first) / cut->shard, end = (file + 1) * cut->shard - at;
        const HdSpan span = {first, (end < q->count ? end : q->count) - first};
        HdBox boxes[HD_MOST_BOXES];
        for (int i = 0, n = hd_span_boxes(q, span, boxes); i < n; i++) {
            if (!push(parts, (HdPart){(int)file, boxes[i], cut->name, (at + first) % cut->shard})) return false;
            first += hd_box_count(&boxes[i]);
        }
    }
    return true;
}

static bool read_flat(HdManifest *m, const StFile *f, const HdProgram *p) {
    Cuts c = {0};
    bool ok = read_cuts(m, f, &c);
    for (int k = 0; ok && k < p->n_params; k++) {
        const HdParam whole = hd_whole(p, &p->params[k]);
        ok = read_place(f, &c, &whole, &m->of[k]);
    }
    free(c.at);
    return ok;
}

// --- the whole

bool hd_manifest_read(HdManifest *m, const StFile *f, const HdProgram *p) {
    const int64_t files = hd_count_of(f, "shards", 1 << 20);
    bool ok = files > 0 && hd_meta_number(f, "shard", (int)files - 1); // bounds the memory
    const bool flat = !strcmp(hd_st_meta(f, "heddle_checkpoint"), HD_MANIFEST_FLAT);
    *m = (HdManifest){.folder = hd_st_meta(f, "folder"), .files = ok ? (int)files : 0};
    ok = ok && m->folder && hd_checkpoint_folder(m->folder, PATH);
    m->of = calloc((size_t)hd_saved_params(p) + 1, sizeof *m->of);
    ok = ok && m->of && (!flat || read_flat(m, f, p));
    for (int k = 0; ok && !flat && k < hd_saved_params(p); k++) {
        const HdParam whole = hd_whole(p, &p->params[k]);
        if (k >= p->n_params && !hd_meta_of(f, "param", whole.name)) continue; // another optimizer's (resume.c)
        ok = read_boxes(m, f, &whole, &m->of[k]);
    }
    return ok || hd_fail("%s: its layout of shards is inconsistent", f->path);
}

void hd_manifest_free(HdManifest *m, const HdProgram *p) {
    for (int k = 0; m->of && k < hd_saved_params(p); k++) free(m->of[k].at);
    free(m->of);
}
