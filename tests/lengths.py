#!/usr/bin/env python3
"""Files longer than 500 lines are named, longer than 800 are an error; so are tabs and trailing blanks in C. Usage: lengths.py ROOT"""
import os
import sys

SOFT, HARD = 500, 800
FOLDERS = ("ir", "frontend", "passes", "codegen", "runtime", "tests")
SUFFIXES = (".c", ".h", ".l", ".y", ".def", ".py", ".cmake")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    bad = 0
    for folder in FOLDERS:
        for where, folders, files in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(files):
                if not name.endswith(SUFFIXES):
                    continue
                path = os.path.join(where, name)
                lines = open(path, encoding="utf-8").read().split("\n")
                if len(lines) > HARD:
                    print(f"{path}: {len(lines)} lines; at most {HARD}: split it")
                    bad += 1
                elif len(lines) > SOFT:
                    print(f"warning: {path}: {len(lines)} lines; better under {SOFT}")
                for i, line in enumerate(lines):
                    if "\t" in line or line != line.rstrip():
                        print(f"{path}:{i + 1}: tab or trailing blank")
                        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
