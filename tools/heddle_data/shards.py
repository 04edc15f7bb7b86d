"""Documents of tokens to shards, for training and for validation. Files get their names when all of them are whole."""
import array
import contextlib
import math
import os
import re

from . import Refused, reason
from .formats import FORMATS, TYPES, bytes_of

OURS = re.compile(r"(train|val)-\d{5,}\.(npy|bin|idx)")


class Shard:
    def __init__(self, folder, name, form, kind):
        self.final = os.path.join(folder, name + form.suffix)
        self.form, self.kind, self.count, self.lengths = form, kind, 0, array.array("q")
        self.parts = [(self.part_of(self.final), self.final)]
        self.file = open(self.parts[0][0], "wb")
        self.file.write(form.header(kind, 0))

    @staticmethod
    def part_of(path):
        return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.part")

    def write(self, tokens):
        self.file.write(bytes_of(tokens))
        self.count += len(tokens)

    def close(self):
        self.file.seek(0)
        self.file.write(self.form.header(self.kind, self.count))
        self.file.close()
        if self.form.index:
            index = self.final[:-len(self.form.suffix)] + ".idx"
            self.parts.append((self.part_of(index), index))
            with open(self.parts[1][0], "wb") as f:
                f.write(self.form.index(self.kind, self.lengths))


class Shards:
    """One series of shards, `train` or `val`. A shard ends with the document with which it has `limit` tokens."""

    def __init__(self, folder, name, form, kind, limit):
        self.folder, self.name, self.form, self.kind, self.limit = folder, name, form, kind, limit
        self.done, self.now, self.count, self.documents, self.inside = [], None, 0, 0, 0

    def write(self, tokens, ends):
        if self.now is None:
            self.now = Shard(self.folder, f"{self.name}-{len(self.done):05d}", self.form, self.kind)
        self.now.write(tokens)
        self.inside += len(tokens)
        self.count += len(tokens)
        if not ends:
            return
        self.now.lengths.append(self.inside)
        self.documents += 1
        self.inside = 0
        if self.now.count >= self.limit:
            self.close()

    def close(self):
        if self.now:
            self.now.close()
            self.done.append(self.now)
        self.now = None


class Output:
    def __init__(self, folder, form, kind, limit, val, overwrite, inputs):
        """form, kind: names of FORMATS and TYPES; val: the share of documents that are for validation"""
        self.folder, self.val, self.seen = folder, val, 0
        if kind not in FORMATS[form].types:
            raise Refused(f"--to={form} holds no {kind}; --dtype={' or '.join(FORMATS[form].types)}")
        self.made = not os.path.exists(folder)
        try:
            os.makedirs(folder, exist_ok=True)
            self.old = sorted(n for n in os.listdir(folder) if OURS.fullmatch(n))
        except OSError as e:
            raise Refused(f"cannot write to the folder {folder}: {reason(e)}")
        if self.old and not overwrite:
            raise Refused(f"{folder} holds {self.old[0]}: choose another folder, or --overwrite, which replaces the "
                          f"shards there")
        replaced = {os.path.realpath(os.path.join(folder, n)) for n in self.old}
        for path in inputs:
            if os.path.realpath(path) in replaced:
                raise Refused(f"{path} would be replaced by what is made of it: choose another folder")
        self.train, self.validation = (Shards(folder, name, FORMATS[form], TYPES[kind], limit)
                                       for name in ("train", "val"))

    def write(self, tokens, ends=True):
        """Tokens of the present document, which ends with them or goes on."""
        i, f = self.seen, self.val
        to = self.validation if math.ceil((i + 1) * f) > math.ceil(i * f) else self.train
        try:
            to.write(tokens, ends)
        except OSError as e:
            raise Refused(f"cannot write to {self.folder}: {reason(e)}")
        self.seen += ends

    def finish(self):
        """Gives all files their names and removes older shards. The paths of both series."""
        both = self.train, self.validation
        for s in both:
            if not s.count and (s is self.train or self.val):
                what = "training" if s is self.train else "validation"
                and_val = f" and --val={float(self.val):g}" if self.val else ""
                raise Refused(f"no token is left for {what}: there {'is' if self.seen == 1 else 'are'} {self.seen} "
                              f"document{'s' * (self.seen != 1)}{and_val}; --split=TEXT finds more in a text, --end=N "
                              f"in files of tokens")
        try:
            for s in both:
                s.close()
            parts = [part for s in both for shard in s.done for part in shard.parts]
            for name in self.old:
                os.remove(os.path.join(self.folder, name))
            for part, final in parts:
                os.rename(part, final)
        except OSError as e:
            raise Refused(f"cannot write to {self.folder}: {reason(e)}")
        return [[shard.final for shard in s.done] for s in both]

    def abandon(self):
        """Removes what is not finished."""
        for s in (self.train, self.validation):
            for shard in s.done + [s.now] * bool(s.now):
                shard.file.close()
                for part, _ in shard.parts:
                    with contextlib.suppress(OSError):
                        os.remove(part)
        if self.made:
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)
