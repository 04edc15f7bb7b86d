#!/usr/bin/env python3
"""What a save leaves when the machine stops at any moment. A run records the calls that change files; for every prefix
of them this program makes the states that a file system may leave, and each must hold the old checkpoint or the new
one, byte for byte, or none where there was none.

A file's bytes are on the disk after fsync of the file, a name after fsync of its folder; both may also be there
earlier, in any combination. States of a prefix: everything; nothing that was not synced; names without bytes; bytes
without names; bytes cut in half (the last write torn, or all of them); each name that was not synced alone there or
alone missing; and for shards each file alone without its unsynced bytes.

usage: crash_states.py ROOT HEDDLEC LIBRARY
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from states import state

SMALL = "layers=1 dim=32 heads=2 seq=16 train.batch=2"
WHOLE, SHARDED = "", "schedule.mesh.shard=2 schedule.fsdp=zero3"
# name: settings, steps of the save that was there before (0: none), arguments
SCENARIOS = {
    "replace": (WHOLE, 1, "--steps=2 --save=c --overwrite"),
    "first": (WHOLE, 0, "--steps=1 --save=c --overwrite"),
    "replace_shards": (SHARDED, 1, "--steps=2 --save=c --overwrite"),
    "first_shards": (SHARDED, 0, "--steps=1 --save=c --overwrite"),
    "same_step_again": (SHARDED, 2, "--steps=2 --resume=c --save=c --overwrite"),
    "shards_become_one": (SHARDED, 1, "--steps=2 --resume=c --save=c --overwrite"),
    "three_saves": (SHARDED, 1, "--steps=4 --save=c --overwrite --save-every=1"),
    "three_whole": (WHOLE, 1, "--steps=4 --save=c --overwrite --save-every=1"),
}


class File:
    """Bytes as written and as they were at the last fsync."""

    def __init__(self, data=b""):
        self.data, self.synced, self.last = bytes(data), bytes(data), None  # last: start and end of the last write
        self.made = {}  # what bytes_in gives until the next change: equal objects hash once

    def set(self, data, last=None):
        self.data, self.last, self.made = data, last, {}

    def sync(self):
        self.synced, self.last, self.made = self.data, None, {}

    def bytes_in(self, how):
        if how not in self.made:
            self.made[how] = self.make(how)
        return self.made[how]

    def make(self, how):
        if how == "all":
            return self.data
        if how == "torn" and self.last:  # half of the last write, the rest of its room is zeros
            start, end = self.last
            middle = (start + end) // 2
            return self.data[:middle] + bytes(end - middle) + self.data[end:]
        if how == "half" and self.data != self.synced:
            return self.data[: (len(self.synced) + len(self.data)) // 2]
        return self.synced


class Disk:
    """Names now and names on the disk; a folder is None, a file a File. Unsynced content is a list of changes in
    order."""

    def __init__(self, before, folder):
        """As `before` was, for calls that name `folder`."""
        self.now, self.folder, self.fds = {}, folder, {}
        for here, folders, files in os.walk(before):
            for name in folders:
                self.now[os.path.relpath(os.path.join(here, name), before)] = None
            for name in files:
                path = os.path.join(here, name)
                with open(path, "rb") as f:
                    self.now[os.path.relpath(path, before)] = File(f.read())
        self.disk, self.changes = dict(self.now), []  # changes: (folder, [(name, file or "gone")])

    def path(self, text):
        return os.path.relpath(os.path.join(self.folder, text), self.folder)

    def change(self, *names):
        """Names that change together, as a rename's two."""
        for name, to in names:
            if to == "gone":
                self.now.pop(name, None)
            else:
                self.now[name] = to
        self.changes.append(names)

    def sync(self, name):
        """The names in a folder are on the disk."""
        left = []
        for names in self.changes:
            if all(os.path.dirname(n) == ("" if name == "." else name) for n, _ in names):
                apply(self.disk, names)
            else:
                left.append(names)
        self.changes = left

    def states(self):
        """What may be found after a crash: pairs of a name and its files."""
        changed = [f for f in {id(f): f for f in self.now.values() if f}.values() if f.data != f.synced]
        every = self.changes
        names = {"every name": every, "no name": []}
        for i in range(len(every)):
            names[f"change {i} alone"] = [every[i]]
            names[f"all but change {i}"] = every[:i] + every[i + 1:]
            names[f"changes before {i}"] = every[:i]
        for which, some in names.items():
            files = dict(self.disk)
            for change in some:
                apply(files, change)
            for how in ("all", "synced", "torn", "half") if changed else ("all",):
                yield f"{which}, bytes: {how}", {n: f and f.bytes_in(how) for n, f in files.items()}
            for one in changed if len(changed) > 1 else ():
                yield f"{which}, one file synced", {n: f and f.bytes_in("synced" if f is one else "all")
                                                    for n, f in files.items()}


def apply(files, names):
    for name, to in names:
        if to == "gone":
            files.pop(name, None)
        else:
            files[name] = to


def calls(path):
    """The lines of a trace: (op, number, number, bytes)."""
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        end = data.index(b"\n", at)
        op, a, b, n = data[at:end].split()
        at = end + 1 + int(n)
        yield op.decode(), int(a), int(b), data[end + 1 : at]


def play(disk, op, a, b, data):
    """One call of the trace, on the disk."""
    text = "" if op == "write" else data.decode(errors="replace")
    if op == "open":
        path = disk.path(os.path.join(disk.folder, text))
        if path.startswith(".."):  # not in the run's folder
            disk.fds[a] = None
            return
        if b & os.O_CREAT and path not in disk.now:
            disk.change((path, File()))
        disk.fds[a] = [path, disk.now.get(path), 0]
        if b & os.O_TRUNC and disk.now.get(path):
            disk.now[path].set(b"")
    elif op == "close":
        disk.fds.pop(a, None)
    elif op == "mkdir":
        disk.change((disk.path(text), None))
    elif op == "rename":
        old, new = (disk.path(t) for t in text.split("\0"))
        disk.change((new, disk.now[old]), (old, "gone"))
    elif op in ("unlink", "rmdir"):
        folder = disk.fds.get(a)
        disk.change((disk.path(os.path.join(folder[0] if folder else "", text)), "gone"))
    elif disk.fds.get(a) and disk.fds[a][1]:
        file = disk.fds[a][1]
        if op == "write":
            start = disk.fds[a][2] if b < 0 else b
            gap = bytes(max(0, start - len(file.data)))
            file.set(file.data[:start] + gap + data + file.data[start + len(data):], (start, start + len(data)))
            disk.fds[a][2] = start + len(data) if b < 0 else disk.fds[a][2]
        elif op == "truncate":
            file.set(file.data[:b])
        elif op == "sync":
            file.sync()
    elif op == "sync" and disk.fds.get(a):
        disk.sync(disk.fds[a][0])


def run(command, folder, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FAULT", "LD_PRELOAD"))}
    r = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
                       env=dict(kept, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", **more))
    if r.returncode:
        sys.exit(f"{' '.join(command)}: exit {r.returncode}\n{r.stdout.decode(errors='replace')}")


def record(name, work, programs, library):
    """Runs a scenario: the folders before and after it, and the trace."""
    settings, steps, args = SCENARIOS[name]
    before, after, trace = (os.path.join(work, f"{name}.{what}") for what in ("before", "after", "trace"))
    os.mkdir(before)
    with open(os.path.join(before, "data.txt"), "wb") as f:
        f.write(bytes((i * 7 + i // 11) % 251 for i in range(3000)))
    if steps:
        run([programs[settings], "--data=data.txt", f"--steps={steps}", "--seed=3", "--save=c",
             "--overwrite"], before)
    shutil.copytree(before, after)
    program = programs[WHOLE if name == "shards_become_one" else settings]
    run([program, "--data=data.txt", *args.split()], after, LD_PRELOAD=library, FAULT_TRACE=trace)
    return before, after, list(calls(trace))


def loaded(files):
    """What a state of the disk loads: the checkpoint, None without one, or an error's text."""
    try:
        return state(lambda name: files.get(f"c/{name}"))
    except (ValueError, KeyError, IndexError, struct.error) as e:
        return f"error: {type(e).__name__}: {e}"


def examine(name, before, after, trace):
    """The number of states, of different ones, and what is wrong with some of them."""
    whole = lambda disk: {n: f and f.bytes_in("all") for n, f in disk.now.items()}
    disk, good = Disk(before, after), []
    good.append(loaded(whole(disk)))
    for call in trace:
        play(disk, *call)
        if call[0] == "rename":
            good.append(loaded(whole(disk)))
    new, problems, seen, count = loaded(whole(Disk(after, after))), [], set(), 0
    if good[-1] != new or len(set(good)) < (1 if name == "same_step_again" else 2):
        problems.append(f"{name}: the trace does not lead from the old checkpoint to the new one")
    disk = Disk(before, after)
    for i, call in enumerate(trace):
        play(disk, *call)
        for what, files in disk.states():
            key = frozenset((n, f) for n, f in files.items() if n.startswith("c/") and f is not None)
            count += 1
            if key in seen:
                continue
            seen.add(key)
            found = loaded(files)
            if found not in good:
                problems.append(f"{name}: after call {i + 1} ({call[0]}), {what}: "
                                f"{found if str(found).startswith('error') else 'neither the old nor the new one'}")
    for what, files in disk.states():  # the run has said that it saved
        if loaded(files) != new:
            problems.append(f"{name}: at the end, {what}: the new checkpoint is lost")
    return count, len(seen), problems


def main():
    root, compiler, library = (os.path.abspath(a) for a in sys.argv[1:4])
    states, wrong = 0, []
    with tempfile.TemporaryDirectory() as work:
        programs = {}
        for settings in (WHOLE, SHARDED):
            programs[settings] = os.path.join(work, f"program{len(programs)}")
            sets = [w for s in f"{SMALL} {settings}".split() for w in ("--set", s)]
            run([compiler, os.path.join(root, "examples/tiny/tiny.hd"), "-o", programs[settings], *sets], work)
        for name in SCENARIOS:
            before, after, trace = record(name, work, programs, library)
            count, different, problems = examine(name, before, after, trace)
            print(f"{name}: {len(trace)} calls, {count} states, {different} of them different, {len(problems)} wrong")
            states += count
            wrong += problems
            if not examine(name, before, after, [c for c in trace if c[0] != "sync"])[2]:
                wrong.append(f"{name}: without a single fsync every state is said to be right")
    for problem in wrong[:40]:
        print(problem)
    print(f"{states} states, {len(wrong)} wrong")
    return 1 if wrong or not states else 0


if __name__ == "__main__":
    sys.exit(main())
