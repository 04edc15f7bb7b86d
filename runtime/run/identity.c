// Ranks that were started differently. A hash of everything is compared first; the texts travel only where it differs.
#include "runtime/run/identity.h"
#include "runtime/checkpoint/keep.h"
#include "runtime/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { VALUE = 120 };
typedef char Value[VALUE];

// GIVEN: whether it was, not its value; NAMES: a hash of all of them
typedef enum { NUMBER, FLAG, FORMATS, TEXT, GIVEN, NAMES, FILES_OF, WEIGHTS_OF, CHECKPOINT_OF } Kind;

#define OF(field) offsetof(Options, field)
static const struct { const char *name; Kind kind; size_t field; } options[] = {
    {"--seed", NUMBER, OF(seed)},
    {"--data", FILES_OF, OF(data)},
    {"--val", FILES_OF, OF(val)},
    {"--format", FORMATS, OF(formats)},
    {"--steps", NUMBER, OF(steps)},
    {"--resume", CHECKPOINT_OF, OF(resume)},
    {"--resume-with", TEXT, OF(resume_with)},
    {"--init", WEIGHTS_OF, OF(init)},
    {"--init-missing", TEXT, OF(init_missing)},
    {"--init-ignore", NAMES, OF(init_ignore)},
    {"--init-rename", NAMES, OF(init_rename)},
    {"--val-every", NUMBER, OF(val_every)},
    {"--val-batches", NUMBER, OF(val_batches)},
    {"--eval", FLAG, OF(eval)},
    {"--save", TEXT, OF(save)},
    {"--save-every", NUMBER, OF(save_every)},
    {"--save-every (seconds)", NUMBER, OF(save_seconds)},
    {"--keep", NUMBER, OF(keep)},
    {"--keep-best", FLAG, OF(keep_best)},
    {"--digest", GIVEN, OF(digest)},
    {"--export", GIVEN, OF(export_to)},
    {"--as", TEXT, OF(as)},
    {"--weights", TEXT, OF(weights)},
    {"--choices", GIVEN, OF(choices)},
    {"--profile", GIVEN, OF(profile)},
    {"--timeline", GIVEN, OF(timeline)},
    {"--run", TEXT, OF(run)},
    {"--output", GIVEN, OF(output)},
    {"--check", FLAG, OF(check)},
};
static const char *const variables[] = {"HEDDLE_ATTENTION", "HEDDLE_TUNE", "HEDDLE_SKIP_COLLECTIVES",
                                        "HEDDLE_NCCL_CTAS"};
enum { OPTIONS = sizeof options / sizeof *options, VARIABLES = sizeof variables / sizeof *variables,
       ITEMS = OPTIONS + VARIABLES };

// A hash of at most so many blocks. false: with errno, which is 0 if the file became shorter.
static bool sample(int fd, int64_t size, int64_t most, uint64_t *hash) {
    const int64_t room = HD_SAMPLE_BYTES, blocks = (size + room - 1) / room;
    const int64_t n = blocks < most ? blocks : most;
    char block[HD_SAMPLE_BYTES];
    XXH3_state_t *state = XXH3_createState();
    bool ok = state != NULL;
    if (ok) XXH3_64bits_reset(state);
    for (int64_t i = 0; ok && i < n; i++) { // the first block, the last one, and others between them at equal distances
        const int64_t at = n == blocks ? i * room : n == 1 ? 0 : (size - room) / (n - 1) * i;
        const size_t bytes = (size_t)(size - at < room ? size - at : room);
        ssize_t got;
        do got = pread(fd, block, bytes, at);
        while (got < 0 && errno == EINTR);
        if (got >= 0) errno = 0;
        ok = got == (ssize_t)bytes;
        if (ok) XXH3_64bits_update(state, block, bytes);
    }
    if (ok) *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return ok;
}

static const char *last_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool sample_file(const char *path, int64_t most, int64_t *bytes, uint64_t *hash) { // false after hd_fail
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    *hash = 0;
    const bool ok = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && sample(fd, st.st_size, most, hash);
    const int why = errno;
    if (fd >= 0) close(fd);
    if (!ok) return hd_fail("cannot read %s: %s", path, why ? strerror(why) : "it became shorter meanwhile");
    *bytes = st.st_size;
    return true;
}

static bool file_value(const char *path, Value out) {
    int64_t bytes;
    uint64_t hash;
    if (!sample_file(path, HD_SAMPLES, &bytes, &hash)) return false;
    snprintf(out, VALUE, "%.60s (%lld bytes, sample %016llx)", last_name(path), (long long)bytes,
             (unsigned long long)hash);
    return true;
}

// A hash of several files: the blocks are shared out among them, at least one a file.
static bool files_value(Names names, Value out) {
    FileList list;
    int64_t bytes, all = 0;
    uint64_t hash, sum = 0;
    if (!hd_files_expand(&list, names)) return false;
    bool ok = list.n > 1 || !list.n || file_value(list.at[0], out);
    for (int i = 0; ok && list.n > 1 && i < list.n; i++) {
        const char *name = last_name(list.at[i]);
        ok = sample_file(list.at[i], list.n < HD_SAMPLES ? HD_SAMPLES / list.n : 1, &bytes, &hash);
        if (!ok) break;
        const uint64_t of_file[] = {sum, XXH3_64bits(name, strlen(name)), (uint64_t)bytes, hash};
        sum = XXH3_64bits(of_file, sizeof of_file);
        all += bytes;
    }
    if (ok && list.n > 1)
        snprintf(out, VALUE, "%.50s and %d more (%lld bytes, sample %016llx)", last_name(list.at[0]), list.n - 1,
                 (long long)all, (unsigned long long)sum);
    hd_files_free(&list);
    return ok;
}

// Whether a checkpoint is there, whatever the folder is called on this host; one that is not there is reported later.
// Another run may be replacing it: whether it is the same on all ranks is found out when all have it open (resume.c).
static void checkpoint_value(const char *name, Value out) {
    char dir[HD_CHECKPOINT_PATH], path[HD_CHECKPOINT_PATH];
    snprintf(out, VALUE, "a folder %s a checkpoint", hd_checkpoint_find(name, dir, path) ? "with" : "without");
}

// A file, or the one that is read in a folder.
static bool weights_value(const char *path, Value out) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "latest/checkpoint.safetensors", "checkpoint.safetensors"};
    char inside[4200];
    struct stat st;
    const bool folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    for (int i = 0; folder && i < (int)(sizeof names / sizeof *names); i++) {
        snprintf(inside, sizeof inside, "%s/%s", path, names[i]);
        if (access(inside, R_OK) == 0) return file_value(inside, out);
    }
    snprintf(out, VALUE, "a folder without weights");
    return folder || file_value(path, out);
}

static void formats_value(Names given, Value out) { // in the order of the command line
    size_t n = 0;
    for (int i = 0; i < given.n && n < VALUE; i++)
        n += (size_t)snprintf(out + n, VALUE - n, "%s%s", i ? " " : "", given.at[i]);
}

// Of the files of every input, as files_value where no input is named.
static bool inputs_value(const HdInputs *p, const char *option, Names given, Value out) {
    Value all = "";
    bool ok = true;
    uint64_t sum = 0;
    int named = 0;
    for (int i = -1; ok && i < p->n; i++) {
        Names names;
        Value one = "";
        ok = hd_feed_names(p, option, given, i, &names) && files_value(names, one);
        const uint64_t of_input[] = {sum, (uint64_t)names.n, XXH3_64bits(one, strlen(one))};
        sum = XXH3_64bits(of_input, sizeof of_input);
        if (i >= 0 && names.n) snprintf(all, VALUE, "%.40s=%.70s", p->at[i].name, one);
        if (i < 0 && names.n) memcpy(out, one, VALUE);
        named += i >= 0 && names.n;
        free(names.at);
    }
    if (ok && named) snprintf(out, VALUE, "%.80s and others (%016llx)", all, (unsigned long long)sum);
    return ok;
}

static void names_value(const Names *names, Value out) {
    uint64_t sum = 0;
    for (int i = 0; i < names->n; i++) sum = XXH3_64bits_withSeed(names->at[i], strlen(names->at[i]), sum + 1);
    if (names->n)
        snprintf(out, VALUE, "%.60s (%d of them, hash %016llx)", names->at[0], names->n, (unsigned long long)sum);
}

static bool option_value(const HdProgram *p, const Options *o, int i, Value out) {
    const void *field = (const char *)o + options[i].field;
    const HdInputs inputs = field == &o->val ? hd_inputs(p) : hd_options_inputs(p, o);
    const char *text = options[i].kind < TEXT || options[i].kind == FILES_OF || options[i].kind == NAMES
                           ? NULL : *(const char *const *)field;
    snprintf(out, VALUE, "none");
    switch (options[i].kind) {
    case NUMBER: snprintf(out, VALUE, "%lld", (long long)*(const int64_t *)field); break;
    case FLAG: snprintf(out, VALUE, "%s", *(const bool *)field ? "yes" : "no"); break;
    case FORMATS: formats_value(*(const Names *)field, out); break;
    case TEXT: // of long ones the end
        if (text) snprintf(out, VALUE, "%s", strlen(text) < VALUE ? text : text + strlen(text) - VALUE + 1);
        break;
    case GIVEN: snprintf(out, VALUE, "%s", text ? "given" : "none"); break;
    case NAMES: names_value(field, out); break;
    case FILES_OF: return inputs_value(&inputs, options[i].name + 2, *(const Names *)field, out);
    case WEIGHTS_OF: return !text || weights_value(text, out);
    case CHECKPOINT_OF:
        if (text) checkpoint_value(text, out);
        break;
    }
    return true;
}

static bool values_here(const HdProgram *p, const Options *o, Value *v) { // false after hd_fail
    for (int i = 0; i < OPTIONS; i++)
        if (!option_value(p, o, i, v[i])) return false;
    for (int i = 0; i < VARIABLES; i++) {
        const char *text = getenv(variables[i]);
        snprintf(v[OPTIONS + i], VALUE, "%s", text && *text ? text : "none");
    }
    return true;
}

static void describe(Value *here, int rank, Value *there) { // hd_fail with the first difference
    hd_fail("the ranks were started differently");
    for (int i = ITEMS - 1; i >= 0; i--) {
        if (!memcmp(here[i], there[i], VALUE)) continue;
        hd_text_clean(here[i], VALUE);
        hd_text_clean(there[i], VALUE);
        hd_fail("rank %d was started differently: its %s is %s, rank 0's is %s; give every rank the same options and "
                "files",
                rank, i < OPTIONS ? options[i].name : variables[i - OPTIONS], there[i], here[i]);
    }
}

// all; false after hd_fail, which says how the rank differs from rank 0. Only that rank sends its values.
static bool differ(HdWorld *w, int rank, Value *mine) {
    Value *theirs = w->rank ? NULL : calloc(ITEMS, sizeof *theirs);
    bool ok = w->rank || theirs || hd_fail("out of memory");
    if (w->rank == rank) ok = w->send(w, mine, ITEMS * sizeof *mine);
    if (theirs) ok = w->receive(w, rank, theirs, ITEMS * sizeof *theirs);
    if (!ok) w->fail(w, hd_failure());
    if (theirs && ok) describe(mine, rank, theirs);
    free(theirs);
    return ok && hd_world_fail_as(w, 0);
}

// Of all ranks the lowest that differs from rank 0, which alone compares; 0: none. false after hd_fail.
static bool first_other(HdWorld *w, const void *mine, XXH128_hash_t *all, int32_t *other) {
    const XXH128_hash_t hash = XXH3_128bits(mine, ITEMS * sizeof(Value));
    *other = 0;
    if (!w->collect(w, &hash, sizeof hash, all)) return false;
    for (int r = w->ranks - 1; !w->rank && r > 0; r--)
        if (!XXH128_isEqual(all[0], all[r])) *other = r;
    if (!w->share(w, other, sizeof *other)) return false;
    return (*other >= 0 && *other < w->ranks) || hd_fail("rank 0 names a rank that is not in the run");
}

bool hd_identity_same(HdWorld *w, const HdProgram *p, const Options *o) {
    if (w->ranks == 1 || p->backend->threads) return true; // they share the options
    Value *mine = calloc(ITEMS, sizeof *mine);
    XXH128_hash_t *all = malloc((size_t)w->ranks * sizeof *all);
    const bool memory = (mine && all) || hd_fail("out of memory");
    int32_t other;
    bool ok = hd_world_agree(w, memory && values_here(p, o, mine)) && first_other(w, mine, all, &other);
    if (ok && other) ok = differ(w, other, mine);
    free(mine);
    free(all);
    return ok;
}

bool hd_identity_choices(HdWorld *w, const char choices[HD_CHOICES]) {
    if (!*choices || w->ranks == 1) return true;
    char (*all)[HD_CHOICES] = calloc((size_t)w->ranks, sizeof *all);
    const bool ok = hd_world_agree(w, all || hd_fail("out of memory")) && w->collect(w, choices, sizeof *all, all);
    int other = 1;
    while (ok && !w->rank && other < w->ranks && !memcmp(all[0], all[other], sizeof *all)) other++;
    if (ok && !w->rank && other < w->ranks)
        hd_say(stderr,
               "warning: rank %d runs other algorithms of libraries than rank 0 (choices %.16s and %.16s): bits repeat "
               "only where each rank keeps its own; --choices=FILE gives all of them the same\n",
               other, all[other], all[0]);
    free(all);
    return ok;
}
