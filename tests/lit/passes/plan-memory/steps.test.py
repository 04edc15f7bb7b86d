"""Llama 8B over 8 ranks with a whole root, several prefetches and micro-batches: at most 40 million steps of packing, and
plans within 1 % of the bytes that are live. With a root in pieces and one micro-batch the search finds less, in ten times
the steps."""
import re
import subprocess
import sys

COMMAND = ["heddlec", sys.argv[1], "--set", "size=8", "--set", "seq=8192", "--set", "schedule.mesh.shard=8", "--set",
           "schedule.fsdp=zero3", "--set", "schedule.fsdp.unit=Block", "--set", "schedule.fsdp.root=whole", "--set", "schedule.recompute=Block",
           "--target=cuda", "--emit=plan", "--stop-after=plan-memory", "--pass-statistics"]
MOST = 40_000_000

for prefetch in 0, 1, 3:
    for accumulate in 1, 2:
        case = f"prefetch {prefetch}, {accumulate} micro-batches"
        done = subprocess.run(COMMAND + [f"--set=schedule.prefetch={prefetch}", f"--set=train.accumulate={accumulate}"],
                              capture_output=True, text=True, check=True)
        steps = int(re.search(r"(\d+)  plan-memory: steps of packing", done.stderr)[1])
        took, least = (int(x) for x in re.search(r"arena @device {bytes = (\d+), lower_bound_bytes = (\d+)",
                                                 done.stdout).groups())
        assert steps <= MOST, f"{case}: {steps} steps of packing"
        assert took <= least * 1.01, f"{case}: {took} bytes, and {least} are live"
