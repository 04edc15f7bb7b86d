// Frames: what is on a connection once both ends have sent their random numbers. A head, a body, and the proof that the
// other end of this run has sent them as its next frame. Nothing of a frame is used before its proof was checked.
#ifndef RUNTIME_WORLD_FRAMES_H
#define RUNTIME_WORLD_FRAMES_H
#include "runtime/world/secret.h"

// GREET and ANSWER make the connection; then DATA (bytes of gathers and sends), BEAT (a sign of life: what the rank is
// doing), FAIL (why the run ends) and LEAVE (nothing follows).
enum { HD_GREET, HD_ANSWER, HD_DATA, HD_BEAT, HD_FAIL, HD_LEAVE };
typedef struct { uint32_t kind, bytes; int64_t step; } HdFrame; // bytes of the body; step: see who reads that kind
enum { HD_BODY = 64 << 10, HD_SEALED = (int)sizeof(HdFrame) + HD_BODY + HD_MAC }; // the largest body, frame

// The frame as it is sent, in `out` (HD_SEALED bytes); returns its size. The caller counts it (out->count++) when any
// of it was sent.
size_t hd_frame_seal(const HdSeal *s, HdFrame f, const void *body, char *out);

typedef struct {
    HdSeal seal;
    uint32_t kinds, most; // that may come, a bit for each; bytes of their largest body
    size_t have;          // bytes of head, body and proof that have come
    HdFrame frame;
    char *rest;           // body and proof; grows with what has come
    size_t room;
} HdReader; // the owner frees `rest`

// A whole frame; body: f->bytes bytes with a 0 after them. false: it is refused, and so is the connection.
typedef bool HdFrameFn(void *of, const HdFrame *f, char *body);
// Takes bytes as they come. false: no end of this run sends that (nothing more may be read), or there is no memory.
bool hd_reader_take(HdReader *r, const char *data, size_t n, HdFrameFn *ended, void *of);
size_t hd_reader_left(const HdReader *r); // bytes that certainly belong to the present frame and have not come yet
#endif
