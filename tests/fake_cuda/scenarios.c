// See scenarios.h.
#include "tests/fake_cuda/scenarios.h"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

char log_path[512];
int failures;

void open_log(const char *folder, const char *name) {
    snprintf(log_path, sizeof log_path, "%s/%s.log", folder, name);
    setenv("FAKE_CUDA_LOG", log_path, 1);
}

int count_in_log(const char *text) {
    FILE *f = fopen(log_path, "r");
    char line[512];
    int n = 0;
    while (f && fgets(line, sizeof line, f)) n += strstr(line, text) != NULL;
    if (f) fclose(f);
    return n;
}

int run_scenarios(const Scenario *list, size_t n, void (*before)(void)) {
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        if (before) before();
        fflush(stdout);
        if (fork() == 0) {
            alarm(600);
            list[i].run();
            exit(failures != 0);
        }
        int status = 0;
        wait(&status);
        printf("%-30s %s\n", list[i].name, status ? "FAILED" : "ok");
        bad += status != 0;
    }
    return bad != 0;
}
