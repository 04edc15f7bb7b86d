// The pages made from a tool's table of options (args.h): help, a man page, completions for bash, zsh and fish.
#include "ir/base/args.h"
#include "version.h"
#include <string.h>

static const ArgRow common[] = {
    {"--help", NULL, 'h', ARG_HELP, 0, "print this, and stop"},
    {"--version", NULL, 0, ARG_VERSION, 0, "print the version, and stop"},
    {"--print-man", NULL, 0, ARG_MAN, 0, "print the man page, and stop"},
    {"--print-completion", "bash|zsh|fish", 0, ARG_COMPLETION, 0, "print completions for this shell, and stop"},
};
enum { N_COMMON = sizeof common / sizeof *common, COLUMN = 28 };

const ArgRow *hd_args_row(const Tool *t, int i, size_t *base) {
    for (int g = 0; g < t->n_groups; i -= t->groups[g++].n) {
        *base = t->groups[g].base;
        if (i < t->groups[g].n) return &t->groups[g].rows[i];
    }
    return i < N_COMMON ? &common[i] : NULL;
}

static const ArgRow *row(const Tool *t, int i) {
    size_t base;
    return hd_args_row(t, i, &base);
}

static bool is_option(const ArgRow *r) { return r->kind != ARG_INPUT && r->kind != ARG_ENVIRONMENT; }

// -o, --output=FILE; --guard[=SIZE]
static const char *spelling(Arena *a, const ArgRow *r) {
    const char *letter = r->letter ? hd_sprintf(a, "-%c, ", r->letter) : "";
    if (!r->value) return hd_sprintf(a, "%s%s", letter, r->name);
    const char *between = r->value[0] == '[' ? "" : strchr(r->value, '=') ? " " : "=";
    return hd_sprintf(a, "%s%s%s%s", letter, r->name, between, r->value);
}

static const char *input_name(const Tool *t) {
    const ArgRow *r;
    for (int i = 0; (r = row(t, i)); i++)
        if (r->kind == ARG_INPUT) return r->name;
    return "";
}

static void help_rows(const Tool *t, bool options, Out *o) {
    const ArgRow *r;
    for (int i = 0; (r = row(t, i)); i++) {
        if (is_option(r) != options || r->kind == ARG_INPUT) continue;
        const char *left = spelling(o->arena, r);
        if (strlen(left) > COLUMN)
            hd_printf(o, "  %s\n  %*s %s\n", left, COLUMN, "", r->doc);
        else
            hd_printf(o, "  %-*s %s\n", COLUMN, left, r->doc);
    }
}

static bool has_environment(const Tool *t) {
    const ArgRow *r;
    for (int i = 0; (r = row(t, i)); i++)
        if (r->kind == ARG_ENVIRONMENT) return true;
    return false;
}

void hd_args_help(const Tool *t, Out *o) {
    hd_printf(o, "usage: %s %s [OPTION]...\n%s\n\n", t->name, input_name(t), t->about);
    help_rows(t, true, o);
    if (!has_environment(t)) return;
    hd_puts(o, "Environment:\n");
    help_rows(t, false, o);
}

// Text for troff: a hyphen is a minus sign there, and no line may begin with a dot or a quote.
static void put_troff(Out *o, const char *s) {
    for (bool begins = true; *s; begins = *s++ == '\n') {
        if (begins && (*s == '.' || *s == '\'')) hd_puts(o, "\\&");
        if (*s == '-')
            hd_puts(o, "\\-");
        else if (*s == '\\')
            hd_puts(o, "\\e");
        else
            hd_putn(o, s, 1);
    }
}

static void man_rows(const Tool *t, bool options, Out *o) {
    const ArgRow *r;
    for (int i = 0; (r = row(t, i)); i++) {
        if (is_option(r) != options || r->kind == ARG_INPUT) continue;
        hd_puts(o, ".TP\n.B ");
        put_troff(o, spelling(o->arena, r));
        hd_puts(o, "\n");
        put_troff(o, r->doc);
        hd_puts(o, "\n");
    }
}

void hd_args_man(const Tool *t, Out *o) {
    hd_printf(o, ".TH %s 1 \"\" \"Heddle %s\"\n.SH NAME\n", t->name, HEDDLE_VERSION);
    put_troff(o, hd_sprintf(o->arena, "%s - %s", t->name, t->brief));
    hd_puts(o, "\n.SH SYNOPSIS\n.B ");
    put_troff(o, hd_sprintf(o->arena, "%s %s [OPTION]...", t->name, input_name(t)));
    hd_puts(o, "\n.SH DESCRIPTION\n");
    put_troff(o, t->about);
    hd_puts(o, "\n.SH OPTIONS\n");
    man_rows(t, true, o);
    hd_puts(o, ".SH EXIT STATUS\n0: done. 1: errors in the input. 2: bad usage.\n");
    if (!has_environment(t)) return;
    hd_puts(o, ".SH ENVIRONMENT\n");
    man_rows(t, false, o);
}

// --- completions

static const char *words(Arena *a, const ArgRow *r) { // of an option that takes one of some words: a b c; else NULL
    if (r->kind != ARG_WORD && r->kind != ARG_COMPLETION) return NULL;
    char *w = hd_strdup(a, r->value);
    for (char *s = w; (s = strchr(s, '|')); *s = ' ') {
    }
    return w;
}

static void bash(const Tool *t, Out *o) {
    const ArgRow *r;
    hd_printf(o,
              "_heddle_%s() {\n"
              "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
              "    [ \"$before\" = = ] && before=${COMP_WORDS[COMP_CWORD-2]}\n"
              "    [ \"$word\" = = ] && word=\n"
              "    case $before in\n",
              t->name);
    for (int i = 0; (r = row(t, i)); i++)
        if (words(o->arena, r))
            hd_printf(o, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", r->name,
                      words(o->arena, r));
    hd_puts(o, "    esac\n    [[ $word == -* ]] && COMPREPLY=($(compgen -W '");
    for (int i = 0; (r = row(t, i)); i++)
        if (is_option(r)) hd_printf(o, "%s ", r->name);
    hd_printf(o, "' -- \"$word\"))\n}\ncomplete -o default -F _heddle_%s %s\n", t->name, t->name);
}

static void put_doc(Out *o, const char *s) { // inside single quotes of a shell, and [ ] of zsh
    for (; *s; s++)
        if (!strchr("'[]:", *s)) hd_putn(o, s, 1);
}

static void zsh(const Tool *t, Out *o) {
    const ArgRow *r;
    hd_printf(o, "#compdef %s\n_arguments", t->name);
    for (int i = 0; (r = row(t, i)); i++) {
        if (!is_option(r)) continue;
        hd_printf(o, " \\\n    '%s%s%s[", r->kind == ARG_LIST ? "*" : "", r->name,
                  !r->value ? "" : r->kind == ARG_MAYBE_SIZE ? "=-" : "=");
        put_doc(o, r->doc);
        hd_puts(o, "]");
        if (words(o->arena, r))
            hd_printf(o, ":word:(%s)", words(o->arena, r));
        else if (r->value)
            hd_puts(o, r->kind == ARG_MAYBE_SIZE ? "::value:" : ":value:_files");
        hd_puts(o, "'");
    }
    hd_puts(o, " \\\n    '*:file:_files'\n");
}

static void fish(const Tool *t, Out *o) {
    const ArgRow *r;
    for (int i = 0; (r = row(t, i)); i++) {
        if (!is_option(r)) continue;
        hd_printf(o, "complete -c %s -l %s", t->name, r->name + 2);
        if (r->letter) hd_printf(o, " -s %c", r->letter);
        if (words(o->arena, r))
            hd_printf(o, " -x -a '%s'", words(o->arena, r));
        else if (r->value && r->kind != ARG_MAYBE_SIZE)
            hd_puts(o, " -r");
        hd_puts(o, " -d '");
        put_doc(o, r->doc);
        hd_puts(o, "'\n");
    }
}

void hd_args_completion(const Tool *t, const char *shell, Out *o) {
    (!strcmp(shell, "bash") ? bash : !strcmp(shell, "zsh") ? zsh : fish)(t, o);
}
