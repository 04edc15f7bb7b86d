// Registry and text of pipelines. Every name, option and stage of a pipeline is checked before anything runs, so that a
// pass may trust its options and its stage.
#include "passes/manager/pipeline.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    T = 1 << STAGE_TENSOR,
    S = 1 << STAGE_SHARDED,
    K = 1 << STAGE_KERNELS,
    P = 1 << STAGE_PLAN,
    ANY = T | S | K | P,
    SAME = 0
};
#define OUT_STAGE(o)                                                                                                   \
    ((o) == T ? STAGE_TENSOR : (o) == S ? STAGE_SHARDED : (o) == K ? STAGE_KERNELS : (o) == P ? STAGE_PLAN : -1)

static const PassInfo passes[] = {
#define PASS(id, name, in, out, options, doc) {name, in, (int)OUT_STAGE(out), options, doc, hd_pass_##id},
#include "passes/passes.def"
};
enum { N_PASSES = sizeof passes / sizeof *passes };

static const struct { const char *name, *text, *doc; } pipelines[] = {
#define PIPELINE(name, text, doc) {name, text, doc},
#include "passes/pipelines.def"
#undef PIPELINE
};
enum { N_PIPELINES = sizeof pipelines / sizeof *pipelines };

int hd_pass_count(void) { return N_PASSES; }
const PassInfo *hd_pass_at(int i) { return &passes[i]; }

const PassInfo *hd_pass_find(const char *name) {
    for (int i = 0; i < N_PASSES; i++)
        if (!strcmp(passes[i].name, name)) return &passes[i];
    return NULL;
}

typedef VEC(PassCall) Calls;
typedef struct {
    Ctx *cx;
    const char *text, *at;
    uint32_t base;
    Calls *calls;
    int n_known; // pipelines that may be named here: those before the one being expanded
} Reader;

static Span span_of(const Reader *r, const char *from, const char *to) {
    return (Span){r->base + (uint32_t)(from - r->text), r->base + (uint32_t)(to - r->text)};
}

static void skip_spaces(Reader *r) {
    while (isspace((unsigned char)*r->at)) r->at++;
}

static bool eat(Reader *r, char c) {
    skip_spaces(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

// Reads a name or a value; NULL after reporting that `what` is missing.
static const char *read_word(Reader *r, const char *what) {
    skip_spaces(r);
    const char *from = r->at;
    while (isalnum((unsigned char)*r->at) || (*r->at && strchr("_-.+:", *r->at))) r->at++;
    if (r->at > from) return hd_strndup(r->cx->arena, from, (size_t)(r->at - from));
    if (*from) hd_error(r->cx, span_of(r, from, from + 1), "expected %s, found '%c'", what, *from);
    else hd_error(r->cx, span_of(r, from, from), "expected %s, found the end of the pipeline", what);
    return NULL;
}

// Whether a row's list, "key:int other:int", declares an option.
static bool has_option(const char *list, const char *key) {
    size_t n = strlen(key);
    for (const char *s = list; *s;) {
        size_t len = strcspn(s, " ");
        if (len > n && !strncmp(s, key, n) && s[n] == ':') return true;
        s += len;
        s += strspn(s, " ");
    }
    return false;
}

static bool read_number(const char *text, int64_t *n) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    *n = v;
    return !errno && end != text && !*end;
}

static bool read_option(Reader *r, const PassInfo *pass, PassOption *option) {
    skip_spaces(r);
    const char *from = r->at;
    if (!(option->key = read_word(r, "the name of an option"))) return false;
    Span key_span = span_of(r, from, r->at);
    if (!has_option(pass->options, option->key))
        return hd_error(r->cx, key_span, "pass '%s' has no option '%s'; it has %s", pass->name, option->key,
                        *pass->options ? pass->options : "none");
    if (!eat(r, '=')) return hd_error(r->cx, key_span, "option '%s' needs a value: %s=...", option->key, option->key);
    skip_spaces(r);
    from = r->at;
    if (!(option->value = read_word(r, "the value of an option"))) return false;
    if (!read_number(option->value, &option->number))
        return hd_error(r->cx, span_of(r, from, r->at), "option '%s' of pass '%s' is a whole number, not '%s'",
                        option->key, pass->name, option->value);
    return true;
}

static bool read_options(Reader *r, PassCall *call) {
    VEC(PassOption) options = {0};
    if (eat(r, '{') && !eat(r, '}')) {
        do {
            PassOption o = {0};
            if (!read_option(r, call->pass, &o)) return false;
            for (int i = 0; i < options.n; i++)
                if (!strcmp(options.at[i].key, o.key))
                    return hd_error(r->cx, call->span, "option '%s' of pass '%s' is given twice", o.key,
                                    call->pass->name);
            hd_push(r->cx->arena, &options, o);
        } while (eat(r, ','));
        if (!eat(r, '}'))
            return hd_error(r->cx, span_of(r, r->at, r->at + (*r->at != 0)),
                            "expected ',' or '}' after an option of pass '%s'", call->pass->name);
    }
    call->options = options.at;
    call->n_options = options.n;
    return true;
}

static void unknown_name(const Reader *r, Span span, const char *name) {
    Out o = hd_out(r->cx->arena);
    for (int i = 0; i < N_PASSES; i++) hd_printf(&o, "%s%s", i ? ", " : "", passes[i].name);
    hd_puts(&o, "; pipelines: ");
    for (int i = 0; i < r->n_known; i++) hd_printf(&o, "%s%s", i ? ", " : "", pipelines[i].name);
    hd_error(r->cx, span, "no pass is called '%s'; passes: %s", name, o.text);
}

static bool read_pipeline(Ctx *cx, const char *source, const char *text, int n_known, Calls *calls);

static bool read_item(Reader *r) {
    skip_spaces(r);
    const char *from = r->at;
    const char *name = read_word(r, "the name of a pass");
    if (!name) return false;
    PassCall call = {.pass = hd_pass_find(name), .span = span_of(r, from, r->at)};
    if (call.pass) {
        if (!read_options(r, &call)) return false;
        hd_push(r->cx->arena, r->calls, call);
        return true;
    }
    for (int i = 0; i < r->n_known; i++) {
        if (strcmp(pipelines[i].name, name) != 0) continue;
        if (*r->at == '{')
            return hd_error(r->cx, call.span, "pipeline '%s' takes no options; give them to its passes: %s", name,
                            pipelines[i].text);
        return read_pipeline(r->cx, hd_internf(r->cx, "pipeline %s", name), pipelines[i].text, i, r->calls);
    }
    unknown_name(r, call.span, name);
    return false;
}

static bool read_pipeline(Ctx *cx, const char *source, const char *text, int n_known, Calls *calls) {
    size_t len = strlen(text);
    text = hd_strdup(cx->arena, text); // the source map keeps it
    Reader r = {cx, text, text, hd_source_add(&cx->diags, source, text, len, 1), calls, n_known};
    skip_spaces(&r);
    if (!*r.at) return true;
    do {
        if (!read_item(&r)) return false;
    } while (eat(&r, ','));
    if (!*r.at) return true;
    return hd_error(cx, span_of(&r, r.at, r.at + 1), "expected ',' between passes, found '%c'", *r.at);
}

bool hd_pipeline_parse(Ctx *cx, const char *text, Pipeline *p) {
    Calls calls = {0};
    if (!read_pipeline(cx, "--pass-pipeline", text, N_PIPELINES, &calls)) return false;
    *p = (Pipeline){calls.n, calls.at};
    return true;
}

static const char *stages_text(Ctx *cx, unsigned stages) {
    Out o = hd_out(cx->arena);
    for (int s = 0; s < N_STAGES; s++)
        if (stages >> s & 1) hd_printf(&o, "%s%s", o.n ? " or " : "", hd_stage_text((Stage)s));
    return o.text;
}

bool hd_pipeline_check(Ctx *cx, const Pipeline *p, Stage from) {
    int maker = -1; // the pass that made the present stage
    for (int i = 0; i < p->n; i++) {
        const PassInfo *pass = p->at[i].pass;
        if (!(pass->in >> from & 1)) {
            const char *needs = stages_text(cx, pass->in), *has = hd_stage_text(from);
            if (maker < 0)
                hd_error(cx, p->at[i].span, "pass '%s' works on stage %s, but the module is at stage %s", pass->name,
                         needs, has);
            else
                hd_error(cx, p->at[i].span, "pass '%s' works on stage %s, but '%s' before it leaves stage %s",
                         pass->name, needs, p->at[maker].pass->name, has);
            return false;
        }
        if (pass->out < 0) continue;
        if ((Stage)pass->out != from) maker = i;
        from = (Stage)pass->out;
    }
    return true;
}

bool hd_pipeline_option(Ctx *cx, const Pipeline *p, const char *pass, const char *key, int64_t number) {
    bool found = false;
    for (int i = 0; i < p->n; i++) {
        PassCall *c = &p->at[i];
        if (strcmp(c->pass->name, pass) != 0) continue;
        PassOption *options = HD_NEWN(cx->arena, PassOption, c->n_options + 1);
        for (int k = 0; k < c->n_options; k++) {
            if (!strcmp(c->options[k].key, key))
                return hd_error(cx, c->span, "the pipeline gives '%s' its option '%s', and --%s does as well", pass,
                                key, key);
            options[k] = c->options[k];
        }
        options[c->n_options++] = (PassOption){key, hd_sprintf(cx->arena, "%lld", (long long)number), number};
        c->options = options;
        found = true;
    }
    return found || hd_error(cx, (Span){0}, "--%s is an option of pass '%s', which does not run here", key, pass);
}

bool hd_pipeline_try(Module *m, PassCx *cx, const char *from, const char *to) {
    bool runs = false;
    for (const char *at = pipelines[0].text; *at;) {
        const size_t n = strcspn(at, ",");
        char name[64];
        if (n >= sizeof name) HD_BUG("a long name in pipeline '%s'", pipelines[0].name);
        memcpy(name, at, n);
        name[n] = 0;
        runs |= !strcmp(name, from);
        const PassInfo *pass = runs ? hd_pass_find(name) : NULL;
        if (runs && !pass) HD_BUG("pipeline '%s' has no pass '%s'", pipelines[0].name, name);
        if (runs && pass->run(m, cx) == FAILED) return false;
        if (runs && !strcmp(name, to)) return true;
        at += n + (at[n] == ',');
    }
    HD_BUG("no passes from '%s' to '%s' in pipeline '%s'", from, to, pipelines[0].name);
}

void hd_pipeline_print(const Pipeline *p, int first, Out *o) {
    for (int i = first; i < p->n; i++) {
        const PassCall *c = &p->at[i];
        hd_printf(o, "%s%s", i > first ? "," : "", c->pass->name);
        for (int k = 0; k < c->n_options; k++)
            hd_printf(o, "%c%s=%s", k ? ',' : '{', c->options[k].key, c->options[k].value);
        if (c->n_options) hd_puts(o, "}");
    }
}

void hd_pipeline_list(Out *o) {
    Arena *a = o->arena;
    for (int i = 0; i < N_PASSES; i++) {
        const PassInfo *p = &passes[i];
        Out in = hd_out(a);
        for (int s = 0; s < N_STAGES; s++)
            if (p->in >> s & 1) hd_printf(&in, "%s%s", in.n ? "|" : "", hd_stage_text((Stage)s));
        hd_printf(o, "%s : %s -> %s\n    %s\n", p->name, p->in == ANY ? "any" : in.text,
                  p->out < 0 ? "same" : hd_stage_text((Stage)p->out), p->doc);
        if (*p->options) hd_printf(o, "    options: %s\n", p->options);
    }
    for (int i = 0; i < N_PIPELINES; i++)
        hd_printf(o, "pipeline %s : %s\n    %s\n", pipelines[i].name, pipelines[i].text, pipelines[i].doc);
}

int64_t hd_option_int(const PassCx *cx, const char *key, int64_t otherwise) {
    const PassCall *c = cx->call;
    if (!c) return otherwise; // a pass that another one tries
    if (!has_option(c->pass->options, key))
        HD_BUG("pass '%s' reads option '%s', which its row in passes.def does not declare", c->pass->name, key);
    for (int i = 0; i < c->n_options; i++)
        if (!strcmp(c->options[i].key, key)) return c->options[i].number;
    return otherwise;
}
