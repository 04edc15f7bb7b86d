// Shared by the emitters of all targets: the state of one program being printed, addresses, tables and small text
// helpers. A target is a `Target`: text before the functions, and one emitter per op; an emitter prints the statements
// of one action.
#ifndef CODEGEN_EMIT_H
#define CODEGEN_EMIT_H
#include "ir/ir.h"

typedef struct Emit Emit;
typedef void EmitOp(Emit *e, const Op *o);
typedef struct { OpKind of; EmitOp *print; } OpPrinter; // NULL: no plan of the target can hold the op

typedef struct Target {
    const char *name;             // as in config @target
    const char *backend;          // the runtime's HdBackend
    void (*kernels)(Emit *e); // prints every kernel function of the module: into e->c (host) or e->cuda and the tables
    const char *const *prologue;  // lines that open a planned function, NULL-terminated
    bool stream_functions;        // a planned function is one C function a stream (HdFunc.run_stream), not one for all
                                  // (HdFunc.run)
    const char *start;            // a statement that opens main; may be NULL
    const OpPrinter *op;          // by OpKind
    void (*finish)(Emit *e);      // after the functions, before the tables; may be NULL
    const char *(*attention)(Emit *e, const Op *o); // more fields of its HdAttention (", .impl = ..."), or NULL
} Target;
extern const Target hd_host_target, hd_cuda_target;

typedef struct { const char *name, *text; } EmitSource;                    // HdSource
typedef struct { const char *name; int source, shared_bytes; } EmitKernel; // HdKernel

struct Emit {
    const Module *m;
    Ctx *cx;
    Arena *a;
    const Target *target;
    Out *c;    // the program's text
    Out *cuda; // the kernels' CUDA text
    Out body;  // the planned functions, printed after the tables that they fill
    VEC(const char *) gemms, attentions, optimizers; // initialisers, without repeats; the tables of the same names
    VEC(EmitSource) sources;
    VEC(EmitKernel) kernels;
    VEC(const char *) streams; // names, by index
    VEC(const char *) regions; // likewise: capture regions
    int n_events;
    int lanes; // HdProgram.lanes
    const char **kernel_names; // by position of the kernel function in the module
    void *state;               // the target's own
    bool failed;
};

// --- text
void hd_emit_line(Emit *e, const Op *o, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));                         // a statement and its place in the source
void hd_emit_string(Out *o, const char *text, const char *indent); // a C string literal, one line of `text` a line
const char *hd_emit_quoted(Emit *e, const char *text);             // the same as a text; NULL is ""
// A comment to the end of the line, and that end. Names of files and texts of a plan may hold any character: what could
// end the comment, or draw the next line into it, is printed as <0a>.
void hd_emit_comment(Out *o, const char *text);
const char *hd_emit_where(Emit *e, const Op *o);    // "blocks.0.mlp net.hd:14", unescaped; "" without a place
const char *hd_emit_identifier(Emit *e, const Func *f); // the function's name as the end of C identifiers
void hd_emit_error(Emit *e, Span s, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *hd_emit_plan_hash(Emit *e);
const char *hd_emit_model_hash(Emit *e); // HdProgram.model_hash
const char *hd_emit_model_core(Emit *e); // HdProgram.model_core
const char *hd_emit_train(Emit *e);      // HdProgram.train
int hd_emit_index(const Emit *e, SymbolKind kind, const char *name); // among the symbols of a kind; -1: it is not there
static inline const char *hd_emit_ctype(DType d) { return hd_dtype_info(d)->c; }        // "float", "uint16_t"
static inline const char *hd_emit_dtype(DType d) { return hd_dtype_info(d)->constant; } // "HD_F32"
const char *hd_emit_number(Arena *a, double v, bool f64);           // a C literal of that value
const char *hd_emit_kernel_name(Emit *e, const Func *k); // "k3_layer_norm": a C identifier, unique in the module

// --- where things are: byte offsets in the device arena. A missing place is reported and gives 0.
int64_t hd_emit_value(Emit *e, const Value *v); // follows views and reshapes to their storage
int64_t hd_emit_buffer(Emit *e, const Op *user, const char *buffer, int64_t element);
int64_t hd_emit_result(Emit *e, const Op *o, int i); // of result i; with `into`, result 0 is in that buffer
typedef struct { int comm; int64_t from, to; const Type *part; } Exchange; // part: what one rank sends or receives
Exchange hd_emit_exchange(Emit *e, const Op *o);     // of a collective
// First element and end of each tensor of the bucket of a buffer: "0, 64, 64, 96".
const char *hd_emit_tensors(const Emit *e, const Symbol *part);
int64_t hd_emit_moved(Emit *e, const Op *o);         // elements of a part that an exchange moves
int64_t hd_emit_workspace(Emit *e, const Op *o); // -1: none; one that is too small is reported
Place hd_emit_copied(Emit *e, const Op *o, Place *to); // of copy: from where, to where, in any space
const char *hd_emit_decayed(Emit *e, const Op *o); // of update: how many elements of this rank decay, as C
EmitOp hd_emit_unprintable;                        // reports an op without a printer

// --- rows of the program's tables; equal rows are stored once
// gemm and bmm -> &gemms[i]; the destination's dtype is that of the buffer or result
int hd_emit_gemm(Emit *e, const Op *o);
int hd_emit_attention(Emit *e, const Op *o); // attention and attention_grad -> &attentions[i]
// The addresses q, k, v, o, log-sum-exp of attention; do, q, k, v, o, log-sum-exp, dq, dk, dv of attention_grad.
int hd_emit_attention_operands(Emit *e, const Op *o, int64_t at[9]); // how many there are
double hd_emit_beta(const Op *o, int i); // of step_scalars
const char *hd_emit_limits(Emit *e, const Attrs *as); // ", .skip_z = {5.0, 0.0}"; "": no step is an outlier
int hd_emit_optimizer(Emit *e, const Op *o); // step_scalars -> &optimizers[i]
const char *hd_emit_rate(Emit *e, const Attrs *as);              // an initialiser of HdRate
const char *hd_emit_points(Emit *e, const Attrs *as, AttrId id); // A_LR_STEPS or A_LR_RATES as {f64, ...}
// The statements of a kernel of kind optimizer: each value is `const float vID`, the results are assigned to `weights`
// and to state 0, 1, ..., whose number stands between `before` and `after`. Arguments are called as in the kernel.
const char *hd_emit_update(Emit *e, const Func *k, const char *indent, const char *before, const char *after);
// Of one that orthogonalizes: hd_emit_update reads the result from `turned`; here, the operand is assigned to
// `direction`.
const char *hd_emit_direction(Emit *e, const Func *k, const char *indent, const char *before, const char *after);
// Of one with means of lines, which has the arguments `stateI` and the means so far as `meanI`. Stage s below their
// number: `result` is what mean s averages; that number: the results are `weights` and, of states per element, `nextI`;
// above it by 1 + i: `result` is what state i becomes.
const char *hd_emit_lines(Emit *e, const Func *k, int stage, const char *indent);
int hd_emit_means(const Func *k); // how many there are
// The HdLines of such an update, as C. `more`: its further fields.
const char *hd_emit_lined(Emit *e, const Op *o, const char *more);
// The HdTurn of such an update, as C. `more`: its further fields. own: an HdSymmetric, of a
// kernel for d = a a', a' a where `deep`, or c a a + b a where `adds`; NULL on the host, which computes in f32.
typedef const char *EmitSymmetric(Emit *e, const Op *o, bool deep, bool adds);
const char *hd_emit_turn(Emit *e, const Op *o, EmitSymmetric *own, const char *more);
// Of an update that rounds weights at random: its bucket's parameters in the table of all, {at, number, run, ranks}
// each; elements of the bucket before this rank's part, and the rank's place along what splits parameters, in C.
typedef struct { int first, n; const char *rows, *before, *place; } EmitRounding; // rows: of the bucket alone
EmitRounding hd_emit_rounding(Emit *e, const Op *o);
const char *hd_emit_rounded(Emit *e); // the rows of that table; "": there are none
int hd_emit_streams(Emit *e); // how many there are: "compute" is 0, then the module's stream symbols in order
const char *hd_emit_stream_name(Emit *e, int stream);
int hd_emit_stream_index(Emit *e, const char *stream);
int hd_emit_stream(Emit *e, const Op *o);        // of an op
int hd_emit_event(Emit *e, const Op *o);         // of record and wait
int hd_emit_region(Emit *e, const Op *o);        // of capture
// Of an op with `over`: where the rank's part begins, of parts of this size, in C.
const char *hd_emit_own_part(Emit *e, const Op *o, int64_t size);
// Byte offset behind the plan's arena of what HdProgram.bound_wanted is; 0: no exchange has a bound.
int64_t hd_emit_bound_wanted(const Emit *e);
int hd_emit_comm(Emit *e, const Op *o);          // of a collective: index of its communicator, in the module's order
const Attr *hd_emit_setting(const Module *m, AttrId id); // from any config symbol

// --- the pointwise functions (pointwise.c): h_gelu for f32, h_gelu_d for f64, for the ops that the module's kernels
// use
typedef enum { PRELUDE_HOST, PRELUDE_CUDA } PreludeKind;
void hd_emit_prelude(const Module *m, PreludeKind kind, Out *o);
void hd_emit_math(Out *o, const char *name, size_t n, PreludeKind kind, bool f64); // the target's name of exp, sqrt, ..

// --- storages that have guards (guards.c): tables of them, and the fields of the program that name these. Nothing is
// printed where the plan has no guard.
void hd_program_guarded(Emit *e, Out *fields);
// --- indices that no op proves to be in range (indices.c): likewise
void hd_program_indexed(Emit *e, Out *fields);
int hd_program_lines(Emit *e);   // prints rows of states of lines for the table of parameters; how many there are
int hd_program_buckets(Emit *e); // prints the table; how many there are
DType hd_program_state_type(const Emit *e); // of all states
void hd_program_known_states(const Emit *e, Out *fields); // HdProgram.average and .compensation
int hd_program_states(Emit *e);  // likewise, the names of the optimizers' states

// --- the program around the functions (program.c)
// The step of a kind as the field `name` of the program; its tables go to e->c.
void hd_emit_dims(Out *o, const Type *t); // of a table: their number, and each
int hd_program_inputs(Emit *e);          // inputs.c: of the loss; their number
void hd_program_calls(Emit *e, Out *fields);
void hd_program_step(Emit *e, KindId kind, const char *name, Out *field);
void hd_program_functions(Emit *e); // into e->body
void hd_program_tables(Emit *e);    // into e->c
void hd_program_main(Emit *e);      // into e->c
int hd_program_func(const Emit *e, const Func *f); // its place in the table of functions
#endif
