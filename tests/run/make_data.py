#!/usr/bin/env python3
"""tools/heddle-data: text, JSON lines and parquet to shards, conversions, --check, and what is refused.
Usage: make_data.py ROOT HEDDLEC [CASE...]. Cases as in cases.py.

Of other people's packages, pyarrow and tokenizers are used where they are installed, which a line says. Elsewhere, and
for what the real one cannot show, stand_in/tokenizers.py has a token a word.
"""
import contextlib
import gzip
import importlib.util
import io
import json
import os
import pty
import random
import signal
import struct
import subprocess
import sys

import compiled
from cases import check, wait_until
from compiled import Result, digest_of, good, read, write

sys.path.remove(os.path.dirname(os.path.abspath(__file__)))  # `numbers` is Python's
WORDS = ["<pad>"] + [f"w{i}" for i in range(400)] + ["</s>"]
END = len(WORDS) - 1


def tool(*args, **more):
    here = os.path.join(compiled.programs.root, "tests/run/stand_in")
    env = dict(os.environ, PYTHONPATH=here, PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, os.path.join(compiled.programs.root, "tools/heddle-data"), *map(str, args)]
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                       env=dict(env, **more))
    return Result(command, r.returncode, r.stdout.decode(), r.stderr.decode())


def makes(*args, **more):
    r = tool(*args, **more)
    check(r.status == 0, "expected success:", r)
    return r


def tool_here(*args):
    """The tool in this process, which is quicker."""
    root, out, err, argv = compiled.programs.root, io.StringIO(), io.StringIO(), sys.argv
    out.reconfigure = lambda errors: None
    ways = [os.path.join(root, "tools"), os.path.join(root, "tests/run/stand_in")]
    before = sys.path[:], sys.modules.pop("tokenizers", None)
    try:
        sys.path[:0], sys.argv = ways, ["heddle-data", *args]
        from heddle_data.command import main
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main()
            except SystemExit as e:
                status = e.code
    finally:
        sys.path[:], sys.argv = before[0], argv
        sys.modules.pop("tokenizers", None)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return Result(["heddle-data", *args], status, out.getvalue(), err.getvalue())


def refuses(*words, args, status=1):
    r = (tool if "--jobs=2" in args else tool_here)(*args)
    errors = [line for line in r.err.splitlines() if line.startswith("heddle-data: error: ")]
    check(r.status == status and len(errors) == 1 and "Traceback" not in r.err, f"expected exit {status}:", r)
    for w in words:
        check(w in errors[0], f"the error does not say '{w}':", r)
    return r


def tokenizer():
    write("tokenizer.json", json.dumps({"words": WORDS}))
    return "--tokenizer=tokenizer.json"


def texts(n, longest=40):
    r = random.Random(3)
    return [" ".join(f"w{r.randrange(400)}" for _ in range(r.randint(1, longest))) for _ in range(n)]


def lines_file(name, values):
    return write(name, "".join(json.dumps({"n": i, "text": t}) + "\n" for i, t in enumerate(values)))


def ids_of(text):
    return [WORDS.index(w) for w in text.split()] + [END]


def numbers(path):
    """The tokens of an array that the tool wrote; an independent reader."""
    data = read(path)
    (length,) = struct.unpack_from("<H", data, 8)
    head = eval(data[10:10 + length])
    check(data[:8] == b"\x93NUMPY\1\0" and (10 + length) % 64 == 0 and not head["fortran_order"], path, head)
    letter = {"|u1": "B", "<u2": "H", "<u4": "I", "<i4": "i", "<i8": "q"}[head["descr"]]
    return list(struct.unpack(f"<{head['shape'][0]}{letter}", data[10 + length:]))


def same_folder(a, b):
    check(sorted(os.listdir(a)) == sorted(os.listdir(b)), a, os.listdir(a), b, os.listdir(b))
    for name in os.listdir(a):
        check(read(f"{a}/{name}") == read(f"{b}/{name}"), name, "differs in", a, "and", b)


def case_text_is_what_a_program_reads():
    """Bytes without ends are the text itself; every format of them gives the same run."""
    write("a.txt", "".join(texts(80)))
    makes("a.txt", "-o", "bytes", "--end=none")
    makes("bytes", "-o", "words", "--dtype=u16", "--to=bin")
    inputs = {"a.txt": (), "bytes": (), "words": ()}
    for to, dtype in (("npy", "i64"), ("llmc", "u16"), ("llmc", "u32"), ("megatron", "i32"), ("megatron", "u8")):
        makes("words", "--format=u16", "-o", f"{to}{dtype}", f"--to={to}", f"--dtype={dtype}")
        inputs[f"{to}{dtype}"] = ()
    said = makes("bytes", "-o", "wide", "--to=bin", "--dtype=i64").out
    check("./model --data='wide/train-*.bin' --format=i64" in said, "the way to read raw i64:", said)
    inputs["wide"] = ("--format=i64",)
    first = None
    for name, more in inputs.items():
        good(f"--data={name}", *more, "--steps=4", "--digest=digest")
        first = first or digest_of("digest")
        check(digest_of("digest") == first, "other bits from", name)
    for name in ("words", "wide", "llmcu16", "llmcu32", "megatroni32", "npyi64"):
        kind = [f"--format={'u16' if name == 'words' else 'i64'}"] if name in ("words", "wide") else []
        makes(name, *kind, "-o", f"{name}.back", "--dtype=u8")
        check(numbers(f"{name}.back/train-00000.npy") == list(read("a.txt")), "other tokens back from", name)


def case_documents():
    """Each ends with its token; shards end with documents, a share is for validation; processes change no byte."""
    t, values = tokenizer(), texts(300)
    lines_file("d.jsonl", values)
    r = makes("d.jsonl", "-o", "one", t, "--val=0.1", "--shard=1k", "--jobs=1")
    check("of 270 documents" in r.out and "of 30 documents" in r.out and f"token {END} '</s>'" in r.out, r)
    makes("d.jsonl", "-o", "three", t, "--val=0.1", "--shard=1000", "--jobs=3")
    same_folder("one", "three")
    check(not r.err, "something on stderr that is no terminal:", r)
    for series, wanted in (("val", values[::10]), ("train", [v for i, v in enumerate(values) if i % 10])):
        shards = [numbers(f"one/{n}") for n in sorted(os.listdir("one")) if n.startswith(series)]
        check(sum(shards, []) == [i for v in wanted for i in ids_of(v)], "other tokens in", series)
        check(all(s[-1] == END for s in shards) and all(len(s) >= 1000 for s in shards[:-1]), "shards:", series)
    write("d.txt", "\n--\n".join(values) + "\n--\n")
    with gzip.open("d.jsonl.gz", "wb") as f:
        f.write(read("d.jsonl"))
    os.mkdir("parts")
    for i in range(3):
        lines_file(f"parts/{i}.jsonl", values[100 * i:100 * i + 100])
    for name, more in (("d.txt", ["--split=\\n--\\n"]), ("d.jsonl.gz", []), ("parts", [])):
        makes(name, "-o", f"{name}.out", t, "--val=0.1", "--shard=1k", *more)
        same_folder("one", f"{name}.out")
    makes("d.jsonl", "-o", "begun", t, "--begin=<pad>", "--end=7", "--to=megatron")
    makes("begun", "-o", "flat", "--val=0.1")
    check(numbers("flat/val-00000.npy") == [i for v in values[::10] for i in [0] + ids_of(v)[:-1] + [7]], "--begin")


def case_large_texts_are_cut():
    """Batches are cut at the ends of documents, and of bytes anywhere."""
    values = [v * 20 for v in texts(1500)]
    lines_file("d.jsonl", values)
    write("d.txt", "\n\n".join(values))
    check(os.path.getsize("d.txt") > 2 << 20, "the text is too short for several batches")
    makes("d.jsonl", "-o", "one", "--jobs=2")
    makes("d.txt", "-o", "two", "--split=\\n\\n", "--jobs=1")
    same_folder("one", "two")
    makes("d.txt", "-o", "three", "--jobs=2")
    check(numbers("three/train-00000.npy") == list(read("d.txt")) + [0], "a long text as one document")
    write("bad.jsonl", read("d.jsonl") + b'{"text": 5}\n')
    refuses("bad.jsonl, line 1501", "field 'text' is int", args=["bad.jsonl", "-o", "four", "--jobs=2"])
    check(not os.path.exists("four"), "what is not finished stays")


def case_check():
    t = tokenizer()
    lines_file("d.jsonl", ["w5 w6", "w7", " "])
    r = makes("d.jsonl", "-o", "made", t, "--check")
    check("tokens 0 to 4: 6 7 401 8 401\ntext: w5 w6 </s> w7 </s>\n" in r.out, r)
    check("note: left out 1 document without text" in r.err, r)
    r = makes("--check", "made", "--seq=2", t)
    check(r.out == "made/train-00000.npy: 5 tokens (u16, npy)\ntokens 0 to 1: 6 7\ntext: w5 w6\n", r)
    check("--tokenizer=FILE shows their text" in makes("--check", "made").out, "ids alone")
    makes("made", "-o", "meg", "--to=megatron", "--end=401")
    check("meg/train-00000.bin: 5 tokens (u16, megatron), 2 documents\n" in makes("--check", "meg").out, "documents")
    write("gaps.bin", struct.pack("<3H", 5, 6, 7))  # documents without tokens, at either end and between
    write("gaps.idx", b"MMIDIDX\0\0" + struct.pack("<QBQQ5i5q6q", 1, 8, 5, 6, 0, 2, 0, 1, 0, 0, 0, 4, 4, 6, *range(6)))
    makes("gaps.bin", "-o", "gaps", "--to=megatron")
    check(read("gaps/train-00000.bin") == read("gaps.bin") and read("gaps/train-00000.idx") == read("gaps.idx"), "gaps")
    write("bell.txt", "a\x07\x1b[2Jb")
    r = makes("bell.txt", "-o", "bell", "--check")
    check(r"text: a\x07\x1b[2Jb\x00" in r.out, "a text commands the terminal:", r)
    write("nul.txt", "a\0b")
    check("the token 0, which ends documents, is within the text of 1 document" in makes("nul.txt", "-o", "nul").err,
          "an end within a text")
    for name, data, words in (("w.txt", "\ufeffdeux".encode("utf-16-le"), "text in UTF-16: iconv -f UTF-16 -t UTF-8"),
                              ("be.txt", ("deux mots" * 9).encode("utf-16-be"), "iconv -f UTF-16BE -t UTF-8"),
                              ("a.pt", b"PK\3\4", "a zip archive"), ("a.tar", b"x" * 257 + b"ustar", "tar -xf"),
                              ("a.st", bytes(8) + b'{"', "a safetensors file"), ("a.out", b"\x7fELF", "a program"),
                              ("z.dat", bytes(200), "no text: 200 of its first 200 bytes are 0")):
        write(name, data)
        refuses(f"{name} is ", words, args=[name, "-o", "never"])
    refuses("cannot read https://x.org/a.txt", "download it first", args=["https://x.org/a.txt", "-o", "never"])
    refuses("--tokenizer=gpt2: there is no gpt2", "hf download NAME", args=["w.txt", "-o", "never", "--tokenizer=gpt2"])
    refuses("--val: 2: a share between 0 and 1 is expected", args=["nul.txt", "-o", "never", "--val=2"], status=2)
    write("high.npy", read("made/train-00000.npy")[:-2] + b"\xff\xff")
    refuses("token 65535 at position 4", "vocabulary of 402", "another tokenizer", args=["--check", "high.npy", t])


def case_overwrite_and_signals():
    t = tokenizer()
    lines_file("d.jsonl", texts(50))
    lines_file("e.jsonl", texts(9))
    makes("d.jsonl", "-o", "out", t, "--shard=300")
    old = sorted(os.listdir("out"))
    check(len(old) > 2, "few shards:", old)
    refuses("out holds train-00000.npy", "--overwrite", args=["e.jsonl", "-o", "out", t])
    refuses("would be replaced", args=["out", "-o", "out", "--overwrite"])
    write("bad.jsonl", read("e.jsonl") + b"no\n")
    refuses("line 10", args=["bad.jsonl", "-o", "out", t, "--overwrite"])
    check(sorted(os.listdir("out")) == old, "a run that failed has changed the folder:", os.listdir("out"))
    makes("e.jsonl", "-o", "out", t, "--overwrite")
    check(os.listdir("out") == ["train-00000.npy"], "older shards stay beside new ones:", os.listdir("out"))
    write("die.jsonl", '{"text": "DIE"}\n')
    refuses("ended from outside", "--jobs", args=["die.jsonl", "-o", "other", t, "--jobs=2"])
    write("stop.jsonl", read("e.jsonl") + b'{"text": "STOP"}\n')
    here = os.path.join(compiled.programs.root, "tests/run/stand_in")
    p = subprocess.Popen([sys.executable, os.path.join(compiled.programs.root, "tools/heddle-data"), "stop.jsonl", "-o",
                          "other", t, "--jobs=1"], env=dict(os.environ, PYTHONPATH=here, PYTHONDONTWRITEBYTECODE="1"))
    wait_until(lambda: os.path.exists("reached"), "a worker at STOP", process=p)
    p.send_signal(signal.SIGTERM)
    check(p.wait() == 128 + signal.SIGTERM and not os.path.exists("other"), "after SIGTERM:", p.returncode)


def case_progress():
    """A bar on a terminal, which goes away again."""
    write("a.txt", "".join(texts(50)))
    ours, theirs = pty.openpty()
    p = subprocess.Popen([sys.executable, "-B", os.path.join(compiled.programs.root, "tools/heddle-data"), "a.txt",
                          "-o", "out"], stdout=subprocess.DEVNULL, stderr=theirs)
    p.wait()
    said = os.read(ours, 10000).decode()
    check(p.returncode == 0 and "] " in said and " tok/s  eta " in said and said.endswith("\r\x1b[K"), said)


def case_tables():
    """A column of a table of commas or tabs is as the same texts in JSON lines; quotes, and lines in them."""
    values = ["w1 w2", "a, b", 'a "word"', "two\nlines", ""]
    lines_file("as.jsonl", values)
    quoted = ['"' + v.replace('"', '""') + '"' for v in values]
    write("t.csv", "id,body\r\n" + "".join(f"{i},{q}\r\n" for i, q in enumerate(quoted)))
    write("t.tsv.gz", gzip.compress(("\ufefftext\tid\n" + "".join(f"{q}\t{i}\n" for i, q in enumerate(quoted)))
                                    .encode()))
    makes("as.jsonl", "-o", "lines")
    makes("t.csv", "-o", "commas", "--field=body")
    makes("t.tsv.gz", "-o", "tabs")
    for folder in "commas", "tabs":
        check(read(f"{folder}/train-00000.npy") == read("lines/train-00000.npy"), folder)


def case_what_is_refused():
    t = tokenizer()
    write("a.txt", "words")
    lines_file("d.jsonl", ["w1"])
    write("list.json", '[{"text": "w1"}]')
    write("latin.txt", b"caf\xe9 and more")
    write("half.jsonl", '{"text": "\\ud800"}\n')
    write("n.jsonl", '{"body": "w1", "id": 3}\n')
    write("n.csv", "body,id\nw1,3\nw2\n")
    write("open.csv", 'text\n"w1\n')
    write("latin.csv", b"text\ncaf\xe9\n")
    write("raw.bin", struct.pack("<4H", 1, 2, 3, 400))
    write("odd.bin", b"12345")
    write("cut.jsonl.gz", gzip.compress(read("d.jsonl") * 50)[:-9])
    write("no.parquet", "words")
    write("broken.parquet", b"PAR1" + bytes(30))
    write("no_end.json", json.dumps({"words": ["w1", "<eos>", "</s>"]}))
    os.mkdir("empty")
    os.makedirs("outer/inner")
    write("strange.jsonl", '{"text": "w1 other"}\n')
    write("m.bin", bytes(8))
    write("m.idx", b"MMIDIDX\0\0" + bytes(40))
    out = ["-o", "out"]
    for args, *words in ((["a.txt"], "-o FOLDER is missing"), (["gone.txt", *out], "gone.txt", "no such file"),
                         (["empty", *out], "empty holds no file"),
                         (["outer", *out], "holds the folder outer/inner", "one by one"),
                         (["strange.jsonl", *out, t], "no tokens for a document"),
                         (["a.txt", "a.txt", *out], "named twice"),
                         (["a.txt", "raw.bin", *out], "raw.bin holds tokens", "two runs"),
                         (["raw.bin", *out], "no header", "--format=u16"),
                         (["odd.bin", *out, "--format=u16"], "5 bytes", "whole number"),
                         (["m.idx", *out], "name the .bin file"), (["m.bin", *out], "m.idx: version 0"),
                         (["list.json", *out], "list.json, line 1", "jq -c"),
                         (["latin.txt", *out, t], "latin.txt", "byte 3 is 0xe9", "iconv"),
                         (["half.jsonl", *out], "line 1", "surrogate"),
                         (["n.jsonl", *out], "no field 'text' but body, id", "--field=NAME"),
                         (["n.jsonl", *out, "--field=id"], "'id' is int"),
                         (["n.csv", *out], "no column 'text'; its first line has body, id", "--field=NAME"),
                         (["n.csv", *out, "--field=body"], "n.csv, line 3: 1 columns instead of 2"),
                         (["open.csv", *out], "open.csv, line 2: no table: unexpected end of data"),
                         (["latin.csv", *out], "latin.csv is no text in UTF-8", "iconv"),
                         (["cut.jsonl.gz", *out], "cannot read cut.jsonl.gz"),
                         (["no.parquet", *out], "no.parquet is no parquet table"),
                         (["broken.parquet", *out], "broken.parquet"),
                         (["a.txt", *out, "--tokenizer=empty"], "no empty/tokenizer.json"),
                         (["a.txt", *out, "--tokenizer=a.txt"], "a.txt is no tokenizer.json"),
                         (["d.jsonl", *out, "--tokenizer=no_end.json"], "which token ends", "</s>, <eos>",
                          "--end=none"),
                         (["d.jsonl", *out, t, "--end=<eos>"], "--end=<eos>", "no such token"),
                         (["d.jsonl", *out, "--end=ab"], "tokens are bytes"),
                         (["d.jsonl", *out, "--end=4294967295"], "an i32"),
                         (["d.jsonl", *out, t, "--dtype=u8"], "numbers up to 255", "up to 401", "--dtype=u16"),
                         (["d.jsonl", *out, t, "--to=llmc", "--dtype=i64"], "--to=llmc holds no i64", "u16 or u32"),
                         (["d.jsonl", *out, "--split=x"], "--split has no effect"),
                         (["a.txt", *out, "--field=x"], "--field has no effect"),
                         (["a.txt", *out, "--format=u16"], "--format has no effect"),
                         (["a.txt", *out, "--seq=4"], "--seq has no effect without --check"),
                         (["a.txt", *out, "--val=0.5"], "no token is left for training", "1 document", "--split"),
                         (["a.txt", "--check"], "a.txt holds no tokens"),
                         (["raw.bin", *out, "--format=u16", "--jobs=2"], "--jobs has no effect"),
                         (["raw.bin", *out, "--format=u16", "--end=x"], "it is a number", "--tokenizer"),
                         (["raw.bin", *out, "--format=u16", t], "--tokenizer has no effect"),
                         (["raw.bin", *out, "--format=u16", "--dtype=u8"], "token 400 at position 3 is no u8"),
                         (["raw.bin", "--check", "--format=u16", "--dtype=u8"], "--dtype has no effect")):
        refuses(*words, args=args)
    for wrong in ("--val=2", "--shard=0", "--jobs=x", "--dtype=f32", "--unknown"):
        refuses(wrong[2:5], args=["a.txt", *out, wrong], status=2)
    check(not os.path.exists("out"), "a folder of runs that were refused")
    refuses("--shard: 1.5M: a whole number above 0 is expected, such as 8, 500k or 100M",
            args=["a.txt", *out, "--shard=1.5M"], status=2)
    write("below.bin", struct.pack("<4h", 1, 2, 3, -4))
    refuses("token -4 at position 3 is no u16: --dtype=i64 (--to=npy or bin or megatron)",
            args=["below.bin", "--format=i16", "--to=llmc", *out])
    makes("below.bin", "--format=i16", "--to=npy", "--dtype=i64", "-o", "below")  # as that says
    refuses("cannot write to the folder", args=["d.jsonl", "-o", "/dev/null/x"])
    if importlib.util.find_spec("zstandard") is None:
        write("a.jsonl.zst", b"\x28\xb5\x2f\xfd" + bytes(20))
        refuses("zstd", "pip install zstandard", "zstd -d a.jsonl.zst", args=["a.jsonl.zst", *out])
    if importlib.util.find_spec("pyarrow") is None:
        refuses("pip install pyarrow", args=["broken.parquet", *out])


def expected(read_all, data, what, Refused):
    try:
        return read_all()
    except Refused:
        return None
    except Exception as e:
        check(False, what, "ends in", type(e).__name__, e, data[:200])


def case_any_bytes():
    """Files of tokens, cut anywhere or with bytes changed, are read or refused."""
    sys.path.insert(0, os.path.join(compiled.programs.root, "tools"))
    from heddle_data import Refused
    from heddle_data.formats import Tokens
    write("a.txt", "".join(texts(9)))
    r, tried, whole = random.Random(5), 0, 0
    for to, suffix in (("npy", "npy"), ("llmc", "bin"), ("megatron", "idx"), ("megatron", "bin")):
        folder = f"{to}{suffix}"
        makes("a.txt", "-o", folder, f"--to={to}", "--split=w7")
        name, path = f"{folder}/train-00000.{suffix}", f"{folder}/train-00000.{'npy' if to == 'npy' else 'bin'}"
        data = read(name)
        changed = [data[:n] for n in [*range(min(len(data), 140)), *range(140, len(data), 61)]]
        for _ in range(250):
            b = bytearray(data)
            for _ in range(r.randint(1, 3)):
                b[r.randrange(min(len(b), 160))] = r.choice((0, 1, 0x27, 0x28, 0x7f, 0x80, 0xff, r.randrange(256)))
            changed.append(bytes(b))
        for b in changed:
            write(name, b)
            got = expected(lambda: [list(x) for x in Tokens(path).blocks()], b, name, Refused)
            tried, whole = tried + 1, whole + (got is not None)
    check(tried > 1000 and 100 < whole < tried, "few cuts are refused, or all:", tried, whole)


def case_packages():
    """The real packages, where they are installed."""
    values = texts(200)
    lines_file("d.jsonl", values)
    if importlib.util.find_spec("pyarrow"):
        import pyarrow
        import pyarrow.parquet
        pyarrow.parquet.write_table(pyarrow.table({"text": values, "n": list(range(200))}), "d.parquet",
                                    row_group_size=30)
        makes("d.jsonl", "-o", "lines")
        makes("d.parquet", "-o", "table")
        same_folder("lines", "table")
        refuses("no column 'body'", "text, n", args=["d.parquet", "-o", "x", "--field=body"])
        refuses("'n' holds int64", args=["d.parquet", "-o", "x", "--field=n"])
    else:
        print("pyarrow is not installed: no parquet table was read")
    if importlib.util.find_spec("tokenizers") is None:
        print("tokenizers is not installed: the stand-in took its place")
        return
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator(values, trainers.BpeTrainer(vocab_size=600, special_tokens=["<|endoftext|>", "<s>"],
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.save("tokenizer.json")
    r = makes("d.jsonl", "-o", "made", "--tokenizer=.", "--check", "--jobs=2", PYTHONPATH="")
    check(f"text: {values[0][:40]}" in r.out and "ends with token 0 '<|endoftext|>'" in r.out, r)
    wanted = [i for v in values for i in t.encode(v, add_special_tokens=False).ids + [0]]
    check(numbers("made/train-00000.npy") == wanted, "other tokens than the package's")
    write("tokenizer_config.json", '{"eos_token": {"content": "<s>"}}')
    check("token 1 '<s>'" in makes("d.jsonl", "-o", "other", "--tokenizer=.", PYTHONPATH="").out, "the config's end")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(compiled.main(globals()))
