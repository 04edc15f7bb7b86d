// The kinds of mutations of the table MUTATION_ROWS, for which a test defines MutationPlace first.
#ifndef TESTS_UNIT_MUTATION_ROWS_H
#define TESTS_UNIT_MUTATION_ROWS_H
typedef enum {
#define MUTATION(id, text, at) MUTATE_##id,
#include MUTATION_ROWS
    N_MUTATIONS
} Mutation;
static const struct { const char *text; MutationPlace at; } mutation_info[] = {
#define MUTATION(id, text, at) {text, at},
#include MUTATION_ROWS
};
#endif
