// Reads a .hd or .hir file as the tools do, verifies and prints it, or packs the values of a .csv file, and prints how
// much work that was. Errors go to standard error.
// Usage: count_work FILE
#include "frontend/frontend.h"
#include "ir/ir.h"
#include "passes/pack/pack.h"
#include "tests/counted/count.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) exit(2);
    *len = (size_t)ftell(f);
    rewind(f);
    char *text = calloc(*len + 1, 1);
    if (!text || fread(text, 1, *len, f) != *len) exit(2);
    fclose(f);
    return text;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    size_t len;
    char *text = read_file(argv[1], &len);
    const char *dot = strrchr(argv[1], '.');
    Ctx *cx = hd_ctx_new();
    Module *m = NULL;
    Out out = hd_out(cx->arena);
    if (dot && !strcmp(dot, ".csv")) {
        const char *wrong = hd_pack_csv(cx->arena, text, 0, 0, &out, NULL, NULL);
        if (wrong) fprintf(stderr, "%s\n", wrong);
    } else if (dot && !strcmp(dot, ".hir"))
        m = hd_parse_module(cx, text, len, hd_source_add(&cx->diags, argv[1], text, len, 1));
    else m = hd_frontend(cx, argv[1], text, len, NULL, 0);
    if (m && hd_verify(m)) hd_print_module(m, &out);
    hd_diags_print(&cx->diags, &out);
    if (cx->diags.list.n) fwrite(out.text, 1, out.n, stderr);
    printf("%" PRIu64 "\n", counted_work());
    hd_ctx_free(cx);
    free(text);
    return 0;
}
