// Tokens after llm.c's header: 256 little-endian i32, of which the first three are magic, version and count.
#include "runtime/data/format.h"
#include "runtime/heddle.h"

static const struct { uint32_t magic, version; DataType type; } headers[] = {
    {20240520, 1, DATA_U16}, // GPT-2
    {20240801, 7, DATA_U32}, // Llama 3
};
enum { HEADER_BYTES = 1024, HEADERS = sizeof headers / sizeof *headers };

bool hd_read_llmc(const DataSource *s, DataLayout *t) {
    const uint32_t magic = (uint32_t)hd_format_word(s->head, 4);
    int kind = 0;
    while (kind < HEADERS - 1 && headers[kind].magic != magic) kind++;
    const DataTypeInfo *type = &hd_data_types[headers[kind].type];
    if (s->read < HEADER_BYTES)
        return hd_fail("%s begins as a header of %s tokens does, and its %lld bytes do not hold one: it is cut short",
                       s->path, type->name, (long long)s->bytes);
    const uint32_t version = (uint32_t)hd_format_word(s->head + 4, 4), count = (uint32_t)hd_format_word(s->head + 8, 4);
    if (version != headers[kind].version)
        return hd_fail("%s: header version %u; after the number %u only version %u (%s tokens) is read", s->path,
                       version, magic, headers[kind].version, type->name);
    *t = (DataLayout){.type = headers[kind].type, .head = HEADER_BYTES, .count = count};
    const int64_t held = (s->bytes - HEADER_BYTES) / type->width;
    if (count > held)
        return hd_fail("%s: the header says %u tokens but the file holds %lld: it is cut short", s->path, count,
                       (long long)held);
    return hd_format_agrees(s, t->type, "header");
}
