// Names of data files to a sorted list of paths.
#include "runtime/data/files.h"
#include "runtime/heddle.h"
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static bool no_memory(void) { return hd_fail("out of memory"); }

static bool add(FileList *f, char *path) { // takes over `path`
    if (path && (f->n & (f->n - 1)) == 0) { // full: the room is a power of two
        char **grown = realloc(f->at, sizeof *grown * (size_t)(f->n ? 2 * f->n : 1));
        if (!grown) {
            free(path);
            return no_memory();
        }
        f->at = grown;
    }
    if (!path) return no_memory();
    f->at[f->n++] = path;
    return true;
}

static char *join(const char *folder, size_t length, const char *name) { // malloc'ed
    char *path = malloc(length + strlen(name) + 2);
    if (path) sprintf(path, "%.*s%s%s", (int)length, folder, length && folder[length - 1] != '/' ? "/" : "", name);
    return path;
}

static bool is_index(const char *path) { // of a Megatron data set: its .bin file is in the same folder
    const size_t n = strlen(path);
    if (n < 4 || strcmp(path + n - 4, ".idx")) return false;
    char *bin = strdup(path);
    if (bin) memcpy(bin + n - 3, "bin", 3);
    const bool is = bin && !access(bin, F_OK);
    free(bin);
    return is;
}

static bool add_found(FileList *f, char *path) { // of a folder or a pattern; takes over `path`
    if (!path || !is_index(path)) return add(f, path);
    free(path);
    return true;
}

// --- files for training and for validation in one folder

enum { FOR_ANY, FOR_TRAINING, FOR_VALIDATION };
static const struct { const char *word; int use; } uses[] = {
    {"train", FOR_TRAINING},      {"training", FOR_TRAINING}, {"val", FOR_VALIDATION},  {"valid", FOR_VALIDATION},
    {"validation", FOR_VALIDATION}, {"eval", FOR_VALIDATION},   {"test", FOR_VALIDATION}, {"dev", FOR_VALIDATION},
};

static const char *last_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// The row of `uses` of a word of the file's name; -1: none.
static int use_of(const char *path) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (const char *at = last_name(path); *at; at += strcspn(at, letters)) {
        const size_t n = strspn(at, letters);
        for (size_t i = 0; n && i < sizeof uses / sizeof *uses; i++)
            if (strlen(uses[i].word) == n && !strncasecmp(uses[i].word, at, n)) return (int)i;
        at += n;
    }
    return -1;
}

static bool one_use(const FileList *f, int from, const char *name) { // of what a folder or a pattern has found
    const char *file[] = {NULL, NULL, NULL}, *word[] = {NULL, NULL, NULL};
    for (int i = from; i < f->n; i++) {
        const int row = use_of(f->at[i]), use = row < 0 ? FOR_ANY : uses[row].use;
        if (!file[use]) file[use] = f->at[i], word[use] = row < 0 ? NULL : uses[row].word;
    }
    if (!file[FOR_TRAINING] || !file[FOR_VALIDATION]) return true;
    const char *train = file[FOR_TRAINING], *val = file[FOR_VALIDATION];
    const int folder = (int)(last_name(train) - train);
    return hd_fail("%s holds data for training and for validation (%s and %s); take them apart: "
                   "--data='%.*s*%s*' --val='%.*s*%s*'",
                   name, last_name(train), last_name(val), folder, train, word[FOR_TRAINING], folder, train,
                   word[FOR_VALIDATION]);
}

// --- names

static bool add_folder(FileList *f, const char *path) {
    const int before = f->n;
    DIR *dir = opendir(path);
    if (!dir) return hd_fail("cannot read the folder %s: %s", path, strerror(errno));
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(dir));)
        if (*e->d_name != '.') ok = add_found(f, join(path, strlen(path), e->d_name));
    closedir(dir);
    return ok && (f->n > before || hd_fail("the folder %s holds no data file", path)) && one_use(f, before, path);
}

static bool add_pattern(FileList *f, const char *pattern) {
    glob_t found;
    const int before = f->n, wrong = glob(pattern, GLOB_NOSORT, NULL, &found);
    bool ok = !wrong;
    if (wrong == GLOB_NOMATCH) hd_fail("no file matches the pattern %s", pattern);
    else if (wrong) hd_fail("cannot read the folders of the pattern %s", pattern);
    for (size_t i = 0; ok && i < found.gl_pathc; i++) ok = add_found(f, strdup(found.gl_pathv[i]));
    if (!wrong) globfree(&found);
    return ok && one_use(f, before, pattern);
}

// What a name is that no file can have, with what to give instead; NULL: nothing is known of it.
static const char *no_file(const char *name) {
    struct stat st;
    if (strstr(name, "://")) return "programs read local files: download it first";
    if (*name == '~') return "the shell replaces ~ only where a word begins: $HOME stands for it anywhere";
    if (!strcmp(name, "-")) return "tokens are read from anywhere in a file, which standard input does not allow";
    if (*name == '"' || *name == '\'') return "the quotes are a part of the name: leave them out";
    return !lstat(name, &st) && S_ISLNK(st.st_mode) ? "it is a link to a file that is not there" : NULL;
}

// A name that is no file's, with a hint at what may be meant. false
static bool missing(const char *name, int why) {
    const char *known = no_file(name);
    if (known) return hd_fail("cannot read %s: %s; %s", name, strerror(why), known);
    glob_t found;
    char *pattern = join(name, strlen(name), "");
    if (!pattern) return no_memory();
    sprintf(pattern, "%s*", name); // in the room of a slash
    const int wrong = glob(pattern, 0, NULL, &found);
    const size_t n = wrong ? 0 : found.gl_pathc;
    if (strchr(name, ','))
        hd_fail("cannot read %s: %s; a comma does not separate files: give the option once for each file", name,
                strerror(why));
    else if (n == 1 || (n == 2 && is_index(found.gl_pathv[1])))
        hd_fail("cannot read %s: %s; is %s meant?", name, strerror(why), found.gl_pathv[0]);
    else if (n)
        hd_fail("cannot read %s: %s; '%s*', in quotes, takes the %zu files whose names begin so", name, strerror(why),
                name, n);
    else hd_fail("cannot read %s: %s", name, strerror(why));
    if (!wrong) globfree(&found);
    free(pattern);
    return false;
}

static bool add_name(FileList *f, const char *name) {
    struct stat st;
    const bool there = !stat(name, &st);
    if (there && S_ISDIR(st.st_mode)) return add_folder(f, name);
    if (!there && strpbrk(name, "*?[")) return add_pattern(f, name);
    return there ? add(f, strdup(name)) : missing(name, errno);
}

static bool add_line(FileList *f, const char *list, char *line) {
    const char *slash = strrchr(list, '/');
    line[strcspn(line, "\r\n")] = 0;
    if (!*line || *line == '#') return true;
    if (*line == '/' || !slash) return add_name(f, line);
    char *path = join(list, slash == list ? 1 : (size_t)(slash - list), line);
    const bool ok = path ? add_name(f, path) : no_memory();
    free(path);
    return ok;
}

static bool add_list(FileList *f, const char *list) {
    const int before = f->n;
    FILE *in = fopen(list, "r");
    struct stat st;
    char *line = NULL;
    size_t room = 0;
    bool ok = in && !fstat(fileno(in), &st);
    if (!ok) hd_fail("cannot read the list %s: %s", list, strerror(errno));
    else if (!S_ISREG(st.st_mode)) ok = hd_fail("the list %s is not a plain file", list);
    while (ok && getline(&line, &room, in) >= 0) ok = add_line(f, list, line);
    if (ok && ferror(in)) ok = hd_fail("cannot read the list %s: %s", list, strerror(errno));
    free(line);
    if (in) fclose(in);
    return ok && (f->n > before || hd_fail("the list %s names no file", list));
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool each_once(const FileList *f) {
    for (int i = 1; i < f->n; i++)
        if (!strcmp(f->at[i - 1], f->at[i])) return hd_fail("%s is named twice; name every data file once", f->at[i]);
    return true;
}

bool hd_files_expand(FileList *f, Names given) {
    bool ok = true;
    *f = (FileList){0};
    for (int i = 0; ok && i < given.n; i++)
        ok = *given.at[i] == '@' ? add_list(f, given.at[i] + 1) : add_name(f, given.at[i]);
    if (ok && f->n) qsort(f->at, (size_t)f->n, sizeof *f->at, by_name);
    if (ok && each_once(f)) return true;
    hd_files_free(f);
    return false;
}

void hd_files_free(FileList *f) {
    for (int i = 0; i < f->n; i++) free(f->at[i]);
    free(f->at);
    *f = (FileList){0};
}
