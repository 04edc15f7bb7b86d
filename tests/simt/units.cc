// What threads ask for beside their own arithmetic: operations of a warp's lanes, products, copies. Source of layouts:
// NVIDIA's PTX ISA 8.8, chapters 5.5, 9.7.9, 9.7.13 to 9.7.16.
#include "tests/simt/block.h"
#include "tests/simt/map.h"
#include "tests/simt/numbers.h"
#include <algorithm>

namespace simt {
// --- lanes

void shuffle(void **lane) {
    for (int i = 0; i < 32; i++) {
        Shuffle *s = (Shuffle *)lane[i], *of = s ? (Shuffle *)lane[s->from] : nullptr;
        if (s && !of) fail("a lane reads from lane %d, which is not in the mask of the operation", s->from);
        if (s) s->out = of->in;
    }
}
void ballot(void **lane) {
    unsigned all = 0;
    for (int i = 0; i < 32; i++)
        if (lane[i] && ((Ballot *)lane[i])->in) all |= 1u << i;
    for (int i = 0; i < 32; i++)
        if (lane[i]) ((Ballot *)lane[i])->out = all;
}
void meet(void **) {}

// --- work beside the threads

namespace {
void do_all(Group &g) {
    for (auto &p : g.left) p->work();
    g.left.clear();
}
void end(Block *b, Group &g) {
    do_all(g);
    for (u32 i : g.reading) b->memory.granules[i].reading--;
    for (u32 i : g.writing) copy_ends(b, i);
    g.reading.clear();
    g.writing.clear();
}
void wait_groups(Groups &g, int left, int threads) { // the last one is open; so many threads of the warp wait
    while (g.committed() > left) {
        end(self->block, g.front());
        const int first = threads == 1 ? self->number : self->number / 32 * 32;
        for (int i = 0; races && i < threads; i++)
            races_learn(&self->block->threads[(size_t)(first + i)], g.front().last);
        g.pop_front();
    }
}
template <class B> void add(Groups &g, B &b) { // work of one queue is done in its order; it is copied if it has to wait
    g.open().some = true;
    progress();
    if (!at_once()) {
        g.open().left.push_back(BesidePtr(new B(b)));
        return;
    }
    for (auto &group : g) do_all(group);
    b.work();
}
struct Arrival : Beside { // of the copies before it
    Block *block;
    u32 barrier;
    Groups copies;
    Errand last;
    void work() override {
        for (Group &g : copies) end(block, g);
        phases_complete(block, barrier, -1, last);
    }
};
void by_the_block(Beside *b, Block *of) { // at any time from now
    BesidePtr p(b);
    progress();
    if (at_once()) p->work();
    else of->loads.push_back(std::move(p));
}
Groups &products() { return self->block->warps[(size_t)self->number / 32].products; }
} // namespace

void copies_commit() { self->copies.commit(); }
void copies_wait(int groups) { wait_groups(self->copies, groups, 1); }
void copies_arrive(u32 barrier) {
    Arrival *a = new Arrival;
    a->block = self->block;
    a->barrier = barrier;
    for (const Group &g : self->copies)
        if (g.last.clock) a->last = g.last;
    std::swap(a->copies, self->copies);
    by_the_block(a, self->block);
}
void products_commit(void **) { products().commit(); }
void products_wait(void **lane) { wait_groups(products(), *(int *)lane[0], 32); }

// --- copies

namespace {
struct Bytes : Beside { // to shared memory; zeroes follow what is read
    Thread *by;
    u32 to;
    const char *from;
    int n, read;
    void work() override {
        char *p = by->block->memory.bytes + to;
        memcpy(p, from, (size_t)read);
        memset(p + read, 0, (size_t)(n - read));
        if (!launch->kernel->beside) return;
        if (n == GRANULE) copied(by->block, to / GRANULE, by->number);
        else stored(by->block, to, (u32)n, by->number);
    }
};
} // namespace

void copy(u32 to, const char *from, int n, int read) {
    Bytes b;
    shared_at(to, (size_t)n);
    if ((uintptr_t)from % (unsigned)n) fail("an access of %d bytes is not aligned", n);
    if (to % (u32)n) fail("a copy of %d bytes to shared memory at %u", n, to);
    if (races) {
        self->copies.open().last = races_copy();
        races_begin(self->copies.open().last, false);
        races_touch(shared_at(to, (size_t)n), (size_t)n, true, nullptr);
    }
    if (read) touch(from, (size_t)read, false);
    if (races) races_end();
    b.by = self;
    b.to = to;
    b.from = from;
    b.n = n;
    b.read = read;
    if (n == GRANULE && launch->kernel->beside) {
        copy_begins(self->block, to / GRANULE);
        self->copies.open().writing.push_back((uint16_t)(to / GRANULE));
    }
    add(self->copies, b);
}

// A box of a tensor of 4 dimensions, with a swizzle of 128 bytes; zeroes outside the tensor, of which nothing is written.
namespace {
u32 swizzled(u32 address) { return address ^ (address >> 7 & 7) << 4; }

struct Box : Beside {
    TensorMap map;
    int at[4];
    u32 to, barrier; // to: in shared memory
    Block *block;
    Errand errand;
    // Each 16 bytes: where they belong, and the place in the box of the first element.
    template <class F> void pieces(F f) const {
        const u32 e = map.element, row = map.box[0] * e;
        u32 n = 0, c[4];
        for (c[3] = 0; c[3] < map.box[3]; c[3]++)
            for (c[2] = 0; c[2] < map.box[2]; c[2]++)
                for (c[1] = 0; c[1] < map.box[1]; c[1]++, n++)
                    for (c[0] = 0; c[0] < map.box[0]; c[0] += 16 / e) f(swizzled(to + n * row + c[0] * e), c);
    }
    void work() override {
        pieces([this](u32 address, const u32 *c) {
            char v[16] = {};
            move(c, v, false, false);
            memcpy(shared_of(block, address, 16), v, 16);
            copy_ends(block, address / GRANULE);
        });
        phases_complete(block, barrier, (int)(map.box[0] * map.box[1] * map.box[2] * map.box[3] * map.element),
                        errand);
    }
    // What of these 16 bytes is inside the tensor, from there or to there.
    void move(const u32 c[4], char v[16], bool out, bool touches) const {
        u64 offset = 0;
        for (int i = 1; i < 4; i++) {
            const long x = (long)at[i] + c[i];
            if (x < 0 || (u64)x >= map.dims[i]) return;
            offset += (u64)x * map.strides[i - 1];
        }
        const long e = map.element, first = (long)at[0] + c[0], low = std::max(0l, -first);
        const long high = std::min(16 / e, (long)map.dims[0] - first);
        if (low >= high) return;
        char *p = (char *)(uintptr_t)map.address + offset + (first + low) * e;
        if (touches) touch(p, (size_t)((high - low) * e), out);
        else if (out) memcpy(p, v + low * e, (size_t)((high - low) * e));
        else memcpy(v + low * e, p, (size_t)((high - low) * e));
    }
};
struct BoxOut : Box {
    void work() override {
        pieces([this](u32 address, const u32 *c) { move(c, shared_of(block, address, 16), true, false); });
    }
};
template <class B> void describe(B *x, Block *block, u32 shared, const void *map, int a, int b, int c, int d) {
    memcpy(&x->map, map, sizeof x->map);
    x->at[0] = a, x->at[1] = b, x->at[2] = c, x->at[3] = d;
    x->to = shared;
    x->block = block;
    if (shared % 128) fail("a copy of a box with shared memory at %u", shared);
    if (x->map.box[0] * x->map.element % 16) fail("a box of rows of %u elements", x->map.box[0]);
}
} // namespace

static void copy_box_of(Block *target, u32 to, const void *map, int a, int b, int c, int d, u32 barrier) {
    Box *x = new Box;
    describe(x, target, to, map, a, b, c, d);
    x->barrier = barrier;
    if (races) races_begin(x->errand = races_copy(barrier), false);
    x->pieces([x](u32 address, const u32 *from) {
        char *p = shared_of(x->block, address, 16);
        x->move(from, nullptr, false, true);
        if (races) races_touch(p, 16, true, nullptr);
        box_writes(x->block, address / GRANULE, self->fenced);
    });
    if (races) races_end();
    seen_by_copies(target, barrier, 8, self->fenced);
    by_the_block(x, target);
}
void copy_box(u32 to, const void *map, int a, int b, int c, int d, u32 barrier) {
    copy_box_of(self->block, to, map, a, b, c, d, barrier);
}
void copy_box_to(u32 to, const void *map, int a, int b, int c, int d, u32 barrier, unsigned ranks) {
    for (u32 rank = 0; ranks >> rank; rank++)
        if (ranks >> rank & 1) copy_box_of(peer(rank), to, map, a, b, c, d, barrier);
}

void box_out(u32 from, const void *map, int a, int b, int c, int d) {
    BoxOut x;
    describe(&x, self->block, from, map, a, b, c, d);
    Group &g = self->boxes.open();
    if (races) races_begin(g.last = races_copy(), false);
    x.pieces([&](u32 address, const u32 *to) {
        if (races) races_touch(shared_at(address, 16), 16, false, nullptr);
        x.move(to, nullptr, true, true);
        product_reads(self->block, address / GRANULE, self->fenced);
        g.reading.push_back((uint16_t)(address / GRANULE));
    });
    if (races) races_end();
    add(self->boxes, x);
}
void boxes_commit() { self->boxes.commit(); }
void boxes_wait(int groups) { wait_groups(self->boxes, groups, 1); }

// --- matrices of 8 x 8 elements of 16 bits: lane 8 * m + r gives the address of row r of matrix m

namespace {
template <bool TRANSPOSED, bool STORE> void matrices(void **lane) {
    Block *b = self->block;
    for (int m = 0; m < 4; m++)
        for (int row = 0; row < 8; row++) {
            const u32 at = ((Matrices *)lane[m * 8 + row])->at;
            if (at % 16) fail("a row of a matrix at %u", at);
            char *p = shared_at(at, 16);
            if (!STORE) touch(p, 16, false);
            if (STORE && races) races_touch(p, 16, true, nullptr);
            if (STORE && launch->kernel->beside) stored(b, at, 16, self->number / 32 * 32 + m * 8 + row);
            for (int col = 0; col < 8; col++) {
                const int r = TRANSPOSED ? col : row, c = TRANSPOSED ? row : col;
                char *half = (char *)&((Matrices *)lane[r * 4 + c / 2])->r[m] + c % 2 * 2;
                if (STORE) memcpy(p + col * 2, half, 2);
                else memcpy(half, p + col * 2, 2);
            }
        }
}
} // namespace
void matrices_load(void **lane) { matrices<false, false>(lane); }
void matrices_load_turned(void **lane) { matrices<true, false>(lane); }
void matrices_store_turned(void **lane) { matrices<true, true>(lane); }

// --- products of 16 x 8 x 16 by a warp

namespace {
typedef float Eight __attribute__((vector_size(32))); // columns: each adds up in the order of the sum
template <Type T> void product(void **lane) {
    float a[16][16];
    Eight b[16];
    for (int l = 0; l < 32; l++) {
        const Product *p = (Product *)lane[l];
        const int g = l / 4, t = l % 4;
        for (int h = 0; h < 2; h++) {
            for (int i = 0; i < 4; i++) a[g + i % 2 * 8][t * 2 + h + i / 2 * 8] = from(T, p->a[i] >> 16 * h);
            for (int i = 0; i < 2; i++) b[t * 2 + h + i * 8][g] = from(T, p->b[i] >> 16 * h);
        }
    }
    for (int row = 0; row < 16; row++) {
        Eight sum;
        const int at = row / 8 * 2;
        for (int col = 0; col < 8; col++) sum[col] = ((Product *)lane[row % 8 * 4 + col / 2])->c[at + col % 2];
        for (int k = 0; k < 16; k++) sum += a[row][k] * b[k];
        for (int col = 0; col < 8; col++) ((Product *)lane[row % 8 * 4 + col / 2])->c[at + col % 2] = sum[col];
    }
}
} // namespace
void product_bf16(void **lane) { product<BF16>(lane); }
void product_f16(void **lane) { product<F16>(lane); }

// --- wgmma: a warp has 16 of the 64 rows. What is in shared memory is named by a descriptor, here always with the
// swizzle of 128 bytes.

namespace {
struct Tile { // element (x, k): x of the rows of a or the columns of b, k of the sum
    u32 at, leading, stride;
    bool transposed; // x is contiguous instead of k
    explicit Tile(u64 d, bool t) : transposed(t) {
        at = (u32)(d & 0x3fff) << 4;
        leading = (u32)(d >> 16 & 0x3fff) << 4;
        stride = (u32)(d >> 32 & 0x3fff) << 4;
        if (d >> 62 != 1 || (d >> 49 & 7)) fail("a descriptor of wgmma without the swizzle of 128 bytes: %llx", d);
    }
    // Each 16 bytes of x from `first` on, `n` of them, and k from 0 to 15: the address and the first element.
    template <class F> void pieces(u32 first, u32 n, F f) const {
        if (transposed)
            for (u32 k = 0; k < 16; k++)
                for (u32 x = first; x < first + n; x += 8)
                    f(swizzled(at + x / 64 * leading + k / 8 * stride + k % 8 * 128 + x % 64 * 2), x - first, k);
        else
            for (u32 x = first; x < first + n; x++)
                for (u32 k = 0; k < 16; k += 8) f(swizzled(at + x / 8 * stride + x % 8 * 128 + k * 2), x - first, k);
    }
    // to(x, k) = element
    template <class F> void read(Block *b, Type type, u32 first, u32 n, F to) const {
        pieces(first, n, [&](u32 address, u32 x, u32 k) {
            uint16_t v[8];
            memcpy(v, shared_of(b, address, 16), 16);
            for (u32 i = 0; i < 8; i++) to(transposed ? x + i : x, transposed ? k : k + i) = from(type, v[i]);
        });
    }
};

struct WarpProduct : Beside {
    WarpOperands of; // of the first lane
    u32 left[32][4];
    float *d[32][128];
    Block *block;
    Tile a() const { return Tile(of.a, of.a_transposed); }
    Tile b() const { return Tile(of.b, of.b_transposed); }
    u32 first() const { return (u32)of.warp % 4 * 16; } // row
    // Element c of row r of the result is that of a lane and a number in it.
    float &result(int r, int c) const { return *d[r % 8 * 4 + c % 8 / 2][c / 8 * 4 + r / 8 * 2 + c % 2]; }
    void work() override {
        static float x[16][16], y[16][256] __attribute__((aligned(32)));
        const int n = of.n;
        if (of.registers) {
            for (int r = 0; r < 16; r++)
                for (int k = 0; k < 16; k++)
                    x[r][k] = from(of.type, left[r % 8 * 4 + k % 8 / 2][r / 8 + k / 8 * 2] >> 16 * (k % 2));
        } else {
            a().read(block, of.type, first(), 16, [](u32 r, u32 k) -> float & { return x[r][k]; });
        }
        b().read(block, of.type, 0, (u32)n, [](u32 c, u32 k) -> float & { return y[k][c]; });
        for (int first_column = 0; first_column < n; first_column += 8)
            for (int r = 0; r < 16; r++) {
                Eight sum;
                for (int c = 0; c < 8; c++) sum[c] = of.add ? result(r, first_column + c) : 0;
                for (int k = 0; k < 16; k++) sum += x[r][k] * *(const Eight *)&y[k][first_column];
                for (int c = 0; c < 8; c++) result(r, first_column + c) = sum[c];
            }
    }
};
} // namespace

void warp_product(void **lane) {
    const WarpOperands *o = (WarpOperands *)lane[0];
    static WarpProduct product; // 32 KiB
    WarpProduct *p = &product;
    Block *b = p->block = self->block;
    u32 fenced = ~0u;
    p->of = *o;
    for (int l = 0; l < 32; l++) {
        const WarpOperands *q = (WarpOperands *)lane[l];
        if (q->a != o->a || q->b != o->b || q->add != o->add) fail("lanes of a warp pass different operands to wgmma");
        memcpy(p->left[l], q->left, sizeof q->left);
        memcpy(p->d[l], q->d, (size_t)o->n / 2 * sizeof *q->d);
        fenced = std::min(fenced, b->threads[(size_t)(self->number / 32 * 32 + l)].fenced);
    }
    std::vector<uint16_t> &reading = products().open().reading;
    if (races) races_begin(products().open().last = races_product(), true);
    const auto reads = [&](u32 address, u32, u32) {
        const char *from = shared_of(b, address, GRANULE);
        if (races) races_touch(from, GRANULE, false, nullptr);
        product_reads(b, address / GRANULE, fenced);
        reading.push_back((uint16_t)(address / GRANULE));
    };
    if (!o->registers) p->a().pieces(p->first(), 16, reads);
    p->b().pieces(0, (u32)o->n, reads);
    if (races) races_end();
    add(products(), *p);
}
} // namespace simt
