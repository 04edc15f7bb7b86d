#!/usr/bin/env python3
"""print(parse(text)) is stable: every .hir in the tree, and every stage of every example, prints, parses and prints to
the same bytes.

A .hir file that tests errors (it holds expected-error, or `not heddle-opt`) is left out.
Usage: round_trip.py ROOT BIN (the folder of heddle-opt and heddlec)
"""
import os
import subprocess
import sys
import tempfile


def find(root, suffix):
    for where, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "build")))
        for name in sorted(files):
            if name.endswith(suffix):
                yield os.path.join(where, name)


def opt(tool, text):
    r = subprocess.run([tool, "--split-input-file", "-"], input=text, capture_output=True)
    return r.stdout if r.returncode == 0 else None, r.stderr.decode(errors="replace")


def tree(root, tool, errors):
    done = 0
    for path in find(root, ".hir"):
        text = open(path, "rb").read()
        once, why = opt(tool, text)
        if once is None:
            if b"expected-error" not in text and b"not heddle-opt" not in text:
                errors.append(f"{path}: does not parse:\n{why}")
            continue
        twice, why = opt(tool, once)
        if twice != once:
            errors.append(f"{path}: its printed form prints differently\n{why}")
        done += 1
    return done


def examples(root, compiler, tool, errors):
    done = 0
    for path in find(os.path.join(root, "examples"), ".hd"):
        if os.path.basename(os.path.dirname(path)) == "parts":  # which others import
            continue
        for target in ("host", "cuda"):
            with tempfile.TemporaryDirectory() as stages:
                r = subprocess.run(
                    [compiler, path, f"--target={target}", "--emit=plan", f"--print-ir-dir={stages}", "-o",
                     os.path.join(stages, "plan.out")],
                    capture_output=True,
                )
                if r.returncode:
                    errors.append(f"{path}: does not compile for {target}:\n{r.stderr.decode(errors='replace')}")
                    continue
                for stage in find(stages, ".hir"):
                    text = open(stage, "rb").read()
                    printed, why = opt(tool, text)
                    if printed != text:
                        name = os.path.basename(stage)
                        errors.append(f"{path}: {target}: {name} prints differently after parsing\n{why}")
                    done += 1
    return done


def main():
    root, tools = sys.argv[1], sys.argv[2]
    tool, compiler = os.path.join(tools, "heddle-opt"), os.path.join(tools, "heddlec")
    errors = []
    done = tree(root, tool, errors)
    if not done:
        errors.append("no .hir file was found")
    staged = examples(root, compiler, tool, errors)
    if not staged:
        errors.append("no stage of an example was found")
    for e in errors:
        print(e)
    print(f"{done} files, {staged} stages of examples, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
