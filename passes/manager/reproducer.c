// Reproducers, in the process that fails. The text is rendered before a pass runs, because nothing can be rendered
// after a crash. The handler only opens, writes, closes and starts a process, all async-signal-safe, on a stack of its
// own so that it also works after a stack overflow.
#include "passes/manager/reproducer.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// The only state outside a run: a signal handler can reach nothing else.
static const Reproducer *volatile armed;
static bool may_narrow;
static char handler_stack[64 * 1024];
static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { N_SIGNALS = sizeof signals / sizeof *signals, MAX_FILES = 1000 };

static void say(const char *s) {
    if (write(STDERR_FILENO, s, strlen(s)) < 0) return; // nowhere left to report it
}

static bool write_all(int file, const char *s, size_t n) {
    while (n) {
        ssize_t k = write(file, s, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        s += k;
        n -= (size_t)k;
    }
    return true;
}

// heddle-reproducer-<n>.hir for the first free n. Only async-signal-safe calls.
static int open_next(char *name) {
    for (int n = 0; n < MAX_FILES; n++) {
        char digits[4] = {0}, *d = digits;
        if (n >= 100) *d++ = (char)('0' + n / 100);
        if (n >= 10) *d++ = (char)('0' + n / 10 % 10);
        *d = (char)('0' + n % 10);
        strcpy(name, "heddle-reproducer-");
        strcat(name, digits);
        strcat(name, ".hir");
        int file = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (file >= 0 || errno != EEXIST) return file;
    }
    return -1;
}

// Replaces the file by one with the IR before the failing pass, or leaves it alone. The output of that process is not
// shown.
static void narrow(char *name, const char *passed) {
    pid_t child = fork();
    if (child < 0) return;
    if (child == 0) {
        char command[] = "heddle", option[] = HD_NARROW_OPTION, digits[16] = {0};
        strncpy(digits, passed, sizeof digits - 1);
        int nowhere = open("/dev/null", O_WRONLY);
        if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
        execv("/proc/self/exe", (char *[]){command, option, name, digits, NULL});
        _exit(1);
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
}

void hd_reproducer_write(void) {
    const Reproducer *r = armed;
    if (!r) return;
    armed = NULL;
    char name[64];
    int file = open_next(name);
    bool written = file >= 0 && write_all(file, r->head, r->n_head) && write_all(file, r->text, r->n_text);
    if (file >= 0) close(file);
    if (!written) {
        say("heddle: no reproducer could be written to the current folder\n");
        return;
    }
    say("heddle: this is a fault of the compiler; to see it again run: heddle-opt --run-reproducer ");
    say(name);
    say("\n");
    if (r->passed && may_narrow) narrow(name, r->passed);
}

static void crashed(int signal_number) {
    hd_reproducer_write();
    signal(signal_number, SIG_DFL); // the exit status still says what happened
    raise(signal_number);
}

void hd_reproducer_arm(const Reproducer *r) {
    bool was = armed != NULL;
    armed = r;
    if (was == (r != NULL)) return;
    struct sigaction action = {.sa_flags = SA_ONSTACK};
    action.sa_handler = r ? crashed : SIG_DFL;
    sigemptyset(&action.sa_mask);
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    if (r) sigaltstack(&stack, NULL);
    for (int i = 0; i < N_SIGNALS; i++) sigaction(signals[i], &action, NULL);
}

void hd_reproducer_may_narrow(void) { may_narrow = true; }
