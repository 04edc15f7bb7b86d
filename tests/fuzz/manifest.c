// Any bytes as a checkpoint that a run of one rank resumes: it is refused with a message that commands no terminal, or
// the training state is what the files say. The input is the header of checkpoint.safetensors and, after lines "---",
// those of shards rank-0, rank-1 and rank-2 in folder step-5. Each file gets the length of its header, data and a
// checksum that match, and "$0" in the first header becomes what a manifest says of rank-0. An input that begins with
// something else than "{" is checkpoint.safetensors as it is.
#define _GNU_SOURCE // memmem, memfd_create
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/state.h"
#include "runtime/world/world.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SHARDS = 3, ELEMENTS = 16, DATA = 4096, ROOM = 1 << 16, N_PARAMS = 3, DESCRIBED = 64 };
typedef struct { const uint8_t *at; size_t n; } Part;

static const HdParam params[N_PARAMS] = {
    {.name = "w", .rank = 2, .dim = {2, 3}, .count = 6, .bucket = 0, .at = 0},
    {.name = "b", .rank = 1, .dim = {4}, .count = 4, .bucket = 1, .at = 2},
    {.name = "s", .rank = 0, .count = 1, .bucket = 1, .at = 0},
};
enum { ROLES = 3 }; // the weights and the states of an optimizer
static const char *const states[] = {"moment1", "moment2"}, *const prefixes[ROLES] = {"", "moment1.", "moment2."};
static float arena[2 * ROLES * ELEMENTS + 1]; // two buckets, and the number of the step
static char folder[] = "/tmp/heddle-fuzz-XXXXXX", whole[300], shard[SHARDS][300];
static int fds[1 + SHARDS]; // of the files, which are in memory: their names are links

static void expect(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, hd_failure());
    abort();
}

// --- a program whose arena is plain memory

static bool memory_write(HdExec *x, int64_t offset, const void *data, size_t bytes) {
    (void)x;
    expect(offset >= 0 && offset + (int64_t)bytes <= (int64_t)sizeof arena, "a write outside of the arena");
    memcpy((char *)arena + offset, data, bytes);
    return true;
}

static const HdBackend memory = {.name = "memory", .threads = true, .write = memory_write};

static HdBucket bucket(const char *name, int64_t first) {
    const int64_t role = ELEMENTS * (int64_t)sizeof *arena, at = first * ROLES * role;
    return (HdBucket){.name = name, .size = ELEMENTS, .shard = ELEMENTS, .compute_dtype = HD_F32, .master = at,
                      .state = {at + role, at + 2 * role, -1, -1}, .grad = -1, .compute = -1, .next = -1};
}

// --- the files

static void leave(void) {
    unlink(whole);
    for (int i = 0; i < SHARDS; i++) unlink(shard[i]);
    char inside[300];
    snprintf(inside, sizeof inside, "%s/step-5", folder);
    rmdir(inside);
    rmdir(folder);
}

static void start(void) {
    char inside[200];
    expect(mkdtemp(folder) != NULL, "cannot make a folder");
    snprintf(inside, sizeof inside, "%s/step-5", folder);
    expect(!mkdir(inside, 0777), "cannot make a folder");
    snprintf(whole, sizeof whole, "%s/checkpoint.safetensors", folder);
    for (int i = 0; i < SHARDS; i++) snprintf(shard[i], sizeof shard[i], "%s/rank-%d.safetensors", inside, i);
    atexit(leave);
    for (int i = 0; i <= SHARDS; i++) {
        char name[40];
        fds[i] = memfd_create("fuzz", 0);
        snprintf(name, sizeof name, "/proc/self/fd/%d", fds[i]);
        expect(fds[i] >= 0 && !symlink(name, i ? shard[i - 1] : whole), "cannot make a file");
    }
}

static void write_file(int number, const void *bytes, size_t n) {
    const int fd = fds[number];
    expect(!ftruncate(fd, 0) && pwrite(fd, bytes, n, 0) == (ssize_t)n, "cannot write a file");
}

// The end of the last tensor that a header declares, which is the checksum where there is one.
static size_t data_of(const char *header, size_t n) {
    static const char key[] = "\"data_offsets\":[";
    long long first = 0, end = 16;
    for (const char *at = header; (at = memmem(at, n - (size_t)(at - header), key, sizeof key - 1)); at++) {
        char text[60];
        const size_t left = n - (size_t)(at - header);
        snprintf(text, sizeof text, "%.*s", (int)(left < 59 ? left : 59), at);
        sscanf(text + sizeof key - 1, "%lld,%lld", &first, &end);
    }
    return end < 16 || end > DATA ? 16 : (size_t)end;
}

// Number 0 is checkpoint.safetensors, number 1 rank-0. The values say which file and element they are. described:
// what a manifest says of the file.
static void make_file(int number, const char *header, size_t n, char described[DESCRIBED]) {
    static unsigned char file[8 + ROOM + DATA];
    const size_t bytes = data_of(header, n), end = 8 + n + bytes;
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < bytes; i += 4) {
        const float v = (float)(number * DATA + (int)i / 4);
        memcpy(file + 8 + n + i, &v, bytes - i < 4 ? bytes - i : 4);
    }
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(file, end - 16));
    memcpy(file + end - 16, sum.digest, 16);
    write_file(number, file, end);
    int at = snprintf(described, DESCRIBED, "%zu ", end);
    for (int i = 0; i < 16; i++) at += snprintf(described + at, DESCRIBED - (size_t)at, "%02x", sum.digest[i]);
}

static void make_manifest(Part p, char described[SHARDS][DESCRIBED]) {
    static char header[ROOM];
    char own[DESCRIBED];
    size_t n = 0;
    for (size_t i = 0; i < p.n && n + DESCRIBED < sizeof header; i++) {
        const int number = p.at[i] == '$' && i + 1 < p.n ? p.at[i + 1] - '0' : -1;
        if (number >= 0 && number < SHARDS) {
            n += (size_t)snprintf(header + n, DESCRIBED, "%s", described[number]);
            i++;
        } else {
            header[n++] = (char)p.at[i];
        }
    }
    make_file(0, header, n, own);
}

static Part next_part(Part *left) { // up to a line "---"
    static const char line[] = "\n---\n";
    const uint8_t *end = left->n ? memmem(left->at, left->n, line, sizeof line - 1) : NULL;
    Part p = {left->at, end ? (size_t)(end - left->at) : left->n};
    const size_t used = end ? p.n + sizeof line - 1 : p.n;
    *left = (Part){left->at + used, left->n - used};
    if (p.n > ROOM) p.n = ROOM;
    return p;
}

static void make_files(const uint8_t *data, size_t size) {
    char described[SHARDS][DESCRIBED];
    Part left = {data, size};
    if (!size || *data != '{') {
        write_file(0, data, size);
        return;
    }
    const Part manifest = next_part(&left);
    for (int i = 0; i < SHARDS; i++) {
        const Part p = next_part(&left);
        make_file(i + 1, (const char *)p.at, p.n, described[i]);
    }
    make_manifest(manifest, described);
}

// --- what the files say, read in another way

static float element(const char *path, const char *name, int64_t i) {
    StFile f;
    float v = NAN;
    expect(hd_st_open(&f, path), "a file of the state cannot be read");
    const StTensor *t = hd_st_find(&f, name);
    expect(t && hd_st_floats(&f, t, i, 1, &v), "a tensor of the state cannot be read");
    hd_st_close(&f);
    return v;
}

static const char *said(const StFile *f, const char *format, const char *name) {
    char key[100];
    snprintf(key, sizeof key, format, name);
    const char *text = hd_st_meta(f, key);
    expect(text != NULL, "the manifest does not say where the state is");
    return text;
}

// An element of a parameter, from the box that has it. text: what the manifest says of the parameter's boxes.
static float in_boxes(const char *text, int role, const HdParam *q, int64_t i) {
    const int columns = q->rank > 1 ? (int)q->dim[1] : 1, row = (int)i / columns, column = (int)i % columns;
    for (text = strchr(text, ']'); text && text[1]; text = strchr(strchr(text + 1, '+'), ']')) {
        int file, first[2] = {0, 0}, n[2] = {1, 1};
        const char *box = strchr(text, '[');
        expect(sscanf(text + 1, "%d", &file) == 1 && file < SHARDS && box, "no file");
        if (q->rank == 2) sscanf(box, "[%d,%d]+[%d,%d]", &first[0], &first[1], &n[0], &n[1]);
        if (q->rank == 1) sscanf(box, "[%d]+[%d]", &first[0], &n[0]);
        if (row < first[0] || row >= first[0] + n[0] || column < first[1] || column >= first[1] + n[1]) continue;
        char name[600];
        const int used = snprintf(name, sizeof name, "%s%s", prefixes[role], q->name);
        hd_shape_text(name + used, sizeof name - (size_t)used, q->rank, (int64_t[]){first[0], first[1]});
        return element(shard[file], name, (int64_t)(row - first[0]) * n[1] + column - first[1]);
    }
    expect(false, "an element in no box");
    return 0;
}

static float stored(const StFile *f, int role, const HdParam *q, int64_t i) {
    char name[600], number[20];
    long long bucket_number, at, size, each;
    int n = 0;
    snprintf(name, sizeof name, "%s%s", prefixes[role], q->name);
    if (!hd_st_meta(f, "folder") || !strcmp(hd_st_meta(f, "heddle_checkpoint"), "1")) return element(whole, name, i);
    if (!strcmp(hd_st_meta(f, "heddle_checkpoint"), "3")) return in_boxes(said(f, "param %s", q->name), role, q, i);
    expect(sscanf(said(f, "param %s", q->name), "%lld %lld", &bucket_number, &at) == 2, "no place");
    snprintf(number, sizeof number, "%lld", bucket_number);
    const char *text = said(f, "bucket %s", number);
    expect(sscanf(text, "%lld %lld%n", &size, &each, &n) == 2 && text[n] == ' ', "no bucket");
    expect((at + i) / each < SHARDS, "a shard that is not there");
    snprintf(name, sizeof name, "%s%s", prefixes[role], text + n + 1);
    return element(shard[(at + i) / each], name, (at + i) % each);
}

static void check_state(const HdProgram *p, const Progress *at) {
    StFile f;
    expect(hd_st_open(&f, whole), "what was resumed cannot be read");
    for (int role = 0; role < ROLES; role++)
        for (int k = 0; k < N_PARAMS; k++)
            for (int64_t i = 0; i < params[k].count; i++) {
                const int64_t home = hd_home(&p->buckets[params[k].bucket], (HdRole)role) / (int64_t)sizeof *arena;
                const float want = stored(&f, role, &params[k], i), is = arena[home + params[k].at + i];
                expect(is == want || (isnan(is) && isnan(want)), "another number than the file's");
            }
    int32_t step;
    memcpy(&step, &arena[2 * ROLES * ELEMENTS], sizeof step);
    expect(at->step == strtoll(said(&f, "%s", "step"), NULL, 10) && at->optimizer_start >= 0 &&
           at->optimizer_start <= at->step && step == at->step - at->optimizer_start, "another step");
    expect(at->seed == strtoll(said(&f, "%s", "seed"), NULL, 10) && at->seed >= 0, "another seed");
    expect(at->data_tokens >= 0 && at->sequences >= 0, "a number below 0");
    hd_st_close(&f);
}

static void check_message(const char *c) {
    expect(*c != 0, "refused without a message");
    for (; *c; c++)
        expect((unsigned char)*c >= 0x20 && *c != 0x7f, "a message with a control character");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const HdBucket buckets[] = {bucket("root", 0), bucket("block", 1)};
    const HdProgram p = {.model = "Toy", .model_hash = "abc", .train = " {eps = 1e-08}", .batch = 2, .seq = 4,
                         .micro = 1, .n_buckets = 2, .buckets = buckets,
                         .n_states = 2, .states = states, .n_params = N_PARAMS, .params = params,
                         .backend = &memory, .arena_bytes = sizeof arena,
                         .train_step = {.counter = (int64_t)(sizeof arena - sizeof *arena), .random = -1}};
    HdExec x = {.program = &p, .world = hd_world_alone()};
    Progress at = {-1, -1, -1, -1, false, 0, -1, false, {0}};
    if (!*whole) start();
    for (size_t i = 0; i < sizeof arena / sizeof *arena; i++) arena[i] = -1;
    make_files(data, size);
    hd_fail("%s", "");
    const char *with = size % 2 ? "all" : NULL; // with it the seed and the optimizer may be others than the file's
    if (!hd_state_resume(&x, folder, &(HdResumeRules){.with = with}, &at)) check_message(hd_failure());
    else if (!with) check_state(&p, &at);
    hd_fail("%s", "");
    if (!hd_state_import(&x, whole, NULL)) check_message(hd_failure());
    return 0;
}
