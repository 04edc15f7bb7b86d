// The man page of a compiled program, from the rows of its options.
#include "runtime/run/options.h"
#include "runtime/text.h"
#include "version.h"
#include <stdlib.h>
#include <string.h>

// Text for troff: a hyphen is a minus sign there, no line may begin with a dot or a quote, and the columns of --help
// mean nothing.
static void put_troff(FILE *f, const char *s) {
    char *text = malloc(2 * strlen(s) + 3), *at = text;
    if (!text) return;
    for (bool begins = true; *s; s++) {
        if (begins && *s == ' ') continue;
        if (begins && (*s == '.' || *s == '\'')) *at++ = '\\', *at++ = '&';
        if (*s == '-' || *s == '\\') *at++ = '\\';
        *at++ = (char)(*s == '\\' ? 'e' : *s);
        begins = *s == '\n';
    }
    *at = 0;
    hd_say_text(f, text);
    free(text);
}

static void put_option(FILE *f, const HdOptionRow *r) {
    const char *value = r->value ? r->value : "";
    hd_say_text(f, ".TP\n.B ");
    put_troff(f, "--");
    put_troff(f, r->name);
    hd_say_text(f, *value && *value != '[' ? "=" : "");
    put_troff(f, value);
    hd_say_text(f, "\n");
    put_troff(f, r->doc);
    hd_say_text(f, "\n");
}

void hd_man_page(FILE *f, const char *name) {
    hd_say(f, ".TH %s 1 \"\" \"Heddle %s\"\n.SH NAME\n", name, HEDDLE_VERSION);
    put_troff(f, name);
    hd_say_text(f, " \\- a training program that heddlec has built\n.SH SYNOPSIS\n.B ");
    put_troff(f, name);
    hd_say_text(f, "\n\\-\\-data=FILE \\-\\-steps=N [OPTION]...\n.SH OPTIONS\n");
    HdOptionRow r;
    for (int i = 0; (r = hd_options_row(i)).name; i++) put_option(f, &r);
    hd_say_text(f, ".SH SIGNALS\n");
    put_troff(f, hd_options_signals);
    hd_say_text(f, ".SH EXIT STATUS\n0: done. 1: an error. 2: bad usage. 128 + N: ended by signal N.\n"
                   ".SH ENVIRONMENT\n");
    put_troff(f, hd_options_environment);
    hd_say_text(f, ".SH SEE ALSO\n.BR heddlec (1)\n");
}
