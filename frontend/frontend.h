// The language front end: from the text of a .hd file to an IR module at stage `tensor` with one function @loss, the
// parameters and the configs @model, @train and @schedule. LANGUAGE.md is the reference of the language.
#ifndef FRONTEND_FRONTEND_H
#define FRONTEND_FRONTEND_H
#include "frontend/syntax/ast.h"

typedef struct { const char *text; } SetOption; // KEY=VALUE, as given to --set

// NULL after reporting errors to cx->diags. `text` must outlive the context.
Module *hd_frontend(Ctx *cx, const char *name, const char *text, size_t len, const SetOption *sets, int n_sets);
// The same for a part of a split file whose first line has this number.
Module *hd_frontend_part(Ctx *cx, const char *name, const char *text, size_t len, int first_line, const SetOption *sets,
                         int n_sets);
// The syntax tree alone, for --emit=ast; NULL after reporting syntax errors.
const Node *hd_frontend_ast(Ctx *cx, const char *name, const char *text, size_t len, int first_line);
#endif
