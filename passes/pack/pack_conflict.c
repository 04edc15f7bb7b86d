// Conflicts of the packing search: see pack_search.h.
#include "passes/pack/pack_search.h"
#include <string.h>

void hd_conflict_empty(Search *s) {
    memset(s->conflict, 0, sizeof(uint64_t) * (size_t)s->words);
    s->steps -= s->words;
    s->blames++;
}

int hd_conflict_push(Search *s) {
    int at = s->sets.n;
    s->sets.at = hd_grow(s->sets.at, &s->sets.size, at + s->words, sizeof(uint64_t));
    memcpy(s->sets.at + at, s->conflict, sizeof(uint64_t) * (size_t)s->words);
    s->sets.n += s->words;
    s->steps -= s->words;
    return at;
}

void hd_conflict_unite(Search *s, int pushed) {
    for (int i = 0; i < s->words; i++) s->conflict[i] |= s->sets.at[pushed + i];
    s->steps -= s->words;
}

void hd_conflict_unite_into(Search *s, int pushed) {
    for (int i = 0; i < s->words; i++) s->sets.at[pushed + i] |= s->conflict[i];
    s->steps -= s->words;
}

void hd_conflict_blame(Search *s, int v) {
    const Box *b = &s->box[v];
    hd_conflict_add(s, v);
    s->blamed[v] = s->blames;
    if (b->asleep && b->later > b->low) {
        hd_conflict_unite(s, b->conflict);
        return;
    }
    for (int w = b->under; w >= 0 && s->blamed[w] != s->blames; w = s->box[w].under) {
        hd_conflict_add(s, w);
        s->blamed[w] = s->blames;
        s->steps--;
    }
}

bool hd_conflict_blame_neighbours(Search *s, int v, int64_t most, bool tops) {
    bool found = false;
    for (int i = s->neighbours[v]; i < s->neighbours[v + 1]; i++) {
        int w = s->neighbour[i];
        const Box *u = &s->box[w];
        if (u->placed || s->blamed[w] == s->blames || !hd_conflict_has(s, w)) continue;
        if (hd_lowest(u) + (tops ? u->size : 0) <= most) continue;
        hd_conflict_blame(s, w);
        found = true;
    }
    s->steps -= s->neighbours[v + 1] - s->neighbours[v];
    return found;
}
