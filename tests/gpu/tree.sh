#!/usr/bin/env bash
# train.reduce = tree on two GPUs: tests/gpu/tree.sh [BUILD]. Needs the build folder, a C compiler and NCCL.
# A small Llama and a GPT-2 with dropout, in bf16 and f32, four grains: one GPU with four micro-batches, two GPUs
# under zero3, zero2 and none with two, over graphs, have one digest; two GPUs of reduce = each have another. A run of
# two GPUs that goes on with one ends at the parameters of one that did not stop. Then the step of GPT-2 1558M, B=16
# T=1024, and of Llama 8B, B=1 T=4096, zero3 on two GPUs, with each and with tree, in turns: the second run of each
# counts, with the caches full. HEDDLE_SMALL=0 and HEDDLE_LARGE=0 leave one of the two out. Takes 4 minutes; the large
# ones need 78 GiB a GPU.
set -u
cd "$(dirname "$0")/../.."
. tests/gpu/two_gpus.sh "$@"
small() { # NAME EXAMPLE RANKS SETTING...
  local name=$1 example=$2 ranks=$3 sizes="layers=3 dim=256 heads=4 vocab=512 seq=256"
  shift 3
  [ "$example" = gpt2 ] && sizes+=" drop=0.1" || sizes+=" kv_heads=2 hidden=512"
  program "$name" "$example" $sizes train.batch=2 train.accumulate=$((4 / ranks)) schedule.mesh.shard="$ranks" "$@"
  train "$name" "$ranks" --data="$tmp/small" --format=u16 --steps=12 --digest="$tmp/$name.digest"
}
tree="train.reduce=tree train.grains=4"
if [ "${HEDDLE_SMALL:-1}" != 0 ]; then
for example in llama gpt2; do
  for dtype in bf16 f32; do
    n=$example-$dtype all="train.compute=$dtype $tree"
    small "$n-one" $example 1 $all
    small "$n-zero3" $example 2 $all schedule.fsdp=zero3 schedule.fsdp.unit=Block schedule.graph=unit
    small "$n-zero2" $example 2 $all schedule.fsdp=zero2 schedule.fsdp.unit=Block schedule.graph=step
    small "$n-none" $example 2 $all schedule.fsdp=none schedule.recompute=Block
    for other in zero3 zero2 none; do
      cmp "$tmp/$n-one.digest" "$tmp/$n-$other.digest" && echo "same bits: $n, 1 GPU and 2 under $other" || bad=1
    done
    small "$n-each" $example 2 "train.compute=$dtype" schedule.fsdp=zero3 schedule.fsdp.unit=Block
    cmp -s "$tmp/$n-one.digest" "$tmp/$n-each.digest" && { echo "reduce = each has the same bits: $n"; bad=1; }
  done
done
train llama-bf16-zero3 2 --data="$tmp/small" --format=u16 --steps=5 --save="$tmp/saved"
train llama-bf16-one 1 --data="$tmp/small" --format=u16 --steps=12 --resume="$tmp/saved" --digest="$tmp/resumed"
cmp <(grep ^param "$tmp/resumed") <(grep ^param "$tmp/llama-bf16-one.digest") &&
  echo "same bits: 5 steps on 2 GPUs, then 7 on one" || bad=1
fi
zero3="schedule.mesh.shard=2 schedule.fsdp=zero3 schedule.fsdp.unit=Block schedule.prefetch=1 schedule.recompute=auto
  schedule.fsdp.weights=master train.compute=bf16"
if [ "${HEDDLE_LARGE:-1}" != 0 ]; then
  for reduce in each tree; do
    program "1558M-$reduce" gpt2 layers=48 heads=25 dim=1600 seq=1024 train.batch=16 $zero3 train.reduce=$reduce
    program "8B-$reduce" llama3 size=8 seq=4096 train.batch=1 $zero3 train.reduce=$reduce
  done
  for turn in 1 2; do
    for name in 1558M-each 1558M-tree 8B-each 8B-tree; do large $name; done
  done
fi
exit $bad
