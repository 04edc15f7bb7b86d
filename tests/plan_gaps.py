#!/usr/bin/env python3
"""The memory of every plan is within 1 % of the most bytes alive at one time: examples of all sizes, both targets, with
and without recomputation, several micro-batches and batches, every strategy over 2, 8 and 1024 ranks. usage:
plan_gaps.py <heddlec> <source folder>. HEDDLE_TEST_PART=N takes each seventh plan."""
import concurrent.futures, itertools, os, re, subprocess, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "run"))
import part

LIMIT = 0.01
SIZES = {
    "tiny": [{}, {"train.batch": 7}],
    "gpt2": [{"layers": l, "heads": h, "dim": d} for l, h,
             d in ((12, 12, 768), (24, 16, 1024), (36, 20, 1280), (48, 25, 1600))]
    + [{"layers": 2, "train.batch": 3}, {"layers": 5, "seq": 256, "train.batch": 12}],
    "llama": [{}, {"train.batch": 3}, {"layers": 5, "seq": 256}],
}
RECOMPUTE = ["none", "Block.mlp.act", "Block"]
# over several ranks: (example, size); the 175B shape of GPT-3
GPT3 = {"layers": 96, "heads": 96, "dim": 12288, "seq": 2048}
SHARDED = [("tiny", {})] + [("gpt2", size) for size in SIZES["gpt2"][:4]]
SHARDED += [("gpt2", GPT3)]
# hardly an activation hides the weights and gradients that come and go
BARE = {"train.batch": 1, "schedule.recompute": "Block"}


# Published stacks of layers that differ in size (examples/hybrid/README.md)
NEMOTRON_H = {"pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "vocab": 131072, "width": 64,
              "state": 128, "groups": 8, "heads": 32, "kv_heads": 8, "head": 128}
HYBRIDS = [{"pattern": "M" * 24, "vocab": 50288, "dim": 768, "states": 24, "width": 64, "state": 128, "tied": 1},
           dict(NEMOTRON_H, dim=3072, states=112, hidden=12288), dict(NEMOTRON_H, dim=4096, states=128, hidden=21504),
           dict(NEMOTRON_H, pattern="MEMEM*E" * 5 + "MEMEMEM*EMEMEMEME", dim=2688, states=64, kv_heads=2, experts=128,
                active=6, inner=1856, shared=3712)]


def gap(heddlec, source, example, settings, target):
    """(what was compiled, its gap, what went wrong or None)"""
    command = [heddlec, f"{source}/examples/{example}/{example}.hd", "--emit=plan", f"--target={target}",
               "--stop-after=plan-memory"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    name = " ".join([example, target] + [f"{k}={v}" for k, v in settings.items()])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return name, 0.0, done.stderr.strip().split("\n")[0]
    arena = re.search(r"^arena @device {bytes = (\d+), lower_bound_bytes = (\d+)", done.stdout, re.M)
    most, least = int(arena[1]), int(arena[2])
    return name, (most - least) / least, None


def grid_of_one():
    for example, sizes in SIZES.items():
        for size, recompute, accumulate, target in itertools.product(sizes, RECOMPUTE, (1, 4), ("host", "cuda")):
            if example == "tiny" and recompute == "Block.mlp.act":
                recompute = "Block.mlp"  # its activation has no name
            settings = dict(size, **{"train.accumulate": accumulate})
            if recompute != "none":
                settings["schedule.recompute"] = recompute
            yield example, settings, target


def grid_of_many():
    strategies = ("none", "zero1", "zero2", "zero3")
    choices = itertools.product(SHARDED, strategies, (2, 8, 1024), (1, 4), ("host", "cuda"))
    for (example, size), strategy, ranks, accumulate, target in choices:
        settings = {"schedule.fsdp": strategy, "schedule.mesh.shard": ranks, "train.accumulate": accumulate}
        yield example, dict(size, **settings), target
    for size, strategy, target in itertools.product(({}, dict(GPT3, layers=48), GPT3), ("zero2", "zero3"),
                                                    ("host", "cuda")):
        yield "gpt2", dict(size, **BARE, **{"schedule.fsdp": strategy, "schedule.mesh.shard": 1024,
                                            "train.accumulate": 2}), target
    for strategy in strategies:  # two axes, and depths of prefetch and drain
        yield "gpt2", {"schedule.fsdp": strategy, "schedule.mesh.shard": 4, "schedule.mesh.replicate": 2,
                       "train.accumulate": 2}, "cuda"
        for depth in (0, 3):
            yield "gpt2", {"schedule.fsdp": strategy, "schedule.mesh.shard": 4, "schedule.prefetch": depth,
                           "schedule.live_grads": max(depth, 1)}, "cuda"


def grid_of_hybrids():
    for shape, prefetch in itertools.product(HYBRIDS, range(4)):
        settings = {"schedule.fsdp": "zero3", "schedule.mesh.shard": 8, "schedule.fsdp.prefetch": prefetch,
                    "seq": 4096, "train.batch": 1}
        yield "hybrid", dict(shape, **settings), "cuda"


def main():
    heddlec, source = sys.argv[1:3]
    grid = part.of([*grid_of_one(), *grid_of_many(), *grid_of_hybrids()])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda row: gap(heddlec, source, *row), grid))
    failed = 0
    for name, value, wrong in sorted(results, key=lambda r: -r[1]):
        if wrong or value > LIMIT:
            failed += 1
            print(f"FAILED {name}: {wrong or f'gap {100 * value:.2f} %'}")
    name, value, _ = max(results, key=lambda r: r[1])
    if failed:
        print("once more:", part.repeat())
    print(f"{len(results)} plans, largest gap {100 * value:.3f} % ({name})")
    return 1 if failed else 0


sys.exit(main())
