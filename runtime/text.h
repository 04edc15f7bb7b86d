// Text for terminals and for programs that read JSON. The compiler and the runtime both compile this.
//
// Names of files, words of a plan or a device table, variables of the environment and messages of other processes are
// texts of strangers: whatever they hold, a terminal shows it and obeys none of it, and a string of JSON ends where it
// should. Everything that prints goes through hd_say or hd_text_format.
#ifndef RUNTIME_TEXT_H
#define RUNTIME_TEXT_H
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

// The bytes of the character of UTF-8 that `left` bytes at c begin with; 0: a terminal could take it for a command, or
// it is none. Such characters are control characters, the end of a line and U+0080 to U+009F among them, marks that
// change the direction of a line, and bytes that are not UTF-8.
size_t hd_text_char(const char *c, size_t left);
// Ends the text within `size` bytes, and replaces by '?' every byte that hd_text_char takes for no character.
void hd_text_clean(char *text, size_t size);

typedef void HdTextPut(void *to, const char *text, size_t n);
typedef enum { HD_TEXT_SHOWN, HD_TEXT_JSON } HdTextKind;
// As vprintf, but the strings and characters that `fmt` names are cleaned, or escaped as inside a string of JSON. The
// format itself is ours. It may use widths, precisions and l, ll, z, j and t.
void hd_text_format(HdTextPut *put, void *to, HdTextKind kind, const char *fmt, va_list args);
// To standard error or output.
void hd_say(FILE *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void hd_vsay(FILE *to, const char *fmt, va_list args);
void hd_say_text(FILE *to, const char *text); // lines, which stay; other bytes that are no character are cleaned

enum { HD_JSON_CHAR = 8 };
// A string of JSON holds the characters of the text; a byte that is not UTF-8 is U+FFFD in it. Characters that a
// terminal or the script of a page could take for a command is escaped. The next character: returns its bytes in `out`,
// with a 0 after.
size_t hd_text_json_char(const char **text, char out[HD_JSON_CHAR]);
#endif
