// The schedule's numbers where it does not say them: the language prints these as its defaults, and passes take them
// for IR that was written by hand, and say of which other values change nothing.
#ifndef IR_SCHEDULE_H
#define IR_SCHEDULE_H
#define HD_DEFAULT_PREFETCH 1
#define HD_DEFAULT_LIVE_GRADS 2
#define HD_DEFAULT_FRACTION 1.0
#define HD_DEFAULT_MIN_SIZE 1048576
#define HD_DEFAULT_MARGIN 1
#define HD_DEFAULT_AHEAD 1
#endif
