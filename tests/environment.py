#!/usr/bin/env python3
"""The table of environment variables in runtime/README.md: a row for every HEDDLE_ name that the compiler or the
runtime reads, with its default where that is a number in the source, and no other row. Usage: environment.py ROOT
"""
import pathlib
import re
import sys

FOLDERS = ("ir", "frontend", "passes", "codegen", "runtime")
ROW = re.compile(r"^\| `(HEDDLE_[A-Z_]+)` \| (.*?) \| ", re.M)
# a name that a function is given, and the number it falls back to
READ = re.compile(r'\w\("(HEDDLE_[A-Z_]+)"(?:, (\d+)\))?')


def main():
    root = pathlib.Path(sys.argv[1])
    rows = ROW.findall((root / "runtime/README.md").read_text())
    table, read, errors = dict(rows), {}, []
    for path in sorted(p for f in FOLDERS for p in (root / f).rglob("*.[ch]")):
        for name, default in READ.findall(path.read_text()):
            read.setdefault(name, path.relative_to(root))
            if default and table.get(name, default) != default:
                errors.append(f"{name}: the table says {table[name]}, {path.relative_to(root)} {default}")
    errors += [f"{name}: {path} reads it, runtime/README.md has no row" for name, path in read.items()
               if name not in table]
    errors += [f"{name}: runtime/README.md has a row, nothing reads it" for name in table if name not in read]
    errors += ["a variable has two rows"] if len(rows) != len(table) else []
    print("\n".join(errors + [f"{len(read)} variables, {len(errors)} errors"]))
    return 1 if errors or not read else 0


sys.exit(main())
