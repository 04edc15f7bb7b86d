#!/usr/bin/env python3
"""How well the programs of tests/run/simt.py, and cases of numeric_ops, catch broken kernels: each mutant is one edit
of a kernel's text (mutate.py), and must end with an error, with other bits in some order, or with other bits than the
text as it is.

usage: mutants.py ROOT HEDDLEC FAKES FOLDER                    the sample for every change: all must be caught
       mutants.py ROOT HEDDLEC FAKES FOLDER --all [OPTIONS]    every mutant, or some of them
  --files=F,...       of these templates only (codegen/cuda/templates; "rows": kernels without a template)
  --kinds=K,...       of these kinds only
  --programs=P,...    with these programs only, of tests/run/simt.py or CASES
  --every=N           every Nth of them
  --orders=0,races,1,2,4,5  values of FAKE_CUDA_SIMT_ORDER, in turn until one catches the mutant; races: order 0 with
                      FAKE_CUDA_SIMT_RACES=1
  --jobs=N            at a time (default: as many as there are processors)
  --verbose           a line for each mutant

A survivor is right where tests/simt/survivors.txt says why: rows of FILE FUNCTION KIND NUMBER CLASS: why. Any other one
fails the run, and so does a row of a mutant that is caught now. A mutant with the machine code of the unchanged text
does not count.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "run")]
import mutate  # noqa: E402
import simt  # noqa: E402

LIMIT = 100  # seconds of processor time that a mutant may run
# Of numeric_ops, the cases that have some ops: compute capability and options. They are beside heddlec.
CASES = {
    "case_route": ("90", "--with=route,own_index"),
    "case_choice": ("90", "--with=top_k,top_k_grad", "--dtypes=f32,bf16"),
    "case_dispatch": ("90", "--with=dispatch", "--dtypes=f32"),
    "case_rows": ("90", "--with=take,combine,combine_grad", "--dtypes=f32,bf16"),
    "case_blocks": ("90", "--with=quantize_blocks,quantize_both", "--dtypes=f32"),
    "case_grouped": ("90", "--with=grouped,grouped_grad", "--dtypes=f32"),
    "case_mma": ("80", "--with=grouped,grouped_grad", "--dtypes=bf16"),
    "case_wgmma": ("90", "--with=grouped,grouped_grad", "--dtypes=bf16"),
}
# template: programs whose kernels it makes, tried in turn. "rows": kernels without a template; "conv1d": convolutions,
# whose functions are named by what they have (FORMS) instead of the number of the kernel.
WGMMA = ["causal_64", "full_64", "documents_64", "window_64", "rounds_64", "masks_128", "causal_128", "masks_64",
         "masks_96", "masks_192", "masks_256", "softcap_64", "softcap_192"]
SSD = ["ssd_mma", "ssd_mma_128"]
MMA = ["gpt2_long", "llama_window", "gpt2_f16"]
PROGRAMS = {
    "attention_forward": WGMMA, "attention_hopper": WGMMA, "attention_ordered": WGMMA, "attention_wgmma": WGMMA,
    "attention_seen": WGMMA,
    "attention": MMA, "attention_backward": MMA,
    "attention_any": ["gpt2_odd", "tiny"],
    "cross_entropy": ["tiny_bf16", "tiny_vocab"], "embedding_grad": ["gpt2", "tiny_bf16"],
    "embedding_grad_few": ["gpt2", "tiny_bf16"], "grad_norm": ["tiny_bf16", "gpt2"], "update": ["tiny_bf16", "gpt2"],
    "fp8": ["tiny_fp8", "llama_fp8", "case_blocks", "llama_block"],
    "route": ["case_route", "routed_over", "routed_full", "routed_ranks"], "own_index": ["case_route"],
    "top_k": ["case_choice"], "top_k_grad": ["case_choice"], "dispatch": ["case_dispatch"],
    "take": ["case_rows"], "combine": ["case_rows"], "combine_grad": ["case_rows"],
    "grouped": ["case_grouped"], "grouped_grad": ["case_grouped"], "grouped_mma": ["case_mma"],
    "grouped_wgmma": ["case_wgmma"], "wgmma": ["muon_half", "case_wgmma"], "symmetric": ["muon_half"],
    "conv1d": ["conv"],
    "ssd": ["ssd"], "ssd_mma": SSD, "ssd_mma_forward": SSD, "ssd_mma_grad": SSD, "mma": ["moe_mma", *SSD],
    "common": ["tiny_bf16", "gpt2"], "rows": ["tiny_bf16", "gpt2", "llama", "gpt2_odd", "tiny_rows"],
}
FORMS = {"documents": r"\bfar\[", "mirrored": r"\bbase \+ \d+ - \("}
# Of each program: mutants (template, function, kind, number) that it has to catch with every change.
SAMPLE = {
    "causal_64": [("attention_forward", "att_fetch_box", "arrival", 1), ("attention_forward", "AttTeam", "await", 5),
                  ("attention_forward", "AttTeam", "arrival", 7), ("attention_ordered", "ATT_ALL", "offset", 3),
                  ("attention_ordered", "ATT_BEGIN", "compare", 3)],
    "gpt2_80": [("attention", "ATT_FWD", "copies", 3), ("attention", "ATT_FWD", "barrier", 1),
                ("attention", "ATT_FWD", "lanes", 6)],
    "ssd_mma": [("ssd_mma_forward", "SC_Y", "offset", 5), ("ssd_mma_grad", "Columns", "compare", 4)],
    "conv": [("conv1d", "conv1d", "offset", 1), ("conv1d", "conv1d_documents", "compare", 2),
             ("conv1d", "conv1d_documents", "compare", 13), ("conv1d", "conv1d_grad", "compare", 1),
             ("conv1d", "conv1d_grad_documents", "compare", 24), ("conv1d", "conv1d_grad_documents", "compare", 29),
             ("conv1d", "conv1d_grad_documents", "offset", 2)],
    "muon_half": [("symmetric", "SyTile", "await", 3), ("symmetric", "SyTile", "barrier", 5),
                  ("symmetric", "SyTile", "offset", 13)],
    "tiny_bf16": [("common", "block_sum", "barrier", 2), ("cross_entropy", "CrossEntropy", "copies", 2),
                  ("cross_entropy", "CE_MEAN_KERNEL", "barrier", 1), ("update", "UP_ROUNDING", "random", 2),
                  ("update", "UP_ROUNDING", "random", 4)],
}


def convolution(function, body):
    """Its name as a key of mutants; None: it is none."""
    bare = re.sub(r"^k\d+_", "", function)
    return "_".join([bare, *(f for f, has in FORMS.items() if re.search(has, body))]) if "conv1d" in bare else None


class Cases(simt.Tried):
    """Cases of numeric_ops, whose kernels are compared with the evaluator, in memory with guards."""

    def __init__(self, args, folder, name):
        self.args, self.folder, self.name = args, folder, name
        self.capability, *options = CASES[name]
        self.command = [os.path.join(os.path.dirname(args.heddlec), "numeric_ops"), "--target=cuda",
                        f"--arch=sm_{self.capability}", "--guard", *options]
        self.library = os.path.join(folder, name + ".so")

    def build(self, target):
        return self.call([*self.command, f"--build={self.library}"])

    def digest(self, target, order=0, steps=1, limit=None, options=(), **more):
        env = dict(HEDDLE_CUDA_PATH=self.args.fakes, FAKE_CUDA_SIMT=self.args.kept, FAKE_CUDA_SIMT_ORDER=str(order),
                   FAKE_CUDA_CC=self.capability, HEDDLE_CACHE="off", HEDDLE_TUNE="0", HEDDLE_STALL_SECONDS="600")
        path = f"{self.library}.{order}" + more.get("SIMT_EDIT", "").replace("/", "_")
        with open(path, "w", encoding="utf-8") as f:
            return path, self.call([*self.command, f"--load={self.library}"], limit and 30, stdout=f, **env, **more)


class Bench:
    """Programs that are built once, with the modules that each one loads and its digest."""

    def __init__(self, args, folder):
        self.args, self.folder, self.programs = args, folder, {}
        self.templates = {}  # their functions
        where = os.path.join(args.root, "codegen/cuda/templates")
        for name in sorted(os.listdir(where)):
            with open(os.path.join(where, name), encoding="utf-8") as f:
                plain = mutate.without_comments(f.read())
            self.templates[name[:-3]] = {function for function, _, _ in mutate.functions(plain)}

    def program(self, name):
        if name not in self.programs:
            kind, listed = Cases if name in CASES else simt.Tried, os.path.join(self.folder, name + ".list")
            tried = kind(self.args, self.folder, name)
            wrong = tried.build("cuda")
            path, why = (None, wrong) if wrong else tried.digest("cuda", steps=1, SIMT_LIST=listed)
            if why:
                sys.exit(f"{name}, as it is: {why}")
            with open(path, "rb") as f, open(listed, encoding="utf-8") as g:
                self.programs[name] = tried, f.read(), sorted(set(g.read().split()))
        return self.programs[name]

    def mutants(self, file, programs):
        """Mutants of a template in programs: {(file, function, kind, number): [(program, library, text, site)]}."""
        found = {}
        for name in programs:
            for library in self.program(name)[2]:
                with open(library[:-3] + ".cu", encoding="utf-8") as f:
                    text = f.read()
                has = {function for function, _, _ in mutate.functions(mutate.without_comments(text))}
                of = [f for f, functions in self.templates.items() if functions <= has]
                forms = {f: convolution(f, text[start:end]) for f, start, end in mutate.functions(text)}
                for s in mutate.numbered(text):
                    form = forms.get(s.function)
                    if next((f for f in of if s.function in self.templates[f]), "conv1d" if form else "rows") == file:
                        key = file, form or s.function, s.kind, s.number
                        found.setdefault(key, []).append((name, library, text, s))
        return found


def code(library):
    """Its machine code and constants."""
    out = b""
    for part in (".text", ".rodata"):
        with tempfile.NamedTemporaryFile() as f:
            subprocess.run(["objcopy", "-O", "binary", "--only-section=" + part, library, f.name], check=True)
            out += f.read()
    return out


class Mutant:
    """One edit, of one program."""

    def __init__(self, bench, program, library, text, site, number):
        self.bench, self.name, self.library, self.site = bench, program, library, site
        self.folder = os.path.join(bench.folder, f"m{number}")
        os.makedirs(self.folder)
        self.edit = os.path.join(self.folder, "edit")
        with open(self.edit, "w", encoding="utf-8") as f:
            json.dump({"text": hashlib.sha256(text.encode()).hexdigest(), "at": site.at, "old": site.old,
                       "new": site.new, "folder": self.folder}, f)

    def compiled(self):
        """Its library. None: it is no C++, or the same code."""
        capability = self.bench.program(self.name)[0].capability
        env = dict(os.environ, SIMT_ENGINE=os.path.join(self.bench.args.fakes, "libsimt.so"), SIMT_EDIT=self.edit)
        done = subprocess.run([sys.executable, os.path.join(HERE, "compile.py"), self.library[:-3] + ".cu", capability,
                               self.folder], capture_output=True, text=True, env=env)
        if done.returncode:
            return None
        library = done.stdout.strip()
        return None if code(library) == code(self.library) else library

    def caught(self):
        """What catches it, "" where nothing does. None: there is nothing to catch."""
        library = self.compiled()
        if not library:
            return None
        tried, digest, _ = self.bench.program(self.name)
        listed = os.path.join(self.folder, "list")
        for order in self.bench.args.orders:
            how = dict(order=order) if order != "races" else dict(order="0", FAKE_CUDA_SIMT_RACES="1")
            path, why = tried.digest("cuda", steps=1, limit=LIMIT, SIMT_EDIT=self.edit, SIMT_LIST=listed, **how)
            if why and why.startswith(f"exit status -{signal.SIGXCPU.value}:"):
                return "hang"
            with open(listed, encoding="utf-8") as f:
                if library not in f.read().split():
                    sys.exit(f"{self.name} did not run {self.site}")
            if why:
                said = re.search(r"(?m)^simt: .*|.*error.*", why)
                return f"{'deadlock' if 'no thread can go on' in why else 'error'} ({said.group() if said else why})"
            with open(path, "rb") as f:
                if f.read() != digest:
                    return "bits" if order == self.bench.args.orders[0] else f"bits, order {order}"
        return ""


def tried(bench, number, places):
    """A mutant in all the programs that have it: what catches it, as Mutant.caught."""
    last = None
    for i, place in enumerate(places):
        how = Mutant(bench, *place, f"{number}_{i}").caught()
        if how:
            return f"{how}: {place[0]}"
        last = how if how is not None else last
    return last


def known(root):
    rows = {}
    with open(os.path.join(root, "tests/simt/survivors.txt"), encoding="utf-8") as f:
        for line in f:
            if line.strip() and line[0] != "#":
                key, why = line.split(":", 1)
                *key, kind = key.split()
                rows[(*key[:3], int(key[3]))] = (kind, why.strip())
    return rows


def chosen(bench, args):
    """Mutants to run: {key: places}."""
    all_of = {}
    if not args.all:
        for program, rows in SAMPLE.items():
            has = {}
            for file in {row[0] for row in rows}:
                has.update(bench.mutants(file, [program]))
            missing = [row for row in rows if row not in has]
            if missing:
                sys.exit(f"{program} has no such mutants now; choose others for SAMPLE in {__file__}: {missing}")
            all_of.update({row: has[row] for row in rows})
        return all_of
    for file in args.files or PROGRAMS:
        all_of.update(bench.mutants(file, args.programs or PROGRAMS[file]))
    kept = [k for k in all_of if not args.kinds or k[2] in args.kinds]
    return {k: all_of[k] for k in kept[::args.every]}


def parsed():
    parser = argparse.ArgumentParser()
    for name in ("root", "heddlec", "fakes", "kept"):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument("--all", action="store_true")
    for name in ("files", "kinds", "programs"):
        parser.add_argument("--" + name, type=lambda text: text.split(","), default=[])
    parser.add_argument("--orders", type=lambda text: text.split(","), default=["0", "races", "1", "2", "4", "5"])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def main():
    args = parsed()
    table, wrong, seen = collections.defaultdict(collections.Counter), [], 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        bench, rows = Bench(args, folder), known(args.root)
        mutants = chosen(bench, args)
        runs = {pool.submit(tried, bench, i, places): key for i, (key, places) in enumerate(mutants.items())}
        for run in concurrent.futures.as_completed(runs):
            key, how = runs[run], run.result()
            if args.verbose:
                site, end = mutants[key][0][3], "nothing to catch" if how is None else how or "SURVIVES"
                print(*key, "|", end, "|", site.old, "->", site.new, "|", site.line, flush=True)
            if how is None and args.all:
                continue
            seen += 1
            name = re.match(r"\w+", how).group() if how else rows.get(key, ("unknown",))[0]
            table[key[0], key[2]][name] += 1
            if bool(how) == (key in rows):
                wrong.append((*key, "is caught: not a survivor" if how else "SURVIVES: " + mutants[key][0][3].line))
    for (file, kind), row in sorted(table.items()):
        print(f"{file:20} {kind:10} {sum(row.values()):4}  " + ", ".join(f"{n} {w}" for w, n in sorted(row.items())))
    for row in sorted(wrong):
        print(*row)
    print(f"{seen} mutants, wrong: {len(wrong)}")
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
