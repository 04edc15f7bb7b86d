"""The command line of heddle-sample: a program's --sample-ids with a tokenizer before and behind it."""
import argparse
import os
import re
import signal
import subprocess
import sys

from . import Refused, clean, reason
from .command import Parser, common_options, ended
from .tokenizer import tokenizer_of

ABOUT = """Runs PROGRAM, which heddlec has built with schedule.logits=on, with the tokens of TEXT, and prints the text
of the tokens that it writes, as they come. All options behind PROGRAM are the program's own, such as --resume,
--tokens, --temperature and --top-p. A launcher and its options may stand before the program."""
WAITING = 16  # tokens that may be part of one character


def parser():
    p = Parser("heddle-sample", description=ABOUT, allow_abbrev=False, add_help=False,
               usage="%(prog)s --tokenizer=FILE --sample=TEXT [OPTION...] PROGRAM [OPTION OF PROGRAM...]")
    p.purpose = "writes text with a program and a tokenizer"
    p.add_argument("program", metavar="PROGRAM", help="that heddlec has built")
    p.add_argument("rest", nargs=argparse.REMAINDER, metavar="OPTION OF PROGRAM")
    p.add_argument("--tokenizer", metavar="FILE", required=True, help="a tokenizer.json of Hugging Face or a folder "
                                                                      "with one, or bytes")
    p.add_argument("--sample", metavar="TEXT", required=True, help="how the text begins")
    p.add_argument("--begin", metavar="TOKEN", help="stands before TEXT, as it begins each document of the data; none "
                                                    "if not given")
    common_options(p)
    return p


class Shown:
    """The text of tokens that come one by one: what is whole of it."""

    def __init__(self, tokenizer):
        self.tokenizer, self.ids, self.begin, self.shown = tokenizer, [], 0, 0

    def text(self, last=False):
        """What is new. A character may end in a later token: until then it decodes to U+FFFD."""
        now = self.tokenizer.decode(self.ids[self.begin:])
        if now.endswith("\ufffd") and not last and len(self.ids) - self.shown < WAITING:
            return ""
        new = now[len(self.tokenizer.decode(self.ids[self.begin:self.shown])):]
        self.begin, self.shown = self.shown, len(self.ids)
        return new

    def add(self, token):
        if token >= self.tokenizer.size:
            raise Refused(f"the program writes token {token}, which is outside the vocabulary of {self.tokenizer.size} "
                          f"of {self.tokenizer.name}: the model is of another tokenizer")
        self.ids.append(token)
        return self.text()


def pieces(stream):
    """What a program prints, cut behind every comma and line feed as soon as it is there."""
    left = ""
    while data := os.read(stream.fileno(), 1 << 16):
        *whole, left = re.split(r"(?<=[,\n])", left + data.decode("utf-8", "replace"))
        yield from whole
    if left:
        yield left


def show(stream, tokenizer, prompt):
    """A line that begins with the prompt is of tokens; others, which a training run prints, stay as they are."""
    cleaned = sys.stdout.isatty()
    put = lambda text: sys.stdout.write(clean(text) if cleaned else text) and sys.stdout.flush()  # noqa: E731
    line, text = [], Shown(tokenizer)  # the pieces of a line so far, which may be of tokens; None: it is not
    for piece in pieces(stream):
        ends, number = piece.endswith("\n"), piece.rstrip(",\n")
        if line is not None and (not number.isdecimal() or
                                 (len(line) < len(prompt) and int(number) != prompt[len(line)])):
            put("".join(line))
            line = None
        if line is None:
            put(piece)
        else:
            line.append(piece)
            if len(line) == len(prompt):
                put("".join(text.add(token) for token in prompt))
            elif len(line) > len(prompt):
                put(text.add(int(number)))
        if ends:
            if line is not None:
                put(text.text(last=True) + "\n" if len(line) >= len(prompt) else "".join(line))
            line, text = [], Shown(tokenizer)


def start(command):
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE)
    except OSError as e:
        here = "/" not in command[0] and os.path.exists(command[0])
        raise Refused(f"cannot run {command[0]}: {reason(e)}{f'; here it is ./{command[0]}' if here else ''}")


def tokens_of(options, tokenizer):
    ids = list(tokenizer.encode([options.sample])[0])
    if options.begin is not None:
        ids.insert(0, int(options.begin) if options.begin.isdecimal() else tokenizer.number(options.begin, "--begin"))
    if not ids:
        raise Refused(f"--sample={options.sample}: a text begins with a token, and {tokenizer.name} makes none of "
                      f"this; say more, or --begin=TOKEN")
    return ids


def run(options):
    for given in options.rest:
        if re.match(r"--(sample|sample-ids|tokenizer)(=|$)", given):
            raise Refused(f"{given.split('=')[0]} stands behind {options.program} and not before it: heddle-sample "
                          f"--tokenizer=FILE --sample=TEXT {options.program} ...")
    tokenizer = tokenizer_of(options.tokenizer)
    prompt = tokens_of(options, tokenizer)
    signal.signal(signal.SIGINT, lambda *_: None)  # the program ends the text, and says so
    p = start([options.program, *options.rest, "--sample-ids=" + ",".join(map(str, prompt))])
    signal.signal(signal.SIGTERM, lambda *_: p.terminate())
    try:
        show(p.stdout, tokenizer, prompt)
    except BaseException:
        p.kill()
        raise
    finally:
        p.stdout.close()
        status = p.wait()
    return status if status >= 0 else 128 - status


def main():
    return ended("heddle-sample", lambda: run(parser().parse_args()))
