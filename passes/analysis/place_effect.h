// Places of a schedule's list that change nothing: which ones, and a warning for each kind of them.
#ifndef PASSES_ANALYSIS_PLACE_EFFECT_H
#define PASSES_ANALYSIS_PLACE_EFFECT_H
#include "passes/analysis/places.h"

// Whether a place is part of another one of its list, with no place of the `n` other lists between the two.
bool hd_place_is_inside(const Places *p, int n, const Places *others, const char *path);
// A warning for each kind of place of which none has an effect. By place: whether it has one, and why not.
void hd_places_warn(const Places *p, const bool *effect, const char *const *why, Arena *a);
// The same of places that are inside of another one of their list, by hd_place_is_inside. `why`: what the one around
// them does.
void hd_places_warn_inside(const Places *p, int n, const Places *others, const char *why, Arena *a);
#endif
