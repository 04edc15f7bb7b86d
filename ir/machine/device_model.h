// How long actions take on a device: pure functions of a table (devices/README.md) and an op. Times are those in a
// captured graph, from the end of the action before on the stream to the end of this one, with nothing beside it.
// Seconds never fall when an op gets larger.
#ifndef IR_MACHINE_DEVICE_MODEL_H
#define IR_MACHINE_DEVICE_MODEL_H
#include "ir/ir.h"

typedef struct DeviceModel DeviceModel;
typedef enum { COPY_WITHIN, COPY_TO_HOST, COPY_TO_DEVICE, N_COPY_WAYS } CopyWay;

// The table of a module: that of Ctx.device_path, else the one in the tree for the architecture of `config @target`.
// NULL: there is none for this target, or it has errors, which are reported. Read once a context.
const DeviceModel *hd_model(const Module *m);
const DeviceModel *hd_model_parse(Ctx *cx, const char *name, const char *text, size_t n); // NULL after errors

double hd_model_seconds(const DeviceModel *d, const Op *o); // of an op of any stage; 0: it does nothing by itself
// The energy that an op takes where the device is at its power limit; 0 where the table does not say.
double hd_model_joules(const DeviceModel *d, const Op *o);
double hd_model_power(const DeviceModel *d); // watts; 0: the table does not say
double hd_model_power_window(const DeviceModel *d); // seconds over which it holds that power; 0: over a step
// The floor of such a device: the op's operations at the fastest of the table's products, its bytes at the
// fastest of memory or of the link that they cross. 0: it does nothing by itself.
double hd_model_floor(const DeviceModel *d, const Op *o);
// both: while another copy runs the other way between host and device
double hd_model_copy(const DeviceModel *d, CopyWay way, double bytes, bool both);
// The ranks of a collective, and how many of them each host has: NVLink connects these, a network the hosts.
typedef struct { int64_t ranks, on_host; } Party;
typedef enum { LINK_NVLINK, LINK_NETWORK, N_LINKS } Link;
static inline Link hd_link(Party p) { return p.on_host < p.ranks ? LINK_NETWORK : LINK_NVLINK; }
Party hd_party(const DeviceModel *d, const Op *o); // of a collective
int64_t hd_model_host(const DeviceModel *d, const Module *m); // ranks of a host
const char *hd_link_text(Link l);
// kind: of a collective; bytes: that each rank receives. Over a network it takes the slower of both links.
double hd_model_collective(const DeviceModel *d, OpKind kind, Party p, double bytes);
double hd_model_rows(const DeviceModel *d, double bytes);   // of a kernel that moves so many bytes
CopyWay hd_copy_way(const Op *o);                           // of copy
int64_t hd_collective_ranks(const Op *o);                   // of a collective

int64_t hd_model_multiprocessors(const DeviceModel *d);
double hd_model_direct(const DeviceModel *d);  // seconds of the host for each action outside a graph
double hd_model_graph(const DeviceModel *d);   // seconds to launch a graph
double hd_model_beside(const DeviceModel *d);  // see beside-collective
double hd_model_beside_copy(const DeviceModel *d);
double hd_model_both_ways(const DeviceModel *d);
// To which the lines of a link go; more are extrapolated. 0: there are none, and those of nvlink hold.
int64_t hd_model_most_ranks(const DeviceModel *d, OpKind kind, Link link);
bool hd_model_has_rate(const DeviceModel *d, DType t); // false: another type's lines stand for those of products of t
const char *hd_model_name(const DeviceModel *d);
const char *hd_model_from(const DeviceModel *d);
#endif
