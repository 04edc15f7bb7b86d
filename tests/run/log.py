#!/usr/bin/env python3
"""The log of a run and its event files. The reader of these here is its own; where the package tensorboard is
installed, that reads them, too. Usage: log.py ROOT HEDDLEC [CASE...]
"""
import json
import math
import os
import re
import struct
import subprocess
import sys

import compiled
from cases import check
from compiled import SEQ, bad, good, lines_of, read, text_file, write

RATE = "train.lr=cosine(0.01, warmup=3, total=7, floor=0.001)"


def headers_of(log):
    return [l for l in map(json.loads, read(log).decode().splitlines()) if "step" not in l]


def rate(step):
    if step <= 3:
        return 0.01 * step / 3
    return 0.001 + 0.009 * (1 + math.cos(math.pi * min(1, (step - 3) / 4))) / 2


def case_header_and_rates():
    """The first line says what runs; every step has its learning rate, a time that grows, and the memory it takes."""
    good(f"--data={text_file()}", "--steps=9", "--log=log.jsonl", "--seed=5", settings=(RATE,))
    (head,), steps = headers_of("log.jsonl"), lines_of("log.jsonl")
    check(json.loads(read("log.jsonl").splitlines()[0]) == head, "the header is not the first line")
    check(head["model"] == "Tiny" and head["seed"] == 5 and head["steps"] == 9 and head["after"] == 0
          and head["mesh"]["shard"] == 1 and head["data_tokens"] == 3000 and head["seq"] == SEQ, "header:", head)
    s = head["settings"]
    check(s["clip"] == 1.0 and s["batch"] == 2 and s["optimizer.betas"] == [0.9, 0.98] and s["accumulate"] == 1
          and s["optimizer.lr"] == "cosine" and s["optimizer.lr.total"] == 7, "settings:", s)
    report = json.loads(good("--report=json", settings=(RATE,)).out)
    check(head["device_memory"] == report["peak_bytes"] > 0, "memory:", head, report["peak_bytes"])
    for l in steps:
        check(abs(l["lr"] / rate(l["step"]) - 1) < 1e-6, "rate:", l, rate(l["step"]))
        check(1e6 < l["host_memory"] < 1e11, "memory:", l)
    times = [head["time"], *(l["time"] for l in steps)]
    check(times == sorted(times) and times[0] > 1.7e9, "times:", times)
    check(not any("mfu" in l for l in steps), "an MFU without a known peak")


def case_lists_of_places():
    """A list of words in the header is one of JSON, however long it is."""
    sets = ("train.fp8=Block", "train.fp8.except=Block.attn,Block[0]", "layers=24", "dim=16", "heads=1")
    good(f"--data={text_file()}", "--steps=1", "--log=log.jsonl", settings=sets)
    s = headers_of("log.jsonl")[0]["settings"]
    check(s["precision.fp8"] == [f"blocks.{k}" for k in range(24)], "places:", s)
    check(set(s["precision.fp8.except"]) == {"blocks.0", *(f"blocks.{k}.attn" for k in range(24))}, "except:", s)


def case_no_step_twice():
    """A run that goes on from an older checkpoint, after one that was killed in a line: each step once, in order."""
    args = [f"--data={text_file()}", "--log=log.jsonl", "--save=c", "--keep=9", "--save-every=2"]
    good(*args, "--steps=6", "--val=data.txt", "--val-every=3")
    whole = read("log.jsonl")
    for torn in (b"", b'{"step": 7, "lo', b'{"step": 6'):
        write("log.jsonl", whole + torn)
        r = good(*args, "--steps=8", "--resume=c/checkpoint-4")
        check("note: log.jsonl: what it held of steps after 4 is removed" in r.err, "it says:", r)
        lines = lines_of("log.jsonl")
        check([l["step"] for l in lines if "loss" in l] == list(range(1, 9)), "steps:", lines)
        check([l["step"] for l in lines if "val_loss" in l] == [3] and lines[3]["step"] == 3, "validations:", lines)
        check([h["after"] for h in headers_of("log.jsonl")] == [0, 4], "headers:", headers_of("log.jsonl"))
        check(read("log.jsonl").startswith(whole[:whole.index(b'{"step": 5')]), "what stays is another")
    r = good(*args, "--steps=9", "--resume=c")
    check("is removed" not in r.err and lines_of("log.jsonl")[-1]["step"] == 9, "nothing was to be removed:", r)
    for text in ("some notes\n", '{"step": 1}\nmine\n'):
        write("notes", text)
        bad(1, "--log=notes", "something else", args=["--data=data.txt", "--steps=10", "--resume=c", "--log=notes"])
        check(read("notes").decode() == text, "a file that is no log was changed")
    good("--data=data.txt", "--steps=10", "--resume=c", "--log=/dev/null")


# --- event files


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """{field: value} of a message without repeated fields."""
    at, found = 0, {}
    while at < len(data):
        key, at = varint(data, at)
        kind, size = key & 7, {1: 8, 5: 4}.get(key & 7)
        if kind == 0:
            found[key >> 3], at = varint(data, at)
            continue
        if kind == 2:
            size, at = varint(data, at)
        found[key >> 3], at = data[at:at + size], at + size
    check(at == len(data), "a message ends elsewhere than its record")
    return found


def events_in(path):
    data, at, events = read(path), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        check(struct.unpack_from("<I", data, at + 8)[0] == masked(data[at:at + 8]), path, "length's checksum")
        body = data[at + 12:at + 12 + size]
        check(struct.unpack_from("<I", data, at + 12 + size)[0] == masked(body), path, "record's checksum")
        events.append(fields(body))
        at += size + 16
    check(events[0][3] == b"brain.Event:2", path, "begins with", events[0])
    return events[1:]


def scalars(folder):
    """{name: {step: value}} as TensorBoard shows them: a start drops what older files have of its steps and later."""
    shown = {}
    for name in sorted(os.listdir(folder)):
        for e in events_in(os.path.join(folder, name)):
            if 7 in e:
                check(fields(e[7]) == {1: 1}, "no start:", e)
                for values in shown.values():
                    for step in [s for s in values if s >= e[2]]:
                        del values[step]
                continue
            value = fields(fields(e[5])[1])
            shown.setdefault(value[1].decode(), {})[e[2]] = struct.unpack("<f", value[2])[0]
    return shown


READ_BY_PACKAGE = """
import json, sys
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    sys.exit(3)
a = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
a.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in a.Scalars(tag)] for tag in a.Tags()["scalars"]}))
"""


def scalars_of_package(folder):
    """None without the package. In a process of its own, where no module of this folder (numbers.py) is in the way."""
    r = subprocess.run([sys.executable, "-c", READ_BY_PACKAGE, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(r.returncode in (0, 3), "the package tensorboard:", r.stderr.decode(errors="replace")[-2000:])
    return {tag: dict(values) for tag, values in json.loads(r.stdout).items()} if r.returncode == 0 else None


def case_tensorboard():
    """The event files hold the numbers of the log, also after a run that went on from an older checkpoint."""
    check(crc32c(b"123456789") == 0xE3069283, "the test's own checksum")
    args = [f"--data={text_file()}", "--val=data.txt", "--val-every=3", "--log=log.jsonl", "--tensorboard=board",
            "--save=c", "--keep=9", "--save-every=2"]
    good(*args, "--steps=6")
    good(*args, "--steps=300", "--resume=c/checkpoint-4")  # a step of two bytes
    want = {}
    for l in lines_of("log.jsonl"):
        for name in set(l) - {"step", "seconds", "tokens", "time", "ranks"}:
            want.setdefault(name, {})[l["step"]] = l[name]
    for read_by, got in (("this test", scalars("board")), ("tensorboard", scalars_of_package("board"))):
        print(f"event files: {'not read' if got is None else 'read'} by {read_by}")
        if got is None:
            continue
        check(set(got) == set(want), read_by, "finds", set(got), "not", set(want))
        for name, values in want.items():
            check(list(got[name]) == list(values), read_by, name, "has other steps")
            check(all(math.isclose(got[name][s], v, rel_tol=1e-6) for s, v in values.items()), read_by, name)
    check(len(os.listdir("board")) == 2, "files:", os.listdir("board"))


def case_tensorboard_refused():
    text_file()
    for path, why in (("none/x", "No such file"), ("data.txt", "Not a directory"), ("data.txt/x", "Not a directory")):
        r = bad(1, path, why, args=["--data=data.txt", "--steps=2", f"--tensorboard={path}"])
        check(not re.search("^step 1", r.err, re.M), "told after training, not before:", r)
    bad(2, "--tensorboard needs", args=["--data=data.txt", "--steps=2", "--tensorboard="])
    good("--data=data.txt", "--steps=40", "--tensorboard=b", "--save=c")
    r = bad(1, "b/events.out.tfevents.", "File too large", limit=4000,
            args=["--data=data.txt", "--steps=40", "--tensorboard=b"])
    check("step 40/40" in r.err, "the run is lost with its events:", r)


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
