"""Plans of two ranks for the memory that they take with copies, for less, and for less than they take without."""
import json
import subprocess
import sys

COMMAND = ["heddlec", sys.argv[1], "--target=cuda", "--emit=report"]
SETS = {"layers": 8, "vocab": 1024, "train.batch": 2, "seq": 256, "schedule.mesh.shard": 2, "schedule.fsdp": "zero3",
        "schedule.fsdp.unit": "Block", "schedule.recompute": "none"}


def report(limit=None, **changes):
    sets = {**SETS, **{key.replace("__", "."): value for key, value in changes.items()}}
    command = COMMAND + [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(command + ([f"--device-memory={limit}"] if limit else []), capture_output=True, text=True)
    return (json.loads(done.stdout) if done.returncode == 0 else None), done.stderr


copies = report(schedule__fsdp__weights="copy")[0]["peak_bytes"]
without = report(schedule__fsdp__weights="master")[0]["peak_bytes"]
assert without < 0.95 * copies, (without, copies)
between = (copies + without) // 2

for limit in (None, copies * 102 // 100):  # there is room
    r, said = report(limit)
    assert r["peak_bytes"] == copies and "warning" not in said, said
for listed in ("none", "Block.mlp.act"):
    r, said = report(between, schedule__recompute=listed)
    assert r["verified"] and r["peak_bytes"] <= between and "weights = auto: to fit into" in said, (listed, said)
more = {"train__batch": 4, "seq": 1024, "schedule__recompute": "auto", "schedule__recompute__slower": 0.0}
below = report(schedule__fsdp__weights="master", **more)[0]["peak_bytes"] * 9 // 10
r, said = report(below, **more)
assert r["verified"] and r["peak_bytes"] <= below, said
assert "weights = auto: to fit into" in said and "recompute auto: to fit into" in said, said
for name, changes in (("copies asked for", dict(schedule__fsdp__weights="copy")),
                      ("no copies", dict(train__compute="f32")), ("nothing gathered", dict(schedule__fsdp="none"))):
    r, said = report(between // 2, **changes)
    assert not r and "weights = auto" not in said and "bytes of device memory and only" in said, (name, said)
