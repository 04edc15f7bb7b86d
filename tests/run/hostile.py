#!/usr/bin/env python3
"""Names and texts that try to become C: in names of files, and in a plan's model, source and places. A program made
with them holds the same symbols as one without, and the marker occurs in comments and strings of its text alone.
Outputs never replace an input, a device or half a file. Usage: hostile.py ROOT BIN"""
import os
import re
import subprocess
import sys
import tempfile

MARK = "foreign_symbol"
TEXTS = [
    f"a\nint {MARK};", f"a\rint {MARK};", f"a\\\nint {MARK};", f'"; int {MARK}; //', f"*/ int {MARK}; /*", "ends in \\",
    f"ends in \\ ", "??/", f"\x0b\x0cint {MARK};", f"#define {MARK}", '%s%n%1$s', f"\x7f\x01\x1b[31m", "",
    f"\n#include \"/dev/null\"\nint {MARK}(void) {{ return 1; }}\n", "\u2028int", "\xff",
]
# As names of files: a slash cannot be in one. The last ones are options and files of options to a C compiler.
NAMES = ['a"b`c$(d)', "back\\", "semi; & |", "per%cent %{", "-save-temps", "@options"]
SMALL = ["--set", "train.batch=2"]


def check(condition, *what):
    if not condition:
        sys.exit("hostile.py: " + " ".join(str(w) for w in what))


def run(*args, status=0, **more):
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    check(r.returncode == status, args, "exit", r.returncode, r.stdout[-500:], r.stderr[-2000:])
    return r


def symbols(program):
    out = run("nm", program).stdout.decode()
    return sorted(line.split()[-1] for line in out.splitlines())


def quoted(text):
    """As a text of the IR."""
    out = ""
    for byte in text.encode("utf-8", "surrogateescape"):
        out += chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\x{byte:02x}"
    return f'"{out}"'


def hostile_plan(plan):
    """Every place of the plan names another file; each text occurs twice or more, with some to spare."""
    count = 0

    def place(m):
        nonlocal count
        count += 1
        return f"{m.group(1)}{quoted(TEXTS[count % len(TEXTS)])},"

    text = re.sub(r'(loc\([^"\n]*)"[^"\n]*",', place, plan)
    check(count > 2 * len(TEXTS), "the plan has too few places:", count)
    for field in ("model", "source"):
        value = quoted(TEXTS[0] + TEXTS[2] + TEXTS[3])
        text, n = re.subn(rf'\b({field} = )"[^"\n]*"', lambda m: m.group(1) + value, text)
        check(n, f"the plan names no {field}")
    return text


def code_of(text, path):
    """A C or CUDA text without its comments and literals."""
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as f:
        f.write(text)
    stripped = run("cc", "-x", "c++", "-fpreprocessed", "-E", "-P", path).stdout.decode(errors="replace")
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', stripped)


def plans(bin, root, target):
    heddlec, translate = os.path.join(bin, "heddlec"), os.path.join(bin, "heddle-translate")
    model = os.path.join(root, "examples/tiny/tiny.hd")
    plan = run(heddlec, model, *SMALL, f"--target={target}", "--emit=plan")
    with open("good.hir", "wb") as f:
        f.write(plan.stdout)
    with open("hostile.hir", "w", encoding="utf-8", errors="surrogateescape") as f:
        f.write(hostile_plan(plan.stdout.decode()))
    for name in ("good", "hostile"):
        run(translate, f"{name}.hir", "-o", name)
    check(symbols("good") == symbols("hostile"), target, "symbols differ:",
          set(symbols("hostile")) ^ set(symbols("good")))
    run("./hostile", "--version")
    for to in ("c", "cuda") if target == "cuda" else ("c",):
        text = run(translate, "hostile.hir", f"--to={to}").stdout.decode(errors="surrogateescape")
        check(MARK in text or to == "cuda", target, to, "the texts are not in it")
        check(MARK not in code_of(text, "code.cc"), target, to, "a text of the plan is code")


def names(bin, root):
    heddlec = os.path.join(bin, "heddlec")
    model = open(os.path.join(root, "tests/lit/tools/Inputs/bigram.hd")).read()
    with open("options", "w") as f:
        f.write("--no-such-option")
    for name in NAMES + [TEXTS[0]]:
        with open(f"{name}.hd", "w") as f:
            f.write(model)
        broken = "\n" in name
        before = set(os.listdir("."))
        r = run(heddlec, f"./{name}.hd" if name[0] == "-" else f"{name}.hd", *SMALL, status=1 if broken else 0)
        check(not broken or b"its name holds a control character; give another name with -o" in r.stderr, r)
        check(set(os.listdir(".")) == before | (set() if broken else {name}), name, "leaves", os.listdir("."))
        if broken:
            name = "given"
            run(heddlec, f"{TEXTS[0]}.hd", *SMALL, "-o", name)
        check(not any(MARK in s for s in symbols(f"./{name}")), name, "became code")
        run(f"./{name}", "--version")


def outputs(bin, root):
    heddlec, translate = os.path.join(bin, "heddlec"), os.path.join(bin, "heddle-translate")
    tiny = os.path.join(root, "tests/lit/tools/Inputs/bigram.hd")
    # A device is written, never replaced or removed; what it does not take is an error.
    with open("full", "w") as full:
        pass
    os.remove("full")
    os.symlink("/dev/full", "full")
    for out in ("full", "/dev/full"):
        for args in ([heddlec, tiny, *SMALL], [translate, "good.hir"], [heddlec, tiny, "--emit=ir"],
                     [translate, "good.hir", "--to=c"]):
            r = run(*args, "-o", out, status=1)
            check(b"cannot write" in r.stderr and b"No space left on device" in r.stderr, args, r.stderr)
    check(os.path.islink("full") and os.path.exists("/dev/full"), "a device was replaced")
    for args in ([heddlec, "--help"], [heddlec, "--print-man"], [translate, "good.hir"], [heddlec, tiny, "--emit=ast"]):
        with open("/dev/full", "w") as f:
            r = subprocess.run(args, stdout=f, stderr=subprocess.PIPE)
        check(r.returncode == 1 and b"cannot write 'standard output'" in r.stderr, args, r)
    # A closed output is an error, and a closed standard error is no file's number.
    r = subprocess.run(["sh", "-c", '"$0" "$1" >&-', translate, "good.hir"], stderr=subprocess.PIPE)
    check(r.returncode == 1 and b"cannot write" in r.stderr, "closed output:", r)
    r = subprocess.run(["sh", "-c", '"$0" "$1" -v -o bare 2>&-', translate, "good.hir"])
    check(r.returncode == 0 and symbols("bare") == symbols("good"), "closed standard error:", r)
    # A link stays and its file is replaced; a failure leaves the old one.
    with open("target", "w") as f:
        f.write("\x7fELF old")  # a program, which another one may replace
    os.symlink("target", "link")
    run(heddlec, "no-such-module.hd", "-o", "link", status=1)
    run(heddlec, tiny, *SMALL, "--set", "train.batch=no", "-o", "link", status=1)
    check(open("target").read() == "\x7fELF old", "a failure changes the output")
    run(heddlec, tiny, *SMALL, "-o", "link")
    check(os.path.islink("link") and symbols("target"), "a link was replaced")
    # The name that heddlec chooses may be another name of what it read.
    os.mkdir("models")
    with open("models/net.hd", "w") as f:
        f.write(open(tiny).read())
    os.link("models/net.hd", "net")
    r = run(heddlec, "models/net.hd", *SMALL, status=1)
    check(b"cannot write net: it is a file that was read; give another name with -o" in r.stderr, r)
    os.mkdir("ir")
    run(heddlec, "models/net.hd", *SMALL, "--emit=ir", "-o", "ir/00-dce.hir")
    before = open("ir/00-dce.hir").read()
    r = run(os.path.join(bin, "heddle-opt"), "ir/00-dce.hir", "--pass-pipeline=dce", "--print-ir-after=dce",
            "--print-ir-dir=ir", status=1)
    check(b"it is a file that was read; give another --print-ir-dir" in r.stderr, r)
    check(open("ir/00-dce.hir").read() == before, "a dump replaced the input")


def main():
    root, bin = (os.path.abspath(p) for p in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        names(bin, root)
        for target in ("cuda", "host"):
            plans(bin, root, target)
        outputs(bin, root)
        os.chdir("/")


main()
