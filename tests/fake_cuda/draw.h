// A launch of a kernel of initial values.
#ifndef TESTS_FAKE_CUDA_DRAW_H
#define TESTS_FAKE_CUDA_DRAW_H
#include "runtime/draw.h"
#include <stdbool.h>

typedef struct { char kernel[16]; unsigned blocks, threads; void *out; HdDraw draw; } FakeDraw;
bool fake_is_draw(const char *kernel);
void fake_draw(const FakeDraw *l);
#endif
