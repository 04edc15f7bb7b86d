"""Llama 8B over 8 ranks, with its root whole and in pieces, several prefetches and micro-batches: so many million steps
of packing at most, and plans within 1 % of the bytes that are live."""
import re
import subprocess
import sys

COMMAND = ["heddlec", sys.argv[1], "--set", "size=8", "--set", "seq=8192", "--set", "schedule.mesh.shard=8", "--set",
           "schedule.fsdp=zero3", "--set", "schedule.fsdp.unit=Block", "--set", "schedule.recompute=Block",
           "--target=cuda", "--emit=plan", "--stop-after=plan-memory", "--pass-statistics"]
CASES = [("whole", prefetch, accumulate, 40) for prefetch in (0, 1, 3) for accumulate in (1, 2)]
CASES += [("split", 1, 1, 100), ("split", 3, 1, 200), ("split", 1, 2, 40)]

for root, prefetch, accumulate, most in CASES:
    case = f"root {root}, prefetch {prefetch}, {accumulate} micro-batches"
    sets = [f"--set=schedule.fsdp.root={root}", f"--set=schedule.prefetch={prefetch}",
            f"--set=train.accumulate={accumulate}"]
    done = subprocess.run(COMMAND + sets, capture_output=True, text=True, check=True)
    steps = int(re.search(r"(\d+)  plan-memory: steps of packing", done.stderr)[1])
    took, least = (int(x) for x in re.search(r"arena @device {bytes = (\d+), lower_bound_bytes = (\d+)",
                                             done.stdout).groups())
    assert steps <= most * 1_000_000, f"{case}: {steps} steps of packing"
    assert took <= least * 1.01, f"{case}: {took} bytes, and {least} are live"
