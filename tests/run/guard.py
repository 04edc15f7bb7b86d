#!/usr/bin/env python3
"""Programs with a guard: what --check and the address sanitizer find, and that nothing else changes.
Usage: guard.py ROOT HEDDLEC [CASE...]

The programs that write where they must not are made by a C compiler that changes the program's text: this file, as CC.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

SMALL = ["layers=2", "dim=32", "heads=2", "seq=16", "train.batch=2"]
PLANS = {
    "one rank": ([], []),
    "ranks": (["schedule.mesh.shard=2", "schedule.fsdp=zero3", "schedule.fsdp.unit=Block", "train.accumulate=2",
               "schedule.fsdp.overlap_micro=on"], ["--ranks=2"]),
    "offload": (["schedule.offload=Block", "schedule.offload.margin=0", "schedule.offload.min_size=0"], []),
}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "2"}


def as_compiler():
    """CC: changes the text on standard input, then compiles it."""
    text = sys.stdin.read()
    for old, new in json.loads(os.environ["GUARD_EDITS"]):
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the program"
        text = text.replace(old, new)
    sys.exit(subprocess.run(["cc", *sys.argv[1:], "-O0"], input=text, text=True).returncode)


if "GUARD_EDITS" in os.environ:
    as_compiler()

from cases import check, run_cases  # noqa: E402


def text_of(sets, *options):
    return subprocess.run([HEDDLEC, MODEL, *(f"--set={s}" for s in SMALL + sets), *options, "--emit=c"], check=True,
                          capture_output=True, text=True).stdout


def build(name, sets, *options, edits=None, cc=()):
    command = [HEDDLEC, MODEL, *(f"--set={s}" for s in SMALL + sets), *options, "-o", name]
    environment = dict(ENVIRONMENT)
    if cc:
        environment["CC"] = " ".join(["cc", *cc])
    if edits:
        environment["CC"] = " ".join([sys.executable, os.path.realpath(__file__), *cc])
        environment["GUARD_EDITS"] = json.dumps(edits)
    subprocess.run(command, check=True, env=environment)


def run(name, *options):
    r = subprocess.run([f"./{name}", f"--data={ROOT}/LICENSE", "--format=bytes", "--steps=2", *options],
                       capture_output=True, text=True, env=ENVIRONMENT, timeout=600)
    return r.returncode, r.stderr


def leave_it_to_check():
    """In a build with the address sanitizer it would stop the programs before --check looks."""
    ENVIRONMENT["ASAN_OPTIONS"] = "detect_leaks=0:allow_user_poisoning=0"


def digest(name, *options):
    status, said = run(name, f"--digest={name}.digest", *options)
    check(status == 0, f"{name} {options}:", said)
    return open(f"{name}.digest").read()


def has_address_sanitizer():
    r = subprocess.run(["cc", "-fsanitize=address", "-x", "c", "-", "-o", "probe"], input="int main(void){return 0;}\n",
                       text=True, stderr=subprocess.DEVNULL)
    return r.returncode == 0 and subprocess.run(["./probe"]).returncode == 0


def case_same_digest():
    for name, (sets, options) in PLANS.items():
        build("plain", sets)
        build("guarded", sets, "--guard")
        expected = digest("plain", *options)
        check(digest("guarded", *options) == expected, f"{name}: another digest with a guard")
        check(digest("guarded", "--check", *options) == expected, f"{name}: another digest with a guard and --check")


# A write of 4 bytes next to a storage of each kind, at once after an action has begun. Which storage: (name, pinned,
# whether its action is the one that writes).
KINDS = {"a result": (r"result %\d+", False, True), "an argument": (r"argument %tokens", False, False),
         "a buffer that persists": (r"buffer @root\.master", False, False),
         "a transient buffer": (r"buffer @root\.grad", False, False), "a workspace": (r"workspace", False, True),
         "a value in page-locked memory": (r"result %\d+", True, True)}


def one_of_each(text):
    """A storage of each kind, as its table in the program's text has it."""
    table = text[text.index("HdGuarded guarded_micro_only[]"):]
    table = table[:table.index("};")] + text[text.index("HdGuarded guarded_buffers[]"):]
    rows = re.findall(r'\{"([^"]+)", (\d+), (\d+), (-?\d+), (true|false)\}', table)
    for kind, (name, pinned, own) in KINDS.items():
        found = [r for r in rows if re.fullmatch(name, r[0]) and (r[4] == "true") == pinned]
        check(found, f"the program has no guard of {kind}")
        yield kind, found[0][0], int(found[0][1]), int(found[0][2]), max(0, int(found[0][3])), own


def case_every_kind():
    leave_it_to_check()
    sets = PLANS["offload"][0]
    edits, expected = [], []
    text = text_of(sets, "--guard")
    body = text[text.index("void run_micro_only_compute"):]
    micro = re.search(r"hd_action\(x, &funcs\[(\d+)\], ", body).group(1)
    for number, (kind, name, at, size, action, own) in enumerate(one_of_each(text)):
        base = "x->pinned" if KINDS[kind][1] else "x->base"
        after = number % 2 == 0
        line = f"    hd_action(x, &funcs[{micro}], {action});\n"
        where = at + size if after else at - 4
        edits.append((line, f'{line}    if (getenv("BAD") && atoi(getenv("BAD")) == {number})'
                            f" *(float *)({base} + {where}) = 0;\n"))
        expected.append((kind, f"(action {action} of micro_only, stream",
                         f"--check: bytes {'1 to 4 after the end of' if after else '4 to 1 before'} "
                         f"{'its ' if own else ''}{name} were written; the first was 0x"))
    merged = {}  # several edits of one line
    for line, new in edits:
        merged[line] = merged.get(line, line) + new[len(line):]
    header = '#include "heddle.h"\n'
    build("bad", sets, "--guard", edits=[(header, header + "#include <stdlib.h>\n"), *merged.items()])
    digest("bad", "--check")
    for number, (kind, action, message) in enumerate(expected):
        ENVIRONMENT["BAD"] = str(number)
        status, said = run("bad", "--check")
        check(status == 1 and action in said and message in said, f"{kind}: expected {action} ... {message}:", said)
    status, said = run("bad")
    check(status == 0, "without --check nobody looks:", said)
    del ENVIRONMENT["BAD"]


# A kernel that goes on for one element, or begins one too early.
KERNEL = "    float *const r0 = q0; // f32[2,16,128]\n"


def edit_of_kernel(text, element):
    start = re.search(r"static void k\d+_gelu_add\(", text).start()
    head = text[start:text.index(KERNEL, start) + len(KERNEL)]
    return [(head, head + f"    r0[{element}] = 1;\n")]


def case_kernels():
    leave_it_to_check()
    for plan, where in (("one rank", "4096"), ("ranks", "-1")):
        sets, options = PLANS[plan]
        build("bad", sets, "--guard", edits=edit_of_kernel(text_of(sets, "--guard"), where))
        status, said = run("bad", "--check", *options)
        place = "1 to 4 after the end of" if where == "4096" else "4 to 1 before"
        check(status == 1 and re.search(rf"tiny\.hd:14: k\d+_gelu_add in blocks\.0\.mlp \(action \d+ of micro_\w+, "
                                        rf"stream compute\): --check: bytes {place} its result %\d+ were written; the "
                                        rf"first was 0x\w\w and is 0x\w\w", said), f"{plan}:", said)


def case_address_sanitizer():
    if not has_address_sanitizer():
        print("the C compiler has no address sanitizer: nothing was checked")
        return
    sets = PLANS["one rank"][0]
    build("plain", sets)
    build("sanitized", sets, "--guard", cc=["-fsanitize=address"])
    expected = digest("plain")
    check(digest("sanitized") == expected, "another digest with the sanitizer")
    check(digest("sanitized", "--check") == expected, "another digest with the sanitizer and --check")
    build("bad", sets, "--guard", edits=edit_of_kernel(text_of(sets, "--guard"), "4096"), cc=["-fsanitize=address"])
    status, said = run("bad")
    check(status != 0 and re.search(r"use-after-poison .* in (run_micro_only_compute|k\d+_gelu_add)\b", said),
          "the sanitizer does not find it:", said)


if __name__ == "__main__":
    ROOT, HEDDLEC = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
    MODEL = f"{ROOT}/examples/tiny/tiny.hd"
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run_cases(globals(), sys.argv[3:], folder))
