"""Plans for less and less device memory: each fits, and none is predicted faster than one for more memory.
Usage: fit.test.py GPT2.hd LLAMA3.hd"""
import json
import subprocess
import sys

GPT2 = [sys.argv[1], "--set", "layers=8", "--set", "vocab=1024", "--set", "train.batch=8"]
RANKS = [sys.argv[2], "--set", "size=1", "--set", "schedule.mesh.shard=2"]
LLAMA = [sys.argv[2], "--set", "size=1", "--set", "seq=4096", "--set", "train.batch=4", "--set", "schedule.fsdp=none"]


def report(model, *limit):
    command = ["heddlec", *model, "--set", "schedule.recompute=auto", "--target=cuda", "--emit=report", *limit]
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
        said = f"to fit into {limit} bytes instead of {free['peak_bytes']}, more is computed again; predicted for "
        if ranks:
            assert part < 100 or before <= seconds(free), part
        elif part < 100:
            assert f"{said}H100: {1e3 * before:.3f} ms a step instead of" in messages, messages
        else:
            assert not messages and before <= seconds(free), (part, messages)
        found[part] = r
    assert len(found) >= least, len(found)
    return free, found


descend(GPT2, range(100, 10, -8), 5)
free, found = descend(LLAMA, (150, 116, 112, 108, 104, 100, 96, 92, 88), 7)
descend(RANKS, (150, 112, 106, 103, 100, 99, 97, 95, 92), 7, ranks=True)

# What auto gives up to save memory is kept where there is room for it, in as many blocks as there is room for.
assert seconds(found[150]) < seconds(found[104]) < seconds(free), [seconds(r) for r in found.values()]
assert free["peak_bytes"] < found[104]["peak_bytes"] < found[150]["peak_bytes"]
