// The text of GPT-2 (Radford et al. 2019). Hugging Face stores its matrices transposed.
#include "frontend/hub/from_hf.h"

static const char body[] =
    "  module Attention {\n"
    "    param qkv: [3*dim, dim] = normal(std) as \"h.{i}.attn.c_attn.weight\", transposed;\n"
    "    param qkv_b: [3*dim] = zeros as \"h.{i}.attn.c_attn.bias\";\n"
    "    param proj: [dim, dim] = normal(std/sqrt(2*layers)) as \"h.{i}.attn.c_proj.weight\", transposed;\n"
    "    param proj_b: [dim] = zeros as \"h.{i}.attn.c_proj.bias\";\n"
    "    fn forward(x) {\n"
    "      let q, k, v = split(linear(x, qkv, qkv_b), 3);\n"
    "      return dropout(linear(attention(q, k, v, heads = heads, causal = true, dropout = attn_drop), proj, proj_b),"
    " drop);\n"
    "    }\n"
    "  }\n"
    "  module Mlp {\n"
    "    param fc: [hidden, dim] = normal(std) as \"h.{i}.mlp.c_fc.weight\", transposed;\n"
    "    param fc_b: [hidden] = zeros as \"h.{i}.mlp.c_fc.bias\";\n"
    "    param proj: [dim, hidden] = normal(std/sqrt(2*layers)) as \"h.{i}.mlp.c_proj.weight\", transposed;\n"
    "    param proj_b: [dim] = zeros as \"h.{i}.mlp.c_proj.bias\";\n"
    "    fn forward(x) { return dropout(linear(%s(linear(x, fc, fc_b)), proj, proj_b), drop); }\n"
    "  }\n"
    "  module Block {\n"
    "    ln1 = LayerNorm(dim, eps) as \"h.{i}.ln_1\";  attn = Attention;\n"
    "    ln2 = LayerNorm(dim, eps) as \"h.{i}.ln_2\";  mlp = Mlp;\n"
    "    fn forward(x) {\n"
    "      let h = x + attn(ln1(x));\n"
    "      return h + mlp(ln2(h));\n"
    "    }\n"
    "  }\n"
    "  module Table(n) {\n"
    "    param weight: [n, dim] = normal(std);\n"
    "    fn forward(index) { return embedding(weight, index); }\n"
    "  }\n"
    "  wte = Table(vocab) as \"wte\";\n"
    "  wpe = Table(positions) as \"wpe\";\n"
    "  blocks = repeat(layers) Block;\n"
    "  ln_f = LayerNorm(dim, eps) as \"ln_f\";\n"
    "\n"
    "  fn logits(tokens: i32[batch, seq]) {\n"
    "    let x = dropout(wte(tokens) + wpe(iota(seq)), embed_drop);\n"
    "    return matmul(ln_f(blocks(x)), transpose(wte.weight));\n"
    "  }\n"
    "  fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {\n"
    "    return cross_entropy(logits(tokens), targets);\n"
    "  }\n"
    "  fn huggingface() {\n"
    "    return [\"architectures\", [\"GPT2LMHeadModel\"]], [\"model_type\", \"gpt2\"], [\"vocab_size\", vocab],\n"
    "           [\"n_positions\", positions], [\"n_embd\", dim], [\"n_layer\", layers], [\"n_head\", heads],\n"
    "           [\"n_inner\", hidden == 4*dim ? \"null\" : hidden], [\"activation_function\", \"%s\"],\n"
    "           [\"layer_norm_epsilon\", eps], [\"initializer_range\", std], [\"resid_pdrop\", drop],\n"
    "           [\"embd_pdrop\", embed_drop], [\"attn_pdrop\", attn_drop], [\"tie_word_embeddings\", \"true\"];\n"
    "  }\n"
    "}\n";

bool hd_from_gpt2(const HubModel *m, Out *o) {
    const char *act = hd_hub_activation(m, "activation_function");
    if (!act) return false;
    const HubArg args[] = {
        {"vocab", hd_hub_number(m, "vocab_size")}, {"layers", hd_hub_number(m, "n_layer")},
        {"heads", hd_hub_number(m, "n_head")}, {"dim", hd_hub_number(m, "n_embd")},
        {"hidden", hd_hub_value(m, "n_inner") ? hd_hub_number(m, "n_inner") : "4*dim"},
        {"positions", hd_hub_number(m, "n_positions")}, {"seq", "positions"},
        {"eps", hd_hub_number(m, "layer_norm_epsilon")}, {"std", hd_hub_number(m, "initializer_range")},
        {"drop", hd_hub_number(m, "resid_pdrop")}, {"embed_drop", hd_hub_number(m, "embd_pdrop")},
        {"attn_drop", hd_hub_number(m, "attn_pdrop")}};
    hd_hub_head(m, sizeof args / sizeof *args, args, o);
    hd_printf(o, body, act, hd_hub_value(m, "activation_function")->text);
    hd_hub_train(m, o);
    return true;
}
