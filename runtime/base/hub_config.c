// The reader of config.json: one pass, a row for each value that is no object and no list.
#include "runtime/base/hub_config.h"
#include "runtime/base/json_read.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 16 };

// --- keys

// The first row whose beginning fits gives the key another one; so does a later row, of what the one before it gave.
static const struct { const char *from, *to; } renamed[] = {
    {"rope_parameters.full_attention.", "rope_scaling."},
    {"rope_parameters.sliding_attention.rope_theta", "rope_local_base_freq"},
    {"rope_parameters.sliding_attention.", "rope_local_scaling."},
    {"rope_parameters", "rope_scaling"},
    {"rope_scaling.rope_theta", "rope_theta"},
    {"rope_scaling.type", "rope_scaling.rope_type"},
};

static char *joined(const char *a, const char *between, const char *b) { // malloc'ed
    const size_t n = strlen(a) + strlen(between) + strlen(b) + 1;
    char *s = malloc(n);
    if (s) snprintf(s, n, "%s%s%s", a, between, b);
    return s;
}

static char *canonical(const char *key) { // malloc'ed
    char *name = strdup(key);
    for (size_t i = 0; name && i < sizeof renamed / sizeof *renamed; i++) {
        const size_t n = strlen(renamed[i].from);
        if (strncmp(name, renamed[i].from, n) != 0) continue;
        char *other = joined(renamed[i].to, "", name + n);
        free(name);
        name = other;
    }
    return name;
}

bool hd_hub_is_below(const char *key, const char *object) {
    const size_t n = strlen(object);
    return !strncmp(key, object, n) && key[n] == '.';
}

const HdHubValue *hd_hub_find(const HdHubConfig *c, const char *key) {
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->at[i].key, key)) return &c->at[i];
    return NULL;
}

// --- values

static bool no_scaling(const HdHubValue *v) { // another way to write null
    const char *dot = strrchr(v->key, '.');
    return dot && !strcmp(dot, ".rope_type") && v->kind == HD_HUB_TEXT && !strcmp(v->text, "default");
}

static bool add(HdHubConfig *c, const char *path, HdHubKind kind, char *text) { // takes over `text`
    HdHubValue v = {canonical(path), text, kind};
    char *wrapped = v.key ? strstr(v.key, ".__float__") : NULL; // {"__float__": "Infinity"}, by transformers 5
    if (wrapped && text && !wrapped[strlen(".__float__")] && !strcmp(text, "Infinity")) {
        *wrapped = 0;
        v.kind = HD_HUB_NUMBER;
    }
    HdHubValue *grown = v.key && text ? realloc(c->at, sizeof *grown * (size_t)(c->n + 1)) : NULL;
    if (grown) c->at = grown;
    if (grown && !no_scaling(&v) && !hd_hub_find(c, v.key)) {
        c->at[c->n++] = v;
        return true;
    }
    free(v.key);
    free(text);
    return grown != NULL;
}

static bool scalar(HdHubConfig *c, HdJson *j, const char *path) {
    const char *start = j->p;
    while (j->p < j->end && !strchr(",:]}[{\" \t\r\n", *j->p)) j->p++;
    char *text = strndup(start, (size_t)(j->p - start)), *end = text;
    if (!text || !*text) return free(text), false;
    const bool truth = !strcmp(text, "true") || !strcmp(text, "false"), null = !strcmp(text, "null");
    if (!truth && !null) strtod(text, &end);
    const bool infinite = !strcmp(text, "Infinity"); // Python's JSON has it
    const bool ok = truth || null || infinite || (!*end && !strpbrk(text, "xXpPnN"));
    if (!ok) return free(text), false;
    return add(c, path, truth ? HD_HUB_TRUTH : null ? HD_HUB_NULL : HD_HUB_NUMBER, text);
}

static bool value(HdHubConfig *c, HdJson *j, const char *path, int depth);

static bool inner(HdHubConfig *c, HdJson *j, const char *path, const char *name, int depth) { // one member or element
    char *below = *path ? joined(path, ".", name) : strdup(name);
    const bool ok = below && value(c, j, below, depth + 1);
    free(below);
    return ok;
}

static bool object(HdHubConfig *c, HdJson *j, const char *path, int depth) {
    if (!hd_json_take(j, '{')) return false;
    if (hd_json_take(j, '}')) return !*path || add(c, path, HD_HUB_EMPTY, strdup("{}"));
    do {
        char *key = hd_json_text(j);
        const bool ok = key && hd_json_take(j, ':') && inner(c, j, path, key, depth);
        free(key);
        if (!ok) return false;
    } while (hd_json_take(j, ','));
    return hd_json_take(j, '}');
}

static bool array(HdHubConfig *c, HdJson *j, const char *path, int depth) {
    char number[24];
    if (!hd_json_take(j, '[')) return false;
    if (hd_json_take(j, ']')) return add(c, path, HD_HUB_EMPTY, strdup("[]"));
    int k = 0;
    do {
        snprintf(number, sizeof number, "%d", k++);
        if (!inner(c, j, path, number, depth)) return false;
    } while (hd_json_take(j, ','));
    return hd_json_take(j, ']');
}

static bool value(HdHubConfig *c, HdJson *j, const char *path, int depth) {
    hd_json_blanks(j);
    if (j->p == j->end || depth > DEEPEST) return false;
    if (*j->p == '{') return object(c, j, path, depth);
    if (*j->p == '[') return array(c, j, path, depth);
    return *j->p == '"' ? add(c, path, HD_HUB_TEXT, hd_json_text(j)) : scalar(c, j, path);
}

bool hd_hub_read(HdHubConfig *c, const char *text, size_t n) {
    HdJson j = {text, text + n};
    *c = (HdHubConfig){0};
    bool ok = object(c, &j, "", 0);
    hd_json_blanks(&j);
    ok = ok && j.p == j.end;
    if (!ok) hd_hub_free(c);
    return ok;
}

void hd_hub_free(HdHubConfig *c) {
    for (int i = 0; i < c->n; i++) {
        free(c->at[i].key);
        free(c->at[i].text);
    }
    free(c->at);
    *c = (HdHubConfig){0};
}

bool hd_hub_same(const HdHubValue *a, const HdHubValue *b) {
    const bool no_a = !a || a->kind == HD_HUB_NULL, no_b = !b || b->kind == HD_HUB_NULL;
    if (no_a || no_b) return no_a && no_b;
    if (a->kind != b->kind) return false;
    return a->kind == HD_HUB_NUMBER ? strtod(a->text, NULL) == strtod(b->text, NULL) : !strcmp(a->text, b->text);
}
