#!/usr/bin/env python3
"""--choices=FILE of a compiled program: algorithms of matrix products go from one run to another, and a program that
resumes under others says so. On pretended NVIDIA libraries: kernels do nothing.

usage: choices.py ROOT HEDDLEC FAKES
"""
import json
import os
import subprocess
import sys
import tempfile

SMALL = ("layers=1", "dim=32", "heads=2", "seq=16", "train.batch=1")


def main():
    root, heddlec, fakes = (os.path.abspath(a) for a in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        def call(*command, **env):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                                  env=dict(os.environ, HEDDLE_CUDA_PATH=fakes, **env))
            return done.returncode, done.stdout + done.stderr

        def train(*options, cache, **env):
            status, said = call("./program", "--data=data.txt", *options, HEDDLE_CACHE=cache, **env)
            assert status == 0, said
            return said

        def header(log):
            with open(os.path.join(folder, log)) as f:
                return json.loads(f.readline())["choices"]

        with open(os.path.join(folder, "data.txt"), "wb") as f:
            f.write(b"x" * 4096)
        status, said = call(heddlec, os.path.join(root, "examples/tiny/tiny.hd"), "--target=cuda", "-o", "program",
                            *[a for size in SMALL for a in ("--set", size)])
        assert status == 0, said
        first = train("--steps=1", "--save=run", "--choices=mine", "--log=first.jsonl", cache=f"{folder}/cache")
        mine = header("first.jsonl")
        assert f"algorithms of libraries: choices {mine}, written to mine" in first, first
        # another machine of the kind: no cache, and the first choice of the heuristic instead of the fastest
        other = dict(cache="off", HEDDLE_TUNE="0")
        said = train("--steps=2", "--resume=run", "--log=other.jsonl", **other)
        note = f"under other algorithms of libraries (choices {mine}, here {header('other.jsonl')})"
        assert note in said and header("other.jsonl") != mine, said
        said = train("--steps=2", "--resume=run", "--choices=mine", "--log=same.jsonl", **other)
        assert f"choices {mine}, read from mine" in said and "under other algorithms" not in said, said
        assert header("same.jsonl") == mine
        status, said = call("./program", "--data=data.txt", "--steps=1", "--choices=data.txt", HEDDLE_CACHE="off")
        assert status == 1 and "the file is no list of algorithms" in said, said


if __name__ == "__main__":
    main()
