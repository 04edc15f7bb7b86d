// Names of data files to a sorted list of paths.
#include "runtime/data_files.h"
#include "runtime/heddle.h"
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

static bool add_folder(FileList *f, const char *path) {
    const int before = f->n;
    DIR *dir = opendir(path);
    if (!dir) return hd_fail("cannot read the folder %s: %s", path, strerror(errno));
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(dir));)
        if (*e->d_name != '.') ok = add(f, join(path, strlen(path), e->d_name));
    closedir(dir);
    return ok && (f->n > before || hd_fail("the folder %s holds no data file", path));
}

static bool add_pattern(FileList *f, const char *pattern) {
    glob_t found;
    const int wrong = glob(pattern, GLOB_NOSORT, NULL, &found);
    bool ok = !wrong;
    if (wrong == GLOB_NOMATCH) hd_fail("no file matches the pattern %s", pattern);
    else if (wrong) hd_fail("cannot read the folders of the pattern %s", pattern);
    for (size_t i = 0; ok && i < found.gl_pathc; i++) ok = add(f, strdup(found.gl_pathv[i]));
    if (!wrong) globfree(&found);
    return ok;
}

static bool add_name(FileList *f, const char *name) {
    struct stat st;
    const bool there = !stat(name, &st);
    if (there && S_ISDIR(st.st_mode)) return add_folder(f, name);
    if (!there && strpbrk(name, "*?[")) return add_pattern(f, name);
    return add(f, strdup(name)); // one that is missing is reported where it is opened
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
