#include "runtime/base/json.h"
#include "runtime/text.h"

void hd_json_string(FILE *f, const char *text) {
    char out[HD_JSON_CHAR];
    fputc('"', f);
    for (const char *s = text ? text : ""; *s;) {
        const size_t n = hd_text_json_char(&s, out);
        fwrite(out, 1, n, f);
    }
    fputc('"', f);
}

void hd_json_name(FILE *f, const char *what, int rank, int stream, const char *name) {
    fprintf(f, "{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"args\": {\"name\": ", what, rank, stream);
    hd_json_string(f, name);
    fputs("}},\n", f);
}

void hd_json_action(FILE *f, const HdFunc *func, int index, int rank, int stream, double start, double us,
                    const char *more) {
    const HdAction *a = &func->actions[index];
    fprintf(f, "{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": ", rank, stream,
            start, us);
    hd_json_string(f, a->op);
    fprintf(f, ", \"cat\": \"%s\", \"args\": {\"path\": ", func->name);
    hd_json_string(f, a->path);
    fputs(", \"where\": ", f);
    hd_json_string(f, a->where);
    fputs(", \"stream\": ", f);
    hd_json_string(f, a->stream);
    fprintf(f, "%s}},\n", more);
}
