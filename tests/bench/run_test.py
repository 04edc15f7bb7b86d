#!/usr/bin/env python3
"""The table that tests/bench/run.py makes, of programs that pretend: a compiler, ours, PyTorch's and nvidia-smi, whose
numbers are known. Usage: run_test.py ROOT"""
import pathlib
import subprocess
import sys
import tempfile

SMI = """import sys
what = [a for a in sys.argv if a.startswith("--query-gpu=")][0].split("=")[1]
row = {"name": "NVIDIA X1", "driver_version": "1.2.3", "clocks.sm,power.draw,memory.used": "1500, 650.0, 2048"}[what]
print("\\n".join([row] * 2))
"""
COMPILER = """import sys, os
if "--version" in sys.argv:
    sys.exit(print("heddlec 0.0 (abc)"))
out = sys.argv[sys.argv.index("-o") + 1]
assert "--target=cuda" in sys.argv and os.path.exists(sys.argv[1])
open(out, "w").write("#!" + sys.executable + "\\n" + open(os.path.dirname(__file__) + "/program.py").read())
os.chmod(out, 0o755)
"""
PROGRAM = """import json, os, sys
options = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
if "report" in options:
    print(json.dumps({"peak_bytes": 3 << 30}))
    sys.exit()
count = sys.argv[0] + ".count"
n = int(open(count).read()) if os.path.exists(count) else 0
open(count, "w").write(str(n + 1))
assert os.path.getsize(options["data"]) > 1000 and ("ranks" in options) == ("zero3" in sys.argv[0])
assert options["format"] == "u32" and os.environ["HEDDLE_TUNE"] == "load" and (n or options["steps"] == "1")
with open(options["log"], "w") as f:
    for i in range(int(options["steps"])):
        print(json.dumps({"step": i + 1, "loss": 1.0, "seconds": 5.0 if i < 10 else 0.1 + 0.002 * n}), file=f)
print(f"first step done {1.25 if n else 40.5} s after the start", file=sys.stderr)
"""
TORCH = """import json, sys
print("noise")
print(json.dumps({"ms": 150.0, "peak_alloc_gib": 4.5, "first_step_s": 9.0}))
"""


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        (at / "torch").mkdir()
        for name, text in (("smi.py", SMI), ("heddlec.py", COMPILER), ("program.py", PROGRAM),
                           ("torch/torch_single.py", TORCH), ("torch/torch_fsdp.py", TORCH),
                           ("python.py", "print('PyTorch 9.9')\n" + TORCH), ("torchrun.py", TORCH)):
            (at / name).write_text(text)
        commands = [f"--{n}={sys.executable} {at / n}.py" for n in ("smi", "heddlec", "python", "torchrun")]
        command = [sys.executable, root / "tests/bench/run.py", f"--anchors={at / 'torch'}", f"--out={at / 'out'}",
                   "--steps=12", "--repeats=2", "--only=Llama", *commands]
        r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if r.returncode:
            sys.exit(r.stdout)
        lines = [l for l in r.stdout.splitlines() if l.startswith("|")][2:]
        numbers = "103.00 (1.46 x) | 1.9 % | {} | 3.00 | 0.00 | 1.2 (40.5) | 1500 | 650 |"
        torch = "|  | PyTorch | 150.00 | 0.0 % | {} | 4.50 | 0.00 | 9.0 | 1500 | 650 |"
        want = [f"| Llama 1.24B, B=4 T=4096 | Heddle | {numbers.format(159068)}", torch.format(109227),
                f"| Llama 1.24B, B=4 T=4096, zero3, 2 GPUs | Heddle | {numbers.format(318136)}", torch.format(218453),
                f"| Llama 8B, B=1 T=4096, zero3, 2 GPUs | Heddle | {numbers.format(79534)}", torch.format(54613)]
        heads = ("heddlec 0.0 (abc), 2 x NVIDIA X1, driver 1.2.3", "2 repeats of 12 steps")
        if lines != want or any(h not in r.stdout for h in heads):
            sys.exit("\n".join([r.stdout, "expected:", *want]))
        r = subprocess.run(command + ["--only=none of them"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True)
        if not r.returncode or "no case" not in r.stdout:
            sys.exit("a name that no case has: " + r.stdout)


if __name__ == "__main__":
    main()
