// "did you mean": the nearest name by edit distance (insert, delete, replace, swap neighbours: optimal string
// alignment).
#include "frontend/sema.h"

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

const char *hd_suggest(Front *f, const char *wrong, const Names *names) {
    const char *best = NULL;
    int len = (int)strlen(wrong), limit = len < 4 ? 1 : len < 8 ? 2 : 3, nearest = limit + 1;
    for (int i = 0; i < names->n; i++) {
        int d = distance(wrong, names->at[i]);
        if (d < nearest) {
            nearest = d;
            best = names->at[i];
        }
    }
    return best ? hd_sprintf(f->arena, "; did you mean '%s'?", best) : "";
}

const char *hd_list_names(Front *f, const Names *names) {
    enum { MOST = 100 };
    Out o = hd_out(f->arena);
    for (int i = 0; i < names->n && i < MOST; i++) hd_printf(&o, "%s%s", i ? ", " : "", names->at[i]);
    if (names->n > MOST) hd_printf(&o, " and %d more", names->n - MOST);
    return names->n ? o.text : "nothing";
}
