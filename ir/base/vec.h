// A growable array on an arena: VEC(int) v = {0}; hd_push(arena, &v, 3); for (int i = 0; i < v.n; i++) use(v.at[i]);
#ifndef IR_BASE_VEC_H
#define IR_BASE_VEC_H
#include "ir/base/arena.h"
#include <string.h>

#define VEC(T) struct { T *at; int n, cap; }

#define hd_push(arena, v, x)                                                                                           \
    do {                                                                                                               \
        if ((v)->n == (v)->cap) {                                                                                      \
            int cap_ = (v)->cap ? (v)->cap * 2 : 8;                                                                    \
            void *at_ = hd_alloc((arena), sizeof *(v)->at * (size_t)cap_);                                             \
            if ((v)->n) memcpy(at_, (v)->at, sizeof *(v)->at * (size_t)(v)->n);                                        \
            (v)->at = at_;                                                                                             \
            (v)->cap = cap_;                                                                                           \
        }                                                                                                              \
        (v)->at[(v)->n++] = (x);                                                                                       \
    } while (0)
#endif
