"""The tools heddle-data and heddle-sample. Python's own library is enough; `tokenizers`, `pyarrow` and `zstandard` read
what they are for.

texts.py      documents out of text, JSON lines and parquet, as batches for workers
tokenizer.py  documents to tokens
formats.py    files of tokens: their headers, readers, and what a writer puts around tokens
shards.py     documents of tokens to files, under their names only when all are whole
command.py    the command line; pages.py has its man page and completions
sample.py     heddle-sample: text into a program, and what the program writes
"""


class Refused(Exception):
    """What ends the tool with one line: names the file or the option, what is wrong, and the way out."""


def clean(text, keep="\n\t"):
    """Text without what could command a terminal."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def reason(error):
    """What an OSError says, without the path."""
    return error.strerror or str(error)


def head_of(path, size=-1):
    """How a file begins; without a size, all of it."""
    try:
        with open(path, "rb") as f:
            return f.read(size)
    except OSError as e:
        raise Refused(f"cannot read {path}: {reason(e)}")
