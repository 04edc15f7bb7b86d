// Options and settings by the names that other programs have for them.
#ifndef RUNTIME_RUN_WORDS_H
#define RUNTIME_RUN_WORDS_H
#include <stddef.h>

const char *hd_word_option(const char *given); // "--NAME" or "--NAME=VALUE": what to say; NULL: no such name
const char *hd_word_setting(const char *name, size_t n); // of a train block: ours; NULL: no such name
const char *hd_word_format(const char *name); // of elements: ours; NULL: no such name
#endif
