#!/usr/bin/env python3
"""What `cmake --install` puts into a prefix works there, without the build folder and the sources: the prefix is moved
before it is used, programs are built from it and run, and without its library or its headers heddlec finds none. No
link of its documents is dead. The Debian package and the Python wheel are unpacked into empty folders and used there.
Usage: install_test.py CMAKE BUILD ROOT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOOLS = ("heddlec", "heddle-opt", "heddle-translate", "nvrtc-check", "heddle-data", "heddle-sample")
SMALL = ["--set", "layers=1", "--set", "dim=32", "--set", "heads=2", "--set", "seq=16", "--set", "train.batch=2"]


def check(condition, *what):
    if not condition:
        sys.exit(" ".join(str(w) for w in what))


class Prefix:
    def __init__(self, at, work):
        self.at, self.work = at, work
        keep = {k: v for k, v in os.environ.items() if k in ("HOME", "CC", "ASAN_OPTIONS", "UBSAN_OPTIONS")}
        self.env = dict(keep, PATH=f"{at}/bin:/usr/local/bin:/usr/bin:/bin")

    def run(self, *command, status=0, **env):
        command = [str(c) for c in command]
        done = subprocess.run(command, cwd=self.work, env={**self.env, **env}, capture_output=True, text=True)
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


def check_program_page(p):
    """Compiled programs have a man page: the installed one and their own have every option of --help."""
    page = p.at / "share/man/man1/heddle-program.1"
    options = re.findall(r"^  --([\w-]+)", p.run("./tiny", "--help"), re.M)
    for text in (page.read_text(), p.run("./tiny", "--print-man")):
        missing = [o for o in options if rf".B \-\-" + o.replace("-", r"\-") not in text]
        check(len(options) > 20 and not missing, "the man page of programs lacks", missing)
    if shutil.which("groff"):
        warnings = p.run("groff", "-man", "-Tascii", "-ww", "-z", page)
        check(not warnings, "the man page of programs:", warnings)


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def check_links(p):
    """Every link between the installed documents leads to a file and a heading."""
    root = next(p.at.rglob("LICENSE")).parent
    count = 0
    for page in root.rglob("*.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if re.match(r"\w+:", target):
                continue
            name, _, heading = target.partition("#")
            to = (page.parent / name).resolve() if name else page
            check(to.exists(), f"{page.relative_to(root)}: {target} leads nowhere")
            slugs = [slug(h) for h in re.findall(r"^#+ (.*)", to.read_text(), re.M)] if heading else []
            check(not heading or heading in slugs, f"{page.relative_to(root)}: {target}: no such heading", slugs)
            count += 1
    check(count > 20, "few links:", count)


def check_debian(cmake, build, folder):
    """The Debian package, unpacked into an empty folder, builds a program that trains."""
    cpack = pathlib.Path(shutil.which(cmake) or cmake).with_name("cpack")
    if not shutil.which("dpkg-deb") or not cpack.exists():
        return "no dpkg-deb or cpack: the Debian package is not tested"
    subprocess.run([cpack, "-G", "DEB", "-B", folder / "deb"], cwd=build, check=True, stdout=subprocess.DEVNULL)
    package = next((folder / "deb").glob("*.deb"))
    says = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True, check=True).stdout
    check("Package: heddle" in says and "libopenblas-dev" in says, says)
    subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)
    (folder / "deb work").mkdir()
    p = Prefix(folder / "root/usr", folder / "deb work")
    p.run("heddlec", p.at / "share/heddle/examples/tiny/tiny.hd", *SMALL, "-o", "tiny")
    check("step 2/2" in p.run("./tiny", f"--data={next(p.at.rglob('LANGUAGE.md'))}", "--format=bytes", "--steps=2"), "")
    return "the Debian package works"


FROM_PYTHON = """
import heddle, math, pathlib, sys
model, data = sys.argv[1], sys.argv[2]
small = {"layers": 1, "dim": 32, "heads": 2, "seq": 16, "train.batch": 2}
assert heddle.report(model, set=small)["peak_bytes"] > 0
tiny = heddle.compile(model, set=small)
assert tiny.path.name == "tiny" and tiny.report()["parameters"] > 0
options = {"format": "bytes", "val": data, "val_every": 2, "overwrite": None, "check": True}
log = tiny.run(data=[data, sys.argv[3]], steps=3, log="kept", **options)
assert log.headers[0]["model"] == "Tiny" and list(log.column("step")) == [1, 2, 3], log.steps
assert all(math.isfinite(x) for x in log.column("loss")) and len(log.column("val_loss")) == 2
assert len(heddle.read_log("kept").steps) == 3
for wrong, call in ((heddle.Error, lambda: heddle.compile(model, set={"no_such": 1})),
                    (heddle.Error, lambda: tiny.run(data="missing", steps=1)),
                    (FileNotFoundError, lambda: heddle.Program("missing")),
                    (ValueError, lambda: heddle.read_log(data)),
                    (KeyError, lambda: log.column("no_such"))):
    try:
        call()
    except wrong as e:
        assert "no_such" in str(e) or "missing" in str(e) or "--log" in str(e), e
    else:
        raise AssertionError(wrong)
"""


def check_wheel(cmake, build, root, folder):
    """The wheel, installed by pip into an empty folder, gives heddlec and the module."""
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True).returncode:
        return "no pip: the wheel is not tested"
    made = subprocess.run([sys.executable, f"{root}/python/wheel.py", f"--cmake={cmake}", build, folder / "wheels"],
                          capture_output=True, text=True)
    check(not made.returncode, "wheel.py:", made.stdout, made.stderr)
    site = folder / "site"
    done = subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check",
                           "--root-user-action=ignore", "--target", site, made.stdout.strip()],
                          capture_output=True, text=True)
    check(not done.returncode, "pip:", done.stdout, done.stderr)
    (folder / "py work").mkdir()
    p = Prefix(site, folder / "py work")
    check("(Heddle)" in p.run(sys.executable, site / "bin/heddlec", "--version", PYTHONPATH=str(site)), "heddlec")
    for tool in ("heddle-data", "heddle-sample"):
        said = p.run(sys.executable, site / "bin" / tool, "--version", PYTHONPATH=str(site))
        check("(Heddle)" in said, tool, said)
    share = site / "heddle/prefix/share"
    p.run(sys.executable, "-c", FROM_PYTHON, share / "heddle/examples/tiny/tiny.hd", next(share.rglob("LANGUAGE.md")),
          next(share.rglob("bits.md")), PYTHONPATH=str(site))
    return "the wheel works"


def check_programs(p, foreign):
    tiny = p.at / "share/heddle/examples/tiny/tiny.hd"
    said = p.run("heddlec", tiny, *SMALL, "-v", "-o", "tiny")
    check(f"{p.at}/include" in said, "heddlec builds with other headers:", said)
    check(not any(f in said for f in foreign), "heddlec uses the build folder or the sources:", said)
    data = next(p.at.rglob("LANGUAGE.md"))
    check("step 2/2" in p.run("./tiny", f"--data={data}", "--format=bytes", "--steps=2"), "tiny does not train")
    p.run("heddle-data", data, "-o", "tokens", "--split=\\n\\n")
    check("step 2/2" in p.run("./tiny", "--data=tokens", "--steps=2"), "tiny does not train on tokens")
    p.run("heddlec", tiny, *SMALL, "--target=cuda", "-o", "tiny_cuda")
    check("target cuda" in p.run("./tiny_cuda", "--version"), "tiny_cuda does not start")
    p.run("heddlec", tiny, *SMALL, "--emit=ir", "-o", "tiny.hir")
    p.run("heddle-opt", "tiny.hir", "--pass-pipeline=train", "-o", "plan.hir")
    check(sorted(os.listdir(p.work)) == ["plan.hir", "tiny", "tiny.hir", "tiny_cuda", "tokens"], os.listdir(p.work))
    p.run("heddle-translate", "plan.hir", "-o", "again")
    for example in sorted((p.at / "share/heddle/examples").glob("*/*.hd")):
        few = ["--set", "layers=1"] if re.search(r"\blayers = \d", example.read_text()) else []
        check('"peak_bytes"' in p.run("heddlec", example, *few, "--emit=report"), example)


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
        check_links(p)
        check_programs(p, (build, root))
        check_program_page(p)
        check_alone(p)
        if "HEDDLE_SANITIZE:BOOL=OFF" in pathlib.Path(build, "CMakeCache.txt").read_text():
            print(check_debian(cmake, build, folder))
            print(check_wheel(cmake, build, root, folder))
    print("installed, moved and used")


main()
