// Which rank a process is. Launchers say it in the environment. Without one, --ranks=N forks the ranks here, and this
// process only looks after them: it passes signals on, ends the others when one fails, and leaves no process running.
//
// Environment: HEDDLE_PORT (where rank 0 listens), HEDDLE_GRACE_SECONDS (3: how long the others have to exit once a
// rank has failed).
#include "runtime/world/launch.h"
#include "runtime/world/mesh.h"
#include "runtime/world/secret.h"
#include "runtime/world/sockets.h"
#include "runtime/text.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BAD_START = 2, MOST_RANKS = 4096 };

typedef struct { const char *by, *rank, *ranks, *local, *here; } Launcher; // number of ranks on this host
static const Launcher launchers[HD_LAUNCHERS] = {
    [HD_TORCHRUN] = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    [HD_MPIRUN] = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE"},
    [HD_MPIEXEC] = {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    [HD_SRUN] = {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
              NULL}, // the second is set in a running step only
};

// --- started by a launcher

static bool same(const char *a, const char *b) { return a && b && !strcmp(a, b); }

static const Launcher *launcher(void) { // NULL: none
    for (int i = 0; i < HD_LAUNCHERS; i++) {
        const Launcher *l = &launchers[i], *srun = &launchers[HD_SRUN];
        if (!hd_env(l->rank) || !hd_env(l->ranks)) continue;
        // srun may also set PMI's variables, without the rank on this host and without the place of rank 0.
        if (i == HD_MPIEXEC && same(hd_env(l->rank), hd_env(srun->rank)) && same(hd_env(l->ranks), hd_env(srun->ranks)))
            continue;
        return l;
    }
    return NULL;
}

static bool read_launcher(HdLaunch *l, const Launcher *by) { // false after a message
    l->by = by->by;
    if (!hd_env_number(by->ranks, 1, MOST_RANKS, &l->ranks) || !hd_env_number(by->rank, 0, l->ranks - 1, &l->rank))
        return false;
    l->local_rank = l->rank;
    return !hd_env(by->local) || hd_env_number(by->local, 0, MOST_RANKS, &l->local_rank);
}

static bool find_zero(HdLaunch *l, const Launcher *by) { // false after a message
    int here = l->ranks;
    if (by->here && hd_env(by->here) && !hd_env_number(by->here, 1, MOST_RANKS, &here)) return false;
    return hd_meeting(l, (HdLauncher)(by - launchers), here);
}

const char *hd_launcher(int *rank, int *ranks) {
    const Launcher *by = launcher();
    if (!by) return NULL;
    char *end[2];
    const long r = strtol(hd_env(by->rank), &end[0], 10), n = strtol(hd_env(by->ranks), &end[1], 10);
    if (*end[0] || *end[1] || r < 0 || r >= n || n > MOST_RANKS) return NULL;
    *rank = (int)r;
    *ranks = (int)n;
    return by->by;
}

static bool fits(const HdProgram *p, int ranks, const HdLaunch *l) { // false after a message from rank 0
    const int want = hd_ranks(p);
    char mesh[HD_MESH_TEXT];
    if (ranks == want) return true;
    if (l->rank != 0) return false;
    hd_say(stderr, "error: the program is compiled for %d rank%s (mesh %s), %d %s started%s%s: ", want,
           want == 1 ? "" : "s", hd_mesh_say(p, " ", " x ", mesh, sizeof mesh), ranks,
           ranks == 1 ? "was" : "were", l->by ? " by " : "", l->by ? l->by : "");
    if (want == 1) hd_say(stderr, "start one, or compile it with --set schedule.mesh.shard=%d\n", ranks);
    else
        hd_say(stderr,
                "use --ranks=%d on one host, mpirun -n %d, srun -n %d, or torchrun --no-python --nproc-per-node=%d\n",
                want, want, want, want);
    return false;
}

// --- started by --ranks

typedef struct {
    int ranks;
    pid_t *pid;        // 0: exited
    int left, status;  // of the first that failed
    int passed_on;     // the last signal from outside
    double passed_at, failed_at; // seconds; 0: not
    bool killed;
} Family;

static void to_all(const Family *f, int sig) {
    for (int r = 0; r < f->ranks; r++)
        if (f->pid[r] > 0) kill(f->pid[r], sig);
}

static void ended(Family *f, pid_t pid, int how) {
    int rank = 0;
    while (rank < f->ranks && f->pid[rank] != pid) rank++;
    if (rank == f->ranks) return; // not one of ours
    f->pid[rank] = 0;
    f->left--;
    const int status = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    if (!status) return;
    if (WIFSIGNALED(how) && !f->killed)
        hd_say(stderr, "error: rank %d (process %ld) was ended by signal %d (%s)\n", rank, (long)pid, WTERMSIG(how),
               strsignal(WTERMSIG(how)));
    if (!f->status) f->status = status;
    // the others stop by themselves, and may still be saving
    const bool asked = f->passed_on && status == 128 + f->passed_on;
    if (!asked && f->failed_at == 0) f->failed_at = hd_now();
}

static void reap(Family *f) {
    int how;
    for (pid_t pid; f->left && (pid = waitpid(-1, &how, WNOHANG)) > 0;) ended(f, pid, how);
}

// The ranks are in process groups of their own, so that only this process passes signals on to them. Once one has
// failed, the others have some seconds to report why and to exit.
static int look_after(Family *f, const sigset_t *watched) {
    const double grace = hd_tcp_seconds("HEDDLE_GRACE_SECONDS", 3);
    while (f->left) {
        siginfo_t info;
        const int s = sigtimedwait(watched, &info, &(struct timespec){0, 200000000});
        if (s > 0 && s != SIGCHLD &&
            !(s == f->passed_on && hd_now() - f->passed_at < 1)) { // `timeout` and others send it twice
            if (s != SIGUSR1) f->passed_on = s; // that one ends nobody
            f->passed_at = hd_now();
            to_all(f, s);
        }
        reap(f);
        if (f->left && f->failed_at > 0 && !f->killed && hd_now() - f->failed_at > grace) {
            f->killed = true;
            to_all(f, SIGKILL);
        }
    }
    return f->status;
}

static int listen_here(HdLaunch *l) { // -1 after a message
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    int port = 0;
    if (hd_env("HEDDLE_PORT") && !hd_env_number("HEDDLE_PORT", 1, 65535, &port)) return -1;
    at.sin_port = htons((uint16_t)port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, SOMAXCONN) ||
        getsockname(fd, (struct sockaddr *)&at, &size)) {
        hd_say(stderr, "error: cannot listen at 127.0.0.1:%d: %s%s\n", port, strerror(errno),
               port ? "; leave HEDDLE_PORT out, or choose another" : "");
        if (fd >= 0) close(fd);
        return -1;
    }
    snprintf(l->host, sizeof l->host, "127.0.0.1");
    l->port = ntohs(at.sin_port);
    l->where = HD_LOOPBACK;
    l->secret = true;
    hd_secret_random(l->key, sizeof l->key); // the ranks inherit it in memory: it is in no file, argument or variable
    return fd;
}

static void be_rank(HdLaunch *l, int rank, pid_t parent, const sigset_t *before) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); // no process outlives this one
    if (getppid() != parent) _exit(1);
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, before, NULL);
    l->rank = l->local_rank = rank;
    if (rank != 0) {
        close(l->listener);
        l->listener = -1;
    }
}

static bool start_ranks(HdLaunch *l) {
    Family f = {.ranks = l->ranks, .pid = calloc((size_t)l->ranks, sizeof *f.pid)};
    sigset_t watched, before;
    const pid_t self = getpid();
    l->status = 1;
    if (!hd_secret_ready()) hd_say(stderr, "error: %s\n", hd_failure());
    else if (!f.pid) hd_say(stderr, "error: out of memory: cannot start %d ranks\n", l->ranks);
    else l->listener = listen_here(l);
    if (l->listener < 0) {
        free(f.pid);
        return false;
    }
    static const int passed[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
    sigemptyset(&watched);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) sigaddset(&watched, passed[i]);
    sigprocmask(SIG_BLOCK, &watched, &before);
    signal(SIGCHLD, SIG_DFL); // an ignored SIGCHLD could not be waited for
    fflush(NULL);
    for (int r = 0; r < l->ranks; r++) {
        const pid_t pid = fork();
        if (pid == 0) {
            free(f.pid);
            be_rank(l, r, self, &before);
            return true;
        }
        if (pid < 0) {
            hd_say(stderr, "error: cannot start rank %d: %s\n", r, strerror(errno));
            f.status = 1;
            f.failed_at = 1; // long ago
            break;
        }
        f.pid[r] = pid;
        f.left++;
    }
    close(l->listener);
    l->listener = -1;
    l->status = look_after(&f, &watched);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(f.pid);
    return false;
}

bool hd_launch(const HdProgram *p, int ranks, HdLaunch *l) {
    const Launcher *by = launcher();
    *l = (HdLaunch){.ranks = 1, .listener = -1, .status = BAD_START};
    if (by && !read_launcher(l, by)) return false;
    if (by && ranks > 1 && l->ranks == 1) { // an interactive shell on a cluster runs a single rank
        *l = (HdLaunch){.ranks = 1, .listener = -1, .status = BAD_START};
    } else if (by && ranks && ranks != l->ranks) {
        if (l->rank == 0)
            hd_say(stderr, "error: %s has started %d ranks, --ranks=%d says otherwise: leave it out\n", l->by,
                   l->ranks, ranks);
        return false;
    }
    if (!fits(p, l->by ? l->ranks : ranks ? ranks : 1, l)) return false;
    if (l->by) return l->ranks == 1 || find_zero(l, by);
    if (ranks <= 1) return true;
    l->by = "--ranks";
    l->ranks = ranks;
    return start_ranks(l);
}
