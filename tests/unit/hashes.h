// Numbers that look random and depend on their arguments alone.
#ifndef TESTS_UNIT_HASHES_H
#define TESTS_UNIT_HASHES_H
#include <stdint.h>

static inline uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t z = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 29)) * 0x94d049bb133111ebu;
    return z ^ (z >> 32);
}

static inline uint64_t hash_text(const char *s) {
    uint64_t h = 14695981039346656037u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}
#endif
