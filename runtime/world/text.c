// Text that came from another process. See text.h.
#include "runtime/world/text.h"
#include <string.h>

// The bytes of the character of UTF-8 that begins here and may be printed; 0: there is none. The text ends with a 0,
// which continues no character.
static size_t printable(const unsigned char *c) {
    const size_t n = c[0] < 0x80 ? 1 : c[0] >= 0xc2 && c[0] < 0xe0 ? 2 : c[0] >= 0xe0 && c[0] < 0xf0 ? 3
                     : c[0] >= 0xf0 && c[0] < 0xf5 ? 4 : 0;
    if (n == 1) return c[0] == '\n' || (c[0] >= 0x20 && c[0] != 0x7f);
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    const int overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const int outside = (c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf4 && c[1] >= 0x90); // surrogates, too large
    const int control = c[0] == 0xc2 && c[1] < 0xa0;
    // marks that change the direction of a line: U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069
    const int turns = c[0] == 0xe2 && ((c[1] == 0x80 && ((c[2] | 1) == 0x8f || (c[2] >= 0xaa && c[2] <= 0xae))) ||
                                       (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9));
    return overlong || outside || control || turns ? 0 : n;
}

void hd_text_clean(char *text, size_t size) {
    if (!size) return;
    text[size - 1] = 0;
    for (unsigned char *c = (unsigned char *)text; *c;) {
        const size_t n = printable(c);
        if (!n) *c = '?';
        c += n ? n : 1;
    }
}
