// Declarations that the files of the blocks `train` and `schedule` share: the value of each row of settings.def.
#ifndef FRONTEND_SETTINGS_SETTINGS_H
#define FRONTEND_SETTINGS_SETTINGS_H
#include "frontend/model/sema.h"

typedef enum {
    KIND_INT, KIND_POWER, KIND_FLOAT, KIND_SHARE, KIND_WORD, KIND_PATHS, KIND_NAMED, KIND_PAIR, KIND_RATE
} SettingKind;
typedef struct {
    const char *path;
    SettingKind kind;
    AttrId attr;
    double low, high;
    const char *choices;
} SettingRow;

enum {
    N_ROWS = 0
#define SETTING(path, kind, attr, low, high, choices) +1
#include "frontend/settings/settings.def"
#undef SETTING
};

typedef struct { // the value of one row
    int layer; // the layer that gave it: 1 defaults, 2 the file, 3 and up a --set
    Span span;
    Val v;            // INT, POWER, FLOAT, SHARE
    double pair[2];   // PAIR
    const char *word; // WORD, RATE
    Paths paths;      // PATHS, NAMED
    bool none;        // PATHS: the word none was written
    int n_points;     // RATE
    int64_t *steps;
    double *rates;
} Setting;

typedef struct Settings { Setting at[N_ROWS], defaults[N_ROWS]; } Settings;

const SettingRow *hd_setting_row(AttrId a);
Setting *hd_setting(Settings *set, AttrId a);

// --- values.c
// The values of one row, as written. `more`: added to those of a list.
bool hd_setting_value(Front *f, Settings *set, const SettingRow *row, Setting *s, const Node *values, Span at,
                      int layer, bool more);
bool hd_setting_read(Front *f, Settings *set, AttrId attr, const Node *n, int layer); // one number or word
bool hd_setting_wrong(Front *f, const SettingRow *row, const Node *n, const char *needed); // an error; false
const char *hd_setting_number_text(Front *f, double v);

// --- rate.c: the row RATE and those that it sets
bool hd_rate_read(Front *f, Settings *set, const SettingRow *row, const Node *n, int layer);
bool hd_rate_check(Front *f, Settings *set);
bool hd_rate_emit(Front *f, Settings *set, const SettingRow *row, Attrs *train); // false: as any row
#endif
