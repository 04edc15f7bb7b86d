// Reads config.json and checks every key of it: what it says is in the model that is written, or means nothing for what
// is computed, or is an error. The defaults are those of transformers, for keys that a config leaves out.
#include "frontend/hub/from_hf.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALL = 2047, DECODER = ALL & ~(HUB_GPT2 | HUB_MAMBA2), WINDOWS = HUB_MISTRAL | HUB_QWEN | HUB_GEMMA
};

static const struct { HubFamilies family; const char *type, *name, *architecture; } families[] = {
    {HUB_GPT2, "gpt2", "GPT2", "GPT2LMHeadModel"},
    {HUB_LLAMA, "llama", "Llama", "LlamaForCausalLM"},
    {HUB_MISTRAL, "mistral", "Mistral", "MistralForCausalLM"},
    {HUB_QWEN2, "qwen2", "Qwen2", "Qwen2ForCausalLM"},
    {HUB_QWEN3, "qwen3", "Qwen3", "Qwen3ForCausalLM"},
    {HUB_GEMMA2, "gemma2", "Gemma2", "Gemma2ForCausalLM"},
    {HUB_GEMMA3, "gemma3_text", "Gemma3", "Gemma3ForCausalLM"},
    {HUB_MIXTRAL, "mixtral", "Mixtral", "MixtralForCausalLM"},
    {HUB_OLMOE, "olmoe", "OLMoE", "OlmoeForCausalLM"},
    {HUB_QWEN3_MOE, "qwen3_moe", "Qwen3Moe", "Qwen3MoeForCausalLM"},
    {HUB_MAMBA2, "mamba2", "Mamba2", "Mamba2ForCausalLM"},
};
enum { FAMILIES = sizeof families / sizeof *families };

// number: where absent, `value` ("": it must be there). text: likewise. must: nothing but `value` is computed, `why`
// says the way out. free: what is computed does not depend on it.
typedef enum { NUMBER, TEXT, TRUTH, MUST, FREE } Use;
static const char EDIT[] = "or change it in a copy of config.json, which makes another model";
static const struct { int families; const char *key; Use use; const char *value, *why; } keys[] = {
    {ALL, "model_type", TEXT, "", NULL},
    {ALL, "vocab_size", NUMBER, "", NULL},
    {ALL & ~HUB_MAMBA2, "initializer_range", NUMBER, "0.02", NULL},
    {HUB_MAMBA2, "initializer_range", NUMBER, "0.1", NULL},
    {HUB_GPT2, "n_positions", NUMBER, "1024", NULL},
    {HUB_GPT2, "n_embd", NUMBER, "768", NULL},
    {HUB_GPT2, "n_layer", NUMBER, "12", NULL},
    {HUB_GPT2, "n_head", NUMBER, "12", NULL},
    {HUB_GPT2, "n_inner", NUMBER, "null", NULL},
    {HUB_GPT2, "activation_function", TEXT, "gelu_new", NULL},
    {HUB_GPT2, "resid_pdrop", NUMBER, "0.1", NULL},
    {HUB_GPT2, "embd_pdrop", NUMBER, "0.1", NULL},
    {HUB_GPT2, "attn_pdrop", NUMBER, "0.1", NULL},
    {HUB_GPT2, "layer_norm_epsilon", NUMBER, "1e-05", NULL},
    {HUB_GPT2, "tie_word_embeddings", MUST, "true", "write `head = Linear(dim, vocab, bias = 0) as \"lm_head\"`"},
    {HUB_GPT2, "scale_attn_weights", MUST, "true", "write `scale = 1.0` into attention(...)"},
    {HUB_GPT2, "scale_attn_by_inverse_layer_idx", MUST, "false", "write `scale` into attention(...), by the layer"},
    {HUB_GPT2, "add_cross_attention", MUST, "false", "decoders alone are written"},
    {HUB_GPT2, "reorder_and_upcast_attn", FREE, NULL, NULL},
    {HUB_GPT2, "n_ctx", FREE, NULL, NULL},
    {HUB_GPT2, "summary_type", FREE, NULL, NULL},
    {HUB_GPT2, "summary_use_proj", FREE, NULL, NULL},
    {HUB_GPT2, "summary_activation", FREE, NULL, NULL},
    {HUB_GPT2, "summary_proj_to_labels", FREE, NULL, NULL},
    {HUB_GPT2, "summary_first_dropout", FREE, NULL, NULL},
    {DECODER | HUB_MAMBA2, "hidden_size", NUMBER, "", NULL},
    {DECODER & ~HUB_QWEN3_MOE, "intermediate_size", NUMBER, "", NULL},
    {HUB_QWEN3_MOE, "intermediate_size", NUMBER, "6144", NULL}, // of layers without experts
    {HUB_QWEN3_MOE, "moe_intermediate_size", NUMBER, "768", NULL},
    {DECODER | HUB_MAMBA2, "num_hidden_layers", NUMBER, "", NULL},
    {DECODER, "num_attention_heads", NUMBER, "", NULL},
    {HUB_LLAMA | HUB_OLMOE, "num_key_value_heads", NUMBER, "null", NULL},
    {HUB_MISTRAL | HUB_MIXTRAL, "num_key_value_heads", NUMBER, "8", NULL},
    {HUB_QWEN2 | HUB_QWEN3, "num_key_value_heads", NUMBER, "32", NULL},
    {HUB_GEMMA | HUB_QWEN3_MOE, "num_key_value_heads", NUMBER, "4", NULL},
    {HUB_LLAMA | HUB_MISTRAL | HUB_QWEN2 | HUB_EXPERTS, "head_dim", NUMBER, "null", NULL},
    {HUB_QWEN3, "head_dim", NUMBER, "128", NULL},
    {HUB_GEMMA, "head_dim", NUMBER, "256", NULL},
    {HUB_LLAMA, "max_position_embeddings", NUMBER, "2048", NULL},
    {HUB_OLMOE, "max_position_embeddings", NUMBER, "4096", NULL},
    {HUB_MISTRAL | HUB_MIXTRAL | HUB_GEMMA3, "max_position_embeddings", NUMBER, "131072", NULL},
    {HUB_QWEN, "max_position_embeddings", NUMBER, "32768", NULL},
    {HUB_GEMMA2, "max_position_embeddings", NUMBER, "8192", NULL},
    {DECODER & ~(HUB_MIXTRAL | HUB_OLMOE), "rms_norm_eps", NUMBER, "1e-06", NULL},
    {HUB_MIXTRAL | HUB_OLMOE, "rms_norm_eps", NUMBER, "1e-05", NULL},
    {DECODER & ~HUB_GEMMA, "hidden_act", TEXT, "silu", NULL},
    {HUB_GEMMA, "hidden_activation", TEXT, "gelu_pytorch_tanh", NULL},
    {HUB_GEMMA, "hidden_act", FREE, NULL, NULL},
    {(DECODER & ~HUB_GEMMA) | HUB_MAMBA2, "tie_word_embeddings", TRUTH, "false", NULL},
    {HUB_GEMMA, "tie_word_embeddings", TRUTH, "true", NULL},
    {DECODER & ~(HUB_GEMMA3 | HUB_MIXTRAL), "rope_theta", NUMBER, "10000.0", NULL},
    {HUB_GEMMA3 | HUB_MIXTRAL, "rope_theta", NUMBER, "1000000.0", NULL},
    {HUB_GEMMA3, "rope_local_base_freq", NUMBER, "10000.0", NULL},
    {DECODER, "rope_scaling", MUST, "null", "it is an object with rope_type, or null"},
    {DECODER, "rope_scaling.rope_type", TEXT, "null", NULL},
    {DECODER, "rope_scaling.factor", NUMBER, "null", NULL},
    {DECODER, "rope_scaling.low_freq_factor", NUMBER, "null", NULL},
    {DECODER, "rope_scaling.high_freq_factor", NUMBER, "null", NULL},
    {DECODER, "rope_scaling.original_max_position_embeddings", NUMBER, "null", NULL},
    {HUB_LLAMA | HUB_QWEN3 | HUB_GEMMA | HUB_OLMOE | HUB_QWEN3_MOE, "attention_bias", TRUTH, "false", NULL},
    {HUB_LLAMA, "mlp_bias", MUST, "false", "give gate, up and down biases in the text of a model without it"},
    {DECODER, "attention_dropout", MUST, "0", "write `dropout` into attention(...)"},
    {HUB_MISTRAL | HUB_QWEN | HUB_GEMMA, "sliding_window", NUMBER, "4096", NULL},
    {HUB_QWEN, "use_sliding_window", TRUTH, "false", NULL},
    {HUB_MIXTRAL, "sliding_window", NUMBER, "null", NULL},
    {HUB_QWEN2 | HUB_QWEN3, "max_window_layers", NUMBER, "28", NULL},
    {HUB_QWEN3_MOE, "max_window_layers", FREE, NULL, NULL},
    {HUB_GEMMA3, "sliding_window_pattern", NUMBER, "6", NULL},
    {HUB_GEMMA3, "_sliding_window_pattern", FREE, NULL, NULL},
    {WINDOWS, "layer_types", FREE, NULL, NULL},
    {HUB_GEMMA, "query_pre_attn_scalar", NUMBER, "256", NULL},
    {HUB_GEMMA2, "final_logit_softcapping", NUMBER, "30.0", NULL},
    {HUB_GEMMA3, "final_logit_softcapping", NUMBER, "null", NULL},
    {HUB_GEMMA2, "attn_logit_softcapping", NUMBER, "50.0", NULL},
    {HUB_GEMMA3, "attn_logit_softcapping", MUST, "null", "write `softcap` into attention(...)"},
    {HUB_GEMMA3, "use_bidirectional_attention", MUST, "false", "attention is causal here"},
    {HUB_LLAMA, "pretraining_tp", FREE, NULL, NULL},
    {HUB_MIXTRAL, "num_local_experts", NUMBER, "8", NULL},
    {HUB_OLMOE, "num_experts", NUMBER, "64", NULL},
    {HUB_QWEN3_MOE, "num_experts", NUMBER, "128", NULL},
    {HUB_QWEN3_MOE, "num_local_experts", NUMBER, "null", NULL}, // the other name of num_experts
    {HUB_MIXTRAL, "num_experts_per_tok", NUMBER, "2", NULL},
    {HUB_OLMOE | HUB_QWEN3_MOE, "num_experts_per_tok", NUMBER, "8", NULL},
    {HUB_OLMOE | HUB_QWEN3_MOE, "norm_topk_prob", TRUTH, "false", NULL},
    {HUB_EXPERTS, "output_router_logits", MUST, "false", "add a balancing loss as examples/moe/olmoe.hd has it"},
    {HUB_EXPERTS, "router_aux_loss_coef", FREE, NULL, NULL},
    {HUB_MIXTRAL, "router_jitter_noise", MUST, "0", "a router here draws nothing"},
    {HUB_OLMOE, "clip_qkv", NUMBER, "null", NULL},
    {HUB_QWEN3_MOE, "decoder_sparse_step", NUMBER, "1", NULL},
    {HUB_QWEN3_MOE, "mlp_only_layers", MUST, "null", NULL},
    {HUB_MAMBA2, "num_heads", NUMBER, "128", NULL},
    {HUB_MAMBA2, "head_dim", NUMBER, "64", NULL},
    {HUB_MAMBA2, "state_size", NUMBER, "128", NULL},
    {HUB_MAMBA2, "n_groups", NUMBER, "8", NULL},
    {HUB_MAMBA2, "conv_kernel", NUMBER, "4", NULL},
    {HUB_MAMBA2, "expand", NUMBER, "2", NULL},
    {HUB_MAMBA2, "chunk_size", NUMBER, "256", NULL},
    {HUB_MAMBA2, "layer_norm_epsilon", NUMBER, "1e-05", NULL},
    {HUB_MAMBA2, "hidden_act", MUST, "silu", "conv1d(.., silu = true) has no other one"},
    {HUB_MAMBA2, "use_bias", TRUTH, "false", NULL},
    {HUB_MAMBA2, "use_conv_bias", TRUTH, "true", NULL},
    {HUB_MAMBA2, "rms_norm", MUST, "true", "write y * silu(z) instead of its norm"},
    {HUB_MAMBA2, "norm_before_gate", FREE, NULL, NULL}, // transformers does not read it
    {HUB_MAMBA2, "time_step_limit.0", MUST, "0", "write max(.., low) around softplus(...)"},
    {HUB_MAMBA2, "time_step_limit.1", MUST, "Infinity", "write min(.., high) around softplus(...)"},
    {HUB_MAMBA2, "time_step_rank", FREE, NULL, NULL}, // of initial values, as the next ones
    {HUB_MAMBA2, "time_step_min", FREE, NULL, NULL},
    {HUB_MAMBA2, "time_step_max", FREE, NULL, NULL},
    {HUB_MAMBA2, "time_step_floor", FREE, NULL, NULL},
    {HUB_MAMBA2, "rescale_prenorm_residual", FREE, NULL, NULL},
    {HUB_MAMBA2, "residual_in_fp32", FREE, NULL, NULL}, // train.precision.compute says it here
    {ALL, "quantization_config", MUST, "null", "take the weights in f32, bf16 or f16"},
    {ALL, "architectures", FREE, NULL, NULL},
    {ALL, "torch_dtype", FREE, NULL, NULL},
    {ALL, "dtype", FREE, NULL, NULL},
    {ALL, "transformers_version", FREE, NULL, NULL},
    {ALL, "use_cache", FREE, NULL, NULL},
    {ALL, "cache_implementation", FREE, NULL, NULL},
    {ALL, "bos_token_id", FREE, NULL, NULL},
    {ALL, "eos_token_id", FREE, NULL, NULL},
    {ALL, "pad_token_id", FREE, NULL, NULL},
    {ALL, "task_specific_params", FREE, NULL, NULL},
    {ALL, "_name_or_path", FREE, NULL, NULL},
    {ALL, "_attn_implementation", FREE, NULL, NULL},
    {ALL, "output_attentions", FREE, NULL, NULL},
    {ALL, "output_hidden_states", FREE, NULL, NULL},
    {ALL, "return_dict", FREE, NULL, NULL},
    {ALL, "id2label", FREE, NULL, NULL},
    {ALL, "label2id", FREE, NULL, NULL},
    {ALL, "problem_type", FREE, NULL, NULL},
    {ALL, "chunk_size_feed_forward", FREE, NULL, NULL},
    {ALL, "is_encoder_decoder", FREE, NULL, NULL},
};
enum { KEYS = sizeof keys / sizeof *keys };

bool hd_hub_wrong(const HubModel *m, const char *key, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *what = hd_vsprintf(m->cx->arena, fmt, ap);
    va_end(ap);
    return hd_error(m->cx, (Span){0}, "%s: \"%s\" %s", m->path, key, what);
}

// --- values

static int row_of(const HubModel *m, const char *key) { // also of what is below an object or a list; -1: unknown
    for (int i = 0; i < KEYS; i++)
        if ((keys[i].families & (int)m->family) && !strcmp(keys[i].key, key)) return i;
    for (int i = 0; i < KEYS; i++)
        if ((keys[i].families & (int)m->family) && hd_hub_is_below(key, keys[i].key)) return i;
    return -1;
}

static const HdHubValue *absent(const HubModel *m, const char *key) { // what stands in a row for it
    const int i = row_of(m, key);
    const char *text = i < 0 ? NULL : keys[i].value;
    if (!text || !*text || !strcmp(text, "null")) return NULL;
    HdHubValue *v = HD_NEW(m->cx->arena, HdHubValue);
    const bool truth = !strcmp(text, "true") || !strcmp(text, "false");
    const bool number = strspn(text, "0123456789.e-") == strlen(text) || !strcmp(text, "Infinity");
    *v = (HdHubValue){(char *)(uintptr_t)key, (char *)(uintptr_t)text,
                      truth ? HD_HUB_TRUTH : number ? HD_HUB_NUMBER : HD_HUB_TEXT};
    return v;
}

const HdHubValue *hd_hub_value(const HubModel *m, const char *key) {
    const HdHubValue *v = hd_hub_find(&m->config, key);
    if (!v) return absent(m, key);
    return v->kind == HD_HUB_NULL ? NULL : v;
}

bool hd_hub_true(const HubModel *m, const char *key) {
    const HdHubValue *v = hd_hub_value(m, key);
    return v && !strcmp(v->text, "true");
}

const char *hd_hub_number(const HubModel *m, const char *key) {
    const HdHubValue *v = hd_hub_value(m, key);
    Out o = hd_out(m->cx->arena);
    if (!v) return "0";
    if (!strpbrk(v->text, ".eE")) return v->text;
    hd_put_float(&o, strtod(v->text, NULL));
    return o.text;
}

int64_t hd_hub_integer(const HubModel *m, const char *key) {
    const HdHubValue *v = hd_hub_value(m, key);
    return v ? strtoll(v->text, NULL, 10) : 0;
}

const char *hd_hub_activation(const HubModel *m, const char *key) {
    static const struct { const char *there, *here; } names[] = {
        {"silu", "silu"}, {"swish", "silu"}, {"gelu_new", "gelu"}, {"gelu_pytorch_tanh", "gelu"}, {"gelu", "gelu_erf"},
        {"relu", "relu"}, {"sigmoid", "sigmoid"}, {"tanh", "tanh"}};
    const HdHubValue *v = hd_hub_value(m, key);
    for (size_t i = 0; v && i < sizeof names / sizeof *names; i++)
        if (!strcmp(v->text, names[i].there)) return names[i].here;
    hd_hub_wrong(m, key, "is %s, which is no function here: there are silu, gelu_new, gelu_pytorch_tanh, gelu, relu, "
                 "sigmoid and tanh; write another one into the text of a model with one of these",
                 v ? v->text : "null");
    return NULL;
}

// --- checks

static bool check_number(const HubModel *m, const HdHubValue *v) {
    const double x = v->kind == HD_HUB_NUMBER ? strtod(v->text, NULL) : -1;
    const bool whole = !strpbrk(v->text, ".eE"), fits = whole ? x < 0x1p31 : x < 1e30;
    if (x >= 0 && fits) return true;
    return hd_hub_wrong(m, v->key, "is %s: a number of at least 0 is expected", v->text);
}

static bool check_key(const HubModel *m, const HdHubValue *v) {
    const int i = row_of(m, v->key);
    const bool below = i >= 0 && strcmp(keys[i].key, v->key) != 0;
    if (v->kind == HD_HUB_NULL) return i < 0 || !keys[i].value || *keys[i].value ||
                                       hd_hub_wrong(m, v->key, "is null: a value is expected");
    if (i < 0)
        return hd_hub_wrong(m, v->key, "is no key that heddlec knows of %s: if the model computes the same without it, "
                            "take it out of a copy of config.json", m->type);
    if (keys[i].use == FREE) return true;
    if (keys[i].use == NUMBER && !below) return check_number(m, v);
    if (keys[i].use == TEXT || keys[i].use == TRUTH) {
        const HdHubKind want = keys[i].use == TEXT ? HD_HUB_TEXT : HD_HUB_TRUTH;
        return (v->kind == want && !below) ||
               hd_hub_wrong(m, v->key, "is %s: %s is expected", v->text,
                            want == HD_HUB_TEXT ? "text" : "true or false");
    }
    if (!keys[i].why) return true; // checked where it is written
    if (keys[i].use == MUST && !below && hd_hub_same(v, absent(m, v->key))) return true;
    if (!strcmp(v->text, "[]") && !strcmp(keys[i].value, "null")) return true; // an empty list says as much
    return hd_hub_wrong(m, v->key, "is %s, and only %s is written: %s, %s", v->text, keys[i].value,
                        keys[i].why ? keys[i].why : "", EDIT);
}

static bool check_keys(const HubModel *m) {
    bool ok = true;
    for (int i = 0; i < m->config.n; i++) ok &= check_key(m, &m->config.at[i]);
    for (int i = 0; i < KEYS; i++)
        if ((keys[i].families & (int)m->family) && keys[i].value && !*keys[i].value &&
            !hd_hub_find(&m->config, keys[i].key))
            ok = hd_hub_wrong(m, keys[i].key, "is missing: a config.json of %s says it", m->type);
    const HdHubValue *a = hd_hub_find(&m->config, "architectures.0");
    if (a && strcmp(a->text, m->architecture) != 0)
        ok = hd_hub_wrong(m, "architectures", "is %s: of %s only %s is written, whose loss is that of the next token",
                          a->text, m->type, m->architecture);
    return ok;
}

static bool find_family(HubModel *m) {
    Out all = hd_out(m->cx->arena);
    const HdHubValue *type = hd_hub_find(&m->config, "model_type");
    for (int i = 0; i < FAMILIES; i++) {
        hd_printf(&all, "%s%s", !i ? "" : i + 1 < FAMILIES ? ", " : " and ", families[i].type);
        if (!type || strcmp(type->text, families[i].type) != 0) continue;
        m->family = families[i].family;
        m->type = families[i].type;
        m->name = families[i].name;
        m->architecture = families[i].architecture;
        return true;
    }
    if (!type) return hd_hub_wrong(m, "model_type", "is missing: it names the family of the model, such as gpt2");
    if (!strcmp(type->text, "gemma3"))
        return hd_hub_wrong(m, "model_type", "is gemma3, which also sees pictures: write \"text_config\" of this file "
                            "as config.json of another folder, with \"model_type\": \"gemma3_text\", and read the "
                            "weights with --init-rename=language_model.= --init-ignore='vision_tower.*' "
                            "--init-ignore='multi_modal_projector.*'");
    return hd_hub_wrong(m, "model_type", "is %s: models of %s are written; for another one write the .hd file by hand, "
                        "with the names of its tensors (frontend/LANGUAGE.md)", type->text, all.text);
}

// --- text that all families have

void hd_hub_head(const HubModel *m, int n, const HubArg *args, Out *o) {
    enum { WIDTH = 118 };
    hd_show(o, "// %s, with the sizes of %s and the names of Hugging Face's %s in files of weights.\n", m->name,
            m->path, m->architecture);
    hd_printf(o, "// Written by heddlec --from-hf.\nmodel %s(", m->name);
    const size_t indent = strlen(m->name) + 7;
    size_t column = indent;
    for (int i = 0; i < n; i++) {
        const size_t more = strlen(args[i].name) + strlen(args[i].value) + 6;
        if (column + more > WIDTH) hd_printf(o, "\n%*s", (int)indent, ""), column = indent;
        hd_printf(o, "%s = %s%s", args[i].name, args[i].value, i + 1 < n ? ", " : ") {\n");
        column += more;
    }
}

void hd_hub_train(const HubModel *m, Out *o) {
    hd_printf(o, "\ntrain %s {\n  batch = 1;\n  clip = 1.0;\n  precision { compute = bf16; }\n  optimizer adamw {\n"
              "    lr = cosine(2e-5, warmup = 100, total = 2000, floor = 2e-6);\n    betas = 0.9, 0.95;\n"
              "    weight_decay = 0.1;\n  }\n}\n\nschedule %s {\n  fsdp none { unit Block; }\n  graph step;\n}\n",
              m->name, m->name);
}

bool hd_from_hf(Ctx *cx, const char *dir, Out *out) {
    size_t n = 0;
    HubModel m = {.cx = cx, .path = hd_sprintf(cx->arena, "%s/config.json", dir)};
    const char *text = hd_read_file(cx->arena, m.path, &n);
    if (!text)
        return hd_error(cx, (Span){0}, "cannot read '%s': %s: --from-hf takes the folder of a model of Hugging Face, "
                        "as 'hf download NAME --local-dir=FOLDER' makes one", m.path, strerror(errno));
    if (!hd_hub_read(&m.config, text, n)) return hd_error(cx, (Span){0}, "'%s' is not JSON, or no object", m.path);
    const bool ok = find_family(&m) && check_keys(&m) &&
                    (m.family == HUB_GPT2     ? hd_from_gpt2(&m, out)
                     : m.family == HUB_MAMBA2 ? hd_from_mamba2(&m, out)
                                              : hd_from_decoder(&m, out));
    hd_hub_free(&m.config);
    return ok && !cx->diags.errors;
}
