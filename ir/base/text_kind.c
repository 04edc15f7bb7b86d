#include "ir/base/text_kind.h"
#include <stdbool.h>
#include <string.h>

static const struct {
    const char *word;
    TextKind kind;
} words[] = {
    {"model", TEXT_MODEL}, {"module", TEXT_MODEL}, {"fn", TEXT_MODEL},  {"train", TEXT_MODEL}, {"schedule", TEXT_MODEL},
    {"import", TEXT_MODEL}, {"let", TEXT_MODEL},
    {"stage", TEXT_IR},    {"config", TEXT_IR},    {"func", TEXT_IR},   {"kernel", TEXT_IR},   {"param", TEXT_IR},
    {"bucket", TEXT_IR},   {"buffer", TEXT_IR},    {"arena", TEXT_IR},  {"stream", TEXT_IR},   {"comm", TEXT_IR},
    {"step", TEXT_IR},     {"#include", TEXT_C},   {"#define", TEXT_C}, {"typedef", TEXT_C},   {"static", TEXT_C},
};

static size_t skip_blanks(const char *text, size_t len, size_t i) {
    while (i < len && strchr(" \t\r\n", text[i])) i++;
    return i;
}

static size_t skip_comment(const char *text, size_t len, size_t i) { // i itself where none begins
    if (len - i < 2 || text[i] != '/' || (text[i + 1] != '/' && text[i + 1] != '*')) return i;
    const char *end = text[i + 1] == '/' ? "\n" : "*/", *found = strstr(text + i + 2, end);
    return found ? (size_t)(found - text) + strlen(end) : len;
}

static TextKind of_word(const char *text) {
    const size_t n = strcspn(text, " \t\r\n({@\"");
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (strlen(words[k].word) == n && !memcmp(words[k].word, text, n)) return words[k].kind;
    return TEXT_OTHER;
}

static bool has_line(const char *text, TextKind wanted) { // of a text that begins with a word that is mistyped
    while ((text = strchr(text, '\n')))
        if (of_word(++text) == wanted && text[strcspn(text, "@{(\n")] != '\n') return true;
    return false;
}

const char *hd_text_wrong(const char *text, size_t len, TextKind wanted, size_t *at) {
    size_t i = len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    *at = 0;
    if (len >= 4 && text[0] == 0x7f && !memcmp(text + 1, "ELF", 3)) return "this is a compiled program";
    if (memchr(text, 0, len)) return "this is no text: it has a byte that is zero";
    for (size_t next; (next = skip_comment(text, len, skip_blanks(text, len, i))) != i;) i = next;
    const TextKind k = of_word(text + i);
    *at = i;
    if (i == len || k == wanted || (k == TEXT_OTHER && has_line(text + i, wanted))) return NULL;
    if (k == TEXT_IR)
        return "this is IR, not a model: heddle-translate makes a program of a plan, heddle-opt runs passes over any "
               "IR";
    if (k == TEXT_MODEL) return "this is a model, not IR: heddlec compiles it, and prints its IR with --emit=ir";
    if (k == TEXT_C) return "this is C";
    return wanted == TEXT_MODEL ? "this is no model: nothing in it begins with 'model'"
                                : "this is no IR: nothing in it begins with 'stage', 'func' or a symbol";
}
