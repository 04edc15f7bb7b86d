#!/usr/bin/env python3
"""Translates CUDA text to C++ and compiles it for the CPU: compile.py TEXT.cu CAPABILITY FOLDER

compile.py --header FOLDER precompiles what all texts include; a text finds it beside the library of the engine.
Prints the path of a shared library in FOLDER with the text's kernels (simt_kernels, engine.h). Libraries are kept by
the text and by the files that decide what becomes of it. CAPABILITY: 80, 90, 100.

The C++ preprocessor and the compiler do most of it (simt.h). Rewritten here: asm statements, which become calls of the
functions of ptx.h; shared variables, which are those of the block; and the list of kernels.

SIMT_EDIT, if set, names a JSON file with one edit (mutants.py): "text", the SHA-256 of the text that it is for; "at", a
place in it; "old", what is there; "new", what is to be there; "folder", which keeps the libraries of edited texts.
SIMT_LIST, if set, names a file to which the path of the library is added.
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ENGINE = os.environ.get("SIMT_ENGINE", "")  # libsimt.so
OPTIONS = ["-std=gnu++17", "-O1", "-g1", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-w",
           "-Wno-psabi", f"-I{ROOT}"]
HEADER = "tests/simt/ptx.h"
# Calls at accesses of memory (memory.cc); none for what is a thread's own anyway
OPTIONS += ["-fsanitize=kernel-address", "-fno-sanitize-address-use-after-scope", "--param=asan-stack=0",
            "--param=asan-globals=0", "--param=asan-instrumentation-with-call-threshold=0"]
# An index beyond an array of a known size, such as a thread's own, ends the program
OPTIONS += ["-fsanitize=bounds", "-fsanitize-undefined-trap-on-error"]


def closing(text, at):
    """The place after the bracket that closes the one at `at`; strings are skipped."""
    depth = 0
    for m in re.finditer(r'"(?:\\.|[^"\\])*"|[(){}\[\]]', text[at:]):
        c = m.group()
        if c[0] == '"':
            continue
        depth += 1 if c in "({[" else -1
        if not depth:
            return at + m.end()
    sys.exit("a bracket is not closed: " + text[at:at + 80])


def split(text, by):
    """Parts of a text between characters `by` that are in no bracket and no string."""
    parts, depth, last = [], 0, 0
    for m in re.finditer(r'"(?:\\.|[^"\\])*"|::|.', text, re.S):
        c = m.group()
        depth += (c in ("(", "{", "[")) - (c in (")", "}", "]"))
        if c == by and not depth:
            parts.append(text[last:m.start()])
            last = m.end()
    return parts + [text[last:]]


def expressions(part):
    """The C++ expressions of a list of asm operands: "=r"(x), "n"(5)."""
    found = []
    for operand in split(part, ","):
        m = re.match(r'\s*"([^"]*)"\s*\(', operand)
        if m:
            found.append(operand[m.end() - 1:].strip())
    return found


def operand(text, of):
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return operand_list(text[1:-1], of)
    if text.startswith("{"):
        return operand_list(text[1:-1], of)
    return [] if text == "_" else [re.sub(r"%(\d+)", lambda m: of[int(m.group(1))], text)]


def operand_list(text, of):
    return [x for part in split(text, ",") for x in operand(part, of)]


def wgmma(name, parts, of):
    m = re.fullmatch(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(bf16|f16)\.\2", name)
    if not m:
        sys.exit(f"no such product: {name}")
    d = ", ".join("&" + x for x in operand(parts[0], of))
    a = ", ".join(operand(parts[1], of))
    if parts[1].strip().startswith("{"):
        a = f"{{{a}}}"
    rest = ", ".join(x for part in parts[2:] for x in operand(part, of))
    return f"simt::wgmma<{m.group(1)}, simt::{m.group(2).upper()}>({{{d}}}, {a}, {rest});"


def instruction(text, of):
    text = text.strip()
    m = re.match(r"\.reg\s+\.(pred|b32)\s+(\w+)$", text)
    if m:
        return f"{'bool' if m.group(1) == 'pred' else 'unsigned'} {m.group(2)};"
    name, _, rest = text.partition(" ")
    parts = split(rest, ",") if rest.strip() else []
    if name == "setp.ne.b32":
        d, a, b = (operand(p, of)[0] for p in parts)
        return f"{d} = {a} != {b};"
    if name.startswith("wgmma.mma_async"):
        return wgmma(name, parts, of)
    return f"ptx_{re.sub('[.:]+', '_', name)}({', '.join(x for p in parts for x in operand(p, of))});"


def statement(body):
    """C++ for what stands between the brackets of an asm statement."""
    parts = split(body.replace("::", ": :"), ":")  # "::" only occurs between lists, or within strings
    text = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', parts[0])).replace(": :", "::")
    text = text.replace("\\n", "\n").replace("\\t", " ").strip()
    of = [e for part in parts[1:3] for e in expressions(part.replace(": :", "::"))]
    if not text:
        return ";"
    text = text.replace("%%cluster_ctarank", "simt::cluster_rank()")
    for name in re.findall(r"\.reg\s+\.(?:pred|b32)\s+(\w+)", text):  # an operand may have the same name
        text = re.sub(rf"(?<![.\w]){name}(?![.\w])", f"{name}_of_asm", text)
    wait = re.search(r"mbarrier\.try_wait\.parity\.shared::cta\.b64 \w+, \[%(\d)\], %(\d);", text)
    if wait:  # with the loop around it
        return f"ptx_mbarrier_await({of[int(wait.group(1))]}, {of[int(wait.group(2))]});"
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    return "{ " + " ".join(instruction(i, of) for i in text.split(";") if i.strip()) + " }"


def without_asm(text):
    out, last = [], 0
    for m in re.finditer(r"\basm\s*(?:volatile)?\s*\(", text):
        if m.start() < last:
            continue
        end = closing(text, m.end() - 1)
        out += [text[last:m.start()], statement(text[m.end():end - 1])]
        last = end
        if text[last] == ";":
            last += 1
    return "".join(out + [text[last:]])


def shared(text):
    align = r"(?:__attribute__\s*\(\(aligned\(\d+\)\)\)\s*)?"
    text = re.sub(r"\bextern\s+__shared__\s+" + align + r"([\w ]+?)\s+(\w+)\[\];",
                  r"\1 *const \2 = (\1 *)simt::dynamic_shared();", text)

    def variable(m):
        kind, names = m.group(1), m.group(2)
        out = []
        for name in split(names, ","):
            name, sizes = re.match(r"\s*(\w+)\s*(.*)", name, re.S).groups()
            out.append(f"static char {name}_of; typedef {kind} {name}_type{sizes}; {name}_type &{name} = "
                       f"*({name}_type *)simt::static_shared(&{name}_of, sizeof({name}_type));")
        return " ".join(out)

    text = re.sub(r"\b__shared__\s+" + align + r"((?:[\w:<>]+\s+)+)(\w+[^;()]*);", variable, text)
    if "__shared__" in text:
        sys.exit("a shared variable was not understood: " + text[text.index("__shared__"):][:80])
    return text


def translated(source, capability):
    options = ["-E", "-P", f"-D__CUDA_ARCH__={capability}0", "-D__CUDACC_RTC__", "-x", "c++", "-"]
    keep = "#define __align__(n) __attribute__((aligned(n)))\n#define __launch_bounds__(...)\n"
    text = subprocess.run(["g++", *options], input=keep + source, text=True, check=True, capture_output=True).stdout
    names = re.findall(r'extern\s+"C"\s+__global__\s+void\s+(\w+)\s*\(', text)
    lines = [f'#include "{HEADER}"', shared(without_asm(text))]
    lines += [f"using namespace {n};" for n in sorted(set(re.findall(r"\bnamespace\s+(\w+)\s*{", text)))]
    for n in names:
        lines.append(f"static void simt_call_{n}(void **a) {{ simt::call({n}, a); }}")
    beside = int(bool(re.search(r"\bcp\.async\b|\bwgmma\b", text)))
    rows = ", ".join(f'{{"{n}", simt_call_{n}, simt::params({n}), simt::bytes({n}), {beside}}}' for n in names)
    lines.append(f'extern "C" const simt::Kernel simt_kernels[] = {{{rows}{", " if rows else ""}{{}}}};')
    return "\n".join(lines) + "\n"


def edited(source, folder):
    """The text and the folder for its library, with the edit of SIMT_EDIT where that is for this text."""
    if "SIMT_EDIT" not in os.environ:
        return source, folder
    with open(os.environ["SIMT_EDIT"], encoding="utf-8") as f:
        edit = json.load(f)
    if edit["text"] != hashlib.sha256(source.encode()).hexdigest():
        return source, folder
    start, end = edit["at"], edit["at"] + len(edit["old"])
    if source[start:end] != edit["old"]:
        sys.exit(f"the text has {source[start:end]!r} instead of {edit['old']!r}")
    return source[:start] + edit["new"] + source[end:], edit["folder"]


def precompile(folder):
    header = os.path.join(folder, HEADER + ".gch")
    os.makedirs(os.path.dirname(header), exist_ok=True)
    subprocess.run(["g++", *OPTIONS, "-x", "c++-header", "-o", header, os.path.join(ROOT, HEADER)], check=True)


def compile_options():
    """Of the compiler and the linker. GCC finds a precompiled header in the first folder for includes that has one."""
    if not ENGINE:
        return OPTIONS
    beside = os.path.dirname(ENGINE)
    gold = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []  # in a tenth of ld's time
    return ["-I" + beside, *OPTIONS, *gold, "-Wl,--no-as-needed", ENGINE, "-Wl,-rpath," + beside]


def main():
    if sys.argv[1] == "--header":
        return precompile(*sys.argv[2:])
    path, capability, folder = sys.argv[1:]
    with open(path, encoding="utf-8") as f:
        source, folder = edited(f.read(), folder)
    key = hashlib.sha256((source + capability + " ".join(OPTIONS)).encode())
    for name in ("compile.py", "engine.h", "launch.h", "numbers.h", "ptx.h", "simt.h"):
        key.update(open(os.path.join(HERE, name), "rb").read())
    os.makedirs(folder, exist_ok=True)
    library = os.path.join(os.path.abspath(folder), key.hexdigest()[:24] + ".so")
    if not os.path.exists(library):
        mine = f"{library}.{os.getpid()}"
        with open(mine + ".cu", "w", encoding="utf-8") as f:
            f.write(source)
        with open(mine + ".cc", "w", encoding="utf-8") as f:
            f.write(translated(source, capability))
        subprocess.run(["g++", "-shared", "-o", mine, mine + ".cc", *compile_options()], check=True)
        for kind in (".cu", ".cc"):
            os.replace(mine + kind, library[:-3] + kind)
        os.replace(mine, library)
    if "SIMT_LIST" in os.environ:
        with open(os.environ["SIMT_LIST"], "a", encoding="utf-8") as f:
            f.write(library + "\n")
    print(library)


if __name__ == "__main__":
    main()
