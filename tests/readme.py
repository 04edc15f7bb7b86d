#!/usr/bin/env python3
"""Runs the commands of documents, in order, in a folder of its own: every line that begins with `$ ` in a block of
code, and of a table whose last column is called Command every command in it. A block of code with the name of a file,
as in ```hd a.hd, is that file. Training takes a hundredth of the steps, and at least two; a command whose output is
shown must print those of the lines that hold no figures of the machine.

usage: readme.py HEDDLEC ROOT PAGE...
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

TABLE = re.compile(r"^\|.*\| Command \|$")
MACHINE = re.compile(r"tok/s|EPYC")  # lines that depend on where they were printed


def parts(text):
    """("```" and what follows it, its lines) of every block of code, ("|", the rows) of every table of commands"""
    kind, lines = None, []
    for line in [*text.splitlines(), ""]:
        if kind == "|" and not line.startswith("|"):
            yield kind, lines[1:]
            kind = None
        if kind is None and (line.startswith("```") or TABLE.match(line)):
            kind, lines = line if line.startswith("```") else "|", []
        elif kind and line == "```":
            yield kind, lines
            kind = None
        else:
            lines.append(line)


def commands(text):
    """(command, the lines shown under it)"""
    for kind, lines in parts(text):
        if kind == "|":
            cells = [row.rstrip(" |").rsplit("| ", 1)[-1] for row in lines]
            yield from ((c, []) for cell in cells for c in re.findall(r"`([^`]+)`", cell))
        if kind != "```":
            continue
        found = None
        for line in lines:
            if line.startswith("$ "):
                if found:
                    yield found
                found = (line[2:].split("  #")[0].strip(), [])
            elif found:
                found[1].append(line)
        if found:
            yield found


def files(text):
    """(name, text)"""
    for kind, lines in parts(text):
        if " " in kind:
            yield kind.split()[1], "\n".join(lines) + "\n"


def run(command, shown, folder, heddlec):
    words = [re.sub(r"^--steps=(\d+)$", lambda m: f"--steps={max(2, int(m[1]) // 100)}", w)
             for w in shlex.split(command)]
    if words[0] in ("heddlec", "build/bin/heddlec"):
        words[0] = heddlec
    if words[0].startswith("./") and not os.path.exists(os.path.join(folder, words[0])):
        print(f"$ {command}\nno such program")
        return False
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace",
                          timeout=600)
    said = done.stdout + done.stderr
    fails = any("error:" in line for line in shown)
    wrong = [] if (done.returncode != 0) == fails else [f"status {done.returncode}"]
    wrong += [f"does not print: {line}" for line in shown if not MACHINE.search(line) and line not in said]
    for line in wrong:
        print(f"$ {command}\n{line}")
    if wrong:
        print(said)
    return not wrong


def run_page(heddlec, root, page):
    """(commands, failures)"""
    text = (root / page).read_text()
    count = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in ("examples", "tools"):
            os.symlink(root / name, os.path.join(folder, name))
        for name in ("train.txt", "val.txt"):
            pathlib.Path(folder, name).write_text((root / "frontend/LANGUAGE.md").read_text())
        for name, body in files(text):
            pathlib.Path(folder, name).parent.mkdir(exist_ok=True)
            pathlib.Path(folder, name).write_text(body)
        for command, shown in commands(text):
            count += 1
            failed += not run(command, shown, folder, heddlec)
    print(f"{page}: {count} commands, {failed} failures")
    return count, failed


def main():
    heddlec, root = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    done = [run_page(heddlec, root, page) for page in sys.argv[3:]]
    return 1 if any(failed or not count for count, failed in done) or sum(count for count, _ in done) < 5 else 0


sys.exit(main())
