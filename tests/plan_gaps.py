#!/usr/bin/env python3
"""The memory of every plan is within 1 % of the most bytes alive at one time: examples of all sizes, both targets, with and without
recomputation, several micro-batches and batches. usage: plan_gaps.py <heddlec> <source folder>"""
import concurrent.futures, itertools, json, subprocess, sys

LIMIT = 0.01
SIZES = {
    "tiny": [{}, {"train.batch": 7}],
    "gpt2": [{"layers": l, "heads": h, "dim": d} for l, h, d in ((12, 12, 768), (24, 16, 1024), (36, 20, 1280), (48, 25, 1600))]
    + [{"layers": 2, "train.batch": 3}, {"layers": 5, "seq": 256, "train.batch": 12}],
    "llama": [{}, {"train.batch": 3}, {"layers": 5, "seq": 256}],
}
RECOMPUTE = ["none", "Block.mlp.act", "Block"]


def gap(heddlec, source, example, settings, target):
    """(what was compiled, its gap, what went wrong or None)"""
    command = [heddlec, f"{source}/examples/{example}/{example}.hd", "--emit=report", f"--target={target}"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    name = " ".join([example, target] + [f"{k}={v}" for k, v in settings.items()])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return name, 0.0, done.stderr.strip().split("\n")[0]
    report = json.loads(done.stdout)
    most, least = report["peak_bytes"], report["lower_bound_bytes"]
    return name, (most - least) / least, None


def main():
    heddlec, source = sys.argv[1:3]
    grid = []
    for example, sizes in SIZES.items():
        for size, recompute, accumulate, target in itertools.product(sizes, RECOMPUTE, (1, 4), ("host", "cuda")):
            if example == "tiny" and recompute == "Block.mlp.act":
                recompute = "Block.mlp"  # its activation has no name
            settings = dict(size, **{"train.accumulate": accumulate})
            if recompute != "none":
                settings["schedule.recompute"] = recompute
            grid.append((example, settings, target))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda row: gap(heddlec, source, *row), grid))
    failed = 0
    for name, value, wrong in sorted(results, key=lambda r: -r[1]):
        if wrong or value > LIMIT:
            failed += 1
            print(f"FAILED {name}: {wrong or f'gap {100 * value:.2f} %'}")
    name, value, _ = max(results, key=lambda r: r[1])
    print(f"{len(results)} plans, largest gap {100 * value:.3f} % ({name})")
    return 1 if failed else 0


sys.exit(main())
