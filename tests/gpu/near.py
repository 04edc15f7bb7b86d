#!/usr/bin/env python3
"""near.py A B TOLERANCE: do two digests agree in losses and gradient norms, within the relative TOLERANCE (for norms,
ten times that)?"""
import math
import sys


def steps(path):
    rows = []
    for line in open(path):
        words = line.split()
        if len(words) == 3 and words[0].isdigit():
            rows.append((float.fromhex(words[1]), float.fromhex(words[2])))
    return rows


a, b, tolerance = steps(sys.argv[1]), steps(sys.argv[2]), float(sys.argv[3])
n = min(len(a), len(b))
if n == 0:
    print("no steps in a digest")
    sys.exit(1)
worst = [0.0, 0.0]
for x, y in zip(a, b):
    for i in range(2):
        off = abs(x[i] - y[i]) / max(abs(x[i]), abs(y[i]),
                                     1e-30) if math.isfinite(x[i]) and math.isfinite(y[i]) else math.inf
        worst[i] = max(worst[i], off)
ok = worst[0] <= tolerance and worst[1] <= 10 * tolerance
print("%d steps, loss off by %.2g, norm by %.2g; first %.6f and %.6f" % (n, worst[0], worst[1], a[0][0], b[0][0]))
sys.exit(0 if ok else 1)
