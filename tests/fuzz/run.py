#!/usr/bin/env python3
"""Runs one libFuzzer target: run.py ROOT TARGET CORPUS SECONDS RUNS [--keep]

SECONDS = 0: RUNS runs over sorted inputs from each of seven seeds, which are the same every time; HEDDLE_TEST_PART=N
takes the Nth seed. Else it runs so long, at random.

It starts from the saved corpus, from every test and example of that kind, and from a dictionary of the words in the
tables. A finding is printed whole and saved as build/.../fuzz/<target>/crash-*; fix it and add it to the corpus. --keep
adds to the saved corpus what this run reached and the corpus does not.
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "run"))
import part

LONGEST = 4096
LONGEST_PLAN = 16384
LAYERS = {".hir": ("ir",), ".plan": ("ir",), ".hd": ("ir", "frontend")}  # whose tables hold words of the language


def find(root, folders, suffix):
    for folder in folders:
        for where, inner, files in os.walk(os.path.join(root, folder)):
            inner.sort()
            for name in sorted(files):
                if name.endswith(suffix) and "corpus" not in where:
                    yield os.path.join(where, name)


def seeds(root, suffix, folder):
    """Every part of every test that is small enough, without its RUN and CHECK lines."""
    for n, path in enumerate(find(root, ("tests", "examples"), suffix)):
        text = open(path, encoding="utf-8", errors="replace").read()
        for k, part in enumerate(re.split(r"^// -----\s*$", text, flags=re.M)):
            part = re.sub(r"^//.*\n", "", part, flags=re.M)
            for m, piece in enumerate([part] if len(part) <= LONGEST else re.split(r"(?<=\n}\n)", part)):
                if 0 < len(piece) <= LONGEST:
                    open(os.path.join(folder, f"seed-{n}-{k}-{m}"), "w", encoding="utf-8").write(piece)


def plans(root, tools, folder):
    """Plans of a model that is small enough, for both targets and some schedules."""
    model = "tests/lit/tools/Inputs/bigram.hd"
    for target in ("host", "cuda"):
        for n, more in enumerate(([], ["schedule.fsdp=zero3", "schedule.mesh.shard=2"], ["train.accumulate=2"])):
            out = os.path.join(folder, f"plan-{target}-{n}")
            sets = [word for s in more for word in ("--set", s)]
            command = [os.path.join(tools, "heddlec"), model, f"--target={target}", "--emit=plan", "-o", out]
            subprocess.run(command + sets, check=True, cwd=root)


def binaries(folder):
    """Headers and bodies of data files."""
    for magic, version, width in ((20240520, 1, 2), (20240801, 7, 4)):
        with open(os.path.join(folder, f"header-{width}"), "wb") as f:
            f.write(struct.pack("<3i", magic, version, 64) + bytes(1024 - 12) + bytes(range(64)) * width)
    for version, descr, width in ((1, "<u2", 2), (2, "<i8", 8)):
        header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (64,), }}\n".encode()
        size = struct.pack("<H" if version == 1 else "<I", len(header))
        with open(os.path.join(folder, f"array-{width}"), "wb") as f:
            f.write(b"\x93NUMPY" + bytes([version, 0]) + size + header + (bytes([5]) + bytes(width - 1)) * 64)
    for descr, shape, width in (("|u1", "(6, 2, 5)", 1), ("<f4", "(64,)", 4), ("<f2", "(7, 1, 9)", 2)):
        header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        with open(os.path.join(folder, f"rows-{width}"), "wb") as f:
            f.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(range(64)) * width)
    header = (b'{"label":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},'
              b'"image":{"dtype":"BF16","shape":[9,2,2],"data_offsets":[9,81]}}')
    with open(os.path.join(folder, "tensors"), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + bytes(range(81)))
    with open(os.path.join(folder, "index"), "wb") as f:  # of the 64 bytes that the target makes: three sequences
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ3i3q3q", 1, 8, 3, 3, 10, 12, 10, 0, 20, 44, 0, 2, 3))


def dictionary(root, suffix, path):
    words = set()
    if suffix == ".data":
        words = set("NUMPY descr shape <u2 <i4 <i8 |u1 <f4 <f2 |b1 MMIDIDX PAR1 dtype data_offsets BF16".split())
    if suffix == ".st":
        words = set("dtype shape data_offsets __metadata__ __checksum__ F32 F16 BF16 U8".split())
    if suffix == ".hub":
        words = set("rope_scaling. rope_parameters. rope_theta type rope_type default null true false".split())
    if suffix == ".frames":
        words = {"heddle."}
    if suffix == ".manifest":
        words = set("heddle_checkpoint model_hash folder shards step- seed $0 $1 moment1. bucket param ]+[ F32".split())
    for table in find(root, LAYERS.get(suffix, ()), ".def"):
        words |= set(re.findall(r'"([a-z@][a-z0-9_.]*)"', open(table, encoding="utf-8").read()))
    if suffix == ".hd":
        for grammar in find(root, ("frontend",), ".l"):
            words |= set(re.findall(r'"([^"\\\s]+)"', open(grammar, encoding="utf-8").read()))
    with open(path, "w", encoding="utf-8") as out:
        for w in sorted(words):
            out.write(f'"{w}"\n')


def fuzz(command):
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    log = run.stdout.decode(errors="replace")
    reached = re.findall(r"^#.* cov: .*$", log, flags=re.M)[-1:]  # edges, features and inputs that reach them
    figures = reached + re.findall(r"^stat::.*$", log, flags=re.M)
    print(log[-20000:] if run.returncode else "\n".join(figures))
    if run.returncode:
        print("failed; once more:", part.repeat())
    return run.returncode


def main():
    keep = "--keep" in sys.argv
    root, target, corpus, seconds, runs = [a for a in sys.argv[1:] if a != "--keep"]
    suffix = "." + os.path.basename(corpus)
    work = os.path.abspath(os.path.join(os.path.dirname(target), "..", "fuzz", os.path.basename(target)))
    os.makedirs(work, exist_ok=True)
    words = os.path.join(work, "words.dict")
    dictionary(root, suffix, words)
    with tempfile.TemporaryDirectory(dir=work) as inputs:
        if suffix == ".plan":
            plans(root, os.path.dirname(target), inputs)
        elif suffix == ".data":
            binaries(inputs)
        else:
            seeds(root, suffix, inputs)
        shutil.copytree(corpus, inputs, dirs_exist_ok=True)
        how = [[f"-max_total_time={seconds}", "-timeout=60", inputs]]
        if seconds == "0":
            listed = os.path.join(work, "inputs.list")
            with open(listed, "w") as f:
                f.write(",".join(os.path.join(inputs, name) for name in sorted(os.listdir(inputs))))
            how = [[f"-seed={seed}", f"-runs={runs}", "-timeout=300", f"-seed_inputs=@{listed}"] # slow is no finding
                   for seed in part.of(range(1, part.PARTS + 1))]
        options = [*([f"-dict={words}"] if os.path.getsize(words) else []), "-rss_limit_mb=2560",
                   f"-max_len={LONGEST_PLAN if suffix == '.plan' else LONGEST}", f"-verbosity={int(seconds != '0')}",
                   "-print_final_stats=1", f"-artifact_prefix={work}/"]
        status = int(any([fuzz([target, *options, *more]) for more in how]))
        if keep and not status:
            subprocess.run([target, "-merge=1", f"-max_len={LONGEST}", corpus, inputs], check=True, capture_output=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
