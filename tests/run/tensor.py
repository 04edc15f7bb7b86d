#!/usr/bin/env python3
"""Tensor parallelism on the host target: ranks that share the values of a model compute what one rank computes.

usage: tensor.py ROOT HEDDLEC HEDDLE_OPT [--all]
       tensor.py ROOT HEDDLEC HEDDLE_OPT --fakes=FOLDER --kept=FOLDER

- For each mesh with the axis `tensor` all schedules, also those with offload, have one digest. In f32 the losses agree
  with one rank on the same global batch to a relative 1e-6, the norms to 1e-5. The plan's values have the hash of
  the plan of one rank. One model has windows and dropout, in one form softcap and sinks, too.
- Initial parameters, which the digest shows where nothing is learnt, are those of one rank bit for bit.
- A checkpoint of one mesh continues on the next one of a list, with ranks of the axis `tensor` alone, too: the losses
  are those of a run that did not stop.
- Exported weights are read bit for bit, on one rank and with the axis.
- All of it holds where the ranks do not divide the vocabulary (GPT-2's tied one, and one with a bias and a cap).
- With `sequence on` the same holds, whatever the number of slices is, and mutants of such a plan are refused.
- Mutants of a plan: a collective that is missing, doubled or over other ranks, a partial sum that is read as a whole, a
  parameter that is split along the other dimension, a norm that counts parameters several times or on one rank only.
  verify-plan refuses each.
- Sums in a tree have one digest over data ranks, with such a vocabulary and weights in bf16, too.
- What ranks add up is what docs/bits.md lists. Look-ups, norms and dropout have the same bits on 1, 2 and 4 ranks.
Without --all one mesh and a few schedules. With --fakes CUDA programs on 4 ranks (--all: on 2, too), whose kernels run
on the CPU (tests/simt), with a stand-in for NCCL: one digest a mesh, and the losses of one rank of the host target.
"""
import os
import re
import sys
import tempfile

import axis
from axis import (PLAINLY, agree, exports, far_from, line, mutants_are_refused, numbers, parameters, readers,
                  resumes, starts_alike, sub, verified)

STEPS = 6
LLAMA = dict(layers=2, dim=32, heads=4, kv_heads=4, hidden=64, seq=8, vocab=40)
LLAMA3 = dict(layers=2, dim=32, heads=8, kv_heads=4, hidden=48, seq=8, vocab=40, tied="true")
GPT2 = dict(layers=2, dim=32, heads=4, seq=8, vocab=37, packed=0)  # no ranks divide its tied vocabulary
MODELS = {"llama": ("examples/llama/llama.hd", LLAMA), "llama3": ("examples/llama3/llama3.hd", LLAMA3),
          "gpt2": ("examples/gpt2/gpt2.hd", dict(GPT2, drop=0.1)),
          "windows and dropout": ("tests/run/tensor.hd", {"vocab": 39, "cap": 2.0}),
          "one kv head": ("tests/run/tensor.hd", dict(kv_heads=1, drop=0.0, heads_drop=0.2, softcap=20.0)),
          "tables": ("tests/run/tables.hd", {})}
PLAIN = {"train.compute": "f32", "train.lr": "1e-2", "train.warmup": 0, "schedule.fsdp.unit": "Block"}
SCHEDULES = [{"schedule.fsdp": s, "schedule.graph": g, "schedule.recompute": r} for s, g, r in (
    ("none", "none", "none"), ("zero3", "step", "Block.mlp"), ("zero1", "unit", "none"), ("zero2", "step", "none"),
    ("zero3", "Block.attn", "Block"), ("none", "step", "Block.attn"))]
OFFLOAD = {"schedule.offload": "Block", "schedule.offload.margin": 0, "schedule.offload.min_size": 0}
SEQUENCE = {"schedule.sequence": "on"}  # other bits than off: sums of norms are by positions
SLICES = [{"schedule.sequence.slices": n} for n in (1, 2, 4)]
SCHEDULES += [{**SCHEDULES[0], **OFFLOAD}, {**SCHEDULES[1], **OFFLOAD}, {**SCHEDULES[4], **OFFLOAD}]


class Bench(axis.Bench):
    def settings(self, model, mesh):
        source, sizes = MODELS[model]
        return f"{self.root}/{source}", {**sizes, **PLAIN, "train.batch": 2, "train.accumulate": 4 // readers(mesh)}

    def without(self, mesh, schedule):
        return ({axis: n for axis, n in mesh.items() if axis != "tensor"},
                {k: v for k, v in schedule.items() if not k.startswith("schedule.sequence")})


# --- mutants of a plan

def reads_terms(text, before):
    """The reshape of a gathered sum reads what the reduce_scatter took."""
    gathered = re.search(r"reshape %(\d+)", text)[1]
    part = re.search(rf"%{gathered} = all_gather %(\d+)", "\n".join(before))[1]
    terms = re.search(rf"%{part} = reduce_scatter %(\d+)", "\n".join(before))[1]
    return text.replace(f"%{gathered} ", f"%{terms} ", 1)


def reads_sum(text, before):
    """A reduce_scatter reads what the gather before it has made."""
    gathered = re.findall(r"(%\d+) = all_gather %\d+ .*comm = @comm.tensor", "\n".join(before))[-1]
    return re.sub(r"reduce_scatter %\d+", f"reduce_scatter {gathered}", text)


def of_sum(kind):
    return rf"= {kind} %\d+ .*comm = @comm.tensor"


MUTANTS = {
    "a partial sum read as a whole": line(r"= reshape %\d+ .*: f32\[2,8,32\]", reads_terms),
    "the same, in the backward pass": line(r"= reshape %\d+ {bwd.*: f32\[2,8,32\]", reads_terms),
    "a sum that is summed again": line(of_sum("reduce_scatter"), reads_sum, 1),
    "a sum over other ranks": line(of_sum("reduce_scatter"), sub("comm.tensor", "comm.gather")),
    "a gather over other ranks": line(of_sum("all_gather"), sub("comm.tensor", "comm.gather")),
    "the group of all sums over other ranks": line(r"^comm @comm.tensor", sub(r"\[tensor\]", "[shard]")),
    "split along the other dimension": line(r"^param .*wo : ", sub("tensor: 1", "tensor: 0")),
    "split, and not said": line(r"^param .*wq : ", sub(r" over {tensor: 0}", "")),
    "whole, and said to be split": line(r"^param .*norm1.weight : ", sub(r"(f32\[32\])", r"\1 over {tensor: 0}")),
    "a bucket of parts, said to be copied": line(r"^bucket .*over {tensor", sub(r" over {tensor: 0}", "")),
    "a bucket of copies, said to be of parts": line(r"^bucket @root", sub(r"(: f32\[\d+\])", r"\1 over {tensor: 0}")),
    "a norm of the parts of one rank": line(r"^comm @comm.norm", sub(r"\[tensor, shard\]", "[shard]")),
    "a norm that counts copies twice": line(r"all_gather .*norm.part,.*comm.gather", sub("comm.gather", "comm.norm")),
    "rows of other ranks": line(r"= own_index %tokens", sub("rows = 20", "rows = 10")),
    "targets of other ranks": line(r"= own_index %targets", sub(r"rows = \d+", "rows = 40")),
    "a look-up by tokens of the whole vocabulary": line(r"= take %", sub(r"take (%\d+), %\d+", r"take \1, %tokens")),
    "targets looked up for tokens": line(r"= take %", sub(r"take (%\d+), %\d+", r"take \1, %targets")),
    "a loss without the logits of targets": line(r"= loss_of_parts ", sub(r"_parts (%\d+), %\d+", r"_parts \1, \1")),
    "a loss of other targets": line(r"= loss_of_parts ", sub("%targets", "%tokens")),
    "products of other factors": line(r"= gemm %\d+, %\d+ {tb", sub(r"gemm (%\d+), (%\d+)", r"gemm \1, \1")),
}


UNEVEN = {  # of GPT-2, whose vocabulary of 37 is 19 and 18 rows
    "padding in the sum of exponentials": line(r"= loss_part %", sub(r"(%\S+), %\S+ {uneven = 37}", r"\1")),
    "a row too many in it": line(r"= loss_part %", sub("uneven = 37", "uneven = 38")),
    "other targets in it": line(r"= loss_part %x0", sub(r"%x1, %x2", "%x2, %x2")),
    "a gradient of the padding": line(r"= loss_part_grad %", sub("uneven = 37", "uneven = 38")),
    "a gradient that does not know of it": line(r"= loss_part_grad %", sub(r" {uneven = 37}", "")),
    "rows behind the vocabulary": line(r"embedding_grad .*uneven", sub("uneven = 37, ", "")),
    "a table of equal parts": line(r"^param @wte", sub("uneven 0", "0")),
    "a vocabulary of 38": lambda plan: plan.replace("uneven = 37", "uneven = 38"),
    "a vocabulary without an end": line(r"^config @schedule", sub("uneven = 37, ", "")),
}
OF_POSITIONS = {name: MUTANTS[name] for name in (
    "a sum over other ranks", "a gather over other ranks", "targets of other ranks")}
DRAWS = {  # of GPT-2 with positions split over ranks: dropout of what blocks add, and of attention by heads
    "dropout of the whole": line(r"= dropout .*over = ", sub(r"dims = \[1\], over = \[tensor\], ", "")),
    "dropout of another dimension": line(r"= dropout .*over = ", sub(r"dims = \[1\]", "dims = [2]")),
    "keys of one rank": line(r"dropout_keys {", sub(r", over = \[tensor\]", "")),
    "heads of the first rank": line(r"= attention .*over = ", sub(r", over = \[tensor\]", "")),
    "heads of the first rank, in the gradient": line(r"= attention_grad ", sub(r", over = \[tensor\]", "")),
}
def concat(change):
    """The operands of the first launch of a kernel that puts columns together."""
    def edit(plan):
        kernel = re.search(r"^kernel (@k\d+)\(.*\n  %0 = concat", plan, re.M)[1]
        return re.sub(rf"launch (%\d+), (%\d+) {{kernel = {kernel}}}", rf"launch {change} {{kernel = {kernel}}}", plan,
                      count=1)
    return edit


def weight_before(text, before):
    """A product reads the rows of the weight that the product in slices before it reads."""
    of = re.findall(r"= gemm %\d+, (%\d+) {.*columns", "\n".join(before))[-1]
    return re.sub(r"gemm (%\d+), %\d+", rf"gemm \1, {of}", text)


OF_SLICES = {
    "slices in another order": concat(r"\2, \1"),
    "a slice twice": concat(r"\1, \1"),
    "rows of another slice": line(r"= gemm .*columns", weight_before, 1),
    "rows between two slices": line(r"= view .*: f32\[16,16\]", lambda text, before: re.sub(
        r"offset = (\d+)", lambda m: f"offset = {int(m[1]) + 16}", text)),
    "a slice that other ranks sum": line(of_sum("reduce_scatter"), sub("comm.tensor", "comm.gather"), 1),
}
OF_POSITIONS["a norm's gradient of one rank's positions"] = lambda plan: re.sub(
    r"(reduce_scatter (%\d+) {bwd[^\n]*f32\[16\][^\n]*\n(?:.*\n)*?.*store )%\d+", r"\1\2", plan, count=1)


def plan_of(bench, more, model="llama"):
    return bench.plan(model, dict(tensor=2, shard=2), {"schedule.fsdp": "zero3", "schedule.graph": "none", **more})


def sums_are_listed(bench):
    """docs/bits.md lists what ranks along `tensor` add up: so does a plan of llama3 with one block, on 2 and on 4."""
    with open(f"{bench.root}/docs/bits.md") as f:
        rows = [r.split("|") for r in f if r.startswith("| ") and re.search(r"(forward|backward) `", r)]
    wrong = []
    for ranks in (2, 4):
        for sequence in ("off", "on"):
            listed = {(r[2].split()[0], place) for r in rows if sequence in re.findall(r"\w+", r[3])
                      for place in re.findall("`(.*?)`", r[2])}
            small = {"layers": 1, "tied": "false", "vocab": 32, "train.batch": 1}
            text = bench.plan("llama3", dict(tensor=ranks), {**small, **(SEQUENCE if sequence == "on" else {})})
            found = set()
            for op in text[text.index("func @micro"):].splitlines():
                m = re.search(r"= (reduce_scatter|loss_of_parts|root_sum) %", op)
                if m and (m[1] != "reduce_scatter" or "comm.tensor" in op):
                    path = re.search(r'loc\(([\w.]+), ', op)
                    gains = " of gains" if f": f32[{32 // ranks}] " in op else ""
                    backward = "{bwd" in op and m[1] != "loss_of_parts" or m[1] == "root_sum"
                    found.add(("backward" if backward else "forward",
                               f"{m[1]} {path[1] if path and m[1] == 'reduce_scatter' else 'root'}{gains}"))
            if found != listed:
                wrong.append(f"docs/bits.md, tensor {ranks}, sequence {sequence}: lists {sorted(listed - found)}, and "
                             f"the plan has {sorted(found - listed)}")
    return wrong


def looks_up_alike(bench):
    """What adds nothing over ranks has the same losses and parameters on 1, 2 and 4: look-ups, norms, dropout."""
    digests = [bench.run(bench.compile("tables", mesh, {"train.clip": 0}), mesh)
               for mesh in ({}, dict(tensor=2), dict(tensor=4))]
    same = [numbers(d, 1) + parameters(d) for d in digests]
    return [] if same[0] == same[1] == same[2] else [f"look-ups on 1, 2 and 4 ranks: {digests}"]


def trees_agree(bench):
    """reduce = tree over a vocabulary that ranks do not divide, weights in bf16 with what they lack: one digest over
    data ranks, replicas and strategies."""
    train = {"train.reduce": "tree", "train.grains": 4, "train.compute": "bf16", "train.precision.master": "kahan",
             "train.precision.moments": "bf16"}
    meshes = [(dict(tensor=2), {}), (dict(tensor=2, shard=2), {"schedule.fsdp": "zero3"}),
              (dict(tensor=2, replicate=2), {})]
    digests = [bench.run(bench.compile("gpt2", m, {**train, **more}), m) for m, more in meshes]
    return [] if digests[0] == digests[1] == digests[2] else [f"sums in a tree on {meshes}: {digests}"]


def shared_heads_are_proved(bench, opt):
    """k and v that all heads read are whole, and their gradients are terms: not one read as a sum, nor summed twice."""
    wrong, text = [], bench.plan("one kv head", dict(tensor=4), {"schedule.graph": "none"})
    after = text.index("= attention_grad")
    terms, whole = re.search(r"reduce_scatter (%\d+) .*\n.*(%\d+) = all_gather", text[after:]).groups()
    cases = {
        "as it is": text,
        "other kv heads": text.replace("kv_heads = 1", "kv_heads = 2"),
        "heads of all ranks": re.sub(r"(attention_grad .*{heads = )2", r"\g<1>8", text),
        "gradients of one rank": text[:after] + text[after:].replace(f"store {whole} ", f"store {terms} ", 1),
    }
    for name, mutant in cases.items():
        done = verified(bench, opt, mutant)
        if (done.returncode == 0) != (name == "as it is") or (name != "as it is" and mutant == text):
            wrong.append(f"one kv head, '{name}': {done.returncode}, {done.stderr[-300:]}")
    return wrong


def norm_of_one_rank(bench, opt):
    """A norm in one op has the gradients of one rank, and not the parts that others have."""
    text = bench.plan("llama", dict(tensor=2), {"schedule.fsdp": "none"})
    sums = re.search(r"= square_sums {buffers = (\[.*?\])} : f64\[\d+\]", text)[1]
    end = int(re.search(r"^arena @device {bytes = (\d+)", text, re.M)[1])
    whole = f"= grad_norm {{buffers = {sums}, workspace_bytes = 256, workspace_at = {end}}} "
    text = re.sub(r"= root_sum %\d+ ", whole, text).replace(f"{{bytes = {end}", f"{{bytes = {end + 256}")
    done = verified(bench, opt, text)
    if "grad_norm covers the gradients of one rank, and other ranks hold other parts of the parameters" in done.stderr:
        return []
    return [f"a norm of one rank's gradients: {done.stderr[-500:]}"]


def emulated(bench, fakes, kept, everything):
    """GPT-2 with dropout on pretended GPUs: losses and norms are those of one rank of the host target."""
    os.environ.update(HEDDLE_CUDA_PATH=fakes, FAKE_CUDA_SIMT=kept, FAKE_CUDA_CC="90", HEDDLE_CACHE="off",
                      HEDDLE_TUNE="0", FAKE_CUDA_DEVICES="4")
    wrong, small = [], {"layers": 1, **PLAINLY}
    one = bench.run(bench.compile("gpt2", {}, small), {}, steps=3)
    schedules = [{"schedule.fsdp": "zero3", "schedule.graph": "step"}, {"schedule.recompute": "Block"}]
    for mesh, more in ((dict(tensor=2, shard=2), SEQUENCE), (dict(tensor=2), {}), (dict(tensor=4), SEQUENCE)):
        of = [{**s, **(SLICES[1 - i] if more else {})} for i, s in enumerate(schedules)]
        digests = [bench.run(bench.compile("gpt2", mesh, {**small, **more, **s}, "--target=cuda", "--arch=sm_90"), mesh,
                             steps=3) for s in of[:2 if everything else 1]]
        if far_from(digests[0], one) or digests[0] != digests[-1]:
            wrong.append(f"emulated, {mesh}, {more}: {digests}, and one rank {one}")
        if not everything:
            break
    return wrong


def main():
    root, heddlec, opt = (os.path.abspath(a) for a in sys.argv[1:4])
    fakes = [os.path.abspath(a.split("=")[1]) for a in sys.argv[4:] if a.startswith(("--fakes=", "--kept="))]
    everything = "--all" in sys.argv
    meshes = [dict(tensor=2, shard=2)]
    if everything:
        meshes += [dict(tensor=2), dict(tensor=4), dict(tensor=2, shard=2, replicate=2)]
    with tempfile.TemporaryDirectory(prefix="heddle-tensor-") as folder:
        bench = Bench(root, heddlec, folder, STEPS)
        if fakes:
            wrong = emulated(bench, *fakes, everything)
            print("\n".join(wrong) or "ok")
            return len(wrong) > 0
        wrong = []
        for mesh in meshes:
            wrong += agree(bench, "llama", mesh, SCHEDULES if everything else SCHEDULES[:2])
            if everything:
                wrong += agree(bench, "llama3", mesh, SCHEDULES)
            for model in ("gpt2", "windows and dropout", "one kv head"):
                wrong += agree(bench, model, mesh, SCHEDULES if everything else SCHEDULES[1:2])
        positions = [{**s, **SEQUENCE, **SLICES[i % 3]} for i, s in enumerate(SCHEDULES)]
        for mesh in meshes if everything else [dict(tensor=2)]:
            for model in ("llama", "gpt2", "windows and dropout"):
                wrong += agree(bench, model, mesh, positions if everything else positions[model != "llama":2])
        wrong += shared_heads_are_proved(bench, opt)
        wrong += norm_of_one_rank(bench, opt)
        wrong += sums_are_listed(bench)
        wrong += looks_up_alike(bench)
        wrong += trees_agree(bench)
        wrong += starts_alike(bench, "llama", dict(tensor=2, shard=2))
        choices = [({}, "none"), (dict(tensor=2, shard=2), "zero3"), (dict(tensor=2), "none")]
        if everything:
            choices += [(dict(tensor=2, shard=2), "none"), (dict(tensor=4), "zero3"), (dict(shard=2), "zero2"),
                        (dict(tensor=2, shard=2, replicate=2), "zero1")]
        wrong += resumes(bench, "llama", choices)
        wrong += exports(bench, "llama", dict(tensor=2))
        wrong += starts_alike(bench, "gpt2", dict(tensor=2))
        wrong += resumes(bench, "gpt2", [({}, "none"), (dict(tensor=4), "zero3"), (dict(tensor=2), "none")])
        wrong += exports(bench, "gpt2", dict(tensor=2))
        wrong += mutants_are_refused(bench, opt, plan_of(bench, {}), MUTANTS)
        wrong += mutants_are_refused(bench, opt, plan_of(bench, SEQUENCE), OF_POSITIONS)
        sliced = {"layers": 1, "train.batch": 1, **SEQUENCE, **SLICES[1]}
        wrong += mutants_are_refused(bench, opt, plan_of(bench, sliced), OF_SLICES)
        wrong += mutants_are_refused(bench, opt, plan_of(bench, {"schedule.fsdp": "none"}, "gpt2"), UNEVEN)
        wrong += mutants_are_refused(bench, opt, plan_of(bench, SEQUENCE, "gpt2"), DRAWS)
    print("\n".join(wrong) or "ok")
    return len(wrong) > 0


sys.exit(main())
