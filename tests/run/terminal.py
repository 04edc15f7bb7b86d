#!/usr/bin/env python3
"""Texts of strangers: a plan, a device table, names of files, arguments and the environment hold bytes that a terminal
would obey. Whatever the tools and a program print, no such byte reaches standard output or error, no line of it is the
stranger's, and JSON gives back the very text. Usage: terminal.py ROOT BIN
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata

# A title for the window, a line of its own, the end of a string of JSON and of a script, marks of direction, and bytes
# that are not UTF-8, among them the command 0x9b and a character cut short.
EVIL = (b'\x1b]0;t\x07\x1b[2J\nforged: line\r\t"\\", "forged": 1, <\\script>\x7f\xc2\x9b2J\x9b2J\xe2\x80\xae'
        b'caf\xc3\xa9 \xf0\x9f\x98\x80 \xed\xa0\x80\xff\xe2\x80')
NAME = b"evil" + EVIL
SMALL = [f"--set={s}" for s in ("layers=1", "dim=32", "heads=2", "seq=16", "train.batch=2")]
DIRECTION = {0x61c, 0x200e, 0x200f, *range(0x2028, 0x202f), *range(0x2066, 0x206a)}
seen = 0  # outputs in which the name was


def check(condition, *what):
    if not condition:
        sys.exit("terminal.py: " + " ".join(str(w) for w in what))


def exact(text):
    """What JSON holds: each byte that is not UTF-8 is U+FFFD."""
    return re.sub("[\udc80-\udcff]", "\ufffd", text.decode("utf-8", "surrogateescape"))


def shown(args, text):
    """The output, if a terminal only shows it."""
    global seen
    try:
        text = text.decode("utf-8")
    except UnicodeDecodeError as e:
        check(False, args, "prints bytes that are not UTF-8:", e)
    bad = [c for c in text if (unicodedata.category(c) == "Cc" and c not in "\n\t") or ord(c) in DIRECTION]
    check(not bad, args, "prints", bad, "in", text[-600:])
    check("\nforged" not in text, args, "prints a line of a stranger:", text[-600:])
    seen += "caf\u00e9" in text
    return text


def run(*args, env=None, status=None, **more):
    before = seen
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environb, **(env or {})}, **more)
    out, err = shown(args, r.stdout), shown(args, r.stderr)
    check(r.returncode >= 0 and status in (None, r.returncode), args, "exit", r.returncode, out[-500:], err[-900:])
    return out, err, seen > before


def says(*args, **more):
    """An output that quotes the name."""
    out, err, named = run(*args, **more)
    check(named, args, "does not name it:", out[-500:], err[-900:])
    return out + err


def quoted(text):
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\x{b:02x}" for b in text) + '"'


def page(html):
    """The data of a timeline's page."""
    start = html.index('{"version":1')
    return json.JSONDecoder().raw_decode(html, start)[0]


def table(root):
    lines = open(os.path.join(root, "devices/h100.dev"), "rb").read()
    for word in (b"name", b"from"):
        lines, n = re.subn(rb"(?m)^(%s +).*$" % word, lambda m: m.group(1) + b"x " + NAME.replace(b"\n", b""), lines)
        check(n == 1, "the device table has no", word)
    open("evil.dev", "wb").write(lines)
    open("bad.dev", "wb").write(lines.replace(b"copy-engines", b"copy-" + NAME.replace(b" ", b"_")))


def plans(opt, translate, heddlec, model):
    """A plan whose model, source, places and regions are hostile."""
    plan, _, _ = run(heddlec, model, *SMALL, "--target=cuda", "--set", "schedule.graph=unit", "--set",
                     "schedule.recompute=Block", "--emit=plan", status=0)
    plan = re.sub(r'(loc\([^"\n]*)"[^"\n]*",', lambda m: f"{m.group(1)}{quoted(NAME)},", plan)
    plan, n = re.subn(r'\b(model|source|path) = "[^"\n]*"', lambda m: f"{m.group(1)} = {quoted(NAME)}", plan)
    check(n > 4, "the plan names too little:", n)
    open("evil.hir", "w").write(plan)
    out, _, _ = run(opt, "evil.hir", status=0)
    check(quoted(NAME) not in out and out.count(r"evil\x1b") > 20, "the IR lacks the text")
    open("again.hir", "w").write(out)
    check(run(opt, "again.hir", status=0)[0] == out, "the IR reads back as something else")
    report = json.loads(run(opt, "evil.hir", "--device-model=evil.dev", "--report=json", status=0)[0])
    check(report["device_model"] == "x " + exact(NAME.replace(b"\n", b"")), "another device:", report["device_model"])
    check(report["predicted"]["from"] == report["device_model"], "another origin:", report["predicted"]["from"])
    paths = {r["path"] for r in report["capture"]["list"]}
    check(paths == {exact(NAME)}, "other paths:", paths)
    files = {v["file"] for v in report.get("recomputed", {"values": [{"file": exact(NAME)}]})["values"]}
    check(files == {exact(NAME)}, "other files:", files)
    says(opt, "evil.hir", "--device-model=evil.dev", "--report=text", status=0)
    data = page(run(opt, "evil.hir", "--device-model=evil.dev", "--report=timeline", status=0)[0])
    check(data["plan"]["model"] == exact(NAME) and data["device"] == report["device_model"], "another page")
    check(any(exact(NAME) in s for s in data["plan"]["strings"]), "a page without places")
    says(translate, "evil.hir", "--to=c", status=0)
    run(translate, "evil.hir", "--to=cuda", status=0)
    open("broken.hir", "wb").write(b"stage plan\nconfig @" + NAME)
    run(opt, "broken.hir", status=1)
    run(opt, "evil.hir", b"--pass-pipeline=" + NAME, status=1)
    says(heddlec, model, "--target=cuda", "--emit=table", "--device-model=bad.dev", status=1)


def names(opt, translate, heddlec, model):
    """Names of files, and arguments."""
    text, hd = open(model, "rb").read(), NAME + b".hd"
    open(hd, "wb").write(text)
    for emit in ("ast", "ir", "plan", "c", "report", "table", "timeline"):
        run(heddlec, hd, *SMALL, f"--emit={emit}", "--device-model=evil.dev", status=0)
    says(heddlec, hd, *SMALL, "--emit=plan", "--print-ir-after=dce", "-o", "dumped", status=0)
    says(heddlec, hd, *SMALL, status=1)  # it cannot be the name of a program
    report = json.loads(run(heddlec, hd, *SMALL, "--set", "schedule.recompute=Block", "--target=cuda", "--emit=report",
                            status=0)[0])
    files = {v["file"] for v in report["recomputed"]["values"]}
    check(exact(hd) in files, "other files:", files)
    open(hd, "wb").write(text.replace(b"dim", b"dam", 1) + b"// " + EVIL)
    says(heddlec, hd, status=1)
    open(b"bad.hd", "wb").write(text.replace(b"gelu", b"gelu" + EVIL))
    run(heddlec, "bad.hd", status=1)
    run(heddlec, hd, "--verify-diagnostics", status=1)
    absent = NAME + b"/absent"
    for tool in (heddlec, opt, translate):
        says(tool, absent, status=1)
        says(tool, b"--" + NAME, status=2)
        says(tool, b"-" + NAME[4:], status=2)
    says(opt, b"--pack=" + absent, status=1)
    for option in (b"--target=", b"--arch=", b"--device-memory=", b"--emit="):
        says(heddlec, model, option + NAME, status=2)
    for option in (b"--set=", b"--set=train.", b"--set=dim=", b"--set=train.lr=", b"--set=schedule.graph="):
        run(heddlec, model, option + NAME, status=1)
    says(heddlec, model, b"--device-model=" + absent, "--emit=report", "--target=cuda", status=1)
    says(heddlec, model, "-o", absent, status=1)
    for name in (b"CC", b"HEDDLE_HOME"):
        says(heddlec, model, *SMALL, "-o", "never", env={name: NAME}, status=1)
    octal = "".join(f"\\{b:03o}" for b in NAME.replace(b"\n", b""))  # its lines stay lines: it is the user's program
    open("cc", "w").write(f"#!/bin/sh\nprintf '{octal}' >&2\nexit 1\n")
    os.chmod("cc", 0o755)
    run(heddlec, model, *SMALL, "-o", "never", env={b"CC": b"./cc"}, status=1)


def programs(translate, heddlec, model):
    """A program under a hostile name, with hostile arguments and environment; and one of the hostile plan."""
    program, folder = b"./" + NAME + b".run", NAME + b".d"
    run(heddlec, model, *SMALL, "-o", "program", status=0)
    os.rename("program", program)
    data = NAME + b".txt"
    open(data, "wb").write(bytes(range(256)) * 8)
    os.mkdir(folder)
    good = [program, b"--data=" + data, "--steps=2"]
    for option in (b"--", b"-", b"--steps=", b"--seed=", b"--ranks=", b"--data=absent", b"--init=", b"--resume="):
        run(program, option + NAME, status=None if option in (b"--init=", b"--resume=") else 2)
    says(program, b"--data=" + folder + b"/x", "--steps=1", status=1)
    says(*good, b"--save=" + folder + b"/save", status=0)
    says(*good, b"--resume=" + folder + b"/absent", status=1)
    says(*good, b"--init=" + data, status=1)
    says(*good, b"--log=" + folder + b"/absent/log", status=1)
    says(*good, b"--val=" + folder + b"/absent", status=1)
    says(program, "--help", status=0)
    for name in (b"RANK", b"WORLD_SIZE", b"LOCAL_RANK", b"MASTER_ADDR", b"MASTER_PORT", b"HEDDLE_PORT",
                 b"HEDDLE_SECRET", b"SLURM_STEP_NODELIST", b"HEDDLE_DELAY"):
        run(*good, env={name: NAME})
    lock = folder + b"/save/" + next(f for f in os.listdir(folder + b"/save") if b"checkpoint" in f)
    open(lock, "wb").write(EVIL * 40)
    run(*good, b"--resume=" + folder + b"/save", status=1)
    run(translate, "evil.hir", "-o", "strange", status=0)
    says("./strange", "--version", status=0)
    says("./strange", "--report", status=0)
    json.loads(run("./strange", "--report=json", status=0)[0])
    run("./strange", b"--data=" + data, "--steps=1", env={b"HEDDLE_CUDA_PATH": NAME, b"HEDDLE_CACHE": NAME + b"/c"})


def main():
    root, bin = (os.path.abspath(p) for p in sys.argv[1:3])
    heddlec, opt, translate = (os.path.join(bin, n) for n in ("heddlec", "heddle-opt", "heddle-translate"))
    model = os.path.join(root, "examples/tiny/tiny.hd")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        table(root)
        plans(opt, translate, heddlec, model)
        names(opt, translate, heddlec, model)
        programs(translate, heddlec, model)
        os.chdir("/")
    print(f"{seen} outputs name the stranger, and obey nothing of it")


main()
