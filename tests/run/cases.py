"""Cases of a test: the functions case_* of its module. Each runs in an empty folder of its own, the current one, and
fails by an exception whose text says what was expected.
"""
import os
import subprocess
import time

STALL = 600  # seconds without any end, after which a process counts as hung: no machine is that slow
POLL = 0.01


class Failed(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Failed(" ".join(str(w) for w in what))


def wait_until(happened, *what, process=None):
    """Waits for an event that must come, or until the process has ended. The limit counts looks, some ten minutes of
    them on an idle machine and more on a busy one: only where nothing moves any more, this fails."""
    for _ in range(int(STALL / POLL)):
        ended = process is not None and process.poll() is not None
        if happened():
            return
        check(not ended, "the process ended before:", *what)
        time.sleep(POLL)
    raise Failed(" ".join(("nothing moves any more:", *(str(w) for w in what))))


def one_error(r, *words, status=1):
    """The run ended with this status and one line with an error, which holds every word."""
    check(r.status == status, f"expected exit {status}:", r)
    errors = [l for l in r.err.splitlines() if "error" in l]
    check(len(errors) == 1, "expected one line with an error:", r)
    for w in words:
        check(w in errors[0], f"the error does not say '{w}':", r)
    return r


def run_cases(functions, wanted, folder, before=lambda: None, failures=()):
    """Runs the cases with these names, or all but those named after a minus. before: what runs first in each folder;
    failures: more exceptions by which a case fails. Returns the exit status of the test."""
    cases = [(n[5:], f) for n, f in functions.items() if n.startswith("case_")]
    unknown = {w.lstrip("-") for w in wanted} - {name for name, _ in cases}
    left_out = [w[1:] for w in wanted if w.startswith("-")]
    wanted = [w for w in wanted if not w.startswith("-")] or [name for name, _ in cases if name not in left_out]
    cases = [(name, f) for name, f in cases if name in wanted and not unknown]
    if unknown:
        print("no such case:", *sorted(unknown))
    failed = []
    for name, case in cases:
        here = os.path.join(os.path.realpath(folder), name)
        os.mkdir(here)
        os.chdir(here)
        start = time.monotonic()
        try:
            before()
            case()
        except (Failed, AssertionError, OSError, ValueError, KeyError, subprocess.SubprocessError, *failures) as e:
            failed.append(name)
            print(f"{name}: {type(e).__name__}: {e}\n")
        if time.monotonic() - start > 20:
            print(f"{name} took {time.monotonic() - start:.0f} s")
    os.chdir("/")
    print(f"{len(cases)} cases, failed: {', '.join(failed) or 'none'}")
    return 1 if failed or not cases else 0
