#!/usr/bin/env python3
"""Compiles the kernels of ssd's gradient on tensor cores for the CPU and has their errors measured: ssd_errors.py ROOT
libsimt.so PROGRAM FOLDER. The program is of ssd_errors.cc; its sizes stand here as well."""
import os
import subprocess
import sys

HEADS, STATE, SEQ = 4, 128, 512
STEPS = HEADS * SEQ // 64  # of all heads
PARTS = [("CLOCK", 64 * STEPS), ("DT", 64 * STEPS), ("STATES", 32 * STATE * STEPS), ("DSTATES", 32 * STATE * STEPS),
         ("PARTS", 0), ("DA", STEPS), ("DD", STEPS), ("POWERS", 2 * STEPS)]


def text(root):
    defines = {"BATCH": 1, "SEQ": SEQ, "HEADS": HEADS, "GROUPS": 1, "STATE": STATE, "PACKED": 0, "SPLITS": 1, "SKIP": 1,
               "DT": "float", "A": "float", "D": "float", "SPACE": "ours"}
    defines.update((name.upper(), f"k_{name}") for name in ("clock", "states", "pairs", "sum", "rates"))
    at = 0
    for name, words in PARTS:
        defines[f"AT_{name}"] = f"{at}ll"
        at += words
    lines = "".join(f"#define SC_{name} {value}\n" for name, value in defines.items())
    for name in ("common", "mma", "ssd_mma", "ssd_mma_grad"):
        with open(os.path.join(root, f"codegen/cuda/templates/{name}.cu")) as f:
            lines += f.read()
    return lines


def main():
    root, engine, program, folder = sys.argv[1:5]
    os.makedirs(folder, exist_ok=True)
    source = os.path.join(folder, "ssd_errors.cu")
    with open(source, "w") as f:
        f.write(text(root))
    compiler = os.path.join(root, "tests/simt/compile.py")
    library = subprocess.run([sys.executable, compiler, source, "90", folder], check=True, stdout=subprocess.PIPE,
                             text=True, env={**os.environ, "SIMT_ENGINE": engine}).stdout.strip()
    return subprocess.run([program, library]).returncode


if __name__ == "__main__":
    sys.exit(main())
