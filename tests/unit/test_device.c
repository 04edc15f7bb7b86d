// Device tables and the times that follow from them: the tables in the tree, points of their curves, and that nothing
// gets faster by getting larger.
#include "ir/machine/device_table.h"
#include "ir/mesh.h"
#include "tests/unit/check.h"
#include <math.h>
#include <stdlib.h>

static const DeviceModel *table(Ctx *cx, const char *name) {
    size_t n;
    const char *path = hd_sprintf(cx->arena, HEDDLE_SOURCE "/devices/%s.dev", name);
    const char *text = hd_read_file(cx->arena, path, &n);
    const DeviceModel *d = text ? hd_model_parse(cx, path, text, n) : NULL;
    Out o = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &o);
    fputs(o.text, stderr);
    return d;
}

typedef double OfOp(const DeviceModel *d, const Op *o);

// Of the first op of a function with these arguments: seconds or joules.
static double of_op(Ctx *cx, const DeviceModel *d, OfOp *of, const char *symbols, const char *args, const char *op) {
    const char *text = hd_sprintf(cx->arena, "stage kernels\n%sfunc @f(%s) {\n  %s\n  return\n}\n", symbols, args, op);
    const uint32_t base = hd_source_add(&cx->diags, "f", text, strlen(text), 1);
    Module *m = hd_parse_module(cx, text, strlen(text), base);
    const bool good = m && hd_verify(m);
    CHECK(good);
    if (good) return of(d, m->funcs->first);
    Out o = hd_out(cx->arena);
    hd_diags_print(&cx->diags, &o);
    fputs(o.text, stderr);
    return -1;
}

static double seconds(Ctx *cx, const DeviceModel *d, const char *symbols, const char *args, const char *op) {
    return of_op(cx, d, hd_model_seconds, symbols, args, op);
}

static double product(Ctx *cx, const DeviceModel *d, const char *type, int m, int n, int k) {
    return seconds(cx, d, "", hd_sprintf(cx->arena, "%%a: %s[%d,%d], %%b: %s[%d,%d]", type, m, k, type, k, n),
                   hd_sprintf(cx->arena, "%%0 = gemm %%a, %%b : %s[%d,%d]", type, m, n));
}

static double attention(Ctx *cx, const DeviceModel *d, int batch, int seq, int heads) {
    const int w = heads * 64;
    return seconds(cx, d, "", hd_sprintf(cx->arena, "%%q: bf16[%d,%d,%d]", batch, seq, 3 * w),
                   hd_sprintf(cx->arena,
                              "%%0, %%1 = attention %%q {heads = %d, causal, packed, impl = cudnn, else = generated} : "
                              "bf16[%d,%d,%d], f32[%d,%d,%d]",
                              heads, batch, seq, w, batch, heads, seq));
}

TEST(tables_of_the_tree) {
    static const char *const names[] = {"h100", "h200"};
    for (int i = 0; i < 2; i++) {
        Ctx *cx = hd_ctx_new();
        const DeviceModel *d = table(cx, names[i]);
        CHECK(d);
        if (d) CHECK(hd_model_beside(d) > 0 && hd_model_both_ways(d) <= 1 && hd_model_direct(d) < 1e-4);
        hd_ctx_free(cx);
    }
}

TEST(an_architecture_and_its_device_agree) {
    static const struct { int processors; const char *device; } archs[] = {
#define ARCH(number, shared, processors, device) {processors, device},
#include "ir/machine/arch.def"
    };
    int tables = 0;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (!*archs[i].device) continue;
        Ctx *cx = hd_ctx_new();
        const DeviceModel *d = table(cx, archs[i].device);
        CHECK(d && d->lines[d->first[FACT_SMS]].value == archs[i].processors);
        hd_ctx_free(cx);
        tables++;
    }
    CHECK(tables > 0);
}

TEST(products_near_what_was_measured) { // on an H200, in a short burst: what is sustained is slower
    Ctx *cx = hd_ctx_new();
    const DeviceModel *d = table(cx, "h200");
    static const struct { int m, n, k; double us; } measured[] = {
        {32768, 3072, 768, 200}, {768, 3072, 32768, 198}, {8192, 8192, 8192, 1353}, {8192, 14336, 4096, 1175}};
    for (int i = 0; i < 4; i++) {
        const double s = product(cx, d, "bf16", measured[i].m, measured[i].n, measured[i].k) * 1e6;
        if (!(s > 0.95 * measured[i].us && s < 1.2 * measured[i].us))
            fprintf(stderr, "%d x %d x %d: %g us, measured %g\n", measured[i].m, measured[i].n, measured[i].k, s,
                    measured[i].us);
        CHECK(s > 0.95 * measured[i].us && s < 1.2 * measured[i].us);
    }
    hd_ctx_free(cx);
}

TEST(energies_near_what_was_measured) { // on an H200 at its power limit, by its energy counter
    Ctx *cx = hd_ctx_new();
    const DeviceModel *d = table(cx, "h200");
    static const struct { int m, n, k; double mj; } products[] = {
        {16384, 8192, 2048, 555}, {16384, 2048, 8192, 564}, {16384, 2048, 2048, 141}, {16384, 512, 2048, 40.5}};
    for (int i = 0; i < 4; i++) {
        const int m = products[i].m, n = products[i].n, k = products[i].k;
        const double mj = 1e3 * of_op(cx, d, hd_model_joules, "",
                                      hd_sprintf(cx->arena, "%%a: bf16[%d,%d], %%b: bf16[%d,%d]", m, k, k, n),
                                      hd_sprintf(cx->arena, "%%0 = gemm %%a, %%b : bf16[%d,%d]", m, n));
        CHECK(fabs(mj / products[i].mj - 1) < 0.13);
    }
    const char *q = "%q: bf16[4,4096,2048], %k: bf16[4,4096,512], %v: bf16[4,4096,512]";
    const char *shape = "{heads = 32, kv_heads = 8, causal, impl = wgmma}";
    const double forward = of_op(cx, d, hd_model_joules, "", q,
                                 hd_sprintf(cx->arena, "%%0, %%1 = attention %%q, %%k, %%v %s : "
                                                       "bf16[4,4096,2048], f32[4,32,4096]", shape));
    CHECK(fabs(1e3 * forward / 415 - 1) < 0.13);
    // what comes to nothing, or is not known
    CHECK(of_op(cx, d, hd_model_joules, "", "%a: bf16[64,64]", "%0 = reshape %a : bf16[4096]") <= 0);
    CHECK(of_op(cx, d, hd_model_joules, "", "%a: f32[4096,4096]", "%0 = gemm %a, %a : f32[4096,4096]") > 0);
    CHECK(hd_model_power(d) > 0);
    hd_ctx_free(cx);
}

TEST(nothing_gets_faster_by_growing) {
    Ctx *cx = hd_ctx_new();
    const DeviceModel *d = table(cx, "h100");
    srand(1);
    for (int i = 0; i < 300; i++) {
        const int m = 1 << rand() % 15, n = 1 << rand() % 15, k = 1 << rand() % 15, side = rand() % 3;
        const char *type = i % 2 ? "bf16" : "f32";
        const double less = product(cx, d, type, m, n, k);
        const double more = product(cx, d, type, side == 0 ? 2 * m : m, side == 1 ? n + 37 : n, side == 2 ? k + 5 : k);
        if (more < less) fprintf(stderr, "%s %d x %d x %d, side %d: %g then %g\n", type, m, n, k, side, less, more);
        CHECK(more >= less);
    }
    for (int i = 0; i < 100; i++) {
        const int b = 1 + rand() % 9, s = 1 << (5 + rand() % 9), h = 1 + rand() % 16;
        const double less = attention(cx, d, b, s, h);
        CHECK(attention(cx, d, b, 2 * s, h) >= less);
        CHECK(attention(cx, d, b + 1, s, h) >= less);
    }
    double before[7] = {0};
    for (double bytes = 1; bytes < 1e12; bytes *= 1.37) {
        const double now[7] = {hd_model_rows(d, bytes), hd_model_copy(d, COPY_TO_HOST, bytes, false),
                               hd_model_copy(d, COPY_TO_DEVICE, bytes, true),
                               hd_model_collective(d, OP_ALL_GATHER, (Party){3, 3}, bytes),
                               hd_model_collective(d, OP_REDUCE_SCATTER, (Party){64, 64}, bytes),
                               hd_model_collective(d, OP_ALL_GATHER, (Party){48, 3}, bytes),
                               hd_model_collective(d, OP_EXCHANGE, (Party){64, 8}, bytes)};
        for (int i = 0; i < 7; i++) {
            CHECK(now[i] >= before[i]);
            before[i] = now[i];
        }
    }
    hd_ctx_free(cx);
}

TEST(copies_and_collectives) {
    Ctx *cx = hd_ctx_new();
    const DeviceModel *d = table(cx, "h200");
    const double bytes = 1 << 30;
    CHECK(fabs(bytes / hd_model_copy(d, COPY_TO_HOST, bytes, false) - 55e9) < 1e9);
    CHECK(fabs(bytes / hd_model_copy(d, COPY_TO_DEVICE, bytes, false) - 54e9) < 1e9);
    CHECK(hd_model_copy(d, COPY_TO_HOST, bytes, true) > hd_model_copy(d, COPY_TO_HOST, bytes, false));
    const double two = hd_model_collective(d, OP_ALL_GATHER, (Party){2, 2}, 1e8);
    const double three = hd_model_collective(d, OP_ALL_GATHER, (Party){3, 3}, 1e8);
    const double four = hd_model_collective(d, OP_ALL_GATHER, (Party){4, 4}, 1e8);
    const double eight = hd_model_collective(d, OP_ALL_GATHER, (Party){8, 8}, 1e6);
    CHECK((three - two) * (four - three) > 0);
    CHECK(hd_model_collective(d, OP_ALL_GATHER, (Party){1024, 1024}, 1e6) > eight);
    CHECK_INT(hd_model_most_ranks(d, OP_ALL_GATHER, LINK_NVLINK), 8);
    CHECK_INT(hd_model_most_ranks(d, OP_EXCHANGE, LINK_NETWORK), 128);
    // a copy of a plan, by the spaces of what it reads and writes
    const char *symbols = "buffer @h : f32[65536] {class = staging, space = host}\n"
                          "buffer @d : f32[65536] {class = staging}\n";
    CHECK(seconds(cx, d, symbols, "", "copy {buffer = @d, into = @h, offset = 0}") ==
          hd_model_copy(d, COPY_TO_HOST, 262144, false));
    CHECK(seconds(cx, d, symbols, "", "copy {buffer = @h, into = @d, offset = 0}") ==
          hd_model_copy(d, COPY_TO_DEVICE, 262144, false));
    CHECK(seconds(cx, d, symbols, "%x: f32[65536]", "copy %x {into = @h, offset = 0}") ==
          hd_model_copy(d, COPY_TO_HOST, 262144, false));
    CHECK(seconds(cx, d, symbols, "%x: f32[65536]", "%0 = copy %x {space = host} : f32[65536]") ==
          hd_model_copy(d, COPY_TO_HOST, 262144, false));
    hd_ctx_free(cx);
}

TEST(links) { // at the data rate of 400 Gb/s a rank, and never faster than NVLink on a host
    Ctx *cx = hd_ctx_new();
    const DeviceModel *d = table(cx, "h200");
    const double bytes = 1 << 30, each = hd_model_collective(d, OP_ALL_GATHER, (Party){4, 1}, bytes);
    CHECK(fabs(bytes / each - 50e9) < 1e9);
    CHECK(fabs(hd_model_collective(d, OP_ALL_GATHER, (Party){8, 2}, bytes) / each - 0.5) < 0.01);
    CHECK(fabs(hd_model_collective(d, OP_EXCHANGE, (Party){8, 2}, bytes) / each - 6. / 7) < 0.01);
    CHECK(hd_model_collective(d, OP_ALL_GATHER, (Party){64, 8}, bytes) >=
          hd_model_collective(d, OP_ALL_GATHER, (Party){8, 8}, bytes));
    CHECK(hd_model_collective(d, OP_ALL_GATHER, (Party){512, 1}, bytes) > each);
    hd_ctx_free(cx);
}

TEST(hosts_of_a_mesh) {
    const struct { int64_t tensor, shard, replicate, most, host, of_tensor, of_shard, of_both; } cases[] = {
        {8, 128, 1, 8, 8, 8, 1, 8}, {4, 6, 1, 8, 8, 4, 2, 8}, {3, 4, 1, 8, 6, 3, 2, 6}, {16, 2, 1, 8, 8, 8, 1, 8},
        {1, 12, 1, 8, 6, 1, 6, 6},  {2, 2, 4, 8, 8, 2, 2, 4}, {1, 2, 1, 8, 2, 1, 2, 2}, {5, 7, 1, 4, 1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Mesh mesh;
        for (int a = 0; a < N_AXES; a++) mesh.size[a] = 1;
        mesh.size[AXIS_TENSOR] = cases[i].tensor;
        mesh.size[AXIS_SHARD] = cases[i].shard;
        mesh.size[AXIS_REPLICATE] = cases[i].replicate;
        const int64_t host = hd_mesh_host(&mesh, cases[i].most);
        CHECK_INT(host, cases[i].host);
        CHECK_INT(hd_mesh_on_host(&mesh, 1 << AXIS_TENSOR, host), cases[i].of_tensor);
        CHECK_INT(hd_mesh_on_host(&mesh, 1 << AXIS_SHARD, host), cases[i].of_shard);
        CHECK_INT(hd_mesh_on_host(&mesh, 1 << AXIS_TENSOR | 1 << AXIS_SHARD, host), cases[i].of_both);
        // by the definition: ranks of the group of rank 0 below the host's number, in every group
        for (int64_t rank = 0; rank < hd_mesh_ranks(&mesh, HD_ALL_AXES); rank++) {
            int64_t on = 0;
            for (int64_t k = 0; k < cases[i].shard; k++)
                on += hd_mesh_member(&mesh, 1 << AXIS_SHARD, rank, k) / host == rank / host;
            CHECK_INT(on, cases[i].of_shard);
        }
    }
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
