// The text of Llama (Touvron et al. 2023) and of what came after it: Mistral, Qwen2, Qwen3, Gemma 2 and Gemma 3, and
// Mixtral, OLMoE and Qwen3-MoE with their experts. One text serves all; the parts in which they differ are left out or
// written as the config says.
#include "frontend/hub/from_hf.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_SEQ = 4096 }; // tokens of a sequence unless --set seq says more: what a model could take may not fit

typedef struct {
    const HubModel *m;
    Out *o;
    bool gemma, head_norms, wide_norms, bias, out_bias, scaled, linear, llama3, tied, windows, experts;
    const char *pattern; // of layers with a window (S) and without (F), the shortest one; NULL: all are alike
    const char *mlps; // of layers with experts (E) and without (D), the shortest one; NULL: all are alike
    bool clips;       // q, k and v
    const char *act;
} Decoder;

// --- what the config asks for

static bool slides(const HubModel *m, int64_t i) {
    const HdHubValue *said = hd_hub_find(&m->config, hd_sprintf(m->cx->arena, "layer_types.%lld", (long long)i));
    const int64_t period = hd_hub_integer(m, "sliding_window_pattern");
    if (said) return !strcmp(said->text, "sliding_attention");
    switch ((int)m->family) {
    case HUB_LLAMA: case HUB_OLMOE: return false;
    case HUB_MISTRAL: case HUB_MIXTRAL: case HUB_QWEN3_MOE: return true;
    case HUB_GEMMA2: return i % 2 == 0;
    case HUB_GEMMA3: return !period || (i + 1) % period != 0;
    default: return i >= hd_hub_integer(m, "max_window_layers");
    }
}

static bool check_layer_types(const HubModel *m, int64_t layers) {
    int64_t n = 0;
    for (int i = 0; i < m->config.n; i++) {
        const HdHubValue *v = &m->config.at[i];
        if (!hd_hub_is_below(v->key, "layer_types")) continue;
        n++;
        if (strcmp(v->text, "sliding_attention") != 0 && strcmp(v->text, "full_attention") != 0)
            return hd_hub_wrong(m, v->key, "is %s: layers of sliding_attention and full_attention are written; another "
                                "kind of layer is text of your own", v->text);
    }
    return !n || n == layers ||
           hd_hub_wrong(m, "layer_types", "has %lld layers and \"num_hidden_layers\" is %lld: make them one number",
                        (long long)n, (long long)layers);
}

static const char *shortest(const HubModel *m, const char *all, int64_t layers) { // pattern that repeats
    int64_t period = 1;
    while (period < layers && strncmp(all, all + period, (size_t)(layers - period)) != 0) period++;
    return hd_strndup(m->cx->arena, all, (size_t)period);
}

static bool find_windows(Decoder *d) {
    enum { MOST_LAYERS = 10000 };
    const HubModel *m = d->m;
    const int64_t layers = hd_hub_integer(m, "num_hidden_layers");
    if (layers < 1 || layers > MOST_LAYERS)
        return hd_hub_wrong(m, "num_hidden_layers", "is %lld: 1 to %d are expected", (long long)layers, MOST_LAYERS);
    if (!check_layer_types(m, layers)) return false;
    const bool off = (m->family & HUB_QWEN) && !hd_hub_true(m, "use_sliding_window");
    char *all = hd_strndup(m->cx->arena, "", 0);
    if (off || (m->family & (HUB_LLAMA | HUB_OLMOE)) || !hd_hub_integer(m, "sliding_window")) return true;
    all = HD_NEWN(m->cx->arena, char, layers + 1);
    for (int64_t i = 0; i < layers; i++) all[i] = slides(m, i) ? 'S' : 'F';
    d->windows = strchr(all, 'S') != NULL;
    if (strchr(all, 'S') && strchr(all, 'F')) d->pattern = shortest(m, all, layers);
    return true;
}

static const char *experts_key(const HubModel *m) { // of the two names that a config may have for it
    return m->family == HUB_MIXTRAL || hd_hub_value(m, "num_local_experts") ? "num_local_experts" : "num_experts";
}

// The layers whose MLP is one of experts, by transformers' rule: not those of "mlp_only_layers", and of the others each
// one whose number, from 1, "decoder_sparse_step" divides.
static bool find_experts(Decoder *d) {
    const HubModel *m = d->m;
    const int64_t layers = hd_hub_integer(m, "num_hidden_layers"), step = hd_hub_integer(m, "decoder_sparse_step");
    const HdHubValue *only = hd_hub_value(m, "mlp_only_layers");
    char *all = HD_NEWN(m->cx->arena, char, layers + 1);
    if (m->family != HUB_QWEN3_MOE) return true;
    if (step < 1) return hd_hub_wrong(m, "decoder_sparse_step", "is 0: a number of at least 1 is expected");
    if (only && strcmp(only->text, "[]") != 0)
        return hd_hub_wrong(m, "mlp_only_layers", "is %s: a list of numbers of layers is expected", only->text);
    const bool some = hd_hub_integer(m, experts_key(m)) > 0;
    for (int64_t i = 0; i < layers; i++) all[i] = some && (i + 1) % step == 0 ? 'E' : 'D';
    for (int i = 0; i < m->config.n; i++) {
        const HdHubValue *v = &m->config.at[i];
        if (!hd_hub_is_below(v->key, "mlp_only_layers")) continue;
        char *end;
        const long long layer = strtoll(v->text, &end, 10);
        if (v->kind != HD_HUB_NUMBER || *end || layer < 0 || layer >= layers)
            return hd_hub_wrong(m, v->key, "is %s: numbers of layers, from 0 to %lld, are expected", v->text,
                                (long long)layers - 1);
        all[layer] = 'D';
    }
    d->experts = strchr(all, 'E') != NULL;
    if (d->experts && strchr(all, 'D')) d->mlps = shortest(m, all, layers);
    return true;
}

static bool find_scaling(Decoder *d) {
    static const char *const parts[] = {"rope_scaling.factor", "rope_scaling.low_freq_factor",
                                        "rope_scaling.high_freq_factor",
                                        "rope_scaling.original_max_position_embeddings"};
    const HdHubValue *type = hd_hub_value(d->m, "rope_scaling.rope_type");
    if (!type) return true;
    d->llama3 = !strcmp(type->text, "llama3");
    d->linear = !strcmp(type->text, "linear");
    d->scaled = true;
    if (!d->llama3 && !d->linear)
        return hd_hub_wrong(d->m, type->key, "is %s: rotations are scaled as llama3 or linear; \"rope_scaling\": null "
                            "in a copy of config.json is right up to the length without scaling", type->text);
    bool ok = true;
    for (int i = 0; i < (d->llama3 ? 4 : 1); i++)
        if (!hd_hub_value(d->m, parts[i]))
            ok = hd_hub_wrong(d->m, parts[i], "is missing: \"rope_type\": \"%s\" needs it", type->text);
    return ok;
}

// --- text

static const char *hidden_key(const Decoder *d) {
    return d->m->family == HUB_QWEN3_MOE && d->experts ? "moe_intermediate_size" : "intermediate_size";
}

static bool caps_scores(const HubModel *m) {
    return m->family == HUB_GEMMA2 && hd_hub_value(m, "attn_logit_softcapping");
}

static void put_head(const Decoder *d) {
    const HubModel *m = d->m;
    HubArg args[28];
    int n = 0;
    const bool kv = hd_hub_value(m, "num_key_value_heads") != NULL, size = hd_hub_value(m, "head_dim") != NULL;
    const char *seq = hd_hub_integer(m, "max_position_embeddings") > MOST_SEQ ? "4096" : "positions";
    args[n++] = (HubArg){"vocab", hd_hub_number(m, "vocab_size")};
    args[n++] = (HubArg){"layers", hd_hub_number(m, "num_hidden_layers")};
    args[n++] = (HubArg){"heads", hd_hub_number(m, "num_attention_heads")};
    args[n++] = (HubArg){"kv_heads", kv ? hd_hub_number(m, "num_key_value_heads") : "heads"};
    args[n++] = (HubArg){"dim", hd_hub_number(m, "hidden_size")};
    args[n++] = (HubArg){"head_dim", size ? hd_hub_number(m, "head_dim") : "dim/heads"};
    args[n++] = (HubArg){"hidden", hd_hub_number(m, hidden_key(d))};
    if (d->mlps) args[n++] = (HubArg){"wide", hd_hub_number(m, "intermediate_size")};
    if (d->experts) {
        args[n++] = (HubArg){"experts", hd_hub_number(m, experts_key(m))};
        args[n++] = (HubArg){"active", hd_hub_number(m, "num_experts_per_tok")};
    }
    args[n++] = (HubArg){"positions", hd_hub_number(m, "max_position_embeddings")};
    args[n++] = (HubArg){"seq", seq};
    args[n++] = (HubArg){"theta", hd_hub_number(m, "rope_theta")};
    if (m->family == HUB_GEMMA3) args[n++] = (HubArg){"local_theta", hd_hub_number(m, "rope_local_base_freq")};
    if (d->scaled) args[n++] = (HubArg){"factor", hd_hub_number(m, "rope_scaling.factor")};
    if (d->llama3) {
        args[n++] = (HubArg){"low_freq", hd_hub_number(m, "rope_scaling.low_freq_factor")};
        args[n++] = (HubArg){"high_freq", hd_hub_number(m, "rope_scaling.high_freq_factor")};
        args[n++] = (HubArg){"original", hd_hub_number(m, "rope_scaling.original_max_position_embeddings")};
    }
    if (d->windows) args[n++] = (HubArg){"window", hd_hub_number(m, "sliding_window")};
    if (d->pattern) args[n++] = (HubArg){"pattern", hd_sprintf(m->cx->arena, "\"%s\"", d->pattern)};
    if (d->mlps) args[n++] = (HubArg){"mlps", hd_sprintf(m->cx->arena, "\"%s\"", d->mlps)};
    if (d->clips) args[n++] = (HubArg){"clip", hd_hub_number(m, "clip_qkv")};
    if (d->gemma) args[n++] = (HubArg){"query_scalar", hd_hub_number(m, "query_pre_attn_scalar")};
    if (caps_scores(m)) args[n++] = (HubArg){"score_cap", hd_hub_number(m, "attn_logit_softcapping")};
    if (hd_hub_value(m, "final_logit_softcapping"))
        args[n++] = (HubArg){"softcap", hd_hub_number(m, "final_logit_softcapping")};
    args[n++] = (HubArg){"eps", hd_hub_number(m, "rms_norm_eps")};
    args[n++] = (HubArg){"std", hd_hub_number(m, "initializer_range")};
    hd_hub_head(m, n, args, d->o);
}

static void put_attention_params(const Decoder *d) {
    static const struct { const char *name, *file, *rows, *cols, *std; } matrices[] = {
        {"q", "q_proj", "heads*head_dim", "dim", "std"}, {"k", "k_proj", "kv_heads*head_dim", "dim", "std"},
        {"v", "v_proj", "kv_heads*head_dim", "dim", "std"},
        {"o", "o_proj", "dim", "heads*head_dim", "std/sqrt(2*layers)"}};
    for (int i = 0; i < 4; i++) {
        hd_printf(d->o, "    param w%s: [%s, %s] = normal(%s) as \"model.layers.{i}.self_attn.%s.weight\";\n",
                  matrices[i].name, matrices[i].rows, matrices[i].cols, matrices[i].std, matrices[i].file);
        if (i < 3 ? d->bias : d->out_bias)
            hd_printf(d->o, "    param b%s: [%s] = zeros as \"model.layers.{i}.self_attn.%s.bias\";\n",
                      matrices[i].name, matrices[i].rows, matrices[i].file);
    }
    for (int i = 0; (d->head_norms || d->wide_norms) && i < 2; i++)
        hd_printf(d->o, "    param %s_norm: [%s] = %s as \"model.layers.{i}.self_attn.%s_norm.weight\";\n",
                  matrices[i].name, d->wide_norms ? matrices[i].rows : "head_dim", d->gemma ? "zeros" : "ones",
                  matrices[i].name);
}

static void put_rotation(const Decoder *d) {
    const bool local = d->m->family == HUB_GEMMA3 && d->windows;
    const char *scaling = d->llama3 ? "[factor, low_freq, high_freq, original]" : "[factor, 1e9, 2e9, 1]";
    const char *theta = !local ? "theta" : d->pattern ? "sliding ? local_theta : theta" : "local_theta";
    if (d->linear) hd_puts(d->o, "    // linear: everything turns slower by the factor, as nothing turns 1e9 times\n");
    hd_printf(d->o, "    fn turned(x, count) {\n");
    if (d->scaled && local && d->pattern)
        hd_printf(d->o, "      if sliding { return rope(x, count, local_theta); }\n"
                  "      return rope(x, count, theta, scaling = %s);\n", scaling);
    else if (d->scaled && !local) hd_printf(d->o, "      return rope(x, count, %s, scaling = %s);\n", theta, scaling);
    else hd_printf(d->o, "      return rope(x, count, %s);\n", theta);
    hd_puts(d->o, "    }\n");
}

static void put_attention(const Decoder *d) {
    Out *o = d->o;
    hd_printf(o, "  module Attention%s {\n", d->pattern ? "(sliding)" : "");
    put_attention_params(d);
    put_rotation(d);
    if (d->head_norms)
        hd_printf(o, "    fn normed(x, count, weight) {                  // each head on its own\n"
                  "      let each = rms_norm(reshape(x, [batch, seq, count, head_dim]), %sweight, eps);\n"
                  "      return reshape(each, [batch, seq, count*head_dim]);\n    }\n", d->gemma ? "1 + " : "");
    if (d->clips) hd_puts(o, "    fn clipped(x) { return max(min(x, clip), -clip); }\n");
    hd_puts(o, "    fn forward(x) {\n");
    for (int i = 0; i < 2; i++) {
        const char *n = i ? "k" : "q", *count = i ? "kv_heads" : "heads", *b = d->bias ? i ? ", bk" : ", bq" : "";
        if (d->head_norms)
            hd_printf(o, "      let %s = turned(normed(linear(x, w%s%s), %s, %s_norm), %s);\n", n, n, b, count, n,
                      count);
        else if (d->wide_norms)
            hd_printf(o, "      let %s = turned(%srms_norm(linear(x, w%s%s), %s_norm, eps)%s, %s);\n", n,
                      d->clips ? "clipped(" : "", n, b, n, d->clips ? ")" : "", count);
        else hd_printf(o, "      let %s = turned(linear(x, w%s%s), %s);\n", n, n, b, count);
    }
    hd_printf(o, d->clips ? "      let v = clipped(linear(x, wv%s));\n" : "      let v = linear(x, wv%s);\n",
              d->bias ? ", bv" : "");
    hd_puts(o, "      let a = attention(q, k, v, heads = heads, kv_heads = kv_heads, causal = true");
    if (d->gemma) hd_puts(o, ", scale = 1/sqrt(query_scalar)");
    if (caps_scores(d->m)) hd_puts(o, ",\n                        softcap = score_cap");
    if (d->windows)
        hd_printf(o, ",\n                        window = %s",
                  d->pattern ? "sliding ? min(window, seq) : seq" : "min(window, seq)");
    hd_printf(o, ");\n      return linear(a, wo%s);\n    }\n  }\n", d->out_bias ? ", bo" : "");
}

static void put_mlp(const Decoder *d) {
    const char *wide = d->mlps ? "wide" : "hidden";
    hd_printf(d->o,
              "  module Mlp {\n"
              "    param gate: [%s, dim] = normal(std) as \"model.layers.{i}.mlp.gate_proj.weight\";\n"
              "    param up: [%s, dim] = normal(std) as \"model.layers.{i}.mlp.up_proj.weight\";\n"
              "    param down: [dim, %s] = normal(std/sqrt(2*layers)) as "
              "\"model.layers.{i}.mlp.down_proj.weight\";\n"
              "    fn forward(x) {\n"
              "      let act = %s(linear(x, gate)) * linear(x, up);\n"
              "      return linear(act, down);\n"
              "    }\n"
              "  }\n", wide, wide, wide, d->act);
}

// Every token goes through the `active` experts with the largest probabilities; none is dropped.
static void put_experts(const Decoder *d) {
    static const struct { const char *name, *shape, *std, *here, *there; } matrices[] = {
        {"gate", "hidden, dim", "std", "gate_proj", "w1"}, {"up", "hidden, dim", "std", "up_proj", "w3"},
        {"down", "dim, hidden", "std/sqrt(2*layers)", "down_proj", "w2"}};
    const bool mixtral = d->m->family == HUB_MIXTRAL, normed = mixtral || hd_hub_true(d->m, "norm_topk_prob");
    const char *of = mixtral ? "block_sparse_moe" : "mlp";
    hd_printf(d->o, "  module %s {\n"
              "    param router: [experts, dim] = normal(std) as \"model.layers.{i}.%s.gate.weight\";\n",
              d->mlps ? "Experts" : "Mlp", of);
    for (int i = 0; i < 3; i++)
        hd_printf(d->o, "    param %s: [experts over expert, %s] = normal(%s)\n"
                  "      as \"model.layers.{i}.%s.experts.{n}.%s.weight\";\n", matrices[i].name, matrices[i].shape,
                  matrices[i].std, of, mixtral ? matrices[i].there : matrices[i].here);
    hd_puts(d->o, "    fn forward(x) {\n"
            "      let share, chosen = top_k(softmax(float(linear(x, router))), active);\n");
    if (normed) hd_puts(d->o, "      let weight = share / sum(share, axes = 2, keep = true);\n");
    hd_printf(d->o, "      let source, slots, counts = dispatch(chosen, experts);\n"
              "      let rows = take(x, source);\n"
              "      let act = %s(grouped(rows, gate, counts)) * grouped(rows, up, counts);\n"
              "      return combine(grouped(act, down, counts), slots, %s);\n"
              "    }\n"
              "  }\n", d->act, normed ? "weight" : "share");
}

static void put_block(const Decoder *d) {
    static const char *const names[] = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                                        "post_feedforward_layernorm"};
    const char *norm = d->gemma ? "Norm" : "RMSNorm(dim, eps)";
    if (d->gemma)
        hd_puts(d->o, "  module Norm {                                    // the weight is the distance from 1\n"
                "    param weight: [dim] = zeros;\n    fn forward(x) { return rms_norm(x, 1 + weight, eps); }\n  }\n");
    hd_printf(d->o, "  module Block%s {\n", d->pattern && d->mlps ? "(sliding, dense)"
                                             : d->pattern          ? "(sliding)"
                                             : d->mlps             ? "(dense)"
                                                                   : "");
    for (int i = 0; i < (d->gemma ? 4 : 2); i++)
        hd_printf(d->o, "    norm%d = %s as \"model.layers.{i}.%s\";\n", i + 1, norm, names[i]);
    hd_printf(d->o, "    attn = Attention%s;\n", d->pattern ? "(sliding)" : "");
    hd_puts(d->o, d->mlps ? "    if dense { mlp = Mlp; } else { mlp = Experts; }\n" : "    mlp = Mlp;\n");
    hd_puts(d->o, "    fn forward(x) {\n");
    if (d->gemma) hd_puts(d->o, "      let h = x + norm2(attn(norm1(x)));\n      return h + norm4(mlp(norm3(h)));\n");
    else hd_puts(d->o, "      let h = x + attn(norm1(x));\n      return h + mlp(norm2(h));\n");
    hd_puts(d->o, "    }\n  }\n");
}

static void put_loss(const Decoder *d) {
    Out *o = d->o;
    const bool cap = hd_hub_value(d->m, "final_logit_softcapping") != NULL;
    const char *head = d->tied ? "wte" : "head";
    hd_puts(o, "  module Table { param weight: [vocab, dim] = normal(std); }\n"
            "  wte = Table as \"model.embed_tokens\";\n");
    if (!d->tied) hd_puts(o, "  head = Table as \"lm_head\";\n");
    const char *slides_here = d->pattern ? "pattern[i % size(pattern)] == \"S\"" : "",
               *dense_here = d->mlps ? "mlps[i % size(mlps)] == \"D\"" : "";
    if (d->pattern || d->mlps)
        hd_printf(o, "  blocks = repeat(i < layers) Block(%s%s%s);\n", slides_here, d->pattern && d->mlps ? ", " : "",
                  dense_here);
    else hd_puts(o, "  blocks = repeat(layers) Block;\n");
    hd_printf(o, "  norm = %s as \"model.norm\";\n\n", d->gemma ? "Norm" : "RMSNorm(dim, eps)");
    hd_printf(o, "  fn logits(tokens: i32[batch, seq]) {\n"
              "    let x = embedding(wte.weight, tokens)%s;\n"
              "    let y = matmul(norm(blocks(x)), transpose(%s.weight));\n",
              d->gemma ? " * sqrt(dim)" : "", head);
    hd_printf(o, "    return %s;\n  }\n"
              "  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {\n"
              "    return cross_entropy(logits(tokens), targets);\n  }\n",
              cap ? "softcap * tanh(y / softcap)" : "y");
}

static void put_dense(const Decoder *d) { // which layers have no experts, as config.json says it
    int n = 0;
    if (d->mlps) hd_puts(d->o, "           [\"intermediate_size\", wide],\n");
    else hd_printf(d->o, "           [\"num_experts\", %lld],\n", (long long)hd_hub_integer(d->m, experts_key(d->m)));
    hd_printf(d->o, "           [\"decoder_sparse_step\", %lld],\n",
              (long long)hd_hub_integer(d->m, "decoder_sparse_step"));
    for (int i = 0; i < d->m->config.n; i++)
        if (hd_hub_is_below(d->m->config.at[i].key, "mlp_only_layers"))
            hd_printf(d->o, "%s%s", n++ ? ", " : "           [\"mlp_only_layers\", [", d->m->config.at[i].text);
    if (n) hd_puts(d->o, "]],\n");
}

static void put_config(const Decoder *d) {
    const HubModel *m = d->m;
    Out *o = d->o;
    const char *act = d->gemma ? "hidden_activation" : "hidden_act";
    const bool null = hd_hub_find(&m->config, "head_dim") && !hd_hub_value(m, "head_dim");
    hd_printf(o, "  fn huggingface() {\n    return [\"architectures\", [\"%s\"]], [\"model_type\", \"%s\"],\n",
              m->architecture, m->type);
    hd_printf(o, "           [\"vocab_size\", vocab], [\"hidden_size\", dim], [\"%s\", hidden],\n"
              "           [\"num_hidden_layers\", layers], [\"num_attention_heads\", heads],\n"
              "           [\"num_key_value_heads\", kv_heads], [\"head_dim\", %s],\n"
              "           [\"max_position_embeddings\", positions], [\"rms_norm_eps\", eps],\n", hidden_key(d),
              null ? "head_dim == dim/heads ? \"null\" : head_dim" : "head_dim");
    if (d->experts)
        hd_printf(o, "           [\"%s\", experts], [\"num_experts_per_tok\", active],\n", experts_key(m));
    if (d->clips) hd_puts(o, "           [\"clip_qkv\", clip],\n");
    if (d->mlps || (m->family == HUB_QWEN3_MOE && !d->experts)) put_dense(d);
    if (m->family & (HUB_OLMOE | HUB_QWEN3_MOE))
        hd_printf(o, "           [\"norm_topk_prob\", \"%s\"],\n",
                  hd_hub_true(m, "norm_topk_prob") ? "true" : "false");
    hd_printf(o, "           [\"initializer_range\", std], [\"%s\", \"%s\"], [\"tie_word_embeddings\", \"%s\"],\n", act,
              hd_hub_value(m, act)->text, d->tied ? "true" : "false");
    if (m->family & (HUB_LLAMA | HUB_QWEN3 | HUB_GEMMA | HUB_OLMOE | HUB_QWEN3_MOE))
        hd_printf(o, "           [\"attention_bias\", \"%s\"],\n", d->out_bias ? "true" : "false");
    if (m->family & HUB_QWEN)
        hd_printf(o, "           [\"use_sliding_window\", \"%s\"],\n", d->windows ? "true" : "false");
    if (m->family == HUB_GEMMA3) hd_puts(o, "           [\"rope_local_base_freq\", local_theta],\n");
    if (d->gemma)
        hd_printf(o, "           [\"query_pre_attn_scalar\", query_scalar], [\"attn_logit_softcapping\", %s],\n"
                  "           [\"final_logit_softcapping\", %s],\n", caps_scores(m) ? "score_cap" : "\"null\"",
                  hd_hub_value(m, "final_logit_softcapping") ? "softcap" : "\"null\"");
    if (!(m->family & (HUB_LLAMA | HUB_OLMOE)))
        hd_printf(o, "           [\"sliding_window\", %s],\n", d->windows ? "window" : "\"null\"");
    if (d->pattern) {
        hd_puts(o, "           [\"layer_types\", [");
        const int64_t layers = hd_hub_integer(m, "num_hidden_layers");
        for (int64_t i = 0; i < layers; i++)
            hd_printf(o, "%s\"%s\"", !i ? "" : i % 4 ? ", " : ",\n                            ",
                      slides(m, i) ? "sliding_attention" : "full_attention");
        hd_puts(o, "]],\n");
    }
    hd_puts(o, "           [\"rope_theta\", theta], [\"rope_scaling\", ");
    if (!d->scaled) hd_puts(o, "\"null\"];\n");
    else if (d->linear) hd_puts(o, "[[\"rope_type\", \"linear\"], [\"factor\", factor]]];\n");
    else hd_puts(o, "[[\"rope_type\", \"llama3\"], [\"factor\", factor],\n"
                 "           [\"low_freq_factor\", low_freq], [\"high_freq_factor\", high_freq],\n"
                 "           [\"original_max_position_embeddings\", original]]];\n");
    hd_puts(o, "  }\n}\n");
}

bool hd_from_decoder(const HubModel *m, Out *o) {
    const bool gemma = m->family & HUB_GEMMA, asked = hd_hub_true(m, "attention_bias");
    Decoder d = {.m = m, .o = o, .gemma = gemma, .experts = m->family & HUB_EXPERTS,
                 .head_norms = m->family & (HUB_QWEN3 | HUB_GEMMA3 | HUB_QWEN3_MOE),
                 .wide_norms = m->family == HUB_OLMOE,
                 .bias = asked || m->family == HUB_QWEN2, .out_bias = asked,
                 .tied = hd_hub_true(m, "tie_word_embeddings"), .clips = hd_hub_value(m, "clip_qkv") != NULL};
    d.act = hd_hub_activation(m, gemma ? "hidden_activation" : "hidden_act");
    bool ok = d.act != NULL;
    ok &= find_windows(&d);
    ok = ok && find_experts(&d);
    ok &= find_scaling(&d);
    if (!ok) return false;
    put_head(&d);
    put_attention(&d);
    if (!d.experts || d.mlps) put_mlp(&d);
    if (d.experts) put_experts(&d);
    put_block(&d);
    put_loss(&d);
    put_config(&d);
    hd_hub_train(m, o);
    return true;
}
