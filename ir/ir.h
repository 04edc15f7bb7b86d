// The IR: a module of symbols (parameters, buckets, buffers, configuration) and functions; a function is a flat list of
// ops in SSA form. One structure serves every stage; `heddle-opt --list-ops` says which op may occur where. Fields are
// public to read; change them through the functions below. Everything lives on Ctx.arena.
#ifndef IR_IR_H
#define IR_IR_H
#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/out.h"
#include "ir/base/vec.h"

typedef enum {
#define DTYPE(id, ...) TY_##id,
#include "runtime/dtypes.def"
    N_DTYPES
} DType;

typedef enum {
#define ATTR(id, text, kind, doc) A_##id,
#include "ir/attrs.def"
    N_ATTRS
} AttrId;

typedef enum { AK_FLAG, AK_INT, AK_FLOAT, AK_WORD, AK_STR, AK_SYM, AK_INTS, AK_FLOATS, AK_WORDS, AK_SYMS } AttrKind;

typedef enum {
#define ELT(id, ...) OP_##id,
#define OP(id, ...) OP_##id,
#include "ir/ops.def"
    N_OPS
} OpKind;

typedef enum {
#define SYMBOL(id, ...) SYM_##id,
#include "ir/symbols.def"
    N_SYMBOL_KINDS
} SymbolKind;

typedef enum {
    KIND_NONE,
#define KIND(id, text, of, doc) KIND_##id,
#include "ir/kinds.def"
    N_KINDS
} KindId;

typedef enum { STAGE_TENSOR, STAGE_SHARDED, STAGE_KERNELS, STAGE_PLAN, N_STAGES } Stage;

typedef enum {
#define SPACE(id, text, doc) SPACE_##id,
#include "ir/spaces.def"
    N_SPACES
} Space;

enum {
#define TRAIT(id, text, doc) TRAIT_BIT_##id,
#include "ir/traits.def"
};
__extension__ enum { // traits of ops: a bit of 64 each
#define TRAIT(id, text, doc) TRAIT_##id = 1ll << TRAIT_BIT_##id,
#include "ir/traits.def"
    TRAIT_SYNC = TRAIT_RECORDS | TRAIT_WAITS | TRAIT_OPENS | TRAIT_CLOSES
};
typedef enum {
#define ROLE(id, text) ROLE_##id,
#include "ir/roles.def"
    N_ROLES
} Role;
enum { HD_MAX_DIMS = 6, HD_MAX_OUT = 8, HD_MAX_IN = 64, HD_MAX_ROLES = 8 };
enum { HD_COUNTS = 3 }; // numbers of each place of `counted`
enum { // orders of summation that are part of what a plan means: they size workspaces, and both targets add in them
    HD_LEAST_PARTIAL_ROWS = 8, HD_MOST_PARTIAL_ROWS = 64, // column sums: see hd_partial_rows
    // Cumulative sums: ((t + g) + r) + s, with s over the run of so many elements that the element is in, r over the
    // earlier runs of its group of as many, g over the earlier groups of its tile of as many, t over the earlier tiles.
    HD_SCAN_RUN = 16,
    HD_CONV_RUN = 512,    // conv1d_grad: the positions whose terms of the gradients of taps and bias are one sum
    HD_NORM_BLOCK = 4096  // gradient norm: sums of so many consecutive elements, then the sums in order
};

typedef struct Type {
    DType dtype;
    int rank;
    int64_t dim[HD_MAX_DIMS];
} Type; // interned: equal types are equal pointers
typedef uint64_t Layout; // how it is spread over the axes of the mesh: see layout.h; 0: whole

typedef struct { // one attribute; lists hold n elements
    AttrId id;
    int n;
    union { int64_t i; double f; const char *s; const int64_t *ints; const double *floats; const char *const *strs; };
} Attr;
typedef struct { int n, cap; Attr *at; } Attrs; // sorted by id

typedef struct {
    bool placed;
    Space space;
    int64_t offset;
} Place; // a byte offset in the arena of its space
typedef struct {
    const char *path, *file;
    int line;
} Loc; // model instance (blocks.3.attn) and source line; NULL, NULL, 0: none

typedef struct Op Op;
typedef struct Func Func;
typedef struct Module Module;

typedef struct Symbol Symbol;
typedef struct Value {
    const Type *type; // what one rank holds, and
    Layout layout;    // how the whole is made of it: said at the tensor stage only
    Op *def;          // NULL for an argument
    Func *func;
    const char *name; // arguments only
    int id;           // dense in the function: analyses are arrays indexed by it
    int index;        // which result or argument
    Place place;
    // A result that the op writes to a buffer, from element `at` on: no op reads it, and the text has no name for it.
    // NULL: any other value.
    const Symbol *into;
    int64_t at;
} Value;

struct Op {
    OpKind kind;
    int id; // dense in the function
    int n_in, n_out;
    Value **in, **out;
    Attrs attrs;
    const char *stream; // plan: the stream it runs on
    Loc loc;
    Span span; // its place in the text it was parsed from, for diagnostics
    Func *func;
    Op *prev, *next;
};

struct Func {
    const char *name; // without @
    bool is_kernel;   // `kernel @k`: the body of a launch
    int n_args, n_values, n_ops;
    Value **args;
    Attrs attrs;
    Op *first, *last;
    Span span;
    Module *module;
    Func *next, *chain; // in the module's table
};

struct Symbol {
    SymbolKind kind;
    const char *name;
    const Type *type; // NULL where there is none
    Layout layout;    // of a parameter, a bucket, a buffer
    int id;           // dense in the module: analyses are arrays indexed by it
    Attrs attrs;
    Place place;
    Loc loc;
    Span span;
    Symbol *next, *chain;
};

typedef struct Ctx Ctx; // strings, types and diagnostics: one for a compilation

struct Module {
    Ctx *cx;
    Stage stage;
    Symbol *symbols, *last_symbol;
    Func *funcs, *last_func;
    int n_symbols, n_slots;
    Symbol **table; // by name: n_slots chains, a power of two that grows with the symbols
    Symbol **recent; // found last, by the address of the name: a symbol's own name is found without reading it
    int n_funcs, n_func_slots;
    Func **func_table; // likewise
    const struct PlanProof *proof; // of verify-plan, until another pass runs; NULL: none
};

// --- context, strings, types
struct Ctx {
    Arena *arena;
    Diags diags;
    struct Interned *strings;
    struct TypeTable *types;
    const char *device_path; // --device-model, or NULL; see hd_model
    int64_t max_ops; // of a module: --max-ops; see base/limits.h
    const struct DeviceModel *device;
    bool device_read;
    const Ctx *outer;                   // whose strings and types this one has as well, or NULL
    bool allow_other_program;           // --allow-other-program
    const struct TermSet *model_terms;  // of the program that this process has compiled, or NULL; see program.h
};
Ctx *hd_ctx_new(void);
// A context for copies of modules that are thrown away: it has the strings and types of `outer`, which must not get
// new ones as long as this one lives, and diagnostics that nobody prints.
Ctx *hd_ctx_within(const Ctx *outer);
void hd_ctx_free(Ctx *cx);
const char *hd_intern(Ctx *cx, const char *s); // equal strings are equal pointers
const char *hd_intern_part(Ctx *cx, const char *s, size_t n); // its first n characters
const char *hd_internf(Ctx *cx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool hd_error(Ctx *cx, Span s, const char *fmt, ...) __attribute__((format(printf, 3, 4))); // false
void hd_warning(Ctx *cx, Span s, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void hd_note(Ctx *cx, Span s, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// NULL when rank or a dimension is out of range or the bytes exceed 2^60. Zero dimensions are allowed.
const Type *hd_type(Ctx *cx, DType dt, int rank, const int64_t *dim);
const Type *hd_type_with(Ctx *cx, DType dt, const Type *shape); // the shape of one type with another dtype
int64_t hd_type_count(const Type *t);                           // elements
int64_t hd_type_bytes(const Type *t);
int64_t hd_type_rows(const Type *t); // product of all dimensions but the last (1 for rank 0 and 1)
int64_t hd_type_cols(const Type *t); // the last dimension (1 for rank 0)
const char *hd_type_text(Ctx *cx, const Type *t);
typedef struct { // a row of runtime/dtypes.def
    const char *text;
    int bytes, mantissa, exponent;
    double largest;
    bool saturates;
    DType computed, rate;
    const char *constant, *c, *cuda; // "HD_BF16", "uint16_t", "bf16"
} DTypeInfo;
const DTypeInfo *hd_dtype_info(DType d);
static inline const char *hd_dtype_text(DType d) { return hd_dtype_info(d)->text; }
static inline int hd_dtype_bytes(DType d) { return hd_dtype_info(d)->bytes; }
static inline bool hd_dtype_is_float(DType d) { return hd_dtype_info(d)->exponent > 0; }
static inline DType hd_dtype_computed(DType d) { return hd_dtype_info(d)->computed; }
static inline bool hd_dtype_in_f32(DType d) { return hd_dtype_is_float(d) && hd_dtype_computed(d) == TY_F32; }
static inline bool hd_dtype_is_narrow(DType d) { return hd_dtype_in_f32(d) && d != TY_F32; } // its stores round f32
static inline bool hd_dtype_is_half(DType d) { return hd_dtype_is_narrow(d) && hd_dtype_bytes(d) == 2; }
static inline bool hd_dtype_is_fp8(DType d) { return hd_dtype_is_narrow(d) && hd_dtype_bytes(d) == 1; }
bool hd_dtype_parse(const char *text, DType *d);
// numpy; dtype of a; NULL when the shapes do not fit
const Type *hd_type_broadcast(Ctx *cx, const Type *a, const Type *b);

// --- tables
typedef struct {
    enum { OPERAND_NONE, OPERAND_ALWAYS, OPERAND_WITH } is; // WITH: where the op has the attribute `with`
    Role role;
    AttrId with;
} OpOperand;
typedef struct {
    const char *mnemonic;
    int n_in, n_out; // -1: any number
    const char *attrs;
    unsigned stages; // bit 1 << Stage
    uint64_t traits;
    const char *classes;     // of operands and results, as in ops.def; NULL: nothing but data
    bool row, map;           // kernels of kind rows can compute it; kernels of kind map
    bool chosen;             // its results are kept, never recomputed
    const char *meaning;     // ELEMENTWISE: C text over a, b, c; else NULL
    int flops;               // ELEMENTWISE: per element
    OpOperand operands[HD_MAX_ROLES + 1]; // by role; after the last one NONE
    const char *doc;
} OpInfo;
extern const OpInfo hd_op_table[N_OPS];
static inline const OpInfo *hd_op_info(OpKind k) { return &hd_op_table[k]; }
bool hd_op_find(const char *mnemonic, OpKind *k);
// The letter of operand i, and of v among the results of its op (see ops.def); 'd' where the row names none.
char hd_operand_class(const Op *o, int i);
char hd_result_class(const Value *v);
char hd_class_of_result(OpKind k, int i);
bool hd_in_parts(const Op *o); // slice and concat: its rows have those of several values, one after another
int hd_operand_of(const Op *o, Role r); // which operand has this role; -1: none
const char *hd_role_text(Role r);
bool hd_is_action(const Op *o); // of a plan: the program does something for it
static inline bool hd_op_is(const Op *o, uint64_t trait) { return (hd_op_info(o->kind)->traits & trait) != 0; }
typedef struct { OpKind inverse; bool gathers, exchanges, compares, sums; } CollectiveInfo; // a row of collectives.def
const CollectiveInfo *hd_collective(const Op *o); // NULL: it is none
bool hd_exchanges(const Op *o); // a sum of which each rank receives the parts before it adds them up
// The value whose bytes v has: an alias moves nothing.
static inline Value *hd_unaliased(const Value *v) {
    while (v->def && v->def->n_in && hd_op_is(v->def, TRAIT_ALIAS)) v = v->def->in[0];
    return (Value *)v;
}
static inline bool hd_gathers(const Op *o) { return hd_op_is(o, TRAIT_COLLECTIVE) && hd_collective(o)->gathers; }
typedef struct { const char *text; AttrKind kind; const char *doc; } AttrInfo;
const AttrInfo *hd_attr_info(AttrId a);
bool hd_attr_find(const char *text, AttrId *a);
const char *hd_space_text(Space s);
bool hd_space_parse(const char *text, Space *s);
Space hd_space(const Attrs *as); // what `space` says; absent: the device
enum { USE_READ = 1, USE_WRITE = 2, USE_ORDER = 4, USE_RESULT = 8 }; // of buffers, by ops (see operands.def)
unsigned hd_operand_uses(AttrId a); // 0: the attribute of an op names no buffer
int hd_names(const Attr *a, const char *const **names); // of a SYM or SYMS: how many, and which
// 0: not allowed, 1: optional, 2: required, by a list as in ops.def.
int hd_attr_allowed(const char *list, AttrId a);
const char *hd_symbol_keyword(SymbolKind k);
const char *hd_symbol_attrs(SymbolKind k);
const char *hd_stage_text(Stage s);
KindId hd_kind(const Attrs *as);                       // what the attribute `kind` says; NONE: nothing that is known
void hd_set_kind(Ctx *cx, Attrs *as, KindId k);
bool hd_kind_fits(const Attrs *as, const char *of);  // a kind of that keyword's, or none at all
bool hd_is_pure(const Op *o);                        // PURE or gemm, and writes to no buffer

// --- attributes (of op->attrs, func->attrs, symbol->attrs)
const Attr *hd_attr(const Attrs *as, AttrId id); // NULL: absent
bool hd_has(const Attrs *as, AttrId id);
int64_t hd_int(const Attrs *as, AttrId id, int64_t otherwise);
double hd_float(const Attrs *as, AttrId id, double otherwise);
const char *hd_word(const Attrs *as, AttrId id, const char *otherwise); // WORD, STR and SYM (the name without @)
void hd_set_flag(Ctx *cx, Attrs *as, AttrId id);
void hd_set_int(Ctx *cx, Attrs *as, AttrId id, int64_t v);
void hd_set_float(Ctx *cx, Attrs *as, AttrId id, double v);
void hd_set_word(Ctx *cx, Attrs *as, AttrId id, const char *s); // WORD, STR and SYM
void hd_set_ints(Ctx *cx, Attrs *as, AttrId id, int n, const int64_t *v);
void hd_set_floats(Ctx *cx, Attrs *as, AttrId id, int n, const double *v);
void hd_set_words(Ctx *cx, Attrs *as, AttrId id, int n, const char *const *v); // WORDS and SYMS
void hd_set_attr(Ctx *cx, Attrs *as, const Attr *a);
void hd_unset(Attrs *as, AttrId id);
Attrs hd_attrs_copy(Ctx *cx, const Attrs *as);
bool hd_attrs_equal(const Attrs *a, const Attrs *b);

// --- modules
Module *hd_module_new(Ctx *cx, Stage stage);
Module *hd_module_clone(Ctx *cx, const Module *m); // cx: that of m, or one within it
Symbol *hd_symbol_add(Module *m, SymbolKind kind, const char *name, const Type *type); // NULL when the name is taken
Symbol *hd_symbol_find(const Module *m, const char *name);
Symbol *hd_named(const Op *o, AttrId a); // the symbol that an attribute of an op names; NULL: none
const Symbol *hd_state(const Module *m, const Attrs *as, int i); // number i of `states`; NULL: there are fewer
// of param and grad: parameter i of those that the op names, in the order of their rows; NULL: it names fewer
const Symbol *hd_op_param(const Op *o, int i);
const Symbol *hd_param_read(const Op *o, int i);  // the same; NULL too where o is no `param`, or NULL
const Symbol *hd_param_added(const Op *o, int i); // the same; NULL too where o is no `grad`, or NULL
enum { HD_SCALE_STRIDE = 4 }; // from one scale of a tensor to the next: products read each at a multiple of 16 bytes
// First element and end of each tensor of the bucket of a buffer; NULL: it has none.
const Attr *hd_tensors(const Module *m, const Symbol *buffer);
int64_t hd_elements_each(const Symbol *buffer); // of its bucket, by element of the buffer: a scale is that of a row
Symbol *hd_space_arena(const Module *m, Space s); // the arena of a space; NULL: there is none
Symbol *hd_config(Module *m, const char *name); // the config symbol of that name, made when absent
Func *hd_func_add(Module *m, const char *name, bool is_kernel); // NULL when the name is taken
Func *hd_func_find(const Module *m, const char *name);
Func *hd_launched(const Op *o); // the kernel that a launch runs; NULL: no launch, or the module has none of that name
// An identifier for a kernel: its name, then its row op or else its last pointwise ops.
const char *hd_kernel_text(Arena *a, const Func *k);
int64_t hd_count_ops(const Module *m); // of all functions
const char *hd_grown(const Module *m, Arena *a); // ", 400 of them in blocks": the member of the model that has most
// false after an error when the module has more than cx->max_ops, or values of more than 2^60 bytes together. `who`
// made them: "pass 'fuse'".
bool hd_check_ops(const Module *m, const char *who);
// NULL: there is none. false: after the error about a second one.
bool hd_func_of_kind(const Module *m, KindId k, Func **f);
const Symbol *hd_step(const Module *m, KindId k);          // the step of that kind, or NULL
// Segment i of a step and how often it runs; NULL after the last one, and where there is no step. `times` may be NULL.
Func *hd_segment(const Module *m, const Symbol *step, int i, int64_t *times);
// The results that a loss gives beside itself: how many, by `names` of its return, a step or a program.
int hd_n_results(const Attrs *as);
int hd_n_counts(const Attrs *as);  // numbers of `counted`, HD_COUNTS for each of its places
int hd_n_numbers(const Attrs *as); // that a micro-batch gives: the loss, its results and, as one, the counts
bool hd_same_results(const Attrs *a, const Attrs *b); // they have the same `names`
int64_t hd_runs(const Symbol *step, const Func *f); // how often a step, which may be NULL, runs a function
const char *hd_free_name(const Module *m, const char *name); // of no symbol and no function: `name`, or one like it
void hd_func_remove(Module *m, Func *f);
void hd_func_rename(Func *f, const char *name); // a name that is free
Func *hd_func_clone(Module *m, const Func *f, const char *name); // ops, arguments and attributes
Value *hd_arg_add(Func *f, const Type *t, const char *name);
Op *hd_return(const Func *f); // the return op, or NULL while there is none

// --- ops. hd_op_new makes an op that is not inserted yet and has no result types; hd_infer gives it its results.
Op *hd_op_new(Func *f, OpKind k, int n_in, Value *const *in);
// Runs the op's type rule and makes (or retypes) its results. `declared` gives the types that an EXPLICIT op needs (n =
// 0: none). Returns NULL, or what is wrong.
const char *hd_infer(Op *o, int n_declared, const Type *const *declared);
// The type of result i in the count of the type rule: with `into`, result 0 is the one that is written there.
const Type *hd_result_type(const Op *o, int i);
void hd_set_results(Op *o, int n, const Type *const *types); // what hd_infer does with the types it found
// The op writes this result to a buffer, from element `at` on; its address is that of those elements, if the buffer has
// one.
void hd_set_into(Value *result, const Symbol *buffer, int64_t at);
void hd_append(Func *f, Op *o);
void hd_insert_before(Op *at, Op *o);
void hd_insert_after(Op *at, Op *o);
void hd_detach(Op *o);               // takes it out of its list; it can be inserted again
void hd_erase(Op *o);                // detach for good
// same kind, attributes, loc and result types; inserted nowhere
Op *hd_op_clone(Func *f, const Op *o, Value *const *in);
void hd_replace_uses(Value *old, Value *now);            // in every op of the function
void hd_renumber(Func *f);                               // makes value and op ids dense and in program order again

// Builds, types and inserts an op in one call; a type error here is a bug of the caller and stops the program.
typedef struct { Func *f; Op *before; Loc loc; Span span; bool bwd; } Builder; // before == NULL: at the end
Builder hd_builder_before(Op *o); // makes ops of the same place in the model as o
Op *hd_build(Builder *b, OpKind k, int n_in, Value *const *in, const Attrs *attrs, const Type *declared);
// result 0; c may be NULL
Value *hd_build1(Builder *b, OpKind k, Value *a, Value *c, const Attrs *attrs, const Type *declared);
Value *hd_build_number(Builder *b, DType d, double x); // a scalar
Value *hd_build_cast(Builder *b, Value *v, DType d);   // v itself where that is its dtype

// --- uses: who reads a value
typedef struct { int *count; Op ***users; } Uses; // by value id; an op that reads a value twice is listed twice
Uses hd_uses(const Func *f, Arena *a);

// --- text
void hd_print_module(const Module *m, Out *o);
const char *hd_fingerprint(const Module *m);     // of config @model; NULL: none
const char *hd_seal(const Module *m, Arena *a);  // hash of what is printed before the seal
void hd_print_func(const Func *f, Out *o);
void hd_print_op(const Op *o, Out *out); // one line, no newline; numbers values by Value.id
void hd_print_attrs(const Attrs *as, Out *o);
// Reads the text of `source` (already in cx->diags). NULL after reporting errors. Absent `stage` line: tensor.
Module *hd_parse_module(Ctx *cx, const char *text, size_t len, uint32_t base);
// Arity, attributes, stages, symbols, dominance and types re-inferred. false after reporting.
bool hd_verify(const Module *m);

void hd_bug_hook(void (*fn)(void *), void *data); // called once before a bug stops the program
_Noreturn void hd_bug(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#define HD_BUG(...) hd_bug(__FILE__, __LINE__, __VA_ARGS__) // an error of the compiler itself
#endif
