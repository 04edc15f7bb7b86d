// Runs a fuzz target over the files of folders and of their folders, without libFuzzer: what fuzzing once found stays
// found in every build. Parts of a text between lines `// -----` are inputs of their own.
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LARGEST = 1 << 20 };
static const char mark[] = "\n// -----\n";

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    char *data = f ? malloc(LARGEST + 1) : NULL;
    if (!data) {
        fprintf(stderr, "cannot read %s\n", path);
        if (f) fclose(f);
        return 0;
    }
    const size_t size = fread(data, 1, LARGEST, f);
    data[size] = 0;
    fclose(f);
    const bool text = strlen(data) == size;
    if (!text) LLVMFuzzerTestOneInput((const uint8_t *)data, size);
    for (char *part = text ? data : NULL; part;) {
        char *end = strstr(part, mark);
        size_t n = end ? (size_t)(end - part) + 1 : strlen(part);
        if (n) LLVMFuzzerTestOneInput((const uint8_t *)part, n);
        part = end ? end + sizeof mark - 1 : NULL;
    }
    free(data);
    return 1;
}

static int run_folder(const char *name) {
    DIR *folder = opendir(name);
    int files = 0;
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        char path[4096];
        struct stat s;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", name, e->d_name);
        if (stat(path, &s)) continue;
        files += S_ISDIR(s.st_mode) ? run_folder(path) : run_file(path);
    }
    if (folder) closedir(folder);
    return files;
}

int main(int argc, char **argv) {
    int files = 0;
    for (int i = 1; i < argc; i++) files += run_folder(argv[i]);
    printf("%d files\n", files);
    return files ? 0 : 1;
}
