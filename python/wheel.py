#!/usr/bin/env python3
"""Makes a Python wheel of a build: the tools and what they need, and the module `heddle`.

usage: wheel.py [--cmake=CMAKE] BUILD FOLDER

Prints the path of the wheel, which is in FOLDER. `pip install` of it gives heddlec, heddle-opt, heddle-translate,
nvrtc-check, heddle-data, heddle-sample and `import heddle`. The format is that of the Python Packaging Authority's
specification "Binary distribution format" (wheel 1.0).
"""
import argparse
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = ("heddlec", "heddle-opt", "heddle-translate", "nvrtc-check", "heddle-data", "heddle-sample")


def version(prefix):
    said = subprocess.run([prefix / "bin/heddlec", "--version"], capture_output=True, text=True, check=True).stdout
    number, commit = re.match(r"heddlec \(Heddle\) ([\d.]+)(?: \((\w+)\))?", said).groups()
    return f"{number}+{commit}" if commit else number


def tag():
    return f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def metadata(is_version):
    return (f"Metadata-Version: 2.1\nName: heddle\nVersion: {is_version}\n"
            "Summary: a compiler for training transformers on NVIDIA GPUs and on CPUs\n"
            "Requires-Python: >=3.9\n"
            "Description-Content-Type: text/markdown\n\n" + (HERE.parent / "README.md").read_text())


def files(prefix, name, is_version):
    """(path in the wheel, bytes, whether it may be executed)"""
    for path in sorted((HERE / "heddle").glob("*.py")):
        yield f"heddle/{path.name}", path.read_bytes(), False
    for path in sorted(p for p in prefix.rglob("*") if p.is_file()):
        yield f"heddle/prefix/{path.relative_to(prefix)}", path.read_bytes(), os.access(path, os.X_OK)
    scripts = "".join(f"{t} = heddle.tools:{t.replace('-', '_')}\n" for t in TOOLS)
    info = f"{name}.dist-info"
    yield f"{info}/METADATA", metadata(is_version).encode(), False
    yield f"{info}/WHEEL", (f"Wheel-Version: 1.0\nGenerator: heddle\nRoot-Is-Purelib: false\n"
                            f"Tag: {tag()}\n").encode(), False
    yield f"{info}/entry_points.txt", f"[console_scripts]\n{scripts}".encode(), False


def write(path, prefix, name, is_version):
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        def add(at, data, executable):
            entry = zipfile.ZipInfo(at)
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data)
        for at, data, executable in files(prefix, name, is_version):
            add(at, data, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{at},sha256={digest},{len(data)}")
        at = f"{name}.dist-info/RECORD"
        add(at, ("\n".join([*record, f"{at},,"]) + "\n").encode(), False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    if not (args.build / "bin/heddlec").exists():
        sys.exit(f"error: {args.build} has no bin/heddlec: it is no folder in which Heddle was built")
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder)
        subprocess.run([args.cmake, "--install", args.build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        is_version = version(prefix)
        name = f"heddle-{is_version}"
        path = args.folder / f"{name}-{tag()}.whl"
        write(path, prefix, name, is_version)
    print(path)


main()
