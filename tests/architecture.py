#!/usr/bin/env python3
"""ARCHITECTURE.md is true: every file and folder that it names exists, and the tools still print every
dump that it quotes.

A block of code that begins with ```PASS quotes the IR after the last run of that pass (`input`: before the first one);
one that begins with ```--emit=... quotes that output. `...` matches any text. Numbers of values, kernels and addresses
are not compared. The diagram under Stages has the passes of a compilation in their order, and each of them has tests in
tests/lit/passes.
Usage: architecture.py HEDDLEC ROOT
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

QUOTED = re.compile(r"^```(\S+)\n(.*?)^```$", re.S | re.M)
COMMAND = re.compile(r"^\$ build/bin/heddlec (.*)$", re.M)
PATH = re.compile(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:md|c|h|l|y|def|py))`")
TREES = ("frontend", "ir", "passes", "codegen", "runtime", "tests", "examples", "tools")
NUMBER = re.compile(r"%\d+|@k\d+|\bk\d+(?=_)|0x[0-9a-f]+|(?<=offset = )\d+|(?<=\(x, )\d+, \d+")


def missing_paths(text, root):
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    known = {name for tree in TREES for _, _, names in os.walk(root / tree) for name in names}
    for path in sorted(set(PATH.findall(prose))):
        if path.endswith(".hir"):
            continue  # an output of the command
        if not (root / path).exists() and ("/" in path or path not in known):
            yield f"{path} does not exist"


def same(quoted, printed):
    parts = [re.escape(NUMBER.sub("N", p)) for p in quoted.strip().split("...")]
    return re.search(".*".join(parts), NUMBER.sub("N", printed)) is not None


def wrong_quotes(text, heddlec, root):
    arguments = shlex.split(COMMAND.search(text).group(1))
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root / "examples", os.path.join(folder, "examples"))
        subprocess.run([heddlec, *arguments], cwd=folder, check=True)
        for name, lines in QUOTED.findall(text):
            if name.startswith("--"):
                kept = [a for a in arguments if a.startswith(("examples/", "--target", "--arch"))]
                output = subprocess.run([heddlec, *kept, name, "-o", "-"], cwd=folder, check=True, capture_output=True,
                                        text=True).stdout
            else:
                dumps = sorted(p for p in pathlib.Path(folder, "ir").iterdir() if p.stem.split("-", 1)[-1] == name)
                output = dumps[-1].read_text() if dumps else ""
            for line in lines.splitlines():
                if not any(same(line, printed) for printed in output.splitlines()):
                    yield f"{name} has no line like\n{line}"


def wrong_pipeline(text, heddlec, root):
    printed = subprocess.run([heddlec, "--print-pipeline"], check=True, capture_output=True, text=True).stdout
    passes = printed.strip().split(",")
    diagram = re.search(r"^## Stages$.*?^```$(.*?)^```$", text, re.S | re.M).group(1)
    known = re.findall(r'^PASS\(\w+, "([\w-]+)"', (root / "passes/passes.def").read_text(), re.M)
    shown = [w for w in re.findall(r"[\w-]+", re.sub(r"\(.*?\)", "", diagram)) if w in known]
    if shown != passes:
        yield f"the diagram under Stages has the passes {','.join(shown)}, not {','.join(passes)}"
    for name in sorted(set(passes)):
        if not any((root / "tests/lit/passes" / name).glob("*.*")):
            yield f"the pass {name} has no test in tests/lit/passes/{name}"


def main():
    heddlec, root = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    text = (root / "ARCHITECTURE.md").read_text()
    source = (root / "examples/tiny/tiny.hd").read_text()
    errors = [*missing_paths(text, root), *wrong_quotes(text, heddlec, root),
              *wrong_pipeline(text, heddlec, root)]
    if "fn forward(x) { return proj(gelu(fc(x))); }" not in source.splitlines()[13]:
        errors.append("line 14 of examples/tiny/tiny.hd is another one")
    if len(text.splitlines()) > 290:
        errors.append("ARCHITECTURE.md has more than 290 lines")
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
