// Inputs of several parts, for tests: lines that are exactly `// -----` separate them.
#ifndef IR_BASE_PARTS_H
#define IR_BASE_PARTS_H
#include <stddef.h>

// of the part that begins at s: its separator, or the end of the text
const char *hd_part_end(const char *s, const char *end);
// the start of the next part; *line moves to its line
const char *hd_part_next(const char *separator, const char *end, int *line);
#endif
