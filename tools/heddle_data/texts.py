"""Documents out of files of text, as batches: what one worker turns into tokens at a time.

A file is read once, in order, by the process that starts the workers. It is cut where a document ends; parsing of JSON
and decoding of UTF-8 are the workers'.
"""
import csv
import gzip
import io
import json
import os

from . import Refused, head_of, reason

BATCH = 1 << 20  # bytes of a batch, at least, where its file has them
KINDS = {".jsonl": "lines", ".ndjson": "lines", ".json": "lines", ".parquet": "parquet", ".csv": "table",
         ".tsv": "table"}
UNZIPPED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}

# What a file that is no text begins with, at a byte, what it is and what makes text of it.
BINARY = (
    (0, b"\xff\xfe", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"), (0, b"\xfe\xff", "text in UTF-16",
                                                                     "iconv -f UTF-16 -t UTF-8"),
    (0, b"PK\3\4", "a zip archive, as .docx, .npz and PyTorch's .pt are", "unpack it"),
    (257, b"ustar", "a tar archive", "tar -xf"), (0, b"\xfd7zXZ", "compressed by xz", "unxz"),
    (0, b"BZh", "compressed by bzip2", "bunzip2"), (0, b"%PDF-", "a PDF document", "pdftotext"),
    (8, b'{"', "a safetensors file", "its tensors are no text"), (0, b"\x7fELF", "a program", "it is no text"),
    (0, b"\x80\4\x95", "a Python pickle", "load it in Python and write its text"))


def no_text(head):
    """What a file is that begins so, and the way to text; None: nothing says that it is no text."""
    for at, magic, what, way in BINARY:
        if head[at:at + len(magic)] == magic:
            return f"{what}: {way}"
    half = len(head) // 2
    zeros = [head[side:2 * half:2].count(0) for side in (0, 1)]
    if half > 32 and max(zeros) * 2 > half and min(zeros) * 8 < half:
        return f"text in UTF-16: iconv -f UTF-16{'BE' if zeros[0] > zeros[1] else 'LE'} -t UTF-8"
    if len(head) > 64 and sum(zeros) * 10 > len(head):
        return f"no text: {sum(zeros)} of its first {len(head)} bytes are 0"
    return None


class Batch:
    """kind: lines (of JSON), text (documents between separators), whole (one document), piece (of one whose tokens are
    bytes; `last` says whether it ends there), strings (a list). at: the line or the byte at which it begins."""

    def __init__(self, kind, path, data, at=0, last=True, how=None):
        self.kind, self.path, self.data, self.at, self.last, self.how = kind, path, data, at, last, how


class Source:
    """A file of text. place(): how many bytes of it were read."""

    def __init__(self, path):
        self.path, self.file = path, None
        name, self.zip = path, None
        for suffix, magic in UNZIPPED.items():
            if head_of(path, 4).startswith(magic):
                self.zip = suffix
                name = name[:-len(suffix)] if name.endswith(suffix) else name
        self.size = os.path.getsize(path)
        self.kind = KINDS.get(os.path.splitext(name)[1].lower(), "text")
        if not self.zip and head_of(path, 4) == b"PAR1":
            self.kind = "parquet"
        elif self.kind == "parquet":
            raise Refused(f"{path} is no parquet table, whatever its name says")
        if self.kind in ("text", "table") and not self.zip and (what := no_text(head_of(path, 4096))):
            raise Refused(f"{path} is {what}")

    def place(self):
        return self.file.tell() if self.file and not self.file.closed else 0

    def unzipped(self):
        if self.zip == ".gz":
            return gzip.GzipFile(fileobj=self.file)
        if self.zip == ".zst":
            try:
                import zstandard
            except ImportError:
                raise Refused(f"{self.path} is compressed by zstd: pip install zstandard, or zstd -d {self.path}")
            return zstandard.ZstdDecompressor().stream_reader(self.file, read_across_frames=True)
        return self.file

    def blocks(self):
        """What the file holds, unzipped, in pieces of about BATCH bytes."""
        try:
            with open(self.path, "rb") as self.file:
                stream = self.unzipped()
                while data := stream.read(BATCH):
                    yield data
        except Refused:
            raise
        except (OSError, EOFError, ValueError) as e:
            raise Refused(f"cannot read {self.path}: {reason(e) if isinstance(e, OSError) else e}")
        except Exception as e:  # zlib's and zstandard's own
            raise Refused(f"cannot unzip {self.path}: {e}")

    def batches(self, how):
        if self.kind == "parquet":
            yield from self.rows(how)
        elif self.kind == "table":
            yield from self.table(how)
        elif self.kind == "lines":
            yield from self.cut(b"\n", "lines", how)
        elif how.split:
            yield from self.cut(how.split.encode(), "text", how)
        elif how.pieces:
            yield from self.pieces(how)
        else:
            yield Batch("whole", self.path, b"".join(self.blocks()), how=how)

    def pieces(self, how):
        at, before = 0, None
        for data in self.blocks():
            if before is not None:
                yield Batch("piece", self.path, before, at, last=False, how=how)
                at += len(before)
            before = data
        yield Batch("piece", self.path, before or b"", at, how=how)

    def cut(self, separator, kind, how):
        at, held = 0, bytearray()
        for data in self.blocks():
            new = max(len(held) - len(separator) + 1, 0)
            held += data
            end = held.rfind(separator, new) + len(separator)
            if len(held) < BATCH or end < len(separator):
                continue
            yield Batch(kind, self.path, bytes(held[:end]), at, how=how)
            at += held.count(b"\n", 0, end) if kind == "lines" else end
            del held[:end]
        if held:
            yield Batch(kind, self.path, bytes(held), at, how=how)

    def of_column(self, texts, how):
        """Documents of a column, some at a time."""
        held, size, at = [], 0, 0
        for text in texts:
            held.append(text)
            size += len(text)
            if size >= BATCH:
                yield Batch("strings", self.path, held, at, how=how)
                held, size, at = [], 0, at + len(held)
        if held:
            yield Batch("strings", self.path, held, at, how=how)

    def cells(self, table, names, column):
        for row in table:
            if row and len(row) != len(names):
                raise Refused(f"{self.path}, line {table.line_num}: {len(row)} columns instead of {len(names)}")
            if row:
                yield row[column]

    def table(self, how):
        """A column of a table of commas, or of tabs, whose first line has the names."""
        name = self.path[:-len(self.zip)] if self.zip and self.path.endswith(self.zip) else self.path
        csv.field_size_limit(1 << 30)
        try:
            with open(self.path, "rb") as self.file:
                lines = io.TextIOWrapper(self.unzipped(), "utf-8-sig", newline="")
                table = csv.reader(lines, delimiter="\t" if name.lower().endswith(".tsv") else ",", strict=True)
                names = next(table, [])
                if how.field not in names:
                    raise Refused(f"{self.path} has no column '{how.field}'; its first line has {', '.join(names)}: "
                                  f"--field=NAME")
                yield from self.of_column(self.cells(table, names, names.index(how.field)), how)
        except Refused:
            raise
        except UnicodeDecodeError as e:
            raise Refused(f"{self.path} is no text in UTF-8: {e.reason}; iconv -t UTF-8 converts other encodings")
        except csv.Error as e:
            raise Refused(f"{self.path}, line {table.line_num}: no table: {e}")
        except (OSError, EOFError, ValueError) as e:
            raise Refused(f"cannot read {self.path}: {reason(e) if isinstance(e, OSError) else e}")

    def rows(self, how):
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise Refused(f"{self.path} is a parquet table, which needs a package: pip install pyarrow")
        try:
            with open(self.path, "rb") as self.file:
                table = pyarrow.parquet.ParquetFile(self.file)
                names = table.schema_arrow.names
                if how.field not in names:
                    raise Refused(f"{self.path} has no column '{how.field}'; it has {', '.join(names)}: --field=NAME")
                column = table.schema_arrow.field(how.field).type
                if not (pyarrow.types.is_string(column) or pyarrow.types.is_large_string(column)):
                    raise Refused(f"{self.path}: its column '{how.field}' holds {column}, not strings")
                some = table.iter_batches(batch_size=256, columns=[how.field])
                texts = (text or "" for part in some for text in part.column(0).to_pylist())  # null: without text
                yield from self.of_column(texts, how)
        except pyarrow.ArrowException as e:
            raise Refused(f"cannot read {self.path}: {e}")
        except OSError as e:
            raise Refused(f"cannot read {self.path}: {reason(e)}")


def decoded(batch, data, at):
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        raise Refused(f"{batch.path} is no text in UTF-8: byte {at + e.start} is 0x{data[e.start]:02x}; "
                      f"iconv -t UTF-8 converts other encodings")


def text_of(batch, line, number):
    """The field of a line of JSON."""
    where, field = f"{batch.path}, line {number}", batch.how.field
    way = ""
    if line[:1] in (b"[", b"{"):
        way = "; each line is to be an object (jq -c '.[]' takes an array apart, jq -c . an object of several lines)"
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise Refused(f"{where}: no JSON: {e}{way}")
    if not isinstance(value, dict):
        raise Refused(f"{where}: it is no object{way}")
    if field not in value:
        raise Refused(f"{where}: there is no field '{field}' but {', '.join(value) or 'none'}: --field=NAME")
    if not isinstance(value[field], str):
        raise Refused(f"{where}: its field '{field}' is {type(value[field]).__name__}, not a string")
    try:
        value[field].encode()
    except UnicodeEncodeError:
        raise Refused(f"{where}: its field '{field}' has half of a surrogate pair, which is no character")
    return value[field]


def documents(batch):
    """The texts of a batch."""
    if batch.kind == "strings":
        return batch.data
    if batch.kind == "lines":
        lines = batch.data.split(b"\n")
        return [text_of(batch, line, batch.at + i + 1) for i, line in enumerate(lines) if line.strip()]
    if batch.kind == "whole":
        return [decoded(batch, batch.data, batch.at)]
    separator, at, texts = batch.how.split.encode(), batch.at, []
    for part in batch.data.split(separator):
        texts.append(decoded(batch, part, at))
        at += len(part) + len(separator)
    return texts if texts[-1] else texts[:-1]  # a separator at the end begins no document
