// The train and schedule blocks. Three layers are applied in order: the prelude's defaults, the file's blocks, the
// --set options; a later layer replaces settings of an earlier one. settings.def lists every setting.
#include "frontend/settings/settings.h"
#include "ir/mesh.h"
#include "ir/optimizer.h"

static const SettingRow rows[] = {
#define SETTING(path, kind, attr, low, high, choices) {path, KIND_##kind, A_##attr, low, high, choices},
#include "frontend/settings/settings.def"
#undef SETTING
};

static int row_of(AttrId a) {
    int k = 0;
    while (k < N_ROWS && rows[k].attr != a) k++;
    return k;
}

const SettingRow *hd_setting_row(AttrId a) { return &rows[row_of(a)]; }

Setting *hd_setting(Settings *set, AttrId a) { return &set->at[row_of(a)]; }

// --- finding the row of a name

static bool starts_with(const char *s, const char *block) {
    size_t n = strlen(block);
    return !strncmp(s, block, n) && s[n] == '.';
}

// `train.lr` means `train.optimizer.lr`: the whole path, or the block and an end that only one row has.
static int find_row(const char *path) {
    int found = -1, hits = 0;
    const char *dot = strchr(path, '.');
    for (int k = 0; k < N_ROWS; k++) {
        if (!strcmp(rows[k].path, path)) return k;
        if (!dot || strncmp(rows[k].path, path, (size_t)(dot - path) + 1)) continue;
        size_t have = strlen(rows[k].path), tail = strlen(dot);
        if (have <= tail || strcmp(rows[k].path + have - tail, dot)) continue;
        found = k;
        hits++;
    }
    return hits == 1 ? found : -1;
}

bool hd_setting_names(const char *path, size_t n) {
    for (int k = 0; k < N_ROWS; k++)
        if (rows[k].kind == KIND_NAMED && strlen(rows[k].path) == n && !strncmp(rows[k].path, path, n)) return true;
    return false;
}

// the path of the one setting that ends so: `train.batch` for `batch`; NULL: none, or several
const char *hd_setting_called(const char *end) {
    const char *found = NULL;
    for (int k = 0; k < N_ROWS; k++) {
        const char *dot = strrchr(rows[k].path, '.');
        if (!dot || strcmp(dot + 1, end) != 0) continue;
        if (found) return NULL;
        found = rows[k].path;
    }
    return found;
}

// `path`, or the innermost group around it, that has settings: schedule.mesh of schedule.mesh.data; "": none has
static const char *group_of(Front *f, const char *path) {
    char *group = hd_sprintf(f->arena, "%s", path), *dot;
    for (;;) {
        for (int k = 0; k < N_ROWS; k++)
            if (starts_with(rows[k].path, group)) return group;
        if (!(dot = strrchr(group, '.'))) return "";
        *dot = 0;
    }
}

static void unknown_setting(Front *f, Span s, const char *path) {
    Names names = {0};
    const char *group = group_of(f, path);
    for (int k = 0; k < N_ROWS; k++)
        if (!*group || starts_with(rows[k].path, group)) hd_push(f->arena, &names, rows[k].path);
    int elsewhere = find_row(path); // right name, wrong group
    const char *known = hd_suggest_setting(f, path),
               *hint = known          ? known
                       : !strcmp(group, path) ? "; it is a group of settings"
                       : elsewhere >= 0 ? hd_sprintf(f->arena, "; did you mean '%s'?", rows[elsewhere].path)
                                        : hd_suggest(f, path, &names);
    hd_front_error(f, s, "no setting '%s'%s (there are: %s)", path, hint, hd_list_names(f, &names));
}

// --- the blocks

static bool apply(Front *f, Settings *set, int k, const Node *item, int layer) {
    Setting *s = &set->at[k];
    bool again = s->layer == layer, listed = rows[k].kind == KIND_PATHS || rows[k].kind == KIND_NAMED;
    if (again && !listed && layer == 2) {
        hd_front_error(f, item->span, "%s is set twice", rows[k].path);
        hd_note(f->cx, s->span, "first here");
        return false;
    }
    s->layer = layer;
    s->span =
        item->a && item->a->n ? (Span){item->a->kids[0]->span.lo, item->a->kids[item->a->n - 1]->span.hi} : item->span;
    return hd_setting_value(f, set, &rows[k], s, item->a, item->span, layer, again && listed);
}

// `precision { compute = bf16; }`, `fsdp zero3 { ... }`: the name of a group is part of the path of its settings.
static bool read_items(Front *f, Settings *set, const char *prefix, const Node *block, int layer) {
    bool ok = true;
    for (int k = 0; k < block->n && !f->stop; k++) {
        const Node *item = block->kids[k];
        const char *path = hd_sprintf(f->arena, "%s.%s", prefix, item->name);
        if (!strcmp(path, "train.optimizer.default")) path = prefix; // optimizer { default adamw { ... } }
        if (!strcmp(path, "train.optimizer.group")) {
            hd_push(f->arena, &f->groups, item);
            continue;
        }
        if (item->b) {
            ok = hd_front_error(f, item->b->span, "'%s' is one name too many: only a group of the optimizer has one "
                                                  "more, that of its own optimizer", item->b->name);
            continue;
        }
        bool group = false;
        int row = -1;
        for (int j = 0; j < N_ROWS; j++) {
            if (!strcmp(rows[j].path, path)) row = j;
            group |= starts_with(rows[j].path, path);
        }
        if (row < 0 && !(group && !item->a)) {
            unknown_setting(f, item->span, path);
            ok = false;
            continue;
        }
        bool inside = false; // its value
        for (int j = 0; !item->a && j < item->n; j++) inside |= !strcmp(item->kids[j]->name, "default");
        if (row >= 0 && !inside) ok &= apply(f, set, row, item, layer);
        if (item->n || group) ok &= read_items(f, set, path, item, layer);
        else if (row < 0) ok = false;
    }
    return ok;
}

static bool read_file(Front *f, Settings *set, const Node *file, int layer) {
    bool ok = true;
    for (int k = 0; k < file->n; k++) {
        const Node *n = file->kids[k];
        if (n->kind == N_TRAIN) ok &= read_items(f, set, "train", n, layer);
        if (n->kind == N_SCHEDULE) ok &= read_items(f, set, "schedule", n, layer);
    }
    return ok;
}

// --- checks of the whole

// Ranks send gradients in the type that gradients have, and those are results of products.
static bool gradients_fit(Front *f, const Settings *set, const Mesh *mesh) {
    const Setting *grad = &set->at[row_of(A_GRAD)], *sent = &set->at[row_of(A_REDUCE)];
    const char *compute = set->at[row_of(A_COMPUTE)].word;
    if (strcmp(grad->word, sent->word) != 0)
        return hd_front_error(f, sent->layer > grad->layer ? sent->span : grad->span,
                              "train.precision.grad = %s and reduce = %s: ranks send gradients in the type that they "
                              "have; set both to bf16, or both to f32", grad->word, sent->word);
    if (!strcmp(grad->word, "f32")) return true;
    if (strcmp(compute, "bf16") != 0)
        return hd_front_error(f, grad->span, "train.precision.grad = bf16 needs compute = bf16, not %s", compute);
    if (hd_mesh_ranks(mesh, HD_OWN_AXES) == 1) return true;
    return hd_front_error(f, grad->span, "train.precision.grad = bf16 is not ready for a mesh with tensor or expert "
                          "above 1: set grad and reduce to f32");
}

static bool master_fits(Front *f, const Settings *set) {
    const Setting *master = &set->at[row_of(A_MASTER)];
    const char *compute = set->at[row_of(A_COMPUTE)].word, *moments = set->at[row_of(A_MOMENTS)].word;
    if (!strcmp(master->word, "f32")) return true;
    if (strcmp(compute, "bf16") != 0)
        return hd_front_error(f, master->span, "train.precision.master = %s needs compute = bf16, not %s", master->word,
                              compute);
    return strcmp(master->word, "kahan") || !strcmp(moments, "bf16") ||
           hd_front_error(f, master->span,
                          "train.precision.master = kahan keeps what the rounding of a weight loses in the type of the "
                          "moments, and in f32 it takes the bytes of master = f32: set train.precision.moments = bf16, "
                          "or master = f32");
}

static Mesh mesh_of(const Settings *set) { // the rows of the axes are one after another, in their order
    Mesh mesh;
    for (int a = 0; a < N_AXES; a++) mesh.size[a] = set->at[row_of(A_MESH) + a].v.i;
    return mesh;
}

static bool check_mesh(Front *f, const Settings *set) {
    const Setting *axes = &set->at[row_of(A_MESH)], *last = axes; // last: given
    Mesh mesh = mesh_of(set);
    double ranks = 1;
    for (int a = 0; a < N_AXES; a++) {
        ranks *= (double)mesh.size[a];
        if (axes[a].layer > last->layer || axes[a].span.lo > last->span.lo) last = &axes[a];
    }
    if (ranks > HD_MAX_RANKS)
        return hd_front_error(f, last->span, "a mesh of %s is %.0f ranks; at most %d can run",
                              hd_mesh_text(f->arena, &mesh, false), ranks, HD_MAX_RANKS);
    const Setting *host = &set->at[row_of(A_HOST)];
    const char *wrong = host->v.i ? hd_host_wrong(f->arena, &mesh, host->v.i) : NULL; // 0: auto
    return !wrong || hd_front_error(f, host->span, "schedule.mesh.%s", wrong);
}

Settings *hd_settings_read(Front *f, Node *const *sets, int n_sets) {
    Settings *set = HD_NEW(f->arena, Settings);
    if (!read_file(f, set, f->prelude, 1)) HD_BUG("the defaults in frontend/builtins/builtin_modules.c are wrong");
    for (int k = 0; k < N_ROWS; k++)
        if (!set->at[k].layer) HD_BUG("%s has no default in frontend/builtins/builtin_modules.c", rows[k].path);
    memcpy(set->defaults, set->at, sizeof set->at);
    bool ok = read_file(f, set, f->user, 2);
    for (int k = 0; k < n_sets; k++) {
        if (!strchr(sets[k]->name, '.')) continue; // an argument of the model
        int row = find_row(sets[k]->name);
        if (row < 0) unknown_setting(f, sets[k]->span, sets[k]->name);
        ok &= row >= 0 && apply(f, set, row, sets[k], 3 + k);
    }
    if (!ok) return NULL;
    ok &= check_mesh(f, set);
    const Mesh mesh = mesh_of(set);
    ok = ok && gradients_fit(f, set, &mesh) && master_fits(f, set);
    return hd_rate_check(f, set) && ok ? set : NULL;
}

// --- results

const char *hd_settings_word(const Front *f, AttrId setting) { return f->settings->at[row_of(setting)].word; }

double hd_settings_number(const Front *f, const char *name) {
    if (!strncmp(name, "beta", 4)) return f->settings->at[row_of(A_BETAS)].pair[name[4] - '1'];
    for (int k = 0; k < N_ROWS; k++)
        if (starts_with(rows[k].path, "train.optimizer") && !strcmp(rows[k].path + strlen("train.optimizer."), name))
            return hd_val_number(f->settings->at[k].v);
    HD_BUG("an optimizer asks for train.optimizer.%s, which is no setting", name);
}

bool hd_settings_above(const Front *f, AttrId setting) { return hd_val_number(f->settings->at[row_of(setting)].v) > 0; }

int64_t hd_settings_batch(const Front *f) { return f->settings->at[row_of(A_BATCH)].v.i; }
const Paths *hd_settings_units(const Front *f) { return &f->settings->at[row_of(A_UNITS)].paths; }
const Paths *hd_settings_paths(const Front *f, AttrId list) { return &f->settings->at[row_of(list)].paths; }

// The path of a setting that the file or a --set gives another value than its default; NULL: none does. The default of
// lists that are asked for is none.
const char *hd_settings_given(const Front *f, AttrId setting, Span *at) {
    const int k = row_of(setting);
    const Setting *s = &f->settings->at[k], *given = &f->settings->defaults[k];
    const bool word = rows[k].kind == KIND_WORD, list = rows[k].kind == KIND_PATHS || rows[k].kind == KIND_NAMED;
    const bool same = list   ? !s->paths.n
                      : word ? !strcmp(s->word, given->word)
                             : hd_val_number(s->v) == hd_val_number(given->v);
    *at = s->span;
    return s->layer > 1 && !same ? rows[k].path : NULL;
}

static void emit_paths(Front *f, Attrs *attrs, const SettingRow *row, const Paths *paths) {
    NameIndex names = {0};
    if (row->attr != A_UNITS) hd_paths_places(f, row->attr, &names);
    else
        for (int k = 0; k < paths->n; k++) hd_name_add(f->arena, &names, hd_path_text(f, paths->at[k]));
    const AttrId list = row->attr == A_GRAPH ? A_CAPTURE : row->attr; // `graph` itself is a word
    if (names.list.n) hd_set_words(f->cx, attrs, list, names.list.n, names.list.at);
    if (list != A_RECOMPUTE) return;
    NameIndex borders = {0};
    hd_paths_borders(f, &borders);
    if (borders.list.n) hd_set_words(f->cx, attrs, A_BORDERS, borders.list.n, borders.list.at);
}

// A setting of some optimizers is left out where the one at hand does not take it, and may not be given then.
static bool takes(const Front *f, const SettingRow *row) {
    static const AttrId some[] = {A_BETAS, A_EPS, A_MOMENTUM, A_NESTEROV};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        if (row->attr == some[i])
            return hd_optimizer_takes(f, row->attr == A_BETAS ? "beta1" : strrchr(row->path, '.') + 1);
    const bool zero = row->attr == A_EMA || row->attr == A_SKIP_LOSS_Z || row->attr == A_SKIP_NORM_Z; // is none
    return !zero || hd_settings_above(f, row->attr);
}

// A state that keeps the share b of itself each step and is rounded to bf16, by at most 2^-8 of itself each time, is
// off by at most 2^-8 / (1 - b) of its recent size: a tenth.
static bool moments_hold(Front *f) {
    static const double most = 0.96;
    const Settings *set = f->settings;
    const Setting *moments = &set->at[row_of(A_MOMENTS)], *betas = &set->at[row_of(A_BETAS)];
    if (!strcmp(moments->word, "bf16") && hd_settings_number(f, "ema") > 0)
        return hd_front_error(f, set->at[row_of(A_EMA)].span, "train.optimizer.ema keeps an average of the weights in "
                              "f32 beside the moments, which are bf16: choose moments = f32, or ema = 0");
    const bool pair = takes(f, &rows[row_of(A_BETAS)]);
    double kept = pair ? betas->pair[0] : hd_val_number(set->at[row_of(A_MOMENTUM)].v);
    if (pair && betas->pair[1] > kept) kept = betas->pair[1];
    if (strcmp(moments->word, "bf16") || kept <= most) return true;
    return hd_front_error(f, moments->span,
                          "train.precision.moments = bf16 rounds a state that keeps %g of itself each step, so that "
                          "it may be wrong by more than a tenth: choose train.optimizer.%s of at most %g, or moments = "
                          "f32", kept, pair ? "betas" : "momentum", most);
}

bool hd_settings_optimizer(Front *f) {
    const Settings *set = f->settings;
    const Setting *of = &set->at[row_of(A_OPTIMIZER)];
    bool ok = true;
    for (int k = 0; k < N_ROWS; k++) {
        const Setting *s = &set->at[k], *given = &set->defaults[k];
        const bool pair = rows[k].kind == KIND_PAIR;
        if (s->layer < 2 || takes(f, &rows[k])) continue;
        if (pair ? s->pair[0] == given->pair[0] && s->pair[1] == given->pair[1]
                 : hd_val_number(s->v) == hd_val_number(given->v)) continue;
        ok = hd_front_error(f, s->span, "%s is no setting of optimizer %s", rows[k].path, of->word);
        if (of->layer > 2 && s->layer == 2)
            hd_note(f->cx, of->span, "chosen here, while the file gives a value that would mean nothing; its default, "
                                     "by another --set, is accepted");
    }
    return ok && moments_hold(f);
}

void hd_settings_emit(Front *f) {
    Attrs *train = &hd_config(f->module, "train")->attrs, *schedule = &hd_config(f->module, "schedule")->attrs;
    Mesh mesh = mesh_of(f->settings);
    hd_set_mesh(f->cx, schedule, &mesh);
    hd_paths_check(f);
    hd_layers_emit(f, schedule);
    for (int k = 0; k < N_ROWS; k++) {
        const SettingRow *row = &rows[k];
        const Setting *s = &f->settings->at[k];
        if (!takes(f, row) || hd_rate_emit(f, f->settings, row, train)) continue;
        Attrs *attrs = starts_with(row->path, "train") ? train : schedule;
        switch (row->kind) {
        case KIND_INT:
        case KIND_POWER:
            if (row->attr == A_MESH || (row->choices[0] && !s->v.i)) break; // a word: the attribute is absent
            hd_set_int(f->cx, attrs, row->attr, s->v.i);
            break;
        case KIND_FLOAT: hd_set_float(f->cx, attrs, row->attr, hd_val_number(s->v)); break;
        case KIND_PAIR: hd_set_floats(f->cx, attrs, row->attr, 2, s->pair); break;
        case KIND_NAMED: break; // frozen.c
        case KIND_PATHS:
            emit_paths(f, attrs, row, &s->paths);
            if (row->attr == A_OFFLOAD && !s->paths.n && s->none) hd_set_flag(f->cx, attrs, A_NO_OFFLOAD);
            break;
        default:
            if (row->low != 0 && !strncmp(row->choices, s->word, strcspn(row->choices, " "))) break;
            hd_set_word(f->cx, attrs, row->attr, s->word);
            if (s->paths.n) emit_paths(f, attrs, row, &s->paths);
        }
    }
    hd_effects_warn(f, train, schedule);
}
