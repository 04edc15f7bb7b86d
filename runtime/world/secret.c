// Keys and proofs of connections. See secret.h.
#include "runtime/world/secret.h"
#include "runtime/heddle.h"
#include <assert.h>
#include <sodium.h>
#include <string.h>

static_assert(HD_KEY >= crypto_generichash_KEYBYTES_MIN && HD_KEY <= crypto_generichash_KEYBYTES_MAX, "size of a key");
static_assert(HD_MAC >= crypto_generichash_BYTES_MIN && HD_MAC <= crypto_generichash_BYTES_MAX, "size of a proof");

bool hd_secret_ready(void) {
    return sodium_init() >= 0 || hd_fail("libsodium finds no source of random numbers on this machine");
}

void hd_secret_random(void *bytes, size_t n) { randombytes_buf(bytes, n); }

static void put(crypto_generichash_state *s, const void *bytes, size_t n) {
    crypto_generichash_update(s, bytes, (unsigned long long)n);
}

void hd_secret_key(const char *text, unsigned char key[HD_KEY]) {
    static const char label[] = "heddle: key of a run";
    crypto_generichash_state s;
    crypto_generichash_init(&s, NULL, 0, HD_KEY);
    put(&s, label, sizeof label);
    put(&s, text, strlen(text));
    crypto_generichash_final(&s, key, HD_KEY);
}

static void direction(const unsigned char *key, const char *label, const unsigned char *rank_nonce,
                      const unsigned char *zero_nonce, HdSeal *out) {
    crypto_generichash_state s;
    crypto_generichash_init(&s, key, HD_KEY, HD_KEY);
    put(&s, label, strlen(label) + 1);
    put(&s, rank_nonce, HD_NONCE);
    put(&s, zero_nonce, HD_NONCE);
    crypto_generichash_final(&s, out->key, HD_KEY);
    out->count = 0;
}

void hd_seal_link(const unsigned char key[HD_KEY], const unsigned char rank_nonce[HD_NONCE],
                  const unsigned char zero_nonce[HD_NONCE], bool zero, HdSeal *in, HdSeal *out) {
    direction(key, "heddle: to rank 0", rank_nonce, zero_nonce, zero ? in : out);
    direction(key, "heddle: from rank 0", rank_nonce, zero_nonce, zero ? out : in);
}

void hd_seal_mac(const HdSeal *s, const void *head, size_t head_bytes, const void *body, size_t bytes,
                 unsigned char mac[HD_MAC]) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, s->key, HD_KEY, HD_MAC);
    put(&state, &s->count, sizeof s->count);
    put(&state, head, head_bytes); // says how long the body is
    if (bytes) put(&state, body, bytes);
    crypto_generichash_final(&state, mac, HD_MAC);
}

bool hd_seal_check(HdSeal *s, const void *head, size_t head_bytes, const void *body, size_t bytes,
                   const unsigned char mac[HD_MAC]) {
    unsigned char own[HD_MAC];
    hd_seal_mac(s, head, head_bytes, body, bytes, own);
    if (sodium_memcmp(own, mac, HD_MAC) != 0) return false;
    s->count++;
    return true;
}
