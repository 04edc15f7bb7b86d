// Finds the separators in an input of several parts.
#include "ir/base/parts.h"
#include <string.h>

const char *hd_part_end(const char *s, const char *end) {
    static const char mark[] = "// -----";
    size_t n = sizeof mark - 1;
    while (s < end) {
        const char *newline = memchr(s, '\n', (size_t)(end - s));
        size_t line = newline ? (size_t)(newline - s) : (size_t)(end - s);
        while (line > n && (s[line - 1] == ' ' || s[line - 1] == '\r')) line--;
        if (line == n && !memcmp(s, mark, n)) return s;
        s = newline ? newline + 1 : end;
    }
    return end;
}

const char *hd_part_next(const char *separator, const char *end, int *line) {
    const char *newline = memchr(separator, '\n', (size_t)(end - separator));
    ++*line;
    return newline ? newline + 1 : end;
}
