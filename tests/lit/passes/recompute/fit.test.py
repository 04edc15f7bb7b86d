"""Plans for less and less device memory: each fits, and none is predicted faster than one for more memory."""
import json
import subprocess
import sys

COMMAND = ["heddlec", sys.argv[1], "--set", "layers=8", "--set", "vocab=1024", "--set", "train.batch=8",
           "--set", "schedule.recompute=auto", "--target=cuda", "--emit=report"]


def report(*limit):
    done = subprocess.run(COMMAND + list(limit), capture_output=True, text=True)
    return (json.loads(done.stdout), done.stderr) if done.returncode == 0 else (None, done.stderr)


free, _ = report()
seconds, fitted = free["predicted"]["step_seconds"], 0
for part in range(100, 10, -8):
    limit = free["peak_bytes"] * part // 100
    r, messages = report(f"--device-memory={limit}")
    if r is None:
        assert "bytes of device memory and only" in messages, messages
        break
    assert r["verified"] and r["peak_bytes"] <= limit, (part, r["peak_bytes"], limit)
    now = r["predicted"]["step_seconds"]
    assert now >= seconds * (1 - 1e-9), f"{part} % of the memory: {now} s, and {seconds} s with more"
    seconds = now
    fitted += 1
    said = f"to fit into {limit} bytes instead of {free['peak_bytes']}, more is computed again; predicted for H100: "
    assert part == 100 or f"{said}{1e3 * now:.3f} ms a step instead of" in messages, messages
assert fitted >= 5, fitted
