#!/usr/bin/env python3
"""Runs whose ranks are processes: the program of toy_ranks.c for 3 ranks, started by --ranks=3 and as launchers start
it. Usage: processes.py TOY [CASE...], where TOY is its binary. No run may hang, and no process may be left.

The ranks have minutes for what must not fail, so that a busy machine changes nothing. Only where a rank is silent for
ever are its limits short: they must pass.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from cases import STALL, Failed, check, one_error, run_cases, wait_until
from compiled import Result, digest_of, lines_in, read, text_file, write

TOY = os.path.abspath(sys.argv[1])
RANKS, BATCH, SEQ = 3, 2, 8
PATIENT = {"HEDDLE_SILENCE_SECONDS": "300", "HEDDLE_CONNECT_SECONDS": "300", "HEDDLE_GRACE_SECONDS": "300"}
SILENT = {"HEDDLE_SILENCE_SECONDS": "3", "HEDDLE_GRACE_SECONDS": "6"}  # after which a silent rank counts as lost


def environment(more=None):
    kept = {k: v for k, v in os.environ.items()
            if not re.match("RANK|WORLD_SIZE|LOCAL_RANK|MASTER_|OMPI|PMI|SLURM|TORCHELASTIC|"
                            "HEDDLE_(SECRET|TRUST|PORT)", k)}
    return {**kept, **PATIENT, **(more or {})}


def start(*args, env=None):
    return subprocess.Popen([TOY, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(env),
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def end(p, wait=STALL):
    try:
        out, err = p.communicate(timeout=wait)
    except subprocess.TimeoutExpired:
        p.kill()
        raise Failed(f"the run hangs: {' '.join(p.args)}")
    return Result(p.args, p.returncode, out.decode(), err.decode())


def nobody_left():
    wait_until(lambda: not any(link(f"/proc/{d}/exe") == TOY and link(f"/proc/{d}/cwd") == os.getcwd()
                               for d in os.listdir("/proc") if d.isdigit()), "processes are left")


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return None


def run(*args, env=None):
    r = end(start(f"--ranks={RANKS}", *args, env=env))
    nobody_left()
    return r


def good(*args, **more):
    r = run(*args, **more)
    check(r.status == 0, "expected success:", r)
    return r


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def launched(*args, names=("RANK", "WORLD_SIZE", "LOCAL_RANK"), ranks=RANKS, other=None):
    """As torchrun or mpirun starts them: one process for each rank, which learns its rank from the environment.
    other: {rank: (arguments, in the place of those of the same option, more environment)}"""
    port = free_port()
    ps = []
    for r in range(ranks):
        more, env = (other or {}).get(r, ((), {}))
        named = {m.split("=")[0] for m in more}
        kept = [a for a in args if a.split("=")[0] not in named]
        ps.append(start(*kept, *more, env={**dict(zip(names, (str(r), str(ranks), str(r)))),
                                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **env}))
    results = [end(p) for p in ps]
    nobody_left()
    return results


def case_runs():
    text_file()
    r = good("--data=data.txt", "--val=data.txt", "--steps=5", "--digest=a", "--log=log.jsonl", "--export=w")
    check("on 3 ranks" in r.err and len(re.findall("^step 5/5 ", r.err, re.M)) == 1, "one rank tells:", r)
    steps = [l for l in map(json.loads, read("log.jsonl").decode().splitlines()) if "loss" in l]
    check([l["step"] for l in steps] == [1, 2, 3, 4, 5] and steps[4]["tokens"] == 5 * RANKS * BATCH * SEQ
          and steps[0]["ranks"] == RANKS, "the log:", steps)
    for names in (("RANK", "WORLD_SIZE", "LOCAL_RANK"),
                  ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
                  ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")):
        rs = launched("--data=data.txt", "--val=data.txt", "--steps=5", "--digest=b", "--export=v", names=names)
        check([r.status for r in rs] == [0] * RANKS and rs[0].err and not rs[1].err and not rs[2].err,
              "only rank 0 speaks:", *rs)
        check(read("a") == read("b") and read("w") == read("v"), "started by", names[0], "it computes something else")


def case_usage():
    text_file()
    one_error(run("--steps=1"), "--data", status=2)
    one_error(end(start("--data=data.txt", "--steps=1", "--ranks=2")), "3 ranks", status=2)
    one_error(end(start("--data=data.txt", "--steps=1")), "--ranks=3", status=2)
    for args, words in ((("--bogus",), "--bogus"), (("--data=data.txt", "--steps=x"), "--steps=x"),
                        (("--data=data.txt", "--steps=1", "--ranks=4"), "--ranks=4")):
        rs = launched(*args)
        check([r.status for r in rs] == [2] * RANKS and words in rs[0].err and not rs[1].err and not rs[2].err,
              "one rank tells of bad usage:", *rs)
    rs = launched("--data=data.txt", "--steps=1", ranks=2)
    check(all(r.status for r in rs) and "3 ranks" in rs[0].err and not rs[1].err,
          "the launched ranks are not those of the mesh:", *rs)
    rs = launched("--help")
    check("--data" in rs[0].out and not rs[1].out and not any(r.status for r in rs), "help is shown once:", *rs)


def case_checkpoints():
    text_file()
    good("--data=data.txt", "--steps=6", "--digest=a")
    good("--data=data.txt", "--steps=4", "--save=c", "--overwrite", "--save-every=1")
    good("--data=data.txt", "--steps=6", "--resume=c", "--digest=b")
    check(digest_of("b")[0] == digest_of("a")[0][4:] and digest_of("a")[1] == digest_of("b")[1],
          "a resumed run differs")
    check(sorted(os.listdir("c/step-4")) == [f"rank-{r}.safetensors" for r in range(RANKS)], "shards:",
          os.listdir("c/step-4"))
    os.mkdir("c/step-5")
    os.symlink("/dev/full", "c/step-5/rank-1.safetensors")
    one_error(run("--data=data.txt", "--steps=5", "--resume=c", "--save=c", "--overwrite"), "step-5/rank-1.safetensors",
              "No space left")
    os.rename("c/step-4/rank-2.safetensors", "kept")
    one_error(run("--data=data.txt", "--steps=5", "--resume=c"), "step-4/rank-2.safetensors", "No such file")
    os.rename("kept", "c/step-4/rank-2.safetensors")
    good("--data=data.txt", "--steps=5", "--resume=c")


def case_ranks_with_different_checkpoints():
    text_file()
    good("--data=data.txt", "--steps=2", "--save=c", "--overwrite")
    good("--data=data.txt", "--steps=3", "--save=d", "--overwrite")
    rs = launched("--data=data.txt", "--steps=4", "--resume=c", other={2: (["--resume=d"], {})})
    one_error(rs[0], "the ranks see different checkpoints")
    check(not any(r.err for r in rs[1:]) and all(r.status == 1 for r in rs), "one rank tells:", *rs)
    shutil.copytree("c", "e")
    rs = launched("--data=data.txt", "--steps=4", "--resume=c", other={2: (["--resume=e"], {})})
    check(not any(r.status for r in rs), "the same checkpoint at another place:", *rs)


def case_ranks_started_differently():
    text_file()
    write("longer.txt", read("data.txt") + b"x")
    os.mkdir("there")
    changed = bytearray(read("data.txt"))
    changed[len(changed) // 2] ^= 1
    write("there/data.txt", bytes(changed))
    good("--data=data.txt", "--steps=2", "--save=c", "--overwrite")
    for arguments, words in (
            (["--seed=7"], ["--seed is 7", "rank 0's is 1"]),
            (["--steps=3"], ["--steps is 3", "rank 0's is 4"]),
            (["--data=longer.txt"], ["--data is longer.txt (", "rank 0's is data.txt ("]),
            (["--data=there/data.txt"], ["--data is data.txt (", ", sample "]),
            (["--val=data.txt"], ["--val is data.txt (", "rank 0's is none"]),
            (["--resume=c"], ["--resume is a folder with a checkpoint", "rank 0's is none"]),
            (["--save=d"], ["--save is d", "rank 0's is none"]),
            (["--save=\x1b[2J"], ["--save is ?[2J"]),
            (["--digest=d"], ["--digest is given", "rank 0's is none"]),
            (["--check"], ["--check is yes", "rank 0's is no"])):
        rs = launched("--data=data.txt", "--steps=4", other={2: (arguments, {})})
        one_error(rs[0], "rank 2 was started differently: its", *words)
        check(not any(r.err for r in rs[1:]) and all(r.status == 1 for r in rs), "one rank tells:", *rs)
    rs = launched("--data=data.txt", "--steps=4", other={1: ((), {"HEDDLE_TUNE": "0"})})
    one_error(rs[0], "rank 1 was started differently: its HEDDLE_TUNE is 0, rank 0's is none")
    rs = launched("--data=data.txt", "--steps=4", other={1: (["--data=nowhere.txt"], {})})
    one_error(rs[0], "cannot read nowhere.txt")
    write("there/data.txt", read("data.txt"))
    rs = launched("--data=data.txt", "--steps=4", other={1: (["--data=there/data.txt"], {})})
    check(not any(r.status for r in rs), "the same file at another place:", *rs)


def case_bad_token_in_one_window():
    seen = set()
    for seed in range(5):
        tokens = bytes(i % 200 for i in range(60 * SEQ + 1))
        data = b"".join(bytes((t, 0)) for t in tokens)
        write("a.bin", data[: 2 * 170] + b"\x2c\x01" + data[2 * 171 :])
        r = one_error(run("--data=a.bin", "--steps=50", "--digest=d", "--save=c", "--overwrite", f"--seed={seed}"),
                      "a.bin: token 300 at position 170")
        n = len(digest_of("d")[0])
        seen.add(n)
        check(not n or f"step {n}  saved" in r.err, "what was learnt before the bad token is not saved:", r)
    check(len(seen) > 1, "all runs end at one place:", seen)


def case_one_rank_fails():
    text_file()
    for rank in range(RANKS):
        one_error(run("--data=data.txt", "--steps=50", "--digest=d", "--save=c", "--overwrite", "--export=w",
                      env={"TOY": f"{rank} 3 fail"}), "the device stopped in step 3")
        check(not os.path.exists("w") and not os.path.exists("c/checkpoint.safetensors"), "a failed run leaves weights")


def case_one_rank_is_gone():
    text_file()
    for rank in range(RANKS):
        for kind in ("exit", "kill"):
            r = run("--data=data.txt", "--steps=50", "--save=c", "--overwrite", env={"TOY": f"{rank} 3 {kind}"})
            check(r.status not in (0, 2) and f"rank {rank}" in r.err and "does not answer" not in r.err,
                  "nothing names the rank that is gone:", r)
            check(r.err.count("error: ") <= 2, "more than a survivor and the first process tell of it:", r)
    r = run("--data=data.txt", "--steps=50", env={"TOY": "1 3 stop", **SILENT})
    check(r.status == 1 and "rank 1 does not answer" in r.err and "step" in r.err, "a rank that is silent:", r)


def case_signals():
    text_file()
    for kind in (signal.SIGINT, signal.SIGTERM):
        if os.path.exists("s.jsonl"):
            os.remove("s.jsonl")
        p = start(f"--ranks={RANKS}", "--data=data.txt", "--steps=2000000000", "--log=s.jsonl", "--save=c",
                  "--digest=d")
        wait_until(lambda: lines_in("s.jsonl") > 3, "three steps", process=p)
        p.send_signal(signal.SIGUSR1)  # a checkpoint, and the run goes on
        wait_until(lambda: os.path.exists("c/checkpoint.safetensors"), "a checkpoint by SIGUSR1", process=p)
        check(p.poll() is None, "SIGUSR1 ends the run")
        p.send_signal(kind)
        r = end(p)
        nobody_left()
        done = re.search(r"^stopped by signal \d+ after step (\d+)", r.err, re.M)
        check(r.status == 128 + kind and done, f"expected exit {128 + kind}:", r)
        check(len(digest_of("d")[0]) == int(done.group(1)) and f"step {done.group(1)}  saved" in r.err,
              "digest and checkpoint end elsewhere:", r)
        shutil.rmtree("c")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(run_cases(globals(), sys.argv[2:], scratch))
