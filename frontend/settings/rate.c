// The schedule of learning rates: train.optimizer.lr, which sets the rows of its numbers as well.
#include "frontend/settings/settings.h"

static const char RATES[] =
    "constant(x), linear(...), cosine(...), wsd(...), inverse_sqrt(...), points([step, rate], ...) or a number";

static const struct { const char *name; AttrId attr; } numbers[] = {
    {"peak", A_LR_PEAK},   {"warmup", A_LR_WARMUP}, {"total", A_LR_TOTAL},
    {"floor", A_LR_FLOOR}, {"decay", A_LR_DECAY},   {"shape", A_LR_SHAPE}};
enum { PEAK, WARMUP, TOTAL, FLOOR, DECAY, SHAPE, NUMBERS };

static const struct Schedule {
    const char *name;
    int n, takes[NUMBERS]; // its arguments, in order
    bool ends;             // it needs `total`
} schedules[] = {
    {"constant", 4, {PEAK, WARMUP, TOTAL, FLOOR}, false},
    {"linear", 4, {PEAK, WARMUP, TOTAL, FLOOR}, true},
    {"cosine", 4, {PEAK, WARMUP, TOTAL, FLOOR}, true},
    {"wsd", 6, {PEAK, WARMUP, TOTAL, FLOOR, DECAY, SHAPE}, true},
    {"inverse_sqrt", 3, {PEAK, WARMUP, FLOOR}, false},
};

static void set_default(Front *f, Settings *set, int i, int layer) {
    Setting *s = hd_setting(set, numbers[i].attr);
    s->layer = layer;
    if (i == SHAPE) s->word = hd_intern(f->cx, "linear");
    else s->v = i == WARMUP || i == TOTAL ? hd_val_int(0) : hd_val_float(i == DECAY ? 0.1 : 0);
}

static bool number_of(Front *f, const Node *n, double *x) {
    const Val v = hd_lower_expr(f, f->root, n);
    if (v.kind == VAL_BAD) return false;
    *x = hd_val_is_number(v) ? hd_val_number(v) : -1;
    return true;
}

// points([0, 0], [100, 1e-3], [1000, 1e-4]): the rate on a straight line from point to point.
static bool read_points(Front *f, Settings *set, Setting *rate, const Node *n, int layer) {
    Setting *peak = hd_setting(set, A_LR_PEAK);
    if (!n->n) return hd_front_error(f, n->span, "points needs points, such as points([0, 0], [100, 1e-3])");
    rate->n_points = n->n;
    rate->steps = HD_NEWN(f->arena, int64_t, n->n);
    rate->rates = HD_NEWN(f->arena, double, n->n);
    for (int i = 0; i < NUMBERS; i++) set_default(f, set, i, layer);
    peak->span = n->span;
    for (int i = 0; i < n->n; i++) {
        const Node *p = n->kids[i];
        double step, r;
        if (p->kind != N_LIST || p->n != 2)
            return hd_front_error(f, p->span, "a point of the learning rate is [step, rate], such as [100, 1e-3]");
        if (!number_of(f, p->kids[0], &step) || !number_of(f, p->kids[1], &r)) return false;
        if (step < 0 || step > 1e12 || step != (double)(int64_t)step)
            return hd_front_error(f, p->kids[0]->span, "the step of a point is an integer from 0 to 1000000000000");
        if (r < 0 || r > 1e6)
            return hd_front_error(f, p->kids[1]->span, "the rate of a point is a number from 0 to 1000000");
        rate->steps[i] = (int64_t)step;
        rate->rates[i] = r;
        if (i && rate->steps[i] <= rate->steps[i - 1])
            return hd_front_error(f, p->span, "the steps of points ascend, and %lld follows %lld",
                                  (long long)rate->steps[i], (long long)rate->steps[i - 1]);
        if (!i || r > hd_val_number(peak->v)) peak->v = hd_val_float(r);
    }
    return true;
}

// --set train.lr=3e-4 changes the peak of the file's schedule
static bool read_peak(Front *f, Settings *set, Setting *rate, const Node *n, int layer) {
    if (layer >= 3 && rate->n_points)
        return hd_front_error(f, n->span, "the learning rate is given by points, which have no peak to change; write "
                                          "points([step, rate], ...) or constant(x)");
    for (int i = 0; i < NUMBERS && layer < 3; i++) set_default(f, set, i, layer);
    if (layer < 3) rate->word = hd_intern(f->cx, "constant");
    return hd_setting_read(f, set, A_LR_PEAK, n, layer);
}

bool hd_rate_read(Front *f, Settings *set, const SettingRow *row, const Node *n, int layer) {
    Setting *rate = hd_setting(set, A_LR);
    const bool call = n->kind == N_CALL && n->a->kind == N_NAME && hd_in_words(n->a->name, row->choices);
    if (!call && (n->kind == N_CALL || n->kind == N_DOT ||
                  (n->kind == N_NAME && hd_in_words(n->name, row->choices))))
        return hd_setting_wrong(f, row, n, RATES);
    if (!call) return read_peak(f, set, rate, n, layer);
    rate->word = n->a->name;
    rate->n_points = 0;
    if (!strcmp(rate->word, "points")) return read_points(f, set, rate, n, layer);
    const struct Schedule *s = schedules;
    while (strcmp(s->name, rate->word) != 0) s++;
    Formal formals[NUMBERS];
    const Node *slots[NUMBERS] = {NULL};
    for (int i = 0; i < s->n; i++) formals[i] = (Formal){numbers[s->takes[i]].name, i > 0};
    if (!hd_bind(f, n->span, s->name, s->n, formals, n->n, n->kids, slots)) return false;
    if (s->ends && !slots[TOTAL])
        return hd_front_error(f, n->span, "%s needs argument 'total', the step at which it ends", s->name);
    for (int i = 0; i < NUMBERS; i++) set_default(f, set, i, layer);
    for (int i = 0; i < s->n; i++)
        if (slots[i] && !hd_setting_read(f, set, numbers[s->takes[i]].attr, slots[i], layer)) return false;
    return true;
}

static int64_t decay_steps(Settings *set) {
    const Val v = hd_setting(set, A_LR_DECAY)->v;
    return v.kind == VAL_INT ? v.i : (int64_t)(hd_val_number(v) * (double)hd_setting(set, A_LR_TOTAL)->v.i + 0.5);
}

bool hd_rate_check(Front *f, Settings *set) {
    const Setting *rate = hd_setting(set, A_LR), *total = hd_setting(set, A_LR_TOTAL),
                  *warmup = hd_setting(set, A_LR_WARMUP), *decay = hd_setting(set, A_LR_DECAY),
                  *peak = hd_setting(set, A_LR_PEAK), *floor_ = hd_setting(set, A_LR_FLOOR);
    const bool ends = strcmp(rate->word, "inverse_sqrt") != 0;
    if (!strcmp(rate->word, "constant")) return true;
    if (rate->n_points)
        return peak->layer == rate->layer ||
               hd_front_error(f, peak->span, "the learning rate is given by points, which have no peak to change");
    if (ends && (total->v.i < warmup->v.i || total->v.i < 1))
        return hd_front_error(f, total->span,
                              "the learning rate ends at step %lld, before its warmup of %lld steps does",
                              (long long)total->v.i, (long long)warmup->v.i);
    if (!strcmp(rate->word, "wsd") && warmup->v.i + decay_steps(set) > total->v.i)
        return hd_front_error(f, decay->span.hi ? decay->span : total->span,
                              "the learning rate ends at step %lld, too early for its warmup of %lld steps and its "
                              "decay of %lld steps",
                              (long long)total->v.i, (long long)warmup->v.i, (long long)decay_steps(set));
    if (hd_val_number(floor_->v) <= hd_val_number(peak->v)) return true;
    return hd_front_error(f, floor_->span.lo ? floor_->span : peak->span,
                          "the learning rate's floor %s is above its peak %s",
                          hd_setting_number_text(f, hd_val_number(floor_->v)),
                          hd_setting_number_text(f, hd_val_number(peak->v)));
}

// Settings that only some schedules have are left out of the others.
bool hd_rate_emit(Front *f, Settings *set, const SettingRow *row, Attrs *train) {
    const Setting *rate = hd_setting(set, A_LR);
    const bool wsd = !strcmp(rate->word, "wsd");
    if (row->attr == A_LR_DECAY && wsd) hd_set_int(f->cx, train, A_LR_DECAY, decay_steps(set));
    if (row->attr == A_LR && rate->n_points) {
        hd_set_ints(f->cx, train, A_LR_STEPS, rate->n_points, rate->steps);
        hd_set_floats(f->cx, train, A_LR_RATES, rate->n_points, rate->rates);
    }
    return row->attr == A_LR_DECAY || (row->attr == A_LR_SHAPE && !wsd);
}
