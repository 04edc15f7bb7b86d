// From text to syntax tree. `lex.l` and `parse.y` share the Parser; everyone else calls hd_parse_source.
#ifndef FRONTEND_SYNTAX_PARSER_H
#define FRONTEND_SYNTAX_PARSER_H
#include "frontend/syntax/ast.h"

typedef enum { PARSE_FILE, PARSE_SET } ParseWhat; // a source file; the KEY=VALUE of a --set option

typedef struct Parser {
    Ctx *cx;
    Arena *arena;
    ParseWhat what;
    const char *text;
    bool started;       // the token for this choice was handed out
    uint32_t base, pos; // of the source; bytes scanned
    uint32_t comment;   // where the open /* is
    int errors;
    bool too_deep, cut; // reported: nested too deep, ends within a comment
    void *scanner;
    Node *result;
} Parser;

// The tree of a text, or NULL after reporting every syntax error. The text becomes a source called `name`.
Node *hd_parse_source(Ctx *cx, ParseWhat what, const char *name, const char *text, size_t len, int first_line);

void hd_parse_error(Parser *p, Span s, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#endif
