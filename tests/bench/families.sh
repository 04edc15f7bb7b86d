#!/usr/bin/env bash
# Models of Hugging Face by --from-hf beside transformers' own, on one GPU: tests/bench/families.sh [BUILD] [OUT]
# [NAME...]. Needs torch and transformers; all of them take some eight minutes. OUT/NAME.out has Heddle's profile.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
out=${2:-build/families}
mkdir -p "$out"
out=$(realpath "$out")
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- qwen3 mistral gemma2
python3 - "$out" <<'P'
import json, os, random, struct, sys
shared = {"rms_norm_eps": 1e-6, "torch_dtype": "float32", "rope_theta": 1e4, "max_position_embeddings": 8192}
models = {
    "qwen3": dict(shared, hidden_act="silu", attention_bias=False, architectures=["Qwen3ForCausalLM"],
                  model_type="qwen3", vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                  num_attention_heads=16, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True,
                  use_sliding_window=False),
    "mistral": dict(shared, hidden_act="silu", architectures=["MistralForCausalLM"], model_type="mistral",
                    vocab_size=32000, hidden_size=2048, intermediate_size=7168, num_hidden_layers=16,
                    num_attention_heads=16, num_key_value_heads=4, head_dim=128, sliding_window=1024,
                    tie_word_embeddings=False),
    "gemma2": dict(shared, architectures=["Gemma2ForCausalLM"], model_type="gemma2", vocab_size=256000,
                   hidden_size=2304, intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8,
                   num_key_value_heads=4, head_dim=256, query_pre_attn_scalar=256, sliding_window=4096,
                   attn_logit_softcapping=50.0, final_logit_softcapping=30.0, attention_bias=False,
                   hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True),
}
for name, config in models.items():
    os.makedirs(f"{sys.argv[1]}/{name}", exist_ok=True)
    json.dump(config, open(f"{sys.argv[1]}/{name}/config.json", "w"))
r = random.Random(7)
open(sys.argv[1] + "/tokens.bin", "wb").write(b"".join(struct.pack("<H", r.randrange(30000)) for _ in range(1500000)))
P
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
one() { # NAME BATCH ATTENTION...
  local name=$1 batch=$2 attention; shift 2
  "$build/bin/heddlec" --from-hf="$out/$name" -o "$out/$name.hd" &&
    "$build/bin/heddlec" "$out/$name.hd" --target=cuda --set train.batch="$batch" -o "$out/$name.cuda" || return
  local run=(timeout 100 "$out/$name.cuda" --data="$out/tokens.bin" --format=u16 --steps=14 --seed=1)
  "${run[@]}" --profile="$out/$name.json" > "$out/$name.out" 2>&1
  rm -f "$out/$name.log"
  "${run[@]}" --log="$out/$name.log" > "$out/$name.said" 2>&1 || tail -3 "$out/$name.said"
  python3 - "$name" "$out/$name.log" "$out/$name.said" <<'P'
import json, re, statistics, sys
ms = [1e3 * row["seconds"] for row in map(json.loads, open(sys.argv[2])) if "loss" in row and "seconds" in row]
said = open(sys.argv[3]).read()
print(f"{sys.argv[1]}: {statistics.median(ms[4:]):.1f} ms,",
      *re.findall(r"first step done [0-9.]+ s|[0-9.]+ GiB planned", said))
P
  for attention; do
    timeout 150 python3 tests/bench/torch_family.py "$out/$name" "$batch" 4096 "$attention" 2> "$out/$name.err" ||
      tail -2 "$out/$name.err"
  done
}
for name; do
  case $name in
  gemma2) one gemma2 2 flex_attention eager ;;
  *) one "$name" 4 sdpa ;;
  esac
done
