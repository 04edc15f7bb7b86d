// "did you mean": the nearest name by edit distance (insert, delete, replace, swap neighbours: optimal string
// alignment). At most about a third of the word may differ. Words that people know from other languages have a
// row, where a value or a function may stand.
#include "frontend/model/sema.h"

enum { LONGEST = 64 };

static int min3(int a, int b, int c) {
    int m = a < b ? a : b;
    return m < c ? m : c;
}

static int distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST) return LONGEST;
    int row[3][LONGEST + 1];
    int *before = row[0], *last = row[1], *now = row[2];
    for (int j = 0; j <= m; j++) last[j] = j;
    for (int i = 1; i <= n; i++) {
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < now[j]) now[j] = before[j - 2] + 1;
        }
        int *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[m];
}

static const struct { const char *word, *hint; } known_words[] = {
    {"True", "write 1"},  {"False", "write 0"},       {"true", "write 1"},
    {"false", "write 0"}, {"swish", "it is called 'silu'"}, {"topk", "there is no such function"},
    {"relu2", "write square(relu(x))"},
};

// the text after the last dot decides how much may differ: the groups of a setting are mostly right
static int most_edits(const char *wrong) {
    const char *dot = strrchr(wrong, '.');
    const size_t len = strlen(dot ? dot + 1 : wrong);
    return len < 6 ? 1 : len < 9 ? 2 : 3;
}

const char *hd_suggest(Front *f, const char *wrong, const Names *names) {
    const char *best = NULL;
    int nearest = most_edits(wrong) + 1;
    for (int i = 0; i < names->n; i++) {
        int d = distance(wrong, names->at[i]);
        if (d < nearest) {
            nearest = d;
            best = names->at[i];
        }
    }
    return best ? hd_sprintf(f->arena, "; did you mean '%s'?", best) : "";
}

const char *hd_suggest_value(Front *f, const char *wrong, const Names *names) {
    for (size_t k = 0; k < sizeof known_words / sizeof *known_words; k++)
        if (!strcmp(wrong, known_words[k].word)) return hd_sprintf(f->arena, "; %s", known_words[k].hint);
    return hd_suggest(f, wrong, names);
}

const char *hd_list_names(Front *f, const Names *names) {
    enum { MOST = 100 };
    Out o = hd_out(f->arena);
    for (int i = 0; i < names->n && i < MOST; i++) hd_printf(&o, "%s%s", i ? ", " : "", names->at[i]);
    if (names->n > MOST) hd_printf(&o, " and %d more", names->n - MOST);
    return names->n ? o.text : "nothing";
}
