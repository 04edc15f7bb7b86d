// Which tensor of a file each parameter is: names, --init-rename, --init-ignore, --init-missing. Names left over on
// either side is an error that lists it once, with the option that would let it pass.
#include "runtime/checkpoint/import.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/text.h"
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST = 900, SHOWN = 4 };

// --- the names of a file's tensors, after the options

// FROM=TO: the first FROM in a name becomes TO; an empty FROM puts TO in front. NULL: it is not in the name.
static char *renamed(const char *name, const char *rule) { // malloc'ed
    const char *to = strchr(rule, '=') + 1;
    const size_t from = (size_t)(to - rule) - 1, n = strlen(name) + strlen(to) + 1;
    const char *at = name;
    while (*at && strncmp(at, rule, from) != 0) at++;
    if (from && !*at) return NULL;
    char *s = malloc(n);
    if (s) snprintf(s, n, "%.*s%s%s", (int)(at - name), name, to, at + from);
    return s;
}

static bool make_entry(Weights *w, const StFile *f, const StTensor *t, bool *used) {
    WeightsEntry *e = &w->entries[w->n_entries];
    const Names *rename = &w->rules->rename, *ignore = &w->rules->ignore;
    *e = (WeightsEntry){f, t, strdup(t->name), false, false};
    if (!e->name) return hd_fail("out of memory");
    w->n_entries++;
    for (int i = 0; i < rename->n; i++) {
        char *other = renamed(e->name, rename->at[i]);
        if (!other) continue;
        free(e->name);
        e->name = other;
        used[i] = true;
    }
    for (int i = 0; i < ignore->n; i++)
        if (!fnmatch(ignore->at[i], e->name, 0)) e->ignored = used[rename->n + i] = true;
    return true;
}

static void tell_unused(const Weights *w, const bool *used) { // an option that was misspelt
    const Names *rename = &w->rules->rename, *ignore = &w->rules->ignore;
    for (int i = 0; w->rules->speaks && i < rename->n + ignore->n; i++)
        if (!used[i])
            hd_say(stderr, "note: --init-%s=%s fits no tensor of %s\n", i < rename->n ? "rename" : "ignore",
                   i < rename->n ? rename->at[i] : ignore->at[i - rename->n], w->path);
}

static int order(const void *a, const void *b) { // by name, then those left out, then as in the files
    const WeightsEntry *x = *(WeightsEntry *const *)a, *y = *(WeightsEntry *const *)b;
    const int names = strcmp(x->name, y->name);
    if (names || x->ignored != y->ignored) return names ? names : x->ignored - y->ignored;
    return (x > y) - (x < y);
}

static bool make_entries(Weights *w) {
    int n = 0;
    for (int i = 0; i < w->n; i++) n += w->files[i].n;
    w->entries = calloc((size_t)n + 1, sizeof *w->entries);
    w->by_name = calloc((size_t)n + 1, sizeof *w->by_name);
    bool *used = calloc((size_t)(w->rules->rename.n + w->rules->ignore.n) + 1, sizeof *used);
    bool ok = (w->entries && w->by_name && used) || hd_fail("out of memory");
    for (int i = 0; ok && i < w->n; i++)
        for (int t = 0; ok && t < w->files[i].n; t++) ok = make_entry(w, &w->files[i], &w->files[i].tensors[t], used);
    for (int i = 0; ok && i < w->n_entries; i++) w->by_name[i] = &w->entries[i];
    if (ok) qsort(w->by_name, (size_t)w->n_entries, sizeof *w->by_name, order);
    if (ok) tell_unused(w, used);
    free(used);
    return ok;
}

void hd_match_free(Weights *w) {
    for (int i = 0; i < w->n_entries; i++) free(w->entries[i].name);
    free(w->entries);
    free(w->by_name);
    for (int k = 0; w->of && k < w->n_params; k++) free(w->of[k]);
    free(w->of);
}

// --- parameters

static WeightsEntry *find(const Weights *w, const char *name, bool ignored) { // the first of them
    int first = 0, end = w->n_entries;
    while (first < end) {
        const int middle = first + (end - first) / 2;
        const WeightsEntry *e = w->by_name[middle];
        const int names = strcmp(e->name, name);
        if (names < 0 || (!names && e->ignored < ignored)) first = middle + 1;
        else end = middle;
    }
    WeightsEntry *e = first < w->n_entries ? w->by_name[first] : NULL;
    return e && e->ignored == ignored && !strcmp(e->name, name) ? e : NULL;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end) && text[n - m - 1] == '.';
}

// The option that gives a tensor of the file the name that is missing: one of the two has words in front.
static void hint(const Weights *w, const char *name, char *text, size_t size) {
    *text = 0;
    if (find(w, name, true)) {
        snprintf(text, size, "; --init-ignore leaves it out");
        return;
    }
    for (int i = 0; i < w->n_entries && !*text; i++) {
        const char *have = w->entries[i].name;
        const size_t more = strlen(have) > strlen(name) ? strlen(have) - strlen(name) : strlen(name) - strlen(have);
        if (ends_with(have, name))
            snprintf(text, size, "; it has '%s': --init-rename=%.*s=", have, (int)more, have);
        else if (ends_with(name, have))
            snprintf(text, size, "; it has '%s': --init-rename==%.*s", have, (int)more, name);
    }
    if (!*text) snprintf(text, size, "; --init-missing=fresh starts what is missing from its initialiser");
}

// Tensor `name` of parameter k, with this shape. false after hd_fail.
static bool find_tensor(const Weights *w, const HdParam *q, const char *name, const char *shape, WeightsEntry **found) {
    char have[200], of[400] = "", way[400];
    WeightsEntry *e = *found = find(w, name, false);
    if (strcmp(name, q->name)) snprintf(of, sizeof of, " for parameter %s", q->name);
    if (!e) {
        hint(w, name, way, sizeof way);
        return hd_fail("%s has no tensor '%s' %s%s: it belongs to another model%s", w->path, name, shape, of, way);
    }
    e->taken = true;
    hd_shape_text(have, sizeof have, e->tensor->rank, e->tensor->dim);
    if (!strcmp(have, shape)) return true;
    if (*of) snprintf(of, sizeof of, " (parameter %s)", q->name);
    return hd_fail("%s: tensor '%s' is %s, this model's is %s%s", e->file->path, name, have, shape, of);
}

// Whether the file has a tensor of the parameter.
static bool has_tensor(const Weights *w, const HdProgram *p, int k, int64_t tensors) {
    bool any = false;
    for (int64_t n = 0; n < tensors && !any; n++) {
        char *name = w->own_names ? strdup(p->params[k].name) : hd_file_tensor(p, k, n);
        any = name && find(w, name, false);
        free(name);
    }
    return any;
}

static bool find_tensors(Weights *w, const HdProgram *p, int k) {
    const HdParam q = hd_whole(p, &p->params[k]);
    const int64_t tensors = w->own_names ? 1 : hd_file_tensors(p, k), turned[2] = {q.dim[1], q.dim[0]};
    const int less = !w->own_names && strstr(hd_file_name(p, k), HD_EACH) != NULL; // axes of a tensor
    char shape[96];
    if (w->rules->fresh && !has_tensor(w, p, k, tensors)) return ++w->fresh;
    hd_shape_text(shape, sizeof shape, q.rank - less,
                  !w->own_names && hd_file_turned(p, k) ? turned : q.dim + less);
    w->of[k] = calloc((size_t)tensors, sizeof *w->of[k]);
    bool ok = w->of[k] || hd_fail("out of memory");
    for (int64_t n = 0; ok && n < tensors; n++) {
        char *name = w->own_names ? strdup(q.name) : hd_file_tensor(p, k, n);
        ok = (name || hd_fail("out of memory")) && find_tensor(w, &q, name, shape, &w->of[k][n]);
        free(name);
    }
    return ok;
}

static bool tell_fresh(const Weights *w, const HdProgram *p) {
    char names[LIST] = "";
    int told = 0;
    if (w->fresh == p->n_params)
        return hd_fail("%s has a tensor for none of the %d parameters of model %s: it belongs to another model",
                       w->path, p->n_params, p->model);
    for (int k = 0; k < p->n_params && told < SHOWN; k++) {
        const size_t n = strlen(names);
        if (!w->of[k]) snprintf(names + n, sizeof names - n, "%s%s", told++ ? ", " : "", p->params[k].name);
    }
    if (w->fresh && w->rules->speaks)
        hd_say(stderr, "note: %s has no tensor for %d of %d parameters, which start from their initialisers: %s%s\n",
               w->path, w->fresh, p->n_params, names, told < w->fresh ? ", ..." : "");
    return true;
}

// --- tensors that are left over

// A name with * for each number between dots: h.0.attn.bias and h.1.attn.bias are h.*.attn.bias.
static void pattern_of(const char *name, char *out, size_t size) {
    size_t n = 0;
    for (const char *s = name; *s && n + 1 < size;) {
        const size_t digits = s == name || s[-1] == '.' ? strspn(s, "0123456789") : 0;
        const bool number = digits && (s[digits] == '.' || !s[digits]);
        out[n++] = number ? '*' : *s;
        s += number ? digits : 1;
    }
    out[n] = 0;
}

static bool left_over(const WeightsEntry *e) { return !e->taken && !e->ignored; }

static bool seen_before(const Weights *w, int i, const char *pattern) {
    char other[300];
    for (int k = 0; k < i; k++) {
        pattern_of(w->entries[k].name, other, sizeof other);
        if (left_over(&w->entries[k]) && !strcmp(other, pattern)) return true;
    }
    return false;
}

static int count_of(const Weights *w, const char *pattern) {
    char other[300];
    int n = 0;
    for (int k = 0; k < w->n_entries; k++) {
        pattern_of(w->entries[k].name, other, sizeof other);
        n += left_over(&w->entries[k]) && !strcmp(other, pattern);
    }
    return n;
}

// A layer or a head that a model leaves out makes another model, so each tensor must be a parameter. A checkpoint also
// holds what is none.
static bool nothing_else(const Weights *w, const HdProgram *p) {
    char list[LIST] = "", ways[LIST] = "", pattern[300], shape[200], many[40];
    int n = 0, kinds = 0;
    for (int i = 0; i < w->n_entries && !w->own_names; i++) {
        const WeightsEntry *e = &w->entries[i];
        if (!left_over(e)) continue;
        n++;
        pattern_of(e->name, pattern, sizeof pattern);
        if (seen_before(w, i, pattern) || kinds++ >= SHOWN) continue;
        const int all = count_of(w, pattern);
        const size_t at = strlen(list), end = strlen(ways);
        hd_shape_text(shape, sizeof shape, e->tensor->rank, e->tensor->dim);
        if (all > 1) snprintf(many, sizeof many, " (%d of them)", all);
        else *many = 0;
        snprintf(list + at, sizeof list - at, "%s'%s' %s%s", at ? ", " : "", all > 1 ? pattern : e->name, shape, many);
        snprintf(ways + end, sizeof ways - end, " --init-ignore='%s'", all > 1 ? pattern : e->name);
    }
    return !n || hd_fail("%s: %d of its %d tensors are no parameters of model %s: %s%s; leave them out with%s%s",
                         w->path, n, w->n_entries, p->model, list, kinds > SHOWN ? ", ..." : "", ways,
                         kinds > SHOWN ? " ..." : "");
}

static bool no_name_twice(const Weights *w) {
    for (int i = 0; i < w->n_entries && w->rules->rename.n; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(w->entries[i].name, w->entries[k].name))
                return hd_fail("%s: --init-rename gives tensors '%s' and '%s' one name, '%s'", w->path,
                               w->entries[k].tensor->name, w->entries[i].tensor->name, w->entries[i].name);
    return true;
}

bool hd_match_tensors(Weights *w, const HdProgram *p) {
    w->n_params = p->n_params;
    w->of = calloc((size_t)p->n_params + 1, sizeof *w->of);
    if (!w->of) return hd_fail("out of memory");
    const char *format = w->n ? hd_st_meta(&w->files[0], "heddle_checkpoint") : NULL;
    w->own_names = format != NULL;
    if (format && (!strcmp(format, HD_MANIFEST) || !strcmp(format, HD_MANIFEST_FLAT)))
        return hd_fail("%s lists the shards of a checkpoint and holds no weights itself: --resume=DIR --export=FILE "
                       "writes them as one file",
                       w->path);
    if (!make_entries(w) || !no_name_twice(w)) return false;
    for (int k = 0; k < p->n_params; k++)
        if (!find_tensors(w, p, k)) return false;
    return tell_fresh(w, p) && nothing_else(w, p);
}
