// See exec.h: what --check says of indices on the GPU. What was issued before ends first, and the host looks at them.
#include "runtime/base/indices.h"
#include "runtime/cuda/exec.h"
#include <stdlib.h>

static void look(HdCuda *x, const HdIndexed *s) {
    const size_t bytes = (size_t)s->n * sizeof(int);
    int *numbers = malloc(bytes);
    char text[700];
    if (!numbers) {
        hd_cuda_fail(x, "out of memory: cannot look at %lld indices", (long long)s->n);
        return;
    }
    if (hd_cuda_ok(x, x->api.cuMemcpyDtoHAsync(numbers, x->arena + (CuPtr)s->at, bytes, x->streams[0]),
                   "cannot copy indices") &&
        hd_cuda_ok(x, x->api.cuCtxSynchronize(), "the GPU stopped") &&
        !hd_indices_good(s, numbers, "", text, sizeof text))
        hd_cuda_fail(x, "%s", text);
    free(numbers);
}

void hd_cuda_indices_action(HdCuda *x, const HdFunc *f, int index) {
    int n = 0;
    const HdIndexed *list = x->head.check ? hd_indices_of(x->head.program, f, index, &n) : NULL;
    if (n && hd_cuda_ok(x, x->api.cuCtxSynchronize(), "the GPU stopped"))
        for (int i = 0; i < n && !x->failed; i++) look(x, &list[i]);
}
