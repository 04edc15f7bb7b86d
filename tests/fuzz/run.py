#!/usr/bin/env python3
"""Runs one libFuzzer target for some seconds: run.py ROOT TARGET CORPUS SECONDS [--keep]

It starts from the saved corpus, from every test and example of that kind, and from a dictionary of the words in the
tables. A finding is printed whole and saved as build/.../fuzz/<target>/crash-*; fix it and add it to the corpus. --keep
adds to the saved corpus what this run reached and the corpus does not.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

LONGEST = 4096
# by kind of input, whose tables hold words of the language
LAYERS = {".hir": ("ir",), ".hd": ("ir", "frontend"), ".st": (), ".frames": ()}


def find(root, folders, suffix):
    for folder in folders:
        for where, inner, files in os.walk(os.path.join(root, folder)):
            inner.sort()
            for name in sorted(files):
                if name.endswith(suffix) and "corpus" not in where:
                    yield os.path.join(where, name)


def seeds(root, suffix, folder):
    """Every part of every test that is small enough, without its RUN and CHECK lines."""
    for n, path in enumerate(find(root, ("tests", "examples"), suffix)):
        text = open(path, encoding="utf-8", errors="replace").read()
        for k, part in enumerate(re.split(r"^// -----\s*$", text, flags=re.M)):
            part = re.sub(r"^//.*\n", "", part, flags=re.M)
            for m, piece in enumerate([part] if len(part) <= LONGEST else re.split(r"(?<=\n}\n)", part)):
                if 0 < len(piece) <= LONGEST:
                    open(os.path.join(folder, f"seed-{n}-{k}-{m}"), "w", encoding="utf-8").write(piece)


def dictionary(root, suffix, path):
    words = set()
    if suffix == ".st":
        words = set("dtype shape data_offsets __metadata__ __checksum__ F32 F16 BF16 U8".split())
    if suffix == ".frames":
        words = {"heddle."}
    for table in find(root, LAYERS[suffix], ".def"):
        words |= set(re.findall(r'"([a-z@][a-z0-9_.]*)"', open(table, encoding="utf-8").read()))
    if suffix == ".hd":
        for grammar in find(root, ("frontend",), ".l"):
            words |= set(re.findall(r'"([^"\\\s]+)"', open(grammar, encoding="utf-8").read()))
    with open(path, "w", encoding="utf-8") as out:
        for w in sorted(words):
            out.write(f'"{w}"\n')


def main():
    keep = "--keep" in sys.argv
    root, target, corpus, seconds = [a for a in sys.argv[1:] if a != "--keep"]
    suffix = "." + os.path.basename(corpus)
    work = os.path.abspath(os.path.join(os.path.dirname(target), "..", "fuzz", os.path.basename(target)))
    os.makedirs(work, exist_ok=True)
    words = os.path.join(work, "words.dict")
    dictionary(root, suffix, words)
    with tempfile.TemporaryDirectory(dir=work) as inputs:
        seeds(root, suffix, inputs)
        shutil.copytree(corpus, inputs, dirs_exist_ok=True)
        run = subprocess.run(
            [target, f"-dict={words}", f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2560",
             f"-max_len={LONGEST}",
             "-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={work}/", inputs],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        status, log = run.returncode, run.stdout.decode(errors="replace")
        print(log[-20000:] if status else "\n".join(l for l in log.split("\n") if l.startswith("stat::")))
        if keep and not status:
            subprocess.run([target, "-merge=1", f"-max_len={LONGEST}", corpus, inputs], check=True, capture_output=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
