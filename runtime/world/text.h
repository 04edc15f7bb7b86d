// Text that came from another process.
#ifndef RUNTIME_WORLD_TEXT_H
#define RUNTIME_WORLD_TEXT_H
#include <stddef.h>

// Ends the text within `size` bytes, and replaces by '?' what a terminal could take for a command: control characters
// but the end of a line, those of UTF-8 among them (U+0080 to U+009F), marks that change the direction of a line, and
// bytes that are not UTF-8.
void hd_text_clean(char *text, size_t size);
#endif
