// The text of Mamba-2 (Dao and Gu 2024), under the names of Hugging Face's Mamba2ForCausalLM.
#include "frontend/hub/from_hf.h"

// Of which %s are the parts that have a bias, or have none.
static const char body[] =
    "  fn softplus(x) { return max(x, 0) + log(1 + exp(-abs(x))); }\n"
    "  module Mixer {\n"
    "    param taken: [inner + mixed + heads, dim] = normal(std) as \"backbone.layers.{i}.mixer.in_proj.weight\";\n"
    "%s"
    "    param taps: [mixed, 1, kernel] = uniform(1/sqrt(kernel)) as \"backbone.layers.{i}.mixer.conv1d.weight\";\n"
    "%s"
    "    param step: [heads] = constant(-4.6) as \"backbone.layers.{i}.mixer.dt_bias\";   // steps of 0.01\n"
    "    param rate: [heads] = constant(2.0) as \"backbone.layers.{i}.mixer.A_log\";\n"
    "    param skip: [heads] = ones as \"backbone.layers.{i}.mixer.D\";\n"
    "    param gate: [inner] = ones as \"backbone.layers.{i}.mixer.norm.weight\";\n"
    "    param given: [dim, inner] = normal(std/sqrt(layers)) as \"backbone.layers.{i}.mixer.out_proj.weight\";\n"
    "%s"
    "    fn gated(y, z) {                                  // the norm of each group of columns\n"
    "      let parts = reshape(y * silu(z), [batch, seq, groups, inner/groups]);\n"
    "      return reshape(rms_norm(parts, fill(1, [inner/groups]), eps), [batch, seq, inner]) * gate;\n"
    "    }\n"
    "    fn forward(x) {\n"
    "      let z, both, steps = split(linear(x, taken%s), [inner, mixed, heads]);\n"
    "      let local = conv1d(both, transpose(reshape(taps, [mixed, kernel]))%s, silu = true);\n"
    "      let u, b, c = split(local, [inner, groups*state, groups*state]);\n"
    "      let y = ssd(reshape(u, [batch, seq, heads, head_dim]), softplus(float(steps) + float(step)), "
    "-exp(float(rate)),\n"
    "                  reshape(b, [batch, seq, groups, state]), reshape(c, [batch, seq, groups, state]), skip,\n"
    "                  chunk = chunk);\n"
    "      return linear(gated(reshape(y, [batch, seq, inner]), z), given%s);\n"
    "    }\n"
    "  }\n"
    "  module Block {\n"
    "    norm = RMSNorm(dim, eps) as \"backbone.layers.{i}.norm\";\n"
    "    mixer = Mixer;\n"
    "    fn forward(x) { return x + mixer(norm(x)); }\n"
    "  }\n"
    "  module Table { param weight: [vocab, dim] = normal(std); }\n"
    "  wte = Table as \"backbone.embeddings\";\n";

static const char in_bias[] =
    "    param taken_bias: [inner + mixed + heads] = zeros as \"backbone.layers.{i}.mixer.in_proj.bias\";\n";
static const char conv_bias[] = "    param taps_bias: [mixed] = zeros as \"backbone.layers.{i}.mixer.conv1d.bias\";\n";
static const char out_bias[] = "    param given_bias: [dim] = zeros as \"backbone.layers.{i}.mixer.out_proj.bias\";\n";

static const char rest[] =
    "  blocks = repeat(layers) Block;\n"
    "  norm = RMSNorm(dim, eps) as \"backbone.norm_f\";\n"
    "\n"
    "  fn logits(tokens: i32[batch, seq]) {\n"
    "    return matmul(norm(blocks(embedding(wte.weight, tokens))), transpose(%s.weight));\n"
    "  }\n"
    "  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {\n"
    "    return cross_entropy(logits(tokens), targets);\n"
    "  }\n"
    "  fn huggingface() {\n"
    "    return [\"architectures\", [\"Mamba2ForCausalLM\"]], [\"model_type\", \"mamba2\"], [\"vocab_size\", vocab],\n"
    "           [\"hidden_size\", dim], [\"num_hidden_layers\", layers], [\"num_heads\", heads], [\"head_dim\", "
    "head_dim],\n"
    "           [\"expand\", expand], [\"state_size\", state], [\"n_groups\", groups], [\"conv_kernel\", kernel],\n"
    "           [\"chunk_size\", chunk], [\"layer_norm_epsilon\", eps], [\"initializer_range\", std], "
    "[\"hidden_act\", \"silu\"],\n"
    "           [\"use_bias\", \"%s\"], [\"use_conv_bias\", \"%s\"], [\"tie_word_embeddings\", \"%s\"];\n"
    "  }\n"
    "}\n";

bool hd_from_mamba2(const HubModel *m, Out *o) {
    const int64_t inner = hd_hub_integer(m, "num_heads") * hd_hub_integer(m, "head_dim");
    const int64_t groups = hd_hub_integer(m, "n_groups");
    const bool tied = hd_hub_true(m, "tie_word_embeddings"), bias = hd_hub_true(m, "use_bias"),
               conv = hd_hub_true(m, "use_conv_bias");
    if (inner != hd_hub_integer(m, "expand") * hd_hub_integer(m, "hidden_size"))
        return hd_hub_wrong(m, "num_heads", "times head_dim is %lld, and hidden_size times expand is another "
                            "number: make them equal", (long long)inner);
    if (!groups || inner % groups)
        return hd_hub_wrong(m, "n_groups", "is %lld, and does not divide num_heads times head_dim, %lld",
                            (long long)groups, (long long)inner);
    const HubArg args[] = {
        {"vocab", hd_hub_number(m, "vocab_size")}, {"layers", hd_hub_number(m, "num_hidden_layers")},
        {"dim", hd_hub_number(m, "hidden_size")}, {"expand", hd_hub_number(m, "expand")},
        {"head_dim", hd_hub_number(m, "head_dim")}, {"heads", "expand*dim/head_dim"},
        {"state", hd_hub_number(m, "state_size")}, {"groups", hd_hub_number(m, "n_groups")},
        {"kernel", hd_hub_number(m, "conv_kernel")}, {"chunk", hd_hub_number(m, "chunk_size")}, {"seq", "1024"},
        {"inner", "heads*head_dim"}, {"mixed", "inner + 2*groups*state"},
        {"eps", hd_hub_number(m, "layer_norm_epsilon")}, {"std", hd_hub_number(m, "initializer_range")}};
    hd_hub_head(m, sizeof args / sizeof *args, args, o);
    hd_printf(o, body, bias ? in_bias : "", conv ? conv_bias : "", bias ? out_bias : "", bias ? ", taken_bias" : "",
              conv ? ", taps_bias" : "", bias ? ", given_bias" : "");
    if (!tied) hd_puts(o, "  head = Table as \"lm_head\";\n");
    hd_printf(o, rest, tied ? "wte" : "head", bias ? "true" : "false", conv ? "true" : "false",
              tied ? "true" : "false");
    hd_hub_train(m, o);
    return true;
}
