// One or more functions for every op that computes something. Pointwise ops of one or two operands need none here:
// ops.c makes their cases from ir/ops.def. `$` stands for the dtype, `#` for that of statistics (f64 for f64, else
// f32). An argument's name says what it holds: i<n>: integers below n; p...: positive numbers; s...: numbers of size
// 0.1; else -2 .. 2. Shapes are chosen to meet the loops' corner cases: sizes that no vector length divides, one row,
// one column, the last size equal to the number of rows or columns, more than one block of 64 rows, more than one tile.
#ifndef TESTS_NUMERIC_OP_CASES_H
#define TESTS_NUMERIC_OP_CASES_H

enum {
    CASE_F32 = 1,
    CASE_BF16 = 2,
    CASE_F16 = 4,
    CASE_F64 = 8,
    CASE_HALF = CASE_BF16 | CASE_F16,
    CASE_TRAIN = CASE_F32 | CASE_HALF,
    CASE_ALL = 15
};
typedef struct { int dtypes; const char *text; } OpCase;

// More of them, for a kernel with means of rows and columns, and one for weights of 8 bits and what they lack.
static const char *const op_lines =
    "kernel @kahan(%gradient: f32, %weights: f32, %lr: f32, %decay: f32, %correction1: f32, %correction2: f32, "
    "%v: f32, %compensation: f32) -> f32, f32, f32 with {kind = optimizer} {\n"
    "  %0 = add %weights, %compensation : f32\n  %1 = mul %lr, %gradient : f32\n  %2 = sub %0, %1 : f32\n"
    "  %3 = const {value = 65537.0} : f32\n  %4 = mul %2, %3 : f32\n  %5 = sub %4, %2 : f32\n"
    "  %6 = sub %4, %5 : f32\n  %7 = sub %2, %6 : f32\n  %8 = add %v, %gradient : f32\n  return %6, %8, %7\n}\n"
    "kernel @lined(%gradient: f32, %weights: f32, %lr: f32, %decay: f32, %correction1: f32, %correction2: f32, "
    "%row: f32, %column: f32, %number: f32, %each: f32) -> f32, f32, f32, f32, f32 with {kind = optimizer, per = [row, "
    "column, whole, element]} {\n"
    "  %0 = mul %gradient, %gradient : f32\n  %1 = line_mean %0 {along = row} : f32\n"
    "  %2 = line_mean %0 {along = column} : f32\n  %3 = add %row, %1 : f32\n  %4 = add %column, %2 : f32\n"
    "  %5 = line_mean %3 {along = whole} : f32\n  %6 = line_mean %4 {along = whole} : f32\n"
    "  %7 = mul %3, %4 : f32\n  %8 = div %7, %5 : f32\n  %9 = sqrt %8 : f32\n  %10 = add %9, %6 : f32\n"
    "  %11 = div %gradient, %10 : f32\n  %12 = mul %11, %11 : f32\n  %13 = line_mean %12 {along = whole} : f32\n"
    "  %14 = add %number, %13 : f32\n  %15 = add %each, %11 : f32\n  %16 = mul %decay, %weights : f32\n"
    "  %17 = add %16, %15 : f32\n  %18 = mul %lr, %17 : f32\n  %19 = sub %weights, %18 : f32\n"
    "  return %19, %3, %4, %14, %15\n}\n"
    "buffer @r.half : bf16[3274] {class = optimizer}\n"
    "buffer @r.lacks : bf16[3274] {class = optimizer}\n"
    "param @l.tall : f32[70,40] {bucket = @l, offset = 0, updated_by = @lined, decay}\n"
    "param @l.wide : f32[20,60] {bucket = @l, offset = 2816, updated_by = @lined, decay}\n"
    "param @l.vector : f32[33] {bucket = @l, offset = 4016, updated_by = @lined, decay}\n"
    "bucket @l : f32[4064] {decayed = 4064, updated_by = @lined, master_weights = @l.master, gradient = @l.grad, "
    "states = [@l.row, @l.column, @l.number, @l.each], weights = @l.compute}\n"
    "buffer @l.master : f32[4064] {class = shards, bucket = @l}\n"
    "buffer @l.grad : f32[4064] {class = gradients, bucket = @l}\n"
    "buffer @l.row : f32[96] {class = optimizer, bucket = @l}\n"
    "buffer @l.column : f32[160] {class = optimizer, bucket = @l}\n"
    "buffer @l.number : f32[32] {class = optimizer, bucket = @l}\n"
    "buffer @l.each : f32[4064] {class = optimizer, bucket = @l}\n"
    "buffer @l.compute : bf16[4064] {class = weights, bucket = @l}\n";

// Buffers that storage ops read and write; every case starts from the same random contents.
static const char *const op_buffers =
    "kernel @adamw(%gradient: f32, %weights: f32, %lr: f32, %decay: f32, %correction1: f32, %correction2: f32, "
    "%m: f32, %v: f32) -> f32, f32, f32 with {kind = optimizer} {\n"
    "  %b1 = const {value = 0.9} : f32\n  %b2 = const {value = 0.95} : f32\n  %eps = const {value = 1e-08} : f32\n"
    "  %one = const {value = 1.0} : f32\n  %0 = mul %b1, %m : f32\n  %1 = sub %one, %b1 : f32\n"
    "  %2 = mul %1, %gradient : f32\n  %3 = add %0, %2 : f32\n  %4 = mul %b2, %v : f32\n  %5 = sub %one, %b2 : f32\n"
    "  %6 = mul %5, %gradient : f32\n  %7 = mul %6, %gradient : f32\n  %8 = add %4, %7 : f32\n"
    "  %9 = div %3, %correction1 : f32\n  %10 = div %8, %correction2 : f32\n  %11 = sqrt %10 : f32\n"
    "  %12 = add %11, %eps : f32\n  %13 = div %9, %12 : f32\n  %14 = mul %decay, %weights : f32\n"
    "  %15 = add %13, %14 : f32\n  %16 = mul %lr, %15 : f32\n  %17 = sub %weights, %16 : f32\n"
    "  return %17, %3, %8\n}\n"
    "kernel @muon(%gradient: f32, %weights: f32, %lr: f32, %decay: f32, %correction1: f32, %correction2: f32, "
    "%m: f32) -> f32, f32 with {kind = optimizer} {\n  %0 = add %m, %gradient : f32\n"
    "  %1 = orthogonalize %0 {out = f32, rate_for = match_rms_adamw} : f32\n  %2 = mul %lr, %1 : f32\n"
    "  %3 = sub %weights, %2 : f32\n  return %3, %0\n}\n"
    "param @q.tall : f32[70,40] {bucket = @q, offset = 0, updated_by = @muon}\n"
    "param @q.wide : f32[20,60] {bucket = @q, offset = 2816, updated_by = @muon}\n"
    "bucket @q : f32[4064] {decayed = 0, updated_by = @muon, master_weights = @q.master, gradient = @q.grad, "
    "states = [@q.m]}\n"
    "buffer @q.master : f32[4064] {class = shards, bucket = @q}\n"
    "buffer @q.grad : f32[4064] {class = gradients, bucket = @q}\n"
    "buffer @q.m : f32[4064] {class = optimizer, bucket = @q}\n"
    "bucket @t : f32[5000] {decayed = 3001, master_weights = @t.master, gradient = @t.grad, states = [@t.m, "
    "@t.v], weights = @t.compute}\n"
    "buffer @t.master : f32[5000] {class = shards, bucket = @t}\n"
    "buffer @t.grad : f32[5000] {class = gradients, bucket = @t}\n"
    "buffer @t.m : f32[5000] {class = optimizer, bucket = @t}\n"
    "buffer @t.v : f32[5000] {class = optimizer, bucket = @t}\n"
    "buffer @t.compute : bf16[5000] {class = weights, bucket = @t}\n"
    "param @r.long : f32[70,41] {bucket = @r, offset = 0, decay}\n"
    "param @r.short : f32[33] {bucket = @r, offset = 2880}\n"
    "param @r.last : f32[3,110] {bucket = @r, offset = 2944}\n"
    "bucket @r : bf16[3274] {decayed = 2880, master_weights = @r.master, gradient = @r.grad, states = [@r.m, @r.v]}\n"
    "buffer @r.master : bf16[3274] {class = shards, bucket = @r}\n"
    "buffer @r.grad : f32[3274] {class = gradients, bucket = @r}\n"
    "buffer @r.m : f32[3274] {class = optimizer, bucket = @r}\n"
    "buffer @r.v : f32[3274] {class = optimizer, bucket = @r}\n"
    "buffer @u.grad : f32[9001] {class = gradients}\n"
    "buffer @e.grad : f32[4096] {class = gradients}\nbuffer @e.other : f32[96] {class = gradients}\n"
    "buffer @half : bf16[600] {class = optimizer}\n"
    "buffer @step : i32[1] {class = optimizer}\n"
    "buffer @past : f32[260] {class = optimizer}\n"
    "buffer @count : i32[4] {class = optimizer}\n"
    "buffer @keys : i32[40] {class = optimizer}\n"
    "buffer @keys.f32 : f32[320] {class = kv_cache}\n"
    "buffer @many_keys.f32 : f32[12800] {class = kv_cache}\n"
    "buffer @many_values.f32 : f32[12800] {class = kv_cache}\n"
    "buffer @values.f32 : f32[320] {class = kv_cache}\n"
    "buffer @keys.bf16 : bf16[320] {class = kv_cache}\n"
    "buffer @many_keys.bf16 : bf16[12800] {class = kv_cache}\n"
    "buffer @many_values.bf16 : bf16[12800] {class = kv_cache}\n"
    "buffer @values.bf16 : bf16[320] {class = kv_cache}\n"
    "buffer @keys.f16 : f16[320] {class = kv_cache}\n"
    "buffer @many_keys.f16 : f16[12800] {class = kv_cache}\n"
    "buffer @many_values.f16 : f16[12800] {class = kv_cache}\n"
    "buffer @values.f16 : f16[320] {class = kv_cache}\n"
    "buffer @life : f32[5000] {class = gradients, transient}\n"
    "buffer @leaf : f32[5000] {class = gradients, transient}\n"
    "buffer @saved : bf16[5000] {space = host, class = staging, transient}\n"
    "bucket @w : bf16[5000] {tensors = [0, 2048, 2080, 4000, 4003, 4999], master_weights = @w.master}\n"
    "buffer @w.master : bf16[5000] {class = shards, bucket = @w}\n"
    "buffer @w.bytes : e4m3[5000] {class = weights, bucket = @w, transient, quantized = 0}\n"
    "buffer @w.scales : f32[16] {class = staging, transient}\n"
    "comm @self {over = [shard], on = compute}\n";

static const OpCase op_cases[] = {
    // movement
    {CASE_ALL, "(%a: $[37,65]) -> f32[37,65] {\n  %0 = cast %a {out = f32} : f32[37,65]\n  return %0\n}"},
    {CASE_F32 | CASE_F64, "(%a: $[37,65]) -> bf16[37,65], f16[37,65] {\n  %0 = cast %a {out = bf16} : bf16[37,65]\n  "
                          "%1 = cast %a {out = f16} : f16[37,65]\n  return %0, %1\n}"},
    {CASE_BF16, "(%a: f32[37,65]) -> f32[37,65] {\n  %0 = square %a : f32[37,65]\n  %1 = cast %0 {out = bf16} : "
                "bf16[37,65]\n  %2 = cast %1 {out = f32} : f32[37,65]\n  %3 = sub %0, %2 : f32[37,65]\n  return %3\n}"},
    {CASE_TRAIN, "(%i90: i32[37]) -> $[37] {\n  %0 = cast %i90 {out = $} : $[37]\n  return %0\n}"},
    {CASE_TRAIN, "(%a: $[4,3,5]) -> $[4,15] {\n  %0 = neg %a : $[4,3,5]\n  %1 = reshape %0 : $[4,15]\n  return %1\n}"},
    {CASE_ALL, "(%a: $[5,1,7]) -> $[3,5,6,7] {\n  %0 = broadcast %a : $[3,5,6,7]\n  return %0\n}"},
    {CASE_ALL, "(%a: $[9]) -> $[70,9] {\n  %0 = broadcast %a : $[70,9]\n  return %0\n}"},
    {CASE_ALL, "(%a: $[3,4,5]) -> $[5,3,4] {\n  %0 = transpose %a {perm = [2, 0, 1]} : $[5,3,4]\n  return %0\n}"},
    {CASE_TRAIN, "(%a: $[70,130]) -> $[130,70] {\n  %0 = transpose %a {perm = [1, 0]} : $[130,70]\n  return %0\n}"},
    {CASE_TRAIN,
     "(%a: $[2,3,4,8]) -> $[2,4,3,8] {\n  %0 = transpose %a {perm = [0, 2, 1, 3]} : $[2,4,3,8]\n  return %0\n}"},
    {CASE_ALL, "(%a: $[4,9,6]) -> $[4,3,6], $[4,9,2] {\n  %0 = slice %a {axis = 1, start = 5, size = 3} : $[4,3,6]\n  "
               "%1 = slice %a {axis = 2, start = 1, size = 2} : $[4,9,2]\n  return %0, %1\n}"},
    {CASE_ALL, "(%a: $[3,4], %b: $[3,1], %c: $[3,7]) -> $[3,16] {\n  %0 = concat %a, %b, %c, %a {axis = 1} : $[3,16]\n "
               " return %0\n}"},
    // forty operands
    {CASE_ALL, "(%a: $[2,5], %b: $[3,5]) -> $[100,5] {\n  %0 = concat %a, %b, %a, %b, %a, %b, %a, %b, %a, %b, %a, %b, "
               "%a, %b, %a, %b, %a, %b, %a, %b, %a, %b, %a, %b, %a, %b, %a, %b, %a, %b, %a, %b, %a, %b, %a, %b, %a, "
               "%b, %a, %b {axis = 0} : $[100,5]\n  return %0\n}"},
    {CASE_TRAIN, "(%a: $[6,33]) -> $[6,33] {\n  %0 = iota : $[33]\n  %1 = add %a, %0 : $[6,33]\n  return %1\n}"},
    {CASE_F32,
     "() -> i32[40], f32[3,40] {\n  %0 = iota : i32[40]\n  %1 = const {value = 2.5} : f32[3,40]\n  return %0, %1\n}"},
    {CASE_TRAIN,
     "(%a: $[6,33]) -> $[6,33] {\n  %0 = const {value = 0.3} : $\n  %1 = mul %a, %0 : $[6,33]\n  return %1\n}"},
    {CASE_ALL, "(%t: $[50,24], %i50: i32[3,7]) -> $[3,7,24] {\n  %0 = embedding %t, %i50 : $[3,7,24]\n  return %0\n}"},
    {CASE_TRAIN,
     "(%t: $[50,24], %p: $[16,24], %i50: i32[4,16]) -> $[4,16,24] {\n  %0 = embedding %t, %i50 : $[4,16,24]\n  %1 = "
     "iota : i32[16]\n  %2 = embedding %p, %1 : $[16,24]\n  %3 = add %0, %2 : $[4,16,24]\n  return %3\n}"},
    // the number of columns is also the number of positions
    {CASE_TRAIN,
     "(%t: $[50,16], %i50: i32[4,16], %i9: i32[16], %u: $[9,16]) -> $[4,16,16] {\n  %0 = embedding %t, %i50 : "
     "$[4,16,16]\n  %1 = embedding %u, %i9 : $[16,16]\n  %2 = add %0, %1 : $[4,16,16]\n  return %2\n}"},
    {CASE_TRAIN, "(%a: $[200,24], %i50: i32[200]) -> f32[50,24] {\n  %0 = embedding_grad %a, %i50 {out = f32} : "
                 "f32[50,24]\n  return %0\n}"},
    {CASE_TRAIN, "(%a: $[700,40], %i3: i32[700]) -> f32[5,40] {\n  %0 = embedding_grad %a, %i3 {out = f32} : "
                 "f32[5,40]\n  return %0\n}"},
    // positions whose index is outside of the table
    {CASE_TRAIN, "(%a: $[200,24], %i60: i32[200]) -> f32[50,24] {\n  %0 = embedding_grad %a, %i60 {out = f32} : "
                 "f32[50,24]\n  return %0\n}"},
#include "tests/numeric/op_cases_experts.def"
    // choices: one operand is taken, whatever the other is
    {CASE_ALL, "(%a: $[37,65], %b: $[37,65], %c: $[65]) -> $[37,65], $[37,65] {\n  %0 = lt %a, %b : $[37,65]\n  "
               "%1 = where %0, %a, %c : $[37,65]\n  %2 = log %a : $[37,65]\n  %3 = const {value = 0} : $\n  "
               "%4 = gt %a, %3 : $[37,65]\n  %5 = where %4, %2, %3 : $[37,65]\n  return %1, %5\n}"},
    // sums
    {CASE_ALL, "(%a: $[5,6,70]) -> $[5,6], $[5,6,1] {\n  %0 = sum %a {axes = [2]} : $[5,6]\n  %1 = sum %a {axes = [2], "
               "keep} : $[5,6,1]\n  return %0, %1\n}"},
    {CASE_TRAIN, "(%p: $[5,6,70]) -> f32[5,70], f32 {\n  %0 = sum %p {axes = [1], out = f32} : f32[5,70]\n  %1 = sum "
                 "%p {axes = [0, 1, 2], out = f32} : f32\n  return %0, %1\n}"},
    {CASE_ALL, "(%a: $[3,300,5]) -> $[300] {\n  %0 = sum %a {axes = [0, 2]} : $[300]\n  return %0\n}"},
    {CASE_ALL, "(%a: $[5,70]) -> $[5], $[70] {\n  %0 = reduce_max %a {axes = [1]} : $[5]\n  %1 = reduce_max %a {axes = "
               "[0]} : $[70]\n  return %0, %1\n}"},
    {CASE_TRAIN, "(%a: $[200,70]) -> f32[70] {\n  %0 = sum_to %a {out = f32} : f32[70]\n  return %0\n}"},
    {CASE_TRAIN, "(%a: $[3,100,70], %b: $[70]) -> $[3,100,70], f32[70] {\n  %0 = mul %a, %b : $[3,100,70]\n  %1 = "
                 "sum_to %0 {out = f32} : f32[70]\n  return %0, %1\n}"},
    {CASE_TRAIN, "(%a: $[3,20,70]) -> $[1,20,70], $[20,70], $[3,20,1] {\n  %0 = sum_to %a : $[1,20,70]\n  %1 = sum_to "
                 "%a : $[20,70]\n  %2 = sum_to %a : $[3,20,1]\n  return %0, %1, %2\n}"},
    // products
    {CASE_TRAIN, "(%a: $[37,65]) -> f32[37,65], f32[37] {\n  %0, %1 = quantize %a {out = e4m3} : e4m3[37,65], "
                 "f32[37]\n  %2 = cast %0 {out = f32} : f32[37,65]\n  return %2, %1\n}"},
    {CASE_TRAIN, "(%a: $[5,3,128]) -> f32[5,3,128], f32[5,3] {\n  %0, %1 = quantize %a {out = e5m2} : e5m2[5,3,128], "
                 "f32[5,3]\n  %2 = cast %0 {out = f32} : f32[5,3,128]\n  return %2, %1\n}"},
    // rows of bytes become columns: tiles of 128 x 128 with parts beyond the matrix, and sizes that 16 does not divide
    {CASE_TRAIN,
     "(%a: $[2,72,272], %f: f32[2,72], %b: $[37,65], %g: f32[37]) -> f32[272,144], f32[272,144], f32[65,37] {\n"
     "  %0 = cast %a {out = e4m3} : e4m3[2,72,272]\n  %1 = requantize %0, %f {out = e4m3} : e4m3[272,144]\n"
     "  %2 = reshape %0 : e4m3[144,272]\n  %3 = transpose %2 {perm = [1, 0]} : e4m3[272,144]\n"
     "  %4 = cast %b {out = e5m2} : e5m2[37,65]\n  %5 = requantize %4, %g {out = e4m3} : e4m3[65,37]\n"
     "  %6 = cast %1 {out = f32} : f32[272,144]\n  %7 = cast %3 {out = f32} : f32[272,144]\n"
     "  %8 = cast %5 {out = f32} : f32[65,37]\n  return %6, %7, %8\n}"},
    {CASE_TRAIN,
     "(%a: $[32,160], %f: f32[32]) -> f32[160,32], f32[160,32] {\n  %0 = cast %a {out = e5m2} : e5m2[32,160]\n"
     "  %1 = requantize %0, %f {out = e5m2} : e5m2[160,32]\n  %2 = cast %1 {out = f32} : f32[160,32]\n"
     "  %3 = cast %a {out = e4m3} : e4m3[32,160]\n  %4 = requantize %3, %f {out = e5m2} : e5m2[160,32]\n"
     "  %5 = cast %4 {out = f32} : f32[160,32]\n  return %2, %5\n}"},
    {CASE_TRAIN,
     "(%a: $[3,11,64], %b: $[32,64]) -> $[3,11,32] {\n  %0, %1 = quantize %a {out = e4m3} : e4m3[3,11,64], f32[3,11]\n"
     "  %2, %3 = quantize %b {out = e4m3} : e4m3[32,64], f32[32]\n  %4 = matmul %0, %2, %1, %3 {tb, scaled, out = $} : "
     "$[3,11,32]\n  return %4\n}"},
    {CASE_TRAIN,
     "(%a: $[48,64], %b: $[32,64]) -> $[48,32] {\n  %0, %1 = quantize %a {out = e5m2} : e5m2[48,64], f32[48]\n"
     "  %2, %3 = quantize %b {out = e4m3} : e4m3[32,64], f32[32]\n"
     "  %4 = matmul %0, %2, %1, %3 {tb, scaled, fast, out = $} : $[48,32]\n  return %4\n}"},
    {CASE_TRAIN,
     "(%a: $[48,64], %b: $[32,64], %s: f32, %t: f32) -> $[48,32] {\n  %0 = cast %a {out = e4m3} : e4m3[48,64]\n"
     "  %1 = cast %b {out = e5m2} : e5m2[32,64]\n  %2 = matmul %0, %1, %s, %t {tb, scaled, out = $} : $[48,32]\n"
     "  return %2\n}"},
    // blocks of 128 elements: of rows, of squares with zeros after their scales, of columns that no vector divides
    {CASE_TRAIN, "(%a: $[37,384]) -> f32[37,384], f32[3,37] {\n  %0, %1 = quantize_blocks %a {out = e4m3} : "
                 "e4m3[37,384], f32[3,37]\n  %2 = cast %0 {out = f32} : f32[37,384]\n  return %2, %1\n}"},
    {CASE_TRAIN, "(%a: $[256,640]) -> f32[256,640], f32[2,8] {\n  %0, %1 = quantize_blocks %a {out = e5m2, squares} : "
                 "e5m2[256,640], f32[2,8]\n  %2 = cast %0 {out = f32} : f32[256,640]\n  return %2, %1\n}"},
    {CASE_TRAIN,
     "(%a: $[2,128,200], %b: $[128,20]) -> f32[200,256], f32[2,200], f32[20,128], f32[1,20] {\n"
     "  %0, %1 = quantize_blocks %a {out = e4m3, across} : e4m3[200,256], f32[2,200]\n"
     "  %2, %3 = quantize_blocks %b {out = e5m2, across} : e5m2[20,128], f32[1,20]\n"
     "  %4 = cast %0 {out = f32} : f32[200,256]\n  %5 = cast %2 {out = f32} : f32[20,128]\n"
     "  return %4, %1, %5, %3\n}"},
    {CASE_TRAIN,
     "(%a: $[2,128,256]) -> f32[2,128,256], f32[2,256], f32[256,256], f32[2,256] {\n"
     "  %0, %1, %2, %3 = quantize_both %a {out = e4m3} : e4m3[2,128,256], f32[2,256], e4m3[256,256], f32[2,256]\n"
     "  %4 = cast %0 {out = f32} : f32[2,128,256]\n  %5 = cast %2 {out = f32} : f32[256,256]\n"
     "  return %4, %1, %5, %3\n}"},
    {CASE_TRAIN,
     "(%a: $[3,12,384], %b: $[256,384]) -> $[3,12,256] {\n"
     "  %0, %1 = quantize_blocks %a {out = e4m3} : e4m3[3,12,384], f32[3,36]\n"
     "  %2, %3 = quantize_blocks %b {out = e4m3, squares} : e4m3[256,384], f32[2,4]\n"
     "  %4 = matmul %0, %2, %1, %3 {tb, scaled, blocks, out = $} : $[3,12,256]\n  return %4\n}"},
    {CASE_TRAIN,
     "(%a: $[256,48], %b: $[256,32]) -> f32[48,32] {\n"
     "  %0, %1 = quantize_blocks %a {out = e5m2, across} : e5m2[48,256], f32[2,48]\n"
     "  %2, %3 = quantize_blocks %b {out = e4m3, across} : e4m3[32,256], f32[2,32]\n"
     "  %4 = matmul %0, %2, %1, %3 {tb, scaled, blocks} : f32[48,32]\n  return %4\n}"},
    {CASE_ALL, "(%a: $[33,20], %b: $[20,17]) -> $[33,17] {\n  %0 = matmul %a, %b : $[33,17]\n  return %0\n}"},
    {CASE_ALL,
     "(%a: $[3,11,20], %b: $[17,20]) -> $[3,11,17] {\n  %0 = matmul %a, %b {tb} : $[3,11,17]\n  return %0\n}"},
    {CASE_TRAIN, "(%a: $[150,33], %b: $[150,40]) -> f32[33,40] {\n  %0 = matmul %a, %b {ta, out = f32} : f32[33,40]\n  "
                 "return %0\n}"},
    {CASE_TRAIN,
     "(%a: $[48,33], %b: $[40,48]) -> $[33,40] {\n  %0 = matmul %a, %b {ta, tb} : $[33,40]\n  return %0\n}"},
    {CASE_TRAIN,
     "(%a: $[200,600], %b: $[520,600]) -> $[200,520] {\n  %0 = matmul %a, %b {tb} : $[200,520]\n  return %0\n}"},
    // one row: by vectors, one by one, over more than a turn of a warp, with a bias
    {CASE_TRAIN, "(%a: $[1,40], %b: $[24,40], %c: $[24]) -> $[1,24] {\n  %0 = matmul %a, %b {tb} : $[1,24]\n  %1 = "
                 "broadcast %c : $[1,24]\n  %2 = add %0, %1 : $[1,24]\n  return %2\n}"},
    {CASE_TRAIN, "(%a: $[1,1,1300], %b: $[19,1300]) -> $[1,1,19] {\n  %0 = matmul %a, %b {tb} : $[1,1,19]\n  "
                 "return %0\n}"},
    {CASE_TRAIN, "(%a: $[1,333], %b: $[333,72], %c: $[72]) -> $[1,72] {\n  %0 = matmul %a, %b : $[1,72]\n  %1 = "
                 "broadcast %c : $[1,72]\n  %2 = add %0, %1 : $[1,72]\n  return %2\n}"},
    {CASE_TRAIN, "(%a: $[1,7], %b: $[7,21]) -> $[1,21] {\n  %0 = matmul %a, %b : $[1,21]\n  return %0\n}"},
    {CASE_TRAIN, "(%a: $[40,24], %b: $[32,24], %c: $[32]) -> $[40,32] {\n  %0 = matmul %a, %b {tb} : $[40,32]\n  %1 = "
                 "add %0, %c : $[40,32]\n  return %1\n}"},
    {CASE_TRAIN, "(%a: $[40,24], %b: $[32,24], %c: $[32]) -> $[40,32] {\n  %0 = matmul %a, %b {tb} : $[40,32]\n  %1 = "
                 "add %0, %c : $[40,32]\n  %2 = gelu %1 : $[40,32]\n  return %2\n}"},
    {CASE_ALL, "(%a: $[3,4,7], %b: $[3,7,5]) -> $[3,4,5] {\n  %0 = bmm %a, %b : $[3,4,5]\n  return %0\n}"},
    {CASE_TRAIN,
     "(%a: $[2,3,8,4], %b: $[2,3,5,8]) -> $[2,3,4,5] {\n  %0 = bmm %a, %b {ta, tb} : $[2,3,4,5]\n  return %0\n}"},
    // rows
    {CASE_ALL, "(%x: $[2,33,40], %w: $[40], %b: $[40]) -> $[2,33,40], #[2,33], #[2,33] {\n  %0, %1, %2 = layer_norm "
               "%x, %w, %b {eps = 1e-05} : $[2,33,40], #[2,33], #[2,33]\n  return %0, %1, %2\n}"},
    {CASE_TRAIN, "(%x: $[4,16,16], %w: $[16], %b: $[16], %d: $[4,16,16]) -> $[4,16,16], f32[4,16], f32[4,16], "
                 "$[4,16,16] {\n  %0, %1, %2 = layer_norm %x, %w, %b {eps = 1e-05} : $[4,16,16], f32[4,16], "
                 "f32[4,16]\n  %3 = add %0, %d : $[4,16,16]\n  return %0, %1, %2, %3\n}"},
    {CASE_ALL, "(%d: $[150,40], %x: $[150,40], %w: $[40], %s: #[150], %p: #[150]) -> $[150,40], #[40], #[40] {\n  %0, "
               "%1, %2 = layer_norm_grad %d, %x, %w, %s, %p : $[150,40], #[40], #[40]\n  return %0, %1, %2\n}"},
    {CASE_TRAIN, "(%d: $[4,16,16], %x: $[4,16,16], %w: $[16], %s: f32[4,16], %p: f32[4,16], %e: $[4,16,16]) -> "
                 "$[4,16,16], f32[16], f32[16] {\n  %0, %1, %2 = layer_norm_grad %d, %x, %w, %s, %p : $[4,16,16], "
                 "f32[16], f32[16]\n  %3 = add %0, %e : $[4,16,16]\n  return %3, %1, %2\n}"},
    {CASE_ALL, "(%x: $[66,40], %w: $[40]) -> $[66,40], #[66] {\n  %0, %1 = rms_norm %x, %w {eps = 1e-06} : $[66,40], "
               "#[66]\n  return %0, %1\n}"},
    {CASE_ALL, "(%d: $[130,40], %x: $[130,40], %w: $[40], %p: #[130]) -> $[130,40], #[40] {\n  %0, %1 = rms_norm_grad "
               "%d, %x, %w, %p : $[130,40], #[40]\n  return %0, %1\n}"},
    {CASE_ALL, "(%x: $[20,50]) -> $[20,50] {\n  %0 = softmax %x : $[20,50]\n  return %0\n}"},
    {CASE_TRAIN, "(%x: $[3,40,40]) -> $[3,40,40] {\n  %0 = softmax %x {causal} : $[3,40,40]\n  return %0\n}"},
    {CASE_TRAIN, "(%x: $[2,5,9]) -> $[2,5,9] {\n  %0 = softmax %x {causal} : $[2,5,9]\n  return %0\n}"},
    {CASE_TRAIN, "(%x: $[2,3000]) -> $[2,3000] {\n  %0 = softmax %x : $[2,3000]\n  return %0\n}"},
    {CASE_F32, "(%x: $[3,20011]) -> $[3,20011], $[3] {\n  %0 = softmax %x : $[3,20011]\n  %1 = sum %x {axes = [1]} : "
               "$[3]\n  return %0, %1\n}"},
    {CASE_ALL, "(%x: $[3,40,50]) -> #[3,40], #[3,40,1] {\n  %0 = logsumexp %x : #[3,40]\n  "
               "%1 = logsumexp %x {keep} : #[3,40,1]\n  return %0, %1\n}"},
    {CASE_TRAIN, "(%x: $[3,20011], %s: $[3,1]) -> f32[3], $[3,20011] {\n  %0 = logsumexp %x : f32[3]\n  "
                 "%1 = log %x : $[3,20011]\n  %2 = const {value = 0} : $\n  %3 = gt %x, %2 : $[3,20011]\n  "
                 "%4 = where %3, %1, %s : $[3,20011]\n  return %0, %4\n}"},
    {CASE_ALL, "(%d: $[20,50], %p: $[20,50]) -> $[20,50] {\n  %0 = softmax_grad %d, %p : $[20,50]\n  return %0\n}"},
    {CASE_ALL, "(%x: $[2,21,32]) -> $[2,21,32], $[2,21,32] {\n  %0 = rope %x {heads = 4, theta = 10000.0} : "
               "$[2,21,32]\n  %1 = rope %x {heads = 2, theta = 500.0, inverse} : $[2,21,32]\n  return %0, %1\n}"},
    // positions that are read
    {CASE_ALL, "(%x: $[2,21,32], %i900: i32[2,21]) -> $[2,21,32] {\n  %0 = rope %x, %i900 {heads = 4, "
               "theta = 10000.0} : $[2,21,32]\n  return %0\n}"},
    {CASE_TRAIN, "(%x: $[1,1,48], %i90: i32[1,1]) -> $[1,1,48] {\n  %0 = rope %x, %i90 {heads = 3, theta = 100.0, "
                 "turned = 2} : $[1,1,48]\n  return %0\n}"},
    // threads of a warp exchange the halves of heads and share angles; in rows that end within a vector only angles
    {CASE_ALL, "(%x: $[2,21,256], %w: $[256]) -> $[2,21,256], #[2,21] {\n  %0, %1 = rms_norm %x, %w {eps = 1e-05} : "
               "$[2,21,256], #[2,21]\n  %2 = rope %0 {heads = 2, theta = 10000.0} : $[2,21,256]\n  "
               "return %2, %1\n}"},
    {CASE_TRAIN, "(%x: $[2,21,96], %w: $[96]) -> $[2,21,96] {\n  %0, %1 = rms_norm %x, %w {eps = 1e-05} : "
                 "$[2,21,96], #[2,21]\n  %2 = rope %0 {heads = 3, theta = 100.0, turned = 2} : $[2,21,96]\n  "
                 "return %2\n}"},
    {CASE_F32 | CASE_F64, "(%d: $[2,70,256], %x: $[2,70,256], %w: $[256], %p: #[2,70], %i900: i32[2,70]) -> "
                          "$[2,70,256], #[256] {\n  %0 = rope %d, %i900 {heads = 4, theta = 100.0, inverse} : "
                          "$[2,70,256]\n  %1, %2 = rms_norm_grad %0, %x, %w, %p : $[2,70,256], #[256]\n  "
                          "return %1, %2\n}"},
    {CASE_F32, "(%d: $[2,70,256]) -> $[2,70,256], f32[256] {\n  %0 = rope %d {heads = 8, theta = 100.0, inverse} : "
               "$[2,70,256]\n  %1 = sum_to %0 {out = f32} : f32[256]\n  return %0, %1\n}"},
    // parts of rows, by vectors and one by one
    {CASE_ALL, "(%x: $[2,9,64], %d: $[2,9,32]) -> $[2,9,32], $[2,9,64] {\n  %0 = slice %x {axis = 2, start = 0, "
               "size = 32} : $[2,9,32]\n  %1 = slice %x {axis = 2, start = 32, size = 32} : $[2,9,32]\n  "
               "%2 = mul %0, %1 : $[2,9,32]\n  %3 = mul %d, %1 : $[2,9,32]\n  %4 = sub %d, %0 : $[2,9,32]\n  "
               "%5 = concat %3, %4 {axis = 2} : $[2,9,64]\n  return %2, %5\n}"},
    {CASE_ALL, "(%x: $[5,21], %w: $[7]) -> $[5,14], $[5] {\n  %0 = slice %x {axis = 1, start = 3, size = 7} : "
               "$[5,7]\n  %1 = slice %x {axis = 1, start = 14, size = 7} : $[5,7]\n  %2 = mul %0, %w : $[5,7]\n  "
               "%3 = add %2, %1 : $[5,7]\n  %4 = concat %3, %2 {axis = 1} : $[5,14]\n  "
               "%5 = reduce_max %3 {axes = [1]} : $[5]\n  return %4, %5\n}"},
    // heads that do not turn
    {CASE_ALL, "(%x: $[2,21,48]) -> $[2,21,48], $[2,21,48] {\n  %0 = rope %x {heads = 6, theta = 100.0, turned = 4} : "
               "$[2,21,48]\n  %1 = rope %x {heads = 3, theta = 50.0, inverse, turned = 1} : $[2,21,48]\n  "
               "return %0, %1\n}"},
    // turns that are kept, slower by a share, and slower by the whole factor
    {CASE_ALL, "(%x: $[2,21,32]) -> $[2,21,32], $[2,21,32] {\n  %0 = rope %x {heads = 2, theta = 100.0, "
               "scaling = [8.0, 1.0, 4.0, 60.0]} : $[2,21,32]\n  %1 = rope %x {heads = 2, theta = 100.0, "
               "scaling = [8.0, 1.0, 4.0, 60.0], inverse} : $[2,21,32]\n  return %0, %1\n}"},
    {CASE_TRAIN, "(%q: $[2,70,48], %k: $[2,70,48], %v: $[2,70,48], %d: $[2,70,48]) -> $[2,70,48], f32[2,3,70], "
                 "$[2,70,48], $[2,70,48], $[2,70,48] {\n"
                 "  %0, %1 = attention %q, %k, %v {heads = 3, causal} : $[2,70,48], f32[2,3,70]\n"
                 "  %2, %3, %4 = attention_grad %d, %q, %k, %v, %0, %1 {heads = 3, causal} : $[2,70,48], $[2,70,48], "
                 "$[2,70,48]\n  return %0, %1, %2, %3, %4\n}"},
    {CASE_TRAIN, "(%q: $[1,150,64], %k: $[1,150,32], %v: $[1,150,32], %d: $[1,150,64]) -> $[1,150,64], f32[1,4,150], "
                 "$[1,150,64], $[1,150,32], $[1,150,32] {\n"
                 "  %0, %1 = attention %q, %k, %v {heads = 4, kv_heads = 2, scale = 0.2} : $[1,150,64], f32[1,4,150]\n"
                 "  %2, %3, %4 = attention_grad %d, %q, %k, %v, %0, %1 {heads = 4, kv_heads = 2, scale = 0.2} : "
                 "$[1,150,64], $[1,150,32], $[1,150,32]\n  return %0, %1, %2, %3, %4\n}"},
    {CASE_TRAIN, "(%x: $[2,65,128], %d: $[2,65,64]) -> $[2,65,64], $[2,65,128] {\n"
                 "  %0, %1 = attention %x {heads = 4, kv_heads = 2, causal, packed} : $[2,65,64], f32[2,4,65]\n"
                 "  %2 = attention_grad %d, %x, %0, %1 {heads = 4, kv_heads = 2, causal, packed} : $[2,65,128]\n  "
                 "return %0, %2\n}"},
#include "tests/numeric/op_cases_sequences.def"
    // more rows than the GPU has blocks: the weight of a block's next row
    {CASE_TRAIN, "(%z: $[2200,8], %i7: i32[2200], %p: f32, %w: f32[2200]) -> f32, $[2200,8] {\n  %0, %1 = "
                 "cross_entropy_grad %z, %i7, %p, %w {ignore = 1} : f32, $[2200,8]\n  return %0, %1\n}"},
    // weights that no target has: each is outside of the vocabulary and ignored
    {CASE_TRAIN, "(%z: $[6,33], %p: f32, %w: f32[6]) -> f32, $[6,33] {\n  %0 = const {value = -7} : f32[6]\n  %1 = "
                 "cast %0 {out = i32} : i32[6]\n  %2, %3 = cross_entropy_grad %z, %1, %p, %w {ignore = -7} : f32, "
                 "$[6,33]\n  return %2, %3\n}"},
    // a vocabulary in parts: one of them, and indices that it does not have
    {CASE_TRAIN, "(%z: $[5,9,70], %i90: i32[5,9], %p: f32[1,5,9], %q: f32[1,5,9]) -> f32[1,5,9], f32[1,5,9], f32, "
                 "f32[5,9] {\n  %0 = reshape %i90 : i32[1,5,9]\n  %1, %2 = loss_part %z, %0 : f32[1,5,9], f32[1,5,9]\n"
                 "  %3, %4 = loss_of_parts %p, %q, %i90 : f32, f32[5,9]\n  return %1, %2, %3, %4\n}"},
    {CASE_TRAIN, "(%z: $[90,2100], %i2500: i32[90], %p: f32) -> f32[1,90], f32[1,90], $[90,2100] {\n"
                 "  %0 = reshape %i2500 : i32[1,90]\n  %1, %2 = loss_part %z, %0 : f32[1,90], f32[1,90]\n  %3 = "
                 "reshape %1 : f32[90]\n  %4 = loss_part_grad %z, %0, %3, %p, %i2500 : $[90,2100]\n  return %1, %2, "
                 "%4\n}"},
    {CASE_TRAIN, "(%z: $[40,33], %i6: i32[40], %w: f32[40], %p: f32) -> $[40,33] {\n  %0 = reshape %i6 : i32[1,40]\n"
                 "  %1, %2 = loss_part %z, %0 : f32[1,40], f32[1,40]\n  %3 = reshape %1 : f32[40]\n  %4 = "
                 "loss_part_grad %z, %0, %3, %p, %i6, %w {ignore = 2} : $[40,33]\n  return %4\n}"},
    // the last part, of 33 columns from 24 on, of a vocabulary of 50: index and target are 24 apart
    {CASE_TRAIN, "(%z: $[40,33], %i26: i32[40], %w: f32[40], %p: f32) -> f32[1,40], f32[1,40], $[40,33] {\n"
                 "  %0 = const {value = 24} : f32[40]\n  %1 = cast %i26 {out = f32} : f32[40]\n  %8 = add %1, %0 : "
                 "f32[40]\n  %2 = cast %8 {out = i32} : i32[40]\n  %3 = reshape %i26 : i32[1,40]\n  %4, %5 = "
                 "loss_part %z, %3, %2 {uneven = 50} : f32[1,40], "
                 "f32[1,40]\n  %6 = reshape %4 : f32[40]\n  %7 = loss_part_grad %z, %3, %6, %p, %2, %w "
                 "{uneven = 50} : $[40,33]\n  return %4, %5, %7\n}"},
    {CASE_F32, "(%p: f32[3,2200], %q: f32[3,2200], %i4: i32[2200], %w: f32[2200]) -> f32, f32[2200] {\n  %0, %1 = "
               "loss_of_parts %p, %q, %i4, %w {ignore = 1} : f32, f32[2200]\n  return %0, %1\n}"},
    {CASE_TRAIN, "(%t: $[50,24], %i70: i32[3,7], %a: $[3,7,24]) -> i32[1,3,7], $[3,7,24], f32[50,24], i32[3,7] {\n"
                 "  %0 = own_index %i70 {over = [tensor], rows = 50} : i32[1,3,7]\n"
                 "  %1 = take %t, %0 {parts} : $[3,7,24]\n"
                 "  %2 = embedding_grad %a, %0 {parts, out = f32} : f32[50,24]\n"
                 "  %3 = own_index %i70 {over = [expert], rows = 5, routed} : i32[3,7]\n"
                 "  return %0, %1, %2, %3\n}"},
    {CASE_TRAIN, "(%i6: i32[5,20,3], %i4: i32[70,30,2], %y: $[100,40], %z: $[100,9]) -> i32[5,20], i32[5,20,3], "
                 "i32[70,30], i32[70,30,1], i32[70,30,2], $[5,20,40], $[5,20,9] {\n"
                 "  %0, %1, %2 = route %i6 {experts = 6, over = [expert]} : i32[5,20], i32[5,20,1], i32[5,20,3]\n"
                 "  %3, %4, %5 = route %i4 {experts = 2, over = [expert], capacity = 700} : i32[70,30], i32[70,30,1], "
                 "i32[70,30,2]\n  %6 = combine %y, %1 {stepwise} : $[5,20,40]\n"
                 "  %7 = combine %z, %i6 {stepwise} : $[5,20,9]\n"
                 "  return %0, %2, %3, %4, %5, %6, %7\n}"},
    // dropout: elements in fours that cross rows and sequences, one or several rows of the operand a sequence; before
    // and after other row work; keys by view and by value; attention in fours and not, on tensor cores and not
    {CASE_ALL, "(%a: $[4,7,12], %i9: i32[8]) -> $[4,7,12], $[4,7,12] {\n  %0 = dropout %a, %i9 {p = 0.3, batch = 4} : "
               "$[4,7,12]\n  %1 = dropout %a, %i9 {p = 0.3, batch = 1} : $[4,7,12]\n  return %0, %1\n}"},
    {CASE_ALL, "(%a: $[6,5,7], %i9: i32[8], %b: $[7]) -> $[6,5,7] {\n  %0 = square %a : $[6,5,7]\n  %1 = dropout %0, "
               "%i9 {p = 0.5, batch = 3} : $[6,5,7]\n  %2 = add %1, %b : $[6,5,7]\n  return %2\n}"},
    {CASE_ALL, "(%a: $[70,1], %b: $[2,65], %i9: i32[8]) -> $[70,1], $[2,65] {\n  %0 = dropout %a, %i9 {p = 0.9, batch "
               "= 70} : $[70,1]\n  %1 = dropout %b, %i9 {p = 0.001, batch = 2} : $[2,65]\n  return %0, %1\n}"},
    {CASE_TRAIN, "(%a: $[2,50,64], %i9: i32[8], %w: $[64], %b: $[64], %c: $[2,50,64]) -> $[2,50,64], $[2,50,64], "
                 "f32[64] {\n  %0 = dropout %a, %i9 {p = 0.1, batch = 2} : $[2,50,64]\n  %1 = add %0, %c : $[2,50,64]\n"
                 "  %2, %3, %4 = layer_norm %1, %w, %b {eps = 1e-05} : $[2,50,64], f32[2,50], f32[2,50]\n  %5 = "
                 "dropout %c, %i9 {p = 0.2, batch = 1} : $[2,50,64]\n  %6 = sum_to %5 {out = f32} : f32[64]\n  "
                 "return %1, %2, %6\n}"},
    {CASE_F32, "(%a: f32[4,6,8]) -> f32[4,6,8], f32[4,6,8] {\n  dropout_keys {counter = @count, sites = 3, stride = 5, "
               "into = @keys, offset = 8}\n  %0 = view {buffer = @keys, offset = 24} : i32[8]\n  %1 = dropout %a, %0 {"
               "p = 0.5, batch = 4} : f32[4,6,8]\n  %2 = dropout_keys {counter = @count, sites = 1, stride = 7} "
               ": i32[1,8]\n  %3 = reshape %2 : i32[8]\n  %4 = dropout %a, %3 {p = 0.5, batch = 4} : f32[4,6,8]\n"
               "  return %1, %4\n}"},
    {CASE_TRAIN, "(%sq: $[2,70,48], %sk: $[2,70,48], %v: $[2,70,48], %d: $[2,70,48], %i9: i32[8]) -> $[2,70,48], "
                 "$[2,70,48], $[2,70,48], $[2,70,48] {\n"
                 "  %0, %1 = attention %sq, %sk, %v, %i9 {heads = 3, causal, p = 0.3, batch = 2} : $[2,70,48], "
                 "f32[2,3,70]\n  %2, %3, %4 = attention_grad %d, %sq, %sk, %v, %0, %1, %i9 {heads = 3, causal, p = "
                 "0.3, batch = 2} : $[2,70,48], $[2,70,48], $[2,70,48]\n  return %0, %2, %3, %4\n}"},
    {CASE_TRAIN, "(%sx: $[2,200,256], %d: $[2,200,128], %i9: i32[8]) -> $[2,200,128], $[2,200,256] {\n"
                 "  %0, %1 = attention %sx, %i9 {heads = 4, kv_heads = 2, packed, p = 0.2, batch = 1} : $[2,200,128], "
                 "f32[2,4,200]\n  %2 = attention_grad %d, %sx, %0, %1, %i9 {heads = 4, kv_heads = 2, packed, p = 0.2, "
                 "batch = 1} : $[2,200,256]\n  return %0, %2\n}"},
    {CASE_TRAIN, "(%sx: $[2,130,384], %d: $[2,130,128], %i9: i32[8]) -> $[2,130,128], $[2,130,384] {\n"
                 "  %0, %1 = attention %sx, %i9 {heads = 1, causal, packed, p = 0.1, batch = 2} : $[2,130,128], "
                 "f32[2,1,130]\n  %2 = attention_grad %d, %sx, %0, %1, %i9 {heads = 1, causal, packed, p = 0.1, "
                 "batch = 2} : $[2,130,384]\n  return %0, %2\n}"},
    {CASE_TRAIN, "(%sx: $[1,128,192], %d: $[1,128,64], %i9: i32[8]) -> $[1,128,64], $[1,128,192] {\n"
                 "  %0, %1 = attention %sx, %i9 {heads = 1, causal, packed, p = 0.1, batch = 1} : $[1,128,64], "
                 "f32[1,1,128]\n  %2 = attention_grad %d, %sx, %0, %1, %i9 {heads = 1, causal, packed, p = 0.1, "
                 "batch = 1} : $[1,128,192]\n  return %0, %2\n}"},
    // storage and the update
    {CASE_F32,
     "(%a: f32[30,40]) {\n  %0 = square %a : f32[30,40]\n  store %0 {into = @t.grad, offset = 100}\n  return\n}"},
    {CASE_F32, "(%a: f32[30,40]) {\n  store %a {into = @t.grad, offset = 3000, accumulate}\n  return\n}"},
    {CASE_BF16, "(%a: bf16[30,40], %b: bf16[30,50]) {\n  %0 = matmul %a, %b {ta, out = f32} : f32[40,50]\n  store %0 "
                "{into = @t.grad, offset = 64}\n  %1 = matmul %b, %a {ta, out = f32} : f32[50,40]\n  store %1 {into = "
                "@t.grad, offset = 2500, accumulate}\n  return\n}"},
    {CASE_F32, "(%a: f32[30,40], %b: f32[30,50]) {\n  %0 = matmul %a, %b {ta} : f32[40,50]\n  store %0 {into = "
               "@t.grad, offset = 0, accumulate}\n  return\n}"},
    {CASE_BF16, "(%a: bf16[20,30]) -> bf16[20,30] {\n  %0 = view {buffer = @half, offset = 0} : bf16[20,30]\n  %1 = "
                "mul %0, %a : bf16[20,30]\n  return %1\n}"},
    {CASE_F32,
     "() {\n  %0 = grad_norm {buffers = [@t.grad, @u.grad], loss_scale = 8} : f32\n"
     "  %1 = step_scalars %0 {counter = @step, clip = 1.0, loss_scale = 8, betas = [0.9, 0.95], lr = cosine, "
     "lr_peak = 0.001, lr_floor = 0.0001, lr_warmup = 10, lr_total = 100} : f32[8]\n"
     "  update %1 {gradient = @t.grad, states = [@t.m, @t.v], master_weights = @t.master, "
     "weights = @t.compute, decayed = 3001, weight_decay = 0.1, kernel = @adamw}\n  return\n}"},
    {CASE_F32, "(%p: f32) {\n"
               "  %0 = step_scalars %p {counter = @step, clip = 0.0, lr = constant, lr_peak = 0.01} : f32[8]\n"
               "  update %0 {gradient = @q.grad, states = [@q.m], master_weights = @q.master, decayed = 0, "
               "weight_decay = 0.1, kernel = @muon}\n  return\n}"},
    {CASE_F32, "(%p: f32) {\n"
               "  %0 = step_scalars %p {counter = @step, clip = 0.0, lr = constant, lr_peak = 0.01} : f32[8]\n"
               "  update %0 {gradient = @l.grad, states = [@l.row, @l.column, @l.number, @l.each], master_weights = "
               "@l.master, weights = @l.compute, decayed = 4064, weight_decay = 0.1, lr_scale = 0.5, kernel = @lined}\n"
               "  return\n}"},
    // weights that are rounded to nearest, with a state of what they lack
    {CASE_BF16, "(%p: f32) {\n"
                "  %0 = step_scalars %p {counter = @step, clip = 0.0, betas = [0.9, 0.95], lr = constant, lr_peak = "
                "0.01} : f32[8]\n  update %0 {gradient = @r.grad, states = [@r.half, @r.lacks], master_weights = "
                "@r.master, decayed = 2880, weight_decay = 0.1, kernel = @kahan}\n  return\n}"},
    // weights that are rounded at random, of several parameters, in steps that f32 has not
    {CASE_BF16, "(%p: f32) -> f32[8] {\n  %s = const {value = 16777218.0} : f32[1]\n"
                "  %t = cast %s {out = i32} : i32[1]\n  store %t {into = @step, offset = 0}\n"
                "  %0 = step_scalars %p {counter = @step, clip = 0.0, betas = [0.9, 0.95], lr = constant, lr_peak = "
                "0.01} : f32[8]\n  update %0 {gradient = @r.grad, states = [@r.m, @r.v], master_weights = @r.master, "
                "rounding = @count, decayed = 2880, weight_decay = 0.1, kernel = @adamw}\n"
                "  %1 = step_scalars %p {counter = @step, clip = 0.0, betas = [0.9, 0.95], lr = constant, lr_peak = "
                "0.01} : f32[8]\n  update %1 {gradient = @r.grad, states = [@r.m, @r.v], master_weights = @r.master, "
                "rounding = @count, decayed = 2880, weight_decay = 0.1, kernel = @adamw}\n  return %1\n}"},
    {CASE_F32, "(%p: f32) -> f32[8], f32[8] {\n"
               "  %0 = step_scalars %p {counter = @step, clip = 0.0, betas = [0.9, 0.999], lr = linear, lr_peak = "
               "0.01, lr_warmup = 2, lr_total = 50} : f32[8]\n"
               "  %1 = step_scalars %p {counter = @step, clip = 0.5, betas = [0.9, 0.999], lr = constant, lr_peak = "
               "0.01, lr_warmup = 500} : f32[8]\n  return %0, %1\n}"},
#define RATE_CASE(rate) {CASE_F32, "(%p: f32) -> f32[8] {\n  %0 = step_scalars %p {counter = @step, clip = 0.0, " rate \
                                   "} : f32[8]\n  return %0\n}"}
#define WSD_CASE(shape) RATE_CASE("lr = wsd, lr_peak = 0.01, lr_floor = 0.002, lr_warmup = 2, lr_total = 9, " \
                                  "lr_decay = 7, lr_shape = " shape)
    WSD_CASE("linear"), WSD_CASE("cosine"), WSD_CASE("sqrt"),
    RATE_CASE("lr = constant, lr_peak = 0.01, on_nan = skip"),
    RATE_CASE("lr = inverse_sqrt, lr_peak = 0.01, lr_floor = 0.001, lr_warmup = 2"),
    RATE_CASE("lr = points, lr_peak = 0.5, lr_steps = [0, 2, 9], lr_rates = [0.25, 0.5, 0.125]"),
    RATE_CASE("lr = points, lr_peak = 0.5, lr_steps = [8, 9], lr_rates = [0.25, 0.5]"),
    RATE_CASE("lr = points, lr_peak = 0.5, lr_steps = [1, 2], lr_rates = [0.25, 0.5]"),
#undef WSD_CASE
#undef RATE_CASE
    // scores of a loss and a norm: among 128 of each, in the last place and in one between; with one too few
#define PAST(losses, norms) \
    "  %0 = const {value = " losses "} : f32\n  %1 = const {value = " norms "} : f32\n  store %0 {into = @past, " \
    "offset = 128}\n  store %a {into = @past, offset = 0}\n  store %b {into = @past, offset = 129}\n" \
    "  store %1 {into = @past, offset = 257}\n"
#define SCORES "counter = @step, clip = 0.0, lr = constant, lr_peak = 0.01, history = @past"
    {CASE_F32, "(%p: f32, %l: f32, %a: f32[128], %b: f32[128]) -> f32[8] {\n" PAST("255.0", "200.0")
               "  %2 = step_scalars %p, %l {" SCORES ", skip_loss_z = 11.0} : f32[8]\n  return %2\n}"},
    {CASE_F32, "(%p: f32, %a: f32[128], %b: f32[128]) -> f32[8] {\n" PAST("127.0", "128.0")
               "  %2 = const {value = 100.0} : f32\n"
               "  %3 = step_scalars %2, %p {" SCORES ", skip_norm_z = 5.0} : f32[8]\n  return %3\n}"},
#undef SCORES
#undef PAST
    {CASE_F32, "() -> f64[5], f32, f32, f32 {\n  %0 = square_sums {buffers = [@t.grad, @u.grad]} : f64[5]\n"
               "  %1 = root_sum %0 : f32\n  %2 = root_sum %0 {loss_scale = 1024} : f32\n"
               "  %3 = grad_norm {buffers = [@t.grad, @u.grad]} : f32\n  return %0, %1, %2, %3\n}"},
    {CASE_F32, "() -> f64[29], f32 {\n  %0 = square_sums {buffers = [@e.grad, @e.other], exact} : f64[29]\n"
               "  %1 = root_sum %0 {exact, loss_scale = 8} : f32\n  return %0, %1\n}"},
    // sums in a tree: rows of four elements, of an odd number, of one; more rows than are added at once
    {CASE_F32, "(%a: f32[8,40], %b: f32[4,3], %c: f32[16], %d: f32[64,12], %e: f32[1,5]) -> f32[40], f32[3], f32, "
               "f32[12], f32[5] {\n  %0 = tree_sum %a : f32[40]\n  %1 = tree_sum %b : f32[3]\n"
               "  %2 = tree_sum %c : f32\n"
               "  %3 = tree_sum %d : f32[12]\n  %4 = tree_sum %e : f32[5]\n  return %0, %1, %2, %3, %4\n}"},
    {CASE_F32, "(%a: f32[5000]) {\n  begin {life = @leaf}\n  store %a {into = @leaf, offset = 0}\n"
               "  reduce_scatter {buffer = @leaf, into = @t.grad, comm = @self, tree}\n  return\n}"},
    {CASE_F32,
     "() -> f32[8] {\n  %0 = step_scalars {counter = @step, clip = 0.0, loss_scale = 4, betas = [0.9, 0.95], lr = "
     "constant, lr_peak = 0.01} : f32[8]\n"
     "  update %0 {gradient = @t.v, states = [@t.m, @t.v], master_weights = @t.master, "
     "weights = @t.compute, decayed = 3001, weight_decay = 0.1, kernel = @adamw}\n  return %0\n}"},
    // tensors of a bucket, each with one scale, with gaps between them: of any numbers, of zeros, and with NaN
    {CASE_F32, "(%a: f32[2048], %b: f32[1930], %c: f32[1022]) -> f32[5000], f32[12] {\n"
               "  %1 = cast %a {out = bf16} : bf16[2048]\n"
               "  %2 = const {value = 0.0} : f32\n  %3 = mul %b, %2 : f32[1930]\n"
               "  %4 = cast %3 {out = bf16} : bf16[1930]\n  %9 = sqrt %c : f32[1022]\n"
               "  %5 = cast %9 {out = bf16} : bf16[1022]\n"
               "  store %1 {into = @w.master, offset = 0}\n  store %4 {into = @w.master, offset = 2048}\n"
               "  store %5 {into = @w.master, offset = 3978}\n"
               "  begin {life = @w.scales}\n  zero {into = @w.scales, offset = 0, size = 4}\n"
               "  all_max {out = e4m3, buffers = [@w.master], into = @w.scales, offset = 4, comm = @self}\n"
               "  all_gather {out = e4m3, buffer = @w.master, into = @w.bytes, comm = @self, quantized = 0, "
               "scales_in = @w.scales, first = 1}\n"
               "  %6 = view {buffer = @w.bytes, offset = 0} : e4m3[5000]\n"
               "  %7 = view {buffer = @w.scales, offset = 4} : f32[12]\n"
               "  %8 = cast %6 {out = f32} : f32[5000]\n  return %8, %7\n}"},
    // storage that lives for a while, and collectives of one rank, which copy
    {CASE_F32, "(%a: f32[30,40]) {\n  begin {life = @life}\n  zero {into = @life, offset = 1200, size = 3800}\n  "
               "store %a {into = @life, offset = 0}\n"
               "  reduce_scatter {buffer = @life, into = @t.grad, comm = @self}\n  all_gather {buffer = @t.grad, into "
               "= @t.m, comm = @self}\n  exchange {buffer = @t.m, into = @t.grad, comm = @self}\n  return\n}"},
    // convolutions: taps more than positions, one tap, no whole run of positions, both ways
    {CASE_ALL, "(%a: $[2,37,9], %b: $[4,9], %c: $[3,130], %d: $[5,130], %e: $[1,9]) -> $[2,37,9], $[2,37,9], $[3,130], "
               "$[3,130], $[2,37,9] {\n  %0 = conv1d %a, %b : $[2,37,9]\n  %1 = conv1d %a, %b {reverse} : $[2,37,9]\n  "
               "%2 = conv1d %c, %d : $[3,130]\n  %3 = conv1d %c, %d {reverse} : $[3,130]\n  "
               "%4 = conv1d %a, %e : $[2,37,9]\n  return %0, %1, %2, %3, %4\n}"},
    // ... with a bias and SiLU, of some columns of a wider operand, and the gradients, over several runs of positions
    {CASE_ALL, "(%a: $[2,37,12], %b: $[4,8], %c: $[8], %d: $[2,37,8], %e: $[530,6], %f: $[3,6], %g: $[530,6]) -> "
               "$[2,37,8], $[2,37,8], #[2,4,8], #[2,8], $[530,6], #[2,3,6], $[530,6] {\n"
               "  %0 = conv1d %a, %b, %c {silu, start = 4} : $[2,37,8]\n"
               "  %1, %2, %3 = conv1d_grad %d, %a, %b, %c {silu, start = 4} : $[2,37,8], #[2,4,8], #[2,8]\n"
               "  %4, %5 = conv1d_grad %g, %e, %f {reverse} : $[530,6], #[2,3,6]\n"
               "  %6 = conv1d %e, %f {reverse, silu} : $[530,6]\n"
               "  return %0, %1, %2, %3, %4, %5, %6\n}"},
    {CASE_ALL, "(%a: $[2,5,3], %b: $[7,3], %c: $[3], %d: $[2,5,3]) -> #[2,7,3], #[2,3], $[2,5,3] {\n"
               "  %0, %1, %2 = conv1d_grad %d, %a, %b, %c {silu, reverse} : $[2,5,3], #[2,7,3], #[2,3]\n"
               "  %3, %4 = conv1d_grad %d, %a, %b {silu} : $[2,5,3], #[2,7,3]\n"
               "  return %1, %2, %3\n}"},
    // ... of documents, both ways, over runs of positions, some shorter than the taps
    {CASE_ALL, "(%i7: i32[3,600], %a: $[3,600,7], %b: $[4,5], %c: $[5], %d: $[3,600,5], %e: $[3,600,6], %f: $[3,6]) -> "
               "$[3,600,5], $[3,600,6], $[3,600,5], #[6,4,5], #[6,5], $[3,600,6], #[6,3,6] {\n"
               "  %0 = documents %i7 {eot = 3} : i32[3,600]\n"
               "  %1 = conv1d %a, %b, %c, %0 {silu, start = 2, documents} : $[3,600,5]\n"
               "  %2 = conv1d %e, %f, %0 {reverse, documents} : $[3,600,6]\n"
               "  %3, %4, %5 = conv1d_grad %d, %a, %b, %c, %0 {silu, start = 2, documents} : $[3,600,5], #[6,4,5], "
               "#[6,5]\n  %6, %7 = conv1d_grad %e, %2, %f, %0 {reverse, silu, documents} : $[3,600,6], #[6,3,6]\n"
               "  return %1, %2, %3, %4, %5, %6, %7\n}"},
    // cumulative sums
    {CASE_ALL, "(%a: $[5,6,70]) -> $[5,6,70], $[5,6,70], $[5,6,70] {\n  %0 = cumsum %a {axis = 2} : $[5,6,70]\n  "
               "%1 = cumsum %a {axis = 1, reverse} : $[5,6,70]\n  %2 = cumsum %a {axis = 0} : $[5,6,70]\n  "
               "return %0, %1, %2\n}"},
    // long axes: more than one tile of the last axis, beside a few and beside many columns, both ways
    {CASE_TRAIN | CASE_F64,
     "(%a: $[3,9001], %b: $[9001,5], %c: $[4500,300]) -> $[3,9001], $[3,9001], $[9001,5], $[4500,300], $[4500,300] {\n"
     "  %0 = cumsum %a {axis = 1} : $[3,9001]\n  %1 = cumsum %a {axis = 1, reverse} : $[3,9001]\n  "
     "%2 = cumsum %b {axis = 0, reverse} : $[9001,5]\n  %3 = cumsum %c {axis = 0} : $[4500,300]\n  "
     "%4 = cumsum %c {axis = 0, reverse} : $[4500,300]\n  return %0, %1, %2, %3, %4\n}"},
    // copies to the host's memory and back, as results and as parts of a buffer
    {CASE_F32 | CASE_BF16 | CASE_F64,
     "(%a: $[30,40]) -> $[30,40] {\n  %0 = square %a : $[30,40]\n  %1 = copy %0 {space = host, on = d2h} : $[30,40]\n"
     "  %2 = copy %1 {on = h2d} : $[30,40]\n  %3 = add %2, %a : $[30,40]\n  return %3\n}"},
    {CASE_BF16, "(%a: bf16[30,40]) -> bf16[30,40] {\n  begin {life = @saved}\n  copy %a {into = @saved, offset = "
                "1024, on = d2h}\n"
                "  %0 = view {buffer = @saved, offset = 1024} : bf16[30,40]\n  %1 = copy %0 {on = h2d} : bf16[30,40]\n"
                "  %2 = square %1 : bf16[30,40]\n  return %2\n}"},
};
#endif
