// How the processes of a run find each other, where every rank is a process (HdBackend.threads is false): which rank
// this is, from the variables of torchrun, mpirun, srun or a PMI launcher or because --ranks started it here; and the
// world that the ranks form over TCP.
#ifndef RUNTIME_WORLD_LAUNCH_H
#define RUNTIME_WORLD_LAUNCH_H
#include "runtime/heddle.h"
#include "runtime/world/world.h"

typedef struct {
    int rank, ranks, local_rank;
    const char *by;      // "torchrun", "mpirun", "mpiexec", "srun", "--ranks"; NULL: started alone
    char host[256];      // where rank 0 listens
    int port;
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
#endif
