// fuse: values become kernels. Pointwise chains, row operations (norms, softmax, rope, their gradients), lookups and
// column sums are grouped into kernel functions of kind `rows`; movement and other sums become kernels of kind `map`,
// one op each; products, attention, cross entropy and storage stay as they are.
//
//   %t = add %p, %b                        kernel @k0(%x0: .., %x1: ..) -> .. with {kind = rows, rows = R, cols = C} {
//   %h = add %x, %t                 ->       %0 = add %x0, %x1  ...  return %1, %2, %3, %4 }
//   %y, %m, %r = layer_norm %h, ..         %h, %y, %m, %r = launch %p, %b, %x, .. {kernel = @k0}
//
// A kernel of kind rows runs over R rows of C columns. Its values are full [.., C], periodic [T, C] (row r reads row r
// % T), one number per column [C], one number per row ([.., 1], or the last axis dropped), or scalar. Sums over rows
// (sum_to [C], the weight gradients of norms) are results only. So are rows that a concat puts together from values of
// C columns each; a slice of C columns is taken of an argument with longer rows. Every op of a kernel gives the value
// that it would give outside: a 16-bit value that the same kernel reads again is rounded first (`cast`), so fusion
// never changes a bit of the result.
#include "passes/fuse/fuse.h"

Change hd_pass_fuse(Module *m, PassCx *cx) {
    KernelTexts *kernels = hd_kernel_texts(cx->scratch);
    for (Func *f = m->funcs; f; f = f->next) {
        if (f->is_kernel) continue;
        Fusion s = {.m = m, .cx = cx, .f = f};
        hd_fuse_prepare(m, f, cx);
        hd_fuse_group(&s);
        hd_fuse_emit(&s, kernels);
        hd_fuse_epilogues(f, cx);
    }
    m->stage = STAGE_KERNELS;
    return CHANGED;
}
