#!/usr/bin/env python3
"""How long files, lines and functions may be. Usage: lengths.py ROOT

Files: more than 500 lines is a warning, more than 800 an error.
Lines: at most 120 characters in everything people write. No tabs, no trailing blanks in code. Exempt from the width:
  - Markdown tables, and blocks of code in Markdown, which show what a program prints;
  - text that quotes the IR or a printed message whole: .hir, .test and .txt files, and all of tests/lit;
  - the fuzzers' saved inputs (tests/fuzz/corpus).
Functions in C: at most 60 lines. CUDA kernels (.cu) are exempt: what a kernel keeps in registers is one scope.
"""
import os
import re
import sys

SOFT, HARD, WIDTH, FUNCTION = 500, 800, 120, 60
CODE = (".c", ".h", ".l", ".y", ".def", ".py", ".cmake", ".sh", ".cu", ".hd", "CMakeLists.txt")
FUNCTIONS = (".c", ".h", ".y", ".l")
QUOTES = ("tests/lit/", "tests/fuzz/corpus/")
SKIPPED = re.compile(r"^(build.*|\..*|__pycache__)$")


def files(root):
    for where, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not SKIPPED.match(f) or f == ".ci")
        for name in sorted(names):
            if name.endswith(CODE + (".md",)) or os.path.basename(where) == ".ci":
                path = os.path.join(where, name)
                yield os.path.relpath(path, root), open(path, encoding="utf-8").read().split("\n")


def too_wide(path, lines):
    shown = False  # inside a block of code in Markdown
    for i, line in enumerate(lines):
        if path.endswith(".md"):
            shown ^= line.startswith("```")
            if shown or line.startswith("|"):
                continue
        if len(line) > WIDTH:
            yield f"{path}:{i + 1}: {len(line)} characters; at most {WIDTH}"


def too_long_functions(path, lines):
    """A function ends at a `}` alone on its line and begins at the nearest line above that has a name at the margin."""
    start = None
    for i, line in enumerate(lines):
        if re.match(r"[A-Za-z_]", line) and not re.match(r"\w+:$", line):
            start = i
        elif line == "}" and start is not None and "(" in lines[start] and i - start + 1 > FUNCTION:
            yield f"{path}:{start + 1}: a function of {i - start + 1} lines; at most {FUNCTION}"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    errors = []
    for path, lines in files(root):
        if len(lines) > HARD and not path.endswith(".md"):
            errors.append(f"{path}: {len(lines)} lines; at most {HARD}: split it")
        elif len(lines) > SOFT and not path.endswith(".md"):
            print(f"warning: {path}: {len(lines)} lines; better under {SOFT}")
        if not path.startswith(QUOTES):
            errors += too_wide(path, lines)
        if path.endswith(CODE) and not path.startswith(QUOTES):
            errors += [f"{path}:{i + 1}: tab or trailing blank" for i, line in enumerate(lines)
                       if "\t" in line or line != line.rstrip()]
        if path.endswith(FUNCTIONS):
            errors += too_long_functions(path, lines)
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
