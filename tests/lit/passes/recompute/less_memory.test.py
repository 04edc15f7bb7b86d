"""Plans for less and less device memory: each fits, and none is predicted faster than one for more memory.
Usage: less_memory.test.py GPT2.hd LLAMA3.hd. With HEDDLE_TEST_PART=N one of the searches, another for the next N."""
import json
import os
import subprocess
import sys

GPT2 = [sys.argv[1], "--set", "layers=8", "--set", "vocab=1024", "--set", "train.batch=8"]
RANKS = [sys.argv[2], "--set", "size=1", "--set", "layers=6", "--set", "schedule.mesh.shard=2"]
LLAMA = [sys.argv[2], "--set", "size=1", "--set", "seq=4096", "--set", "train.batch=4",
         "--set", "schedule.fsdp=none"]


def report(model, *limit):
    command = ["heddlec", "--set", "schedule.recompute=auto", *model, "--target=cuda", "--emit=report", *limit]
    done = subprocess.run(command, capture_output=True, text=True)
    return (json.loads(done.stdout), done.stderr) if done.returncode == 0 else (None, done.stderr)


def seconds(r):
    return r["predicted"]["step_seconds"]


def descend(model, parts, least, ranks=False):
    """The reports by percent of the memory that the plan takes without a limit; least: how many have to fit. ranks:
    they may give up copies of weights, which other messages tell."""
    free, _ = report(model)
    before, found = 0, {}
    for part in parts:
        limit = free["peak_bytes"] * part // 100
        r, messages = report(model, f"--device-memory={limit}")
        if r is None:
            assert "bytes of device memory and only" in messages, messages
            break
        assert r["verified"] and r["peak_bytes"] <= limit, (part, r["peak_bytes"], limit)
        assert seconds(r) >= before * (1 - 1e-9), f"{part} % of the memory: {seconds(r)} s, and {before} s with more"
        before = seconds(r)
        said = f"to fit into {limit} bytes instead of {free['peak_bytes']}, "
        how = [w for w in ("more is computed again", "values are offloaded") if w in messages]
        if ranks:
            assert part < 100 or before <= seconds(free), part
        elif part < 100:
            said += f"{', and '.join(how)}; predicted for H100: {1e3 * before:.3f} ms a step instead of"
            assert how and said in messages, messages
        else:
            assert not messages and before <= seconds(free), (part, messages)
        found[part] = r
    assert len(found) >= least, len(found)
    return free, found


def offloads():
    free, found = descend(LLAMA, (150, 116, 104, 100, 96, 90, 80), 7)
    # Values that auto gives up to save memory are kept where there is room for it, in as many blocks as there is room
    # for.
    assert seconds(found[150]) < seconds(found[104]) < seconds(free), [seconds(r) for r in found.values()]
    assert free["peak_bytes"] < found[104]["peak_bytes"] < found[150]["peak_bytes"]
    # Values are offloaded where that is faster than what else would be computed again, unless the schedule forbids it.
    limit = f"--device-memory={free['peak_bytes'] * 90 // 100}"
    stays, messages = report([*LLAMA, "--set", "schedule.offload=none"], limit)
    assert stays["verified"] and "host memory" not in messages, messages
    assert seconds(found[90]) < 0.99 * seconds(stays), (seconds(found[90]), seconds(stays))


searches = (
    offloads,
    lambda: descend(GPT2, range(100, 10, -10), 5),
    lambda: descend(RANKS, (150, 106, 103, 100, 99, 97, 92), 6, ranks=True),
    # the same with `offload auto` in the schedule, and with a list of what is computed again
    lambda: descend([*LLAMA, "--set", "schedule.offload=auto"], (150, 108, 100, 95, 85), 5, ranks=True),
    lambda: descend([*RANKS, "--set", "schedule.recompute=Block.mlp.act"], (150, 104, 97, 92), 4, ranks=True),
)
part = os.environ.get("HEDDLE_TEST_PART", "all")
for i, search in enumerate(searches):
    if part == "all" or int(part) % len(searches) == i:
        search()
