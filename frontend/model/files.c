// The files of a model: the one that is compiled and those that it imports, each read once, and which of them a place
// is in. Their declarations form one tree, those of an imported file before those of the file that names it.
#include "frontend/model/sema.h"
#include "frontend/syntax/parser.h"
#include "ir/base/search.h"
#include <errno.h>
#include <sys/stat.h>

enum { MAX_FILES = 128 }; // each of at most 2^24 bytes: places have 32 bits

struct SourceFile {
    const char *name;    // interned
    uint32_t base, len;  // of its spans
    VEC(uint32_t) lines; // where lines begin
    int first_line;
    const Node *tree;
    int by;             // the file that imports it, while that is read; -1: the one that is compiled
    const Node *import; // ... and where
    bool open;          // what it imports is being read
};

// --- places

static const SourceFile *file_at(const Front *f, Span s) { // NULL: the place is in no file
    int next; // the first file that begins after the place; their order is that of reading
    HD_FIRST(next, 0, f->files.n, f->files.at[next]->base > s.lo);
    const SourceFile *x = next ? f->files.at[next - 1] : NULL;
    return x && s.lo <= x->base + x->len ? x : NULL;
}

bool hd_front_in_user(const Front *f, Span s) { return file_at(f, s) != NULL; }

bool hd_front_one_file(const Front *f, Span a, Span b) { return file_at(f, a) == file_at(f, b); }

Loc hd_front_loc(const Front *f, const char *path, Span s) {
    s = hd_front_site(f, s);
    const SourceFile *x = file_at(f, s);
    if (!x) return (Loc){path, f->file, 0};
    int next; // the first line that begins after the place
    HD_FIRST(next, 1, x->lines.n, x->lines.at[next] > s.lo - x->base);
    return (Loc){path, x->name, x->first_line + next - 1};
}

// --- reading

static SourceFile *add_file(Front *f, const char *name, const char *text, size_t len, int first_line) {
    SourceFile *x = HD_NEW(f->arena, SourceFile);
    x->name = hd_intern(f->cx, name);
    x->first_line = first_line;
    x->by = -1;
    x->tree = hd_parse_source(f->cx, PARSE_FILE, x->name, text, len, first_line);
    const Source *source = &f->cx->diags.sources.at[f->cx->diags.sources.n - 1];
    x->base = source->base;
    x->len = source->len; // 0: too long
    hd_push(f->arena, &x->lines, 0);
    for (uint32_t k = 0; x->tree && k < x->len; k++)
        if (text[k] == '\n') hd_push(f->arena, &x->lines, k + 1);
    hd_push(f->arena, &f->files, x);
    return x;
}

// A path is relative to the folder of the file that names it.
static const char *path_from(Front *f, const SourceFile *by, const char *path) {
    const char *slash = strrchr(by->name, '/');
    if (path[0] == '/' || !slash) return path;
    return hd_sprintf(f->arena, "%.*s%s", (int)(slash + 1 - by->name), by->name, path);
}

static bool unreadable(Front *f, const Node *import, const char *path, const char *why) {
    return hd_front_error(f, import->span, "cannot read '%s': %s; a path is relative to the folder of this file", path,
                          why);
}

// An import that leads back to a file whose imports are being read: the way from there to here.
static bool circle(Front *f, const Node *import, int from, int to) {
    VEC(int) way = {0};
    for (int k = from; k != to; k = f->files.at[k]->by) hd_push(f->arena, &way, k);
    hd_front_error(f, import->span, "'%s' imports itself%s%s%s", f->files.at[to]->name, way.n ? " through '" : "",
                   way.n ? f->files.at[from]->name : "", way.n ? "'" : "");
    for (int k = way.n - 1; k >= 0; k--)
        hd_note(f->cx, f->files.at[way.at[k]]->import->span, "'%s' is imported here", f->files.at[way.at[k]]->name);
    return false;
}

static bool read_imports(Front *f, int number, Node *all);

static bool read_import(Front *f, int by, const Node *import, Node *all) {
    const char *path = path_from(f, f->files.at[by], import->text);
    struct stat st;
    if (!import->text[0]) return hd_front_error(f, import->span, "the name of the imported file is empty");
    for (int k = 0; k < f->files.n; k++) {
        if (strcmp(f->files.at[k]->name, path) != 0 && !hd_same_file(f->files.at[k]->name, path)) continue;
        return !f->files.at[k]->open || circle(f, import, by, k);
    }
    if (stat(path, &st)) return unreadable(f, import, path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return unreadable(f, import, path, "it is no regular file");
    if (f->files.n == MAX_FILES)
        return hd_front_error(f, import->span, "a model has at most %d files", MAX_FILES);
    hd_memory_used_by("reading '%s'", path);
    size_t len = 0;
    const char *text = hd_read_file(f->arena, path, &len);
    if (!text) return unreadable(f, import, path, strerror(errno));
    const int number = f->files.n;
    SourceFile *x = add_file(f, path, text, len, 1);
    x->by = by;
    x->import = import;
    if (x->tree) return read_imports(f, number, all);
    hd_note(f->cx, import->span, "'%s' is imported here", path);
    return false;
}

// Adds what a file declares, after what its imports do.
static bool read_imports(Front *f, int number, Node *all) {
    SourceFile *x = f->files.at[number];
    bool ok = true;
    x->open = true;
    for (int k = 0; k < x->tree->n && !f->stop; k++)
        if (x->tree->kids[k]->kind == N_IMPORT) ok &= read_import(f, number, x->tree->kids[k], all);
    x->open = false;
    for (int k = 0; k < x->tree->n; k++)
        if (x->tree->kids[k]->kind != N_IMPORT) hd_ast_add(f->arena, all, x->tree->kids[k]);
    return ok;
}

bool hd_front_read(Front *f, const char *text, size_t len, int first_line) {
    const SourceFile *x = add_file(f, f->file, text, len, first_line);
    if (!x->tree) return false;
    Node *all = hd_ast_node(f->arena, N_FILE, x->tree->span);
    f->user = all;
    return read_imports(f, 0, all);
}
