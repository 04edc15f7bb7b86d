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
// The state HD_AVERAGE begins as the weights, any other as 0.
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
#define HD_AVERAGE "ema"
const char *hd_optimizer_argument(int i); // "gradient"
Func *hd_optimizer(const Module *m);      // the kernel of parameters; NULL: the module has none
bool hd_is_rule(const Func *k);           // whether a kernel of kind optimizer is the rule of a buffer
Func *hd_update_kernel(const Op *o);      // that `update` runs; NULL: the module has none of that name
const char *hd_optimizer_wrong(const Func *k); // what is wrong with such a kernel, or NULL

// The buffer `history` of a step, f32[HD_HISTORY]: the losses of 128 steps, each in the place of the oldest, and how
// many there were (from 256 on, 128 less); the same of norms; the z-scores of the step's loss and norm, in standard
// deviations above the mean of the 128, itself among them. A score is NaN where there are fewer than 128 before it; so
// is that of a number that is not finite, which is left out.
enum { HD_HISTORY_STEPS = 128, HD_HISTORY_Z = 2 * (HD_HISTORY_STEPS + 1), HD_HISTORY = HD_HISTORY_Z + 2 };

// Settings that a group of parameters may have for itself, at the parameters, their bucket and its `update`; absent:
// config @train's weight_decay, and 1 for the scale of the learning rate.
enum { HD_GROUP_RATES = 2 };
extern const AttrId hd_group_rates[HD_GROUP_RATES];

enum { HD_MAX_STATES = 4 }; // buffers of an optimizer's state; as many have a place in HdBucket (runtime/heddle.h)

// By a power of two f32 numbers are multiplied and divided without rounding, until they are subnormal or infinite.
#define HD_MOST_LOSS_SCALE (1 << 30)
#define HD_IS_LOSS_SCALE(n) ((n) >= 1 && (n) <= HD_MOST_LOSS_SCALE && ((n) & ((n) - 1)) == 0)
#endif
