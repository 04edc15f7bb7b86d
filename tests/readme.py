#!/usr/bin/env python3
"""Runs the commands of README.md and ir/README.md: every line that begins with `$ ` in a block of code, in order, in a
folder of its own. Training takes two steps; a command whose output is shown must print those of the lines
that hold no figures of the machine.

usage: readme.py HEDDLEC ROOT
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```\n(.*?)^```$", re.S | re.M)
MACHINE = re.compile(r"tok/s|EPYC")  # lines that depend on where they were printed


def commands(text):
    """(command, the lines shown under it)"""
    for block in BLOCK.finditer(text):
        found = None
        for line in block.group(1).splitlines():
            if line.startswith("$ "):
                if found:
                    yield found
                found = (line[2:].split("  #")[0].strip(), [])
            elif found:
                found[1].append(line)
        if found:
            yield found


def run(command, shown, folder, heddlec):
    words = [re.sub(r"^--steps=\d+$", "--steps=2", w) for w in shlex.split(command)]
    if words[0] == "build/bin/heddlec":
        words[0] = heddlec
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)
    said = done.stdout + done.stderr
    fails = any("error:" in line for line in shown)
    wrong = [] if (done.returncode != 0) == fails else [f"status {done.returncode}"]
    wrong += [f"does not print: {line}" for line in shown if not MACHINE.search(line) and line not in said]
    for line in wrong:
        print(f"$ {command}\n{line}")
    if wrong:
        print(said)
    return not wrong


def main():
    heddlec, root = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    text = "".join((root / page).read_text() for page in ("README.md", "ir/README.md"))
    count = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in ("examples", "tools"):
            os.symlink(root / name, os.path.join(folder, name))
        for name in ("train.txt", "val.txt"):
            pathlib.Path(folder, name).write_text((root / "frontend/LANGUAGE.md").read_text())
        for command, shown in commands(text):
            count += 1
            failed += not run(command, shown, folder, heddlec)
    print(f"{count} commands, {failed} failures")
    return 1 if failed or count < 5 else 0


sys.exit(main())
