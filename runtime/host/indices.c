// See host.h: what --check says of indices on the host. Streams are threads; the first one to find something says it.
#include "runtime/base/indices.h"
#include "runtime/host/host.h"
#include <stdio.h>

void hd_host_indices_action(Host *h, const HdFunc *f, int action) {
    int n = 0;
    const HdIndexed *list = h->head.check ? hd_indices_of(h->head.program, f, action, &n) : NULL;
    for (int k = 0; k < n; k++) {
        int *numbers = (int *)(void *)(h->head.base + list[k].at), none = 0;
        char who[600], text[1400];
        hd_action_tell(f, action, who, sizeof who);
        if (hd_indices_good(&list[k], numbers, who, text, sizeof text)) continue;
        if (atomic_compare_exchange_strong(&h->astray, &none, 1)) {
            snprintf(h->index, sizeof h->index, "%s", text);
            atomic_store(&h->astray, 2);
        }
        for (int64_t i = 0; i < list[k].n; i++)
            if (numbers[i] < list[k].low || numbers[i] > list[k].high) numbers[i] = (int)list[k].high;
    }
}

bool hd_host_indices_leave(Host *h) { return atomic_load(&h->astray) != 2 || hd_fail("%s", h->index); }
