#include "ir/machine/symmetric.h"
#include "ir/base/ints.h"
#include "ir/machine/arch.h"
#include <string.h>

// The kernel is one of Hopper; rows of its tensor maps are multiples of 16 bytes.
bool hd_turned_symmetric(const Op *o, int64_t rows, int64_t cols) {
    const Op *turn = hd_optimizer_turn(hd_update_kernel(o));
    return hd_target_arch(o->func->module).arch == 90 && !strcmp(hd_word(&turn->attrs, A_OUT, ""), "bf16") &&
           rows % 8 == 0 && cols % 8 == 0;
}

double hd_turned_square(const Op *o, const Turned *t) {
    const int64_t n = hd_ceil_div(t->rows < t->cols ? t->rows : t->cols, HD_SYMMETRIC_TILE);
    const int64_t tiles = hd_turned_symmetric(o, t->rows, t->cols) ? n * (n + 1) / 2 : n * n;
    return (double)(t->batch * tiles * HD_SYMMETRIC_TILE * HD_SYMMETRIC_TILE);
}
