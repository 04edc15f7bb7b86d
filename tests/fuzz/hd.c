// Any text: the front end reports errors, or makes a module that verifies.
#include "frontend/frontend.h"
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Ctx *cx = hd_ctx_new();
    const char *text = hd_strndup(cx->arena, (const char *)data, size);
    const Module *m = hd_frontend(cx, "fuzz", text, size, NULL, 0);
    if (m ? !hd_verify(m) : !cx->diags.errors) {
        Out o = hd_out(cx->arena);
        hd_diags_print(&cx->diags, &o);
        fprintf(stderr, "%s\n%s", m ? "the module does not verify" : "refused without an error", o.text);
        abort();
    }
    Out o = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &o);
    hd_ctx_free(cx);
    return 0;
}
