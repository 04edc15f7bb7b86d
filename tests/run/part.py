"""What takes long by nature is cut into PARTS parts. HEDDLE_TEST_PART=N in the environment has one of them run (1 to
PARTS, or more: it is counted round), as test.sh does with the number of the day. Without it, or with `all`, all of them
run.
"""
import os
import shlex
import sys

PARTS = 7


def number():
    """The part, counted from 0; None: all."""
    text = os.environ.get("HEDDLE_TEST_PART", "all")
    return None if text == "all" else (int(text) - 1) % PARTS


def of(items):
    """Of a list whose order does not change: each PARTS-th, or all."""
    items, n = list(items), number()
    return items if n is None else items[n::PARTS]


def told():
    n = number()
    return "all parts" if n is None else f"part {n + 1} of {PARTS}"


def repeat():
    """The command that runs the same again."""
    n = number()
    return ("" if n is None else f"HEDDLE_TEST_PART={n + 1} ") + shlex.join(["python3", *sys.argv])
