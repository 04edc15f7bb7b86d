#!/usr/bin/env bash
# Precision of what two GPUs send: tests/gpu/precision.sh [BUILD]. Needs the build folder, a C compiler and NCCL.
# A small Llama under zero3 with FP8 products: gathers in one byte, also with a scale for each weight, gradients in bf16
# and both have the digest of no graph, of graph unit and of recompute Block, and gathers in one byte that of gathers in
# bf16. Then the step of Llama 8B, B=1 T=8192, zero3 on two GPUs: in bf16, with FP8 products, with gathers in one byte,
# with gradients in bf16, and with both. Beside each the step without large collectives: the difference is exposed
# communication. HEDDLE_SMALL=0 and HEDDLE_LARGE=0 leave one of the two out. Takes some 8 minutes; the large ones need
# 78 GiB a GPU.
set -u
cd "$(dirname "$0")/../.."
. tests/gpu/two_gpus.sh "$@"
fp8="train.precision.fp8=Block train.precision.fp8.backward=e4m3"
half="train.precision.grad=bf16 train.precision.reduce=bf16"
tensor="train.precision.fp8.scale=tensor train.precision.fp8.weights=once"
block="train.precision.fp8.scale=block train.precision.fp8.weight_grads=fp8"
zero3="schedule.fsdp=zero3 schedule.mesh.shard=2 train.precision.compute=bf16"
small() { # NAME SETTING...
  local name=$1
  shift
  program "$name" llama layers=4 dim=256 heads=4 kv_heads=2 hidden=512 vocab=512 seq=256 train.batch=2 $zero3 "$@"
  train "$name" 2 --data="$tmp/small" --format=u16 --steps=12 --digest="$tmp/$name.digest"
}
if [ "${HEDDLE_SMALL:-1}" != 0 ]; then
  # one tree of sums, so that the buckets of gather = fp8 change no bit
  for kind in "fp8" "fp8 half" "fp8 tensor" "fp8 block"; do
    sets="$fp8 train.reduce=tree" of=${kind// /-} gather=train.precision.gather=fp8
    case $kind in
    *half) sets="$sets $half" ;;
    *tensor) sets="$sets $tensor" ;;
    *block) sets="$sets $block" gather= ;; # whose gathers are not in one byte
    esac
    small "$of" $sets
    for more in schedule.graph=none schedule.graph=unit schedule.recompute=Block; do
      name=$of${gather:+-gather}-${more#schedule.}
      small "$name" $sets $gather "$more"
      cmp "$tmp/$of.digest" "$tmp/$name.digest" && echo "same bits: $name" || bad=1
    done
  done
fi
if [ "${HEDDLE_LARGE:-1}" != 0 ]; then
  model="llama3 size=8 seq=8192 train.batch=1 schedule.recompute=auto $zero3"
  program bf16 $model
  program fp8 $model $fp8
  program fp8-gather $model $fp8 train.precision.gather=fp8
  program bf16-half $model $half
  program fp8-gather-half $model $fp8 train.precision.gather=fp8 $half
  for name in bf16 fp8 fp8-gather bf16-half fp8-gather-half; do
    large $name
    echo "without large collectives: $(HEDDLE_SKIP_COLLECTIVES=large large $name)"
  done
fi
exit $bad
