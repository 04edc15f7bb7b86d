// Any bytes as a config.json: it is refused, or every value has a key that finds it, and equals itself.
#include "runtime/base/hub_config.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    HdHubConfig c;
    const bool read = hd_hub_read(&c, (const char *)data, size);
    for (int i = 0; i < c.n; i++) {
        const HdHubValue *v = hd_hub_find(&c, c.at[i].key);
        if (read && v == &c.at[i] && v->text && hd_hub_same(v, v)) continue;
        fprintf(stderr, "value %d of %d is not found, or does not equal itself\n", i, c.n);
        abort();
    }
    hd_hub_free(&c);
    return 0;
}
