#!/usr/bin/env python3
"""Prompts and answers as data for examples/sft. Each line of the input is JSON with a "prompt" and an "answer"; their
bytes are the tokens. Writes tokens.npy, rows of SEQ + 1 tokens, and weights.npy, rows of SEQ: 1 where the target, which
is the token one further on, belongs to an answer, else 0. A row holds one line, cut at its end or filled with zeros.
Usage: prepare.py LINES.jsonl FOLDER [SEQ]
"""
import json
import os
import struct
import sys


def row_of(line, seq):
    """Tokens and weights of a prompt and its answer, which ends with a line feed."""
    prompt, answer = line["prompt"].encode(), line["answer"].encode() + b"\n"
    tokens = (prompt + answer)[:seq + 1]
    marks = (bytes(len(prompt)) + b"\1" * len(answer))[1:seq + 1]
    return tokens.ljust(seq + 1, b"\0"), marks.ljust(seq, b"\0")


def write_rows(path, rows):
    """A numpy array of bytes."""
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + b"".join(rows))


def main(lines, folder, seq="128"):
    with open(lines, encoding="utf-8") as f:
        rows = [row_of(json.loads(line), int(seq)) for line in f if line.strip()]
    if not rows:
        sys.exit(f"{lines} holds no line")
    write_rows(os.path.join(folder, "tokens.npy"), [tokens for tokens, _ in rows])
    write_rows(os.path.join(folder, "weights.npy"), [marks for _, marks in rows])


main(*sys.argv[1:])
