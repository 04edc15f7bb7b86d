// The cases of tests/bench/calibrate.
#include "tests/bench/calibrate_cases.h"
#include "ir/base/ints.h"
#include <math.h>

enum { ROWS = 32768, COLS = 1024, FEW_ROWS = 64 }; // of the kernels whose shares are measured: 64 MiB in bf16

static Case *add(CaseList *l, const char *name, Case c) {
    c.name = name;
    if (!c.copies) c.copies = 1;
    if (!c.words) c.words = "";
    if (l->quick && c.copies > 2 && c.fact != N_FACTS) c.copies = 2;
    hd_push(l->a, &l->cases, c);
    return &l->cases.at[l->cases.n - 1];
}

// As many copies as take a millisecond or so.
static int copies(double us) { return us < 32 ? 32 : us > 1000 ? 1 : (int)(1000 / us); }

// --- products: m x n from 128 x 128 to 32768 x 32768, in fourfold steps

static void products(CaseList *l, const char *type, double rate, double most_flops, int bytes) {
    // those of one byte as the backward pass has them: with a scale for each row, and sums that are added up in f32
    const bool scaled = bytes == 1;
    const char *result = scaled ? "bf16" : type;
    const int last = l->quick ? 8 : 15;
    for (int e = 7; e <= last; e++)
        for (int ke = 6; ke <= last; ke++) {
            const double n = 1 << e, k = 1 << ke, flops = 2 * n * n * k;
            if (flops > most_flops || n * k * bytes > 2e9) continue;
            const int in = 1 << e, ik = 1 << ke;
            add(l, hd_sprintf(l->a, "product_%s_%d_%d", type, in, ik),
                (Case){.fact = FACT_PRODUCT, .words = type, .number = n * n, .at = k,
                       .args = hd_sprintf(l->a, "%%a: %s[%d,%d], %%b: %s[%d,%d]%s", type, in, ik, type, in, ik,
                                          scaled ? hd_sprintf(l->a, ", %%s: f32[%d], %%t: f32[%d]", in, in) : ""),
                       .op = hd_sprintf(l->a, "%%r# = matmul %%a, %%b%s} : %s[%d,%d]",
                                        scaled ? ", %s, %t {tb, scaled, out = bf16" : " {tb", result, in, in),
                       .copies = copies(3 + flops / rate)});
        }
}

// --- attention: as many sequences and heads as fill the device

static void attention(CaseList *l, const char *impl, const char *type, int size, int seq) {
    const int heads = 8, batch = l->quick || seq > 8192 ? 1 : 8192 / seq, w = heads * size;
    const char *attrs = hd_sprintf(l->a, "{heads = %d, causal, packed}", heads);
    const double flops = 2.0 * batch * heads * (double)seq * seq * size, rate = strcmp(type, "f32") ? 2e8 : 6e6;
    const char *name = hd_sprintf(l->a, "attention_%s_%s_%d_%d", impl, type, size, seq);
    if (strcmp(impl, "wgmma_ordered")) // that is of the backward pass alone
        add(l, hd_sprintf(l->a, "%s_forward", name),
            (Case){.fact = FACT_ATTENTION, .words = hd_sprintf(l->a, "%s forward %s", impl, type), .number = size,
                   .at = seq,
                   .args = hd_sprintf(l->a, "%%x: %s[%d,%d,%d]", type, batch, seq, 3 * w),
                   .op = hd_sprintf(l->a, "%%o#, %%l# = attention %%x %s : %s[%d,%d,%d], f32[%d,%d,%d]", attrs, type,
                                    batch, seq, w, batch, heads, seq),
                   .copies = copies(flops / rate), .impl = impl});
    add(l, hd_sprintf(l->a, "%s_backward", name),
        (Case){.fact = FACT_ATTENTION, .words = hd_sprintf(l->a, "%s backward %s", impl, type), .number = size,
               .at = seq,
               .args = hd_sprintf(l->a, "%%d: %s[%d,%d,%d], %%x: %s[%d,%d,%d], %%o: %s[%d,%d,%d], %%l: f32[%d,%d,%d]",
                                  type, batch, seq, w, type, batch, seq, 3 * w, type, batch, seq, w, batch, heads, seq),
               .op = hd_sprintf(l->a, "%%g# = attention_grad %%d, %%x, %%o, %%l %s : %s[%d,%d,%d]", attrs, type, batch,
                                seq, 3 * w),
               .copies = copies(3 * flops / rate), .impl = impl});
}

static void attentions(CaseList *l) {
    for (int size = 64; size <= (l->quick ? 64 : 128); size *= 2)
        for (int seq = 512; seq <= (l->quick ? 512 : 8192); seq *= 2) {
            attention(l, "cudnn", "bf16", size, seq);
            attention(l, "tensor_cores", "bf16", size, seq);
            if (l->wgmma) attention(l, "wgmma", "bf16", size, seq);
            if (l->wgmma && size == 64) attention(l, "wgmma_ordered", "bf16", size, seq);
            if (seq <= 2048) attention(l, "generated", "bf16", size, seq);
        }
    attention(l, "generated", "f32", 64, 512);
    if (!l->quick) attention(l, "generated", "f32", 64, 2048);
}

// --- kernels

static const char *kernel(CaseList *l, const char *name, const char *args, const char *results, int64_t rows, int cols,
                          const char *body) {
    hd_printf(&l->kernels, "kernel @k_%s(%s) -> %s with {kind = rows, rows = %lld, cols = %d} {\n  %s\n}\n", name, args,
              results, ll(rows), cols, body);
    return name;
}

static void streams(CaseList *l) { // a sum of two tensors: three times their bytes
    for (int e = 10; e <= (l->quick ? 12 : 29); e++) {
        const int64_t n = (int64_t)1 << e, rows = n / COLS;
        const char *type = hd_sprintf(l->a, "bf16[%lld,%d]", ll(rows), COLS);
        const char *name = hd_sprintf(l->a, "rows_%d", e);
        kernel(l, name, hd_sprintf(l->a, "%%x: %s, %%y: %s", type, type), type, rows, COLS,
               hd_sprintf(l->a, "%%0 = add %%x, %%y : %s\n  return %%0", type));
        add(l, name,
            (Case){.fact = FACT_ROWS, .words = "", .at = 6.0 * (double)n,
                   .args = hd_sprintf(l->a, "%%x: %s, %%y: %s", type, type),
                   .op = hd_sprintf(l->a, "%%r# = launch %%x, %%y {kernel = @k_%s} : %s", name, type),
                   .copies = copies(3 + 6.0 * (double)n / 3e6)});
    }
}

// `$` stands for the type of the large tensors, `#` for their rows.
static const struct { const char *op, *args, *results, *body; } row_ops[] = {
    {"gelu", "%x: $", "$", "%0 = gelu %x : $\n  return %0"},
    {"gelu_grad", "%x: $, %y: $", "$", "%0 = gelu_grad %x, %y : $\n  return %0"},
    {"silu", "%x: $", "$", "%0 = silu %x : $\n  return %0"},
    {"silu_grad", "%x: $, %y: $", "$", "%0 = silu_grad %x, %y : $\n  return %0"},
    {"layer_norm", "%x: $, %w: bf16[1024], %b: bf16[1024]", "$, f32[#], f32[#]",
     "%0, %1, %2 = layer_norm %x, %w, %b {eps = 1e-05} : $, f32[#], f32[#]\n  return %0, %1, %2"},
    {"layer_norm_grad", "%d: $, %x: $, %w: bf16[1024], %m: f32[#], %s: f32[#]", "$, f32[1024], f32[1024]",
     "%0, %1, %2 = layer_norm_grad %d, %x, %w, %m, %s : $, f32[1024], f32[1024]\n  return %0, %1, %2"},
    {"rms_norm", "%x: $, %w: bf16[1024]", "$, f32[#]",
     "%0, %1 = rms_norm %x, %w {eps = 1e-05} : $, f32[#]\n  return %0, %1"},
    {"rms_norm_grad", "%d: $, %x: $, %w: bf16[1024], %s: f32[#]", "$, f32[1024]",
     "%0, %1 = rms_norm_grad %d, %x, %w, %s : $, f32[1024]\n  return %0, %1"},
    {"rope", "%x: $", "$", "%0 = rope %x {heads = 16, theta = 10000.0} : $\n  return %0"},
    {"sum_to", "%x: $", "f32[1024]", "%0 = sum_to %x {out = f32} : f32[1024]\n  return %0"},
};

static const char *with_type(Arena *a, const char *text, const char *type, int rows) {
    Out o = hd_out(a);
    for (; *text; text++)
        if (*text == '$') hd_puts(&o, type);
        else if (*text == '#') hd_printf(&o, "%d", rows);
        else hd_putn(&o, text, 1);
    return o.text;
}

static void shares(CaseList *l) {
    const int rows = l->quick ? FEW_ROWS : ROWS;
    const char *type = hd_sprintf(l->a, "bf16[%d,%d]", rows, COLS);
    for (size_t i = 0; i < sizeof row_ops / sizeof *row_ops; i++) {
        const char *args = with_type(l->a, row_ops[i].args, type, rows);
        const char *results = with_type(l->a, row_ops[i].results, type, rows);
        const char *name = hd_sprintf(l->a, "share_%s", row_ops[i].op);
        kernel(l, name, args, results, rows, COLS, with_type(l->a, row_ops[i].body, type, rows));
        Out op = hd_out(l->a);
        const char *s = results;
        for (int n = 0; s; n++, s = (s = strstr(s, ", ")) ? s + 2 : NULL) hd_printf(&op, "%s%%r%d_#", n ? ", " : "", n);
        hd_puts(&op, " = launch ");
        for (s = args; s; s = (s = strstr(s, ", %")) ? s + 2 : NULL)
            hd_printf(&op, "%s%.*s", s == args ? "" : ", ", (int)strcspn(s, ":"), s);
        hd_printf(&op, " {kernel = @k_%s} : %s", name, results);
        add(l, name, (Case){.fact = FACT_SHARE, .words = row_ops[i].op, .args = args, .op = op.text, .copies = 16});
    }
}

// --- library ops on buffers and logits

static void libraries(CaseList *l) {
    static const struct { const char *op, *args, *text; } cases[] = {
        {"embedding_grad", "%d: bf16[32768,1024], %i: i32[32768]",
         "%r# = embedding_grad %d, %i {out = f32} : f32[50304,1024]"},
        {"cross_entropy", "%z: bf16[4096,50304], %i: i32[4096]", "%r# = cross_entropy %z, %i : f32"},
        {"cross_entropy_grad", "%z: bf16[4096,50304], %i: i32[4096], %d: f32",
         "%r#, %s# = cross_entropy_grad %z, %i, %d : f32, bf16[4096,50304]"},
        {"update", "%s: f32[8]",
         "update %s {gradient = @big.g, states = [@big.m, @big.v], master_weights = @big.p, decayed = 4096, "
         "weight_decay = 0.1, kernel = @adamw}"},
        {"grad_norm", "", "%r# = grad_norm {buffers = [@big.g]} : f32"},
        {"square_sums", "", "%r# = square_sums {buffers = [@big.g]} : f64[4096]"},
    };
    for (int i = 0; i < 4; i++)
        hd_printf(&l->symbols, "buffer @big.%c : f32[%d] {class = optimizer}\n", "gmvp"[i],
                  l->quick ? 1 << 14 : 1 << 24);
    hd_puts(&l->symbols,
            "kernel @adamw(%gradient: f32, %weights: f32, %lr: f32, %decay: f32, %correction1: f32, %correction2: f32, "
            "%m: f32, %v: f32) -> f32, f32, f32 with {kind = optimizer} {\n"
            "  %b1 = const {value = 0.9} : f32\n  %b2 = const {value = 0.95} : f32\n"
            "  %eps = const {value = 1e-08} : f32\n  %one = const {value = 1.0} : f32\n"
            "  %0 = mul %b1, %m : f32\n  %1 = sub %one, %b1 : f32\n  %2 = mul %1, %gradient : f32\n"
            "  %3 = add %0, %2 : f32\n  %4 = mul %b2, %v : f32\n  %5 = sub %one, %b2 : f32\n"
            "  %6 = mul %5, %gradient : f32\n  %7 = mul %6, %gradient : f32\n  %8 = add %4, %7 : f32\n"
            "  %9 = div %3, %correction1 : f32\n  %10 = div %8, %correction2 : f32\n  %11 = sqrt %10 : f32\n"
            "  %12 = add %11, %eps : f32\n  %13 = div %9, %12 : f32\n  %14 = mul %decay, %weights : f32\n"
            "  %15 = add %13, %14 : f32\n  %16 = mul %lr, %15 : f32\n  %17 = sub %weights, %16 : f32\n"
            "  return %17, %3, %8\n}\n");
    for (size_t i = l->quick ? 3 : 0; i < sizeof cases / sizeof *cases - l->quick; i++)
        add(l, hd_sprintf(l->a, "share_%s", cases[i].op),
            (Case){.fact = FACT_SHARE, .words = cases[i].op, .args = cases[i].args, .op = cases[i].text, .copies = 4});
}

// --- copies

static void copies_of(CaseList *l, int e) {
    static const struct { const char *way, *from, *to, *on; } ways[] = {
        {"within", "d", "e", "compute"}, {"to-host", "d", "h", "out"}, {"to-device", "h", "d", "in"}};
    const int64_t n = (int64_t)1 << e;
    for (int i = 0; i < 3; i++)
        hd_printf(&l->symbols, "buffer @%c%d : f32[%lld] {class = optimizer%s}\n", "deh"[i], e, ll(n / 4),
                  i == 2 ? ", space = host" : "");
    for (int i = 0; i < 3; i++)
        add(l, hd_sprintf(l->a, "copy_%d_%d", i, e),
            (Case){.fact = FACT_COPY, .words = ways[i].way, .at = (double)n, .args = "",
                   .op = hd_sprintf(l->a, "copy {buffer = @%s%d, into = @%s%d, offset = 0, on = %s}", ways[i].from, e,
                                    ways[i].to, e, ways[i].on),
                   .copies = copies(3 + (double)n / (i ? 5e4 : 1.5e6))});
}

// --- what is measured by two things at once, or not in a graph; N_FACTS: no line by itself

// From their difference follows what the launch of a graph costs.
static Case few_rows(CaseList *l) {
    const char *t = "bf16[1,1024]", *args = hd_sprintf(l->a, "%%x: %s, %%y: %s", t, t);
    const char *op = hd_sprintf(l->a, "%%r# = launch %%x, %%y {kernel = @k_one_row} : %s", t);
    kernel(l, "one_row", hd_sprintf(l->a, "%%x: %s, %%y: %s", t, t), t, 1, COLS,
           hd_sprintf(l->a, "%%0 = add %%x, %%y : %s\n  return %%0", t));
    const Case c = {.fact = N_FACTS, .args = args, .op = op, .copies = 8};
    add(l, "few", c);
    Case many = c;
    many.copies = 64;
    add(l, "many", many);
    return many;
}

static void special(CaseList *l) {
    Case direct = few_rows(l);
    direct.direct = true;
    add(l, "direct", direct);
    const int e = l->quick ? 12 : 26;
    hd_printf(&l->symbols, "buffer @other : f32[%d] {class = optimizer, space = host}\n", 1 << (e - 2));
    add(l, "both_ways",
        (Case){.fact = N_FACTS, .args = "", .copies = 8, .at = 1 << e,
               .op = hd_sprintf(l->a,
                                "copy {buffer = @d%d, into = @h%d, offset = 0, on = out}\n"
                                "  copy {buffer = @other, into = @e%d, offset = 0, on = in}",
                                e, e, e)});
    const int n = l->quick ? 64 : 8192; // products of 1.4 ms, copies of 1.3 ms
    const char *sides = hd_sprintf(l->a, "%%a: bf16[%d,%d], %%b: bf16[%d,%d]", n, n, n, n);
    const char *product = hd_sprintf(l->a, "%%r# = matmul %%a, %%b {tb} : bf16[%d,%d]", n, n);
    add(l, "sustained", (Case){.fact = N_FACTS, .args = sides, .op = product, .copies = 4});
    add(l, "alone", (Case){.fact = N_FACTS, .args = sides, .op = product, .copies = 4});
    add(l, "beside",
        (Case){.fact = N_FACTS, .args = sides, .copies = 4, .at = 1 << e,
               .op = hd_sprintf(l->a, "%s\n  copy {buffer = @d%d, into = @h%d, offset = 0, on = out}", product, e, e)});
}

void calibrate_single(CaseList *l) {
    if (l->fp8) products(l, "e4m3", 1.3e9, 5e12, 1);
    if (l->only_fp8) {
        few_rows(l);
        return;
    }
    products(l, "bf16", 7e8, 5e12, 2);
    products(l, "f32", 5e7, 2e11, 4);
    attentions(l);
    streams(l);
    shares(l);
    libraries(l);
    for (int e = 10; e <= (l->quick ? 13 : 28); e++)
        if (e % 2 == 0) copies_of(l, e);
    special(l);
}

// --- ranks

void calibrate_ranks(CaseList *l) {
    hd_printf(&l->symbols, "config @schedule {graph = step, mesh = [shard], sizes = [%d]}\n", l->ranks);
    hd_puts(&l->symbols, "comm @comm.gather {over = [shard], on = gather}\n");
    const int64_t most = (int64_t)1 << 33; // bytes of all ranks
    for (int e = 10; e <= (l->quick ? 12 : 28) && (int64_t)l->ranks << e <= most; e += 2) {
        const int64_t part = (int64_t)1 << (e - 2), whole = part * l->ranks;
        const double bytes = 4.0 * (double)(whole - part);
        hd_printf(&l->symbols, "buffer @part%d : f32[%lld] {class = optimizer}\n", e, ll(part));
        hd_printf(&l->symbols, "buffer @whole%d : f32[%lld] {class = optimizer}\n", e, ll(whole));
        for (int i = 0; i < 2; i++)
            add(l, hd_sprintf(l->a, "%s_%d", i ? "scatter" : "gather", e),
                (Case){.fact = i ? FACT_SCATTER : FACT_GATHER, .words = l->network ? "network" : "nvlink",
                       .number = l->ranks, .at = bytes, .args = "",
                       .op = hd_sprintf(l->a, "%s {buffer = @%s%d, into = @%s%d, comm = @comm.gather}",
                                        i ? "reduce_scatter" : "all_gather", i ? "whole" : "part", e,
                                        i ? "part" : "whole", e),
                       .copies = copies(15 + bytes / 2.5e5)});
    }
    if (l->network) {
        few_rows(l);
        return;
    }
    const int n = l->quick ? 64 : 8192, e = l->quick ? 12 : 26; // products of 1.4 ms, gathers of a quarter of that
    const char *args = hd_sprintf(l->a, "%%a: bf16[%d,%d], %%b: bf16[%d,%d]", n, n, n, n);
    const char *op = hd_sprintf(l->a, "%%r# = matmul %%a, %%b {tb} : bf16[%d,%d]", n, n);
    add(l, "alone", (Case){.fact = N_FACTS, .args = args, .op = op, .copies = 4});
    add(l, "beside",
        (Case){.fact = N_FACTS, .args = args, .copies = 4, .at = (double)(1 << e) * (l->ranks - 1),
               .op = hd_sprintf(l->a, "%s\n  all_gather {buffer = @part%d, into = @whole%d, comm = @comm.gather}", op,
                                e, e)});
}

// --- the module

const char *calibrate_text(const CaseList *l, const char *arch) {
    Out o = hd_out(l->a);
    hd_printf(&o, "stage kernels\nconfig @target {target = cuda, arch = %s}\n", arch);
    if (l->ranks <= 1) hd_puts(&o, "config @schedule {graph = step}\n");
    hd_puts(&o, l->symbols.text);
    for (int i = 0; i < l->cases.n; i++) {
        const Case *c = &l->cases.at[i];
        hd_printf(&o, "func @%s(%s) {\n", c->name, c->args);
        for (int k = 0; k < c->copies; k++) {
            hd_puts(&o, "  ");
            for (const char *s = c->op; *s; s++)
                if (*s == '#') hd_printf(&o, "c%d", k);
                else hd_putn(&o, s, 1);
            hd_puts(&o, "\n");
        }
        hd_puts(&o, "  return\n}\n");
    }
    hd_puts(&o, l->kernels.text);
    return o.text;
}

const Case *calibrate_find(const CaseList *l, const char *name) {
    for (int i = 0; i < l->cases.n; i++)
        if (!strcmp(l->cases.at[i].name, name)) return &l->cases.at[i];
    return NULL;
}
