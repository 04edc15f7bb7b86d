// The syntax tree: uniform nodes, so that building, printing and measuring are written once. ast.def says what each
// kind holds.
#ifndef FRONTEND_SYNTAX_AST_H
#define FRONTEND_SYNTAX_AST_H
#include "ir/ir.h"

typedef enum {
#define NODE(id, ...) N_##id,
#include "frontend/syntax/ast.def"
    N_NODE_KINDS
} NodeKind;

typedef enum {
    BIN_OR,
    BIN_AND,
    BIN_EQ,
    BIN_NE,
    BIN_LT,
    BIN_LE,
    BIN_GT,
    BIN_GE,
    BIN_ADD,
    BIN_SUB,
    BIN_MUL,
    BIN_DIV,
    BIN_REM,
    UN_NEG,
    UN_NOT
} Operator;

typedef struct Node Node;
struct Node {
    NodeKind kind;
    Operator op;
    int depth;        // of the tree under it, at least 1
    Span span;        // a declaration's is that of its name
    const char *name; // interned
    const char *text; // MEMBER: the module it is made of; AS, TEXT: the text; interned
    union { int64_t i; double f; };
    Node *a, *b, *c;
    int n;
    Node **kids;
    int cap;
};

enum { HD_MAX_NESTING = 250 }; // of syntax trees: every walk over them is recursive

Node *hd_ast_node(Arena *a, NodeKind kind, Span span);
void hd_ast_add(Arena *a, Node *list, Node *kid);
void hd_ast_measure(Node *n); // sets depth from the children, once they are all there
const char *hd_operator_text(Operator op);
void hd_ast_print(const Node *n, Out *o);
#endif
