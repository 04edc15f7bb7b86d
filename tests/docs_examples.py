"""Compiles every ```hd block of the language's reference with `heddlec --emit=ir` (a block is a whole file), and checks
that the reference names every function that a model can call.

usage: docs_examples.py HEDDLEC SOURCE_ROOT
"""
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```hd\n(.*?)^```$", re.S | re.M)


def compile_block(heddlec, name, text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "example.hd"
        path.write_text(text)
        done = subprocess.run([heddlec, "--emit=ir", str(path), "-o", str(path) + ".hir"], capture_output=True,
                              text=True)
    if done.returncode:
        print(f"{name}: does not compile\n{done.stderr}")
    return done.returncode == 0


def functions(root):
    """The names of builtins.def, and of the elementwise ops that are not gradients."""
    names = re.findall(r"^(?:BUILTIN|CALL)\((\w+)", (root / "frontend/builtins.def").read_text(), re.M)
    ops = re.findall(r'^ELT\(\w+,\s*"(\w+)"', (root / "ir/ops.def").read_text(), re.M)
    return names + [op for op in ops if not op.endswith("_grad")]


def main():
    heddlec, root = sys.argv[1], pathlib.Path(sys.argv[2])
    page = root / "frontend/LANGUAGE.md"
    text = page.read_text()
    count = failed = 0
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        count += 1
        failed += not compile_block(heddlec, f"{page}:{line}", block.group(1))
    for name in functions(root):
        if not re.search(rf"\b{name}\b", text):
            print(f"{page}: the function '{name}' is missing")
            failed += 1
    print(f"{count} examples, {failed} failures")
    return 1 if failed or not count else 0


sys.exit(main())
