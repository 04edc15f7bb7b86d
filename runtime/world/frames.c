// Frames of a connection. See frames.h.
#include "runtime/world/frames.h"
#include <stdlib.h>
#include <string.h>

size_t hd_frame_seal(const HdSeal *s, HdFrame f, const void *body, char *out) {
    memcpy(out, &f, sizeof f);
    if (f.bytes) memcpy(out + sizeof f, body, f.bytes);
    hd_seal_mac(s, &f, sizeof f, body, f.bytes, (unsigned char *)out + sizeof f + f.bytes);
    return sizeof f + f.bytes + HD_MAC;
}

static bool grow(HdReader *r, size_t bytes) {
    size_t room = r->room ? r->room : 256;
    while (room < bytes) room *= 2;
    if (room == r->room) return true;
    char *grown = realloc(r->rest, room);
    if (!grown) return false;
    r->rest = grown;
    r->room = room;
    return true;
}

static bool whole(HdReader *r, HdFrameFn *ended, void *of) {
    const size_t bytes = r->frame.bytes;
    if (!hd_seal_check(&r->seal, &r->frame, sizeof r->frame, r->rest, bytes, (unsigned char *)r->rest + bytes))
        return false;
    r->rest[bytes] = 0; // the proof has been used
    r->have = 0;
    return ended(of, &r->frame, r->rest);
}

size_t hd_reader_left(const HdReader *r) {
    const bool head = r->have < sizeof r->frame;
    return sizeof r->frame + (head ? 0 : (size_t)r->frame.bytes + HD_MAC) - r->have;
}

bool hd_reader_take(HdReader *r, const char *data, size_t n, HdFrameFn *ended, void *of) {
    while (n) {
        const bool head = r->have < sizeof r->frame;
        const size_t left = hd_reader_left(r), part = n < left ? n : left;
        if (head) {
            memcpy((char *)&r->frame + r->have, data, part);
        } else {
            const size_t at = r->have - sizeof r->frame;
            if (!grow(r, at + part)) return false;
            memcpy(r->rest + at, data, part);
        }
        r->have += part;
        data += part;
        n -= part;
        if (part < left) return true;
        if (head && (r->frame.kind > HD_LEAVE || !(r->kinds >> r->frame.kind & 1) || r->frame.bytes > r->most))
            return false;
        if (!head && !whole(r, ended, of)) return false;
    }
    return true;
}
