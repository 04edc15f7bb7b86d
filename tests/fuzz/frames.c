// Any bytes as what comes over a connection between ranks. The input is a script: what the other end of the run would
// send, with its proofs, and what a stranger between the two makes of it. A frame is handed on only where the other end
// has sent just that as its next one, memory stays bounded, and no text keeps what commands a terminal.
#include "runtime/world/rendezvous.h"
#include "runtime/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FRAMES = 64, MOST = 2000, ROOM = 1 << 16 };
typedef struct { const uint8_t *at, *end; } Script;
typedef struct { HdFrame f; uint8_t body[MOST]; } Sent;
typedef struct {
    Sent sent[FRAMES];
    int n, came;        // frames with a proof; those that were handed on
    char bytes[ROOM];   // on their way
    size_t fill, last;  // the last frame begins there
    HdSeal out;
} Wire;

static void expect(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static unsigned next(Script *s) { return s->at < s->end ? *s->at++ : 0; }

static void clean(char *text, size_t size) {
    char again[MOST + 1];
    hd_text_clean(text, size);
    const size_t n = strlen(text);
    expect(n < size, "a text without an end");
    for (size_t i = 0; i < n; i++)
        expect((unsigned char)text[i] >= 0x20 && text[i] != 0x7f, "a control character is left");
    snprintf(again, sizeof again, "%s", text);
    hd_text_clean(again, sizeof again);
    expect(!strcmp(text, again), "a clean text is cleaned again");
}

static bool came(void *of, const HdFrame *f, char *body) {
    Wire *w = of;
    expect(w->came < w->n, "a frame that nobody has sent");
    const Sent *s = &w->sent[w->came++];
    expect(!memcmp(f, &s->f, sizeof *f) && !memcmp(body, s->body, f->bytes) && !body[f->bytes], "another frame");
    if (f->bytes) clean(body, f->bytes + 1);
    return true;
}

static void put(Wire *w, const void *bytes, size_t n) {
    if (n > sizeof w->bytes - w->fill) n = sizeof w->bytes - w->fill;
    memcpy(w->bytes + w->fill, bytes, n);
    w->fill += n;
}

static void put_frame(Wire *w, Script *s) {
    static char sealed[HD_SEALED];
    if (w->n == FRAMES) return;
    Sent *one = &w->sent[w->n++];
    one->f = (HdFrame){next(s) % 8, (next(s) << 8 | next(s)) % MOST, next(s)};
    for (uint32_t i = 0; i < one->f.bytes; i++) one->body[i] = (uint8_t)(i < 40 ? next(s) : i * 7);
    w->last = w->fill;
    put(w, sealed, hd_frame_seal(&w->out, one->f, one->body, sealed));
    w->out.count++;
}

// The frames on their way once the script has said all; at most `frames` frames with a proof.
static void play(Wire *w, Script *s) {
    while (s->at < s->end) {
        switch (next(s) % 6) {
        case 0:
        case 1: put_frame(w, s); break;
        case 2: { // bytes of a stranger
            const size_t n = next(s) % 64, left = (size_t)(s->end - s->at);
            put(w, s->at, n < left ? n : left);
            s->at += n < left ? n : left;
            break;
        }
        case 3: // the last frame once more
            if (w->fill > w->last) put(w, w->bytes + w->last, (w->fill - w->last) % (ROOM / 4));
            break;
        case 4: { // one bit
            const size_t at = w->fill ? (next(s) << 8 | next(s)) % w->fill : 0;
            w->bytes[at] = (char)(w->bytes[at] ^ 1 << next(s) % 8);
            break;
        }
        case 5: w->fill -= w->fill ? (next(s) << 8 | next(s)) % w->fill : 0; break; // the end is lost
        }
    }
}

static void read_frames(Wire *w, Script *s, HdSeal in) {
    HdReader r = {.seal = in, .kinds = next(s), .most = next(s) % 2 ? MOST : 100};
    const size_t piece = 1 + next(s);
    play(w, s);
    bool good = true;
    for (size_t at = 0; good && at < w->fill;) {
        const size_t n = w->fill - at < piece ? w->fill - at : piece;
        expect(hd_reader_left(&r) > 0, "a frame that is whole is not handed on");
        good = hd_reader_take(&r, w->bytes + at, n, came, w);
        at += n;
        expect(r.room <= 2 * (MOST + HD_MAC) && (!r.have || r.room >= (r.have > sizeof r.frame)), "memory grows");
    }
    free(r.rest);
}

// A connection at rank 0's door: the hello of the script, then one greeting with a proof, or whatever the script makes.
static void be_judged(Wire *w, Script *s, const unsigned char *key) {
    HdVisitor v = {.fd = -1};
    HdHello own, theirs;
    HdGreeting g;
    HdSeal in;
    bool hello_came = false, proved = false;
    static char sealed[HD_SEALED];
    memset(&own, 1, sizeof own);
    hd_hello(&theirs);
    const unsigned how = next(s);
    for (size_t i = 0; i < sizeof theirs.nonce; i++) theirs.nonce[i] = (unsigned char)i;
    if (how & 1) theirs.magic[next(s) % 8] ^= (char)next(s);
    hd_seal_link(key, theirs.nonce, own.nonce, false, &in, &w->out);
    put(w, &theirs, sizeof theirs);
    for (size_t i = 0; i < sizeof g; i++) ((unsigned char *)&g)[i] = (unsigned char)next(s);
    if (how & 2) put(w, sealed, hd_frame_seal(&w->out, (HdFrame){HD_GREET, sizeof g, 0}, &g, sealed));
    const size_t piece = 1 + next(s) * 3;
    proved = (how & 3) == 2;
    if (!proved) play(w, s);
    HdVerdict verdict = HD_VISITOR_MORE;
    for (size_t at = 0; verdict == HD_VISITOR_MORE && at < w->fill; at += piece) {
        verdict = hd_visitor_take(&v, key, &own, w->bytes + at, w->fill - at < piece ? w->fill - at : piece,
                                  &hello_came);
        expect(v.reader.room <= 1024, "a visitor takes more memory");
    }
    expect(!proved || verdict == HD_VISITOR_GREETED, "a rank of this run is not let in");
    if (verdict == HD_VISITOR_GREETED) {
        clean(v.greeting.plan, sizeof v.greeting.plan);
        clean(v.greeting.run, sizeof v.greeting.run);
    }
    hd_visitor_free(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static Wire w;
    static unsigned char key[HD_KEY];
    static const unsigned char nonces[2][HD_NONCE] = {"a rank", "rank 0"};
    HdSeal in, unused;
    Script s = {data, data + size};
    expect(hd_secret_ready(), "no random numbers");
    hd_secret_key("a secret", key);
    w.n = w.came = 0;
    w.fill = w.last = 0;
    hd_seal_link(key, nonces[0], nonces[1], true, &in, &unused);
    hd_seal_link(key, nonces[0], nonces[1], false, &unused, &w.out);
    if (next(&s) % 2) be_judged(&w, &s, key);
    else read_frames(&w, &s, in);
    return 0;
}
