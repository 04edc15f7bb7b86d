// How the processes of a run find each other, where every rank is a process of its own (HdBackend.threads is false):
// which rank this one is, by the variables of torchrun, mpirun, srun or a PMI launcher, or because it was started here
// by --ranks; and the world that they form over TCP.
#ifndef RUNTIME_WORLD_LAUNCH_H
#define RUNTIME_WORLD_LAUNCH_H
#include "runtime/heddle.h"
#include "runtime/world/world.h"

typedef struct {
    int rank, ranks, local_rank;
    const char *by;      // "torchrun", "mpirun", "mpiexec", "srun", "--ranks"; NULL: started alone
    char host[256];      // where rank 0 listens
    int port;
    int listener;        // rank 0 of --ranks: the socket that listens there already; else -1
    int status;          // after false: what the process exits with
    int speaker; // the rank that tells why no world came about; in a world, this one if it speaks for its host without
                 // rank 0
} HdLaunch;

// `ranks`: of --ranks, 0 when it was not given. Call it before the first call of CUDA and before any thread is started:
// with --ranks and no launcher it forks. true: this process is rank l->rank, go on. false: exit with l->status at once;
// whatever there was to say has been said (all ranks of --ranks are done, or the ranks that were started are not those
// of the mesh).
bool hd_launch(const HdProgram *p, int ranks, HdLaunch *l);

// The launcher that has started this process by the environment, its rank and how many there are; NULL: none that says
// so in order.
const char *hd_launcher(int *rank, int *ranks);

// all: connects the ranks and makes sure that they run the same program. NULL after hd_fail; print that where
// hd_launch_speaks. A run of one rank gets hd_world_alone().
HdWorld *hd_world_tcp(HdLaunch *l, const HdProgram *p);
static inline bool hd_launch_speaks(const HdLaunch *l) { return l->rank == l->speaker; }
#endif
