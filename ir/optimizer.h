// The optimizer's numbers where `train` does not say them: the language prints these as its defaults, and fsdp takes
// them where IR that was written by hand has no config @train with such an attribute.
#ifndef IR_OPTIMIZER_H
#define IR_OPTIMIZER_H
#define HD_DEFAULT_LR 3e-4
#define HD_DEFAULT_BETA1 0.9
#define HD_DEFAULT_BETA2 0.95
#define HD_DEFAULT_EPS 1e-8
#define HD_DEFAULT_WEIGHT_DECAY 0.1

enum { HD_MAX_STATES = 4 }; // buffers of an optimizer's state; as many have a place in HdBucket (runtime/heddle.h)

// By a power of two f32 numbers are multiplied and divided without rounding, until they are subnormal or infinite.
#define HD_MOST_LOSS_SCALE (1 << 30)
#define HD_IS_LOSS_SCALE(n) ((n) >= 1 && (n) <= HD_MOST_LOSS_SCALE && ((n) & ((n) - 1)) == 0)
#endif
