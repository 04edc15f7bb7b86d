#!/usr/bin/env python3
"""Layering, read off the #include lines: an edge between folders, or between rooms inside one, that the tables lack is
an error.

Also: only runtime/text.c prints, since what it prints is clean; a header's guard is its path, a .c that has a header
of its own includes it first, and every include names the path from the project's root. Usage: layering.py ROOT
"""
import os
import re
import sys

# folder -> the folders it may include
EDGES = {
    "ir": {"ir"},
    "frontend": {"frontend", "ir"},
    "passes": {"passes", "ir"},
    "codegen": {"codegen", "ir"},
    "runtime": {"runtime"},
    "tests": {"tests", "ir", "frontend", "passes", "codegen", "runtime"},
}
# room -> the files and rooms of its own layer that it may include; a folder of a layer that is no room may include all
# of them. A room inside another one has rules of its own.
PLAN = {"passes/analysis", "passes/settings.h"}
TOP = {f"runtime/{name}.h" for name in ("heddle", "text", "dtypes")}
ROOMS = {
    "frontend/syntax": {"frontend/syntax"},
    "frontend/model": {"frontend/frontend.h", "frontend/syntax", "frontend/model"},
    "passes/analysis": PLAN,
    "passes/pack": {"passes/pack"},
    "passes/plan": PLAN | {"passes/plan", "passes/manager/pipeline.h", "passes/pass.h"},
    "passes/verify": PLAN | {"passes/verify", "passes/pass.h"},
    "passes/verify/bytes": PLAN | {"passes/verify/verify_plan.h"},
    "passes/verify/ranks": PLAN | {"passes/verify/verify_plan.h", "passes/verify/ranks"},
    "passes/verify/values": PLAN | {"passes/verify/verify_plan.h", "passes/verify/values"},
    "runtime/base": TOP | {"runtime/base"},
    "runtime/world": TOP | {"runtime/base", "runtime/world"},
}
# Rooms above the rest of their layer: none of its other files includes them.
UPPER = {"ir/machine", "passes/plan"}
# Files that the compiler and the runtime share, beside the runtime that stands alone: a table of element types, how
# text is printed, and how config.json of Hugging Face is read.
SHARED = {"runtime/dtypes.def", "runtime/text.h"}
HUB = {"runtime/base/hub_config.h": {"frontend"}}
# A header that is installed names what is installed beside it without a folder.
BESIDE = {"runtime/heddle.h": {"dtypes.def", "inits.def", "heddle_calls.h"}, "runtime/heddle_calls.h": {"heddle.h"},
          "runtime/heddle_host.h": {"bits.h"}}
# The runtime's table of initialisers, and the folders of the compiler that read it.
TABLES = {"runtime/inits.def": {"frontend", "codegen"}}
# Drivers only parse arguments and call: they see every layer.
DRIVERS = {"frontend/heddlec.c", "passes/heddle_opt.c", "codegen/heddle_translate.c", "codegen/nvrtc_check.c"}
# Calls of passes, and ways to print that clean nothing.
CALLS = re.compile(r"^(?!Change ).*\bhd_pass_(?!find\b|at\b|count\b)\w+\(", re.M)
PRINTS = re.compile(r"\b(?:v?printf|puts|putchar|perror|psignal)\("
                    r"|\b(?:fputs|fputc|v?fprintf|v?dprintf)\([^;]*\b(?:stderr|stdout|STD(?:ERR|OUT)_FILENO)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def sources(root):
    for folder in EDGES:
        for where, folders, files in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(files):
                if name.endswith((".c", ".h", ".l", ".y")):
                    yield os.path.relpath(os.path.join(where, name), root)


def own_lines(path, text):
    """What a file includes, without the includes in strings of generated code (those lines start with a quote)."""
    return [(m.group(1), text.count("\n", 0, m.start()) + 1) for m in INCLUDE.finditer(text)]


def room_of(path):
    """The innermost room around a file, or None."""
    around = [r for r in ROOMS if path.startswith(r + "/")]
    return max(around, key=len, default=None)


def inside(path, places):
    return any(path == p or path.startswith(p + "/") for p in places)


def check(root):
    errors = [f"{room}: this room of tests/layering.py is no folder" for room in [*ROOMS, *UPPER]
              if not os.path.isdir(os.path.join(root, room))]
    generated = {"parse.tab.h", "lex.h"}
    for path in sources(root):
        text = open(os.path.join(root, path), encoding="utf-8").read()
        folder = path.split(os.sep)[0]
        includes = own_lines(path, text)
        room = room_of(path)
        for included, line in includes:
            target = included.split("/")[0]
            upper = [r for r in UPPER if inside(included, [r]) and not inside(path, [r])]
            if upper and target == folder and path not in DRIVERS:
                errors.append(f'{path}:{line}: no file of {folder} outside of {upper[0]} may include "{included}"')
                continue
            if room and target == folder and not inside(included, ROOMS[room]):
                allowed = ", ".join(sorted(ROOMS[room]))
                errors.append(f'{path}:{line}: {room} may not include "{included}"; of {folder} it may include '
                              f'{allowed}')
                continue
            if os.path.basename(included) in generated or not os.path.exists(os.path.join(root, included)):
                beside = os.path.join(os.path.dirname(path), included)
                if "/" not in included and included not in BESIDE.get(path, ()) and os.path.exists(f"{root}/{beside}"):
                    errors.append(f'{path}:{line}: "{included}" must be named from the root: "{beside}"')
                continue
            if path in DRIVERS or target in EDGES[folder] or (folder == "ir" and included in SHARED) or \
                    folder in TABLES.get(included, ()) or folder in HUB.get(included, ()):
                continue
            allowed = ", ".join(sorted(EDGES[folder]))
            errors.append(f'{path}:{line}: {folder} may not include "{included}"; it may include {allowed}')
        header = path[:-2] + ".h"
        if path.endswith(".c") and os.path.exists(os.path.join(root, header)) and includes and includes[0][0] != header:
            errors.append(f'{path}:{includes[0][1]}: the first include must be its own header "{header}"')
        if folder == "passes" and path.endswith(".c"):
            lines = [text.count("\n", 0, m.start()) + 1 for m in CALLS.finditer(text)]
            errors += [f"{path}:{n}: no pass calls a pass; passes/plan tries pipelines" for n in lines]
        if folder != "tests" and path != "runtime/text.c":
            lines = [text.count("\n", 0, m.start()) + 1 for m in PRINTS.finditer(text)]
            errors += [f"{path}:{n}: print with hd_say of runtime/text.h, which cleans" for n in lines]
        if path.endswith(".h"):
            guard = re.sub(r"\W", "_", path).upper()
            if f"#ifndef {guard}\n#define {guard}\n" not in text and f"#pragma once" not in text:
                errors.append(f"{path}:1: the guard must be {guard}")
    return errors


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    errors = check(root)
    for e in errors:
        print(e)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
