#!/usr/bin/env python3
"""Experts owned by ranks, on the host target: ranks along the axis `expert` compute what one rank computes.

usage: expert.py ROOT HEDDLEC HEDDLE_OPT [--all]

- For each mesh with the axis all schedules have one digest. In f32 the losses agree with one rank on the same global
  batch to a relative 1e-6, the norms, which have the gradients of experts, to 1e-5. The plan's values have the hash
  of the plan of one rank.
- Experts with a capacity drop as many choices as on one rank, and losses and norms agree as closely.
- Tokens that travel by exchange give the digest of those that are gathered, under every schedule, in f32 and bf16. A
  bound that a router exceeds ends the run with the way out, or skips steps. The report has the bytes of both.
- Initial parameters are those of one rank bit for bit, and the log counts as many.
- A checkpoint of one mesh continues on the next one of a list, with other numbers of ranks along the axis.
- Exported weights are read bit for bit, on one rank and with the axis.
- With reduce = tree meshes of one number of ranks along the axis have one digest, and a run continues bit for bit on
  another one of them. With another number of them the digest is another one.
- The report counts the bytes along the axis.
- Mutants of a plan, each of which verify-plan refuses: rows of other ranks' experts, what one rank has in place of what
  all have, a sum over other ranks, none or two, a gradient of experts that is summed over the axis again.
Without --all a few meshes and schedules.
"""
import json
import os
import re
import sys
import tempfile

import axis
from axis import agree, call, exports, far_from, line, mutants_are_refused, readers, resumes, starts_alike, sub

STEPS = 3
SIZES = dict(layers=1, dim=8, heads=2, seq=8, vocab=40, experts=4, inner=8)
OWN = {"deepseek": dict(experts=8, shared=8)}
PLAIN = {"train.compute": "f32", "train.lr": "1e-2", "train.warmup": 0, "schedule.fsdp.unit": "Block"}
SCHEDULES = [{"schedule.fsdp": s, "schedule.graph": g, "schedule.recompute": r} for s, g, r in (
    ("none", "none", "none"), ("zero3", "step", "Block.mlp"), ("zero1", "unit", "none"), ("zero2", "step", "none"),
    ("zero3", "Block.attn", "Block"), ("none", "step", "Block.attn"))]
OFFLOAD = {"schedule.offload": "Block.mlp", "schedule.offload.margin": 0, "schedule.offload.min_size": 0}
SCHEDULES += [{**SCHEDULES[0], **OFFLOAD}, {**SCHEDULES[2], **OFFLOAD}]


class Bench(axis.Bench):
    def settings(self, model, mesh):
        source = f"{self.root}/examples/moe/{model}.hd"
        if model == "bounded":
            source = os.path.join(self.folder, "bounded.hd")
            for path, to in (("olmoe.hd", source), ("parts/experts.hd", os.path.join(self.folder, "parts/experts.hd"))):
                os.makedirs(os.path.dirname(to), exist_ok=True)
                with open(f"{self.root}/examples/moe/{path}") as f, open(to, "w") as out:
                    out.write(f.read().replace("dispatch(chosen, experts)", "dispatch(chosen, experts, capacity = 3)"))
        sets = {**SIZES, **OWN.get(model, {}), **PLAIN}
        return source, {**sets, "train.batch": 1, "train.accumulate": 8 // readers(mesh)}

    def without(self, mesh, schedule):
        return dict(shard=readers(mesh)), schedule


def drops(bench, mesh):
    digests, seen = [], []
    for m in ({}, mesh):
        log = os.path.join(bench.folder, f"drops{len(seen)}.jsonl")
        digests.append(bench.run(bench.compile("bounded", m, SCHEDULES[1]), m, f"--log={log}"))
        with open(log) as f:
            seen.append([x["dropped"] for x in map(json.loads, f) if "dropped" in x])
    wrong = [f"bounded, {mesh}: {digests}"] if far_from(digests[1], digests[0]) else []
    if seen[0] != seen[1] or min(seen[0], default=0) < 1 or len(seen[0]) != STEPS:
        wrong.append(f"bounded, {mesh}: {seen[1]} choices are dropped, on one rank {seen[0]}")
    return wrong


def exchanges(bench, cases):
    wrong = []
    for model, mesh, more, schedules in cases:
        gathered = bench.run(bench.compile(model, mesh, {**SCHEDULES[0], **more}), mesh)
        for schedule in schedules:
            sets = {**schedule, **more, "schedule.experts": "exchange", "schedule.experts.bound": 175}
            if bench.run(bench.compile(model, mesh, sets), mesh) != gathered:
                wrong.append(f"{model}, {mesh}, {sets}: another digest than by a gather")
    return wrong


TREE = {"train.reduce": "tree", "train.grains": 8}
TREES = [(dict(expert=2), {}), (dict(expert=2, shard=2, replicate=2), SCHEDULES[1]),
         (dict(expert=2, replicate=2), SCHEDULES[3]), (dict(expert=2, shard=2), SCHEDULES[2]),
         (dict(expert=2, shard=4), {**SCHEDULES[4], "schedule.experts": "exchange", "schedule.experts.bound": 200})]


def in_a_tree(bench, trees):
    built = [(bench.compile("deepseek", mesh, {**schedule, **TREE}), mesh) for mesh, schedule in trees]
    digests = [bench.run(*of) for of in built]
    wrong = [f"a tree on {mesh}: another digest than on {trees[0][0]}"
             for (mesh, _), digest in zip(trees, digests) if digest != digests[0]]
    saved = os.path.join(bench.folder, "tree")
    start, rest = bench.run(*built[1], f"--save={saved}", steps=1), bench.run(*built[0], f"--resume={saved}")
    if start[:1] + rest != digests[0]:
        wrong.append(f"a tree on {trees[1][0]}, then on {trees[0][0]}: another digest than without a stop")
    other = bench.run(bench.compile("deepseek", dict(expert=4), TREE), dict(expert=4))
    if other == digests[0] or far_from(other, digests[0]):
        wrong.append(f"a tree on 4 ranks along the axis: {other[:STEPS]}, on 2 {digests[0][:STEPS]}")
    return wrong


def bounds(bench):
    """Of 8 tokens an equal share of 4 may go to each of four ranks."""
    mesh, wrong = dict(expert=4), []
    sets = {"schedule.experts": "exchange", "schedule.experts.bound": 100, "train.accumulate": 1}
    program = bench.compile("mixtral", mesh, {**sets, "schedule.recompute": "none"})
    done = call(program, f"--data={bench.folder}/tokens.bin", "--steps=3", "--ranks=4", ok=False)
    said = re.search(r"needs --set schedule.experts.bound=(\d+), every token has room with 200", done.stderr)
    if done.returncode != 1 or "loss nan" not in done.stderr or not said:
        wrong.append(f"a bound that is exceeded: {done.stdout[-500:]}{done.stderr[-1000:]}")
    for less, status in ((0, 0), (1, 1)) if said else ():  # of one layer, the first step
        program = bench.compile("mixtral", mesh, {**sets, "schedule.experts.bound": int(said[1]) - less})
        done = call(program, f"--data={bench.folder}/tokens.bin", "--steps=1", "--ranks=4", ok=False)
        if done.returncode != status:
            wrong.append(f"a bound of {int(said[1]) - less}: status {done.returncode}, {done.stderr[-500:]}")
    program = bench.compile("mixtral", mesh, {**sets, "train.on_nan": "skip"})
    done = call(program, f"--data={bench.folder}/tokens.bin", "--steps=3", "--ranks=4")
    if "skipped, the weights stay as they are" not in done.stdout + done.stderr:
        wrong.append(f"a bound that is exceeded, and skipped: {done.stdout[-500:]}{done.stderr[-500:]}")
    ways = (("exchange", 100, 4, "schedule.experts = exchange"), ("auto", 100, 4, "an exchange moves fewer bytes"),
            ("auto", 200, 8, "an exchange with this bound moves no fewer bytes"), ("gather", 100, None, None))
    for how, bound, sent, why in ways:
        more = {"schedule.experts": how, "schedule.experts.bound": bound}
        with open(bench.compile("mixtral", mesh, {**sets, **more}, "--emit=report")) as f:
            report = json.load(f)
        dim, k, tokens, moved = SIZES["dim"], 2, 8, report["streams"]["expert"]["bytes"]
        rows = 4 * (4 * dim + 2 * k)  # of a token, forward and backward
        want = [3 * (tokens * (4 * k + rows)), 3 * (tokens * 4 * k + sent * rows) if sent else None]
        got = [report["experts"].get("gathered_bytes"), report["experts"].get("moved_bytes")]
        if (got != want or moved != want[1]) if sent else moved != want[0]:
            wrong.append(f"{how}: the report has {got} and {moved} bytes along the axis, not {want}")
        if report["experts"].get("why") != why:
            wrong.append(f"{how}, {bound}: the report says {report['experts'].get('why')}, not {why}")
    return wrong


def reported(bench):
    """The tokens, choices and weights that a rank receives, forward and backward, and its part of the sums."""
    with open(bench.compile("olmoe", dict(expert=4), {"train.accumulate": 1, "schedule.recompute": "none"},
                            "--emit=report")) as f:
        streams = json.load(f)["streams"]
    tokens, dim, k = 8, SIZES["dim"], 2
    moved = 3 * (4 * tokens * (dim + k + k + dim) + 4 * tokens * (dim + dim + k))
    return [] if streams["expert"]["bytes"] == moved else [f"the report has {streams['expert']}, not {moved} bytes"]


# --- mutants of a plan

def of_op(kind):
    return rf"= {kind} %\d+ .*comm = @comm.expert"


def reads_first(kind, dtype):
    """The first collective of this kind and type in the function lends its operand."""
    def change(text, before):
        start = max(i for i, other in enumerate(before) if other.startswith("func "))
        found = re.search(rf"= {kind} (%\d+) [^\n]*comm.expert[^\n]*: {dtype}\[", "\n".join(before[start:]))[1]
        return re.sub(rf"{kind} %\d+", f"{kind} {found}", text)
    return change


def exchanged_views(plan):
    """The first two products by rows of experts, in the last function, read each other's weights."""
    start = plan.rindex("\nfunc @micro")
    (a, b) = re.findall(r"= grouped %\d+, (%\d+)", plan[start:])[:2]
    at = {x: re.search(rf"{x} = view .*?offset = (.*?) loc", plan[start:])[1] for x in (a, b)}
    for x, y in ((a, b), (b, a)):
        plan = plan[:start] + re.sub(rf"({x} = view .*?offset = ).*?( loc)", rf"\g<1>{at[y]}\2", plan[start:], count=1)
    return plan


def swap_axes(plan):
    """Gradients of experts over the ranks that own others, and those of all else over the ranks of the shard alone."""
    return re.sub(r"@comm.reduce(\.shard)?\b(?= ?[,}])", lambda m: "@comm.reduce" + ("" if m[1] else ".shard"), plan)


MUTANTS = {
    "rows of other ranks' experts": line(r"= own_index ", sub("rows = 2", "rows = 1")),
    "choices by the numbers of another axis": line(r"= own_index ", sub(r"\[expert\]", "[shard]")),
    "experts of all ranks": line(r"= dispatch ", sub("experts = 2", "experts = 4")),
    "choices that are not numbered from the rank's": line(
        r"= dispatch ", lambda text, before: re.sub(
            r"dispatch %\d+", "dispatch " + re.findall(r"= own_index (%\d+)", "\n".join(before))[-1], text)),
    "a gather over other ranks": line(of_op("all_gather"), sub("comm.expert", "comm.gather.shard")),
    "a gather of weights over other ranks": line(of_op("all_gather"), sub("comm.expert", "comm.gather.shard"), 2),
    "a sum over other ranks": line(of_op("reduce_scatter"), sub("comm.expert", "comm.gather.shard")),
    "the same, in the backward pass": line(of_op("reduce_scatter") + ".*", sub("comm.expert", "comm.reduce.shard"), 1),
    "all collectives over other ranks": line(r"^comm @comm.expert", sub(r"\[expert\]", "[shard]")),
    "an expert's gradient summed over the axis": line(r"^comm @comm.reduce.shard", sub(r"\[shard\]", "[expert]")),
    "gradients of the rest not summed over the axis": line(
        r"^comm @comm.reduce ", sub(r"\[expert, shard\]", "[shard]")),
    "buckets reduced over each other's ranks": swap_axes,
    "split, and not said": line(r"^param .*mlp.gate_up : ", sub(r" over {expert: 0}", "")),
    "split along another dimension": line(r"^param .*mlp.gate_up : ", sub("expert: 0", "expert: 1")),
    "whole, and said to be split": line(r"^param .*norm1.weight : ", sub(r"(f32\[8\])", r"\1 over {expert: 0}")),
    "a bucket of parts, said to be of no rank": line(r"^bucket .*over {expert", sub(r" over {expert: 0}", "")),
    "a bucket of parts, split over the axis again": line(
        r"^bucket .*over {expert", sub(r"split = \[shard\]", "split = [expert, shard]")),
    "tokens gathered in place of gradients": line(
        r"= all_gather %\d+ {bwd.*comm = @comm.expert", reads_first("all_gather", "f32")),
    "a sum of the forward pass in the backward pass": line(
        r"= reduce_scatter %\d+ {bwd.*comm = @comm.expert", reads_first("reduce_scatter", "f32"), 1),
    "rows by the weights of another product": exchanged_views,
    "a capacity of the choices of all ranks": line(r"= dispatch .*runs = 2", sub("runs = 2", "runs = 1")),
    "a capacity of parts of a rank's choices": line(r"= dispatch .*runs = 2", sub("runs = 2", "runs = 4")),
    "another capacity": line(r"= dispatch .*runs = 2", sub("capacity = 3", "capacity = 4")),
    "choices that are counted by other rules than those that are routed": line(
        r"= dispatch .*experts = 4", sub("capacity = 3", "capacity = 4")),
    "a divisor that leaves out the axis": lambda plan: re.sub(
        r"(kernel @k\d+\(\) -> f32 .*\n  %0 = const {value = )0.125", r"\g<1>0.25", plan),
}


EXCHANGED = {
    "an exchange over other ranks": line(r"= exchange ", sub("comm.expert", "comm.gather.shard")),
    "an exchange of the backward pass over other ranks": line(r"= exchange .*bwd", sub("comm.expert", "comm.reduce")),
    "fewer rows than the route has": line(r"= exchange .*capacity = 6", sub("capacity = 6", "capacity = 5")),
    "more rows than there is room for": line(r"= route ", sub("capacity = 6", "capacity = 7")),
    "a route by the numbers of another axis": line(r"= route ", sub(r"\[expert\]", "[shard]")),
    "a route of other experts": line(r"= route ", sub("experts = 4", "experts = 2")),
    "choices that are not exchanged": line(r"= own_index ", lambda text, before: re.sub(
        r"own_index %\d+", "own_index " + re.findall(r"= route (%\d+)", "\n".join(before))[-1], text)),
    "choices before the exchange": line(r"= own_index ", lambda text, before: re.sub(
        r"own_index %\d+", "own_index " + re.findall(r"(%\d+) = route", "\n".join(before))[-1], text)),
    "tokens that are not sent by the route": line(r"= exchange .*: f32", lambda text, before: re.sub(
        r"exchange %\d+", "exchange " + re.findall(r"= exchange (%\d+) .*: f32", "\n".join(before))[-1], text), 1),
    "a sum that is rounded once": line(r"stepwise", sub(r", stepwise|stepwise, |stepwise", "")),
    "rows by the slots of experts": line(r"= combine .*stepwise", lambda text, before: re.sub(
        r"(combine %\d+, )%\d+", r"\g<1>" + re.findall(r"%\d+, (%\d+), %\d+, %\d+ = dispatch",
                                                        "\n".join(before))[-1], text)),
}


def in_last(pattern, change):
    """The first line that matches in the function of the last micro-batch."""
    def edit(plan):
        start = plan.index("\nfunc @micro_last(")
        return plan[:start] + line(pattern, change)(plan[start:])
    return edit


LEVEL = r"into = @blocks.0.expert.grad, accumulate"
OF_A_TREE = {  # of what one rank owns alone
    "a sum of experts that is added twice": in_last(LEVEL, lambda text, before: f"{text}\n{text}"),
    "a sum of experts that is left out": in_last(LEVEL, lambda text, before: ""),
    "a level of experts that is taken for another one": in_last(
        r"buffer = @blocks.0.expert.level0", sub("level0", "level1")),
    "experts of a micro-batch in the place of another one": in_last(
        r"into = @blocks.0.expert.grad", sub("expert.grad", "expert.level1")),
}


def plan_of(bench, model, more):
    schedule = {"schedule.fsdp": "zero3", "schedule.graph": "none", "schedule.recompute": "none"}
    return bench.plan(model, dict(expert=2, shard=2), {**schedule, **more})


def main():
    root, heddlec, opt = (os.path.abspath(a) for a in sys.argv[1:4])
    everything = "--all" in sys.argv
    both = dict(expert=2, shard=2)
    with tempfile.TemporaryDirectory(prefix="heddle-expert-") as folder:
        bench = Bench(root, heddlec, folder, STEPS)
        wrong = agree(bench, "olmoe", both, SCHEDULES if everything else SCHEDULES[:2])
        wrong += agree(bench, "deepseek", dict(expert=4), SCHEDULES if everything else SCHEDULES[1:3])
        if everything:
            meshes = [dict(expert=2), both, dict(expert=2, replicate=2), dict(expert=2, shard=2, replicate=2)]
            for mesh in meshes + [dict(expert=2, tensor=2), dict(expert=4, shard=2)]:
                wrong += agree(bench, "mixtral", mesh, SCHEDULES)
                last = [{**s, "train.reduce": "last"} for s in SCHEDULES[:4]]
                wrong += agree(bench, "mixtral", mesh, last)
        wrong += drops(bench, dict(expert=2, shard=2))
        wrong += starts_alike(bench, "olmoe", both)
        choices = [({}, "none"), (both, "zero3"), (dict(expert=4), "none")]
        if everything:
            choices += [(dict(expert=2), "zero1"), (dict(shard=2), "zero3"), (dict(expert=2, replicate=2), "zero2"),
                        (dict(expert=2, tensor=1, shard=4), "zero3")]
        wrong += resumes(bench, "olmoe", choices)
        wrong += exports(bench, "olmoe", both)
        wrong += reported(bench)
        last = {"schedule.recompute": "Block.mlp", "schedule.graph": "step", "schedule.fsdp": "zero3"}
        wrong += exchanges(bench, [("olmoe", dict(expert=2, shard=2), {}, [last] if not everything else SCHEDULES),
                                   ("mixtral", dict(expert=4), {"train.compute": "bf16"}, SCHEDULES[2:3])])
        wrong += bounds(bench)
        wrong += in_a_tree(bench, TREES if everything else TREES[:2])
        wrong += mutants_are_refused(bench, opt, plan_of(bench, "bounded", {}), MUTANTS)
        sent = {"schedule.experts": "exchange", "schedule.experts.bound": 75}
        wrong += mutants_are_refused(bench, opt, plan_of(bench, "olmoe", sent), EXCHANGED)
        wrong += mutants_are_refused(bench, opt, bench.plan("olmoe", dict(expert=2), TREE), OF_A_TREE)
    print("\n".join(wrong) or "ok")
    return len(wrong) > 0


sys.exit(main())
