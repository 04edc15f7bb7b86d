#!/usr/bin/env python3
"""One fault at a time: every allocation, open, read, write, fsync, rename, mmap, stat, lock, connection, send, receive,
poll and thread of short runs fails at its n-th call, for every n, once or from then on; what moves bytes is also cut
short and interrupted, or would have to wait, or finds that the other end has gone. After each run its exit status and
message must say what happened, and the checkpoint must be the old one or a new one, byte for byte.

usage: faults.py ROOT HEDDLEC LIBRARY TOY [--all] [SCENARIO...]

Without --all a fixed part of the points runs, the same at every call. interpose.c makes the faults.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import points
from states import state

ROOT, HEDDLEC, LIBRARY, TOY = (os.path.abspath(a) for a in sys.argv[1:5])
ALL = "--all" in sys.argv[5:]
CHOSEN = [a for a in sys.argv[5:] if a != "--all"]
NETWORK = ("connect", "send", "recv", "poll")
KINDS = ("alloc", "read", "write", "sync", "rename", "mmap", "open", "stat", "lock", "connect", "thread", "other")
MODES = {"read": (":short", ":eintr"), "write": (":short", ":eintr"), "lock": (":eintr", ":again"),
         "connect": (":eintr", ":again"), "send": (":short", ":eintr", ":again"),
         "recv": (":short", ":eintr", ":again", ":end"), "poll": (":eintr",)}
RANKS = 3  # of the program whose ranks are processes; each has every third fault of the network
SMALL = "layers=1 dim=32 heads=2 seq=16 train.batch=2"
SAMPLE = 16  # of each scenario
FIRST = 20  # calls of each kind of the network, of which the sample is
# With a fault ranks wait for each other less long; on a busy machine one of them may then give up, which is an error
# like another.
IMPATIENT = {"HEDDLE_CONNECT_SECONDS": "5", "HEDDLE_SILENCE_SECONDS": "5", "HEDDLE_GRACE_SECONDS": "3"}
TRAIN = "--data=data.txt --log=log.jsonl --digest=digest"

# name: (program, arguments, folder of the checkpoint, folders and files there before)
SCENARIOS = {
    "train": ("one", f"{TRAIN} --steps=2 --save=c --overwrite", "c", ("c",)),
    "new_folder": ("one", f"{TRAIN} --steps=1 --save=n", "n", ()),
    "resume": ("one", f"{TRAIN} --steps=2 --resume=c --save=c --overwrite", "c", ("c",)),
    "export": ("one", "--steps=0 --resume=c --export=w.safetensors --digest=digest", "c", ("c", "w.safetensors")),
    "init": ("one", f"{TRAIN} --steps=1 --init=w.safetensors --save=c --overwrite", "c", ("c", "w.safetensors")),
    "evaluate": ("one", "--steps=0 --resume=c --val=data.txt --log=log.jsonl --digest=digest", "c", ("c",)),
    "profile": ("one", "--data=data.txt --steps=1 --profile=p.json --timeline=t.html --save=c --overwrite",
                "c", ("c",)),
    "shards": ("two", f"{TRAIN} --steps=2 --save=c --overwrite", "c", ("c",)),
    "shards_resume": ("two", f"{TRAIN} --steps=2 --resume=c --save=c --overwrite", "c", ("c",)),
    "shards_export": ("two", "--steps=0 --resume=c --export=w.safetensors --digest=digest", "c",
                      ("c", "w.safetensors")),
    "processes": ("toy", f"--ranks={RANKS} --data=data.txt --steps=1 --save=c --overwrite --digest=digest",
                  "c", ("c",)),
    "network": ("toy", f"--ranks={RANKS} --data=data.txt --steps=1 --save=c --overwrite --digest=digest",
                "c", ("c",)),
}


def environment(more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FAULT", "RANK", "WORLD_SIZE", "LD_PRELOAD"))}
    return dict(kept, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
                **more)


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def run(command, folder, more, wait=600):
    r = subprocess.run(command, cwd=folder, env=environment(more), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       stdin=subprocess.DEVNULL, timeout=wait)
    return r.returncode, r.stderr.decode(errors="replace")


def must(command, folder, more=None):
    status, err = run(command, folder, more or {})
    if status:
        sys.exit(f"{' '.join(command)}: exit {status}\n{err}")


def numbers(log):
    """What a log says besides times."""
    lines = [json.loads(l) for l in (log or b"").decode().splitlines()]
    return [{k: v for k, v in l.items() if k in ("step", "loss", "grad_norm", "val_loss", "tokens")} for l in lines]


class Scenario:
    def __init__(self, name, programs, before, work):
        self.name, self.work = name, os.path.join(work, name)
        program, args, self.saves, self.there = SCENARIOS[name]
        self.command, self.before = [programs[program], *args.split()], before[program]
        os.mkdir(self.work)
        counts, self.outputs = {}, {}
        folder = self.fresh("reference")
        status, err = self.start(folder, {"FAULT_OUT": "../counts"})
        if status:
            sys.exit(f"{name} without a fault: exit {status}\n{err}")
        self.valid = {self.state(self.fresh("old")), self.state(folder)}
        if "--steps=2" in self.command:  # data that cannot be read ends a run after its first step
            less = self.fresh("less")
            run([w.replace("--steps=2", "--steps=1") for w in self.command], less, {})
            self.valid.add(self.state(less))
        self.new = self.state(folder)
        self.outputs = self.outputs_of(folder)
        for line in read(os.path.join(self.work, "counts")).decode().splitlines():
            what, kind, n, rank = line.split()
            if what == "count":
                counts[kind, int(rank)] = int(n)
        most = {kind: max(n for (k, _), n in counts.items() if k == kind) for kind, _ in counts}
        if name == "network":
            # how many calls wait for others, or show that a rank lives, depends on time; the first are always there
            calls = [(f"{kind}:{n}", f"@{n % RANKS}") for kind in NETWORK for n in range(1, most[kind] + 1)
                     if n <= (counts.get((kind, n % RANKS), 0) if ALL else FIRST)]
        else:
            calls = [(f"{kind}:{n}", "") for kind in KINDS for n in range(1, most[kind] + 1)]
        self.points = [f"{call}{mode}{at}" for call, at in calls
                       for mode in ("", "+") + MODES.get(call.split(":")[0], ())]

    def fresh(self, name):
        folder = os.path.join(self.work, name)
        os.mkdir(folder)
        for there in ("data.txt", *self.there):
            source = os.path.join(self.before, there)
            (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, os.path.join(folder, there))
        return folder

    def start(self, folder, more):
        return run(self.command, folder, dict(more, LD_PRELOAD=LIBRARY))

    def state(self, folder):
        return state(lambda name: read(os.path.join(folder, self.saves, name)))

    def outputs_of(self, folder):
        at = {n: read(os.path.join(folder, n)) for n in ("digest", "w.safetensors")}
        return dict(at, log=numbers(read(os.path.join(folder, "log.jsonl"))))

    def wrong(self, point):
        """None, or what is wrong after a run with this fault."""
        folder = self.fresh(point.replace(":", "-"))
        try:
            status, err = self.start(folder, {"FAULT": point, "FAULT_OUT": "fired", **IMPATIENT})
            problem = self.judge(folder, status, err)
        except subprocess.TimeoutExpired:
            problem = "the run hangs"
        except (ValueError, KeyError, IndexError) as e:
            problem = f"the checkpoint cannot be loaded: {e}"
        fired = (read(os.path.join(folder, "fired")) or b"").decode()
        shutil.rmtree(folder)
        where = [l.split()[-1] for l in fired.splitlines() if l.startswith("fired")]
        return bool(where), problem and f"{self.name} {point} ({where[0] if where else 'not reached'}): {problem}"

    def judge(self, folder, status, err):
        found = self.state(folder)
        if status not in (0, 1, 2):
            return f"exit {status}\n{err[-600:]}"
        if found not in self.valid:
            return "the checkpoint is neither the old nor the new one"
        if status and not any(l.startswith(("error: ", "libgomp: ")) for l in err.splitlines()):
            return f"exit {status} without an error\n{err[-600:]}"
        if status:
            exported = read(os.path.join(folder, "w.safetensors"))
            old = read(os.path.join(self.before, "w.safetensors")) if "w.safetensors" in self.there else None
            return None if exported in (None, old, self.outputs["w.safetensors"]) else "the export is half of one"
        if found != self.new:
            return f"exit 0, and nothing is saved\n{err[-600:]}"
        outputs = self.outputs_of(folder)
        other = [n for n in outputs if outputs[n] != self.outputs[n]]
        return f"exit 0, and another {', '.join(other)}\n{err[-600:]}" if other else None


def prepare(work):
    """Programs, and for each of them a folder with data, a checkpoint and weights."""
    programs, before = {"toy": TOY}, {}
    for name, more in (("one", []), ("two", ["schedule.mesh.shard=2", "schedule.fsdp=zero3"])):
        programs[name] = os.path.join(work, f"program-{name}")
        sets = [w for s in SMALL.split() + more for w in ("--set", s)]
        must([HEDDLEC, os.path.join(ROOT, "examples/tiny/tiny.hd"), "-o", programs[name], *sets], work)
    for name, program in programs.items():
        before[name] = os.path.join(work, f"before-{name}")
        os.mkdir(before[name])
        with open(os.path.join(before[name], "data.txt"), "wb") as f:
            f.write(bytes((i * 7 + i // 11) % 251 for i in range(3000)))
        several = [f"--ranks={RANKS}"] if name == "toy" else []
        must([program, "--data=data.txt", "--steps=1", "--seed=3", "--save=c", "--overwrite",
              "--export=w.safetensors", *several],
             before[name])
    return programs, before


def main():
    with tempfile.TemporaryDirectory() as work:
        programs, before = prepare(work)
        scenarios = ((name, Scenario(name, programs, before, work)) for name in CHOSEN or SCENARIOS)
        return points.run(scenarios, None if ALL else SAMPLE)


if __name__ == "__main__":
    sys.exit(main())
