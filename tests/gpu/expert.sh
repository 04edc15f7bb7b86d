#!/usr/bin/env bash
# The axis expert on two GPUs: tests/gpu/expert.sh [BUILD]. Needs the build folder, a C compiler and NCCL. A small OLMoE
# on expert 2, in bf16 and f32: graph none, step and unit, zero3 and recompute Block have one digest, and the losses of
# f32 are those of one GPU. DeepSeek's router with its buffer: one digest over the same. Under reduce = tree one GPU and
# shard 2 have one digest, and expert 2 another one over its schedules. Then the step of two mixtures of 8 layers, B=2 a
# GPU, T=4096: 64 experts of 1024, 8 of them a token, and 8 experts of 7168, 2 of them, on expert 2 beside shard 2 under
# zero2, tokens gathered and exchanged: on two GPUs an exchange moves fewer bytes only with one expert a token, so both
# are measured with one of 8 experts, too, under a bound that has room for every token: the router of an untrained model
# sends nearly all of them to one expert. HEDDLE_SMALL=0 and HEDDLE_LARGE=0 leave one of the two out.
set -u
cd "$(dirname "$0")/../.."
. tests/gpu/two_gpus.sh "$@"
small() { # NAME MODEL RANKS SETTING...
  local name=$1 model=$2 ranks=$3
  shift 3
  program "$name" "moe/$model" layers=2 dim=256 heads=4 inner=128 vocab=512 seq=256 "$@"
  train "$name" "$ranks" --data="$tmp/small" --format=u16 --steps=12 --digest="$tmp/$name.digest"
}
if [ "${HEDDLE_SMALL:-1}" != 0 ]; then
for model in olmoe deepseek; do
  for dtype in bf16 f32; do
    for more in graph=none graph=step graph=unit fsdp=zero3 recompute=Block experts=exchange; do
      name="$model-$dtype-$more"
      small "$name" $model 2 "train.compute=$dtype" train.batch=2 schedule.mesh.expert=2 "schedule.$more"
      cmp "$tmp/$model-$dtype-graph=none.digest" "$tmp/$name.digest" && echo "same bits: $name" || bad=1
    done
  done
  small "one-$model" $model 1 train.compute=f32 train.batch=2 train.accumulate=2
  near "one-$model" "$model-f32-graph=none"
done
# reduce = tree: one digest for each number of expert ranks
tree="train.compute=bf16 train.batch=2 train.reduce=tree train.grains=4"
small tree-one olmoe 1 $tree train.accumulate=4
small tree-shard olmoe 2 $tree train.accumulate=2 schedule.mesh.shard=2 schedule.fsdp=zero3 schedule.graph=unit
small tree-expert olmoe 2 $tree train.accumulate=2 schedule.mesh.expert=2 schedule.graph=step
small tree-zero3 olmoe 2 $tree train.accumulate=2 schedule.mesh.expert=2 schedule.fsdp=zero3 schedule.graph=none
for pair in tree-one:tree-shard tree-expert:tree-zero3; do
  cmp "$tmp/${pair%:*}.digest" "$tmp/${pair#*:}.digest" && echo "same bits under reduce = tree: $pair" || bad=1
done
fi
if [ "${HEDDLE_LARGE:-1}" != 0 ]; then
  fine="moe/olmoe layers=8 dim=2048 heads=16 experts=64 inner=1024 active=8 vocab=50304 seq=4096 train.batch=2"
  coarse="moe/mixtral layers=8 dim=2048 heads=16 experts=8 inner=7168 active=2 vocab=50304 seq=4096 train.batch=2"
  for mesh in expert=2 shard=2; do
    program "fine-$mesh" $fine "schedule.mesh.$mesh" schedule.fsdp=zero2 schedule.recompute=auto
    program "coarse-$mesh" $coarse "schedule.mesh.$mesh" schedule.fsdp=zero2 schedule.recompute=auto
  done
  for name in fine-expert=2 fine-shard=2 coarse-expert=2 coarse-shard=2; do large $name; done
  declare -A bound=([exchange]=schedule.experts.bound=200)
  for how in gather exchange; do
    program "one-$how" $coarse active=1 schedule.mesh.expert=2 schedule.fsdp=zero2 schedule.recompute=auto \
      "schedule.experts=$how" ${bound[$how]:-}
    program "two-$how" $coarse schedule.mesh.expert=2 schedule.fsdp=zero2 schedule.recompute=auto \
      "schedule.experts=$how"
    large "one-$how"
    large "two-$how"
  done
fi
exit $bad
