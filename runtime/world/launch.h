// How the processes of a run find each other, where every rank is a process (HdBackend.threads is false): which rank
// this is, from the variables of torchrun, mpirun, srun or a PMI launcher or because --ranks started it here; and the
// world that the ranks form over TCP.
#ifndef RUNTIME_WORLD_LAUNCH_H
#define RUNTIME_WORLD_LAUNCH_H
#include "runtime/heddle.h"
#include "runtime/world/world.h"

// How the ranks reach rank 0. LOCAL: one host, no secret: a local socket, of which the kernel tells whose process is
// at the other end. LOOPBACK: one host, with a secret. NETWORK: several hosts.
typedef enum { HD_LOCAL, HD_LOOPBACK, HD_NETWORK } HdWhere;
enum { HD_RUN = 160 };

typedef struct {
    int rank, ranks, local_rank;
    const char *by;      // "torchrun", "mpirun", "mpiexec", "srun", "--ranks"; NULL: started alone
    HdWhere where;
    char host[256];      // where rank 0 listens
    int port;
    bool secret;            // the ranks share one: the user's, the launcher's, or one made here by --ranks
    unsigned char key[32];  // made from it
    char run[HD_RUN];       // the launcher's name of this run ("SLURM_JOB_ID 7, SLURM_STEP_ID 0"); "": it has none
    int listener;        // rank 0 of --ranks: the socket that already listens there; else -1
    int status;          // where false is returned: the exit status of the process
    // the rank that reports why no world was formed; in a world, this one if it reports for its host when rank 0 is
    // gone
    int speaker;
} HdLaunch;

// `ranks`: of --ranks, 0 when it was not given. Call it before the first call of CUDA and before any thread is started:
// with --ranks and no launcher it forks. true: this process is rank l->rank. false: exit with l->status at once;
// everything has been reported (all ranks of --ranks have ended, or the ranks that were started are not those of the
// mesh).
bool hd_launch(const HdProgram *p, int ranks, HdLaunch *l);

// The launcher that started this process according to the environment, its rank and the number of ranks; NULL: none.
const char *hd_launcher(int *rank, int *ranks);

// all: connects the ranks and makes sure that they run the same program. NULL after hd_fail; print that where
// hd_launch_speaks. A run of one rank gets hd_world_alone().
HdWorld *hd_world_tcp(HdLaunch *l, const HdProgram *p);
static inline bool hd_launch_speaks(const HdLaunch *l) { return l->rank == l->speaker; }

// meeting.c, for launch.c. Where the ranks of a launcher meet (`here`: how many of them are on this host, l->ranks
// where that is not known), and the secret that proves that they are of one run. false after a message, of rank 0 only
// where all ranks find the same.
typedef enum { HD_TORCHRUN, HD_MPIRUN, HD_MPIEXEC, HD_SRUN, HD_LAUNCHERS } HdLauncher;
bool hd_meeting(HdLaunch *l, HdLauncher by, int here);
const char *hd_env(const char *name); // NULL: not set, or empty
bool hd_env_number(const char *name, long least, long most, int *v); // false after a message
#endif
