"""The command line of heddle-data."""
import argparse
import array
import fractions
import os
import signal
import sys

from . import Refused, clean, pages, reason
from .formats import FORMATS, TYPES, Tokens, index_beside, is_tokens
from .progress import Progress
from .shards import Output
from .texts import Source
from .tokenizer import tokenizer_of
from .work import How, in_order

ABOUT = """Text, JSON lines, tables or parquet to shards of tokens for --data, files of tokens to another format, and
a look at either. Documents end with a token of their own. The kind of a file follows from its content and its name:
.txt and others are text, .jsonl, .ndjson and .json are JSON lines, .csv and .tsv tables, also compressed (.gz, .zst);
.npy, .bin (raw, of llm.c, of Megatron beside its .idx) hold tokens."""
NOT_FOR_TOKENS = ("field", "split", "begin", "jobs")  # options of texts
NOT_FOR_TEXTS = ("format",)


def number(text):
    units = {"k": 10**3, "M": 10**6, "G": 10**9}
    digits, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not (digits.isascii() and digits.isdigit() and int(digits)):
        raise argparse.ArgumentTypeError(f"{text}: a whole number above 0 is expected, such as 8, 500k or 100M")
    return int(digits) * unit


def share(text):
    try:
        value = fractions.Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = 0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text}: a share between 0 and 1 is expected, such as 0.01")
    return value


def version():
    """The project's, which the installation writes beside this file; empty: these are the sources."""
    try:
        with open(os.path.join(os.path.dirname(__file__), "version.txt"), encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return ""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        super().error(clean(message, keep=""))

    def own_actions(self):
        return self._actions

    def format_help(self):  # as the other tools print it
        return pages.help_text(self)


class Page(argparse.Action):
    """Prints a page about the options, and ends."""

    def __call__(self, p, *_):
        shell = _[1]
        print(pages.SHELLS[shell](p) if shell else pages.man(p, version()))
        p.exit()


def common_options(p):
    p.add_argument("-h", "--help", action="help", help="print this text, and stop")
    p.add_argument("--version", action="version", version=f"{p.prog} (Heddle) {version() or 'of these sources'}",
                   help="print the version, and stop")
    p.add_argument("--print-man", action=Page, nargs=0, help="print the man page, and stop")
    p.add_argument("--print-completion", action=Page, choices=pages.SHELLS, help="print what a shell completes, and "
                                                                                 "stop")


def parser():
    p = Parser("heddle-data", description=ABOUT, allow_abbrev=False, add_help=False,
               usage="%(prog)s [OPTION...] FILE... -o FOLDER\n"
                     "       %(prog)s --check [OPTION...] FILE...")
    p.purpose = "makes tokens of text, and shards of tokens of others"
    p.add_argument("files", nargs="+", metavar="FILE", help="a file, or a folder: all files in it, by their names")
    p.add_argument("-o", "--output", metavar="FOLDER", help="gets train-00000.npy and so on")
    p.add_argument("--tokenizer", metavar="FILE", help="a tokenizer.json of Hugging Face or a folder with one; "
                                                       "bytes if not given")
    p.add_argument("--end", metavar="TOKEN", help="ends each document: a token or its number, or none. Of a "
                   "tokenizer.json it is its end of text, of bytes 0, of files of tokens none if not given")
    p.add_argument("--begin", metavar="TOKEN", help="begins each document; none if not given")
    p.add_argument("--field", metavar="NAME", help="of JSON lines, tables and parquet; text if not given")
    p.add_argument("--split", metavar="TEXT", help=r"stands between the documents of a text (\n is a line feed); "
                                                   "without it a file is one")
    p.add_argument("--val", type=share, metavar="SHARE", help="of the documents go to val-00000.npy and so on: 0.01")
    p.add_argument("--to", choices=FORMATS, help="the format to write; npy if not given")
    p.add_argument("--dtype", choices=TYPES, help="of tokens; the smallest that holds the vocabulary if not given, "
                                                  "of files of tokens their own")
    p.add_argument("--format", choices=TYPES, help="what a .bin without header and index holds")
    p.add_argument("--shard", type=number, metavar="N", help="tokens of a shard, which ends with a document; 100M if "
                                                             "not given")
    p.add_argument("--jobs", type=number, metavar="N", help="processes; the number of cores if not given")
    p.add_argument("--overwrite", action="store_true", help="replace the shards that the folder holds")
    p.add_argument("--check", action="store_true", help="print the first sequence and its text, of what was "
                                                        "written or, without -o, of each FILE")
    p.add_argument("--seq", type=number, metavar="N", help="tokens that --check prints; 64 if not given")
    common_options(p)
    return p


def files_of(names):
    """Folders replaced by what is in them; indices of Megatron and hidden files left out."""
    found = []
    for name in names:
        try:
            inside = sorted(os.listdir(name)) if os.path.isdir(name) else None
        except OSError as e:
            raise Refused(f"cannot read the folder {name}: {reason(e)}")
        if inside is None:
            found.append(name)
            continue
        paths = [os.path.join(name, n) for n in inside if not n.startswith(".")]
        for path in paths:
            if os.path.isdir(path):
                raise Refused(f"{name} holds the folder {path}: name such folders one by one")
        paths = [p for p in paths if not (p.endswith(".idx") and index_beside(p[:-3] + "bin"))]
        if not paths:
            raise Refused(f"the folder {name} holds no file")
        found += paths
    for path in found:
        if found.count(path) > 1:
            raise Refused(f"{path} is named twice")
        if path.endswith(".idx"):
            raise Refused(f"{path} is the index of a Megatron data set: name the .bin file beside it")
        if not os.path.isfile(path):
            way = "; download it first" if "://" in path else ""
            raise Refused(f"cannot read {path}: "
                          f"{'it is no file' if os.path.exists(path) else 'there is no such file'}{way}")
    return found


def refuse(options, names, why):
    for name in names:
        if getattr(options, name) not in (None, False):
            raise Refused(f"--{name} has no effect on {why}: leave it out")


def special(tokenizer, given, option):
    """The number of a token that an option names; None: none."""
    if given == "none":
        return None
    if given.isascii() and given.isdigit():
        value = int(given)
        if value >= 1 << 31:
            raise Refused(f"{option}={given} is more than an i32 holds, which tokens of a program are")
        return value
    if tokenizer is None:
        raise Refused(f"{option}={given}: of files of tokens it is a number, or --tokenizer=FILE says which")
    return tokenizer.number(given, option)


def smallest(most):
    return next(name for name in ("u8", "u16", "u32") if TYPES[name].most >= most)


# --- texts

def write_texts(options, files):
    refuse(options, NOT_FOR_TEXTS, "text")
    tokenizer = tokenizer_of(options.tokenizer or "bytes")
    end = tokenizer.default_end if options.end is None else special(tokenizer, options.end, "--end")
    begin = None if options.begin is None else special(tokenizer, options.begin, "--begin")
    most = max(tokenizer.size - 1, -1 if end is None else end, -1 if begin is None else begin)
    form = options.to or "npy"
    fitting = smallest(most)
    kind = options.dtype or (fitting if fitting in FORMATS[form].types else {"u8": "u16", "u32": "i32"}[fitting])
    if TYPES[kind].most < most:
        raise Refused(f"--dtype={kind} holds numbers up to {TYPES[kind].most}, and tokens are up to {most}: "
                      f"--dtype={fitting}")
    split = options.split and options.split.replace("\\n", "\n").replace("\\t", "\t")
    if options.split == "":
        raise Refused("--split needs a text")
    sources = [Source(path) for path in files]
    kinds = {s.kind for s in sources}
    if split and "text" not in kinds:
        raise Refused("--split has no effect on JSON lines, tables and parquet: leave it out")
    if options.field and not kinds - {"text"}:
        raise Refused("--field has no effect on text: leave it out")
    how = How(options.tokenizer or "bytes", kind, options.field or "text", split, begin, end)
    output = Output(options.output, form, kind, options.shard or 10**8, options.val or 0, options.overwrite, files)
    total, read, empty, inside = sum(s.size for s in sources), 0, 0, 0
    bar = Progress(total)
    jobs = options.jobs or (1 if total < 4 << 20 else len(os.sched_getaffinity(0)))

    def batches():
        nonlocal read
        for s in sources:
            for batch in s.batches(how):
                bar.show(read + s.place(), output.train.count + output.validation.count)
                yield batch
            read += s.size
    try:
        for done in in_order(batches(), jobs):
            at, empty, inside = 0, empty + done.empty, inside + done.inside
            for length in done.lengths:
                output.write(done.tokens[at:at + length], done.ends)
                at += length
        bar.end()
        written = output.finish()
    finally:
        bar.end()
        output.abandon()
    note(empty, "left out {} without text")
    note(inside, f"the token {end}, which ends documents, is within the text of {{}}")
    say(output, written, kind, form, f"vocabulary {most + 1}; " + ends_with(tokenizer, end))
    return [path for series in written for path in series], tokenizer, kind


def ends_with(tokenizer, end):
    if end is None:
        return "documents have no end of their own"
    text = f" {tokenizer.decode([end])!r}" if tokenizer and end < tokenizer.size else ""
    return f"a document ends with token {end}{text}"


def note(count, text):
    if count:
        print("note:", text.format(f"{count} document{'s' * (count != 1)}"), file=sys.stderr)


def say(output, written, kind, form, how):
    for series, paths in zip((output.train, output.validation), written):
        if paths:
            print(clean(f"{series.name}: {series.count} tokens ({kind}) of {series.documents} "
                        f"document{'s' * (series.documents != 1)} in {len(paths)} file{'s' * (len(paths) != 1)}, "
                        f"{paths[0]}"))
    suffix = FORMATS[form].suffix
    data = " ".join(f"--{option}='{os.path.join(output.folder, name + '-*' + suffix)}'"
                    for option, name, paths in zip(("data", "val"), ("train", "val"), written) if paths)
    more = f" --format={kind}" if form == "bin" and kind != "u16" else ""
    print(clean(f"{how}\n./model {data}{more}"))


# --- tokens

def documents_of(tokens, end):
    """Arrays of tokens, and whether a document ends with each."""
    left = list(reversed(tokens.lengths or [])) if end is None else []
    for block in tokens.blocks():
        if end is not None:
            stops = [i + 1 for i, token in enumerate(block) if token == end]
        else:
            stops, at = [], 0
            while left and at + left[-1] <= len(block):
                at += left.pop()
                stops.append(at)
            if left:
                left[-1] -= len(block) - at
        at = 0
        for stop in stops:
            yield block[at:stop], True
            at = stop
        if at < len(block):
            yield block[at:], False
    for _ in left:  # documents without tokens at the end
        yield array.array(tokens.type.code), True


def converted(path, tokens, kind, at):
    """Tokens as another type. at: the number of the first."""
    if tokens.typecode == kind.code:
        return tokens
    if tokens and not kind.least <= min(tokens) <= max(tokens) <= kind.most:
        i = next(i for i, t in enumerate(tokens) if not kind.least <= t <= kind.most)
        fits = "i64" if tokens[i] < 0 else "u32"
        forms = " or ".join(name for name in FORMATS if fits in FORMATS[name].types)
        raise Refused(f"{path}: token {tokens[i]} at position {at + i} is no {kind.name}: "
                      f"--dtype={fits} (--to={forms})")
    return array.array(kind.code, tokens)


def write_tokens(options, files):
    refuse(options, NOT_FOR_TOKENS, "files of tokens")
    tokenizer = tokenizer_of(options.tokenizer) if options.tokenizer else None
    if tokenizer and not options.check and (options.end is None or options.end.isdigit()):
        raise Refused("--tokenizer has no effect on files of tokens without --check or --end=TOKEN: leave it out")
    end = None if options.end is None else special(tokenizer, options.end, "--end")
    inputs = [Tokens(path, options.format) for path in files]
    form, kinds = options.to or "npy", {t.type.name for t in inputs}
    if options.dtype is None and len(kinds) > 1:
        raise Refused(f"the files hold {' and '.join(sorted(kinds))}: --dtype says what to write")
    own = kinds.pop()
    other = {"u8": "u16", "i16": "u16", "u32": "i32", "u64": "i64", "i32": "u32", "i64": "u32"}
    kind = options.dtype or (own if own in FORMATS[form].types else other[own])
    output = Output(options.output, form, kind, options.shard or 10**8, options.val or 0, options.overwrite,
                    files + [p for p in map(index_beside, files) if p])
    total, done = sum(t.count for t in inputs), 0
    bar = Progress(total)
    try:
        for t in inputs:
            at, open_end = 0, False
            for tokens, ends in documents_of(t, end):
                output.write(converted(t.path, tokens, TYPES[kind], at), ends)
                at, open_end = at + len(tokens), not ends
                bar.show(done + at, done + at)
            if open_end:  # a file ends a document
                output.write(array.array(TYPES[kind].code), True)
            done += at
        bar.end()
        written = output.finish()
    finally:
        bar.end()
        output.abandon()
    say(output, written, kind, form, ends_with(tokenizer, end) if end is not None else "tokens are as they were")
    return [path for series in written for path in series], tokenizer, kind


# --- a look

def check(options, files, tokenizer, kind):
    for path in files:
        t = Tokens(path, kind)
        first = [token for block in t.blocks(options.seq or 64) for token in block]
        text = tokenizer or (tokenizer_of("bytes") if t.type.name == "u8" else None)
        documents = f", {len(t.lengths)} documents" if t.lengths is not None else ""
        print(clean(f"{path}: {t.count} tokens ({t.type.name}, {t.format}){documents}"))
        print(f"tokens 0 to {len(first) - 1}:", *first)
        for i, token in enumerate(first):
            if tokenizer and not 0 <= token < max(tokenizer.size, 256):
                raise Refused(f"{path}: token {token} at position {i} is outside the vocabulary of {tokenizer.size} of "
                              f"{tokenizer.name}: another tokenizer, or --format, made it")
        print(clean(f"text: {text.decode(first)}" if text else "--tokenizer=FILE shows their text", keep="\n"))


def run(options):
    files = files_of(options.files)
    tokens = [path for path in files if is_tokens(path)]
    if options.seq and not options.check:
        raise Refused("--seq has no effect without --check: leave it out")
    if options.output is None:
        if not options.check:
            raise Refused("-o FOLDER is missing, which gets the shards; --check only looks")
        refuse(options, ("end", "begin", "field", "split", "val", "to", "dtype", "shard", "jobs", "overwrite"),
               "--check without -o")
        if len(tokens) < len(files):
            raise Refused(f"{next(f for f in files if f not in tokens)} holds no tokens: -o FOLDER makes them")
        check(options, files, tokenizer_of(options.tokenizer) if options.tokenizer else None, options.format)
        return
    if tokens and len(tokens) < len(files):
        raise Refused(f"{tokens[0]} holds tokens and {next(f for f in files if f not in tokens)} does not: make them "
                      f"in two runs")
    written, tokenizer, kind = (write_tokens if tokens else write_texts)(options, files)
    if options.check:
        check(options, written[:1], tokenizer, kind)


def ended(tool, work):
    """The exit status of a tool: what its work returns, or one line that says why there is none."""
    sys.stdout.reconfigure(errors="backslashreplace")  # for a locale without all of Unicode
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what is not finished is removed
    try:
        status = work()
        sys.stdout.flush()
    except Refused as e:
        print(clean(f"{tool}: error: {e}", keep=""), file=sys.stderr)
        return 1
    except MemoryError:
        print(f"{tool}: error: out of memory; --split or --end cuts what is one document", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return status or 0


def main():
    return ended("heddle-data", lambda: run(parser().parse_args()))
