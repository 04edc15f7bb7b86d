#!/usr/bin/env python3
"""Data files of compiled programs: formats, several files as one, what is refused, files that change meanwhile.
Usage: data.py ROOT HEDDLEC [CASE...]. Cases as in cases.py.
"""
import os
import re
import resource
import struct
import subprocess
import sys
import time

import compiled
from cases import check
from compiled import SEQ, bad, digest_of, good, read, text_file, words_of, write


def header(count, version=1, magic=20240520):
    return struct.pack("<3i", magic, version, count) + bytes(1024 - 12)


def wide_words_of(tokens):
    return struct.pack(f"<{len(tokens)}I", *tokens)


def wide_header(count):
    return header(count, version=7, magic=20240801)


def case_data_formats():
    tokens = [(i * 7 + i // 11) % 251 for i in range(3000)]
    write("a.txt", bytes(tokens))
    write("a.bin", words_of(tokens))
    write("b.bin", header(len(tokens)) + words_of(tokens))
    write("c.bin", header(len(tokens)) + words_of(tokens + [255] * 500))  # more than the header tells of
    write("d.bin", wide_header(len(tokens)) + wide_words_of(tokens))
    write("e.bin", wide_words_of(tokens))
    write("f", bytes(tokens))
    write("g", header(len(tokens)) + words_of(tokens))  # the header says it all
    found = []
    for name, *more in (("a.txt",), ("a.bin",), ("b.bin",), ("c.bin",), ("d.bin",), ("e.bin", "--format=u32"),
                        ("f", "--format=bytes"), ("a.bin", "--format=u16"), ("d.bin", "--format=u32"), ("g",)):
        good(f"--data={name}", "--steps=3", "--digest=digest", f"--val={name}", *more)
        found.append(read("digest"))
    check(len(set(found)) == 1, "the same tokens in another form train differently")
    bad(2, "--format=u64", "bytes, u16 and u32", args=["--data=a.bin", "--format=u64", "--steps=1"])


def case_many_files():
    """A file and its parts, however they are named, are the same data: to train on, to validate on, to resume."""
    tokens = [(i * 7 + i // 11) % 251 for i in range(3000)]
    write("whole.bin", words_of(tokens))
    cuts = [0, 5, 700, 701, 1024, 2000, 2999, 3000]
    for folder in ("parts", "wide"):
        os.mkdir(folder)
        for i, (a, b) in enumerate(zip(cuts, cuts[1:])):
            body = words_of(tokens[a:b]) if folder == "parts" else wide_words_of(tokens[a:b])
            write(f"{folder}/{i}.bin", (header(b - a) if i % 2 else b"") + body if folder == "parts" else
                  wide_header(b - a) + body)
    write("parts/.hidden", b"?")
    names = [f"{i}.bin" for i in range(len(cuts) - 1)]
    write("parts.list", "# all of them\n\n" + "\n".join(f"parts/{n}" for n in reversed(names)) + "\n")
    ways = [["whole.bin"], ["parts"], ["wide"], ["parts/*.bin"], ["parts/[0-2].bin", "parts/[3-9].bin"],
            ["@parts.list"], [f"parts/{n}" for n in names[::-1]]]
    found = []
    for way in ways:
        data, val = [f"--data={name}" for name in way], [f"--val={name}" for name in way]
        good(*data, "--steps=3", "--digest=half", "--save=c")
        r = good(*data, *val, "--steps=9", "--digest=digest", "--val-batches=1000", "--resume=c")
        check("other data" not in r.err, "the same data in other files is taken for other data:", r)
        val_loss = re.search(r"val.*?([0-9.]+)", r.out + r.err)
        check(val_loss, "there is no validation loss:", r)
        found.append((read("half"), read("digest"), val_loss.group(1)))
    check(len(set(found)) == 1, "a file and its parts train differently:", found)
    tokens[1500] = 300
    write("parts/4.bin", words_of(tokens[1024:2000]))
    bad(1, "parts/4.bin", "300", f" {1500 - 1024} ", "step", args=["--data=parts", "--steps=300"])


def case_names_of_data():
    def refused(*words, names):
        bad(1, *words, args=[f"--data={n}" for n in names] + ["--steps=1"])
        bad(1, *words, args=["--data=" + text_file()] + [f"--val={n}" for n in names] + ["--steps=1"])

    write("a.bin", words_of([1] * 900))
    write("b.txt", bytes(900))
    os.mkdir("mixed")
    write("mixed/a.bin", words_of([1] * 900))
    write("mixed/notes.md", "notes")
    os.mkdir("empty")
    refused("nothing*.bin", "no file matches", names=["nothing*.bin"])
    refused("empty", "no data file", names=["empty"])
    refused("mixed/notes.md", "--format", names=["mixed"])
    refused("a.bin", "twice", names=["a.bin", "*.bin"])
    refused("a.bin", "tokens", "b.txt", "bytes", names=["a.bin", "b.txt"])
    refused("none.list", "No such file", names=["@none.list"])
    refused("empty.list", "names no file", names=["@" + write("empty.list", "# none\n")])
    refused("gone.bin", "No such file", names=["@" + write("gone.list", "gone.bin\n")])
    refused("missing.bin", "No such file", names=["a.bin", "missing.bin"])
    refused("none.bin", "no tokens", names=["a.bin", write("none.bin", header(0))])
    good("--data=mixed/*.bin", "--steps=1")
    write("odd[1].bin", words_of([1] * 900))  # a name that is no pattern, since there is such a file
    good("--data=odd[1].bin", "--steps=1")
    bad(1, "--data", "--digest", "mixed/a.bin", args=["--data=mixed/*.bin", "--steps=1", "--digest=mixed/a.bin"])


def case_many_large_files():
    """Files are opened by size and header: 300 of 64 MiB, which take no room on the disk, are more than could be read
    here, and more than a process may hold open."""
    os.mkdir("shards")
    count = (64 << 20) // 4
    for i in range(300):
        with open(f"shards/{i:04}.bin", "wb") as f:
            f.write(wide_header(count))
            f.truncate(1024 + 4 * count)

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    command = [compiled.programs.get(), "--data=shards", "--steps=20", "--digest=digest"]
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=few_files, timeout=100)
    check(r.returncode == 0, "300 files of 64 MiB:", r.stderr.decode())
    check(len(digest_of("digest")[0]) == 20, "not every step is there")


def case_data_shrinks():
    """A file that becomes shorter while it is in use is an error that names it and the step; the state is saved."""
    write("shrinks.txt", bytes(3000))
    args = [compiled.programs.get(), "--data=shrinks.txt", "--steps=100000000", "--log=log.jsonl", "--save=kept"]
    p = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while p.poll() is None and not (os.path.exists("log.jsonl") and b"\n" in read("log.jsonl")):
            time.sleep(0.02)
        os.truncate("shrinks.txt", 10)
        err = p.communicate(timeout=100)[1].decode()
    finally:
        p.kill()
        p.wait()
    check(p.returncode == 1 and re.search(r"error: step \d+: shrinks.txt became shorter.* 3000 .* 10$", err.strip()),
          "a file that shrinks:", p.returncode, err)
    check(os.path.exists("kept/checkpoint.safetensors"), "the state before the failure is not saved")


def case_bad_data():
    def refused(name, *words):
        bad(1, name, *words, args=[f"--data={name}", "--steps=1"])
        bad(1, name, *words, args=[f"--data={text_file()}", f"--val={name}", "--steps=1"])

    refused(write("odd.bin", bytes(999)), "999")
    refused(write("empty.txt", b""), " 0 ", str(SEQ + 1))
    refused(write("empty.bin", b""), " 0 ", str(SEQ + 1))
    refused(write("short.txt", bytes(SEQ)), f" {SEQ} ", str(SEQ + 1))
    refused("missing.txt", "No such file")
    os.mkdir("folder.bin")
    refused("folder.bin", "no data file")
    os.mkdir("folder.bin/inner.bin")
    refused("folder.bin", "folder.bin/inner.bin", "not a plain file")
    for name in ("words.json", "text", "bin", "tokens.npy"):
        refused(write(name, bytes(900)), "neither in .txt nor in .bin", "--format")
    for begin, what in ((b"PK\3\4", "zip"), (b"\x1f\x8b\x08", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"),
                        (b"\x93NUMPY", "numpy"), (b"PAR1", "parquet")):
        refused(write("other.bin", begin + bytes(900)), what)
    os.mkfifo("pipe.txt")
    refused("pipe.txt", "not a plain file")
    refused(write("cut.bin", header(1000) + words_of([1] * 900)), "1000", "900")
    refused(write("negative.bin", header(-1) + words_of([1] * 900)), "4294967295", "900")
    refused(write("none.bin", header(0) + words_of([1] * 900)), " 0 ", str(SEQ + 1))
    refused(write("version.bin", header(900, version=7) + words_of([1] * 900)), "version 7")
    refused(write("wide.bin", header(900, version=1, magic=20240801) + wide_words_of([1] * 900)), "version 1", "u32")
    refused(write("cut_wide.bin", wide_header(900) + wide_words_of([1] * 899)), "900", "899")
    bad(1, "head.bin", "u16", args=["--data=" + write("head.bin", header(900) + words_of([1] * 900)), "--steps=1",
                                    "--format=u32"])
    bad(1, "odd32.bin", "902", "u32", args=["--data=" + write("odd32.bin", bytes(902)), "--steps=1", "--format=u32"])
    refused(write("header.bin", header(0)[:1023]), "1023")
    write("least.txt", bytes(SEQ + 1))
    good("--data=least.txt", "--steps=3")


def case_token_outside():
    for name, data in (("a.bin", b""), ("b.bin", header(1000))):
        tokens = [5] * 1000
        tokens[777] = 300
        write(name, data + words_of(tokens))
        bad(1, name, "300", "777", "256", args=[f"--data={name}", "--steps=100"])
        bad(1, name, "300", "777", args=[f"--data={text_file()}", f"--val={name}", "--steps=1", "--val-batches=100"])
    write("large.bin", wide_words_of([5] * 777 + [3000000000] + [5] * 222))
    bad(1, "large.bin", "token 3000000000 at position 777", args=["--data=large.bin", "--steps=100", "--format=u32"])
    learnt = 0
    for seed in range(4):  # one of them does not begin with the bad token
        r = bad(1, "777", args=["--data=a.bin", "--steps=100", "--save=kept", "--digest=digest", f"--seed={seed}"])
        steps, _ = digest_of("digest")
        learnt = max(learnt, len(steps))
        check(not steps or f"step {len(steps)}  saved" in r.err, "what was learnt before the bad token is not saved:",
              r)
    check(learnt, "every run begins with the bad token")


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
