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
seconds, fitted, said = 0.0, 0, set()
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
    said |= {word for word in ("in the first", "may take up to") if word in messages}
assert fitted >= 3 and len(said) == 2, (fitted, said)
