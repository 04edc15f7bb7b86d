#!/usr/bin/env python3
"""What `cmake --install` puts into a prefix works there, without the build folder and the sources: the prefix is moved
before it is used, programs are built from it and run, and without its library or its headers heddlec finds none.
Usage: install_test.py CMAKE BUILD ROOT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOOLS = ("heddlec", "heddle-opt", "heddle-translate", "nvrtc-check")
SMALL = ["--set", "layers=1", "--set", "dim=32", "--set", "heads=2", "--set", "seq=16", "--set", "train.batch=2"]


def check(condition, *what):
    if not condition:
        sys.exit(" ".join(str(w) for w in what))


class Prefix:
    def __init__(self, at, work):
        self.at, self.work = at, work
        keep = {k: v for k, v in os.environ.items() if k in ("HOME", "CC", "ASAN_OPTIONS", "UBSAN_OPTIONS")}
        self.env = dict(keep, PATH=f"{at}/bin:/usr/local/bin:/usr/bin:/bin")

    def run(self, *command, status=0):
        command = [str(c) for c in command]
        done = subprocess.run(command, cwd=self.work, env=self.env, capture_output=True, text=True)
        said = done.stdout + done.stderr
        check(done.returncode == status, *command, f"\nexit {done.returncode}\n", said[-4000:])
        return said


def installed(cmake, build, folder):
    """The folder to which the installed files were moved, so that no path to where they were installed works."""
    first, second = folder / "first", folder / "second"
    subprocess.run([cmake, "--install", build, "--prefix", first], check=True, stdout=subprocess.DEVNULL)
    os.rename(first, second)
    return second


def check_pages(p):
    """Every tool has a man page that groff reads without a warning, and completions, both with all options."""
    for tool in TOOLS:
        help_text = p.run(tool, "-h")
        options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", help_text, re.M))
        check(len(options) >= 6, tool, "has few options:", help_text)
        pages = {f"man/man1/{tool}.1": lambda o: o.replace("-", r"\-"), f"bash-completion/completions/{tool}": str,
                 f"zsh/site-functions/_{tool}": str, f"fish/vendor_completions.d/{tool}.fish": lambda o: f"-l {o[2:]} "}
        for page, spelled in pages.items():
            text = (p.at / "share" / page).read_text()
            missing = [o for o in options if spelled(o) not in text]
            check(not missing, page, "lacks", missing)
        if shutil.which("groff"):
            warnings = p.run("groff", "-man", "-Tascii", "-ww", "-z", p.at / f"share/man/man1/{tool}.1")
            check(not warnings, tool, "man page:", warnings)
        p.run("bash", "-n", p.at / f"share/bash-completion/completions/{tool}")
        check(re.match(rf"{tool} \(Heddle\) \d+\.\d+\.\d+", p.run(tool, "--version")), tool, "--version")


def check_programs(p, foreign):
    tiny = p.at / "share/heddle/examples/tiny/tiny.hd"
    said = p.run("heddlec", tiny, *SMALL, "-v", "-o", "tiny")
    check(f"{p.at}/include" in said, "heddlec builds with other headers:", said)
    check(not any(f in said for f in foreign), "heddlec uses the build folder or the sources:", said)
    data = next(p.at.rglob("LANGUAGE.md"))
    check("step 2/2" in p.run("./tiny", f"--data={data}", "--format=bytes", "--steps=2"), "tiny does not train")
    p.run("heddlec", tiny, *SMALL, "--target=cuda", "-o", "tiny_cuda")
    check("target cuda" in p.run("./tiny_cuda", "--version"), "tiny_cuda does not start")
    p.run("heddlec", tiny, *SMALL, "--emit=ir", "-o", "tiny.hir")
    p.run("heddle-opt", "tiny.hir", "--pass-pipeline=train", "-o", "plan.hir")
    check(sorted(os.listdir(p.work)) == ["plan.hir", "tiny", "tiny.hir", "tiny_cuda"], os.listdir(p.work))
    p.run("heddle-translate", "plan.hir", "-o", "again")
    for example in sorted((p.at / "share/heddle/examples").glob("*/*.hd")):
        check('"peak_bytes"' in p.run("heddlec", example, "--set", "layers=1", "--emit=report"), example)


def check_alone(p):
    """The build folder is still there, but an installed heddlec does not use it."""
    library = next(p.at.rglob("libheddle_rt.a"))
    tiny = p.at / "share/heddle/examples/tiny/tiny.hd"
    os.rename(library, p.work / "library")
    said = p.run("heddlec", tiny, "-o", "tiny", status=1)
    check("cannot find libheddle_rt.a above" in said, "heddlec found another library:", said)
    os.rename(p.work / "library", library)
    os.rename(p.at / "include", p.work / "include")
    said = p.run("heddlec", tiny, "-o", "tiny", status=1)
    check("cannot find heddle.h above" in said, "heddlec found other headers:", said)


def main():
    cmake, build, root = sys.argv[1], os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder).resolve()
        (folder / "work").mkdir()
        p = Prefix(installed(cmake, build, folder), folder / "work")
        check_pages(p)
        check_programs(p, (build, root))
        check_alone(p)
        check(any(p.at.rglob("LICENSE")), "no LICENSE")
    print("installed, moved and used")


main()
