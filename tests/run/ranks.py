#!/usr/bin/env python3
"""Programs of several ranks (threads, target host): what all ranks do together, and what happens to one of them alone.
Usage: ranks.py ROOT HEDDLEC [CASE...]. Cases as in cases.py. Every run has a time limit: a hang is a failure.
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import compiled
from cases import STALL, check, one_error, wait_until
from compiled import (SEQ, bad, digest_of, good, read, tensors_of, text_file, train_digest, words_of, write,
                      write_tensors)

STEPS = 4
STRATEGIES = ("none", "zero1", "zero2", "zero3")


def mesh(shard, strategy="zero3", *more, replicate=1):
    """Settings of a program of shard x replicate ranks."""
    several = (f"schedule.mesh.replicate={replicate}",) if replicate > 1 else ()
    return (f"schedule.mesh.shard={shard}", f"schedule.fsdp={strategy}") + several + more


ONE, TWO, THREE, FOUR = (), mesh(2), mesh(3), mesh(4)
HYBRID = mesh(2, "zero2", replicate=2)


# --- the command line


def case_ranks_option():
    text_file()
    for settings, ranks in ((TWO, 2), (THREE, 3), (HYBRID, 4)):
        whole = train_digest("a", steps=2, settings=settings)
        check(train_digest("b", f"--ranks={ranks}", steps=2, settings=settings) == whole,
              f"--ranks={ranks} is what the program has anyway")
        for other in (1, ranks + 1):
            bad(2, f"--ranks={other}", f"{ranks} ranks", args=["--data=data.txt", "--steps=1", f"--ranks={other}"],
                settings=settings)


def case_launched_as_processes():
    """The ranks of this target are threads: a launcher's many processes would each be the whole run. One of them says
    so."""
    text_file()
    for settings in (ONE, TWO):
        for names in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
                      ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")):
            for rank in ("0", "1"):
                r = compiled.run("--data=data.txt", "--steps=1", "--log=log.jsonl", settings=settings,
                                 env=dict(zip(names, (rank, "2"))))
                check(r.status == 2 and not os.path.exists("log.jsonl"), "expected exit 2 and no run:", r)
                check((r.err.count("error: ") == 1 and "threads" in r.err) if rank == "0" else not r.err,
                      "one rank says why:", r)
            r = compiled.run("--bogus", settings=settings, env=dict(zip(names, ("1", "2"))))
            check(r.status == 2 and not r.err, "bad usage is told by rank 0 alone:", r)
        good("--data=data.txt", "--steps=1", settings=settings, env={"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"})


def case_log():
    text_file()
    for settings, ranks in ((TWO, 2), (HYBRID, 4)):
        r = good("--data=data.txt", "--steps=3", "--val=data.txt", "--log=log.jsonl", settings=settings)
        check(f"on {ranks} ranks" in r.err and f"{ranks * 2 * SEQ} tokens a step" in r.err, "the first line:", r)
        check(len(re.findall(r"^step 3/3 ", r.err, re.M)) == 1, "one rank tells:", r)
        lines = [json.loads(l) for l in read("log.jsonl").decode().splitlines()]
        steps = [l for l in lines if "loss" in l]
        check([l["step"] for l in steps] == [1, 2, 3] and sum("val_loss" in l for l in lines) == 1, "lines of the log:",
              lines)
        for l in steps:
            check(l["ranks"] == ranks and l["tokens"] == l["step"] * ranks * 2 * SEQ, "ranks and tokens:", l)
            check(abs(l["tokens_per_second"] * l["seconds"] / (ranks * 2 * SEQ) - 1) < 0.1,
                  "tokens a second are of all ranks:", l)


# --- what is computed


def close_steps(a, b, what, loss=1e-5, norm=1e-4):
    for x, y in zip(a, b):
        u, v = [[float.fromhex(t) for t in line.split()[1:]] for line in (x, y)]
        check(abs(u[0] - v[0]) <= loss * abs(u[0]) and abs(u[1] - v[1]) <= norm * abs(u[1]), what, x, "|", y)


def case_one_batch_on_more_ranks():
    """The ranks' batches are those that one rank reads as one: the same data, the same loss."""
    whole = train_digest("a", settings=("train.batch=4",), steps=STEPS)[0]
    for settings in (mesh(2, "zero3", "train.batch=2"), mesh(4, "zero2", "train.batch=1"),
                     mesh(2, "zero1", "train.batch=1", replicate=2)):
        close_steps(whole, train_digest("b", settings=settings, steps=STEPS)[0],
                    "one batch on more ranks changes the step:")
    parts = train_digest("c", settings=("train.batch=2", "train.accumulate=2"), steps=STEPS)[0]
    for strategy in STRATEGIES:
        more = train_digest("d", settings=mesh(2, strategy, "train.batch=1", "train.accumulate=2"), steps=STEPS)[0]
        close_steps(parts, more, "micro-batches on more ranks change the step:")


def case_validation():
    """Validation reads the same windows on any number of ranks, when these divide the batches."""
    text_file()
    args = ["--steps=0", "--val=data.txt", "--log=log.jsonl"]

    def untrained(settings, batches):
        good(*args, f"--val-batches={batches}", "--export=x.safetensors", settings=settings)
        return json.loads(read("log.jsonl").decode().splitlines()[-1])["val_loss"]

    for batches in (4, 8):
        one = untrained(ONE, batches)
        for settings in (TWO, FOUR, HYBRID):
            other = untrained(settings, batches)
            check(abs(one - other) <= 1e-6 * one, f"{batches} batches: validation loss", one, "and on more ranks",
                  other)
    check(abs(untrained(THREE, 8) - untrained(ONE, 6)) < 1e-6 * 6, "8 batches on 3 ranks are not the first 6")
    check(untrained(FOUR, 1) == untrained(FOUR, 4), "every rank validates at least one batch")


def case_options_change_no_bit():
    text_file()
    for settings in (TWO, HYBRID):
        whole = train_digest("a", settings=settings, steps=STEPS)
        for option in ("--no-graph", "--val=data.txt --val-every=2", "--check", "--profile=p.json",
                       "--save=c --overwrite --save-every=2"):
            check(train_digest("b", *option.split(), settings=settings, steps=STEPS) == whole,
                  f"another digest with {option}")


def case_profile():
    """One process for each rank and one thread for each stream, each with its actions one after another; a collective
    is over on all ranks or on none."""
    text_file()
    for settings, ranks, streams in ((THREE, 3, ["compute", "gather", "reduce"]),
                                     (HYBRID, 4, ["compute", "gather", "reduce", "reduce_outer"])):
        good("--data=data.txt", "--steps=2", "--profile=p.json", settings=settings)
        events = json.loads(read("p.json"))["traceEvents"]
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        check(names == {(r, t): name for r in range(ranks) for t, name in enumerate(streams)},
              "ranks and streams of the profile:", names)
        spans = [e for e in events if e["ph"] == "X"]
        for key, name in names.items():
            own = [e for e in spans if (e["pid"], e["tid"]) == key]
            check(own and all(e["args"]["stream"] == name for e in own), f"actions of {name} on rank {key[0]}:",
                  own[:1])
            check(all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in zip(own, own[1:])),
                  f"{name} of rank {key[0]} does two things at once")
            check([e["name"] for e in own] == [e["name"] for e in spans if (e["pid"], e["tid"]) == (0, key[1])],
                  "ranks do different things")
        collectives = [[e for e in spans if e["pid"] == r and e["name"] in ("all_gather", "reduce_scatter")
                        and e["tid"] == 1] for r in range(ranks)]
        for same in zip(*collectives):
            if ranks == 3: # one group: nobody is done before everybody has begun
                check(max(e["ts"] for e in same) <= min(e["ts"] + e["dur"] for e in same) + 0.01,
                      "a collective ended before a rank had come:", same)


def case_strategies_agree():
    for shard in (2, 3):
        found = {s: train_digest("a", settings=mesh(shard, s), steps=STEPS) for s in STRATEGIES}
        check(all(f == found["none"] for f in found.values()), f"on {shard} ranks the strategies differ")


# --- weights in and out


def case_start_does_not_depend_on_the_mesh():
    good("--steps=0", "--export=one.safetensors", "--digest=one", "--seed=3")
    for settings in [mesh(2, s) for s in STRATEGIES] + [THREE, HYBRID, mesh(8)]:
        good("--steps=0", "--export=other.safetensors", "--digest=other", "--seed=3", settings=settings)
        check(read("one.safetensors") == read("other.safetensors"), "initial weights depend on the mesh:", settings)
        check(read("one") == read("other"), "the digest depends on the mesh:", settings)
        good("--steps=0", "--init=one.safetensors", "--export=again.safetensors", settings=settings)
        check(read("one.safetensors") == read("again.safetensors"), "weights read and written differ:", settings)


def case_check():
    text_file()
    good("--steps=0", "--export=w.safetensors")
    tensors, _ = tensors_of("w.safetensors")
    dtype, shape, data = tensors["blocks.0.mlp.fc.weight"]
    at = len(data) // 4 - 1  # the last element is not rank 0's
    write_tensors("x.safetensors",
                  dict(tensors, **{"blocks.0.mlp.fc.weight": (dtype, shape, data[: 4 * at] + b"\0\0\xc0\x7f")}))
    args = ["--data=data.txt", "--steps=3", "--init=x.safetensors", "--check"]
    bad(1, "parameter blocks.0.mlp.fc.weight", f"element {at} is nan", "unit ", "on rank ", args=args, settings=mesh(4))
    dtype, shape, data = tensors["wte.weight"]  # finite, and too large to go on with
    write_tensors("x.safetensors",
                  dict(tensors, **{"wte.weight": (dtype, shape, b"\xff\xff\x7f\x7f" * (len(data) // 4))}))
    for settings in (TWO, HYBRID):
        bad(1, "step 1:", "element", "on rank", "; see ", " of @micro_only", args=args + ["--save=c", "--overwrite"],
            settings=settings)
        check(not os.listdir("c"), "--check saves a state that is not finite:", os.listdir("c"))


# --- checkpoints


def case_resume_is_exact():
    for settings in (TWO, mesh(3, "zero1"), HYBRID, mesh(2, "zero2", "train.accumulate=3", "train.batch=1")):
        steps, params = train_digest("whole", steps=5, settings=settings)
        train_digest("first", "--save=c", "--overwrite", steps=2, settings=settings)
        check(train_digest("second", "--resume=c", steps=5, settings=settings) == (steps[2:], params),
              "a resumed run differs:", settings)
        shutil.rmtree("c")


def case_resume_under_another_strategy():
    """On one mesh the strategy may change, also in the middle of a run."""
    steps, params = train_digest("whole", steps=5, settings=mesh(2, "none"))
    for first, second in (("zero3", "none"), ("none", "zero3"), ("zero1", "zero2"), ("zero2", "zero1")):
        train_digest("first", "--save=c", "--overwrite", steps=2, settings=mesh(2, first))
        check(train_digest("second", "--resume=c", steps=5, settings=mesh(2, second)) == (steps[2:], params), first,
              "then", second, "differs")


def case_resume_under_another_mesh():
    text_file()
    settings = {"2": TWO, "1": ONE, "3": THREE, "4 zero1": mesh(4, "zero1"), "2x2": HYBRID, "8": mesh(8)}
    for source in ("2", "1", "2x2"):
        end = train_digest("a", "--save=c", "--overwrite", steps=3, settings=settings[source])[1]
        for target, s in settings.items():
            good("--data=data.txt", "--steps=3", "--resume=c", "--digest=b", "--save=d", "--overwrite", settings=s)
            check(digest_of("b")[1] == end, f"saved by {source}, read by {target}: other parameters")
            good("--data=data.txt", "--steps=3", "--resume=d", "--digest=b", settings=settings[source])
            check(digest_of("b")[1] == end, f"from {source} through {target} and back: other parameters")
            shutil.rmtree("d")
        shutil.rmtree("c")


def case_fewer_ranks_take_more_micro_batches():
    """Half the ranks, twice the micro-batches: the same batch a step, the same data, the same loss but for the order of
    sums."""
    steps = train_digest("whole", steps=6, settings=FOUR)[0]
    train_digest("first", "--save=c", "--overwrite", steps=3, settings=FOUR)
    for settings in (mesh(2, "zero3", "train.accumulate=2"), mesh(2, "none", "train.accumulate=2"),
                     ("train.accumulate=4",)):
        r = good("--data=data.txt", "--steps=6", "--resume=c", "--digest=second", settings=settings)
        check("note:" not in r.err, "a batch of the same size is nothing to note:", r)
        close_steps(steps[3:], digest_of("second")[0], "going on with fewer ranks changes the step:")
    r = good("--data=data.txt", "--steps=4", "--resume=c", settings=TWO)
    check("24 sequences in 3 steps, from now on a step reads 4" in r.err, "nothing says that the batch is another:", r)


def case_data_goes_on_under_another_mesh():
    """A resumed run reads on where the last one ended, however many ranks it has: the bad token comes at the same
    sequence."""
    tokens = [i % 200 for i in range(50 * SEQ + 1)]
    tokens[23 * SEQ + 5] = 300
    write("a.bin", words_of(tokens))
    tested = 0
    for seed in range(8):
        bad(1, "300", args=["--data=a.bin", "--steps=100", "--digest=d", f"--seed={seed}"])
        before = 2 * len(digest_of("d")[0])  # sequences of whole steps before it
        if before < 8:
            continue
        tested += 1
        good("--data=a.bin", "--steps=1", "--save=c", "--overwrite", f"--seed={seed}", settings=TWO)  # 4 sequences
        good("--data=a.bin", "--steps=2", "--save=c", "--resume=c", "--log=log.jsonl", settings=mesh(2, "zero1"))  # 8
        check(json.loads(read("log.jsonl").splitlines()[-1])["tokens"] == 8 * SEQ, "tokens so far:", read("log.jsonl"))
        bad(1, "300", args=["--data=a.bin", "--steps=100", "--resume=c", "--digest=d"])
        check(8 + 2 * len(digest_of("d")[0]) == before, "the data does not go on where it ended:",
              len(digest_of("d")[0]), before)
        shutil.rmtree("c")
    check(tested, "no seed reads far enough")


def shards_of(folder):
    _, meta = tensors_of(f"{folder}/checkpoint.safetensors")
    return os.path.join(folder, meta["folder"]), meta


def step_in(folder):
    return int(shards_of(folder)[1]["step"])


def case_checkpoint_files():
    text_file()
    r = good("--data=data.txt", "--steps=5", "--save=c", "--save-every=2", settings=mesh(2, "zero3", replicate=2))
    check(re.findall(r"^step (\d+)  saved", r.err, re.M) == ["2", "4", "5"], "saved at:", r)
    folder, meta = shards_of("c")
    check(sorted(os.listdir("c")) == ["checkpoint.safetensors", "step-5"], "older shards stay:", os.listdir("c"))
    check(sorted(os.listdir(folder)) == ["rank-0.safetensors", "rank-1.safetensors"], "only the first replica writes:",
          os.listdir(folder))
    check(meta["step"] == "5" and meta["shards"] == "2" and meta["model"] == "Tiny", "the manifest:", meta)
    for rank in (0, 1):
        _, shard = tensors_of(f"{folder}/rank-{rank}.safetensors")
        check(shard["shard"] == str(rank) and shard["model_hash"] == meta["model_hash"], "a shard's metadata:", shard)
    bad(1, "c/checkpoint.safetensors", "holds no weights itself", "--export",
        args=["--steps=0", "--init=c/checkpoint.safetensors"], settings=ONE)
    # and one rank goes on in the same folder
    good("--data=data.txt", "--steps=6", "--resume=c", "--save=c", "--overwrite", settings=ONE)
    check(os.listdir("c") == ["checkpoint.safetensors"], "shards stay when one file holds everything:", os.listdir("c"))


def case_resume_refused():
    text_file()
    good("--data=data.txt", "--steps=2", "--save=old", "--overwrite", settings=TWO)
    good("--data=data.txt", "--steps=3", "--save=c", "--overwrite", settings=TWO)
    folder, _ = shards_of("c")
    path, args = f"{folder}/rank-1.safetensors", ["--data=data.txt", "--steps=5", "--resume=c"]
    data = read(path)

    def refused(*words):
        for settings in (TWO, ONE, mesh(3, "zero1"), FOUR):
            one_error(compiled.run(*args, settings=settings), path, *words)

    os.remove(path)
    refused("No such file")
    for size in (0, 7, 100, len(data) // 2, len(data) - 1):
        write(path, data[:size])
        refused()
    for at in (0, 9, 200, len(data) // 2, len(data) - 1):
        flipped = bytearray(data)
        flipped[at] ^= 2
        write(path, bytes(flipped))
        refused()
    write(path, read(f"{shards_of('old')[0]}/rank-1.safetensors"))
    refused("is shard 1 of 2 of step 2")
    write(path, read(f"{folder}/rank-0.safetensors"))
    refused("is shard 0 of 2 of step 3")
    good("--data=data.txt", "--steps=3", "--save=other", "--overwrite", settings=mesh(2, "zero3", "dim=16"))
    write(path, read(f"{shards_of('other')[0]}/rank-1.safetensors"))
    refused("shard 1 of 2")
    good("--data=data.txt", "--steps=3", "--save=other", "--overwrite", "--seed=9", settings=TWO)
    write(path, read(f"{shards_of('other')[0]}/rank-1.safetensors"))
    refused()
    write(path, data)
    bad(1, "wte.weight", "[256,32]", "[256,16]", args=args, settings=mesh(2, "zero3", "dim=16"))
    bad(1, "train block", args=args, settings=mesh(2, "zero3", "train.clip=0.5"))
    manifest = bytearray(read("c/checkpoint.safetensors"))
    manifest[len(manifest) // 2] ^= 1
    write("c/checkpoint.safetensors", bytes(manifest))
    bad(1, "c/checkpoint.safetensors", args=args, settings=TWO)
    manifest[len(manifest) // 2] ^= 1
    write("c/checkpoint.safetensors", bytes(manifest))
    good(*args, settings=TWO)


def case_full_disk_on_one_rank():
    text_file()
    good("--data=data.txt", "--steps=2", "--save=c", "--overwrite", settings=FOUR)
    kept = {rank: read(f"c/step-2/rank-{rank}.safetensors") for rank in range(4)}
    for rank in (0, 2, 3):
        os.mkdir("c/step-4")
        os.symlink("/dev/full", f"c/step-4/rank-{rank}.safetensors")
        r = one_error(compiled.run("--data=data.txt", "--steps=4", "--resume=c", "--save=c", "--save-every=1",
                                   settings=FOUR),
                      f"step-4/rank-{rank}.safetensors", "No space left")
        check("step 3  saved" in r.err and "step 4  saved" not in r.err, "saved steps:", r)
        os.remove(f"c/step-4/rank-{rank}.safetensors")
        os.rmdir("c/step-4")
        check(sorted(os.listdir("c")) == ["checkpoint.safetensors", "step-3"], "files that stay:", os.listdir("c"))
        good("--data=data.txt", "--steps=3", "--resume=c", settings=FOUR)
        shutil.rmtree("c")
        good("--data=data.txt", "--steps=2", "--save=c", "--overwrite", settings=FOUR)
        check(all(read(f"c/step-2/rank-{k}.safetensors") == kept[k] for k in kept), "the same run saves other bytes")
    for limit in (4096, 20000):  # the disk is full for everybody
        r = compiled.run("--data=data.txt", "--steps=4", "--resume=c", "--save=c", settings=FOUR, limit=limit)
        one_error(r, "File too large")
        check(sorted(os.listdir("c")) == ["checkpoint.safetensors", "step-2"], "files that stay:", os.listdir("c"))
    good("--data=data.txt", "--steps=4", "--resume=c", "--save=c", "--overwrite", settings=TWO)


def case_outputs_on_a_full_disk():
    text_file()
    full = compiled.full_device()
    for option in ("log", "digest", "export", "profile"):
        r = bad(1, full, "No space left", args=["--data=data.txt", "--steps=2", f"--{option}={full}", "--save=c"],
                settings=TWO)
        check("step 2  saved" in r.err, "the run is lost with one of its outputs:", r)
        shutil.rmtree("c")
    for option in ("log", "digest", "export", "profile"):
        r = bad(1, f"--{option}", "No such file", args=["--data=data.txt", "--steps=2", f"--{option}=none/x"],
                settings=TWO)
        check("step 1" not in r.err, "told after training, not before:", r)


def start(*args, settings):
    return subprocess.Popen([compiled.programs.get(*settings), *args], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE)


def case_killed_while_it_saves():
    """One rank blocks on a pipe that nobody reads, after the others have saved; then the program is killed."""
    text_file()
    whole = train_digest("whole", steps=6, settings=TWO)
    good("--data=data.txt", "--steps=2", "--save=c", "--overwrite", settings=TWO)
    for rank in (0, 1):
        os.mkdir("c/step-4")
        os.mkfifo(f"c/step-4/rank-{rank}.safetensors")
        p = start("--data=data.txt", "--steps=6", "--resume=c", "--save=c", "--save-every=4", settings=TWO)
        other = f"c/step-4/rank-{1 - rank}.safetensors"
        wait_until(lambda: os.path.exists(other), "the other rank saves", process=p)
        p.kill()
        p.communicate()
        os.remove(f"c/step-4/rank-{rank}.safetensors")
        check(train_digest("rest", "--resume=c", steps=6, settings=TWO) == (whole[0][2:], whole[1]),
              "the older checkpoint is lost")
        os.makedirs("c/step-4", exist_ok=True)
        shutil.rmtree("c/step-4")
    good("--data=data.txt", "--steps=6", "--resume=c", "--save=c", "--overwrite", settings=THREE)
    check(sorted(os.listdir("c")) == ["checkpoint.safetensors", "step-6"], "files that stay:", os.listdir("c"))


def case_killed_at_any_moment():
    """Whenever a run that saves after each step is killed, what is in the folder is a checkpoint of one step."""
    text_file()
    chance = random.Random(5)
    good("--data=data.txt", "--steps=1", "--save=c", "--overwrite", settings=TWO)
    seen = {1}
    for i in range(12):
        p = start("--data=data.txt", "--steps=1000000", "--resume=c", "--save=c", "--overwrite", "--save-every=1",
                  settings=(TWO, THREE)[i % 2])
        more = chance.randrange(5)  # so many saves later, and at any moment until the next
        wait_until(lambda: step_in("c") >= max(seen) + more, more, "saves", process=p)
        time.sleep(0.05 * chance.random())
        p.kill()
        p.communicate()
        step = step_in("c")
        seen.add(step)
        good("--data=data.txt", f"--steps={step}", "--resume=c", settings=(TWO, ONE)[i % 2])
    check(len(seen) > 6, "the runs were killed before they saved:", seen)


# --- what one rank meets alone


def case_bad_token_in_one_window():
    tokens = [i % 200 for i in range(40 * SEQ + 1)]
    tokens[17 * SEQ + 3] = 300
    write("a.bin", words_of(tokens))
    learnt = set()
    for seed in range(6):
        bad(1, "300", args=["--data=a.bin", "--steps=100", "--digest=d", f"--seed={seed}"], settings=("train.batch=1",))
        sequences = len(digest_of("d")[0])
        for settings, ranks in ((mesh(2, "zero3", "train.batch=1"), 2), (mesh(4, "zero1", "train.batch=1"), 4),
                                (mesh(2, "zero2", "train.batch=1", "train.accumulate=2"), 4)):
            if os.path.isdir("c"):
                shutil.rmtree("c")
            r = compiled.run("--data=a.bin", "--steps=100", "--digest=d", "--save=c", "--overwrite", f"--seed={seed}",
                             settings=settings)
            one_error(r, "a.bin: token 300 at position 275")
            steps, _ = digest_of("d")
            check(len(steps) == sequences // ranks, "stopped after", len(steps), "steps, not", sequences // ranks)
            learnt.add(len(steps))
            check(not steps or f"step {len(steps)}  saved" in r.err,
                  "what was learnt before the bad token is not saved:", r)
    check(len(learnt) > 2, "all runs end at one place:", learnt)
    write("good.bin", words_of([5] * 3000))
    for settings in (TWO, mesh(4, "none")):
        bad(1, "300", "275", args=["--data=good.bin", "--val=a.bin", "--steps=2", "--val-batches=100"],
            settings=settings)


def case_reader_beside_a_writer():
    """A run replaces its checkpoint after every step: whoever reads it gets one of them whole."""
    text_file()
    for settings in (TWO, mesh(4, "zero1")):
        good("--data=data.txt", "--steps=1", "--save=c", "--overwrite", settings=settings)
        writer = subprocess.Popen([compiled.programs.get(*settings), "--data=data.txt", "--steps=2000000000",
                                   "--save=c", "--overwrite", "--save-every=1"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        try:
            for i in range(12):
                good("--steps=0", "--resume=c", "--export=w.safetensors", settings=(ONE, settings)[i % 2])
            check(writer.poll() is None, "the writer ended:", writer.returncode)
        finally:
            writer.terminate()
            writer.wait(timeout=STALL)
        shutil.rmtree("c")


def case_signals():
    text_file()
    for kind, settings in ((signal.SIGINT, TWO), (signal.SIGTERM, mesh(3, "zero1")), (signal.SIGHUP, HYBRID)):
        r = compiled.interrupt(kind, "--save=c", "--export=w.safetensors", "--digest=d", settings=settings)
        check(r.status == 128 + kind, f"expected exit {128 + kind} after {kind.name}:", r)
        done = re.search(r"^stopped by signal \d+ after step (\d+)", r.err, re.M)
        check(done, "nothing says that the run was stopped:", r)
        steps, params = digest_of("d")
        check(len(steps) == int(done.group(1)) == int(shards_of("c")[1]["step"]),
              "digest and checkpoint end elsewhere:", len(steps), done.group(0))
        good("--steps=0", "--init=w.safetensors", "--digest=e")
        check(digest_of("e")[1] == params, "the export is of another state")
        good("--data=data.txt", f"--steps={len(steps) + 1}", "--resume=c", settings=settings)
        shutil.rmtree("c")


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
