// Layout: the mesh, buckets, the parameters in a bucket and the buffers that hold it. A rank holds all `size` elements
// of a bucket, its shard (size / shards, the same piece in every copy) or, on the way through the sum over copies, its
// part of the shard: element e of part r' of shard r is element r * size/shards + r' * size/shards/copies + e of the
// bucket. Gradients are scattered over the axes that split first, and gathered over them last, so that gathering undoes
// what scattering did [V4]. The text of each bucket says which axes split it and along which ranks have copies of a
// part: together all axes with several ranks, each once. Copies whose ranks read the same sequences have the same
// gradients, which are never summed.
#include "passes/verify/verify_plan.h"
#include "ir/base/ints.h"
#include "ir/base/search.h"
#include "ir/layout.h"
#include "ir/optimizer.h"
#include "passes/settings.h"
#include <stdlib.h>

enum { SHARD_ALIGN = 16 }; // bytes: collectives and vector loads want a shard to start at a multiple
static void find_mesh(PlanCheck *c) {
    c->mesh = hd_mesh(c->m);
    c->live = hd_mesh_live(&c->mesh);
    c->data = c->live & HD_DATA_AXES;
    c->ranks = hd_mesh_readers(&c->mesh);
    for (const Symbol *s = c->m->symbols; s; s = s->next) {
        const char *on = s->kind == SYM_COMM ? hd_word(&s->attrs, A_ON, "") : "compute";
        const Symbol *stream = hd_symbol_find(c->m, on);
        if (s->kind == SYM_COMM && (!stream || stream->kind != SYM_STREAM))
            hd_plan_wrong(c, NULL, s->span, "comm @%s is for stream %s, which the plan does not declare", s->name, on);
    }
}

// --- which symbols belong together

static const struct { AttrId at; const char *class; bool weights; } part_info[N_PARTS] = {
    [PART_MASTER] = {A_MASTER_WEIGHTS, "shards", true}, [PART_STATE] = {A_STATES, "optimizer", false},
    [PART_GRAD] = {A_GRADIENT, "gradients", false},
    [PART_SUM] = {A_GRADIENT_SUM, "gradients", false},      [PART_LEVEL] = {A_LEVELS, "gradients", false},
    [PART_COMPUTE] = {A_WEIGHTS, "weights", true},      [PART_NEXT] = {A_NEXT, "weights", true}};

const char *hd_plan_part_text(int part) {
    return part == PART_STATE ? "state" : part == PART_LEVEL ? "level" : hd_attr_info(part_info[part].at)->text;
}

static void join_bucket(PlanCheck *c, const Symbol *s) {
    const char *name = hd_word(&s->attrs, A_BUCKET, NULL);
    const Symbol *of = name ? hd_symbol_find(c->m, name) : NULL;
    if (!name) return;
    if (!of || of->kind != SYM_BUCKET) {
        hd_plan_wrong(c, NULL, s->span, "%s @%s is of bucket @%s, which the plan does not have",
                      hd_symbol_keyword(s->kind), s->name, name);
        return;
    }
    c->bucket_of[s->id] = c->bucket_of[of->id];
    if (s->kind == SYM_PARAM) hd_push(c->a, &hd_plan_bucket(c, of)->items, s);
}

// The buffers that a bucket names: each is of that bucket, persists and is one part of it. A gradient need not persist:
// one that is transient holds the step's gradient where its function ends (contents.c).
static void name_part(PlanCheck *c, BucketParts *k, int i, const char *name) {
    const Symbol *s = hd_symbol_find(c->m, name);
    bool kept = s && (i == PART_GRAD || !hd_has(&s->attrs, A_TRANSIENT));
    if (!kept || s->kind != SYM_BUFFER || hd_plan_bucket(c, s) != k) {
        hd_plan_wrong(c, NULL, k->symbol->span, "bucket @%s has %s = @%s, which is not a buffer of this bucket",
                      k->symbol->name, hd_plan_part_text(i), name);
        return;
    }
    if (c->part_of[s->id] == PART_STATE && i == PART_STATE)
        hd_plan_wrong(c, NULL, k->symbol->span, "buffer @%s is two states of bucket @%s", s->name, k->symbol->name);
    else if (c->part_of[s->id] == PART_LEVEL && i == PART_LEVEL)
        hd_plan_wrong(c, NULL, k->symbol->span, "buffer @%s is two levels of bucket @%s", s->name, k->symbol->name);
    else if (c->part_of[s->id] != N_PARTS)
        hd_plan_wrong(c, NULL, k->symbol->span, "buffer @%s is both the %s and the %s of bucket @%s", s->name,
                      hd_plan_part_text(c->part_of[s->id]), hd_plan_part_text(i), k->symbol->name);
    if (strcmp(hd_word(&s->attrs, A_CLASS, part_info[i].class), part_info[i].class) != 0)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s, the %s of bucket @%s, has class %s, not %s", s->name,
                      hd_plan_part_text(i), k->symbol->name, hd_word(&s->attrs, A_CLASS, ""), part_info[i].class);
    if (!k->part[i]) k->part[i] = s;
    c->part_of[s->id] = i;
}

static void name_parts(PlanCheck *c, BucketParts *k) {
    const char *const *names;
    for (int i = 0; i < N_PARTS; i++) {
        const Attr *at = hd_attr(&k->symbol->attrs, part_info[i].at);
        const int n = at ? hd_names(at, &names) : 0;
        for (int j = 0; j < n; j++) name_part(c, k, i, names[j]);
    }
}

static int place_in(const Attr *list, const Symbol *s) { // -1: nowhere
    for (int i = 0; list && i < list->n; i++)
        if (!strcmp(list->strs[i], s->name)) return i;
    return -1;
}

int hd_step_keeps(const Symbol *step, const Symbol *s) {
    if (!step || !s) return -1;
    const Attr *results = hd_attr(&step->attrs, A_RESULTS), *levels = hd_attr(&step->attrs, A_LEVELS);
    const int result = place_in(results, s), level = place_in(levels, s);
    if (!strcmp(hd_word(&step->attrs, A_LOSS, ""), s->name)) return 0;
    if (result >= 0) return 1 + result;
    if (!strcmp(hd_word(&step->attrs, A_COUNTS, ""), s->name)) return hd_n_numbers(&step->attrs) - 1;
    return level < 0 ? -1 : level / (levels->n / hd_n_numbers(&step->attrs));
}

const Symbol *hd_step_kept_at(const Module *m, const Symbol *step, int number) {
    const Attr *results = hd_attr(&step->attrs, A_RESULTS);
    const bool result = results && number > 0 && number <= results->n;
    const AttrId at = number ? A_COUNTS : A_LOSS;
    return hd_symbol_find(m, result ? results->strs[number - 1] : hd_word(&step->attrs, at, ""));
}

bool hd_plan_is_weights(const PlanCheck *c, const Symbol *s) {
    if (c->part_of[s->id] != N_PARTS) return part_info[c->part_of[s->id]].weights;
    return hd_has(&s->attrs, A_TRANSIENT) && strcmp(hd_word(&s->attrs, A_CLASS, ""), "weights") == 0;
}

static int by_offset(const void *a, const void *b) {
    const Symbol *p = *(const Symbol *const *)a, *q = *(const Symbol *const *)b;
    int64_t x = hd_int(&p->attrs, A_OFFSET, 0), y = hd_int(&q->attrs, A_OFFSET, 0);
    return x != y ? (x < y ? -1 : 1) : p->id - q->id;
}

static BucketParts bucket_parts(const PlanCheck *c, const Symbol *s) {
    BucketParts k = {.symbol = s, .size = s->type ? hd_type_count(s->type) : 0};
    k.split = hd_axes(&s->attrs, A_SPLIT) & c->live;
    k.copied = hd_axes(&s->attrs, A_COPIED) & c->live;
    k.own = hd_layout_axes(s->layout) & c->live;
    k.shards = hd_mesh_ranks(&c->mesh, k.split);
    k.copies = hd_mesh_ranks(&c->mesh, hd_plan_summed(c, &k));
    return k;
}

static void find_buckets(PlanCheck *c) {
    for (const Symbol *s = c->m->symbols; s; s = s->next) c->n_buckets += s->kind == SYM_BUCKET;
    c->buckets = HD_NEWN(c->a, BucketParts, c->n_buckets + 1);
    c->bucket_of = HD_NEWN(c->a, int, c->m->n_symbols + 1);
    c->part_of = HD_NEWN(c->a, int, c->m->n_symbols + 1);
    int n = 0;
    for (const Symbol *s = c->m->symbols; s; s = s->next) {
        if (s->kind != SYM_BUCKET) continue;
        c->buckets[n] = bucket_parts(c, s);
        c->bucket_of[s->id] = ++n;
    }
    for (const Symbol *s = c->m->symbols; s; s = s->next)
        if (c->part_of[s->id] = N_PARTS, s->kind == SYM_PARAM || s->kind == SYM_BUFFER) join_bucket(c, s);
    for (int i = 0; i < n; i++) name_parts(c, &c->buckets[i]);
    for (int i = 0; i < n; i++)
        if (c->buckets[i].items.n)
            qsort(c->buckets[i].items.at, (size_t)c->buckets[i].items.n, sizeof(Symbol *), by_offset);
}

// --- parameters in a bucket

// The number of elements that no boundary between ranks may cut: those of one index along the first axis.
static int64_t row_of(const Type *t) { return t->rank > 0 && t->dim[0] > 0 ? hd_type_count(t) / t->dim[0] : 1; }

static void check_rows(PlanCheck *c, const BucketParts *k, const Symbol *p, int64_t lo, int64_t hi) {
    int64_t row = row_of(p->type), shard = k->size / k->shards;
    if (k->shards == 1 || lo >= hi || shard < 1) return;
    if (lo % row)
        hd_plan_wrong(c, NULL, p->span,
                      "parameter @%s starts at element %lld of @%s, not at a multiple of its rows of %lld", p->name,
                      ll(lo), k->symbol->name, ll(row));
    int64_t cut = (lo / shard + 1) * shard; // the first boundary after lo; the next ones are a shard apart
    if (cut < hi && (cut - lo) % row == 0 && cut + shard < hi && shard % row != 0) cut += shard;
    if (cut < hi && (cut - lo) % row != 0)
        hd_plan_wrong(c, NULL, p->span,
                      "a row of parameter @%s, %lld elements, is cut at element %lld of @%s, where a shard ends",
                      p->name, ll(row), ll(cut), k->symbol->name);
}

// All parameters of a bucket have its rates.
static void check_rates(PlanCheck *c, const Symbol *bucket, const Symbol *p) {
    for (int i = 0; i < HD_GROUP_RATES; i++) {
        const AttrId at = hd_group_rates[i];
        if (hd_has(&p->attrs, at) != hd_has(&bucket->attrs, at) ||
            hd_float(&p->attrs, at, 0) != hd_float(&bucket->attrs, at, 0))
            hd_plan_wrong(c, NULL, p->span, "parameter @%s and its bucket @%s differ in %s", p->name, bucket->name,
                          hd_attr_info(at)->text);
    }
}

// All params of a bucket are buffers of its kernel, or none is a buffer. The kernel keeps no states.
static void check_rule(PlanCheck *c, const BucketParts *k) {
    const char *rule = hd_plan_rule(k);
    const Func *kernel = rule ? hd_func_find(c->m, rule) : NULL;
    for (int i = 0; i < k->items.n; i++) {
        const char *of = hd_word(&k->items.at[i]->attrs, A_KERNEL, NULL);
        if (!of != !rule || (of && strcmp(of, rule) != 0))
            hd_plan_wrong(c, NULL, k->items.at[i]->span, "parameter @%s has kernel %s%s, and its bucket @%s %s%s",
                          k->items.at[i]->name, of ? "@" : "", of ? of : "none", k->symbol->name, rule ? "@" : "",
                          rule ? rule : "none");
    }
    if (rule && (!kernel || !kernel->is_kernel || hd_kind(&kernel->attrs) != KIND_OPTIMIZER || !hd_is_rule(kernel)))
        hd_plan_wrong(c, NULL, k->symbol->span, "bucket @%s has kernel @%s, which is not the rule of a buffer",
                      k->symbol->name, rule);
    if (rule && (k->part[PART_STATE] || k->part[PART_COMPUTE]))
        hd_plan_wrong(c, NULL, k->symbol->span, "bucket @%s holds buffers and has states or compute weights",
                      k->symbol->name);
}

// All parameters of a bucket have its optimizer. Where that takes them whole, each is a matrix, or a vector where it
// does not orthogonalize, one rank owns all of it, and all decay or none.
static void check_optimizer(PlanCheck *c, const BucketParts *k) {
    const char *is = hd_word(&k->symbol->attrs, A_UPDATED_BY, "");
    const Func *kernel = hd_func_find(c->m, is);
    const int64_t shard = k->size / k->shards;
    if (*is && (!kernel || !kernel->is_kernel || hd_kind(&kernel->attrs) != KIND_OPTIMIZER || hd_is_rule(kernel))) {
        hd_plan_wrong(c, NULL, k->symbol->span, "bucket @%s is updated by @%s, which is no optimizer", k->symbol->name,
                      is);
        return;
    }
    for (int i = 0; i < k->items.n; i++) {
        const Symbol *p = k->items.at[i];
        const int64_t lo = hd_int(&p->attrs, A_OFFSET, 0), n = hd_type_count(p->type);
        if (strcmp(hd_word(&p->attrs, A_UPDATED_BY, ""), is) != 0)
            hd_plan_wrong(c, NULL, p->span, "parameter @%s and its bucket @%s differ in %s", p->name, k->symbol->name,
                          hd_attr_info(A_UPDATED_BY)->text);
        else if (!hd_takes_whole(kernel) || !n) continue;
        else if ((hd_optimizer_turn(kernel) ? p->type->rank != 2 : p->type->rank > 2) || k->own)
            hd_plan_wrong(c, NULL, p->span, "parameter @%s : %s is no whole matrix%s, which its optimizer @%s takes",
                          p->name, hd_type_text(c->m->cx, p->type), hd_optimizer_turn(kernel) ? "" : " or vector", is);
        else if (shard < 1 || lo < 0 || lo / shard != (lo + n - 1) / shard)
            hd_plan_wrong(c, NULL, p->span, "parameter @%s, elements [%lld, %lld), is on several ranks, and its "
                          "optimizer @%s takes whole %s", p->name, ll(lo), ll(lo + n), is,
                          hd_optimizer_turn(kernel) ? "matrices" : "parameters");
        else if (hd_has_lines(kernel) && hd_has(&p->attrs, A_DECAY) != (hd_int(&k->symbol->attrs, A_DECAYED, 0) > 0))
            hd_plan_wrong(c, NULL, p->span, "parameter @%s %s, and other parameters of bucket @%s %s: its optimizer "
                          "@%s has one decay for all", p->name,
                          hd_has(&p->attrs, A_DECAY) ? "decays" : "does not decay",
                          k->symbol->name, hd_has(&p->attrs, A_DECAY) ? "do not" : "do", is);
    }
}

// All parameters of a bucket are frozen or none is. A frozen bucket has weights and nothing else.
static void check_frozen(PlanCheck *c, const BucketParts *k, bool frozen) {
    static const int none[] = {PART_STATE, PART_GRAD, PART_SUM, PART_LEVEL, PART_COMPUTE};
    for (int i = 0; i < k->items.n; i++)
        if (hd_has(&k->items.at[i]->attrs, A_FROZEN) != frozen)
            hd_plan_wrong(c, NULL, k->items.at[i]->span, "parameter @%s is %s, and its bucket @%s is %s",
                          k->items.at[i]->name, frozen ? "trained" : "frozen", k->symbol->name,
                          frozen ? "frozen" : "not");
    for (size_t i = 0; frozen && i < sizeof none / sizeof *none; i++)
        if (k->part[none[i]])
            hd_plan_wrong(c, NULL, k->symbol->span, "bucket @%s is frozen and has %s = @%s", k->symbol->name,
                          hd_plan_part_text(none[i]), k->part[none[i]]->name);
}

// Master weights are in the type of their bucket: where config @train says master = bf16 or kahan, bf16 if ops read
// them so.
// Where it says nothing, either.
static void check_master(PlanCheck *c, const BucketParts *k) {
    const Symbol *s = k->symbol, *master = k->part[PART_MASTER], *copy = k->part[PART_COMPUTE],
                 *next = k->part[PART_NEXT];
    const char *said = hd_word(hd_settings(c->m, "train"), A_MASTER, NULL);
    const bool frozen = hd_has(&s->attrs, A_FROZEN), narrow = said && strcmp(said, "f32") != 0;
    const bool half = s->type && s->type->dtype == TY_BF16 && (narrow || !said) && !hd_plan_rule(k);
    if (s->type && ((s->type->dtype != TY_F32 && !frozen && !half) || s->type->rank != 1))
        hd_plan_wrong(c, NULL, s->span, "bucket @%s is %s: a bucket is a vector of f32", s->name,
                      hd_type_text(c->m->cx, s->type));
    if (!frozen && !half && narrow && (copy || (next && next->type->dtype != TY_F32)))
        hd_plan_wrong(c, NULL, s->span, "bucket @%s keeps weights in f32 for @%s, and config @train says master = %s",
                      s->name, copy ? copy->name : next->name, said);
    if (half && copy)
        hd_plan_wrong(c, NULL, s->span, "bucket @%s keeps its weights in bf16 twice, also in @%s", s->name, copy->name);
    if (master && s->type && master->type->dtype != s->type->dtype)
        hd_plan_wrong(c, NULL, master->span, "buffer @%s is %s, and its bucket @%s is %s", master->name,
                      hd_dtype_text(master->type->dtype), s->name, hd_dtype_text(s->type->dtype));
}

// A bucket is one vector of what adds up, and its parameters are those of one unit.
static void check_bucket(PlanCheck *c, const BucketParts *k) {
    const Symbol *s = k->symbol;
    const char *unit = hd_word(&s->attrs, A_UNIT, NULL);
    const bool frozen = hd_has(&s->attrs, A_FROZEN);
    check_master(c, k);
    for (int i = 0; i < k->items.n; i++) {
        const Symbol *p = k->items.at[i];
        const Axes own = hd_layout_axes(p->layout) & c->live;
        if (own != k->own)
            hd_plan_wrong(c, NULL, p->span, "parameter @%s is split over %s, and its bucket @%s over %s", p->name,
                          hd_axes_text(c->a, own), s->name, hd_axes_text(c->a, k->own));
    }
    for (int i = 0; unit && i < k->items.n; i++) {
        const Symbol *p = k->items.at[i];
        const char *of = hd_word(&p->attrs, A_UNIT, unit);
        if (strcmp(of, unit) != 0)
            hd_plan_wrong(c, NULL, p->span, "parameter @%s is of unit %s, and its bucket @%s of unit %s", p->name, of,
                          s->name, unit);
    }
    for (int i = 0; i < k->items.n; i++) check_rates(c, s, k->items.at[i]);
    check_frozen(c, k, frozen);
    check_rule(c, k);
    check_optimizer(c, k);
}

static void check_items(PlanCheck *c, const BucketParts *k) {
    int64_t decayed = hd_int(&k->symbol->attrs, A_DECAYED, 0), used = 0;
    for (int i = 0; i < k->items.n; i++) {
        const Symbol *p = k->items.at[i], *before = i ? k->items.at[i - 1] : NULL;
        int64_t lo = hd_int(&p->attrs, A_OFFSET, 0), n = hd_type_count(p->type);
        bool decay = hd_has(&p->attrs, A_DECAY);
        if (lo < 0 || n > k->size - lo) {
            hd_plan_wrong(c, NULL, p->span,
                          "parameter @%s, %lld elements from element %lld on, does not fit into bucket @%s of %lld",
                          p->name, ll(n), ll(lo), k->symbol->name, ll(k->size));
            return;
        }
        const int64_t hi = lo + n;
        if (used <= k->size) used += n; // more than that is too much, whatever the sum
        if (lo < hi && (decay ? hi > decayed : lo < decayed))
            hd_plan_wrong(c, NULL, p->span,
                          "parameter @%s, elements [%lld, %lld), %s weight decay, which @%s applies to [0, %lld)",
                          p->name, ll(lo), ll(hi), decay ? "has" : "has no", k->symbol->name, ll(decayed));
        if (before && lo < hi && hd_int(&before->attrs, A_OFFSET, 0) + hd_type_count(before->type) > lo)
            hd_plan_wrong(c, NULL, p->span, "parameters @%s and @%s share elements of bucket @%s", before->name,
                          p->name, k->symbol->name);
        check_rows(c, k, p, lo, hi);
    }
    int64_t padding = hd_int(&k->symbol->attrs, A_PADDING, k->size - used);
    if (padding != k->size - used)
        hd_plan_wrong(c, NULL, k->symbol->span, "bucket @%s has %lld elements of padding and declares %lld",
                      k->symbol->name, ll(k->size - used), ll(padding));
}

// --- buffers of a bucket

int64_t hd_plan_parts(const PlanCheck *c, const BucketParts *k, const Symbol *b) {
    const Axes split = hd_axes(&b->attrs, A_SPLIT) & c->live;
    int64_t parts = hd_mesh_ranks(&c->mesh, split);
    bool known = !split || split == k->split || split == (k->split | hd_plan_summed(c, k));
    const int64_t each = hd_elements_each(b);
    return known && k->size % parts == 0 && each > 0 && k->size % (parts * each) == 0 &&
                   hd_type_count(b->type) == k->size / parts / each ? parts : 0;
}

static void check_sizes(PlanCheck *c, const BucketParts *k) {
    const Symbol *s = k->symbol;
    const Axes missing = c->live & ~(k->split | k->copied | k->own), same = k->split & ~c->data;
    const Axes twice = (k->split & k->copied) | (k->own & (k->split | k->copied));
    if (missing || twice)
        hd_plan_wrong(c, NULL, s->span, "bucket @%s is %s over %s", s->name,
                      missing ? "neither split nor copied" : "both split and copied",
                      hd_axes_text(c->a, missing ? missing : twice));
    else if (k->own & ~(Axes)HD_OWN_AXES)
        hd_plan_wrong(c, NULL, s->span, "bucket @%s has other parameters on each rank along %s, along which every rank "
                      "has the same", s->name, hd_axes_text(c->a, k->own));
    else if (same)
        hd_plan_wrong(c, NULL, s->span, "bucket @%s is split over %s, along which ranks read the same sequences: a "
                      "reduce_scatter would count their gradients several times", s->name, hd_axes_text(c->a, same));
    else if (k->size % k->shards)
        hd_plan_wrong(c, NULL, s->span, "bucket @%s of %lld elements does not divide into %lld shards", s->name,
                      ll(k->size), ll(k->shards));
    else if (k->size / k->shards % k->copies)
        hd_plan_wrong(c, NULL, s->span, "the shards of bucket @%s, %lld elements, do not divide by %lld replicas",
                      s->name, ll(k->size / k->shards), ll(k->copies));
}

// The buffer that the optimizer writes besides the master weights.
static void check_compute(PlanCheck *c, const Symbol *s, const BucketParts *k) {
    const Symbol *master = k->part[PART_MASTER];
    if (master && hd_type_count(master->type) != hd_type_count(s->type))
        hd_plan_wrong(c, NULL, s->span,
                      "buffer @%s has %lld elements, and the master weights in @%s, which are updated with it, %lld",
                      s->name, ll(hd_type_count(s->type)), master->name, ll(hd_type_count(master->type)));
}

// The runtime fills it at the start with the compute weights, which are also what is gathered into it; where there are
// none, with the master weights, rounded as its gathers round them.
static void check_next(PlanCheck *c, const Symbol *s, const BucketParts *k) {
    const Symbol *from = k->part[PART_COMPUTE] ? k->part[PART_COMPUTE] : k->part[PART_MASTER];
    const bool rounded = hd_dtype_is_narrow(s->type->dtype);
    if (from && from->type->dtype != s->type->dtype && (k->part[PART_COMPUTE] || !rounded))
        hd_plan_wrong(c, NULL, s->span, "buffer @%s, next of bucket @%s, is %s, and the weights in @%s are %s", s->name,
                      k->symbol->name, hd_dtype_text(s->type->dtype), from->name, hd_dtype_text(from->type->dtype));
}

// Gathered weights may be quantized, in rows that no boundary cuts.
static void check_quantized(PlanCheck *c, const Symbol *s, const BucketParts *k, bool gathered) {
    const int64_t row = hd_int(&s->attrs, A_QUANTIZED, 0);
    const DType d = s->type->dtype;
    if (!hd_has(&s->attrs, A_QUANTIZED)) return;
    if (!gathered || (d != TY_E4M3 && d != TY_F32))
        hd_plan_wrong(c, NULL, s->span, "buffer @%s : %s is quantized: so are transient weights in e4m3, and their "
                      "scales in f32", s->name, hd_type_text(c->m->cx, s->type));
    else if (!row ? d != TY_E4M3 || !hd_has(&k->symbol->attrs, A_TENSORS) : row < 0)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s : %s holds whole tensors of bucket @%s, quantized: such are in "
                      "e4m3, and the bucket lists them", s->name, hd_type_text(c->m->cx, s->type), k->symbol->name);
    else if (row && k->size / k->shards % row)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s is quantized in rows of %lld elements, and ranks have %lld of "
                      "bucket @%s", s->name, ll(row), ll(k->size / k->shards), k->symbol->name);
}

// The number of a state of the bucket that has a number for each line of the parameters; -1: it is no such state.
static int line_state(const PlanCheck *c, const BucketParts *k, const Symbol *s) {
    const Func *kernel = hd_func_find(c->m, hd_word(&k->symbol->attrs, A_UPDATED_BY, ""));
    int i = c->part_of[s->id] == PART_STATE && hd_has_lines(kernel) ? 0 : -1;
    while (i >= 0 && hd_state(c->m, &k->symbol->attrs, i) != s) i++;
    return i >= 0 && i < kernel->n_args - OPT_STATE && hd_state_per(kernel, i) != PER_ELEMENT ? i : -1;
}

// A rank has the numbers of its parameters, which ir/optimizer.h counts, where it has their master weights.
static void check_lines(PlanCheck *c, const BucketParts *k, const Symbol *s, int state) {
    const Symbol *master = k->part[PART_MASTER];
    const Axes split = hd_axes(&s->attrs, A_SPLIT), of = master ? hd_axes(&master->attrs, A_SPLIT) : 0;
    const int64_t each = hd_lines(c->m, k->symbol, c->a).numbers[state], n = split ? each : each * k->shards;
    if (split != of)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s, a state of bucket @%s, is split over %s, and the master weights "
                      "over %s", s->name, k->symbol->name, hd_axes_text(c->a, split), hd_axes_text(c->a, of));
    else if (s->type->dtype != TY_F32 || hd_type_count(s->type) != n)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s : %s, a state of bucket @%s, has not the %lld numbers of f32 of "
                      "the lines of its parameters", s->name, hd_type_text(c->m->cx, s->type), k->symbol->name, ll(n));
}

static void check_buffer(PlanCheck *c, const Symbol *s) {
    const BucketParts *k = hd_plan_bucket(c, s);
    const char *class = hd_word(&s->attrs, A_CLASS, "");
    int part = c->part_of[s->id];
    const int state = line_state(c, k, s);
    if (state >= 0) {
        check_lines(c, k, s, state);
        return;
    }
    int64_t parts = hd_plan_parts(c, k, s), n = hd_type_count(s->type), bytes = hd_type_bytes(s->type);
    bool transient = hd_has(&s->attrs, A_TRANSIENT), kept = part != N_PARTS;
    bool gradient = transient && !kept && strcmp(class, "gradients") == 0;
    bool whole = part == PART_NEXT || gradient || (transient && strcmp(class, "weights") == 0);
    bool wide = kept ? part != PART_COMPUTE && part != PART_NEXT && part != PART_MASTER : gradient;
    check_quantized(c, s, k, transient && !kept && strcmp(class, "weights") == 0);
    if (!kept && !transient)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s persists, and its bucket @%s does not name it", s->name,
                      k->symbol->name);
    if (k->shards * k->copies == 1 && !hd_has(&s->attrs, A_QUANTIZED) && n != k->size) {
        hd_plan_wrong(c, NULL, s->span, "buffer @%s has %lld elements, its bucket @%s %lld", s->name, ll(n),
                      k->symbol->name, ll(k->size));
        return;
    }
    const char *axes = hd_axes_text(c->a, hd_axes(&s->attrs, A_SPLIT));
    if (!parts)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s has %lld elements, not those of bucket @%s, %lld, split over %s",
                      s->name, ll(n), k->symbol->name, ll(k->size), axes);
    else if (parts > (whole ? 1 : kept && part != PART_LEVEL ? k->shards : k->shards * k->copies))
        hd_plan_wrong(c, NULL, s->span, "buffer @%s is split over %s, and every rank needs %s of bucket @%s", s->name,
                      axes, whole ? "all" : "its shard", k->symbol->name);
    else if (parts > 1 && bytes % SHARD_ALIGN)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s holds %lld bytes of bucket @%s on each rank, not a multiple of %d",
                      s->name, ll(bytes), k->symbol->name, SHARD_ALIGN);
    const char *moments = part == PART_STATE ? hd_word(hd_settings(c->m, "train"), A_MOMENTS, NULL) : NULL;
    if (moments && strcmp(moments, hd_dtype_text(s->type->dtype)) != 0)
        hd_plan_wrong(c, NULL, s->span, "buffer @%s, a state of bucket @%s, is %s, and config @train says moments = %s",
                      s->name, k->symbol->name, hd_dtype_text(s->type->dtype), moments);
    const bool half = gradient && s->type->dtype == TY_BF16 &&
                      !strcmp(hd_word(hd_settings(c->m, "train"), A_GRAD, ""), "bf16");
    if (wide && !moments && !half && s->type->dtype != TY_F32)
        hd_plan_wrong(c, NULL, s->span,
                      "buffer @%s, %s of bucket @%s, is %s: what adds up over micro-batches and steps is f32", s->name,
                      kept ? hd_plan_part_text(part) : "gradient", k->symbol->name, hd_dtype_text(s->type->dtype));
    if (part == PART_NEXT) check_next(c, s, k);
    if (part == PART_COMPUTE) check_compute(c, s, k);
}

void hd_check_layout(PlanCheck *c) {
    find_mesh(c);
    find_buckets(c);
    for (int i = 0; i < c->n_buckets; i++) {
        check_bucket(c, &c->buckets[i]);
        check_items(c, &c->buckets[i]);
        check_sizes(c, &c->buckets[i]);
    }
    for (const Symbol *s = c->m->symbols; s; s = s->next)
        if (s->kind == SYM_BUFFER && s->type && c->bucket_of[s->id]) check_buffer(c, s);
}

const Symbol *hd_plan_param_at(const BucketParts *k, int64_t lo, int64_t hi) {
    const Symbol **p = k->items.at;
    int i; // the first that ends after lo
    HD_FIRST(i, 0, k->items.n, hd_int(&p[i]->attrs, A_OFFSET, 0) + hd_type_count(p[i]->type) > lo);
    return i < k->items.n && hd_int(&p[i]->attrs, A_OFFSET, 0) < hi ? p[i] : NULL;
}
