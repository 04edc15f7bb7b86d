// The part of each parameter that a rank holds. A bucket's storage is the whole bucket or this rank's shard of it; a
// shard and a parameter have one range of elements in common, which may be empty. Data moves in pieces of a bounded
// size.
#ifndef RUNTIME_CHECKPOINT_PIECES_H
#define RUNTIME_CHECKPOINT_PIECES_H
#include "runtime/heddle.h"
#include "runtime/checkpoint/safetensors.h"

enum { HD_PIECE = 1 << 22 }; // elements moved at a time

typedef enum {
    HD_MASTER,
    HD_STATE, // the first of HdProgram.states
    HD_GRAD = HD_STATE + HD_STATES,
    HD_COMPUTE,
    HD_NEXT
} HdRole;
// A checkpoint holds so many: the master weights and the states of the optimizer.
static inline int hd_saved_roles(const HdProgram *p) { return HD_STATE + p->n_states; }
// Of so many parameters: those behind n_params are states of lines, which are saved as parameters without states.
static inline int hd_saved_params(const HdProgram *p) { return p->n_params + p->n_lines; }
// A frozen parameter and a buffer have no states, and are saved as they are stored; others have those of their
// optimizer.
bool hd_saves(const HdProgram *p, const HdParam *q, int role);
static inline HdRole hd_average_role(const HdProgram *p) { return (HdRole)(HD_STATE + p->average - 1); } // of average
static inline bool hd_is_average(const HdProgram *p, int role) {
    return p->average && role == HD_STATE + p->average - 1;
}
static inline bool hd_is_compensation(const HdProgram *p, int role) {
    return p->compensation && role == HD_STATE + p->compensation - 1;
}
enum { HD_WEIGHT_ROLES = 4 };
// Roles that hold the same values at the start: master, compute, next, and the average where there is one. Result: how
// many.
int hd_weight_roles(const HdProgram *p, HdRole roles[HD_WEIGHT_ROLES]);
// The name of a parameter's or bucket's tensor in a checkpoint: NAME, moment1.NAME
const char *hd_saved_name(const HdProgram *p, int role, const char *of, char *name, size_t size);

typedef struct { int64_t first, count; } HdSpan; // elements of a parameter: of the part that a rank has, unless whole

// A parameter that is split over ranks (whole.c): the whole of it, the number of a rank's part, and how elements of the
// part are elements of the whole. Of one that is not, part 0 is the whole.
HdSplit hd_split_of(const HdProgram *p, const HdParam *q); // q: one of the program's
HdParam hd_whole(const HdProgram *p, const HdParam *q); // its sizes are those of the whole
int64_t hd_model_size(const HdProgram *p); // elements of all parameters, whole
int hd_parts(const HdProgram *p, const HdParam *q);
int hd_part(const HdProgram *p, const HdParam *q, int rank);
// How many elements of a part are elements of the whole: the last parts of uneven ones end with zeros, which no file
// has.
int64_t hd_part_count(const HdProgram *p, const HdParam *q, int part);
// Elements first, first + 1, .. of a part, up to `count` of them, as consecutive elements of the whole; or, with a
// first element below 0, so many of the zeros behind it.
HdSpan hd_whole_run(const HdProgram *p, const HdParam *q, int part, int64_t first, int64_t count);
int64_t hd_part_before(const HdProgram *p, const HdParam *q, int part, int64_t whole); // its elements before that one

int64_t hd_home(const HdBucket *b, HdRole role); // byte offset of its storage; -1: none
bool hd_sharded(const HdBucket *b, HdRole role);
HdDtype hd_stored_as(const HdProgram *p, const HdBucket *b, HdRole role);
HdSpan hd_shard_span(const HdBucket *b, const HdParam *q, int shard); // the range that a shard has of a parameter
HdSpan hd_span(const HdExec *x, const HdParam *q, HdRole role);       // the range that this rank's storage has
// byte offset of element `element`, which it has
int64_t hd_place(const HdExec *x, const HdParam *q, HdRole role, int64_t element);

// Elements of a parameter that this rank has, as they are stored or as f32.
bool hd_read_values(HdExec *x, const HdParam *q, HdRole role, int64_t first, int64_t n, void *v);
bool hd_read_floats(HdExec *x, const HdParam *q, HdRole role, int64_t first, int64_t n, float *v);

// Room for a piece, which grows with the largest so far: that of HD_PIECE would be much of a small program's memory.
// False: hd_fail was called.
typedef struct { float *v; int64_t n; } HdPieceRoom; // {0}: none; free(v)
bool hd_piece_room(HdPieceRoom *r, int64_t n);

// The part that this rank has of `role` of parameter k; of HD_COMPUTE: any of master, compute and next.
HdSpan hd_piece_span(const HdExec *x, HdRole role, int k);
// Calls fn for the elements of every parameter in hd_piece_span, in canonical order; then, unless the role is
// HD_COMPUTE, for those of states of lines.
int hd_piece_params(const HdProgram *p, HdRole role); // how many there are
typedef bool HdPieceFn(HdExec *x, int k, int64_t first, int64_t n, float *v, void *data); // v: room for n
bool hd_each_piece(HdExec *x, HdRole role, HdPieceFn *fn, void *data);
// The same on several threads at once, in any order. The failure is that of the first piece that has one.
bool hd_spread_pieces(HdExec *x, HdRole role, HdPieceFn *fn, void *data);

// Into the arena, rounded to `dtype`.
bool hd_write_as(HdExec *x, HdDtype dtype, int64_t offset, const float *v, int64_t n);
// Stores elements [first, first+n) of a parameter in all that hold weights at the start, as far as this rank has them.
bool hd_put_weights(HdExec *x, const HdParam *q, int64_t first, int64_t n, const float *v);
// The same of numbers from a file, and what rounding them to bf16 loses as their compensation. `v` is written over.
bool hd_put_given(HdExec *x, const HdParam *q, int64_t first, int64_t n, float *v);

// DIR/NAME; false after hd_fail: too long
bool hd_checkpoint_path(const char *dir, const char *name, char *path, size_t size);
// Whether the `size` bytes at `name` hold a text that may name the folder of a checkpoint's shards: step- and then
// letters, digits, dots and dashes. Anything else could lead out of the checkpoint, or to a terminal.
bool hd_checkpoint_folder(const char *name, size_t size);
// Makes a folder where there is none, and has its name on the disk. false after hd_fail.
bool hd_checkpoint_make(const char *dir);
bool hd_checkpoint_on_disk(const char *dir); // the names in a folder; false after hd_fail
// Removes the checkpoint of a folder: first its manifest, so that none is left that lacks shards. Nothing else goes.
void hd_checkpoint_remove(const char *dir);
void hd_shape_text(char *buf, size_t size, int rank, const int64_t *dim);            // [2,3]
// Whether a file's tensor `name`, of shape `have` (text; NULL: the file has none), fits this parameter; false after
// hd_fail.
bool hd_shape_fits(const char *path, const HdParam *q, const char *name, const char *have);
// Of parameter k, in files of weights. Where it holds HD_EACH, they have a tensor for each number of the first axis,
// with that number in its place.
const char *hd_file_name(const HdProgram *p, int k);
#define HD_EACH "{n}"
int64_t hd_file_tensors(const HdProgram *p, int k);  // how many tensors parameter k is there
char *hd_file_tensor(const HdProgram *p, int k, int64_t n); // the name of number n; malloc'ed
bool hd_file_turned(const HdProgram *p, int k);      // whether its two axes are the other way round there
bool hd_tensor_fits(const StFile *f, const HdParam *q, const char *name);
#endif
