#!/usr/bin/env python3
"""Programs for the host under limits of device memory, by the times of an H100: what is recomputed, what is offloaded
and whether ranks keep rounded copies follow from the limit. Each plan fits, none is predicted faster than one for more
memory, and those that are run have the bits of the plan without a limit.

Usage: fit.py ROOT HEDDLEC. With HEDDLE_TEST_PART=N one of the cases.
"""
import json
import os
import subprocess
import sys
import tempfile

import part

TWO = ["schedule.mesh.shard=2", "schedule.fsdp=zero3", "schedule.fsdp.unit=Block"]
SMALL = ["layers=3", "dim=64", "heads=2", "vocab=512", "seq=64", "train.batch=2"]
CASES = (  # model, ranks, settings, percent of the memory without a limit, those that are run, how many fit at least
    ("tiny", 1, [], range(100, 50, -6), (70,), 5),
    ("tiny", 2, [*TWO, "train.precision.compute=bf16"], range(100, 50, -6), (64,), 5),
    ("gpt2", 2, [*SMALL, *TWO, "train.accumulate=2"], (100, 97, 94), (), 2),
)


class Tried:
    def __init__(self, root, compiler, folder, case):
        self.root, self.folder = root, folder
        self.name, self.ranks, settings, self.parts, self.runs, self.least = case
        self.command = [compiler, os.path.join(root, f"examples/{self.name}/{self.name}.hd"), "--target=host",
                        f"--device-model={root}/devices/h100.dev", "--set", "schedule.recompute=auto"]
        self.command += [x for s in settings for x in ("--set", s)]

    def plan(self, *limit):
        """The report and what was said; no report: it does not fit."""
        done = subprocess.run([*self.command, "--emit=report", *limit], capture_output=True, text=True)
        assert done.returncode == 0 or "bytes of device memory and only" in done.stderr, done.stderr
        return json.loads(done.stdout) if done.returncode == 0 else None, done.stderr

    def digest(self, *limit):
        program, digest = os.path.join(self.folder, "program"), os.path.join(self.folder, "digest")
        subprocess.run([*self.command, "-o", program, *limit], check=True, stderr=subprocess.DEVNULL)
        subprocess.run([program, f"--data={os.path.join(self.root, 'LICENSE')}", "--format=bytes", "--steps=3",
                        f"--ranks={self.ranks}", f"--digest={digest}"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
        with open(digest) as f:
            return f.read()

    def descend(self):
        free, _ = self.plan()
        bits, before, fitted, offloaded = self.runs and self.digest(), 0, 0, 0
        for part in self.parts:
            limit = f"--device-memory={free['peak_bytes'] * part // 100}"
            report, said = self.plan(limit)
            if not report:
                continue
            seconds = report["predicted"]["step_seconds"]
            where = f"{self.name}, {self.ranks} ranks, {part} %"
            assert report["verified"] and report["peak_bytes"] <= free["peak_bytes"] * part // 100, where
            assert seconds >= before * (1 - 1e-9), f"{where}: {seconds} s, and {before} with more memory"
            assert part not in self.runs or self.digest(limit) == bits, f"{where}: other bits"
            before, fitted = seconds, fitted + 1
            offloaded += "values are offloaded" in said or "some are offloaded" in said
        print(f"{self.name}, {self.ranks} ranks: {fitted} plans fit, {offloaded} with values in host memory")
        assert fitted >= self.least, fitted
        return offloaded


def main():
    root, compiler = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    n = part.number()
    cases = CASES if n is None else [CASES[n % len(CASES)]]
    with tempfile.TemporaryDirectory() as folder:
        offloaded = sum(Tried(root, compiler, folder, case).descend() for case in cases)
    assert offloaded or n is not None, "no plan had values in host memory"


main()
