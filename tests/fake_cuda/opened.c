// See opened.h.
#include "tests/fake_cuda/opened.h"
#include "runtime/world/world.h"
#include <stdlib.h>
#include <string.h>

char cache_path[512];

bool failed_with(const char *text) {
    if (strstr(hd_failure(), text)) return true;
    fprintf(stderr, "the message is: %s\n", hd_failure());
    return false;
}

HdExec *opened(const HdProgram *p, bool graphs) {
    HdExec *x = hd_cuda_backend.open(p, hd_world_alone(), &(HdOpen){.use_graphs = graphs});
    if (!x) fprintf(stderr, "open: %s\n", hd_failure());
    CHECK(x);
    if (!x) exit(1);
    return x;
}

int counter(HdExec *x) {
    int v = -1;
    CHECK(hd_cuda_backend.read(x, COUNTER, &v, sizeof v));
    return v;
}

void no_open(const char *variable, const char *value, const HdProgram *p, const char *message) {
    if (variable) setenv(variable, value, 1);
    HdExec *x = hd_cuda_backend.open(p, hd_world_alone(), &(HdOpen){.use_graphs = true});
    CHECK(!x && failed_with(message));
    if (x) hd_cuda_backend.close(x);
    if (variable) unsetenv(variable);
}

int files_in_cache(const char *kind, bool damage) {
    char command[1200];
    int n = 0;
    if (damage) {
        snprintf(command, sizeof command,
                 "for f in %s/%s-*; do printf x | dd of=$f bs=1 seek=70 conv=notrunc 2>/dev/null; done", cache_path,
                 kind);
        CHECK(system(command) == 0);
    }
    snprintf(command, sizeof command, "ls %s | grep -c '^%s-[0-9a-f]*$'", cache_path, kind);
    FILE *f = popen(command, "r");
    if (f && fscanf(f, "%d", &n) != 1) n = -1;
    if (f) pclose(f);
    return n;
}
