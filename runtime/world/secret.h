// The proof that a connection belongs to this run: keyed BLAKE2b (libsodium's crypto_generichash) over every frame.
// The key of a connection is made from the run's key and from fresh random numbers of both ends, one key for each
// direction, and every frame is counted. So nothing can be changed, left out, repeated, sent back, or taken over from
// another connection or run. Nothing is hidden: who can listen on the network can read what the ranks send.
#ifndef RUNTIME_WORLD_SECRET_H
#define RUNTIME_WORLD_SECRET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HD_KEY = 32, HD_MAC = 32, HD_NONCE = 32, HD_LEAST_SECRET = 16 }; // bytes; the last: characters of a secret

typedef struct { unsigned char key[HD_KEY]; uint64_t count; } HdSeal; // one direction of a connection; frames so far

bool hd_secret_ready(void); // before any other function here: false after hd_fail
void hd_secret_random(void *bytes, size_t n);
// The run's key from the text that its ranks share; "": a key that everybody knows.
void hd_secret_key(const char *text, unsigned char key[HD_KEY]);
// Counters of the frames that this end receives and sends; zero: this end is rank 0.
void hd_seal_link(const unsigned char key[HD_KEY], const unsigned char rank_nonce[HD_NONCE],
                  const unsigned char zero_nonce[HD_NONCE], bool zero, HdSeal *in, HdSeal *out);
// The proof for frame number s->count, which the caller then counts.
void hd_seal_mac(const HdSeal *s, const void *head, size_t head_bytes, const void *body, size_t bytes,
                 unsigned char mac[HD_MAC]);
// Whether this is frame number s->count of the other end; counts it. In constant time.
bool hd_seal_check(HdSeal *s, const void *head, size_t head_bytes, const void *body, size_t bytes,
                   const unsigned char mac[HD_MAC]);
#endif
