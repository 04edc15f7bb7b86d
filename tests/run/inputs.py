#!/usr/bin/env python3
"""Data for any arguments of the loss: rows of arrays, files beside tokens, what is refused and how.
Usage: inputs.py ROOT HEDDLEC [CASE...]. Cases as in cases.py.
"""
import json
import math
import os
import re
import struct
import subprocess
import sys

import compiled
from cases import check
from compiled import bad, digest_of, good, read, tensors_of, write

ROWS, PIXELS, SEQ, VOCAB = 24, 12, 8, 50
MODELS = {
    "digits": "model Digits(dim = 8) { fc = Linear(12, dim); head = Linear(dim, 10);"
              " fn loss(image: f32[batch, 12], label: i32[batch]) {"
              " return cross_entropy(head(gelu(fc(image))), label); } }",
    # the loss is the mean of x where rows of x and y are the same, else far from it
    "pairs": "model Pairs { param w: [1] = ones; fn loss(x: f32[batch, 3, 2], y: f32[batch]) {"
             " let m = mean(x, axes = [1, 2]); return mean(y) + 100 * mean(square(m - y)) + 0 * mean(w); } }",
    "masked": "model Masked(seq = 8) { e = Embedding(50, 8); head = Linear(8, 50);"
              " fn loss(tokens: i32[batch, seq], targets: i32[batch, seq], mask: f32[batch, seq]) {"
              " let z = head(e(tokens)); return cross_entropy(z, targets) + mean(mask * logsumexp(z)); } }",
    "sft": "model Sft(seq = 8) { e = Embedding(50, 8); head = Linear(8, 50, bias = false);"
           " fn loss(tokens: i32[batch, seq], targets: i32[batch, seq], mask: f32[batch, seq]) {"
           " return cross_entropy(head(e(tokens)), targets, ignore = -100, weights = mask); } }",
    "plain": "model Plain(seq = 8) { e = Embedding(50, 8); head = Linear(8, 50, bias = false);"
             " fn loss(tokens: i32[batch, seq], targets: i32[batch, seq]) {"
             " return cross_entropy(head(e(tokens)), targets); } }",
    "fixed": "model Fixed { fc = Linear(12, 1); fn loss(x: f32[3, 12]) { return mean(square(fc(x))); } }",
    "nothing": "model Nothing { param w: [6] = ones; fn loss() { return mean(w * w); } }",
}


def compile_model(name, *settings):
    """The program of a model, and what the compiler says."""
    path = "-".join((name,) + settings)
    write(f"{name}.hd", MODELS[name].encode())
    command = [compiled.programs.compiler, f"{name}.hd", "-o", path]
    for s in ("train.batch=4",) + settings:
        command += ["--set", s]
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = r.stdout.decode()
    check(r.returncode == 0, "cannot compile:", " ".join(command), said)
    compiled.programs.built[path,] = f"./{path}"
    return path, said


def options(data, option="data"):
    """--data for a list of INPUT=FILE, or of FILE alone."""
    return [a for d in data for a in (f"--{option}", d)]


def array(name, letter, shape, values, descr=None, fortran=False):
    descr = descr or {"B": "|u1", "?": "|b1", "H": "<u2", "h": "<i2", "i": "<i4", "q": "<i8", "e": "<f2", "f": "<f4",
                      "d": "<f8"}[letter]
    head = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return write(name, b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head
                 + struct.pack(f"<{len(values)}{letter}", *values))


def tensors(name, **given):
    """A safetensors file of NAME=(dtype, shape, bytes)."""
    head, body = {}, b""
    for key, (dtype, shape, data) in given.items():
        head[key] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    return write(name, struct.pack("<Q", len(text)) + text + body)


def bf16(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def pictures():
    labels = [(7 * r + 3) % 10 for r in range(ROWS)]
    return [(5 * r + 3 * i * labels[r]) % 128 for r in range(ROWS) for i in range(PIXELS)], labels


def case_rows_of_every_type():
    """The same numbers in files of every type and format give the same run."""
    program, _ = compile_model("digits")
    x, y = pictures()
    half = ROWS // 3
    images = [[array("u8.npy", "B", (ROWS, PIXELS), x)], [array("f16.npy", "e", (ROWS, PIXELS, 1), x)],
              [array("f32.npy", "f", (ROWS, 3, 4), x)], [array("i64.npy", "q", (ROWS, PIXELS), x)],
              [tensors("bf16.st", image=("BF16", (ROWS, PIXELS), bf16(x)), other=("U8", (3,), b"123"))],
              [write("raw.f32", struct.pack(f"<{len(x)}f", *x))],
              [array("part1.npy", "B", (half, PIXELS), x[:half * PIXELS]),
               array("part2.npy", "B", (ROWS - half, PIXELS), x[half * PIXELS:])]]
    labels = [array("i64.y.npy", "q", (ROWS,), y), array("i32.y.npy", "i", (ROWS, 1), y),
              array("u8.y.npy", "B", (ROWS,), y), array("i16.y.npy", "h", (ROWS,), y),
              tensors("y.safetensors", labels=("I64", (ROWS,), struct.pack(f"<{ROWS}q", *y))),
              write("raw.u8", bytes(y)), array("again.npy", "i", (ROWS,), y)]
    first = None
    for image, label in zip(images, labels):
        data = options([f"image={f}" for f in image] + [f"label={label}"])
        kinds = [a for f, k in (("raw.f32", "image=f32"), ("raw.u8", "label=u8")) if f in image + [label]
                 for a in ("--format", k)]
        good(*data, *kinds, "--steps=9", "--digest=digest", settings=(program,))
        first = first or digest_of("digest")
        check(digest_of("digest") == first, "other bits from", image, label)


def case_rows_belong_together():
    """All inputs read the same row, an epoch reads every row once, and ranks read different ones."""
    x = [r for r in range(ROWS) for _ in range(6)]
    data = options(["x=" + array("x.npy", "B", (ROWS, 3, 2), x), "y=" + array("y.npy", "h", (ROWS,), range(ROWS))])
    runs = []
    for settings in ((), ("schedule.mesh.shard=2", "train.batch=2"), ("train.accumulate=2", "train.batch=2")):
        program, _ = compile_model("pairs", *settings)
        good(*data, "--steps=12", "--digest=digest", settings=(program,))
        losses = [float.fromhex(loss) for _, loss, _ in map(str.split, digest_of("digest")[0])]
        for epoch in (losses[:6], losses[6:]):
            check(sum(epoch) == 6 * (ROWS - 1) / 2, "an epoch does not read every row once:", losses)
        check(losses[:6] != losses[6:], "both epochs have one order:", losses)
        runs.append(losses)
    check(runs[0] == runs[1] == runs[2], "ranks and micro-batches read other rows than one batch:", runs)


def case_validation_and_resume():
    program, _ = compile_model("pairs")
    x = [r for r in range(ROWS) for _ in range(6)]
    files = ["x=" + array("x.npy", "B", (ROWS, 3, 2), x), "y=" + array("y.npy", "B", (ROWS,), range(ROWS))]
    data, val = options(files), options(files, "val")
    good(*data, "--steps=7", "--digest=whole", settings=(program,))
    good(*data, "--steps=3", "--save=kept", settings=(program,))
    good(*data, "--steps=7", "--resume=kept", "--digest=rest", settings=(program,))
    check(digest_of("whole")[0][3:] == digest_of("rest")[0], "a resumed run reads other rows")
    r = good(*val, "--eval", "--resume=kept", settings=(program,))
    check("validation loss 11.5000" in r.err, "validation does not read every row once:", r)
    bad(1, "--val y=FILE is missing", args=[*data, *val[:2], "--steps=1"], settings=(program,))


def streams():
    n = SEQ * ROWS + 5
    return [(11 * i * i + i) % VOCAB for i in range(n)], [(i * i) % 3 == 0 for i in range(n)]


def case_files_beside_tokens():
    program, _ = compile_model("masked")
    tokens, mask = streams()
    n = len(tokens)
    starts = range(0, SEQ * ROWS, SEQ)

    def cut(values, width, shift=0):
        return [v for s in starts for v in values[s + shift:s + shift + width]]
    array("mask.npy", "f", (n,), mask)
    array("mask.b.npy", "?", (n,), mask)
    array("mask.rows.npy", "f", (ROWS, SEQ), cut(mask, SEQ))
    write("tokens.bin", struct.pack(f"<{n}H", *tokens))
    array("next.rows.npy", "i", (ROWS, SEQ + 1), cut(tokens, SEQ + 1))
    array("rows.npy", "i", (ROWS, SEQ), cut(tokens, SEQ))
    array("targets.npy", "q", (ROWS, SEQ), cut(tokens, SEQ, 1))
    first = None
    for data in (["tokens=tokens.bin", "mask=mask.npy"], ["tokens=tokens.bin", "mask=mask.b.npy"],
                 ["tokens=tokens.bin", "mask=mask.rows.npy"], ["tokens=next.rows.npy", "mask=mask.rows.npy"],
                 ["tokens=rows.npy", "targets=targets.npy", "mask=mask.rows.npy"]):
        good(*options(data), "--steps=9", "--digest=digest", settings=(program,))
        first = first or digest_of("digest")
        check(digest_of("digest") == first, "other bits from", data)
    array("short.npy", "f", (n - 1,), mask[1:])
    for data, *words in ((["tokens=rows.npy", "mask=mask.rows.npy"], "rows.npy", "one further on", "rows of 9"),
                         (["tokens=tokens.bin", "mask=short.npy"], f"{n} elements", f"{n - 1} of mask"),
                         (["tokens=tokens.bin", "mask=next.rows.npy"], "(24, 9)", "rows of 8"),
                         (["tokens.bin", "mask=mask.npy"], "tokens=tokens.bin", "tokens and mask need data"),
                         (["tokens=mask.npy", "mask=mask.npy"], "mask.npy holds f32", "tokens is i32", "astype")):
        bad(1, *words, args=[*options(data), "--steps=1"], settings=(program,))


def losses_of(path):
    return [float.fromhex(loss) for _, loss, _ in map(str.split, digest_of(path)[0])]


def close(a, b):
    return all(abs(x - y) <= 1e-5 * abs(y) for x, y in zip(a, b, strict=True))


def case_targets_that_are_ignored_and_weights():
    """A target that is ignored is one of weight 0; the mean is by weight, in chunks, too."""
    program, _ = compile_model("sft")
    tokens, mask = streams()
    n, after = len(tokens), streams()[0][1:] + [0]
    array("t.npy", "i", (n,), tokens)
    array("y.npy", "i", (n,), after)
    array("ignored.npy", "i", (n,), [y if m else -100 for y, m in zip(after, mask)])
    array("all.npy", "q", (n,), [-100] * n)
    array("wrong.npy", "i", (n,), [-5] * n)
    array("mask.npy", "?", (n,), mask)
    array("twice.npy", "B", (n,), [2 * m for m in mask])
    array("ones.npy", "B", (n,), [1] * n)

    def run(name, program, *files, steps=9):
        good(*options(["tokens=t.npy", *files]), f"--steps={steps}", f"--digest={name}", settings=(program,))
        return losses_of(name)
    masked = run("masked", program, "targets=y.npy", "mask=mask.npy")
    for name, targets, weights in (("ignored", "ignored.npy", "ones.npy"), ("both", "ignored.npy", "mask.npy"),
                                   ("doubled", "y.npy", "twice.npy")):
        run(name, program, f"targets={targets}", f"mask={weights}")
        check(digest_of(name) == digest_of("masked"), "other bits:", targets, weights)
    ones = run("ones", program, "targets=y.npy", "mask=ones.npy")
    check(close(ones, run("mean", compile_model("plain")[0], "targets=y.npy")), "weights of 1 are no mean:", ones)
    check(not close(ones, masked), "the mask changes nothing:", ones)
    chunked, _ = compile_model("sft", "train.loss_chunks=2")
    check(close(run("chunks", chunked, "targets=ignored.npy", "mask=mask.npy"), masked), "chunks have another loss")
    files = "targets=y.npy", "mask=mask.npy"
    whole, parts = (run(f"z-loss{i}", compile_model("masked", f"train.loss_chunks={n}")[0], *files)
                    for i, n in enumerate((1, 4)))
    check(close(parts, whole), "chunks have another loss with logsumexp:", parts, whole)
    check(run("all", program, "targets=all.npy", "mask=mask.npy", steps=3) == [0, 0, 0], "a loss without targets")
    bad(1, "wrong.npy", "token -5", "outside the vocabulary of 50, or -100, which is ignored",
        args=[*options(["tokens=t.npy", "targets=wrong.npy", "mask=mask.npy"]), "--steps=1"], settings=(program,))
    bad(1, "all.npy", "token -100", "outside the vocabulary of 50",
        args=[*options(["tokens=all.npy", "mask=mask.npy"]), "--steps=1"], settings=(program,))


def case_what_does_not_fit():
    program, _ = compile_model("digits")
    x, y = pictures()
    array("x.npy", "B", (ROWS, PIXELS), x)
    array("y.npy", "B", (ROWS,), y)
    write("y.raw", bytes(y))
    write("x.raw", bytes(x[1:]))
    array("turned.npy", "B", (ROWS, PIXELS), x, fortran=True)
    array("wide.npy", "B", (ROWS, 13), [0] * 13 * ROWS)
    array("f64.npy", "d", (ROWS, PIXELS), x)
    array("inexact.npy", "i", (ROWS, PIXELS), [2**24 + 1] * len(x))
    array("none.npy", "B", (0, PIXELS), [])
    array("nan.npy", "f", (ROWS, PIXELS), [float("nan")] * len(x))
    array("yf.npy", "f", (ROWS,), y)
    array("y23.npy", "B", (ROWS - 1,), y[1:])
    array("y10.npy", "B", (ROWS,), [10] * ROWS)
    array("minus.npy", "h", (ROWS,), [-1] * ROWS)
    tensors("two.safetensors", a=("U8", (ROWS,), bytes(y)), b=("U8", (ROWS,), bytes(y)))
    tensors("f64.safetensors", label=("F64", (ROWS,), bytes(8 * ROWS)))
    good_x, good_y = "image=x.npy", "label=y.npy"
    for data, *words in (([good_x], "--data label=FILE is missing", "Digits takes label: i32[4]"),
                         (["x.npy"], "say which argument", "--data image=x.npy", "image and label need data"),
                         ([good_x, "y.npy"], "say which argument"),
                         (["picture=x.npy", good_y], "no argument 'picture'", "image and label"),
                         (["image=", good_y], "image= needs a file name"),
                         (["image=gone.npy", good_y], "gone.npy", "No such file"),
                         ([good_x, good_x, good_y], "x.npy is named twice"),
                         ([good_x, "label=yf.npy"], "yf.npy holds f32", "label is i32", "astype"),
                         ([good_x, "label=y23.npy"], "24 rows of image", "23 of label"),
                         ([good_x, "label=y10.npy"], "step 1", "y10.npy", "is 10", "label is from 0 to 9"),
                         ([good_x, "label=minus.npy"], "minus.npy", "is -1", "label is from 0 to 9"),
                         ([good_x, "label=y.raw"], "no header", "--format=label=u8", "np.save"),
                         ([good_x, "label=two.safetensors"], "2 tensors", "'label'", "--init"),
                         ([good_x, "label=f64.safetensors"], "'label' holds F64"),
                         (["image=turned.npy", good_y], "Fortran", "ascontiguousarray"),
                         (["image=wide.npy", good_y], "(24, 13)", "12 elements"),
                         (["image=f64.npy", good_y], "'<f8'", "astype(np.float32)"),
                         (["image=inexact.npy", good_y], "16777217", "image", "exactly"),
                         (["image=none.npy", good_y], "no row of image"),
                         (["image=x.npy", "image=wide.npy", good_y], "(24, 13)")):
        bad(1, *words, args=[*options(data), "--steps=1"], settings=(program,))
    bad(1, "step 1: loss nan", "gradient of", args=[*options(["image=nan.npy", good_y]), "--steps=1"],
        settings=(program,))  # numbers that are not finite may stand in data; what they do to a loss is said
    bad(1, "x.raw", "287 elements", "rows of 12",
        args=[*options(["image=x.raw", good_y]), "--format=image=u8", "--steps=1"], settings=(program,))
    bad(1, "no argument 'lable'", args=[*options([good_x, good_y]), "--format=lable=u8", "--steps=1"],
        settings=(program,))
    bad(2, "--format=label=u9", "u8, i16", args=[*options([good_x, good_y]), "--format=label=u9", "--steps=1"],
        settings=(program,))
    bad(1, "--data and --log are one file, x.npy", args=[*options([good_x, good_y]), "--log=x.npy", "--steps=1"],
        settings=(program,))


def case_the_compiler_says_what_no_run_can_feed():
    for name, *words in (("fixed", "'x' of loss is f32[3,12]", "must be batch"), ("nothing", "loss takes no argument")):
        program, said = compile_model(name)
        check("warning: no run can feed this program" in said and all(w in said for w in words), name, said)
        bad(1, "no run can feed model", args=["--data=" + write("a.txt", bytes(900)), "--steps=1"], settings=(program,))
    check("warning" not in compile_model("digits")[1], "a model that can be fed has a warning")


def example(name, *settings):
    """The program of an example, small."""
    source = os.path.join(compiled.programs.root, f"examples/{name}/{name}.hd")
    command = [compiled.programs.compiler, source, "-o", name]
    for s in settings:
        command += ["--set", s]
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(r.returncode == 0 and not r.stdout, "cannot compile:", " ".join(command), r.stdout.decode())
    compiled.programs.built[name,] = f"./{name}"
    return name


def convolved(x, size, weight, bias, stride, depth, out):
    """A 3 x 3 convolution of x[row, column], lists of `depth` numbers, with zeros around; weight [out, 3, 3, depth]."""
    y = {}
    for row in range(0, size, stride):
        for column in range(0, size, stride):
            near = [v for i in range(9) for v in x.get((row + i // 3 - 1, column + i % 3 - 1), [0] * depth)]
            y[row // stride, column // stride] = [
                bias[o] + sum(a * b for a, b in zip(near, weight[9 * depth * o :])) for o in range(out)]
    return y


def case_convolution():
    """The text in docs/limits.md for a convolution over two dimensions is one."""
    with open(os.path.join(compiled.programs.root, "docs/limits.md"), encoding="utf-8") as f:
        write("conv.hd", re.search(r"```hd\n(.*?)```", f.read(), re.S)[1].encode())
    side, colours, wide = 6, 2, 4
    sizes = (f"side={side}", f"colours={colours}", f"wide={wide}", "train.batch=1", "schedule.functions=features")
    command = [compiled.programs.compiler, "conv.hd", "-o", "conv", *(w for s in sizes for w in ("--set", s))]
    r = subprocess.run(command, capture_output=True, text=True)
    check(r.returncode == 0 and not r.stderr, "cannot compile:", r.stderr)
    compiled.programs.built["conv",] = "./conv"
    image = [math.sin(i) for i in range(side * side * colours)]
    array("x.npy", "f", (1, side, side, colours), image)
    array("y.npy", "B", (1,), [1])
    good("--data", "image=x.npy", "--data", "label=y.npy", "--steps=2", "--export=w", settings=("conv",))
    good("--init=w", "--run=features", "--data=x.npy", "--output=f.npy", settings=("conv",))
    w = {k: struct.unpack(f"<{len(data) // 4}f", data) for k, (_, _, data) in tensors_of("w")[0].items()}
    x = {(i // side, i % side): image[colours * i : colours * (i + 1)] for i in range(side * side)}
    h = convolved(x, side, w["first.weight"], w["first.bias"], 1, colours, wide)
    h = {at: [max(v, 0) for v in row] for at, row in h.items()}
    want = convolved(h, side, w["second.weight"], w["second.bias"], 2, wide, wide)
    got = struct.unpack(f"<{9 * wide}f", read("f.npy")[-4 * 9 * wide :])
    most = max(abs(a - b) for a, b in zip(got, (v for at in sorted(want) for v in want[at])))
    check(len(want) == 9 and most < 1e-5 * max(map(abs, got)), "not a convolution:", most, got)


def case_examples_learn():
    """examples/vit finds where the bright row of an image is; examples/sft learns answers and no prompt."""
    vit = example("vit", "layers=1", "dim=16", "heads=2", "train.batch=8", "train.optimizer.lr=1e-2",
                  "schedule.functions=scores")
    labels = [7 * r % 8 for r in range(64)]
    array("images.npy", "B", (64, 8, 8), [16 * (i // 8 == y) for y in labels for i in range(64)])
    array("labels.npy", "B", (64,), labels)
    good("--data", "image=images.npy", "--data", "label=labels.npy", "--steps=60", "--digest=vit.digest",
         "--save=c", settings=(vit,))
    losses = losses_of("vit.digest")
    check(losses[0] > 1.8 and max(losses[-8:]) < 0.5, "examples/vit does not learn:", losses)
    good("--resume=c", "--run=scores", "--data=images.npy", "--output=scores.npy", settings=(vit,))
    scores = struct.unpack(f"<{64 * 10}f", read("scores.npy")[-4 * 64 * 10 :])
    found = [max(range(10), key=lambda c: scores[10 * i + c]) for i in range(64)]
    check(sum(a == b for a, b in zip(found, labels)) > 56, "the scores of its images are not those of labels:", found)

    lines = [{"prompt": f"{17 * i % 97}?", "answer": "ab"} for i in range(32)]
    write("lines.jsonl", "\n".join(map(json.dumps, lines)).encode() + b"\n")
    prepare = os.path.join(compiled.programs.root, "examples/sft/prepare.py")
    subprocess.run([sys.executable, prepare, "lines.jsonl", ".", "12"], check=True)
    sft = example("sft", "layers=1", "dim=16", "heads=2", "seq=12", "train.batch=8", "train.optimizer.lr=1e-2")
    good("--data", "tokens=tokens.npy", "--data", "weights=weights.npy", "--steps=40", "--digest=sft.digest",
         settings=(sft,))
    check(losses_of("sft.digest")[-1] < 0.5, "examples/sft does not learn answers:", losses_of("sft.digest"))
    write("none.jsonl", b"\n")
    r = subprocess.run([sys.executable, prepare, "none.jsonl", "."], stderr=subprocess.PIPE)
    check(r.returncode == 1 and r.stderr == b"none.jsonl holds no line\n", "examples/sft/prepare.py:", r.stderr)


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
