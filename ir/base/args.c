// Reads a command line by its table (args.h).
#include "ir/base/args.h"
#include "version.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hd_args_bad(const Tool *t, const char *what, const char *arg) {
    hd_say(stderr, "error: %s '%s'; %s --help lists the options\n", what, arg, t->name);
    return 2;
}

static bool read_size(const char *text, int64_t *bytes) {
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},     {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
                 {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    char *end;
    double v = strtod(text, &end);
    for (size_t k = 0; end != text && k < sizeof units / sizeof *units; k++) {
        double total = v * units[k].factor;
        if (strcmp(end, units[k].unit) || !(total >= 1 && total < 0x1p60)) continue;
        *bytes = (int64_t)total;
        return true;
    }
    return false;
}

static bool read_count(const char *text, int64_t *n) {
    char *end;
    errno = 0;
    *n = strtoll(text, &end, 10);
    return end != text && !*end && errno == 0 && *n > 0;
}

static bool read_word(const char *text, const char *words, int *which) {
    const size_t n = strlen(text);
    for (*which = 0;; ++*which, words++) {
        const size_t length = strcspn(words, "|");
        if (n == length && !strncmp(text, words, n)) return true;
        if (!*(words += length)) return false;
    }
}

const char *hd_args_word(Arena *a, const ArgRow *r, int word) {
    const char *s = r->value;
    while (word-- > 0) s += strcspn(s, "|") + 1;
    return hd_strndup(a, s, strcspn(s, "|"));
}

static const char *or_list(Arena *a, const char *words) { // a|b|c -> a, b or c
    Out o = hd_out(a);
    for (const char *last = strrchr(words, '|'); *words; words++)
        if (*words != '|')
            hd_putn(&o, words, 1);
        else
            hd_puts(&o, words == last ? " or " : ", ");
    return o.text;
}

// Stores an option's value in its field; NULL where there is none.
static int keep(const Tool *t, Arena *a, const ArgRow *r, const char *value, void *field) {
    const bool on = r->kind == ARG_ON;
    int64_t n = 0;
    int word = 0;
    switch (r->kind) {
    case ARG_LIST:
        hd_push(a, (ArgList *)field, value);
        break;
    case ARG_COUNT:
        if (!read_count(value, &n))
            return hd_args_bad(t, hd_sprintf(a, "%s takes a whole number of at least 1, not", r->name), value);
        memcpy(field, &n, sizeof n);
        break;
    case ARG_MAYBE_SIZE:
    case ARG_SIZE:
        if (!value) n = -1;
        else if (!read_size(value, &n))
            return hd_args_bad(t, hd_sprintf(a, "%s takes a size such as %s, not", r->name,
                                             r->kind == ARG_SIZE ? "80GiB" : "4KiB"), value);
        if (value && r->kind == ARG_SIZE && n < 1000)
            return hd_args_bad(t, hd_sprintf(a, "%s takes a size such as 80GiB; so many bytes are nothing:", r->name),
                               value);
        memcpy(field, &n, sizeof n);
        break;
    case ARG_WORD:
    case ARG_COMPLETION:
        if (!read_word(value, r->value, &word))
            return hd_args_bad(t, hd_sprintf(a, "%s takes %s, not", r->name, or_list(a, r->value)), value);
        if (r->kind == ARG_WORD) memcpy(field, &word, sizeof word);
        break;
    case ARG_TEXT:
    case ARG_ANY_TEXT:
    case ARG_FILE:
        memcpy(field, &value, sizeof value);
        break;
    case ARG_ON:
    case ARG_OFF:
        memcpy(field, &on, sizeof on);
        break;
    default:
        break;
    }
    return -1;
}

static int print(const Tool *t, Arena *a, const ArgRow *r, const char *value) {
    Out o = hd_out(a);
    if (r->kind == ARG_HELP)
        hd_args_help(t, &o);
    else if (r->kind == ARG_VERSION)
        hd_printf(&o, "%s (Heddle) %s\n", t->name, HEDDLE_VERSION);
    else if (r->kind == ARG_MAN)
        hd_args_man(t, &o);
    else
        hd_args_completion(t, value, &o);
    return hd_args_write(NULL, &o) ? 0 : 1;
}

// The row of --name, --name=value, -n or -n=value; *value is the text after '=', else NULL.
static const ArgRow *find(const Tool *t, const char *arg, size_t *base, const char **value) {
    const size_t n = strcspn(arg, "=");
    const ArgRow *r;
    *value = arg[n] ? arg + n + 1 : NULL;
    for (int i = 0; (r = hd_args_row(t, i, base)); i++)
        if (r->name[0] == '-' &&
            ((strlen(r->name) == n && !strncmp(r->name, arg, n)) || (n == 2 && arg[1] != '-' && arg[1] == r->letter)))
            return r;
    return NULL;
}

static int take(const Tool *t, Arena *a, int argc, char **argv, int *i, void *into) {
    const char *arg = argv[*i], *value;
    size_t base = 0;
    const ArgRow *r = find(t, arg, &base, &value);
    if (!r && t->of_others && strchr(arg, '=')) {
        hd_say(stderr, "error: no option is called '%s': %s; %s --help lists the options\n", arg, t->of_others,
               t->name);
        return 2;
    }
    if (!r) return hd_args_bad(t, "no option is called", arg);
    if (!r->value && value) {
        hd_say(stderr, "error: %s takes no value\n", r->name);
        return 2;
    }
    const bool may_lack = r->kind == ARG_MAYBE_SIZE && !value;
    if (r->value && !value && !may_lack) value = *i + 1 < argc ? argv[++*i] : NULL;
    if (r->value && !may_lack && (!value || (!*value && r->kind != ARG_ANY_TEXT))) {
        hd_say(stderr, "error: %s needs a value: %s%s%s\n", r->name, r->name, r->value[0] == '[' ? "" : "=", r->value);
        return 2;
    }
    const int status = keep(t, a, r, value, (char *)into + base + r->field);
    return status == -1 && r->kind >= ARG_HELP ? print(t, a, r, value) : status;
}

static int take_input(const Tool *t, const char *arg, void *into) {
    size_t base = 0;
    const ArgRow *r;
    for (int i = 0; (r = hd_args_row(t, i, &base)); i++) {
        const char **field = (const char **)(void *)((char *)into + base + r->field);
        if (r->kind != ARG_INPUT) continue;
        if (*field) return hd_args_bad(t, "more than one input file:", arg);
        *field = arg;
        return -1;
    }
    return hd_args_bad(t, "no option is called", arg);
}

static const char *text_at(const ArgRow *r, const void *into, size_t base) {
    return *(const char *const *)(const void *)((const char *)into + base + r->field);
}

static int keep_inputs(const Tool *t, const void *into) {
    size_t base = 0;
    const char *output = NULL, *input;
    const ArgRow *r;
    for (int i = 0; (r = hd_args_row(t, i, &base)); i++)
        if (r->letter == 'o') output = text_at(r, into, base);
    for (int i = 0; output && (r = hd_args_row(t, i, &base)); i++)
        if ((r->kind == ARG_INPUT || r->kind == ARG_FILE) && (input = text_at(r, into, base)) &&
            hd_same_file(input, output))
            return hd_args_bad(t, "the output would overwrite the input", input);
    return -1;
}

// Where 0, 1 or 2 is closed, the next file that is opened would get its number, and messages would land in it. Reading
// a file that was closed stays an error, and so does writing to it.
static void reserve_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) return;
}

int hd_args_read(const Tool *t, Arena *a, int argc, char **argv, void *into) {
    int status = -1;
    reserve_standard_files();
    for (int i = 1; i < argc && status == -1; i++)
        status = argv[i][0] == '-' && argv[i][1] ? take(t, a, argc, argv, &i, into) : take_input(t, argv[i], into);
    return status == -1 ? keep_inputs(t, into) : status;
}

// A model that is there may have been written by hand: nothing but itself replaces it.
static bool replaces_model(const char *path, const Out *text) {
    const size_t n = strlen(path);
    size_t len = 0;
    if (n < 4 || strcmp(path + n - 3, ".hd") != 0 || access(path, F_OK)) return false;
    Arena *a = hd_arena_new();
    const char *old = hd_read_file(a, path, &len);
    const bool other = old && len && (len != text->n || memcmp(old, text->text, len) != 0);
    hd_arena_free(a);
    return other;
}

bool hd_args_write(const char *path, const Out *text) {
    const bool to_file = path && strcmp(path, "-") != 0;
    int error = 0;
    if (to_file && replaces_model(path, text)) {
        hd_say(stderr, "error: cannot write '%s': it is there and holds another text; give another name with -o, or "
                       "remove it\n", path);
        return false;
    }
    if (to_file)
        error = hd_write_file(path, text->text, text->n);
    else if (fwrite(text->text, 1, text->n, stdout) != text->n || fflush(stdout))
        error = errno;
    if (error) hd_say(stderr, "error: cannot write '%s': %s\n", to_file ? path : "standard output", strerror(error));
    return !error;
}
