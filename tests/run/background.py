#!/usr/bin/env python3
"""Checkpoints that are written while the steps go on. A pipe in the place of a file holds a save up for as long as the
test wants, whatever the machine does meanwhile. Usage: background.py ROOT HEDDLEC [CASE...]
"""
import contextlib
import os
import re
import signal
import subprocess
import sys

import compiled
from cases import check
from compiled import bad, digest_of, good, lines_of, read, tensors_of, text_file, train_digest

TWO = ("schedule.mesh.shard=2", "schedule.fsdp=zero3")
BACKGROUND = r"^step (\d+)  saving in the background, [\d.]+ GiB copied in [\d.]+ s$"


def start(*args, settings=()):
    return subprocess.Popen([compiled.programs.get(*settings), f"--data={text_file()}", "--log=log.jsonl", *args],
                            stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def running(*args, settings=()):
    p = start(*args, settings=settings)
    try:
        yield p
    finally:
        p.kill()
        p.wait()
        p.stderr.close()


def until(p, words):
    """Reads what the program says up to the line with these words."""
    said = []
    for line in p.stderr:
        said.append(line)
        if words in line:
            return "".join(said)
    check(False, f"it never says '{words}':", "".join(said))


def steps_logged():
    return [line["step"] for line in lines_of("log.jsonl")]


def saved_at(steps, **more):
    good("--data=data.txt", f"--steps={steps}", "--save=plain", "--overwrite", **more)
    return read("plain/checkpoint.safetensors")


def case_steps_go_on():
    """While a save hangs the run goes on to the next one, which waits and says so; each has the state of its step."""
    os.mkdir("c")
    os.mkfifo("c/checkpoint.safetensors")
    with running("--steps=12", "--save=c", "--overwrite", "--save-every=5") as p:
        said = until(p, "step 10  waiting for the checkpoint of step 5, which is still being written")
        check(re.findall(BACKGROUND, said, re.M) == ["5"] and "saved c/" not in said, "it says:", said)
        check(steps_logged() == list(range(1, 11)), "steps until then:", steps_logged())
        states = [read("c/checkpoint.safetensors")]
        said = until(p, "step 5  saved c/checkpoint.safetensors")
        said = until(p, "step 12  waiting for the checkpoint of step 10")
        check(re.findall(BACKGROUND, said, re.M) == ["10"], "it says:", said)
        states += [read("c/checkpoint.safetensors") for _ in range(2)]
        said = p.stderr.read()
        check(p.wait() == 0 and "step 12  saved" in said and not re.search(BACKGROUND, said, re.M), "at the end:", said)
    for step, state in zip((5, 10, 12), states):
        check(state == saved_at(step), "the checkpoint of step", step, "is of another state")


def hold_up(folder, step):
    """A pipe in the place of what rank 1 writes of a step."""
    os.makedirs(f"{folder}/step-{step}")
    if not os.path.exists("pipe"):
        os.mkfifo("pipe")
    os.symlink(os.path.abspath("pipe"), f"{folder}/step-{step}/rank-1.safetensors")


def case_killed_on_the_way():
    """Until the last shard is written the checkpoint is the older one, and a run that is killed goes on from that."""
    whole, params = train_digest("whole", steps=6, settings=TWO)
    good("--data=data.txt", "--steps=1", "--save=c", settings=TWO)
    older = read("c/checkpoint.safetensors")
    hold_up("c", 3)
    with running("--steps=9", "--save=c", "--resume=c", "--save-every=3", settings=TWO) as p:
        until(p, "step 6  waiting for the checkpoint of step 3")
        check(read("c/checkpoint.safetensors") == older and steps_logged() == [2, 3, 4, 5, 6], "after step 6")
        check(sorted(os.listdir("c")) == ["checkpoint.safetensors", "lock", "step-1", "step-3"], os.listdir("c"))
    check(p.returncode == -signal.SIGKILL, "killed:", p.returncode)
    more, end = train_digest("more", "--resume=c", "--save=c", "--save-every=2", steps=6, settings=TWO)
    check((more, end) == (whole[1:], params), "another run after that")
    more, end = train_digest("end", "--resume=c", steps=6, settings=TWO)
    check(not more and end == params, "the last checkpoint is of another state")


def case_the_end_waits():
    """A signal while a save hangs: the program ends when that and its last one are whole."""
    hold_up("c", 2)
    with running("--steps=2000000000", "--save=c", "--overwrite", "--save-every=2", settings=TWO) as p:
        until(p, "step 4  waiting for the checkpoint of step 2")
        p.send_signal(signal.SIGTERM)
        check(p.poll() is None and not os.path.exists("c/checkpoint.safetensors"), "it has ended")
        read("pipe")
        said = p.stderr.read()
        check(p.wait() == 143 and "step 2  saved" in said and "stopped by signal 15 after step 4" in said, said)
    check(tensors_of("c/checkpoint.safetensors")[1]["step"] == "4", "another step is saved")
    good("--data=data.txt", "--steps=5", "--resume=c", settings=TWO)


def case_errors():
    """One that fails is reported once, at the latest by the next save or the end; the older one stays; status 1."""
    for settings in ((), TWO):
        os.makedirs("c/step-4", exist_ok=True)
        good("--data=" + text_file(), "--steps=1", "--save=c", "--overwrite", settings=settings)
        os.makedirs("c/step-4", exist_ok=True)
        os.symlink("/dev/full", "c/step-4/rank-1.safetensors")
        args = ["--data=data.txt", "--steps=6", "--save=c", "--resume=c", "--save-every=2"]
        if settings:
            r = bad(1, "rank-1.safetensors", "No space left", args=args, settings=settings)
            check(re.findall(r"^step (\d+)  saved", r.err, re.M) == ["2", "6"], "it says:", r)
            good("--data=data.txt", "--steps=7", "--resume=c", settings=settings)
        else:
            r = compiled.run(*args, limit=4096)
            check(r.status == 1 and r.err.count("error: ") == 3 and "step 6/6" in r.err, "it says:", r)
            check(tensors_of("c/checkpoint.safetensors")[1]["step"] == "1", "the older one is gone")
            os.remove("c/step-4/rank-1.safetensors")
            os.rmdir("c/step-4")


def files_of(folder):
    return {os.path.join(where, name)[len(folder):]: read(os.path.join(where, name))
            for where, _, names in os.walk(folder) for name in names}


def case_as_in_the_foreground():
    """What is kept, and the best, are byte for byte what a run that waits for each save writes."""
    text_file()
    text_file("val.txt", 900)
    for i, settings in enumerate(((), (*TWO, "schedule.mesh.replicate=2", "schedule.fsdp.unit=Block"),
                                  ("schedule.mesh.shard=2", "schedule.fsdp=none"))):
        said = {}
        for folder, copy in (("back", "1"), ("fore", "0")):
            r = good("--data=data.txt", "--val=val.txt", "--val-every=2", "--steps=7", f"--save={folder}{i}",
                     "--save-every=1", "--keep=3", "--keep-best", f"--digest={folder}.digest", settings=settings,
                     env={"HEDDLE_SAVE_COPY": copy})
            said[folder] = r
        check(files_of(f"back{i}") == files_of(f"fore{i}"), "other files:", settings)
        check(os.readlink(f"back{i}/latest") == "checkpoint-7", "another link")
        check(digest_of("back.digest") == digest_of("fore.digest"), "another run")
        check(len(re.findall(BACKGROUND, said["back"].err, re.M)) > 5, "not in the background:", said["back"])
        check("written between steps: HEDDLE_SAVE_COPY=0" in said["fore"].err
              and "in the background" not in said["fore"].err, "in the background:", said["fore"])


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
