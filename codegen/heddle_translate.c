// heddle-translate [--to=c|cuda] FILE.hir|-: prints the host program of a plan (c) or its CUDA text. A thin tool for tests of codegen.
#include "codegen/codegen.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *to = "c", *path = NULL;
    bool bad = false;
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--to=", 5)) to = argv[i] + 5;
        else if (path || (argv[i][0] == '-' && argv[i][1])) bad = true;
        else path = argv[i];
    }
    if (bad || !path || (strcmp(to, "c") != 0 && strcmp(to, "cuda") != 0)) {
        fprintf(stderr, "usage: heddle-translate [--to=c|cuda] FILE.hir|-\n");
        return 2;
    }
    Ctx *cx = hd_ctx_new();
    size_t n = 0;
    char *text = hd_read_file(cx->arena, path, &n);
    if (!text) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 2;
    }
    uint32_t base = hd_source_add(&cx->diags, path, text, n, 1);
    Module *m = hd_parse_module(cx, text, n, base);
    Out c = hd_out(cx->arena), cuda = hd_out(cx->arena);
    bool ok = m && hd_verify(m) && hd_codegen_c(m, "", "", &c, &cuda);
    if (ok) fputs(strcmp(to, "c") ? cuda.text : c.text, stdout);
    Out errors = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &errors);
    fputs(errors.text, stderr);
    hd_ctx_free(cx);
    return ok ? 0 : 1;
}
