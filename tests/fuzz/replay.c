// Runs a fuzz target over every file of a folder, without libFuzzer: what fuzzing once found stays found in every build.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "cannot read %s\n", path);
        return 1;
    }
    size_t n = 0, cap = 1 << 20;
    uint8_t *data = malloc(cap);
    if (data) n = fread(data, 1, cap, f);
    fclose(f);
    if (data && n) LLVMFuzzerTestOneInput(data, n);
    free(data);
    return !data;
}

int main(int argc, char **argv) {
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    int files = 0, bad = 0;
    for (const struct dirent *e; (e = readdir(folder));) {
        char path[4096];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        bad += run_file(path);
        files++;
    }
    closedir(folder);
    printf("%d inputs\n", files);
    return bad || !files;
}
