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


def array_file(name, array, shape=None, descr=None, version=1):
    """A .npy file of (struct letter, values), written as numpy does."""
    letter, values = array
    descr = descr or {"B": "|u1", "H": "<u2", "h": "<i2", "I": "<u4", "i": "<i4", "q": "<i8"}[letter]
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape or f'({len(values)},)'}, }}"
    header = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    body = struct.pack(f"<{len(values)}{letter}", *values)
    return write(name, b"\x93NUMPY" + bytes([version, 0]) + size + header + body)


def index_of(code, width, lengths, version=1, firsts=None, places=None):
    """The index of a Megatron data set whose sequences have these lengths, two to a document."""
    n = len(lengths)
    places = places or [width * sum(lengths[:i]) for i in range(n)]
    firsts = firsts or [*range(0, n, 2), n]
    return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, code, n, len(firsts)) + struct.pack(f"<{n}i", *lengths)
            + struct.pack(f"<{n}q", *places) + struct.pack(f"<{len(firsts)}q", *firsts))


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
    for letter in "BHhIiq":
        array_file(f"{letter}.npy", (letter, tokens), version=1 + (letter in "Iq"))
    for code, letter in ((1, "B"), (3, "h"), (4, "i"), (5, "q"), (8, "H")):
        body = struct.pack(f"<{len(tokens)}{letter}", *tokens)
        write(f"m{code}.bin", body)
        write(f"m{code}.idx", index_of(code, len(body) // len(tokens), [1000, 500, 1500]))
    write("long.bin", struct.pack(f"<{len(tokens)}q", *tokens))
    found = []
    for name, *more in (("a.txt",), ("a.bin",), ("b.bin",), ("c.bin",), ("d.bin",), ("e.bin", "--format=u32"),
                        ("f", "--format=bytes"), ("a.bin", "--format=u16"), ("d.bin", "--format=u32"), ("g",),
                        ("e.bin", "--format=i32"),
                        ("long.bin", "--format=i64"), *((f"{x}.npy",) for x in "BHhIiq"),
                        ("H.npy", "--format=u16"),
                        *((f"m{x}.bin",) for x in (1, 3, 4, 5, 8))):
        r = good(f"--data={name}", "--steps=3", "--digest=digest", f"--val={name}", *more)
        check(("2 documents by the index" in r.err) == name.startswith("m"), "documents of the index:", r)
        found.append(read("digest"))
    check(len(set(found)) == 1, "the same tokens in another form train differently")
    bad(2, "--format=u64", "bytes, u8, i16, u16, i32, u32, i64, f16, bf16 and f32",
        args=["--data=a.bin", "--format=u64", "--steps=1"])


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
        good(*data, "--steps=3", "--digest=half", "--save=c", "--overwrite")
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
    refused("a.bin,mixed/a.bin", "No such file", "comma", "once for each file", names=["a.bin,mixed/a.bin"])
    for name, way in (("https://x.org/a.bin", "download it first"), ("~/a.bin", "$HOME"), ("-", "standard input"),
                      ('"a.bin"', "the quotes are a part of the name")):
        refused(f"cannot read {name}: No such file", way, names=[name])
    os.symlink("nowhere", "link.bin")
    refused("link.bin", "a link to a file that is not there", names=["link.bin"])
    bad(2, "b.txt: each file has an option of its own, as --data=FILE --data=FILE",
        args=["--data", "a.bin", "b.txt", "--steps=1"])
    refused("mixed/no: No such file", "is mixed/notes.md meant?", names=["mixed/no"])
    write("shard_1.bin", words_of([1] * 900))
    write("shard_2.bin", words_of([1] * 900))
    refused("shard_: No such file", "'shard_*', in quotes", "2 files", names=["shard_"])
    os.mkdir("both")
    for name in ("both/web_train_0.bin", "both/web_train_1.bin", "both/web_val_0.bin", "both/latest.bin"):
        write(name, words_of([1] * 900))
    way = "--data='both/*train*' --val='both/*val*'"
    refused("both holds data for training and for validation", "web_val_0.bin", way, names=["both"])
    refused("both/*.bin holds", "web_train_", way, names=["both/*.bin"])
    good("--data=both/*train*", "--val=both/*val*", "--steps=1")
    good("--data=both/*train*", "--data=both/*val*", "--steps=1")  # who says so may
    os.mkdir("meg")
    write("meg/part.bin", words_of([1] * 900))
    write("meg/part.idx", index_of(8, 2, [900]))
    good("--data=meg", "--steps=1")
    good("--data=meg/p*", "--steps=1")
    refused("meg/part: No such file", "is meg/part.bin meant?", names=["meg/part"])
    refused("meg/part.idx is the index of a Megatron data set", "name the .bin file", names=["meg/part.idx"])
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
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=few_files, timeout=600)
    check(r.returncode == 0, "300 files of 64 MiB:", r.stderr.decode())
    check(len(digest_of("digest")[0]) == 20, "not every step is there")


def case_data_shrinks():
    """A file that becomes shorter while it is in use is an error that names it and the step; the state is saved."""
    write("shrinks.txt", bytes(3000))
    args = [compiled.programs.get(), "--data=shrinks.txt", "--steps=100000000", "--log=log.jsonl", "--save=kept"]
    p = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while p.poll() is None and not (os.path.exists("log.jsonl") and read("log.jsonl").count(b"\n") > 1):
            time.sleep(0.02)
        os.truncate("shrinks.txt", 10)
        err = p.communicate(timeout=600)[1].decode()
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
        refused(write(name, bytes(900)), "neither in .txt nor in .bin", "--format=bytes, u16, u32, i32 or i64")
    refused(write("notes.md", b"Some text of several words.\n" * 40), "neither in", "--format=bytes trains on its text")
    refused(write("rows.csv", b"text,label\nsome words,1\n" * 40), "--field=COLUMN", "column of the table")
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
    text_file("words.txt")
    bad(1, "words.txt holds bytes", "head.bin tokens", args=["--data=words.txt", "--val=head.bin", "--steps=1"])
    bad(1, "words.txt holds bytes", "head.bin tokens", args=["--data=head.bin", "--val=words.txt", "--steps=1"])
    write("least.txt", bytes(SEQ + 1))
    good("--data=least.txt", "--steps=3")


def case_other_formats():
    """Files of other formats are called by their names, with the way to convert them, whatever they are called."""
    ways = ((b"PK\3\4", "a zip archive", "np.save"), (b"\x1f\x8b\x08", "gzip", "gunzip"),
            (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"), (b"\xfd7zXZ\0", "xz", "unxz"), (b"BZh", "bzip2", "bunzip2"),
            (b"PAR1", "parquet", "heddle-data"), (b"ARROW1\0\0", "Arrow", "read_table"),
            (b"\x89HDF\r\n\x1a\n", "HDF5", "h5py"), (b"\x80\4\x95", "pickle", "load it in Python"),
            (b"SQLite format 3\0", "SQLite", ".txt"),
            (b"%PDF-", "PDF", "pdftotext"), (b"\x89PNG\r\n\x1a\n", "PNG", "picture"),
            (b"\xff\xd8\xff", "JPEG", "picture"), (b"GIF8", "GIF", "picture"), (b"II*\0", "TIFF", "picture"),
            (b"RIFF\1\2\3\4WEBP", "WebP", "picture"), (b"RIFF\1\2\3\4WAVE", "WAVE", "sound"),
            (b"fLaC", "FLAC", "sound"), (b"OggS", "Ogg", "sound"), (b"GGUF", "GGUF", "llama.cpp"),
            (b"x" * 257 + b"ustar", "tar", "tar -xf"), (b"\x7fELF", "a program", "--format=bytes"),
            *((struct.pack("<I", magic), name, "files of tokens") for magic, name in (
                (20240326, "a model of llm.c"), (20240328, "a tokenizer of llm.c"), (20240522, "HellaSwag"),
                (20240527, "a training state of llm.c"))),
            (b"TNTIDX\0\0", "old Megatron", "today's Megatron"), (b"MMIDIDX\0\0", "Megatron", "the .bin file"))
    for begin, name, way in ways:
        for path in ("other.bin", "other.txt", "other.dat"):
            r = bad(1, path, name, way, args=["--data=" + write(path, begin + bytes(900)), "--steps=1"])
            check("u16;" not in r.err and "--format=u16" not in r.err, "such a file is to be read as tokens:", r)
        if b"IDX" not in begin:
            good("--data=other.txt", "--steps=1", "--format=bytes")  # who says so may
    for data, words in (("\ufeffdeux mots".encode("utf-16-le"), ("is text in UTF-16", "iconv -f UTF-16 -t UTF-8")),
                        ("\ufeffdeux mots".encode("utf-16-be"), ("is text in UTF-16", "iconv -f UTF-16 -t UTF-8")),
                        ("deux mots".encode("utf-16-le"), ("looks like text in UTF-16", "iconv -f UTF-16LE -t UTF-8")),
                        ("deux mots".encode("utf-16-be"), ("looks like text in UTF-16", "iconv -f UTF-16BE -t UTF-8"))):
        bad(1, "wide.txt", *words, args=["--data=" + write("wide.txt", data * 90), "--steps=1"])
        good("--data=wide.txt", "--steps=1", "--format=bytes")
    good("--data=" + write("mark.bin", words_of([0xfeff] + [1] * 900)), "--steps=0", "--export=mark.safetensors")
    lines = b'{"text": "a line of words"}\n' * 90
    for path in ("lines.bin", "lines.jsonl", "lines.json"):
        r = bad(1, path, "JSON", "heddle-data", args=["--data=" + write(path, lines), "--steps=1"])
        check("--format=u16" not in r.err, "JSON is to be read as tokens:", r)
    good("--data=" + write("lines.txt", lines), "--steps=1")
    r = bad(1, "text.bin is text", "--format=bytes", args=["--data=" + write("text.bin", b"Some words.\n" * 90),
                                                           "--steps=1"])
    check("u16" not in r.err, "text is to be read as tokens:", r)


def case_raw_numbers():
    """Raw numbers that are wider than u16 are not read as u16 without a word; those that are not, are."""
    tokens = [(i * 7 + i // 11) % 251 for i in range(3000)]
    large = [t if i % 7 else 70000 + t for i, t in enumerate(tokens)]  # of a vocabulary beyond 65536
    for path, letter, values, name in (("w.bin", "<I", tokens, "u32"), ("large.bin", "<I", large, "u32"),
                                       ("l.bin", "<q", tokens, "i64"), ("padded.bin", "<I", [0] * 600 + tokens, "u32"),
                                       ("b.bin", ">I", tokens, "big-endian"), ("bl.bin", ">q", tokens, "big-endian"),
                                       ("f.bin", "<f", tokens, "f32")):
        write(path, struct.pack(f"{letter[0]}{len(values)}{letter[1]}", *values))
        bad(1, path, f"looks like {name}", "--format=" + (name if name in ("u32", "i64") else "u32"), "--format=u16",
            args=[f"--data={path}", "--steps=1"])
        bad(1, path, f"looks like {name}", args=["--data=" + text_file(), f"--val={path}", "--steps=1"])
    good("--data=w.bin", "--steps=1", "--format=u16")  # who says so may
    for values in ([0] * 900, [1] * 900, [t % 2 for t in tokens], [0] * 890 + tokens[:10],
                   [t if i % 3 else 0 for i, t in enumerate(tokens)]):
        good("--data=" + write("u16.bin", words_of(values)), "--steps=1")


def case_bad_arrays():
    def refused(path, *words):
        bad(1, path, *words, args=[f"--data={path}", "--steps=1"])

    tokens = [5] * 900
    refused(array_file("float.npy", ("f", tokens), descr="<f4"), "holds f32", "tokens is i32", "astype(np.uint32)")
    refused(array_file("big.npy", ("H", tokens), descr=">u2"), "'>u2'", "little-endian")
    refused(array_file("flat.npy", ("H", tokens), shape="(30, 30)"), "(30, 30)", "reshape(-1)")
    refused(array_file("none.npy", ("H", tokens), shape="()"), "()", "reshape(-1)")
    refused(array_file("less.npy", ("H", tokens), shape="(-3,)"), "(-3,)")
    refused(array_file("huge.npy", ("H", tokens), shape="(9999999999999999999,)"), "(9999999999999999999,)")
    refused(array_file("cut.npy", ("H", tokens), shape="(901,)"), "901", "900", "cut short")
    refused(write("head.npy", b"\x93NUMPY\1\0\xff\xff" + bytes(900)), "header")
    refused(write("keys.npy", b"\x93NUMPY\1\0\x40\0" + b"{}" + bytes(900)), "records")
    bad(1, "u16.npy", "u16", "--format=u32", args=["--data=" + array_file("u16.npy", ("H", tokens)), "--steps=1",
                                                   "--format=u32"])
    array_file("minus.npy", ("q", tokens[:300] + [-7] + tokens))
    bad(1, "minus.npy: token -7 at position 300", args=["--data=minus.npy", "--steps=100"])
    write("m.bin", words_of(tokens))
    for index, *words in ((index_of(8, 2, [900])[:30], "cut short"), (index_of(8, 2, [900])[:-1], "cut short"),
                          (index_of(8, 2, [900], version=2), "version 2"), (index_of(6, 8, [900]), "f64"),
                          (index_of(99, 8, [900]), "unknown type", "99"), (index_of(4, 4, [900]), "3600", "1800"),
                          (index_of(8, 2, []), "0 sequences"), (index_of(8, 2, [901]), "1802", "1800"),
                          (index_of(8, 2, [400, 500], places=[1000, 800]), "do not follow"),
                          (index_of(8, 2, [400, 500], firsts=[0, 1]), "do not follow"),
                          (index_of(8, 2, [300] * 3, places=[0, 700, 1200]), "do not follow")):
        write("m.idx", index)
        bad(1, "m.", *words, args=["--data=m.bin", "--steps=1"])
    write("m.idx", index_of(8, 2, [900]))
    bad(1, "m.bin", "index says u16", args=["--data=m.bin", "--steps=1", "--format=u32"])


def case_token_outside():
    for name, data in (("a.bin", b""), ("b.bin", header(1000))):
        tokens = [5] * 1000
        tokens[777] = 300
        write(name, data + words_of(tokens))
        bad(1, name, "300", "777", "256", args=[f"--data={name}", "--steps=100"])
        bad(1, name, "300", "777", args=["--data=" + write("good.bin", words_of([5] * 1000)), f"--val={name}",
                                         "--steps=1", "--val-batches=100"])
    write("bytes.bin", bytes(5 + i % 90 for i in range(2000)))
    bad(1, "is outside the vocabulary of 256; --format=u8 reads it as bytes", args=["--data=bytes.bin", "--steps=1"])
    good("--data=bytes.bin", "--format=u8", "--steps=1")  # as that says
    write("large.bin", wide_words_of([5] * 777 + [3000000000] + [5] * 222))
    bad(1, "large.bin", "token 3000000000 at position 777", args=["--data=large.bin", "--steps=100", "--format=u32"])
    learnt = 0
    for seed in range(4):  # one of them does not begin with the bad token
        r = bad(1, "777", args=["--data=a.bin", "--steps=100", "--save=kept", "--overwrite", "--digest=digest",
                               f"--seed={seed}"])
        steps, _ = digest_of("digest")
        learnt = max(learnt, len(steps))
        check(not steps or f"step {len(steps)}  saved" in r.err, "what was learnt before the bad token is not saved:",
              r)
    check(learnt, "every run begins with the bad token")


def case_tokens_that_index_nothing():
    """Tokens are bounded by the tables that they index, not by an argument's name."""
    write("f.hd", b"model F(vocab = 10) { param w: [6] = ones;"
                  b" fn loss(tokens: i32[batch, 6], targets: i32[batch, 6]) { return mean(w * w); } }")
    write("g.hd", b"model G(vocab = 10) { e = Embedding(400, 8); head = Linear(8, 400);"
                  b" fn loss(tokens: i32[batch, 6], targets: i32[batch, 6]) {"
                  b" return cross_entropy(head(e(tokens)), targets); } }")
    write("a.bin", wide_words_of([399, 7] * 40))
    write("b.bin", wide_words_of([2**31 - 1] * 80))
    for model, path, status, said in (("f", "a.bin", 0, ""), ("f", "b.bin", 0, ""), ("g", "a.bin", 0, ""),
                                      ("g", "b.bin", 1, "token 2147483647 at position")):
        if not os.path.exists(model):
            subprocess.run([compiled.programs.compiler, f"{model}.hd", "-o", model, "--set", "train.batch=2"],
                           check=True)
        r = subprocess.run([f"./{model}", f"--data={path}", "--format=u32", "--steps=2"], stderr=subprocess.PIPE)
        check(r.returncode == status and said in r.stderr.decode(), model, path, "it says:", r.stderr.decode())


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
