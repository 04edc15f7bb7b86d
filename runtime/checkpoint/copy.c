#include "runtime/checkpoint/copy.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/dtypes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_copy(HdExec *x, int64_t offset, void *data, size_t bytes) {
    const StateCopy *c = (const StateCopy *)x;
    for (int i = 0; i < c->n; i++) {
        const CopyPart *p = &c->part[i];
        const int64_t at = offset - p->offset;
        if (at < 0 || at > p->bytes || (int64_t)bytes > p->bytes - at) continue;
        memcpy(data, c->data + p->at + at, bytes);
        return true;
    }
    return hd_fail("%zu bytes at offset %lld are in no storage that a checkpoint holds", bytes, (long long)offset);
}

bool hd_copy_plan(StateCopy *c, const HdExec *x) {
    const HdProgram *p = x->program;
    *c = (StateCopy){.exec = {.world = x->world}, .program = *p,
                     .backend = {.name = "copy", .read = read_copy}};
    c->part = calloc((size_t)(p->n_buckets * hd_saved_roles(p)) + 1, sizeof *c->part);
    if (!c->part) return hd_fail("out of memory");
    for (int r = 0; r < hd_saved_roles(p); r++)
        for (int i = 0; i < p->n_buckets; i++) {
            const HdBucket *b = &p->buckets[i];
            const int64_t count = hd_sharded(b, (HdRole)r) ? b->shard : b->size, home = hd_home(b, (HdRole)r);
            if (home < 0) continue;
            const int64_t bytes = count * (int64_t)hd_dtypes[hd_stored_as(p, b, (HdRole)r)].bytes;
            c->part[c->n++] = (CopyPart){home, bytes, c->bytes};
            c->bytes += bytes;
        }
    return true;
}

bool hd_copy_reserve(StateCopy *c, HdExec *x, char *slow, size_t room) {
    const HdBackend *b = x->program->backend;
    *slow = 0;
    if (b->take_memory) c->data = b->take_memory(x, (size_t)c->bytes + 1);
    if (c->data) c->lender = x;
    else if (b->take_memory) snprintf(slow, room, "%s", hd_failure());
    if (!c->data) c->data = malloc((size_t)c->bytes + 1);
    return c->data || hd_fail("out of memory");
}

bool hd_copy_take(StateCopy *c, HdExec *x) {
    c->program.backend = &c->backend; // here, since the structure may have been moved since
    c->exec.program = &c->program;
    bool ok = true;
    for (int i = 0; ok && i < c->n; i++)
        ok = x->program->backend->read(x, c->part[i].offset, c->data + c->part[i].at, (size_t)c->part[i].bytes);
    return ok;
}

void hd_copy_free(StateCopy *c) {
    free(c->part);
    if (c->lender) c->lender->program->backend->give_memory(c->lender, c->data, (size_t)c->bytes + 1);
    else free(c->data);
    *c = (StateCopy){.n = 0};
}
