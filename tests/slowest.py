#!/usr/bin/env python3
"""Passes on what ctest prints, with the ten slowest tests before its summary. usage: ctest ... | slowest.py [LOG...]

LOG: what ctest printed in other steps, whose tests count too.
"""
import os
import re
import sys

ROW = re.compile(r"\s*\d+/\d+ Test +#\d+: (\S+) \.*.* ([\d.]+) sec\s*$")
SUMMARY = re.compile(r"\d+% tests passed, \d+ tests failed out of \d+")
SHOWN = 10


def seconds(line, where):
    """(seconds, name) of a line about a test that has ended."""
    row = ROW.match(line)
    return [(float(row[2]), f"{row[1]} ({where})" if where else row[1])] if row else []


def main():
    found = []
    for log in sys.argv[1:]:
        with open(log, encoding="utf-8", errors="replace") as f:
            for line in f:
                found += seconds(line, os.path.splitext(os.path.basename(log))[0])
    sys.stdin.reconfigure(errors="replace")
    for line in sys.stdin:
        found += seconds(line, "")
        if SUMMARY.match(line):
            print("The slowest tests, in seconds:")
            for time, name in sorted(found, reverse=True)[:SHOWN]:
                print(f"{time:8.1f}  {name}")
            print()
        sys.stdout.write(line)
        sys.stdout.flush()


main()
