// The optimizer's numbers where `train` does not say them: the language prints these as its defaults, and fsdp takes
// them where IR that was written by hand has no config @train with such an attribute.
#ifndef IR_OPTIMIZER_H
#define IR_OPTIMIZER_H
#define HD_DEFAULT_LR 3e-4
#define HD_DEFAULT_BETA1 0.9
#define HD_DEFAULT_BETA2 0.95
#define HD_DEFAULT_EPS 1e-8
#define HD_DEFAULT_WEIGHT_DECAY 0.1

#include "ir/ir.h"

// A kernel of kind optimizer says what `update` does to one element, by pointwise ops on f32 numbers. Its arguments are
// those of the enumeration and then the states, by name; its results the weights and the states. `gradient` is
// multiplied by the clip factor, which also takes out the scale of the loss; `decay` is 0 where no weight decay
// applies; correction K is 1 - beta^step of number K of `betas`.
// The state HD_AVERAGE begins as the weights, any other as 0. The state HD_COMPENSATION is what the weights in bf16
// lack: the kernel adds it to them first, and gives weights that bf16 holds.
// A kernel whose first argument is `total` is the rule of a buffer: it has no states, and `total` is what a step adds
// up for the element, as it is; NaN in a step that is skipped.
enum {
    OPT_GRADIENT,
    OPT_WEIGHTS,
    OPT_LR,
    OPT_DECAY,
    OPT_CORRECTION1,
    OPT_CORRECTION2,
    OPT_STATE // the first
};
// One op of a kernel may be `orthogonalize`, which looks at more than its element: the operands of all elements of a
// parameter are a matrix d of r rows and c columns. It becomes s u v' for the singular value decomposition d = u t v',
// nearly: five steps of a Newton-Schulz iteration in type T (`out`), each value rounded to T, sums of products in f32:
//
//   x = d / max(|d|, 1e-7), by elements of d rounded to T; |d|: the root of the sum of squares
//   five times, with (a, b, c) = (3.4445, -4.7750, 2.0315):
//     g = x x' (x' x where r > c);  h = b g + c g g;  x = a x + h x (a x + x h), the last time multiplied by s
//   original:         s = sqrt(max(1, r / c)), for rates as the author of Muon (Keller Jordan) chooses them
//   match_rms_adamw:  s = 0.2 sqrt(max(r, c)), for rates as AdamW has them
//
// The bucket of such parameters keeps each of them whole on one rank. Elements of padding keep the operand, 0.
//
// Ops `line_mean` look at the elements of a row, of a column or of the whole parameter, and a state may have a number
// for each row, each column or the whole (`per` of the kernel): a matrix of r rows and c columns has r, c or 1 of it,
// a vector has one row. A value is `per` row if all elements of a row have the same, and so on; what a state becomes
// must be so for that state. Sums are f64. A mean along rows of a value per row would be that value, and is an error.
// Such a bucket keeps its parameters whole as well.
#define HD_AVERAGE "ema"
#define HD_COMPENSATION "compensation"
// Of values and states: bit 0 where it differs from row to row, bit 1 where it does from column to column.
enum { PER_WHOLE, PER_ROW, PER_COLUMN, PER_ELEMENT };
int hd_per(const char *word); // -1: none
const char *hd_optimizer_argument(int i); // "gradient"
Func *hd_optimizer(const Module *m);      // the kernel of parameters; NULL: the module has none
bool hd_is_rule(const Func *k);           // whether a kernel of kind optimizer is the rule of a buffer
Func *hd_update_kernel(const Op *o);      // that `update` runs; NULL: the module has none of that name
const char *hd_optimizer_wrong(const Func *k); // what is wrong with such a kernel, or NULL
const Op *hd_optimizer_turn(const Func *k); // its orthogonalize; NULL: it has none
bool hd_compensates(const Func *k);         // whether one of its states is HD_COMPENSATION
bool hd_has_lines(const Func *k);           // a line_mean, or a state that is not per element
bool hd_takes_whole(const Func *k);         // one of both
bool hd_is_whole(const Module *m, const Symbol *s); // a parameter or bucket whose kernel does
int hd_state_per(const Func *k, int state);
void hd_optimizer_per(const Func *k, int *per); // of each value, by its id

enum { HD_MAX_STATES = 4, HD_MAX_MEANS = 8 }; // of an optimizer; as many states have a place in HdBucket

// The parameters of a bucket whose kernel has lines, by their places: `rank` owns all elements of one, from its element
// `at` and from number line[i] of state i on; 0 where every rank has all of the bucket. A rank has so many `numbers` of
// a state.
typedef struct { const Symbol *param; int64_t rank, at, rows, cols, line[HD_MAX_STATES]; } Lined;
typedef struct { int n; Lined *list; int64_t numbers[HD_MAX_STATES]; } Lines;
Lines hd_lines(const Module *m, const Symbol *bucket, Arena *a); // as if every rank had its part alone
Lines hd_lined(const Op *update, Arena *a);                      // as the update's buffers have them
// Bytes of the workspace of such an `update`: the results of each line_mean, what the states become, f64 sums.
typedef struct { int64_t mean[HD_MAX_MEANS], fresh[HD_MAX_STATES], sums, all; } LineSpace;
LineSpace hd_line_space(const Op *update);
enum { HD_LINE_RUNS = 64 }; // sums of a column, each of so many equal runs of rows; of the whole 16 times as many

// The matrices of the bucket whose weights an update of such a kernel writes: `rank` owns all elements of one, from
// its element `at` on; 0 where every rank has all of the bucket. `scale` is s.
typedef struct { int64_t rank, at, rows, cols; double scale; int64_t batch; } Turned; // batch: 1 in hd_turned
int hd_turned(const Op *update, Arena *a, const Turned **list); // how many
// The same, where `batch` equal matrices that follow each other in a rank's part are one entry, as products of a GPU
// take them: so many that a product of theirs fills one. `like`: how many of such a size the model would have in one
// entry on one device; the same for every strategy, as results of a product may depend on its algorithm.
int hd_turned_batches(const Op *update, Arena *a, const Turned **list);
int64_t hd_turned_like(const Op *update, int64_t rows, int64_t cols);
// Bytes of the workspace of `update`, from its beginning on: elements of the bucket's part in T, or f32 on the host;
// then, for each lane, x, g and h of the largest entry of hd_turned_batches (of one matrix on the host), and f64 sums
// of squares of runs of HD_NORM_BLOCK elements. Lanes follow each other after `lane` bytes. Entries whose products do
// not fill a GPU are computed in several lanes at once. cuBLASLt is offered no workspace: without one it cannot split
// sums, so the bits of a product do not depend on how many are in a batch.
typedef struct { int64_t x, g, h, sums, lane, all; int lanes; } TurnedSpace;
TurnedSpace hd_turned_space(const Op *update, bool cuda);
#define HD_TURN_LEAST 1e-7
enum { HD_TURNS = 5 };
#define HD_TURN_A 3.4445
#define HD_TURN_B (-4.7750)
#define HD_TURN_C 2.0315

// The buffer `history` of a step, f32[HD_HISTORY]: the losses of 128 steps, each in the place of the oldest, and how
// many there were (from 256 on, 128 less); the same of norms; the z-scores of the step's loss and norm, in standard
// deviations above the mean of the 128, itself among them. A score is NaN where there are fewer than 128 before it; so
// is that of a number that is not finite, which is left out.
enum { HD_HISTORY_STEPS = 128, HD_HISTORY_Z = 2 * (HD_HISTORY_STEPS + 1), HD_HISTORY = HD_HISTORY_Z + 2 };

// Settings that a group of parameters may have for itself, at the parameters, their bucket and its `update`; absent:
// config @train's weight_decay, and 1 for the scale of the learning rate.
enum { HD_GROUP_RATES = 2 };
extern const AttrId hd_group_rates[HD_GROUP_RATES];

// By a power of two f32 numbers are multiplied and divided without rounding, until they are subnormal or infinite.
#define HD_MOST_LOSS_SCALE (1 << 30)
#define HD_IS_LOSS_SCALE(n) ((n) >= 1 && (n) <= HD_MOST_LOSS_SCALE && ((n) & ((n) - 1)) == 0)
#endif
