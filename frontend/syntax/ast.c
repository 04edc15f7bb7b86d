// Building and printing syntax trees. A tree deeper than HD_MAX_NESTING is reported by the parser and never walked, so
// the recursion here and in the lowering is bounded.
#include "frontend/syntax/ast.h"

static const struct { const char *text, *label[4]; } kinds[] = {
#define NODE(id, text, a, b, c, kids) {text, {a, b, c, kids}},
#include "frontend/syntax/ast.def"
};

Node *hd_ast_node(Arena *a, NodeKind kind, Span span) {
    Node *n = HD_NEW(a, Node);
    n->kind = kind;
    n->span = span;
    n->depth = 1;
    return n;
}

static void deepen(Node *n, const Node *kid) {
    if (kid && n->depth <= kid->depth) n->depth = kid->depth + 1;
}

void hd_ast_add(Arena *a, Node *list, Node *kid) {
    if (list->n == list->cap) {
        int cap = list->cap ? list->cap * 2 : 4;
        Node **at = HD_NEWN(a, Node *, cap);
        if (list->n) memcpy(at, list->kids, sizeof *at * (size_t)list->n);
        list->kids = at;
        list->cap = cap;
    }
    list->kids[list->n++] = kid;
    deepen(list, kid);
}

void hd_ast_measure(Node *n) {
    deepen(n, n->a);
    deepen(n, n->b);
    deepen(n, n->c);
    for (int i = 0; i < n->n; i++) deepen(n, n->kids[i]);
}

const char *hd_operator_text(Operator op) {
    static const char *const text[] = {"||", "&&", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "-", "!"};
    return text[op];
}

static void print_head(const Node *n, Out *o) {
    hd_puts(o, kinds[n->kind].text);
    if (n->kind == N_BINARY || n->kind == N_UNARY) hd_printf(o, " %s", hd_operator_text(n->op));
    if (n->name) hd_show(o, " %s", n->name);
    if (n->text) hd_show(o, " = %s", n->text);
    if (n->kind == N_INT) hd_printf(o, " %lld", (long long)n->i);
    if (n->kind == N_FLOAT || n->kind == N_FACTOR) {
        hd_puts(o, " ");
        hd_put_float(o, n->f);
    }
    hd_puts(o, "\n");
}

static void print(const Node *n, const char *label, int indent, Out *o) {
    for (int i = 0; i < indent; i++) hd_puts(o, "  ");
    if (label[0]) hd_printf(o, "%s: ", label);
    print_head(n, o);
    const Node *const child[] = {n->a, n->b, n->c};
    for (int i = 0; i < 3; i++)
        if (child[i]) print(child[i], kinds[n->kind].label[i], indent + 1, o);
    for (int i = 0; i < n->n; i++) print(n->kids[i], "", indent + 1, o);
}

void hd_ast_print(const Node *n, Out *o) { print(n, "", 0, o); }
