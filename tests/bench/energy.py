#!/usr/bin/env python3
"""The energy of a step: energy.py PROGRAM OPTION... runs a program with --log-every=10 and reads the card's counter.

Prints milliseconds, joules and watts of the steps between a quarter of --steps, by which the card is warm, and the last
one. Needs the package nvidia-ml-py; the program is to use the first GPU alone. 200 steps or more.
"""
import subprocess
import sys
import time


def main():
    import pynvml
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    seen = []
    run = subprocess.Popen(["stdbuf", "-oL", *sys.argv[1:], "--log-every=10"], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
    for line in run.stdout:
        if line.startswith("step "):
            step, last = (int(x) for x in line.split()[1].split("/"))
            if step >= last / 4:
                seen.append((step, time.time(), pynvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1e3))
    if run.wait() or len(seen) < 2:
        return 1
    (first, begin, before), (last, end, after) = seen[0], seen[-1]
    steps = last - first
    print(f"{1e3 * (end - begin) / steps:.2f} ms, {(after - before) / steps:.2f} J a step, "
          f"{(after - before) / (end - begin):.0f} W")
    return 0


sys.exit(main())
