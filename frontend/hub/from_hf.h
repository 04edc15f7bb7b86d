// heddlec --from-hf=DIR: the text of a .hd file for the model that DIR/config.json describes.
#ifndef FRONTEND_HUB_FROM_HF_H
#define FRONTEND_HUB_FROM_HF_H
#include "ir/base/out.h"
#include "ir/ir.h"
#include "runtime/base/hub_config.h"

// false after errors in cx->diags: each names the key and what to do.
bool hd_from_hf(Ctx *cx, const char *dir, Out *out);

// --- what its files share
typedef enum {
    HUB_GPT2 = 1, HUB_LLAMA = 2, HUB_MISTRAL = 4, HUB_QWEN2 = 8, HUB_QWEN3 = 16, HUB_GEMMA2 = 32, HUB_GEMMA3 = 64,
    HUB_MIXTRAL = 128, HUB_OLMOE = 256, HUB_QWEN3_MOE = 512, HUB_MAMBA2 = 1024
} HubFamilies;
enum {
    HUB_QWEN = HUB_QWEN2 | HUB_QWEN3 | HUB_QWEN3_MOE, HUB_GEMMA = HUB_GEMMA2 | HUB_GEMMA3,
    HUB_EXPERTS = HUB_MIXTRAL | HUB_OLMOE | HUB_QWEN3_MOE
};

typedef struct {
    Ctx *cx;
    const char *path;     // of config.json, for messages
    HubFamilies family;
    const char *type, *name, *architecture; // "qwen3", "Qwen3", "Qwen3ForCausalLM"
    HdHubConfig config;
} HubModel;

bool hd_hub_wrong(const HubModel *m, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// A value of the config, or the one that transformers takes where it is absent; NULL: null, or absent without one.
const HdHubValue *hd_hub_value(const HubModel *m, const char *key);
bool hd_hub_true(const HubModel *m, const char *key);
const char *hd_hub_number(const HubModel *m, const char *key);     // as the language writes it; "0" where it is NULL
int64_t hd_hub_integer(const HubModel *m, const char *key);        // 0 where it is NULL
const char *hd_hub_activation(const HubModel *m, const char *key); // the function's name here; NULL after reporting

// The head of the file and of the model, with its arguments: lines of at most 120 characters.
typedef struct { const char *name, *value; } HubArg;
void hd_hub_head(const HubModel *m, int n, const HubArg *args, Out *o);
void hd_hub_train(const HubModel *m, Out *o); // the blocks train and schedule

bool hd_from_gpt2(const HubModel *m, Out *o);    // from_gpt2.c
bool hd_from_mamba2(const HubModel *m, Out *o);  // from_mamba2.c
bool hd_from_decoder(const HubModel *m, Out *o); // from_decoder.c: all others
#endif
