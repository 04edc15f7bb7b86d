#!/usr/bin/env bash
# Tensor parallelism on two GPUs: tests/gpu/tensor.sh [BUILD]. Needs the build folder, a C compiler and NCCL. A small
# Llama on tensor 2, in bf16 and f32: graph none, step and unit and recompute Block have one digest, with sequence on
# another one, and the losses of f32 are those of one GPU. A GPT-2 whose vocabulary two does not divide has the losses
# of one GPU. Then the step of Llama 8B, T=4096: tensor 2 with B=1, also with sequence on, and B=2, beside zero3, B=1 a
# rank; and T=8192 with sequence on, by 64, 32 and 16 of NCCL's blocks, and in 2 and 4 slices. HEDDLE_SMALL=0 and
# HEDDLE_LARGE=0 leave one of the two out. Takes 9 minutes; the large ones need 78 GiB a GPU.
set -u
cd "$(dirname "$0")/../.."
. tests/gpu/two_gpus.sh "$@"
small() { # NAME RANKS SETTING...
  local name=$1 ranks=$2
  shift 2
  program "$name" llama layers=3 dim=256 heads=4 kv_heads=2 hidden=512 vocab=512 seq=256 train.batch=2 "$@"
  train "$name" "$ranks" --data="$tmp/small" --format=u16 --steps=12 --digest="$tmp/$name.digest"
}
if [ "${HEDDLE_SMALL:-1}" != 0 ]; then
for dtype in bf16 f32; do
  small "one-$dtype" 1 "train.compute=$dtype"
  for more in schedule.graph=none schedule.graph=step schedule.graph=unit schedule.recompute=Block; do
    name="$dtype-${more#schedule.}"
    small "$name" 2 "train.compute=$dtype" schedule.mesh.tensor=2 "$more"
    cmp "$tmp/$dtype-graph=none.digest" "$tmp/$name.digest" && echo "same bits: $name" || bad=1
    small "$name-sequence" 2 "train.compute=$dtype" schedule.mesh.tensor=2 schedule.sequence=on "$more"
    cmp "$tmp/$dtype-graph=none-sequence.digest" "$tmp/$name-sequence.digest" &&
      echo "same bits: $name, sequence on" || bad=1
  done
  for slices in 2 4; do
    name="$dtype-slices$slices"
    small "$name" 2 "train.compute=$dtype" schedule.mesh.tensor=2 schedule.sequence=on \
      "schedule.sequence.slices=$slices"
    cmp "$tmp/$dtype-graph=none-sequence.digest" "$tmp/$name.digest" && echo "same bits: $name" || bad=1
  done
done
for two in f32-graph=none f32-graph=none-sequence; do near one-f32 "$two"; done
# a vocabulary that two does not divide
uneven() { # NAME RANKS SETTING...
  local name=$1 ranks=$2
  shift 2
  program "$name" gpt2 layers=3 dim=256 heads=4 vocab=509 seq=256 drop=0 train.batch=2 train.compute=f32 "$@"
  train "$name" "$ranks" --data="$tmp/small" --format=u16 --steps=12 --digest="$tmp/$name.digest"
}
uneven uneven-one 1
for more in schedule.graph=none schedule.graph=step schedule.recompute=Block schedule.graph=unit; do
  uneven "uneven-$more" 2 schedule.mesh.tensor=2 "$more"
  near uneven-one "uneven-$more"
done
for more in schedule.graph=step schedule.graph=unit schedule.recompute=Block; do
  cmp "$tmp/uneven-schedule.graph=none.digest" "$tmp/uneven-$more.digest" && echo "same bits: uneven, $more" || bad=1
done
fi
if [ "${HEDDLE_LARGE:-1}" != 0 ]; then
  tensor="llama3 size=8 seq=4096 schedule.mesh.tensor=2"
  program tensor-b1 $tensor train.batch=1 schedule.recompute=auto
  program sequence-b1 $tensor train.batch=1 schedule.recompute=auto schedule.sequence=on
  program tensor-b2 $tensor train.batch=2 schedule.recompute=Block
  program zero3-b1 llama3 size=8 seq=4096 schedule.mesh.shard=2 schedule.fsdp=zero3 schedule.fsdp.unit=Block \
    schedule.prefetch=1 schedule.recompute=auto schedule.fsdp.weights=master train.batch=1
  for name in tensor-b1 sequence-b1 tensor-b2 zero3-b1; do large $name; done
  program sequence-long llama3 size=8 seq=8192 schedule.mesh.tensor=2 schedule.sequence=on train.batch=1 \
    schedule.recompute=auto
  for blocks in 64 32 16; do
    echo "of $blocks blocks:"
    HEDDLE_NCCL_CTAS=$blocks large sequence-long
  done
  for slices in 2 4; do
    program sequence-slices$slices llama3 size=8 seq=8192 schedule.mesh.tensor=2 schedule.sequence=on train.batch=1 \
      schedule.recompute=auto schedule.sequence.slices=$slices
    large sequence-slices$slices
  done
fi
exit $bad
