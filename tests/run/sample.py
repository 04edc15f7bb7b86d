#!/usr/bin/env python3
"""What a model writes: --logits against the loss of validation, under every strategy with the same bits; the tokens of
--sample against an own choice from those logits. Usage: sample.py ROOT HEDDLEC [CASE...]
"""
import array
import contextlib
import importlib.util
import json
import math
import os
import re
import struct
import subprocess
import sys

import compiled
from cases import check
from compiled import SEQ, bad, digest_of, good, read, text_file, train_digest, write
from dropout import philox

ON = ("schedule.logits=on",)
VOCAB, WIDE = 256, 300
PROMPT = "the quick"


def logits(path):
    """The rows of a numpy array, and its shape."""
    data = read(path)
    check(data[:8] == b"\x93NUMPY\x01\x00", path, "is no numpy array")
    end = 10 + struct.unpack("<H", data[8:10])[0]
    check(end % 64 == 0 and data[end - 1 : end] == b"\n", path, "has a header that ends at", end)
    head = eval(data[10:end])  # as numpy reads it
    check(head["descr"] == "<f4" and not head["fortran_order"], path, "is", head)
    values = array.array("f", data[end:])
    check(len(values) == math.prod(head["shape"]), path, "has", len(values), "numbers, not", head["shape"])
    n = head["shape"][-1]
    return [values[i : i + n] for i in range(0, len(values), n)], head["shape"]


def trained(settings=ON, steps=20):
    """A checkpoint `c` of some steps on text."""
    good("--data=" + text_file(), f"--steps={steps}", "--save=c", settings=settings)


def loss(row, target):
    most = max(row)
    return most + math.log(math.fsum(math.exp(v - most) for v in row)) - row[target]


def case_logits():
    """The mean loss of the logits of a file is what validation says, and their bits depend on no strategy. Dropout is
    not part of them, and a program without them trains to the same bits."""
    trained()
    write("few.txt", read("data.txt")[: 5 * SEQ + 1])
    good("--resume=c", "--logits=l.npy", "--data=few.txt", settings=ON)
    rows, shape = logits("l.npy")
    check(shape == (5, SEQ, VOCAB), "of five sequences:", shape)
    tokens = read("few.txt")
    mean = math.fsum(loss(row, tokens[i + 1]) for i, row in enumerate(rows)) / len(rows)
    good("--resume=c", "--export=w.safetensors", settings=ON)
    one = (*ON, "train.batch=1")
    r = good("--init=w.safetensors", "--eval", "--val=few.txt", settings=one)
    found = float(re.search(r"val(?:idation)?[_ ]loss\s+([\d.]+)", r.err + r.out).group(1))
    check(abs(found - mean) < 1e-4, "validation says", found, "and the logits", mean)
    for more in (("fsdp=zero1",), ("fsdp=zero2",), ("fsdp=zero3", "graph=unit"), ("fsdp=zero3", "weights=master")):
        settings = (*ON, "schedule.mesh.shard=2", "schedule.fsdp.unit=Block", *(f"schedule.{s}" for s in more))
        good("--init=w.safetensors", "--logits=other.npy", "--data=few.txt", settings=settings)
        check(read("other.npy") == read("l.npy"), "other bits under", *more)


def case_training_is_the_same():
    with_logits, without = train_digest("with", settings=ON), train_digest("without")
    check(with_logits == without, "a program that has logits trains otherwise")
    good("--data=data.txt", "--steps=6", "--digest=d", "--sample=ab", "--tokens=3", "--sample-every=2", settings=ON)
    check(digest_of("d") == without, "a text between steps changes them")


def text_of(*args, settings=ON):
    r = good("--resume=c", *args, settings=settings)
    check(r.out.endswith("\n"), "no end of the line:", r)
    return r.out[:-1]


def ids_of(*args, settings=ON):
    return [int(t) for t in text_of(*args, settings=settings).split(",")]


def next_row(tokens):
    """The logits after these tokens, by --logits of a file that holds the window."""
    window = tokens[-SEQ:]
    write("w.bin", struct.pack(f"<{SEQ + 1}H", *window, *[7] * (SEQ + 1 - len(window))))
    good("--resume=c", "--logits=w.npy", "--data=w.bin", settings=ON)
    return logits("w.npy")[0][len(window) - 1]


def choose(row, at, temperature, top_k=0, top_p=1.0):
    most = max(row)
    order = sorted(range(len(row)), key=lambda t: (-row[t], t))
    share = [math.exp((v - most) / temperature) for v in row]
    if not top_k and top_p == 1:
        order = range(len(row))
    else:
        order = order[: top_k or None]
        whole, kept, n = math.fsum(share[t] for t in order), 0.0, 0
        while n < len(order) and kept < top_p * whole:
            kept += share[order[n]]
            n += 1
        order = order[: max(n, 1)]
    whole, seen = math.fsum(share[t] for t in order), 0.0
    for t in order:
        seen += share[t]
        if seen > at * whole:
            return t
    return order[-1]


def position(seed, index):
    w = philox((index, 0, 0x73616D70, 0), (seed & 0xFFFFFFFF, seed >> 32))
    return ((w[0] << 32 | w[1]) >> 11) * 2.0**-53


def follow(found, prompt, seed, **choice):
    """Each token is the one that an own choice from the logits of what stands before it gives."""
    check(found[: len(prompt)] == prompt, "it does not begin with the prompt:", found)
    for i in range(len(prompt), len(found)):
        row = next_row(found[:i])
        want = (max(range(VOCAB), key=lambda t: (row[t], -t)) if choice["temperature"] == 0
                else choose(row, position(seed, i - len(prompt)), **choice))
        check(found[i] == want, f"token {i} is {found[i]}, not {want}:", found)


def case_tokens():
    """Greedy, by temperature, by the likeliest, beyond the window; with the seed of the program and one given."""
    trained()
    prompt = list(PROMPT.encode())
    ids = "--sample-ids=" + ",".join(map(str, prompt))
    follow(ids_of(ids, "--tokens=8", "--temperature=0"), prompt, 1, temperature=0)  # 9 + 8 is more than a window
    follow(ids_of(ids, "--tokens=3"), prompt, 1, temperature=1.0)
    follow(ids_of(ids, "--tokens=3", "--temperature=0.7", "--top-k=5", "--seed=9"), prompt, 9, temperature=0.7,
           top_k=5)
    follow(ids_of(ids, "--tokens=3", "--top-p=0.4", "--seed=5000000000"), prompt, 5000000000, temperature=1.0,
           top_p=0.4)
    follow(ids_of(ids, "--tokens=2", "--top-k=3", "--top-p=0.6"), prompt, 1, temperature=1.0, top_k=3, top_p=0.6)


def case_text():
    """A text is its bytes; equal seeds give equal texts, on any number of ranks; the log says how long it took."""
    trained()
    once = text_of(f"--sample={PROMPT}", "--tokens=30", "--top-k=1")
    check(once.startswith(PROMPT), "it begins otherwise:", once)
    ids = ids_of("--sample-ids=" + ",".join(map(str, PROMPT.encode())), "--tokens=30", "--temperature=0")
    check(bytes(ids).decode(errors="replace") == once, "top-k=1 is not the likeliest token:", once)
    good("--resume=c", "--export=w.safetensors", settings=ON)
    two = (*ON, "schedule.mesh.shard=2", "schedule.fsdp=zero3", "schedule.fsdp.unit=Block")
    r = good("--init=w.safetensors", f"--sample={PROMPT}", "--tokens=30", "--top-k=1", settings=two)
    check(r.out[:-1] == once, "two ranks write otherwise:", r)
    check("30 tokens in " in r.err, "it does not say how long it took:", r)
    seeds = [text_of(f"--sample={PROMPT}", f"--seed={s}") for s in (3, 3, 4)]
    check(seeds[0] == seeds[1] != seeds[2], "seeds:", seeds)
    r = good("--data=data.txt", "--steps=24", "--resume=c", "--sample=ab", "--tokens=2", "--sample-every=2",
             settings=ON)
    check([int(s) for s in re.findall(r"text after step (\d+):", r.err)] == [22, 24], "texts after steps:", r)
    check(len(r.out.split("ab")) >= 3, "two texts:", r)


def case_cache():
    """Greedy texts are those of whole windows, beyond a window as well: llama shares keys among heads and has rotary
    positions, and sees all or few of the tokens before; gpt2 has a table of positions; the last one has softcap and
    sinks."""
    llama, tiny = ("examples/llama/llama.hd", "heads=4", "kv_heads=2", "hidden=48"), compiled.EXAMPLE
    bent = ("tests/run/tensor.hd", "kv_heads=1", "drop=0.0", "window=5", "softcap=0.7", "train.lr=0.03")
    ids = "--sample-ids=" + ",".join(map(str, PROMPT.encode()))
    for model, *sizes in (llama, (*llama, "window=5"), ("examples/gpt2/gpt2.hd", "heads=4"), bent):
        compiled.EXAMPLE = model
        cached, whole = ((f"schedule.logits={s}", "train.precision.compute=f32", f"vocab={VOCAB}", *sizes)
                         for s in ("on", "whole"))
        good("--data=" + text_file(), "--steps=20", "--save=c", "--overwrite", settings=cached)
        with_cache, without = (ids_of(ids, "--tokens=20", "--temperature=0", settings=s) for s in (cached, whole))
        check(with_cache == without, *sizes, "writes otherwise with a cache:", with_cache, without)
        compiled.EXAMPLE = tiny


def tokenizer(values):
    """A tokenizer.json of 300 tokens, and how it encodes and decodes: the package's, or the stand-in's words."""
    ways = os.path.join(compiled.programs.root, "tests/run/stand_in")
    if importlib.util.find_spec("tokenizers") is None:
        print("tokenizers is not installed: the stand-in took its place")
        write("tokenizer.json", json.dumps({"words": [f"w{i}" for i in range(300)]}))
        return {"PYTHONPATH": ways}, "w5 w77 w5", lambda ids: " ".join(f"w{i}" for i in ids)
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator(values, trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"],
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.save("tokenizer.json")
    check(t.get_vocab_size() == 300, "a vocabulary of", t.get_vocab_size())
    return {}, "the na\u00efve \u65e5\u672c", lambda ids: t.decode(ids, skip_special_tokens=False)


def tool():
    path = os.path.join(compiled.programs.root, "tools/heddle-sample")
    return sys.executable, "-B", path, "--tokenizer=tokenizer.json"


def with_tokenizer(*args, status=0, env=None, sample="w5"):
    r = subprocess.run([*tool(), f"--sample={sample}", *args], capture_output=True, stdin=subprocess.DEVNULL,
                       env=dict(os.environ, PYTHONIOENCODING="utf-8", **(env or {})))
    r = compiled.Result(["heddle-sample", *args], r.returncode, r.stdout.decode(), r.stderr.decode())
    check(r.status == status, f"expected exit {status}:", r)
    return r


def case_tokenizer():
    """heddle-sample: the text of the tokens that the program writes by itself; characters of several tokens; lines of
    training between texts; what is refused."""
    with open(os.path.join(compiled.programs.root, "LICENSE"), encoding="utf-8") as f:
        env, text, decode = tokenizer(f.readlines())
    wide = (*ON, f"vocab={WIDE}")
    program = compiled.programs.get(*wide)
    good("--data=" + text_file(), "--steps=2", "--save=c", settings=wide)
    r = with_tokenizer(program, "--resume=c", "--tokens=40", "--seed=4", env=env, sample=text)
    check(r.out.startswith(text), "it begins otherwise:", r)
    first = with_tokenizer("printf", "%s\\n", env=env, sample=text).out  # what the tool gives to a program
    ids = re.search(r"--sample-ids=([\d,]+)", first).group(1)
    check(decode([int(i) for i in ids.split(",")]) == text, "the prompt is", ids)
    numbers = ids_of("--sample-ids=" + ids, "--tokens=40", "--seed=4", settings=wide)
    check(r.out == decode(numbers) + "\n", "other text than that of the tokens:", r, numbers)
    waits = 'printf "%s,5," "${0#*=}"; read line; echo 7'
    with subprocess.Popen([*tool(), f"--sample={text}", "sh", "-c", waits], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, env=dict(os.environ, PYTHONIOENCODING="utf-8", **env)) as p:
        shown, whole = b"", decode([int(i) for i in ids.split(",")] + [5]).encode()
        while len(shown) < len(whole):  # and while the program waits
            shown += os.read(p.stdout.fileno(), 100)
        p.stdin.write(b"\n")
        p.stdin.close()
        check(shown == whole and p.stdout.read().endswith(decode([7]).encode() + b"\n"), "as it comes:", shown)
    r = with_tokenizer(program, "--data=data.txt", "--steps=4", "--sample-every=2", "--tokens=3", env=env, sample=text)
    check(len(r.out.split(text)) == 3 and "step 4/4" in r.out + r.err, "two texts beside the lines of steps:", r)
    for words, args in (
        (("--tokenizer stands behind", "heddle-sample --tokenizer=FILE"), (program, "--tokenizer=x")),
        (("cannot run nowhere/p: No such file",), ("nowhere/p",)),
        (("cannot run tokenizer.json: ", "here it is ./tokenizer.json"), ("tokenizer.json",)),
        (("token 300, which is outside the vocabulary of 300",), ("sh", "-c", 'echo "${0#*=}",300')),
    ):
        r = with_tokenizer(*args, status=1, env=env, sample=text)
        said = r.err.count("heddle-sample: error: ") == 1 and all(w in r.err for w in words)
        check(said, "it does not say", words, r)
    r = with_tokenizer(program, "--resume=c", "--tokens=none", status=2, env=env, sample=text)
    check("--tokens=none: expected a whole number" in r.err, "the program's own message:", r)
    check("makes none of this" in with_tokenizer(program, status=1, env=env, sample="").err, "an empty text")


def case_bad():
    trained()
    few = write("few.txt", read("data.txt")[: 3 * SEQ])
    for words, args in (
        (("--logits needs --data=FILE",), ("--resume=c", "--logits=l.npy")),
        (("--logits needs the weights of --resume or --init",), ("--logits=l.npy", "--data=few.txt")),
        (("--sample needs the weights",), ("--sample=a",)),
        (("--sample and --sample-ids both",), ("--resume=c", "--sample=a", "--sample-ids=1")),
        (("--tokens needs --sample=TEXT",), ("--resume=c", "--eval", "--val=few.txt", "--tokens=4")),
        (("--top-k needs --sample=TEXT",), ("--data=few.txt", "--steps=1", "--top-k=4")),
        (("--sample-every needs --steps=N",), ("--resume=c", "--sample=a", "--sample-every=4")),
        (("--sample-every needs --sample=TEXT",), ("--data=few.txt", "--steps=1", "--sample-every=4")),
        (("--temperature=0 takes the likeliest",), ("--resume=c", "--sample=a", "--temperature=0", "--top-k=4")),
        (("--temperature=hot: expected a number from 0 to 1e+06",), ("--resume=c", "--sample=a", "--temperature=hot")),
        (("--temperature=nan: expected",), ("--resume=c", "--sample=a", "--temperature=nan")),
        (("--top-p=1.5: expected a number from 0 to 1",), ("--resume=c", "--sample=a", "--top-p=1.5")),
        (("--tokens=0: expected a whole number from 1",), ("--resume=c", "--sample=a", "--tokens=0")),
    ):
        bad(2, *words, args=args, settings=ON)
    for words, args in (
        (("--sample-ids=1,x: expected numbers with commas", "such as 1,2,3"), ("--sample-ids=1,x",)),
        (("--sample-ids=1,,2: expected numbers",), ("--sample-ids=1,,2",)),
        (("--top-k=999: model Tiny has 256 tokens to choose from",), ("--sample-ids=1", "--top-k=999")),
        (("--sample-ids: 256 is outside the vocabulary of 256",), ("--sample-ids=1,256",)),
        (("--sample-ids: -1 is outside",), ("--sample-ids=-1",)),
        (("--data and --logits are one file",), ("--logits=few.txt", "--data=few.txt")),
        (("--logits=l.csv: numpy's format or safetensors is written", "end the name in .npy or .safetensors"),
         ("--logits=l.csv", "--data=few.txt")),
        (("--logits: cannot write no/l.npy",), ("--logits=no/l.npy", "--data=few.txt")),
    ):
        bad(1, *words, args=("--resume=c", *args), settings=ON)
    for option in ("--sample=a", "--sample-ids=1", "--logits=l.npy"):
        bad(1, f"{option.split('=')[0]}: this program was compiled without the function 'logits'",
            "--set schedule.logits=on", "fn logits(tokens: i32[batch, seq]) { return ...; }",
            args=("--resume=c", option, *(["--data=few.txt"] if "logits" in option else [])))
    good("--resume=c", "--export=w.safetensors", settings=ON)
    for vocab, words in ((WIDE, ("numbers up to 299 and not bytes", "heddle-sample --tokenizer=", "--sample-ids=1,2")),
                         (100, ("--sample: byte 122 is outside the vocabulary of 100",))):
        bad(1, *words, args=("--data=few.txt", "--steps=1", "--sample=az"), settings=(*ON, f"vocab={vocab}"))
    compiled.full_device("full.npy")
    bad(1, "cannot write full.npy: No space left on device", args=("--resume=c", "--logits=full.npy", f"--data={few}"),
        settings=ON)


@contextlib.contextmanager
def with_functions():
    """Programs of the example with these functions beside its loss."""
    with open(os.path.join(compiled.programs.root, compiled.EXAMPLE)) as f:
        model = f.read()
    root, example = compiled.programs.root, compiled.EXAMPLE
    compiled.programs.root, compiled.EXAMPLE = os.getcwd(), "functions.hd"
    functions = ("fn hidden(tokens) { return ln_f(blocks(wte(tokens) + wpe(iota(seq)))); }",
                 "fn score(tokens, targets) { return cross_entropy(logits(tokens), targets); }",
                 "fn pick(x: f32[batch, 3], row: i32[batch]) { return 2 * x + mean(0 * wte(row)); }")
    write("functions.hd", model.replace("  fn logits(", "".join(f"  {line}\n" for line in functions) + "  fn logits("))
    yield
    compiled.programs.root, compiled.EXAMPLE = root, example


def npy(path, kind, shape, data):
    head = str({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    head += b" " * ((-len(head) - 11) % 64) + b"\n"
    return write(path, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data.tobytes())


def case_functions():
    """--run: rows of the data in order, as an array in either format, with the bits of --logits and of any ranks; the
    loss of each row, whose mean validation reports; data of its own; what is refused, and leaves no file."""
    with with_functions():
        on = (*ON, "schedule.functions=hidden,score,pick,logits")
        trained(on, steps=3)
        few, resume = write("few.txt", read("data.txt")[: 4 * SEQ + 1]), "--resume=c"
        for name in ("hidden", "score", "logits"):
            good(resume, f"--run={name}", f"--output={name}.npy", "--data=few.txt", settings=on)
        good(resume, "--logits=l.npy", "--data=few.txt", settings=on)
        check(read("l.npy") == read("logits.npy"), "--run=logits is not --logits")
        check(logits("hidden.npy")[1] == (4, SEQ, 32), "shape of hidden:", logits("hidden.npy")[1])
        rows, shape = logits("score.npy")
        check(shape == (4,), "shape of a number for each row:", shape)
        mean = math.fsum(rows[0]) / 4
        r = good(resume, "--eval", "--val=few.txt", settings=on)
        said = float(re.search(r"validation loss ([\d.]+)", r.err + r.out).group(1))
        check(abs(mean - said) < 1e-4, "mean score", mean, "validation", said)
        good(resume, "--run=hidden", "--output=h.safetensors", "--data=few.txt", settings=on)
        data = read("h.safetensors")
        end = 8 + struct.unpack("<Q", data[:8])[0]
        head = {"hidden": {"dtype": "F32", "shape": [4, SEQ, 32], "data_offsets": [0, 4 * 4 * SEQ * 32]},
                "__metadata__": {}}
        check(end % 8 == 0 and json.loads(data[8:end]) == head, "header:", data[:end])
        check(data[end:] == read("hidden.npy")[-len(data[end:]):], "other numbers in safetensors")
        good(resume, "--export=w.safetensors", settings=on)
        three = (*on, "schedule.mesh.shard=3", "schedule.fsdp=zero3", "schedule.fsdp.unit=Block")
        good("--init=w.safetensors", "--run=hidden", "--output=three.npy", "--data=few.txt", settings=three)
        check(read("three.npy") == read("hidden.npy"), "three ranks, which take the rows in turn, have other bits")
        npy("x.npy", "<f4", (2, 3), array.array("f", range(6)))
        npy("row.npy", "<i8", (2,), array.array("q", (5, 255)))
        npy("far.npy", "<i8", (2,), array.array("q", (5, 256)))
        pick = (resume, "--run=pick", "--output=p.npy", "--data", "x=x.npy", "--data")
        bad(1, "far.npy: element 1 is 256, and row is from 0 to 255", args=(*pick, "row=far.npy"), settings=on)
        check(not os.path.exists("p.npy") and not [f for f in os.listdir() if ".tmp." in f], "a part is left")
        good(*pick, "row=row.npy", settings=on)
        rows, shape = logits("p.npy")
        check(shape == (2, 3) and [list(r) for r in rows] == [[0, 2, 4], [6, 8, 10]], "2 * x:", rows)
        bad(1, "--data tokens=few.txt: pick of model Tiny has no argument 'tokens'; it takes x and row",
            args=(*pick, "tokens=few.txt"), settings=on)
        bad(1, "--data row=FILE is missing: pick of model Tiny takes row: i32[1]", args=pick[:-1], settings=on)
        for words, args in (
            ("--run=near: of the functions of model Tiny this program has hidden, score, pick and logits; where "
             "the model has this one, too, heddlec --set schedule.functions=near",
             (resume, "--run=near", "--output=o.npy", "--data=few.txt")),
            ("--run needs --output=FILE", (resume, "--run=hidden", "--data=few.txt")),
            ("--run needs --data=FILE", (resume, "--run=hidden", "--output=o.npy")),
            ("--output needs --run=NAME", (resume, "--output=o.npy", "--data=few.txt")),
            ("--run needs the weights of --resume or --init", ("--run=hidden", "--output=o.npy", "--data=few.txt")),
            ("leave out --steps", (resume, "--run=hidden", "--output=o.npy", "--data=few.txt", "--steps=5")),
            ("leave out --val", (resume, "--run=hidden", "--output=o.npy", "--data=few.txt", "--val=few.txt")),
        ):
            bad(2, words, args=args, settings=on)
        bad(1, "--data and --output are one file", args=(resume, "--run=hidden", "--output=few.txt", f"--data={few}"),
            settings=on)
        bad(2, "--run=hidden: this program has no function of model Tiny to run; where the model has it, heddlec "
               "--set schedule.functions=hidden",
            args=(resume, "--run=hidden", "--output=o.npy", "--data=few.txt"))


def case_not_causal():
    """A model whose logits depend on later tokens writes no text, and says why."""
    with open(os.path.join(compiled.programs.root, compiled.EXAMPLE)) as f:
        model = f.read()
    check("causal = true" in model, "the example has another attention")
    compiled.programs.root, root = os.getcwd(), compiled.programs.root
    os.makedirs(os.path.dirname(compiled.EXAMPLE))
    write(compiled.EXAMPLE, model.replace("causal = true", "causal = false").encode())
    bad(1, "depend on tokens behind it", "not causal",
        args=("--data=" + text_file(), "--steps=1", "--sample=a"), settings=(*ON, "train.seed=77"))
    compiled.programs.root = root


def case_experts():
    """Experts round by how many tokens they have. That is not taken for a model that looks ahead, which is refused."""
    with open(os.path.join(compiled.programs.root, compiled.EXAMPLE)) as f:
        model = f.read()
    begin, end = model.index("  module Mlp {"), model.index("  module Block {")
    model = model[:begin] + """  module Mlp {
    router = Linear(dim, 4, bias = 0);
    param up: [4, 2*dim, dim] = normal(0.02);  param down: [4, dim, 2*dim] = normal(0.02);
    fn forward(x) {
      let weight, chosen = top_k(softmax(router(x)), 2);
      let source, slots, counts = dispatch(chosen, 4);
      return combine(grouped(gelu(grouped(take(x, source), up, counts)), down, counts), slots, weight);
    }
  }
""" + model[end:]
    root, example, compiled.programs.root = compiled.programs.root, compiled.EXAMPLE, os.getcwd()
    compiled.EXAMPLE = "experts.hd"
    for causal in ("true", "false"):
        write("experts.hd", model.replace("causal = true", f"causal = {causal}"))
        for seed in (3, 4):
            args = ("--data=" + text_file(), "--steps=1", "--sample=a", "--tokens=3", f"--seed={seed}")
            settings = ("schedule.logits=whole", "seq=64", f"train.seed={77 if causal == 'true' else 78}")
            if causal == "true":
                good(*args, settings=settings)
            else:
                bad(1, "depend on tokens behind it", args=args, settings=settings)
    compiled.programs.root, compiled.EXAMPLE = root, example


if __name__ == "__main__":
    sys.exit(compiled.main(globals()))
