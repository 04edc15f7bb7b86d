// Declarations that the rules of the language's functions share (builtins.c and builtins_*.c).
#ifndef FRONTEND_BUILTINS_BUILTINS_H
#define FRONTEND_BUILTINS_BUILTINS_H
#include "frontend/model/sema.h"

enum { MAX_FORMALS = 12 };
typedef struct { // a call: values by formal, BAD where absent
    Span span;
    const Instance *scope;
    const Node *nodes[MAX_FORMALS];
    Val v[MAX_FORMALS];
} BoundArgs;

static const Val bad = {0};

static inline Val tensor(Value *v) { return v ? (Val){.kind = VAL_TENSOR, .tensor = v} : bad; }
static inline bool given(const BoundArgs *a, int k) { return a->nodes[k] != NULL; }
static inline const Type *type_at(const BoundArgs *a, int k) { return a->v[k].tensor->type; }

// builtins_sequences.c
void hd_dropout_attrs(Front *f, const BoundArgs *a, int k, Attrs *attrs);
Val hd_call_positions(Front *f, BoundArgs *a);
Val hd_call_attention(Front *f, BoundArgs *a);
Val hd_call_conv1d(Front *f, BoundArgs *a);
Val hd_call_ssd(Front *f, BoundArgs *a);

// builtins_experts.c
Val hd_call_top_k(Front *f, BoundArgs *a);
Val hd_call_one_hot(Front *f, BoundArgs *a);
Val hd_call_take(Front *f, BoundArgs *a);
Val hd_call_dispatch(Front *f, BoundArgs *a);
Val hd_call_grouped(Front *f, BoundArgs *a);
Val hd_call_combine(Front *f, BoundArgs *a);
Val hd_call_total(Front *f, BoundArgs *a); // updates.c lowers it where it belongs
#endif
