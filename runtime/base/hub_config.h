// config.json of a model of Hugging Face, flat: a value for each path, "rope_scaling.factor" and "layer_types.0" among
// them. The part that transformers 5 writes below rope_parameters has the keys of transformers 4. The compiler writes
// models from it (--from-hf), programs compare themselves with it (--init).
#ifndef RUNTIME_BASE_HUB_CONFIG_H
#define RUNTIME_BASE_HUB_CONFIG_H
#include <stdbool.h>
#include <stddef.h>

typedef enum { HD_HUB_TEXT, HD_HUB_NUMBER, HD_HUB_TRUTH, HD_HUB_NULL, HD_HUB_EMPTY } HdHubKind; // EMPTY: [] or {}
typedef struct {
    char *key, *text; // of a text, what its quotes hold; of all others, as written
    HdHubKind kind;
} HdHubValue;
typedef struct { HdHubValue *at; int n; } HdHubConfig;

bool hd_hub_read(HdHubConfig *c, const char *text, size_t n); // false: no JSON object, or no memory; holds nothing then
void hd_hub_free(HdHubConfig *c);
const HdHubValue *hd_hub_find(const HdHubConfig *c, const char *key); // NULL: absent
bool hd_hub_is_below(const char *key, const char *object);            // "rope_scaling.factor" and "rope_scaling"
bool hd_hub_same(const HdHubValue *a, const HdHubValue *b);           // 1e-5 and 0.00001 are; absent (NULL) is null
#endif
