// Where the ranks that a launcher has started meet, and what proves that they are of one run.
//
// Environment: HEDDLE_SECRET (a text that all ranks share), HEDDLE_TRUST_NETWORK (1: do without one on several hosts),
// HEDDLE_PORT (where rank 0 listens).
#include "runtime/heddle.h"
#include "runtime/world/launch.h"
#include "runtime/world/secret.h"
#include "runtime/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PORT = 29577 };

const char *hd_env(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

bool hd_env_number(const char *name, long least, long most, int *v) {
    const char *text = hd_env(name);
    char *end;
    const long n = strtol(text, &end, 10);
    if (*end || end == text || n < least || n > most) {
        hd_say(stderr, "error: the environment says %s=%s: expected a number from %ld to %ld\n", name, text, least,
               most);
        return false;
    }
    *v = (int)n;
    return true;
}

// "node[03-07,9],other" -> "node03"
static void first_node(const char *list, char *out, size_t size) {
    const size_t stem = strcspn(list, ",[");
    const char *in = list[stem] == '[' ? list + stem + 1 : "";
    snprintf(out, size, "%.*s%.*s", (int)stem, list, (int)strcspn(in, ",-]"), in);
}

static int port_of_job(void) { // the same on all ranks of a job; another job probably gets another
    static const char *const names[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                        "PBS_JOBID",    "LSB_JOBID"};
    uint32_t h = 2166136261u;
    bool any = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (const char *c = hd_env(names[i]); c && *c; c++, any = true)
            h = (h ^ (unsigned char)*c) * 16777619u;
    return any ? 20000 + (int)(h % 12000) : DEFAULT_PORT; // below the ports that systems assign by themselves
}

static void name_run(HdLaunch *l, HdLauncher by) { // what only the ranks of one run have in common
    static const char *const names[HD_LAUNCHERS][2] = {[HD_TORCHRUN] = {"TORCHELASTIC_RUN_ID"},
                                                       [HD_MPIRUN] = {"PMIX_NAMESPACE"},
                                                       [HD_SRUN] = {"SLURM_JOB_ID", "SLURM_STEP_ID"}};
    size_t n = 0;
    for (int i = 0; i < 2 && names[by][i] && n < HD_RUN; i++) {
        const char *v = hd_env(names[by][i]);
        if (v) n += (size_t)snprintf(l->run + n, HD_RUN - n, "%s%s %.60s", n ? ", " : "", names[by][i], v);
    }
}

static bool loopback(const char *host) { return !strcmp(host, "localhost") || !strncmp(host, "127.", 4); }

static bool find_host(HdLaunch *l, HdLauncher by, int here) { // and whether all ranks are on it; false after a message
    const char *host = hd_env("MASTER_ADDR"), *nodes = hd_env("SLURM_STEP_NODELIST");
    static const char *const counts[HD_LAUNCHERS] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                     "MPI_LOCALNRANKS", NULL};
    const bool counted = counts[by] && hd_env(counts[by]);
    bool one = (host && loopback(host)) || (counted ? here == l->ranks : !host);
    if (by == HD_SRUN && nodes) one = !nodes[strcspn(nodes, ",[")];
    l->where = one ? HD_LOOPBACK : HD_NETWORK;
    if (host) {
        snprintf(l->host, sizeof l->host, "%s", host);
    } else if (nodes && by == HD_SRUN) {
        first_node(nodes, l->host, sizeof l->host);
    } else if (here < l->ranks) {
        if (l->rank == 0)
            hd_say(stderr,
                    "error: %s has started %d ranks, %d of them here, and does not say where rank 0 is: give all of "
                    "them MASTER_ADDR=HOST (mpirun -x, mpiexec -genv)\n",
                    l->by, l->ranks, here);
        return false;
    }
    if (one) snprintf(l->host, sizeof l->host, "127.0.0.1");
    return true;
}

static bool find_port(HdLaunch *l) { // false after a message
    l->port = port_of_job();
    if (hd_env("MASTER_PORT")) {
        if (!hd_env_number("MASTER_PORT", 1, 65534, &l->port)) return false;
        const char *agent = hd_env("TORCHELASTIC_USE_AGENT_STORE"); // torchrun itself listens at MASTER_PORT
        if (agent && !strcmp(agent, "True")) l->port++;
    }
    return !hd_env("HEDDLE_PORT") || hd_env_number("HEDDLE_PORT", 1, 65535, &l->port);
}

// The user's, or the random number that Open MPI makes for each run and gives to all ranks.
static bool find_secret(HdLaunch *l) { // false after a message
    const char *own = hd_env("HEDDLE_SECRET"), *trust = hd_env("HEDDLE_TRUST_NETWORK");
    const char *mpi = hd_env("OMPI_MCA_orte_precondition_transports");
    const char *text = own ? own : mpi && l->where == HD_NETWORK ? mpi : "";
    l->secret = *text != 0;
    if (l->secret && strlen(text) < HD_LEAST_SECRET) {
        if (l->rank == 0)
            hd_say(stderr, "error: HEDDLE_SECRET has %zu characters, at least %d are needed: make one with `openssl "
                   "rand -hex 32`\n", strlen(text), HD_LEAST_SECRET);
        return false;
    }
    hd_secret_key(text, l->key);
    if (l->where == HD_LOOPBACK && !l->secret) l->where = HD_LOCAL;
    if (l->where != HD_NETWORK || l->secret || (trust && !strcmp(trust, "1"))) return true;
    if (l->rank == 0)
        hd_say(stderr,
                "error: %s has started ranks on several hosts, which prove to each other by a secret that they are of "
                "one run: export HEDDLE_SECRET=$(openssl rand -hex 32) before the launcher (mpirun -x HEDDLE_SECRET), "
                "or HEDDLE_TRUST_NETWORK=1 where only machines that you trust can reach %s\n",
                l->by, l->host);
    return false;
}

bool hd_meeting(HdLaunch *l, HdLauncher by, int here) {
    if (!hd_secret_ready()) {
        hd_say(stderr, "error: %s\n", hd_failure());
        return false;
    }
    name_run(l, by);
    return find_host(l, by, here) && find_port(l) && find_secret(l);
}
