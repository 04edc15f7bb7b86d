#!/usr/bin/env python3
"""The compiler is a function of its input: each example, compiled twice with address randomisation and different
environments and folders, gives the same bytes in every stage, in the C and in the CUDA text. Usage: determinism.py ROOT
BIN
"""
import os
import subprocess
import sys
import tempfile


def compile_once(compiler, path, target, emit, folder, padding):
    os.makedirs(folder)
    out = os.path.join(folder, "out")
    stages = os.path.join(folder, "stages")
    env = dict(os.environ, PADDING="x" * padding)  # moves the stack
    r = subprocess.run(
        [compiler, path, f"--target={target}", f"--emit={emit}", f"--print-ir-dir={stages}", "-o",
         out], capture_output=True, env=env
    )
    if r.returncode:
        return {"error": r.stderr}
    texts = {emit: open(out, "rb").read()}
    for name in sorted(os.listdir(stages)):
        texts[name] = open(os.path.join(stages, name), "rb").read()
    return texts


def main():
    root, tools = sys.argv[1], sys.argv[2]
    compiler = os.path.join(tools, "heddlec")
    errors, done = [], 0
    examples = os.path.join(root, "examples")
    paths = sorted(os.path.join(w, f) for w, _, files in os.walk(examples) for f in files
                   if f.endswith(".hd") and os.path.basename(w) != "parts")  # which others import
    if not paths:
        errors.append(f"no example in {examples}")
    for path in paths:
        for target, emit in (("host", "c"), ("cuda", "c"), ("cuda", "cuda")):
            with tempfile.TemporaryDirectory() as folder:
                first = compile_once(compiler, path, target, emit, os.path.join(folder, "a"), 1)
                second = compile_once(compiler, path, target, emit, os.path.join(folder, "second"), 4000)
            if "error" in first:
                errors.append(f"{path}: does not compile for {target}:\n{first['error'].decode(errors='replace')}")
            elif first != second:
                names = [n for n in sorted(set(first) | set(second)) if first.get(n) != second.get(n)]
                errors.append(f"{path}: {target}: two compilations differ in {', '.join(names)}")
            done += 1
    for e in errors:
        print(e)
    print(f"{done} compilations repeated, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
