#!/usr/bin/env python3
"""Collectives of values, and copies between memories, in programs that train: the IR of a step is edited by hand, made
a program, and has the digest of the program that was not edited.

usage: values.py ROOT BIN [--target=host|cuda] [--ranks=2] [--pretended]

BIN is the folder of heddlec, heddle-opt and heddle-translate. The edits are made after `fuse`, in the text:
  sums      each reduce_scatter of a gradient gives a value, which is stored
  norm      the sums of squares are gathered as values
  loss      the losses of all ranks are gathered out of a buffer into a value
  weights   the weights that were updated are gathered from a value into a buffer
  host      an activation is copied to the host's memory and back for the backward pass
--ranks=1 tries `host` alone. --target=cuda needs as many GPUs (or HEDDLE_SHARE_GPUS=1); there the losses are also near
those of the host target, to a relative 1e-4. --pretended: on libraries that compute nothing (tests/fake_cuda), the
programs only have to run.
A text that gathers something else instead of the loss is refused.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

STEPS = 4
SETS = ("layers=2", "dim=32", "heads=2", "seq=16", "train.batch=2", "train.lr=1e-2", "train.warmup=0",
        "schedule.fsdp=zero2", "schedule.fsdp.unit=Block")


def call(*command, **env):
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, **env), timeout=600)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


class Edits:
    def __init__(self, text):
        self.text, self.next, self.made = text, 90000, 0

    def value(self):
        self.next += 1
        return f"%{self.next}"

    def size(self, buffer):
        return re.search(rf"^buffer @{re.escape(buffer)} : (\S+\[\d+\])", self.text, re.M).group(1)

    def replace(self, pattern, make):
        self.text, n = re.subn(pattern, make, self.text, flags=re.M)
        self.made += n

    def sums(self):
        def edit(m):
            v = self.value()
            return (f"  {v} = reduce_scatter {{{m[1]}comm = {m[3]}}} : {self.size(m[2])}{m[4]}\n"
                    f"  store {v} {{offset = 0, into = @{m[2]}}}{m[4]}")
        self.replace(r"^  reduce_scatter \{((?:bwd, )?buffer = @\S+ )into = @(\S+), comm = (@[\w.]+)\}(.*)$", edit)

    def norm(self):
        self.replace(r"^  store (%\d+) \{offset = 0, into = @(\S+norm\.part)\}.*\n"
                     r"  all_gather \{buffer = @\2, into = @(\S+), comm = (@[\w.]+)\}.*\n"
                     r"  (%\d+) = view \{buffer = @\3, offset = 0\} : (\S+)(.*)$",
                     r"  \5 = all_gather \1 {comm = \4} : \6\7")

    def loss(self):
        self.replace(r"^  all_gather \{buffer = @state\.loss, into = @(\S+), comm = (@[\w.]+)\}.*\n"
                     r"  (%\d+) = view \{buffer = @\1, offset = 0\} : (\S+)(.*)$",
                     r"  \3 = all_gather {buffer = @state.loss, comm = \2} : \4\5")

    def weights(self):
        def edit(m):
            v = self.value()
            return (f"  {v} = view {{buffer = @{m[1]}, offset = 0}} : {self.size(m[1])}{m[4]}\n"
                    f"  all_gather {v} {{offset = 0, into = {m[2]}, comm = {m[3]}}}{m[4]}")
        self.replace(r"^  all_gather \{buffer = @(\S+\.master), into = (@\S+), comm = (@[\w.]+)\}(.*)$", edit)

    def host(self):
        """The operand of the last product of the forward pass: it leaves behind that product and comes back before the
        next op that reads it."""
        start = re.search(r"^func @micro", self.text, re.M).start()
        head, body = self.text[:start], self.text[start:]
        end = body.index("\n}\n")
        lines = body[:end].split("\n")
        at = max(i for i, line in enumerate(lines) if re.search(r" = (matmul|gemm) ", line) and "bwd" not in line)
        name = re.search(r" = \w+ (%\d+)", lines[at])[1]
        made = next(line for line in lines if re.search(rf"{name}\b", line.split(" = ")[0]))
        names = re.findall(r"%\d+", made.split(" = ")[0])
        types = re.findall(r"\w+\[[\d,]*\]", re.sub(r" loc\(.*", "", made.split("} : ")[-1]))
        of = types[names.index(name)]
        out, back = self.value(), self.value()
        later = next(i for i in range(at + 1, len(lines)) if re.search(rf"{name}\b", lines[i]))
        for i in range(later, len(lines)):
            lines[i] = re.sub(rf"{name}\b", back, lines[i])
        lines.insert(later, f"  {back} = copy {out} {{on = h2d}} : {of}")
        lines.insert(at + 1, f"  {out} = copy {name} {{space = host, on = d2h}} : {of}")
        self.text = head + "\n".join(lines) + body[end:]
        self.made += 1


def train(args, folder, name, target, edits):
    """The digest of a program whose IR is edited."""
    path = lambda what: os.path.join(folder, f"{name}.{target}.{what}")
    tool = lambda what: os.path.join(args.bin, what)
    sets = [x for s in (*SETS, f"schedule.mesh.shard={args.ranks}") for x in ("--set", s)]
    call(tool("heddlec"), os.path.join(args.root, "examples/tiny/tiny.hd"), f"--target={target}", "--arch=sm_90", *sets,
         "--emit=plan", "-o", path("plan"), f"--print-ir-dir={path('ir')}", "--print-ir-after=fuse")
    dump, = (name for name in os.listdir(path("ir")) if name.endswith("-fuse.hir"))
    with open(os.path.join(path("ir"), dump)) as f:
        ir = Edits(f.read())
    for edit in edits:
        before = ir.made
        getattr(ir, edit)()
        assert ir.made > before, f"nothing to edit for {edit}"
    with open(path("hir"), "w") as f:
        f.write(ir.text)
    passes = call(tool("heddlec"), "--print-pipeline").split("fuse,")[1].strip()
    call(tool("heddle-opt"), path("hir"), f"--pass-pipeline={passes}", "-o", path("edited"))
    call(tool("heddle-translate"), path("edited"), "-o", path("bin"))
    call(path("bin"), f"--data={os.path.join(args.root, 'LICENSE')}", "--format=bytes",
         f"--steps={STEPS}", f"--ranks={args.ranks}",
         f"--digest={path('digest')}", OMP_NUM_THREADS="1")
    with open(path("digest")) as f:
        return f.read().splitlines()


def refused(args, folder):
    """The norm of all ranks in the place of their losses."""
    with open(os.path.join(folder, f"{'loss' if not args.pretended else 'sums-norm-loss-weights-host'}."
                                   f"{args.target}.hir")) as f:
        text = f.read()
    wrong = text.replace("= all_gather {buffer = @state.loss", "= all_gather {buffer = @state.norm")
    path = os.path.join(folder, "wrong.hir")
    with open(path, "w") as f:
        f.write(wrong)
    command = [os.path.join(args.bin, "heddle-opt"), path, "-o", path + ".plan",
               "--pass-pipeline=select,schedule,sync,plan-memory,verify-plan"]
    done = subprocess.run(command, capture_output=True, text=True)
    said = "as the loss of the step, which is not a sum of the losses" in done.stderr
    good = wrong != text and done.returncode == 1 and said
    print("the norm in the place of the loss: " + ("refused" if good else f"FAIL: {done.stderr[:500]}"))
    return good


def losses(digest):
    return [float.fromhex(line.split()[1]) for line in digest[:STEPS]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=os.path.abspath)
    parser.add_argument("bin", type=os.path.abspath)
    parser.add_argument("--target", default="host")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pretended", action="store_true")
    args = parser.parse_args()
    tried = [("sums",), ("norm",), ("loss",), ("weights",), ("host",), ("sums", "norm", "loss", "weights", "host")]
    if args.ranks == 1:
        tried = [("host",)]
    if args.pretended:
        tried = tried[-1:]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="heddle-values-") as folder:
        want = train(args, folder, "plain", args.target, ())
        for edits in tried:
            got = train(args, folder, "-".join(edits), args.target, edits)
            same = args.pretended or got == want
            verdict = "FAIL: other bits" if not same else "runs" if args.pretended else "same bits"
            print(f"{args.target}, {args.ranks} ranks, {' '.join(edits)}: {verdict}", flush=True)
            bad |= not same
        if args.ranks > 1:
            bad |= not refused(args, folder)
        if args.target == "cuda" and not args.pretended:
            host = losses(train(args, folder, "plain", "host", ()))
            near = all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(losses(want), host))
            print(f"cuda and host: losses {'near' if near else f'FAIL: {losses(want)} and {host}'}")
            bad |= not near
        if len(set(losses(want))) != STEPS and not args.pretended:
            print(f"FAIL: the losses show no training: {losses(want)}")
            bad = 1
    return bad


sys.exit(main())
