#!/usr/bin/env python3
"""Checkpoints of compiled programs: what they hold, what is refused, failures while one is written, signals, and two
processes with one folder. Usage: checkpoints.py ROOT HEDDLEC [CASE...]
"""
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

import compiled
from cases import STALL, Failed, check
from compiled import (bad, digest_of, full_device, good, interrupt, lines_of, make_checkpoint, read, run, saved,
                      tensors_of, text_file, train_digest, write)

PAUSE = 1.5  # seconds between two signals, more than the second within which the second one would be the same

# --- checkpoints


def case_resume():
    steps, params = train_digest("whole", steps=7)
    for k in (1, 3, 6):
        train_digest("first", f"--save=c{k}", steps=k)
        more, end = train_digest("second", f"--resume=c{k}", steps=7)
        check(more == steps[k:], f"{k} steps and a resumption differ from 7 steps:", more, steps[k:])
        check(end == params, f"{k} steps and a resumption end in other parameters")
    more, end = train_digest("reached", "--resume=c6", "--save=copy", steps=6)
    check(not more and end == train_digest("six", steps=6)[1], "resuming at the target changes something")
    check(read("copy/checkpoint.safetensors") == read("c6/checkpoint.safetensors"), "a checkpoint saved again differs")
    r = good("--data=data.txt", "--steps=2", "--resume=c6")
    check("already at step 6; --steps counts from the beginning" in r.err, "nothing says that it is further:",
          r)
    check(sorted(os.listdir("c6")) == ["checkpoint.safetensors"], "files in the checkpoint's folder:", os.listdir("c6"))
    bad(1, "--seed=5", args=["--data=data.txt", "--steps=7", "--resume=c3", "--seed=5"])
    write("other.txt", read("data.txt") + b"more")
    r = good("--data=other.txt", "--steps=7", "--resume=c3")
    check("other data" in r.err, "nothing says that the data is another:", r)


def case_resume_accumulated():
    settings = ("train.batch=1", "train.accumulate=4")
    steps, params = train_digest("whole", settings=settings, steps=5)
    train_digest("first", "--save=c", "--overwrite", settings=settings, steps=2)
    check(train_digest("second", "--resume=c", settings=settings, steps=5) == (steps[2:], params),
          "accumulated steps do not resume exactly")


def case_save_every():
    text_file()
    r = good("--data=data.txt", "--steps=5", "--save=c", "--overwrite", "--save-every=2")
    check(re.findall(r"^step (\d+)  saved", r.err, re.M) == ["2", "4", "5"], "saved at:", r)
    _, meta = tensors_of("c/checkpoint.safetensors")
    check(meta["step"] == "5" and meta["model"] == "Tiny", "metadata of the checkpoint:", meta)


def case_save_over_another_run():
    """The checkpoint of another run is replaced only where the options say so."""
    old = make_checkpoint()
    good("--data=data.txt", "--steps=4", "--save=other", "--seed=9")
    for more in ([], ["--resume=other"], ["--init=c"]):
        bad(1, "--save=c", "another run", "c/checkpoint.safetensors", "--resume=c", "--overwrite",
            args=["--data=data.txt", "--steps=5", "--save=c", *more])
        check(read("c/checkpoint.safetensors") == old and os.listdir("c") == ["checkpoint.safetensors"], "changed")
    os.symlink("c", "link")
    good("--data=data.txt", "--steps=5", "--save=link", "--resume=c")  # it is the same folder
    good("--data=data.txt", "--steps=5", "--save=c", "--overwrite", "--resume=other")
    good("--data=data.txt", "--steps=5", "--save=c", "--overwrite")
    bad(2, "--overwrite needs --save", args=["--data=data.txt", "--steps=5", "--overwrite"])


def steps_in(folder="c"):
    return sorted(int(m.group(1)) for m in (re.fullmatch(r"checkpoint-(\d+)", n) for n in os.listdir(folder)) if m)


def case_keep():
    """--keep=N: the newest N, each resumes exactly, `latest` links to the newest, and other runs' files stay."""
    os.mkdir("c")
    for name in ("checkpoint-x", "checkpoint-1.txt", "notes"):
        write(f"c/{name}", "mine")
    whole, params = train_digest("whole", steps=9)
    r = good("--data=data.txt", "--steps=7", "--save=c", "--save-every=2", "--keep=2")
    check(re.findall(r"^step (\d+)  saved c/checkpoint-(\d+)/", r.err, re.M) == [(s, s) for s in "2467"], "saved:", r)
    check(steps_in() == [6, 7] and os.readlink("c/latest") == "checkpoint-7", "kept:", os.listdir("c"))
    for source, step in (("c", 7), ("c/latest", 7), ("c/checkpoint-6", 6),
                         ("c/checkpoint-6/checkpoint.safetensors", 6)):
        more, end = train_digest("second", f"--resume={source}", steps=9)
        check((more, end) == (whole[step:], params), f"--resume={source} differs")
    bad(1, "--save=c", "another run", "--overwrite", args=["--data=data.txt", "--steps=5", "--save=c"])
    good("--data=data.txt", "--steps=8", "--save=c", "--keep=2", "--resume=c/checkpoint-6")  # 7 is not before 6
    check(steps_in() == [7, 8], "kept:", os.listdir("c"))
    good("--data=data.txt", "--steps=9", "--save=c", "--resume=c")  # now one that is replaced
    check(not os.path.lexists("c/latest") and "checkpoint.safetensors" in os.listdir("c"), "left:", os.listdir("c"))
    good("--data=data.txt", "--steps=9", "--resume=c", "--digest=d")
    good("--data=data.txt", "--steps=10", "--save=c", "--resume=c", "--keep=1")
    check(steps_in() == [10] and "checkpoint.safetensors" not in os.listdir("c"), "left:", os.listdir("c"))
    good("--data=data.txt", "--steps=3", "--save=c", "--keep=5", "--overwrite")
    check(steps_in() == [3] and os.readlink("c/latest") == "checkpoint-3", "overwritten:", os.listdir("c"))
    check(all(read(f"c/{n}") == b"mine" for n in ("checkpoint-x", "checkpoint-1.txt", "notes")), "a file is changed")
    os.remove("c/latest")
    os.symlink("checkpoint-8", "c/latest")  # which is gone: what is left is said, and stays
    bad(1, "--resume=c/checkpoint-3", args=["--data=data.txt", "--steps=5", "--resume=c"])
    bad(1, "--init=c/checkpoint-3", args=["--data=data.txt", "--steps=5", "--init=c"])
    bad(1, "--resume=c/checkpoint-3", "--overwrite", args=["--data=data.txt", "--steps=5", "--save=c", "--keep=1"])
    os.makedirs("only")  # the best of a run, whose others are gone
    os.rename("c/checkpoint-3", "only/best")
    bad(1, "only/best/checkpoint.safetensors", "--resume=only/best", "--overwrite",
        args=["--data=data.txt", "--steps=5", "--save=only"])
    good("--data=data.txt", "--steps=4", "--resume=only/best")
    os.remove("c/latest")
    os.mkdir("c/latest")
    bad(1, "c/latest", "a file has its name",
        args=["--data=data.txt", "--steps=1", "--save=c", "--keep=1", "--overwrite"])


def case_keep_best():
    """The state with the least validation loss stays, also over a resumption, and says its loss."""
    text_file()
    text_file("val.txt", 700)
    args = ["--data=data.txt", "--val=val.txt", "--save=c", "--keep-best", "--val-every=1", "--log=log.jsonl"]
    good(*args, "--steps=4")
    good(*args, "--steps=8", "--resume=c")
    vals = {l["step"]: l["val_loss"] for l in map(json.loads, read("log.jsonl").decode().splitlines())
            if "val_loss" in l}
    best = min(vals, key=vals.get)
    _, meta = tensors_of("c/best/checkpoint.safetensors")
    check(meta["step"] == str(best) and abs(float.fromhex(meta["val_loss"]) - vals[best]) < 1e-6, "best:", meta, vals)
    kept = read("c/best/checkpoint.safetensors")
    r = good(*args, "--steps=9", "--resume=c/best")
    again = "the best so far" in r.err
    check(again or read("c/best/checkpoint.safetensors") == kept, "a state that is no better replaces the best:", r)
    bad(1, "c/best/checkpoint.safetensors", "another run", args=[*args[:2], "--steps=1", "--save=" + only_best()])
    for option, needs in (("--keep-best", "--save"), ("--keep=2", "--save"), ("--keep-best --save=n", "--val")):
        bad(2, f"{option.split()[0].split('=')[0]} needs {needs}",
            args=["--data=data.txt", "--steps=1", *option.split()])


def only_best():
    os.remove("c/checkpoint.safetensors")
    return "c"


def case_save_by_time():
    """A run with --save-every=1s saves without a signal or a number of steps, and goes on."""
    text_file()
    r = interrupt([saved("c"), signal.SIGINT], "--save=c", "--save-every=1s")
    steps = re.findall(r"^step (\d+)  saved", r.err, re.M)
    check(r.status == 130 and len(steps) >= 2, "it says:", r)
    for text in ("0s", "0", "m", "1d", "-3m", "99999999999h", "1.5h", ""):
        bad(2, "--save-every", args=["--data=data.txt", "--steps=1", "--save=n", f"--save-every={text}"])
    good("--data=data.txt", "--steps=2", "--save=n", "--save-every=2h")


def case_resume_refused():
    data = make_checkpoint()
    os.mkdir("bad")
    path = "bad/checkpoint.safetensors"
    args = ["--data=data.txt", "--steps=5", "--resume=bad"]
    bad(1, "nowhere/checkpoint", "No such file", args=["--data=data.txt", "--steps=5", "--resume=nowhere"])
    (n,) = struct.unpack_from("<Q", data)
    for size in (0, 3, 8, 9, 8 + n // 2, 8 + n - 1, 8 + n, 8 + n + 100, len(data) // 2, len(data) - 17, len(data) - 16,
                 len(data) - 1):
        write(path, data[:size])
        bad(1, path, args=args)
    write(path, data + b"x")
    bad(1, path, "damaged", args=args)
    write(path, data.replace(b'"heddle_checkpoint":"1"', b'"heddle_checkpoint":"9"'))
    bad(1, path, "by a newer Heddle, in format 9; this program reads formats up to 3", args=args)
    for at in list(range(8)) + list(range(8, 8 + n, 97)) + [8 + n, 8 + n + 1234, len(data) - 20, len(data) - 16,
                                                            len(data) - 1]:
        for bit in (1, 128):
            flipped = bytearray(data)
            flipped[at] ^= bit
            write(path, bytes(flipped))
            bad(1, path, args=args)
    for key in ("step", "seed"):  # a number in the header, which no parser would miss
        at = data.index(f'"{key}":"'.encode()) + len(key) + 4
        write(path, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        bad(1, path, "damaged", args=args)
    write(path, bytes((i * i * 31 + i // 7) % 256 for i in range(5000)))
    bad(1, path, args=args)
    write(path, data)
    bad(1, f"--export={path} is a checkpoint: writing it would destroy that", args=["--steps=0", f"--export={path}"])
    check(read(path) == data, "a checkpoint is replaced")
    os.remove(path)
    good("--steps=0", f"--export={path}")
    bad(1, path, "not a checkpoint", "--init", args=args)
    os.remove(path)
    os.mkdir(path)
    bad(1, path, args=args)
    good("--data=data.txt", "--steps=5", "--resume=c")


def case_resume_other_model():
    make_checkpoint()
    args = ["--data=data.txt", "--steps=5", "--resume=c"]
    bad(1, "wte.weight", "[256,32]", "[256,16]", args=args, settings=("dim=16",))
    bad(1, "blocks.1", "no tensor", args=args, settings=("layers=2",))
    bad(1, "train block", "clip = 1.0 there, 0.5 in this program", "--init=c/checkpoint.safetensors", args=args,
        settings=("train.clip=0.5",))
    for path in ("c", "c/checkpoint.safetensors"):  # as that says
        good("--data=data.txt", "--steps=2", f"--init={path}", settings=("train.clip=0.5",))
    bad(1, "another model", args=args, settings=("heads=4",))  # of the same shapes
    good(*args, settings=("schedule.recompute=Block", "schedule.graph=none"))  # a schedule changes no bit


def case_loss_of_other_batches():
    """A model whose loss takes no batch compiles and can be inspected; its program says why it does not train."""
    write("f.hd", b"model F(dim = 6) { param w: [dim] = ones; fn loss(x: f32[dim]) { return mean(x * w); } }")
    subprocess.run([compiled.programs.compiler, "f.hd", "-o", "./f"], check=True)
    r = subprocess.run(["./f", "--steps=0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = r.stderr.decode()
    check(r.returncode == 1 and said.count("\n") == 1
          and "no run can feed model F" in said and "batch as its first dimension" in said, "it says:", said)


def case_failed_save():
    old = make_checkpoint()
    for limit in (4096, len(old) // 2, len(old) - 8):  # the disk is full at another place
        r = bad(1, "c/checkpoint.safetensors", "File too large",
                args=["--data=data.txt", "--steps=5", "--resume=c", "--save=c", "--overwrite"], limit=limit)
        check("step 5/5" in r.err, "the run did not go on to its end:", r)
        check(read("c/checkpoint.safetensors") == old,
              f"the old checkpoint changed when the disk was full after {limit} bytes")
        check(os.listdir("c") == ["checkpoint.safetensors"], "a temporary file stays:", os.listdir("c"))
    r = run("--data=data.txt", "--steps=5", "--resume=c", "--save=c", "--overwrite", "--save-every=1", limit=4096)
    check(r.status == 1 and "step 5/5" in r.err and "step 4/5" in r.err, "a save that fails on the way ends the run:",
          r)
    good("--data=data.txt", "--steps=5", "--resume=c", "--save=c", "--overwrite")


def case_unwritable():
    text_file()
    base = ["--data=data.txt", "--steps=2"]
    os.mkdir("folder")
    for option in ("log", "digest", "export", "profile"):
        for path, why in (("none/x", "No such file"), ("folder", "Is a directory"), ("data.txt/x", "Not a directory")):
            r = bad(1, f"--{option}", path, why, args=base + [f"--{option}={path}"])
            check("step 1" not in r.err, "told after training, not before:", r)
    for path, why in (("none/x", "No such file"), ("data.txt", "Not a directory"), ("data.txt/x", "Not a directory")):
        r = bad(1, "--save", path, why, args=base + [f"--save={path}"])
        check("step 1" not in r.err, "told after training, not before:", r)
    bad(1, "--save", args=base + ["--save=" + "/".join(["x" * 200] * 21)])
    full = full_device()
    for option in ("log", "digest", "export", "profile"):
        r = bad(1, full, "No space left", args=base + [f"--{option}={full}", "--save=c", "--overwrite"])
        check("step 2  saved" in r.err, "the run is lost with one of its outputs:", r)
        check(os.path.islink(full), f"--{option} replaced the device's link")
        os.remove("c/checkpoint.safetensors")


def case_outputs_are_not_inputs():
    data = read(text_file())
    os.symlink("data.txt", "link")
    for option in ("log", "digest", "export", "profile"):
        for path in ("data.txt", "link", "./data.txt"):
            bad(1, "--data", f"--{option}", args=["--data=data.txt", "--steps=1", f"--{option}={path}"])
    for x in ("x", "./x"):
        bad(1, "--log", "--digest", "are one file", args=["--data=data.txt", "--steps=1", "--log=x", f"--digest={x}"])
    os.mkdir("c")
    for option in ("save", "resume"):
        bad(1, f"--{option}=c", "would destroy the checkpoint",
            args=["--data=data.txt", "--steps=1", f"--{option}=c", "--export=./c/checkpoint.safetensors"])
    check(read("data.txt") == data, "the data was overwritten")


# --- signals


def case_signals():
    text_file()
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        r = interrupt(kind, "--save=c", "--overwrite", "--export=w.safetensors", "--digest=d")
        check(r.status == 128 + kind, f"expected exit {128 + kind} after {kind.name}:", r)
        done = re.search(r"^stopped by signal \d+ after step (\d+)", r.err, re.M)
        check(done, "nothing says that the run was stopped:", r)
        lines = lines_of("signal.jsonl")
        check(lines[-1]["step"] == int(done.group(1)) == len(lines), "the log ends elsewhere:", lines[-1],
              done.group(0))
        _, meta = tensors_of("c/checkpoint.safetensors")
        check(meta["step"] == done.group(1), "the checkpoint is of another step:", meta, done.group(0))
        steps, params = digest_of("d")
        check(len(steps) == int(done.group(1)), "the digest ends elsewhere:", len(steps))
        good("--steps=0", "--init=w.safetensors", "--digest=e")
        check(digest_of("e")[1] == params, "the export is of another state")
        good("--data=data.txt", f"--steps={len(steps) + 1}", "--resume=c")


def case_signal_repeats():
    """Several signals at once count once, as the two SIGTERM of GNU timeout do; SIGUSR1 saves and goes on."""
    text_file()
    ends = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
    r = interrupt([signal.SIGSTOP, *ends, signal.SIGCONT], "--save=c")  # they arrive together, however busy the machine
    check(r.status - 128 in ends and "stopped by signal" in r.err, "three signals at once:", r)
    good("--data=data.txt", "--steps=1", "--resume=c")
    os.remove("c/checkpoint.safetensors")
    r = interrupt([signal.SIGUSR2] * 3, "--save=c", "--overwrite")
    check(r.status == 128 + signal.SIGUSR2 and os.path.exists("c/checkpoint.safetensors"), "SIGUSR2:", r)
    r = interrupt([signal.SIGUSR2, signal.SIGTERM], "--save=c", "--overwrite")
    check(r.status - 128 in (signal.SIGUSR2, signal.SIGTERM) and "stopped by signal" in r.err,
          "SIGTERM after the warning:", r)
    os.remove("c/checkpoint.safetensors")
    r = interrupt([signal.SIGUSR1, saved("c"), signal.SIGINT], "--save=c", "--overwrite")
    steps = re.findall(r"^step (\d+)  saved", r.err, re.M)
    check(r.status == 130 and len(steps) == 2 and int(steps[0]) <= int(steps[1]), "SIGUSR1, then SIGINT:", r)
    r = interrupt([signal.SIGUSR1, signal.SIGINT])
    check(r.status == 130, "SIGUSR1 without a folder:", r)


def case_second_interrupt():
    """The program waits for a pipe that nobody reads: the first SIGINT changes nothing, a later one ends it."""
    text_file()
    sent = 0
    os.mkfifo("pipe")
    p = subprocess.Popen([compiled.programs.get(), "--data=data.txt", "--steps=1", "--export=pipe"],
                         stderr=subprocess.PIPE)
    while b"step 1/1" not in p.stderr.readline():
        check(p.poll() is None, "the run ended")
    try:
        p.send_signal(signal.SIGINT)
        for _ in range(int(STALL / PAUSE)):  # one within a second of the first, as the program sees it, is the same one
            time.sleep(PAUSE)
            if p.poll() is not None:
                break
            p.send_signal(signal.SIGINT)
            sent += 1
        check(p.poll() == -signal.SIGINT and sent, "a later SIGINT: status", p.returncode, "after", sent)
    finally:
        p.kill()
        p.stderr.close()


def case_data_becomes_shorter():
    """What was learnt is saved, the file and the step are named, and nothing ends by a signal."""
    text_file()
    for option in ("--data=short.txt", "--val=short.txt --val-every=1"):
        text_file("short.txt")
        r = interrupt([lambda: os.truncate("short.txt", 5)], *option.split(), "--save=c", "--overwrite")
        error = [l for l in r.err.splitlines() if l.startswith("error: ")]
        check(r.status == 1 and len(error) == 1 and "short.txt became shorter" in error[0]
              and re.search(r"step \d+: ", error[0]), "a file that becomes shorter:", r)
        _, meta = tensors_of("c/checkpoint.safetensors")
        check(re.search(f"^step {meta['step']}  saved", r.err, re.M), "nothing is saved:", r)
        os.remove("c/checkpoint.safetensors")


def case_reader_goes_away():
    text_file()
    p = subprocess.Popen([compiled.programs.get(), "--data=data.txt", "--steps=2000000000", "--log-every=1",
                          "--save=c", "--overwrite"], stderr=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
    p.stderr.readline()
    p.stderr.close()
    try:
        status = p.wait(timeout=STALL)
    except subprocess.TimeoutExpired:
        p.kill()
        raise Failed("the run goes on when nobody reads its lines")
    check(status == 128 + signal.SIGPIPE and os.path.exists("c/checkpoint.safetensors"), "nobody reads the lines: exit",
          status)


# --- two processes and one folder


def owner(host="elsewhere 1 pid:[1]", beat=0, number=0, pid=4711):
    """The text of a lock, as a process of another host writes it."""
    return (f"heddle 1 {'ab' * 16}\nhost {host}\nprocess {pid} 1\nsince 2026-01-01T00:00:00Z\n"
            f"beat {beat} {number:010d}\n")


def case_lock():
    old = make_checkpoint()
    check(os.listdir("c") == ["checkpoint.safetensors"], "the lock stays:", os.listdir("c"))
    args = ["--data=data.txt", "--steps=3", "--save=c", "--overwrite"]
    found = []

    def second():
        lines = dict(l.split(" ", 1) for l in read("c/lock").decode().splitlines())
        r = bad(1, f"process {lines['process'].split()[0]} on {lines['host'].split()[0]} saves there since",
                "c/lock", args=args)
        check("step 1" not in r.err, "told after training:", r)
        found.append(lines)

    r = interrupt([second, signal.SIGTERM], "--save=c", "--overwrite")
    check(found and r.status == 143 and "saved c/" in r.err, "a second run disturbs the first one:", r)
    check(read("c/checkpoint.safetensors") != old and os.listdir("c") == ["checkpoint.safetensors"], "left:",
          os.listdir("c"))
    r = interrupt(signal.SIGKILL, "--save=c", "--overwrite")
    check("lock" in os.listdir("c"), "a killed process takes its lock with it")
    good(*args)
    write("c/lock", b"")  # its owner was killed before it had written who it is
    good(*args)
    here = found[0]["host"]
    for left in (owner(here, pid=1), owner(here, pid=999999999), owner()):  # other start, no process, no sign of life
        write("c/lock", left)
        good(*args)
        check(os.listdir("c") == ["checkpoint.safetensors"], "left:", os.listdir("c"))


def case_lock_of_another_host():
    old = make_checkpoint()
    write("c/lock", owner(beat=60))
    p = subprocess.Popen([compiled.programs.get(), "--data=data.txt", "--steps=3", "--save=c"], stderr=subprocess.PIPE)
    check(b"waiting at most" in p.stderr.readline(), "it does not wait for a sign of life")
    write("c/lock", owner(beat=60, number=1))
    err = p.communicate(timeout=STALL)[1].decode()
    check(p.returncode == 1 and "process 4711 on elsewhere" in err and "and is alive" in err, "it said:", err)
    check(read("c/checkpoint.safetensors") == old and read("c/lock") == owner(beat=60, number=1).encode(),
          "the folder of another was changed")


def case_lock_lost():
    """What is removed is taken again; what another process has taken over is left to it."""
    make_checkpoint()
    r = interrupt([lambda: os.remove("c/lock"), signal.SIGTERM], "--save=c", "--overwrite")
    check(r.status == 143 and "saved c/" in r.err and os.listdir("c") == ["checkpoint.safetensors"], "removed:", r)
    old = read("c/checkpoint.safetensors")
    r = interrupt([lambda: write("c/lock", owner()), signal.SIGTERM], "--save=c", "--overwrite")
    check(r.status == 1 and "process 4711 on elsewhere saves there" in r.err and "taken it over" in r.err, "taken:", r)
    check(read("c/checkpoint.safetensors") == old and read("c/lock") == owner().encode(),
          "the folder of another was changed")


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
