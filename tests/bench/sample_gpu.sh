#!/usr/bin/env bash
# What a token of text takes on a GPU: greedy, keys and values kept, batch 1, weights in bf16. The time of 900 tokens
# less that of 100, over 800, and the rate at which the weights are read; the tokens in files, to compare two versions.
# Needs heddlec and libheddle_rt.a (BUILD=build), a C compiler and a GPU; or programs that `--build OUT` made elsewhere.
#
#   tests/bench/sample_gpu.sh [--build|--run] OUT    without a word: both; ROUNDS=2; MODELS="gpt2 llama1 llama3";
#                                                    HOW="--top-k=50 --temperature=0.8": another choice of tokens
# sample_torch.py times transformers on the same shapes.
set -eu
cd "$(dirname "$0")/../.."
word=all
case ${1:-} in --build | --run) word=${1#--} && shift ;; esac
out=${1:?a folder}
heddlec=${BUILD:-build}/bin/heddlec
mkdir -p "$out"
declare -A source=([gpt2]="gpt2/gpt2.hd" [llama1]="llama3/llama3.hd --set size=1"
                   [llama3]="llama3/llama3.hd --set size=3")
declare -A megabytes=([gpt2]=247.1 [llama1]=2471.5 [llama3]=6425.1) # of weights that a token reads
for model in ${MODELS:-gpt2 llama1 llama3}; do
    read -r file sets <<<"${source[$model]}"
    # shellcheck disable=SC2086
    [ $word = run ] || "$heddlec" "examples/$file" $sets --target=cuda --arch="${ARCH:-sm_90}" --set seq=1024 \
        --set train.batch=1 --set schedule.logits=on -o "$out/$model"
done
[ $word = build ] && exit
python3 -c "
import random, sys
random.seed(1)
words = (random.randrange(32000).to_bytes(2, 'little') for _ in range(4000))
open(sys.argv[1], 'wb').write(b''.join(words))" "$out/data.bin"
seconds() { # model, tokens
    # shellcheck disable=SC2086
    "$out/$1" --steps=1 --data="$out/data.bin" --sample-ids=1,2,3 ${HOW:---temperature=0} --tokens="$2" \
        2>"$out/log" >"$out/$1.$2.text" || { cat "$out/log"; return 1; }
    sed -n 's/.* tokens in \([0-9.]*\) s.*/\1/p' "$out/log" "$out/$1.$2.text" | tail -1
}
for model in ${MODELS:-gpt2 llama1 llama3}; do
    for _ in $(seq "${ROUNDS:-2}"); do
        few=$(seconds "$model" 100) many=$(seconds "$model" 900)
        awk -v m="$model" -v a="$few" -v b="$many" -v w="${megabytes[$model]}" 'BEGIN {
            us = (b - a) / 800 * 1e6
            printf "%-8s %7.0f us a token  %5.2f TB/s of weights\n", m, us, w / us
        }'
    done
done
