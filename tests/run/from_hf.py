#!/usr/bin/env python3
"""Models of Hugging Face: the .hd files that heddlec --from-hf writes, against the published models' tensors and
numbers of parameters; what it refuses; --init-missing, --init-ignore and --init-rename; config.json at --init and
--export. Usage: from_hf.py ROOT HEDDLEC [CASE...]. Cases as in cases.py. hf_models.py compares with
transformers itself.
"""
import json
import math
import os
import re
import struct
import subprocess
import sys
import zlib

import compiled
from cases import check
from compiled import tensors_of, write

LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_act="silu", torch_dtype="bfloat16")
SCALING = dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=8192)
# of each published model: its config.json, the number of its parameters, and some of its tensors
PUBLISHED = {
    "gpt2": (dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], vocab_size=50257, n_positions=1024, n_ctx=1024,
                  n_embd=768, n_layer=12, n_head=12, attn_pdrop=0.1, embd_pdrop=0.1, resid_pdrop=0.1,
                  layer_norm_epsilon=1e-05, initializer_range=0.02, activation_function="gelu_new",
                  bos_token_id=50256, eos_token_id=50256, summary_type="cls_index",
                  task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}}), 124439808,
             {"wte.weight": [50257, 768], "h.11.attn.c_attn.weight": [768, 2304], "h.0.mlp.c_proj.weight": [3072, 768],
              "h.0.attn.c_proj.bias": [768], "ln_f.bias": [768]}),
    "Llama-2-7b": (dict(LLAMA, vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
                        num_attention_heads=32, num_key_value_heads=32, max_position_embeddings=4096,
                        rms_norm_eps=1e-05, rope_scaling=None, pretraining_tp=1, tie_word_embeddings=False),
                   6738415616, {"lm_head.weight": [32000, 4096], "model.norm.weight": [4096]}),
    "Llama-3.2-1B": (dict(LLAMA, vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                          num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072,
                          rms_norm_eps=1e-05, rope_theta=500000.0, rope_scaling=SCALING, tie_word_embeddings=True,
                          attention_bias=False, mlp_bias=False, attention_dropout=0.0), 1235814400,
                     {"model.layers.15.self_attn.k_proj.weight": [512, 2048],
                      "model.layers.0.mlp.down_proj.weight": [2048, 8192]}),
    "Mistral-7B-v0.1": (dict(model_type="mistral", architectures=["MistralForCausalLM"], vocab_size=32000,
                             hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                             num_key_value_heads=8, max_position_embeddings=32768, rms_norm_eps=1e-05,
                             rope_theta=10000.0, sliding_window=4096, tie_word_embeddings=False), 7241732096,
                        {"model.layers.31.self_attn.v_proj.weight": [1024, 4096]}),
    "Qwen2-0.5B": (dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], vocab_size=151936, hidden_size=896,
                        intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
                        max_position_embeddings=131072, max_window_layers=24, rms_norm_eps=1e-06, rope_theta=1000000.0,
                        sliding_window=131072, use_sliding_window=False, tie_word_embeddings=True), 494032768,
                   {"model.layers.3.self_attn.q_proj.bias": [896], "model.layers.3.self_attn.k_proj.bias": [128]}),
    "Qwen3-0.6B": (dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=151936, hidden_size=1024,
                        intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
                        head_dim=128, max_position_embeddings=40960, max_window_layers=28, rms_norm_eps=1e-06,
                        rope_theta=1000000, sliding_window=None, use_sliding_window=False, tie_word_embeddings=True),
                   596049920, {"model.layers.0.self_attn.q_proj.weight": [2048, 1024],
                               "model.layers.27.self_attn.k_norm.weight": [128]}),
    "gemma-2-2b": (dict(model_type="gemma2", architectures=["Gemma2ForCausalLM"], vocab_size=256000, hidden_size=2304,
                        intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8, num_key_value_heads=4,
                        head_dim=256, hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh",
                        max_position_embeddings=8192, query_pre_attn_scalar=256, rms_norm_eps=1e-06,
                        rope_theta=10000.0, sliding_window=4096, final_logit_softcapping=30.0,
                        attn_logit_softcapping=50.0), 2614341888,
                   {"model.layers.25.pre_feedforward_layernorm.weight": [2304],
                    "model.layers.0.self_attn.o_proj.weight": [2304, 2048]}),
    "gemma-3-1b": (dict(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], vocab_size=262144,
                        hidden_size=1152, intermediate_size=6912, num_hidden_layers=26, num_attention_heads=4,
                        num_key_value_heads=1, head_dim=256, hidden_activation="gelu_pytorch_tanh",
                        max_position_embeddings=32768, query_pre_attn_scalar=256, rms_norm_eps=1e-06,
                        rope_theta=1000000, rope_local_base_freq=10000, rope_scaling=None, sliding_window=512,
                        sliding_window_pattern=6, final_logit_softcapping=None, attn_logit_softcapping=None),
                   999885952, {"model.layers.0.self_attn.q_norm.weight": [256],
                               "model.layers.25.post_feedforward_layernorm.weight": [1152]}),
    "Mixtral-8x7B-v0.1": (dict(model_type="mixtral", architectures=["MixtralForCausalLM"], vocab_size=32000,
                               hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                               num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2, hidden_act="silu",
                               max_position_embeddings=32768, rms_norm_eps=1e-05, rope_theta=1000000.0,
                               sliding_window=None, attention_dropout=0.0, output_router_logits=False,
                               router_aux_loss_coef=0.02, tie_word_embeddings=False), 46702792704,
                          {"model.layers.31.block_sparse_moe.experts.7.w2.weight": [4096, 14336],
                           "model.layers.0.block_sparse_moe.gate.weight": [8, 4096]}),
    "OLMoE-1B-7B-0924": (dict(model_type="olmoe", architectures=["OlmoeForCausalLM"], vocab_size=50304,
                              hidden_size=2048, intermediate_size=1024, num_hidden_layers=16, num_attention_heads=16,
                              num_key_value_heads=16, num_experts=64, num_experts_per_tok=8, norm_topk_prob=False,
                              clip_qkv=None, hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-05,
                              rope_theta=10000.0, rope_scaling=None, attention_bias=False, output_router_logits=False,
                              router_aux_loss_coef=0.01, tie_word_embeddings=False), 6919161856,
                         {"model.layers.15.mlp.experts.63.up_proj.weight": [1024, 2048],
                          "model.layers.0.self_attn.k_norm.weight": [2048]}),
    "Qwen3-30B-A3B": (dict(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], vocab_size=151936,
                           hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_hidden_layers=48,
                           num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=128,
                           num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                           max_position_embeddings=40960, max_window_layers=48, rms_norm_eps=1e-06, hidden_act="silu",
                           rope_theta=1000000.0, rope_scaling=None, sliding_window=None, use_sliding_window=False,
                           attention_bias=False, output_router_logits=False, router_aux_loss_coef=0.001,
                           tie_word_embeddings=False), 30532122624,
                      {"model.layers.47.mlp.experts.127.down_proj.weight": [2048, 768],
                       "model.layers.0.self_attn.q_norm.weight": [128]}),
    "mamba2-130m": (dict(model_type="mamba2", architectures=["Mamba2ForCausalLM"], vocab_size=50288, hidden_size=768,
                         num_hidden_layers=24, num_heads=24, head_dim=64, state_size=128, n_groups=1, expand=2,
                         conv_kernel=4, chunk_size=256, hidden_act="silu", layer_norm_epsilon=1e-05, use_bias=False,
                         use_conv_bias=True, rms_norm=True, residual_in_fp32=True, time_step_rank=48,
                         time_step_limit=[0.0, float("inf")], tie_word_embeddings=True), 128989632,
                    {"backbone.layers.23.mixer.conv1d.weight": [1792, 1, 4],
                     "backbone.layers.0.mixer.in_proj.weight": [3352, 768]}),
}
TINY = dict(PUBLISHED["gpt2"][0], vocab_size=40, n_positions=12, n_embd=16, n_layer=2, n_head=4, attn_pdrop=0.0,
            embd_pdrop=0.0, resid_pdrop=0.0)
SMALL = dict(PUBLISHED["Llama-3.2-1B"][0], vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=8)


def heddlec(*args):
    return subprocess.run([compiled.programs.compiler, *args], capture_output=True, text=True)


def folder_of(config, name="there"):
    os.makedirs(name, exist_ok=True)
    write(f"{name}/config.json", config if isinstance(config, str) else json.dumps(config, indent=2))
    return name


def written(config, name="there"):
    if os.path.exists(f"{name}.hd"):
        os.remove(f"{name}.hd")
    r = heddlec(f"--from-hf={folder_of(config, name)}", "-o", f"{name}.hd")
    check(r.returncode == 0 and not r.stderr, name, r.stderr)
    return f"{name}.hd"


def built(config, name, *settings):
    """A program of the model that a config describes, in f32 and for sequences of 12 tokens."""
    sets = ["seq=12", "train.batch=1", "train.precision.compute=f32", *settings]
    r = heddlec(written(config, name), "-o", name + ".program", *[w for s in sets for w in ("--set", s)])
    check(r.returncode == 0, name, r.stderr)
    return "./" + name + ".program"


def run(program, *args, status=0):
    r = subprocess.run([program, *args], capture_output=True, text=True)
    check(r.returncode == status, program, *args, "exit", r.returncode, r.stderr)
    return r.stderr


def says(text, *words):
    for w in words:
        check(w in text, f"'{w}' is not said:", text)


def case_published():
    for name, (config, count, some) in PUBLISHED.items():
        r = heddlec(written(config, name), "--emit=ir", "--set", "seq=64", "--set", "schedule.logits=on")
        check(r.returncode == 0, name, r.stderr)
        says(r.stdout, f"func @logits(%tokens: i32[1,64]) -> f32[1,64,{config['vocab_size']}] with")
        tensors = {}
        for shape, attrs in re.findall(r"^param @[\w.]+ : f32\[([\d,]+)\] (\{.*\}) loc", r.stdout, re.M):
            dims = [int(d) for d in shape.split(",")]
            as_name = re.search(r'as = "([^"]+)"', attrs)
            check(as_name, name, "has a parameter without a name in files:", attrs)
            each = range(dims[0]) if "{n}" in as_name[1] else [None]
            for n in each:
                tensors[as_name[1].replace("{n}", str(n))] = (dims[1:] if n is not None else
                                                              dims[::-1] if "transposed" in attrs else dims)
        total = sum(math.prod(dims) for dims in tensors.values())
        # the positions of GPT-2 are rows of a table, whatever the length of a sequence
        check(total == count, f"{name} has {count} parameters, the model that is written {total}")
        for tensor, dims in some.items():
            check(tensors.get(tensor) == dims, f"{name}: {tensor} is {dims}, the model that is written has",
                  tensors.get(tensor))
        hub = json.loads(json.loads('"' + re.search(r'hub_config = "((?:[^"\\]|\\.)*)"', r.stdout)[1] + '"'))
        for key, value in config.items():
            if key in hub and value != hub[key]:
                check(key == "sliding_window", f"{name}: config.json says {key} = {value}, the program {hub[key]}")


# Of small models: what differs from a published one, and the loss that transformers 5 gives with weights() for TOKENS.
TINIER = dict(vocab_size=40, hidden_size=16, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
              head_dim=8, intermediate_size=24, max_position_embeddings=24)
STATES = dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_heads=4, head_dim=8, state_size=8, chunk_size=8)
RECORDED = {
    "Qwen3-30B-A3B": (dict(TINIER, moe_intermediate_size=12, num_experts=4, num_experts_per_tok=2,
                           decoder_sparse_step=2, num_hidden_layers=6, mlp_only_layers=[3]), 3.7787943),
    "OLMoE-1B-7B-0924": (dict(TINIER, head_dim=4, num_experts=4, num_experts_per_tok=2, clip_qkv=0.3), 3.9037271),
    "mamba2-130m": (dict(STATES, use_bias=True), 3.6909038),
    "mamba2-130m bare": (dict(STATES, use_conv_bias=False, tie_word_embeddings=False), 3.6991613),
}
TOKENS = [17 * i * i % 40 for i in range(4 * 12 + 1)]


def weights(path):
    """Gives each tensor of a file values that follow from its name alone."""
    tensors, meta = tensors_of(path)
    for name, (dtype, shape, data) in tensors.items():
        start = zlib.crc32(name.encode()) % 1000
        values = [0.3 * math.sin(start + 0.7 * k) + (name.endswith("norm.weight")) for k in range(len(data) // 4)]
        tensors[name] = (dtype, shape, struct.pack(f"<{len(values)}f", *values))
    compiled.write_tensors(path, tensors, meta)


def recorded(name):
    """A folder with such a model of these weights, its program, and the loss that was recorded."""
    of = name.split()[0]
    program = built(dict(PUBLISHED[of][0], **RECORDED[name][0]), of)
    run(program, "--steps=0", f"--export={of}/model.safetensors")
    weights(f"{of}/model.safetensors")
    return program, of, RECORDED[name][1]


def case_recorded():
    """Dense layers among those with experts, clipped q, k and v, mixers with and without biases."""
    write("tokens.bin", struct.pack(f"<{len(TOKENS)}H", *TOKENS))
    for name in RECORDED:
        program, folder, want = recorded(name)
        run(program, f"--init={folder}", "--eval", "--val=tokens.bin", "--log=log")
        got = [json.loads(l)["val_loss"] for l in compiled.read("log").decode().splitlines() if "val_loss" in l][-1]
        check(abs(got - want) < 2e-6 * want, f"{name}: a loss of {got}, and transformers has {want}")
        os.remove("log")
    with open("Qwen3-30B-A3B.hd", encoding="utf-8") as f:
        says(f.read(), 'mlps = "DEDD"', "if dense { mlp = Mlp; } else { mlp = Experts; }",
             '["decoder_sparse_step", 2]', '["mlp_only_layers", [3]]')


def case_windows():
    """Which layers have a window, by the family's rule and by layer_types."""
    kinds = lambda text: ["sliding_attention" if c == "S" else "full_attention" for c in text]
    gemma2, gemma3 = PUBLISHED["gemma-2-2b"][0], PUBLISHED["gemma-3-1b"][0]
    qwen = dict(PUBLISHED["Qwen2-0.5B"][0], use_sliding_window=True, sliding_window=16, max_window_layers=20)
    for config, pattern in ((gemma2, "SF"), (gemma3, "SSSSSF"), (qwen, "F" * 20 + "SSSS"),
                            (dict(gemma2, layer_types=kinds("SFF" * 8 + "SF")), "SFF")):
        with open(written(config)) as f:
            says(f.read(), f'pattern = "{pattern}"')
    with open(written(dict(gemma2, layer_types=kinds("F" * 26)))) as f:
        check("window" not in f.read().split("fn huggingface")[0], "a window where no layer has one")


def case_refused():
    llama, gpt2, gemma2 = (PUBLISHED[n][0] for n in ("Llama-3.2-1B", "gpt2", "gemma-2-2b"))
    mixtral, qwen, mamba = (PUBLISHED[n][0] for n in ("Mixtral-8x7B-v0.1", "Qwen3-30B-A3B", "mamba2-130m"))
    scaled = lambda **more: dict(llama, rope_scaling=dict(SCALING, **more))
    without = lambda config, key: {k: v for k, v in config.items() if k != key}
    for config, *words in (
            ("{", "is not JSON, or no object"), ("[1]", "is not JSON, or no object"),
            ('{"a": 1e}', "is not JSON, or no object"), ("[" * 100, "is not JSON, or no object"),
            ({}, '"model_type" is missing: it names the family of the model'),
            (dict(llama, model_type="t5"), '"model_type" is t5: models of gpt2', "write the .hd file by hand"),
            (dict(llama, model_type="gemma3"), "which also sees pictures", "--init-rename=language_model.="),
            (dict(llama, new_trick=1), '"new_trick" is no key that heddlec knows of llama'),
            (dict(llama, hidden_size="big"), '"hidden_size" is big: a number of at least 0 is expected'),
            (dict(llama, hidden_size=-1), '"hidden_size" is -1: a number of at least 0 is expected'),
            (dict(llama, hidden_size=None), '"hidden_size" is null: a value is expected'),
            (without(llama, "hidden_size"), '"hidden_size" is missing: a config.json of llama says it'),
            (dict(llama, hidden_act=1), '"hidden_act" is 1: text is expected'),
            (dict(llama, hidden_act="mish"), '"hidden_act" is mish, which is no function here'),
            (dict(llama, tie_word_embeddings=1), '"tie_word_embeddings" is 1: true or false is expected'),
            (dict(llama, mlp_bias=True), '"mlp_bias" is true, and only false is written', "change it in a copy"),
            (dict(llama, quantization_config={"bits": 4}), '"quantization_config.bits"', "take the weights in f32"),
            (dict(llama, architectures=["LlamaForTokenClassification"]),
             '"architectures" is LlamaForTokenClassification: of llama only LlamaForCausalLM'),
            (scaled(rope_type="yarn"), '"rope_scaling.rope_type" is yarn: rotations are scaled as llama3 or linear'),
            (scaled(factor=None), '"rope_scaling.factor" is missing: "rope_type": "llama3" needs it'),
            (dict(gpt2, scale_attn_by_inverse_layer_idx=True), '"scale_attn_by_inverse_layer_idx" is true'),
            (dict(gemma2, attn_logit_softcapping="high"), '"attn_logit_softcapping" is high: a number of at least 0'),
            (dict(gemma2, num_hidden_layers=0), '"num_hidden_layers" is 0: 1 to 10000 are expected'),
            (dict(gemma2, layer_types=["full_attention"]),
             '"layer_types" has 1 layers and "num_hidden_layers" is 26: make them one number'),
            (dict(gemma2, layer_types=["linear_attention"]), '"layer_types.0" is linear_attention: layers of'),
            (dict(mixtral, router_jitter_noise=0.1), '"router_jitter_noise" is 0.1, and only 0 is written'),
            (dict(mixtral, output_router_logits=True), "a balancing loss as examples/moe/olmoe.hd has it"),
            (dict(qwen, mlp_only_layers=[48]),
             '"mlp_only_layers.0" is 48: numbers of layers, from 0 to 47, are expected'),
            (dict(qwen, mlp_only_layers=["first"]), '"mlp_only_layers.0" is first: numbers of layers'),
            (dict(qwen, mlp_only_layers=3), '"mlp_only_layers" is 3: a list of numbers of layers is expected'),
            (dict(qwen, decoder_sparse_step=0), '"decoder_sparse_step" is 0: a number of at least 1 is expected'),
            (dict(mamba, use_bias="yes"), '"use_bias" is yes: true or false is expected'),
            (dict(mamba, time_step_limit=[0.0, 0.5]), '"time_step_limit.1" is 0.5, and only Infinity is written'),
            (dict(mamba, hidden_act="relu"), '"hidden_act" is relu, and only silu is written'),
            (dict(mamba, expand=3), '"num_heads" times head_dim is 1536',
             ", and hidden_size times expand is another number: make them equal"),
            (dict(mamba, n_groups=5), '"n_groups" is 5, and does not divide num_heads times head_dim, 1536')):
        r = heddlec(f"--from-hf={folder_of(config)}")
        check(r.returncode == 1 and not r.stdout, "expected an error:", config, r.returncode)
        says(r.stderr, "there/config.json", *words)
    r = heddlec("--from-hf=nowhere")
    check(r.returncode == 1, r)
    says(r.stderr, "cannot read 'nowhere/config.json': No such file", "takes the folder of a model of Hugging Face",
         "hf download NAME")
    r = heddlec("--from-hf=there", "a.hd")
    check(r.returncode == 2, r)
    says(r.stderr, "--from-hf writes a file and reads none, unlike 'a.hd'")


def case_experts():
    """One parameter, a tensor for each expert: written, read on every mesh, refused where one is missing or wrong."""
    config = dict(PUBLISHED["Mixtral-8x7B-v0.1"][0], vocab_size=40, hidden_size=16, intermediate_size=24,
                  num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_local_experts=4)
    program = built(config, "there")
    run(program, "--steps=0", "--export=there/model.safetensors", "--digest=a")
    tensors, _ = tensors_of("there/model.safetensors")
    name = "model.layers.1.block_sparse_moe.experts.%d.w1.weight"
    check([k for k in tensors if k.startswith("model.layers.1.") and k.endswith(".w1.weight")] ==
          [name % n for n in range(4)] and tensors[name % 3][1] == [24, 16], list(tensors))
    run(program, "--steps=0", "--init=there", "--digest=b", "--seed=5", "--save=c")
    check(compiled.read("a") == compiled.read("b"), "--init of an export differs")
    own, _ = tensors_of("c/checkpoint.safetensors")
    check(own["blocks.1.mlp.gate"][1] == [4, 24, 16], own["blocks.1.mlp.gate"][1])
    check(own["blocks.1.mlp.gate"][2] == b"".join(tensors[name % n][2] for n in range(4)), "not in order")
    meshed = built(config, "meshed", "schedule.mesh.expert=2", "schedule.mesh.shard=2", "schedule.fsdp=zero3",
                   "schedule.fsdp.unit=Block")
    for source in ("there", "c"):
        run(meshed, "--steps=0", f"--init={source}", "--digest=b", "--export=e")
        check(compiled.read("a") == compiled.read("b"), f"--init of {source} differs on a mesh")
        check(tensors_of("e")[0] == tensors, f"the export of {source} differs on a mesh")
    less = {k: v for k, v in tensors.items() if k != name % 2}
    compiled.write_tensors("less", less)
    for more in ((), ("--init-missing=fresh",)):
        says(run(program, "--steps=0", "--init=less", "--export=x", *more, status=1),
             f"has no tensor '{name % 2}' [24,16] for parameter blocks.1.mlp.gate")
    compiled.write_tensors("none", {k: v for k, v in less.items() if k not in [name % n for n in range(4)]})
    says(run(program, "--steps=0", "--init=none", "--export=x", "--init-missing=fresh"),
         "start from their initialisers: blocks.1.mlp.gate")
    for tensor, words in ((("F32", [16, 24], tensors[name % 2][2]), "is [16,24], this model's is [24,16]"),
                          (("U8", [24, 16], bytes(384)), "is U8; F32, BF16 and F16 are read")):
        compiled.write_tensors("wrong", {**tensors, name % 2: tensor})
        says(run(program, "--steps=0", "--init=wrong", "--export=x", status=1), f"tensor '{name % 2}' {words}")
    compiled.write_tensors("more", {**tensors, name % 4: tensors[name % 0]})
    says(run(program, "--steps=0", "--init=more", "--export=x", status=1), f"'{name % 4}' [24,16]")


def case_export_as_hf():
    """Conv1D's layout, config.json, the tokenizer's files; and what --init finds different."""
    program = built(TINY, "there")
    for name in ("tokenizer.json", "merges.txt"):
        write(f"there/{name}", name)
    run(program, "--steps=0", "--export=there/model.safetensors", "--digest=a")
    tensors, _ = tensors_of("there/model.safetensors")
    check(tensors["h.1.attn.c_attn.weight"][1] == [16, 48], tensors["h.1.attn.c_attn.weight"][1])
    check(tensors["h.0.mlp.c_proj.weight"][1] == [64, 16], tensors["h.0.mlp.c_proj.weight"][1])
    write("victim", "unchanged")
    os.makedirs("back")
    os.symlink("../victim", "back/config.json.tmp")  # no name that a link could wait under
    err = run(program, "--steps=0", "--init=there", "--export=back", "--as=hf", "--export-dtype=f16", "--digest=b")
    check(compiled.read("victim") in ("unchanged", b"unchanged"), "written through a link")
    os.remove("back/config.json.tmp")
    check("note" not in err and compiled.read("a") == compiled.read("b"), "--init of an export differs:", err)
    check(sorted(os.listdir("back")) == ["config.json", "merges.txt", "model.safetensors", "tokenizer.json"],
          os.listdir("back"))
    back = json.loads(compiled.read("back/config.json"))
    check(back.pop("torch_dtype") == "float16" and back["n_inner"] is None, back)
    check(all(TINY[k] == v for k, v in back.items() if k in TINY), back)
    # a checkpoint has the parameter's own layout, and reads as before
    run(program, "--steps=0", "--init=there", "--save=c")
    own, _ = tensors_of("c/checkpoint.safetensors")
    check(own["blocks.1.attn.qkv"][1] == [48, 16], own["blocks.1.attn.qkv"][1])
    run(program, "--steps=0", "--init=c", "--digest=b")
    check(compiled.read("a") == compiled.read("b"), "--init of a checkpoint differs")
    wide = [struct.unpack("<768f", t) for t in (own["blocks.1.attn.qkv"][2], tensors["h.1.attn.c_attn.weight"][2])]
    check(all(wide[0][r * 16 + c] == wide[1][c * 48 + r] for r in range(48) for c in range(16)), "not transposed")
    folder_of(dict(TINY, layer_norm_epsilon=1e-6))
    says(run(program, "--steps=0", "--init=there", "--export=x"),
         'note: there/config.json: "layer_norm_epsilon" is 1e-06 there, 1e-05 in this program')
    folder_of({k: v for k, v in TINY.items() if k != "layer_norm_epsilon"})
    says(run(program, "--steps=0", "--init=there/model.safetensors", "--export=x"),
         'note: there/config.json does not say "layer_norm_epsilon", so that the default of transformers counts')
    folder_of("{")
    says(run(program, "--steps=0", "--init=there", "--export=x", status=1), "there/config.json is not JSON")
    says(run(program, "--steps=0", "--init=back", "--export=back", "--as=hf", status=1), "are one folder, back")
    os.mkdir("other")
    own = open("back/config.json").read()
    for text in ('{"mine": 1}', own.replace(', "torch', ', "mine": 1, "torch')):  # of another model
        write("other/config.json", text)
        says(run(program, "--steps=0", "--export=other", "--as=hf", status=1), "a model with another config.json")
        check(open("other/config.json").read() == text, "config.json is replaced")
    write("other/config.json", own)
    run(program, "--steps=0", "--export=other", "--as=hf")  # of an earlier export
    write("file", "")
    says(run(program, "--steps=0", "--export=file", "--as=hf", status=1),
         "--export=file is no folder, and --as=hf writes one")
    for args, *words in ((["--as=hf", "--steps=0"], "--as needs --export=DIR"),
                         (["--as=gguf", "--export=d", "--steps=0"], "--as=hf is the only form, unlike gguf")):
        says(run(program, *args, status=2), *words)


def case_rotations():
    program = built(SMALL, "there")
    run(program, "--steps=0", "--export=there/model.safetensors")
    for scaling, *words in (
            (dict(SCALING), ), (dict(SCALING, factor=8), '"rope_scaling.factor" is 8 there, 32.0 in this program'),
            (None, '"rope_scaling.factor" is absent there')):
        folder_of(dict(SMALL, rope_scaling=scaling))
        err = run(program, "--steps=0", "--init=there", "--export=x")
        says(err, *words)
        check(words or "note" not in err, err)
    # as transformers 5 writes them
    new = {k: v for k, v in SMALL.items() if k not in ("rope_scaling", "rope_theta")}
    folder_of(dict(new, rope_parameters=dict(SCALING, rope_theta=500000.0, type="llama3")))
    check("note" not in run(program, "--steps=0", "--init=there", "--export=x"), "rope_parameters are not rope_scaling")
    folder_of(dict(new, rope_parameters=dict(SCALING, rope_theta=10000.0, beta_fast=32)))
    err = run(program, "--steps=0", "--init=there", "--export=x")
    says(err, '"rope_theta" is 10000.0 there', '"rope_scaling.beta_fast" is 32 there, absent in this program')


def save(path, tensors):
    return compiled.write_tensors(path, tensors)


def case_init_options():
    program = built(TINY, "there")
    run(program, "--steps=0", "--export=w", "--digest=a")
    tensors, _ = tensors_of("w")
    same = lambda: check(compiled.read("a") == compiled.read("b"), "other weights")
    ones = struct.pack("<16f", *[1] * 16)
    masks = {f"h.{i}.attn.bias": ("F32", [1, 1, 4, 4], ones) for i in range(2)}
    save("masks", dict(tensors, **masks, extra=("F32", [16], ones)))
    err = run(program, "--steps=0", "--init=masks", "--export=x", status=1)
    says(err, "3 of its 31 tensors are no parameters of model GPT2", "'h.*.attn.bias' [1,1,4,4] (2 of them)",
         "'extra' [16]", "leave them out with --init-ignore='h.*.attn.bias' --init-ignore='extra'")
    run(program, "--steps=0", "--init=masks", "--init-ignore=h.*.attn.bias", "--init-ignore=extra", "--digest=b")
    same()
    save("renamed", {f"transformer.{n}": t for n, t in tensors.items()})
    says(run(program, "--steps=0", "--init=renamed", "--export=x", status=1), "has no tensor 'wte.weight' [40,16]",
         "it has 'transformer.wte.weight': --init-rename=transformer.=")
    err = run(program, "--steps=0", "--init=renamed", "--init-rename=transformer.=", "--init-rename=nothing=x",
              "--init-ignore=no*", "--digest=b")
    says(err, "note: --init-rename=nothing=x fits no tensor of renamed", "note: --init-ignore=no* fits no tensor of")
    same()
    save("cut", {n.replace("h.", "", 1) if n.startswith("h.") else n: t for n, t in tensors.items()})
    says(run(program, "--steps=0", "--init=cut", "--export=x", status=1), "it has '0.ln_1.weight': --init-rename==h.")
    says(run(program, "--steps=0", "--init=w", "--init-rename=wte=wpe", "--export=x", status=1),
         "--init-rename gives tensors 'wte.weight' and 'wpe.weight' one name, 'wpe.weight'")
    less = {n: t for n, t in tensors.items() if n not in ("ln_f.bias", "h.1.mlp.c_fc.weight")}
    says(run(program, "--steps=0", "--init=" + save("less", less), "--export=x", status=1),
         "--init-missing=fresh starts what is missing from its initialiser")
    err = run(program, "--steps=0", "--init=less", "--init-missing=fresh", "--digest=b")
    says(err, "note: less has no tensor for 2 of 28 parameters, which start from their initialisers: blocks.1.mlp.fc,",
         "ln_f.bias")
    same()  # of the same seed
    says(run(program, "--steps=0", "--init=w", "--init-ignore=ln_f.*", "--export=x", status=1), "ln_f.weight",
         "--init-ignore leaves it out")
    run(program, "--steps=0", "--init=w", "--init-ignore=ln_f.*", "--init-missing=fresh", "--digest=b")
    same()
    save("other", {"extra": ("F32", [16], ones)})
    says(run(program, "--steps=0", "--init=other", "--init-missing=fresh", "--export=x", status=1),
         "has a tensor for none of the 28 parameters of model GPT2")
    for args, *words in ((["--init-missing=fresh"], "--init-missing needs --init=FILE"),
                         (["--init-ignore=a"], "--init-ignore needs --init=FILE"),
                         (["--init-rename=a=b"], "--init-rename needs --init=FILE"),
                         (["--init=w", "--init-missing=zeros"], "--init-missing=fresh is the only form, unlike zeros"),
                         (["--init=w", "--init-rename=a"], "--init-rename takes FROM=TO, not a"),
                         (["--init=w", "--init-ignore="], "--init-ignore needs a value")):
        says(run(program, "--steps=0", "--export=x", *args, status=2), *words)


def case_no_description():
    args = ["--steps=0", "--export=d", "--as=hf"]
    compiled.bad(1, "does not say what config.json holds", "fn huggingface()", args=args)


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
