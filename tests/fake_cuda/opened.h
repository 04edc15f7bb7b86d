// Declarations that the scenarios of cuda_fake share: a program opened on the pretended libraries, and what it says.
#ifndef TESTS_FAKE_CUDA_OPENED_H
#define TESTS_FAKE_CUDA_OPENED_H
#include "tests/fake_cuda/scenarios.h"
#include "tests/fake_cuda/small_program.h"

extern char cache_path[512];
HdExec *opened(const HdProgram *p, bool graphs); // a program that does not open ends the scenario
int counter(HdExec *x);
// Whether the failure says this; what it says instead is printed.
bool failed_with(const char *text);
// Opening the program, with an environment variable (NULL: none) of this value, fails with this message.
void no_open(const char *variable, const char *value, const HdProgram *p, const char *message);
// The files of this kind in the cache; `damage`: a byte of each is changed first.
int files_in_cache(const char *kind, bool damage);

// Scenarios of products, devices and attention (cuda_fake_library.c).
void products(void);
void choices_are_remembered(void);
void choices_under_load(void);
void choices_of_a_file(void);
void visible_devices(void);
void open_fails_clearly(void);
void attention(void);
void attention_maps(void);
void attention_plans(void);

void guards(void); // guards.c
#endif
