// Runs the C compiler and finds the runtime that a binary links. Headers and library must be those that this compiler
// was built with: a program compiled with others may run and give wrong results.
#define _GNU_SOURCE // memmem, memfd_create
#include "codegen/build.h"
#include "codegen/emit.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEVELS = 6 }; // how far above the executable the runtime may be

typedef VEC(const char *) Words;
typedef struct {
    const char *include, *archive;
} Runtime;

extern const unsigned char hd_interface[]; // runtime/interface.cmake: the headers' text, which the library also holds
extern const unsigned long hd_interface_bytes;

static void add_words(Ctx *cx, Words *w, const char *text) {
    while (*text) {
        size_t n = strcspn(text, " ");
        if (n) hd_push(cx->arena, w, hd_strndup(cx->arena, text, n));
        text += n;
        text += strspn(text, " ");
    }
}

static const char *first_existing(Ctx *cx, const char *root, const char *const *names) {
    for (; *names; names++) {
        const char *path = hd_sprintf(cx->arena, "%s/%s", root, *names);
        if (!access(path, R_OK)) return path;
    }
    return NULL;
}

static char *folder_of(Ctx *cx, const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? hd_strndup(cx->arena, path, slash == path ? 1 : (size_t)(slash - path)) : hd_strdup(cx->arena, ".");
}

static bool find_runtime(Ctx *cx, Runtime *r) {
    static const char *const headers[] = {"runtime/heddle.h", HEDDLE_INCLUDEDIR "/heddle/heddle.h", NULL};
    static const char *const libraries[] = {HEDDLE_LIBDIR "/libheddle_rt.a", "lib/libheddle_rt.a",
                                            "build/lib/libheddle_rt.a", NULL};
    const char *home = getenv("HEDDLE_HOME"), *header = NULL;
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *at = home && *home ? hd_strdup(cx->arena, home) : folder_of(cx, self);
    *r = (Runtime){NULL, NULL};
    for (int i = 0; i < LEVELS && !(header && r->archive); i++, at = folder_of(cx, at)) {
        if (!header) header = first_existing(cx, at, headers);
        if (!r->archive) r->archive = first_existing(cx, at, libraries);
        if (home && *home) break;
    }
    if (header) r->include = folder_of(cx, header);
    if (header && r->archive) return true;
    return hd_error(
        cx, (Span){0, 0},
        "cannot find %s %s %s: set HEDDLE_HOME to where Heddle is installed, or to its sources, built in their "
        "folder build",
        header ? "libheddle_rt.a" : "heddle.h", home && *home ? "under" : "above", home && *home ? home : self);
}

static bool is_ours(Ctx *cx, const Runtime *r) {
    Arena *a = hd_arena_new();
    Out headers = hd_out(a);
    static const char *const names[] = {"dtypes.def",     "inits.def",     "heddle.h",
                                        "heddle_calls.h", "heddle_host.h", "bits.h"};
    size_t size = 0, n = 0;
    const char *archive = hd_read_file(a, r->archive, &size), *read = archive;
    for (size_t i = 0; i < sizeof names / sizeof *names && read; i++) {
        read = hd_read_file(a, hd_sprintf(a, "%s/%s", r->include, names[i]), &n);
        if (read) hd_putn(&headers, read, n);
    }
    const char *other = NULL;
    if (!read)
        hd_error(cx, (Span){0, 0}, "cannot read the runtime (%s, headers in %s): %s", r->archive, r->include,
                 strerror(errno));
    else if (headers.n != hd_interface_bytes || memcmp(headers.text, hd_interface, headers.n) != 0)
        other = hd_sprintf(cx->arena, "the headers in %s are", r->include);
    else if (!memmem(archive, size, hd_interface, hd_interface_bytes))
        other = hd_sprintf(cx->arena, "%s is", r->archive);
    if (other)
        hd_error(cx, (Span){0, 0},
                 "%s not what this heddlec was built with: build both again, or set HEDDLE_HOME to where they belong "
                 "together",
                 other);
    hd_arena_free(a);
    return read && !other;
}

// The program's text as a file without a name, of which nothing is left in any case. NULL with errno.
static FILE *nameless(const char *name, const Out *c) {
    const int memory = memfd_create(name, MFD_CLOEXEC);
    FILE *f = memory >= 0 ? fdopen(memory, "w+") : NULL;
    if (!f) return NULL;
    Arena *a = hd_arena_new();
    Out line = hd_out(a);
    hd_emit_string(&line, name, "");
    fprintf(f, "#line 1 %s\n", line.text);
    hd_arena_free(a);
    const bool good = fwrite(c->text, 1, c->n, f) == c->n && !fflush(f) && !ferror(f) &&
                      lseek(fileno(f), 0, SEEK_SET) == 0;
    if (good) return f;
    fclose(f);
    return NULL;
}

// Runs a command that reads `in`, and keeps its output. Returns its exit status, or -1 with errno when it could not be
// started.
static int run(Ctx *cx, const Words *w, FILE *in, Out *said) {
    int ends[2];
    if (pipe(ends)) return -1;
    const char **argv = HD_NEWN(cx->arena, const char *, w->n + 1);
    for (int i = 0; i < w->n; i++) argv[i] = w->at[i];
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    if (pid < 0) {
        close(ends[0]);
        close(ends[1]);
        return -1;
    }
    if (!pid) {
        dup2(fileno(in), 0);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(ends[1]);
    char buffer[4096];
    ssize_t n;
    while ((n = read(ends[0], buffer, sizeof buffer)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0) hd_putn(said, buffer, (size_t)n);
    close(ends[0]);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

// As an argument of the C compiler, which takes -x for an option and @x for a file of more arguments.
static const char *argument(Ctx *cx, const char *path) {
    return *path == '-' || *path == '@' ? hd_sprintf(cx->arena, "./%s", path) : path;
}

static Words command(Ctx *cx, const Build *b, const Runtime *r, const char *cc, const char *options) {
    const bool host = !strcmp(b->target, "host");
    Words w = {0};
    add_words(cx, &w, cc);
    add_words(cx, &w, "-std=gnu11");
    add_words(cx, &w, host ? HEDDLE_HOST_FLAGS : "-O2");
    add_words(cx, &w, options);
    hd_push(cx->arena, &w, "-I");
    hd_push(cx->arena, &w, argument(cx, r->include));
    hd_push(cx->arena, &w, "-o");
    hd_push(cx->arena, &w, argument(cx, b->output));
    add_words(cx, &w, "-x c - -x none");
    hd_push(cx->arena, &w, argument(cx, r->archive));
    if (host) add_words(cx, &w, HEDDLE_HOST_LIBS);
    add_words(cx, &w, "-lm -lpthread -ldl");
    add_words(cx, &w, HEDDLE_LINK_FLAGS);
    return w;
}

// `made`: where the compiler writes; -v prints the command with the output's own name.
static bool compile(Ctx *cx, const Build *b, const char *made, const char *options, const char *name, FILE *text) {
    const char *cc = getenv("CC");
    if (!cc || !*cc) cc = "cc";
    Runtime r;
    if (!find_runtime(cx, &r) || !is_ours(cx, &r)) return false;
    const Words shown = command(cx, b, &r, cc, options);
    for (int i = 0; b->verbose && i < shown.n; i++)
        hd_say(stderr, "%s%s", shown.at[i], i + 1 < shown.n ? " " : "\n");
    Build to = *b;
    to.output = made;
    const Words w = command(cx, &to, &r, cc, options);
    Out said = hd_out(cx->arena);
    const int status = run(cx, &w, text, &said);
    if (!status) return true;
    if (status < 0)
        hd_error(cx, (Span){0, 0}, "cannot start the C compiler %s: %s", cc, strerror(errno));
    else if (status == 127)
        hd_error(cx, (Span){0, 0}, "cannot run the C compiler %s: install one, or set CC to one that is there", cc);
    else {
        if (said.n && said.text[said.n - 1] != '\n') hd_puts(&said, "\n");
        hd_say_text(stderr, said.text);
        hd_error(cx, (Span){0, 0},
                 "the C compiler %s failed on %s (exit status %d; --save-temps keeps it); what it said is above", cc,
                 name, status);
    }
    return false;
}

static bool cannot_write(Ctx *cx, const char *path, const char *why) {
    return hd_error(cx, (Span){0, 0}, "cannot write %s: %s", path, why);
}

// Whether a file that --save-temps would overwrite is from an earlier --save-temps: its second line says so.
static bool is_saved(Ctx *cx, const char *path) {
    size_t n = 0;
    const char *text = hd_read_file(cx->arena, path, &n), *second = text ? memchr(text, '\n', n) : NULL;
    static const char line[] = "\n#include \"heddle.h\"\n";
    return second && (size_t)(text + n - second) >= sizeof line - 1 && !memcmp(second, line, sizeof line - 1);
}

// Whether a file of this name may be written; else an error. GCC takes a line break in a name for the end of a command.
static bool may_write(Ctx *cx, const char *path) {
    for (const char *s = path; *s; s++)
        if ((unsigned char)*s < 32 || *s == 127)
            return cannot_write(cx, path, "its name holds a control character; give another name with -o");
    return !hd_is_source(&cx->diags, path) ||
           cannot_write(cx, path, "it is a file that was read; give another name with -o");
}

// A device or a pipe gets the program's bytes: a linker would remove an output that it cannot finish.
static int copy_to(Ctx *cx, const char *made, const char *path) {
    size_t n = 0;
    const char *bytes = hd_read_file(cx->arena, made, &n);
    return bytes ? hd_write_file(path, bytes, n) : errno;
}

// The C compiler writes into a new folder beside the output. A whole file is renamed from there, and the folder goes.
static bool build_aside(Ctx *cx, const Build *b, const char *options, const char *name, FILE *text) {
    const char *target = hd_write_target(cx->arena, b->output), *temporary = getenv("TMPDIR");
    const char *folder = target ? folder_of(cx, target) : temporary && *temporary ? temporary : "/tmp";
    char *aside = hd_sprintf(cx->arena, "%s/.heddle-XXXXXX", folder);
    if (!mkdtemp(aside)) return cannot_write(cx, b->output, strerror(errno));
    const char *made = hd_sprintf(cx->arena, "%s/program", aside);
    bool good = compile(cx, b, made, options, name, text);
    const int wrong = !good ? 0 : !target ? copy_to(cx, made, b->output) : rename(made, target) ? errno : 0;
    if (wrong) good = cannot_write(cx, b->output, strerror(wrong));
    if (!good || !target) unlink(made);
    rmdir(aside);
    return good;
}

static bool replaces_program(const char *path) { // or nothing that could be lost
    struct stat st;
    char head[4] = "";
    FILE *f = stat(path, &st) || !S_ISREG(st.st_mode) || !st.st_size ? NULL : fopen(path, "rb");
    if (!f) return true;
    const bool program = fread(head, 1, sizeof head, f) == sizeof head && !memcmp(head, "\x7f" "ELF", sizeof head);
    fclose(f);
    return program;
}

static bool build(Ctx *cx, const Build *b, const char *options, const Out *c) {
    struct stat st;
    const char *slash = strrchr(b->output, '/');
    const char *name = hd_sprintf(cx->arena, "%s.c", slash ? slash + 1 : b->output), *folder = folder_of(cx, b->output);
    if (!stat(b->output, &st) && S_ISDIR(st.st_mode))
        return cannot_write(cx, b->output, "it is a folder; give the name of a file with -o");
    if (access(folder, F_OK)) return cannot_write(cx, b->output, strerror(errno));
    if (!may_write(cx, b->output)) return false;
    if (!replaces_program(b->output))
        return cannot_write(cx, b->output, "it is there and is no program; give another name with -o, or remove it");
    if (b->save_temps) {
        const char *kept = hd_sprintf(cx->arena, "%s.c", b->output);
        if (!may_write(cx, kept)) return false;
        if (!lstat(kept, &st) && !is_saved(cx, kept))
            return cannot_write(cx, kept, "it is there, and no --save-temps wrote it; give another name with -o");
        const int e = hd_write_file(kept, c->text, c->n);
        if (e) return cannot_write(cx, kept, strerror(e));
    }
    FILE *text = nameless(name, c);
    if (!text) return cannot_write(cx, name, strerror(errno)); // out of memory
    const bool good = build_aside(cx, b, options, name, text);
    fclose(text);
    return good;
}

bool hd_build_binary(Ctx *cx, const Build *b, const Out *c) { return build(cx, b, "", c); }

bool hd_build_shared(Ctx *cx, const Build *b, const Out *c) {
    return build(cx, b, "-fPIC -shared -DHEDDLE_NO_MAIN=hd_built_program", c);
}
