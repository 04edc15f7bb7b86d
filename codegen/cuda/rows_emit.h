// Shared by the files that print `rows` kernels: the state of one kernel's text and the pieces that all shapes use.
#ifndef CODEGEN_CUDA_ROWS_EMIT_H
#define CODEGEN_CUDA_ROWS_EMIT_H
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/rows_shape.h"

enum { MAX_PLACES = 32 };
typedef struct { int from; int64_t half; } Spot; // the column half a head away from that of place `from`

typedef struct {
    const RowProgram *p;
    RowShape s;
    const char *name;
    Arena *a;
    Out *o;
    int depth;
    bool *used, *kept;                 // by node: read at all; kept from an earlier pass
    unsigned *raw;                     // by node: the places (bits) at which a load is needed
    Spot place[MAX_PLACES];           // columns at which an element's values are needed; 0: its own
    int n_places;
    int *first, *last;                 // by node: passes that compute or read it, an element at a time
    bool offset;                       // some value has an element of its own for every row and column
} Rows;

// --- rows_text.c
void hd_rows_line(Rows *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));      // a line, indented by its braces
const char *hd_rows_suffix(Rows *r, int place); // of names of what an element reads at a place,
const char *hd_rows_column(Rows *r, int place); // and the column there
const char *hd_rows_address(Rows *r, const char *array, RowClass cls, int64_t period, RowPart part, int place);
// For each vector of the row that a thread has, with `col` its first column.
void hd_rows_open_items(Rows *r);
void hd_rows_close_items(Rows *r);
static inline bool hd_rows_looped(const Rows *r) { return r->s.items > 1; }
void hd_rows_position(Rows *r, const char *row); // defines row and base

const char *hd_rows_literal(Arena *a, DType d, double v); // of the compute type

// --- rows_loads.c
static inline bool hd_rows_is_load(const RowNode *n) { return n->kind == NODE_LOAD || n->kind == NODE_GATHER; }
const char *hd_rows_load_address(Rows *r, int load, int place);
bool hd_rows_held(const Rows *r, int load);         // a thread keeps it in registers,
const char *hd_rows_index(const Rows *r, int load); // at this subscript
// Loads kept in registers; hoist: those that are the same for every row of the block.
void hd_rows_declare_loads(Rows *r, bool hoist);
void hd_rows_put_loads(Rows *r, bool hoist);      // where rows are copied ahead: of iteration n
// sets `ahead` where it can be; a block of the device has `shared` bytes at most
void hd_rows_look_ahead(Rows *r, int64_t shared);
int64_t hd_rows_shared(const Rows *r);            // bytes of shared memory for that
// defines fetch(n) and starts; `row`: that of iteration n, as text
void hd_rows_open_ahead(Rows *r, const char *row, int iterations);

// --- rows_turns.c
bool hd_rows_exchanged(const Rows *r, const RowNode *partner); // between threads of a warp,
const char *hd_rows_exchange(const Rows *r, const RowNode *partner, const char *x); // by this text
bool hd_rows_one_angle(const Rows *r);           // a thread has the same columns of several heads
void hd_rows_put_turns(Rows *r, RowNode *turn);  // before the kernel
void hd_rows_put_angles(Rows *r);                // sines and cosines of a thread's columns, for all of its heads
void hd_rows_declare_angles(Rows *r);            // of warps and blocks, in shared memory; computes those of blocks
void hd_rows_meet_angles(Rows *r);               // after which all threads of the block see these
int64_t hd_rows_angle_bytes(const Rows *r);      // shared memory of angles; 0: there are none
void hd_rows_put_warp_angles(Rows *r);           // for the current row

// --- rows_emit.c
void hd_rows_analyse(Rows *r);                  // which passes compute what: before anything is printed
void hd_rows_put_row_values(Rows *r, int pass); // values of the whole row, first known before that pass
void hd_rows_passes(Rows *r);                   // all passes over one row
const char *hd_rows_expression(Rows *r, int i, int place, int pass); // what computes node i there, as text

// --- rows_kernel.c
// A device function `name` for the 256 threads of a block, which makes one row; its parameters are the arguments that
// the ops read, in%d, and then the results, out%d, of these numbers.
bool hd_rows_reads(const RowProgram *p, int arg);
const char *hd_rows_function(const RowProgram *p, const char *name, int widest, Arena *a);

// --- rows_columns.c
void hd_rows_put_columns(Rows *r);               // the body of a kernel with column sums
CudaLaunch hd_rows_column_kernel(const Rows *r); // its second kernel
#endif
