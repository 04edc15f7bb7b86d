// The CUDA text of a program: texts are collected while the planned functions are printed, then grouped into
// translation units of a few kernels each, so that NVRTC can compile them in parallel.
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/templates.h"
#include "ir/dropout.h"
#include <ctype.h>
#include <string.h>

enum { UNIT_WEIGHT = 6 }; // kernels of a translation unit

CudaModule *hd_cuda_module(Emit *e) {
    if (!e->state) e->state = HD_NEW(e->a, CudaModule);
    return e->state;
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *s = text; (s = strstr(s, what)) != NULL; s += strlen(what)) n++;
    return n;
}

// HdKernel.waits must hold for every kernel of a program: the runtime may launch one before those before it have ended.
static void check_entries(const char *text) {
    if (count(text, "extern \"C\" __global__") != count(text, "\n    enter();\n"))
        HD_BUG("a CUDA kernel does not wait with enter():\n%.400s", text);
}

static int text_of(Emit *e, const char *text, bool alone) {
    CudaModule *cm = hd_cuda_module(e);
    for (int i = 0; i < cm->texts.n; i++)
        if (!strcmp(cm->texts.at[i].text, text)) return i;
    check_entries(text);
    hd_push(e->a, &cm->texts, ((CudaText){text, 0, alone}));
    return cm->texts.n - 1;
}

int hd_cuda_kernel(Emit *e, const char *name, const char *text, int shared, bool alone) {
    CudaModule *cm = hd_cuda_module(e);
    int at = text_of(e, text, alone);
    for (int i = 0; i < e->kernels.n; i++) {
        if (strcmp(e->kernels.at[i].name, name) != 0) continue;
        if (cm->piece_of.at[i] != at) HD_BUG("two CUDA kernels are called %s", name);
        if (shared > e->kernels.at[i].shared_bytes) e->kernels.at[i].shared_bytes = shared;
        return i;
    }
    hd_push(e->a, &e->kernels, ((EmitKernel){name, 0, shared}));
    hd_push(e->a, &cm->piece_of, at);
    cm->texts.at[at].weight++;
    return e->kernels.n - 1;
}

const char *hd_cuda_name(Emit *e, const char *base, const char *content) {
    CudaModule *cm = hd_cuda_module(e);
    CudaName name = {base, content, 1};
    bool known = false;
    for (int i = 0; i < cm->names.n && !known; i++) {
        if (strcmp(cm->names.at[i].base, base) != 0) continue;
        known = !strcmp(cm->names.at[i].content, content);
        name.number = cm->names.at[i].number + !known;
    }
    if (!known) hd_push(e->a, &cm->names, name);
    return name.number > 1 ? hd_sprintf(e->a, "%s_%d", base, name.number) : base;
}

static const char *find_template(const char *name, size_t n) { // n: its length
    for (const CudaTemplate *t = hd_cuda_template_list; t->name; t++)
        if (strlen(t->name) == n && !strncmp(t->name, name, n)) return t->text;
    HD_BUG("no CUDA template %.*s", (int)n, name);
}

// #undef lines for the names that `text` defines.
static void put_undefs(Out *o, const char *text) {
    for (const char *s = text; (s = strstr(s, "#define ")) != NULL;) {
        s += 8;
        hd_printf(o, "#undef %.*s\n", (int)strcspn(s, " (\n"), s);
    }
}

// Text between the marks of a feature is only in programs that have it, whose definitions say so.
typedef struct { const char *open, *close, *defined; } Mark;
static const Mark marks[] = {{"/*drop:", ":drop*/", "_DROP "}, // dropout
                             {"/*cap:", ":cap*/", "_CAP "},    // softcap
                             {"/*sink:", ":sink*/", "_SINK "},
                             // where a kernel waits for those before it: after it has read what they do not write,
                             // or first
                             {"/*early:", ":early*/", "_EARLY "},
                             {"/*late:", ":late*/", "_LATE "}};

static const char *next_mark(const char *text, const Mark **mark) {
    const char *first = NULL;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *s = strstr(text, marks[i].open);
        if (s && (!first || s < first)) first = s, *mark = &marks[i];
    }
    return first;
}

// The line end after a mark that begins a line goes with it.
static void put_text(Out *o, const char *text, const char *defines) {
    const Mark *mark = NULL;
    for (const char *s; (s = next_mark(text, &mark)) != NULL;) {
        const char *end = strstr(s, mark->close), *inner = s + strlen(mark->open);
        const bool line = inner[0] == '\n';
        hd_putn(o, text, (size_t)(s - text));
        if (strstr(defines, mark->defined)) hd_putn(o, inner + line, (size_t)(end - inner) - line);
        text = end + strlen(mark->close);
        text += line && *text == '\n';
    }
    hd_puts(o, text);
}

const char *hd_cuda_template(Emit *e, const char *names, const char *defines) {
    Out o = hd_out(e->a);
    hd_puts(&o, defines);
    for (const char *s = names; *s; s += strspn(s, " ")) {
        const size_t n = strcspn(s, " ");
        put_text(&o, find_template(s, n), defines);
        s += n;
    }
    put_undefs(&o, defines);
    return o.text;
}

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

// Prints `text` with the identifier `name` numbered: extern shared arrays are one object however many namespaces
// declare them.
static void put_renamed(Out *o, const char *text, const char *name, int number) {
    const char *from = text;
    for (const char *s = text; (s = strstr(s, name)) != NULL;) {
        const char *end = s + strlen(name);
        if ((s == text || !in_word(s[-1])) && !in_word(*end)) {
            hd_putn(o, from, (size_t)(end - from));
            hd_printf(o, "%d", number);
            from = end;
        }
        s = end;
    }
    hd_puts(o, from);
}

static bool draws(const Module *m) {
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *o = f->first; o; o = o->next)
            if (hd_draws(o) || hd_has(&o->attrs, A_ROUNDING)) return true;
    return false;
}

static bool has_fp8(const Module *m) {
    for (const Func *f = m->funcs; f; f = f->next) {
        for (int i = 0; i < f->n_args; i++)
            if (hd_dtype_is_fp8(f->args[i]->type->dtype)) return true;
        for (const Op *o = f->first; o; o = o->next)
            for (int i = 0; i < o->n_out; i++)
                if (hd_dtype_is_fp8(o->out[i]->type->dtype)) return true;
    }
    return false;
}

static Out unit_start(Emit *e) {
    Out o = hd_out(e->a);
    hd_puts(&o, find_template("common", strlen("common")));
    if (has_fp8(e->m)) hd_puts(&o, find_template("fp8", strlen("fp8")));
    if (draws(e->m)) hd_puts(&o, find_template("philox", strlen("philox")));
    hd_emit_prelude(e->m, PRELUDE_CUDA, &o);
    hd_puts(&o, "\n");
    return o;
}

// Texts keep their order; a unit is closed when it has enough kernels. For --emit=cuda the whole text is one unit.
void hd_cuda_finish(Emit *e) {
    CudaModule *cm = hd_cuda_module(e);
    if (!cm->texts.n) return;
    int *unit_of = HD_NEWN(e->a, int, cm->texts.n), n = 0, weight = 0;
    Out whole = unit_start(e), unit = unit_start(e);
    for (int i = 0; i < cm->texts.n; i++) {
        const CudaText *p = &cm->texts.at[i];
        bool last = i + 1 == cm->texts.n;
        if (p->alone) { // its names are local to it
            hd_printf(&whole, "namespace unit%d {\n", i);
            put_renamed(&whole, p->text, "shared", i);
            hd_puts(&whole, "}\n");
            put_undefs(&whole, p->text);
        } else {
            hd_printf(&whole, "%s\n", p->text);
        }
        hd_printf(&unit, "%s\n", p->text);
        unit_of[i] = n;
        weight += p->weight;
        if (!last && weight < UNIT_WEIGHT && !p->alone && !cm->texts.at[i + 1].alone) continue;
        hd_push(e->a, &e->sources, ((EmitSource){hd_sprintf(e->a, "kernels%d.cu", n++), unit.text}));
        unit = unit_start(e);
        weight = 0;
    }
    for (int i = 0; i < e->kernels.n; i++) e->kernels.at[i].source = unit_of[cm->piece_of.at[i]];
    if (e->cuda) hd_puts(e->cuda, whole.text);
}

const char *hd_cuda_device(Emit *e, int64_t offset) {
    return hd_sprintf(e->a, "hd_device(x, 0x%llx)", (unsigned long long)offset);
}

void hd_cuda_put_launch(Emit *e, const Op *o, int kernel, const CudaGrid *grid, const CudaArgs *args) {
    Out t = hd_out(e->a);
    const unsigned *c = grid->cluster;
    hd_printf(&t, "hd_cuda_launch(x, %d, %d, (HdGrid){%u, %u, %u, %u, %u", hd_emit_stream(e, o), kernel, grid->gx,
              grid->gy, grid->gz, grid->block, grid->shared);
    if (c[0]) hd_printf(&t, ", {%u, %u, %u}", c[0], c[1], c[2]);
    hd_printf(&t, "}, %d, (const HdArg[]){ ", args->n);
    for (int i = 0; i < args->n; i++)
        hd_printf(&t, *args->at[i] == '{' ? "%s%s" : "%s{%s}", i ? ", " : "", args->at[i]);
    const char *where = hd_emit_where(e, o);
    hd_printf(&e->body, "    %s }); ", t.text);
    hd_emit_comment(&e->body, hd_sprintf(e->a, "%s%s%s", e->kernels.at[kernel].name,
                                         o->loc.path ? " of " : *where ? " " : "", where));
}

void hd_cuda_launch_kernel(Emit *e, const Op *o, const char *kernel, const char *text, int64_t gx, int64_t gy,
                           unsigned block, unsigned shared, int n, const char *const *arg) {
    CudaArgs args = {0};
    for (int i = 0; i < n; i++) hd_push(e->a, &args, arg[i]);
    hd_cuda_put_launch(e, o, hd_cuda_kernel(e, kernel, text, (int)shared, false),
                       &(CudaGrid){(unsigned)gx, (unsigned)gy, 1, block, shared, {0}}, &args);
}
