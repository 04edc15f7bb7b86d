// Declarations that the files of the lowering share: the values an expression may have, the instances of modules, the
// frames of function calls. Lowering is interpretation: module instances are made first (elaborate.c), then `loss` is
// called once and every tensor operation it meets becomes an op (lower.c). All numbers are known at compile time.
#ifndef FRONTEND_MODEL_SEMA_H
#define FRONTEND_MODEL_SEMA_H
#include "frontend/syntax/ast.h"
#include "frontend/frontend.h"
#include "frontend/model/names.h"
#include "ir/mesh.h"

typedef struct Instance Instance;
typedef enum {
    VAL_BAD,
    VAL_INT,
    VAL_FLOAT,
    VAL_TEXT,
    VAL_LIST,
    VAL_TENSOR,
    VAL_INSTANCE,
    VAL_REPEAT,
    VAL_FN
} ValKind; // BAD: already reported
typedef struct Val Val;
struct Val {
    ValKind kind;
    bool inexact;         // FLOAT: made by an integer division with a remainder, num / den
    int n;                // TEXT, LIST and REPEAT: how many
    Axes over;            // INT: a dimension of that size is split over these axes
    union {
        int64_t i;
        double f;
        const char *text; // interned
        Value *tensor;
        const Val *list;
        Instance *instance;
        Instance **repeat;
    };
    union {
        const Node *fn;
        struct {
            int64_t num, den;
        };
    }; // FN: of `instance`, which is NULL for a function of the file
};

typedef struct { const char *name; Val value; Span span; } Binding;
typedef struct { VEC(Binding) list; NameIndex names; } Bindings;

typedef struct { Binding binding; int64_t count; } RepeatIndex; // i and n of `repeat(i < n)`

typedef struct {
    const char *name;
    const Node *decl;
    Val value;
    Symbol *param;
} Member; // `param`: a parameter, else `value`

struct Instance { // of a module, or of the model (path "")
    const char *path; // blocks.3.attn
    const Node *decl;
    Instance *lexical; // the instance whose declaration contains `decl`; NULL for a module of the file
    Instance *parent;  // the instance it is a member of
    const char *as;    // its name in files of weights; NULL: it has none
    int number;        // among those of the innermost repeated module around it; -1: there is none
    const char *unit;  // innermost enclosing unit, or "root"
    Bindings args;
    VEC(Member) members;
    NameIndex member_names;
};

typedef VEC(Instance *) Instances;

typedef struct Frame Frame;
struct Frame { // one call of a function
    Frame *caller;
    Instance *instance; // NULL: a function of the file
    const Node *fn;
    Span call;
    const char *path;   // of the ops made now: the instance's, and within `let a = ...` that and ".a"
    Bindings locals;
};

// of functions and constants, and of modules: names to numbers of items
typedef struct { PtrMap values, modules; } Items;

typedef struct { double lo, hi; } Range; // both may be
typedef struct { const char *name; Span span; Value *value; } Result; // a further one of the loss, for the log

typedef struct SourceFile SourceFile; // files.c

typedef struct Front {
    Ctx *cx;
    Arena *arena;
    Arena *scratch; // of calls: rewound when they end
    Module *module;
    const char *file;        // the one that is compiled
    VEC(SourceFile *) files; // ... and what it imports; spans outside them are in the prelude or in a --set
    const Node *user, *prelude, *model; // user: what all files declare
    Items user_items, prelude_items;
    Bindings constants;  // of all files
    int64_t batch;
    int64_t n_sites; // dropouts so far
    Instance *root;
    Instances instances; // all of them, in the order of declaration
    VEC(Instances) types; // those of one module's name; in the order of the first of each
    PtrMap type_numbers;  // names of modules to numbers of `types`
    PtrMap computed;           // places with ops in them, once a list of the schedule asks; values mean nothing
    VEC(Symbol *) params;
    PtrMap params_in_files; // their names in files of weights
    Func *func;
    const Node *loss; // the function, once it is called
    VEC(Result) results; // of the loss
    Frame *frame;
    Span use;     // the user's text that is being elaborated
    const RepeatIndex *index; // while arguments of a repeated instance are evaluated; NULL: it has none
    bool stop;    // a limit was passed: every evaluation ends at once
    bool unwind;  // a recursion without end: evaluations end at once, up to the statement of 'loss' that began it
    int depth;    // of active evaluations
    int64_t steps; // evaluations so far
    PtrMap range_of;       // results of i32 arithmetic to numbers of `ranges`
    VEC(Range) ranges;
    Symbol *updated;       // the buffer whose update is being lowered: f->func is its kernel; NULL: none
    Func *outer;           // the function around it
    int totals;            // total(...) in it so far
    Symbol *counted;       // what dispatch counts; NULL: nothing so far
    struct Settings *settings;
    VEC(const Node *) groups; // of the optimizer, in their order
    const Node *optimizer; // its text
    const struct OwnOptimizer *own; // the settings of a group whose optimizer is being lowered; NULL: the default's
} Front;

enum {
    MAX_INSTANCES = 30000,
    MAX_STEPS = 5000000,
    MAX_DEPTH = 1200,
    MAX_CALLS = 64,
    MAX_MODULE_DEPTH = 64,
    MAX_RESULTS = 16
};

// --- frontend.c: errors. A place in the prelude is reported where the user's text calls it; each message is given
// once.
bool hd_front_error(Front *f, Span s, const char *fmt, ...) __attribute__((format(printf, 3, 4))); // returns false
Val hd_front_bad(Front *f, Span s, const char *fmt, ...) __attribute__((format(printf, 3, 4)));    // returns BAD
Span hd_front_site(const Front *f, Span s); // the place in the user's text
const char *hd_front_text(Front *f, Span s); // as written, in one line
// counts one evaluation and one level of depth; false (reported) beyond the limits
bool hd_front_enter(Front *f, Span s);
void hd_front_leave(Front *f);

// --- files.c: the user's text, with what it imports
bool hd_front_read(Front *f, const char *text, size_t len, int first_line); // false after reporting
bool hd_front_in_user(const Front *f, Span s);
bool hd_front_one_file(const Front *f, Span a, Span b); // whether both are in the same
Loc hd_front_loc(const Front *f, const char *path, Span s);

// --- scalar.c: numbers known at compile time
Val hd_val_int(int64_t i);
Val hd_val_float(double v);
bool hd_val_is_number(Val v);
double hd_val_number(Val v);
const char *hd_val_text(Front *f, Val v); // "the integer 3", "a tensor f32[8,64]", ...
Val hd_scalar_binary(Front *f, Span s, Operator op, Val l, Val r);
Val hd_scalar_unary(Front *f, Span s, Operator op, Val v);
bool hd_scalar_op(OpKind k, int n, const Val *args, Val *result); // an elementwise op on n numbers
bool hd_val_truth(Front *f, Span s, Val v, bool *truth);

// --- sequence.c: text and lists known at compile time
Val hd_val_word(Front *f, const char *text);
bool hd_val_is_constant(Val v); // a number, text, or a list of these
Val hd_sequence_index(Front *f, Instance *scope, const Node *n);
bool hd_sequence_binary(Front *f, Span s, Operator op, Val l, Val r, Val *result); // false: no operation on these

// --- bind.c: arguments to formals
typedef struct { const char *name; bool optional; } Formal;
// Puts argument i of `args` (positional, then NAMED) at slots[k] of its formal. false after reporting.
bool hd_bind(Front *f, Span call, const char *what, int n, const Formal *formals, int n_args, Node *const *args,
             const Node **slots);
bool hd_bind_declared(Front *f, Span call, const char *what, const Node *formals, int n_args, Node *const *args,
                      const Node **slots);

// --- unknown.c
Val hd_unknown(Front *f, const Instance *scope, const Node *n); // a name that nothing has: an error
const char *hd_other_branch(Front *f, const Instance *i, const char *name); // that the instance did not take; ""
const char *hd_hidden_builtin(Front *f, const Instance *scope, const Node *callee); // by a value; "": it is no builtin

// --- suggest.c
// Where a value stands in another argument's place: "; the order of arguments is fn(a, b)".
const char *hd_order_hint(Front *f, const char *fn, int n, const Formal *formals);
const char *hd_suggest(Front *f, const char *wrong, const Names *names); // "; did you mean 'x'?" or ""
const char *hd_suggest_value(Front *f, const char *wrong, const Names *names); // of an expression
const char *hd_suggest_argument(Front *f, const char *wrong, const Names *names);
const char *hd_suggest_setting(Front *f, const char *path); // by a name of another program; NULL: it is none
bool hd_in_words(const char *word, const char *words); // separated by spaces
// One of `choices` that another program calls so; NULL: none.
const char *hd_suggest_choice(const char *word, const char *choices);
const char *hd_suggest_method(Front *f, const char *name); // x.name of a tensor: as a function of x
const char *hd_setting_called(const char *end);
const char *hd_list_names(Front *f, const Names *names);                 // "a, b, c"

// --- names.c: what a file declares, arguments, and values of a call
void hd_bindings_add(Arena *a, Bindings *to, Binding b);
void hd_bindings_cut(Arena *a, Bindings *to, int n); // only the first n stay
const Binding *hd_bindings_find(const Bindings *of, const char *name);
int hd_items_add(Arena *a, Items *items, const Node *file, int k); // the first item of that name before it, or -1
bool hd_constants(Front *f); // constants.c: evaluates them
// FN, LET or MODULE, of a file or the prelude
const Node *hd_find_item(const Front *f, NodeKind kind, const char *name);

// --- elaborate.c: instances and parameters
Val hd_find_arg(Front *f, const Instance *i, const char *name, bool *found); // arguments, outwards
Member *hd_find_member(const Instance *i, const char *name);
bool hd_elaborate(Front *f);
bool hd_set_init(Front *f, Instance *i, Symbol *s, const Node *init); // initialisers.c: of a parameter of that instance
bool hd_bind_model_args(Front *f, Node *const *sets, int n_sets);

// --- lower.c: expressions and functions
Val hd_lower_expr(Front *f, Instance *scope, const Node *n); // outside of functions `scope` gives the names
// does the file give the name another meaning here?
bool hd_lower_hidden(Front *f, const Instance *scope, const char *name);
bool hd_lower_int(Front *f, Instance *scope, const Node *n, const char *what, int64_t *i);
Val hd_lower_given(Front *f, Instance *scope, const Node *n); // an argument of a module: it may say `over AXIS`
// An integer that may say `over AXIS`, itself or as the argument that it names. *over: these axes, unless NULL.
bool hd_lower_size(Front *f, Instance *scope, const Node *n, const char *what, int64_t *i, Axes *over);
const Type *hd_lower_type(Front *f, Instance *scope, const Node *dims, DType dt, const char *what);
bool hd_lower_loss(Front *f);
// results.c: a value that a `return` gives with a name; and the return of the loss with those of them that it has
bool hd_lower_result(Front *f, const Node *n);
Op *hd_lower_results(Front *f, Value *loss);
// An argument of f->func, as a function of the model that a program runs declares it; `of`: that function's name.
Val hd_lower_argument(Front *f, const Node *formal, const char *of);
Val hd_lower_call(Front *f, const Node *fn, const Val *args); // a function of a file
Val hd_lower_call_of_model(Front *f, const Node *fn, const Val *args); // a function of the model itself
bool hd_lower_logits(Front *f); // logits.c: @logits, where the schedule asks for it
bool hd_lower_calls(Front *f);  // calls.c: those of schedule.functions
// A function of the model becomes one of the module, beside the loss, with batch = 1.
typedef bool LowerApart(Front *f, const Node *fn, const Func *loss);
bool hd_lower_apart(Front *f, const Node *fn, const char *name, KindId kind, LowerApart *lower);
bool hd_settings_optimizer(Front *f); // whether it takes what was set
bool hd_optimizer_takes(const Front *f, const char *setting);
bool hd_lower_optimizer(Front *f); // optimizers.c: the kernel of train.optimizer
bool hd_lower_update(Front *f, const Node *n); // updates.c: the statement `update`
Val hd_lower_total(Front *f, Instance *scope, const Node *call); // ... and total(x) in it
bool hd_updates_may_read(Front *f, Span s, int n, Value *const *in); // operands of an op; outside of updates: any
Val hd_updates_member(Front *f, Span use, const Symbol *param); // a parameter or buffer by name, in an update
bool hd_updates_happen(const Front *f); // in what is lowered now: a loss
// Adds f32[1] to the number of that name which a run reports after each step.
bool hd_updates_count(Front *f, Span s, const char *name, Value *v);
bool hd_updates_check(Front *f);               // every buffer has one
void hd_optimizer_keep(Front *f, Span s, int n, Value **out); // optimizers.c: with on_nan = skip
// The result of a function of the model that has no arguments. false: it has none of that name, or after reporting.
bool hd_lower_constant(Front *f, const char *name, const Node **fn, Val *v);

// --- patterns of names: groups.c
// A pattern of letters, digits, '_', '.' and '*', from a text in quotes or a path; NULL: it is none.
const char *hd_pattern(Front *f, const Node *n);
bool hd_pattern_fits(const char *pattern, const char *text);
// Whether a pattern names a parameter, or a module that it is in.
bool hd_pattern_names(Front *f, const char *pattern, const Symbol *p);

// --- frozen.c
bool hd_frozen_apply(Front *f); // marks the parameters that train.frozen names, and says in config @train which are

Func *hd_share_kernel(Front *f, Func *k); // updates.c: the first kernel of kind optimizer that does the same; drops k

// --- optimizers.c: of a group that has one of its own
typedef struct OwnOptimizer {
    double momentum, nesterov;
    const char *rate_for, *precision; // attributes of orthogonalize
    double beta2_decay, eps1, eps2, d;
} OwnOptimizer;
bool hd_is_own_optimizer(const char *name); // a group may have it, and not a whole model
// That of parameters of so many axes; one for all groups that do the same. NULL: it updates no such parameters.
Func *hd_lower_own_optimizer(Front *f, const char *name, int rank, const OwnOptimizer *own);
Val hd_lower_own_call(Front *f, Instance *scope, const Node *call); // of its functions; VAL_BAD: it is none of them

// --- groups.c
bool hd_groups_apply(Front *f); // sets what the optimizer's groups say of their parameters

// --- emit.c: ops
// result 0; NULL after reporting
Value *hd_emit(Front *f, Span s, OpKind k, int n, Value *const *in, const Attrs *attrs, const Type *declared);
Value *hd_emit_const(Front *f, Span s, double v, const Type *t);
Value *hd_emit_tensor(Front *f, Span s, Val v);          // a tensor, or a number as a constant
Val hd_emit_elementwise(Front *f, Span s, OpKind k, int n, const Val *args);
// integers.c: on i32 tensors; numbers may be among the operands
bool hd_integers(int n, const Val *args); // one is an i32 tensor
Val hd_emit_integers(Front *f, Span s, OpKind k, int n, const Val *args);
Val hd_emit_remainder(Front *f, Span s, Val a, Val b);
Val hd_emit_float(Front *f, Span s, Val v); // of a tensor: as f32
// loss_shares.c: f32 like the targets, which add up to 1 or are all 0. ignored: a number; NULL, as weights: none
Val hd_loss_shares(Front *f, Span s, Val targets, const Val *ignored, const Val *weights);
bool hd_has_kind(char kind, Val v);  // argument_kinds.c: kinds of builtins.def
const char *hd_kind_text(char kind); // "a number"

// --- builtins.c
bool hd_builtin_exists(const char *name);
Val hd_builtin_call(Front *f, Instance *scope, const char *name, const Node *call);
void hd_builtin_names(Front *f, Names *names);

// --- facts.c, hub.c
void hd_facts_emit(Front *f); // config @model, once @loss is there
void hd_facts_bounds(Front *f); // of the arguments of f->func, a function that a program runs by name
void hd_hub_emit(Front *f);   // ... and config.json of Hugging Face, where the model has `fn huggingface()`

// --- settings.c, paths.c: train and schedule
struct Settings *hd_settings_read(Front *f, Node *const *sets, int n_sets);
void hd_settings_emit(Front *f);
bool hd_settings_above(const Front *f, AttrId setting); // a number above 0
int64_t hd_settings_batch(const Front *f);
const char *hd_settings_word(const Front *f, AttrId setting);
double hd_settings_number(const Front *f, const char *name); // of train.optimizer; beta1 and beta2: those of betas
typedef VEC(const Node *) Paths;
const Paths *hd_settings_units(const Front *f);
bool hd_setting_names(const char *path, size_t n); // whether that setting is names or patterns of parameters
const Paths *hd_settings_paths(const Front *f, AttrId list); // of the schedule, as written
void hd_paths_units(Front *f);
void hd_paths_places(Front *f, AttrId list, NameIndex *places); // what a list of the schedule means, each place once
// the instances at which what `recompute` lists is cut: those whose paths end with no number, each once
void hd_paths_borders(Front *f, NameIndex *borders);
void hd_paths_check(Front *f);                              // no place is in two lists that exclude each other
const char *hd_settings_given(const Front *f, AttrId setting, Span *at);
void hd_effects_warn(Front *f, const Attrs *train, const Attrs *schedule); // effect.c
void hd_layers_emit(Front *f, Attrs *schedule); // layers.c
bool hd_path_is_condition(const Node *index); // Layer[kind == "M"]: the instances whose arguments fulfil it
// a.b[0..3].c of names, dots and indices; NULL when it is not such a path, or after reporting a wrong index
const char *hd_path_text(Front *f, const Node *path);
bool hd_path_index(Front *f, const Node *index, int64_t *first, int64_t *last); // no last: INT64_MAX
#endif
