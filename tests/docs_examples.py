"""Compiles every ```hd block of the language's reference with `heddlec --emit=ir`, and checks that the reference names
every function that a model can call and shows every setting with its default. Every op with a gradient can be called.
A block is a whole file; one with a name, as in ```hd a.hd, is for those after it to import.

usage: docs_examples.py HEDDLEC SOURCE_ROOT
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```hd(?: (\S+))?\n(.*?)^```$", re.S | re.M)


def compile_block(heddlec, name, text, folder):
    path = pathlib.Path(folder) / "example.hd"
    path.write_text(text)
    done = subprocess.run([heddlec, "--emit=ir", str(path), "-o", str(path) + ".hir"], capture_output=True, text=True)
    if done.returncode:
        print(f"{name}: does not compile\n{done.stderr}")
    return done.returncode == 0


def functions(root):
    """The names of builtins.def, and of the elementwise ops that are not gradients."""
    names = re.findall(r"^(?:BUILTIN|CALL)\((\w+)", (root / "frontend/builtins/builtins.def").read_text(), re.M)
    ops = re.findall(r'^ELT\(\w+,\s*"(\w+)"', (root / "ir/ops.def").read_text(), re.M)
    return names + [op for op in ops if not op.endswith("_grad")]


def uncalled(root):
    """The ops with a gradient rule that neither a row CALL nor a function of the frontend makes."""
    frontend = "".join(p.read_text() for p in (root / "frontend").rglob("*.[chy]"))
    calls = re.findall(r"^CALL\((\w+)", (root / "frontend/builtins/builtins.def").read_text(), re.M)
    table = (root / "ir/ops.def").read_text()
    for op, name, fields in re.findall(r'^OP\((\w+),\s*"(\w+)",(.*?)\)$', table, re.M | re.S):
        grad = re.search(r"\bgrad\((\w+)\)", fields)
        known = name in calls or re.search(rf"\bOP_{op}\b", frontend)
        if grad and grad.group(1) not in ("none", "zero") and not known:
            yield name


def settings(text):
    """The settings in blocks `train` and `schedule`, with their values: {"schedule.fsdp.prefetch": "1"}."""
    found, groups, words = {}, [], []
    for token in re.findall(r"[\w.+-]+|\S", re.sub(r"//.*", "", text)):
        if token not in "{};":
            words.append(token)
            continue
        if token == "{" and not groups:
            words = words[:1]  # the name of the model
        if words:
            path = ".".join([*groups, words[0]])
            found[path] = " ".join(words[1:]).removeprefix("= ")
        if token == "{":
            groups.append(words[0])
        elif token == "}":
            groups.pop()
        words = []
    return found


def wrong_defaults(root, text):
    """What the model `Defaults` of the reference shows otherwise than builtin_modules.c, or not at all."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    modules = f"{root}/frontend/builtins/builtin_modules.c"
    source = subprocess.run([*compiler, "-E", "-P", f"-I{root}", modules], check=True, capture_output=True,
                            text=True).stdout
    strings = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', source)).replace("\\n", "\n")
    want = settings(strings[strings.index("train defaults"):])
    block = next(b.group(2) for b in BLOCK.finditer(text) if "train Defaults" in b.group(2))
    shown = settings(block[block.index("train Defaults"):])
    for path in sorted({*want, *shown}):
        if shown.get(path) != want.get(path):
            there, here = (f"'{x[path]}'" if path in x else "missing" for x in (want, shown))
            yield f"{path} is {there} in builtin_modules.c and {here} in the block 'Defaults'"


def main():
    heddlec, root = sys.argv[1], pathlib.Path(sys.argv[2])
    page = root / "frontend/LANGUAGE.md"
    text = page.read_text()
    count = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            if block.group(1):
                (pathlib.Path(folder) / block.group(1)).write_text(block.group(2))
                continue
            count += 1
            failed += not compile_block(heddlec, f"{page}:{line}", block.group(2), folder)
    for name in functions(root):
        if not re.search(rf"\b{name}\b", text):
            print(f"{page}: the function '{name}' is missing")
            failed += 1
    for name in uncalled(root):
        print(f"frontend/builtins/builtins.def: no function of the language makes a {name}")
        failed += 1
    for wrong in wrong_defaults(root, text):
        print(f"{page}: {wrong}")
        failed += 1
    print(f"{count} examples, {failed} failures")
    return 1 if failed or not count else 0


sys.exit(main())
