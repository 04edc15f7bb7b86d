"""Follows what notes propose: a batch for device memory, a fraction for host memory, units for gradients.
Usage: advice.test.py GPT2.hd TINY.hd OLMOE.hd"""
import re
import subprocess
import sys

GPT2 = [sys.argv[1], "--set", "layers=4", "--set", "vocab=1024"]
TINY = [sys.argv[2], "--set", "layers=2", "--set", "schedule.recompute=none"]


def compile_(*arguments):
    done = subprocess.run(["heddlec", *arguments, "--target=cuda", "--emit=plan"], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stderr


def advice(*arguments):
    """What a refusal proposes; None: nothing."""
    status, said = compile_(*arguments)
    assert status == 1 and "are allowed" in said, said
    found = re.search(r"note: ([a-z.]+=[0-9.]+) fits", said)
    return found and found[1]


def follow(expected, *arguments):
    setting = advice(*arguments)
    assert setting and setting.startswith(expected), (arguments, setting)
    status, said = compile_(*arguments, "--set", setting)
    assert status == 0, (setting, said)


follow("train.batch=", *GPT2, "--set", "train.batch=32", "--device-memory=1GiB")
follow("train.batch=", *GPT2, "--set", "train.batch=8", "--set", "schedule.offload=none", "--device-memory=800MiB")
follow("train.batch=", *TINY, "--set", "schedule.offload=none", "--device-memory=45000000")
follow("schedule.offload.fraction=", *GPT2, "--set", "schedule.offload=Block", "--host-memory=100MiB")
assert not advice(*GPT2, "--device-memory=100MiB"), "no batch fits"
assert not advice(*TINY, "--set", "train.batch=1", "--device-memory=4MiB"), "there is no smaller batch"


def bytes_of(*arguments):
    status, said = compile_(*arguments, "--device-memory=8MiB")
    return int(re.search(r"the plan takes ([0-9]+) bytes", said)[1]), said


EXPERTS = [sys.argv[3], "--set", "layers=8", "--set", "schedule.recompute=none", "--set", "schedule.offload=none"]
whole, said = bytes_of(*EXPERTS, "--set", "schedule.fsdp.unit=none")
assert "with a repeated module as unit each of its instances has a buffer of its own" in said, said
assert bytes_of(*EXPERTS, "--set", "schedule.fsdp.unit=Block")[0] < whole, "units save nothing"
