// The mesh of a program, as in ir/mesh.h: ranks have a coordinate along each of its axes, and ranks that differ only
// along a set of axes (bit i: axes[i]) are a group, numbered with the innermost axis of the set running fastest.
#ifndef RUNTIME_WORLD_MESH_H
#define RUNTIME_WORLD_MESH_H
#include "runtime/heddle.h"

int hd_ranks(const HdProgram *p);  // of a run
int hd_readers(const HdProgram *p);             // ranks that read different sequences
int hd_reader(const HdProgram *p, int rank);    // the number of a rank among them; others may read the same as it
unsigned hd_split_axes(const HdProgram *p);     // over which any bucket or parameter is split
int hd_shard(const HdExec *x, const HdBucket *b); // the number of this rank's shard of a bucket
int hd_group_ranks(const HdProgram *p, unsigned over);
int hd_group_number(const HdProgram *p, unsigned over, int rank);        // of a rank in its group
int hd_group_member(const HdProgram *p, unsigned over, int rank, int i); // rank i of the group of `rank`
unsigned hd_live_axes(const HdProgram *p);                               // those with more than one rank
bool hd_says_axis(const HdProgram *p, int axis); // one of one rank that reads what others read is not worth a word
enum { HD_MESH_TEXT = 256 };
// The axes with their sizes, in `out`, which it returns: "shard = 4; replicate = 2" with " = " and "; ".
const char *hd_mesh_say(const HdProgram *p, const char *assigns, const char *between, char *out, size_t size);
#endif
