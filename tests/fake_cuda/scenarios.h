// Scenarios of a test on pretended libraries, and the log that those write.
#ifndef TESTS_FAKE_CUDA_SCENARIOS_H
#define TESTS_FAKE_CUDA_SCENARIOS_H
#include <stdio.h>

extern char log_path[512];
extern int failures;
#define CHECK(x)                                                                                                       \
    ((x) ? (void)0 : (void)(failures++, fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #x)))

// Has the pretended libraries write to FOLDER/NAME.log.
void open_log(const char *folder, const char *name);
// The number of its lines that contain a text.
int count_in_log(const char *text);

typedef struct { const char *name; void (*run)(void); } Scenario;
#define SCENARIO(function) {#function, function}
// Runs each scenario in a process of its own, after `before` (NULL: nothing). Returns whether one of them failed.
int run_scenarios(const Scenario *list, size_t n, void (*before)(void));
#endif
