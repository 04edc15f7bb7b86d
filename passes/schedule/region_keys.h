// Which capture region an action of the main stream is for: that of a listed place, or of a unit, in one direction.
#ifndef PASSES_SCHEDULE_REGION_KEYS_H
#define PASSES_SCHEDULE_REGION_KEYS_H
#include "passes/analysis/places.h"

typedef struct { const char *place; bool bwd; } RegionKey; // place NULL: none
typedef struct {
    Module *m;
    Places places, units; // what is listed; the units
    bool by_unit, parts;  // parts: of a function; false: all of it, or nothing
} RegionKeys;

RegionKeys hd_region_keys(Module *m, Arena *a);
RegionKey hd_region_key(RegionKeys *k, const Op *o);
bool hd_same_region(RegionKey a, RegionKey b); // false for two of none
#endif
