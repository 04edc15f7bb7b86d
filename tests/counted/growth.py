#!/usr/bin/env python3
"""Four times the text is about four times the work, whatever the text holds: definitions, arguments, names of every
kind, settings, errors; for models and for IR. A walk over a list for each of its elements would make it sixteen times.

Packing is bounded: VALUES values without a capacity take at most PACKING of work, whatever their lives are.

Work is counted (count_work.c), never timed, so the machine and its load do not matter.
Usage: growth.py COUNT_WORK [shape...]"""
import os
import subprocess
import sys
import tempfile

SMALL, LARGE, MOST = 1500, 6000, 5.5  # the ratio is 4 for a linear shape, and a little more where a hash table grew
VALUES, PACKING = 3000, 2.5e9
PARAM = "param w: [8] = ones;"
LOSS = "fn loss(x: f32[batch, 8]) { return mean(square(x * w)); }"


def each(text, n, first=0, between="\n"):
    """The text once for each number, which it calls {i}; {j} is the number before."""
    return between.join(text.replace("{i}", str(i)).replace("{j}", str(i - 1)) for i in range(first, n))


def model(members="", statements="", result="mean(square(x * w))", head="M"):
    return (f"model {head} {{ {PARAM}\n{members}\n  fn loss(x: f32[batch, 8]) {{\n{statements}\n"
            f"    return {result};\n  }}\n}}\n")


def blocks(n, lists):
    return f"""module Block {{
{each("param w{i}: [8] = ones;", 4)}
  fn forward(x) {{ let a = x * w0; let b = a * w1; let c = b * w2; return c * w3; }}
}}
model M {{ {each("b{i} = Block;", n)}
  fn loss(x: f32[batch, 8]) {{ let y0 = x; {each("let y{i} = b{j}(y{j});", n + 1, 1)} return mean(y{n}); }}
}}
schedule M {{ {lists} }}
"""


HD = {
    "functions": lambda n: each("fn f{i}(x) { return x; }", n) + model(),
    "functions that call": lambda n: "fn f0(x) { return x; }\n" + each("fn f{i}(x) { return x; }", n, 1) +
        model(result=f"mean(w) + {each('f{i}(1)', 50, 0, ' + ')}") + each("fn g{i}(x) { return f{i}(x); }", n),
    "functions of one name": lambda n: each("fn f(x) { return x; }", n) + model(),
    "functions of the model": lambda n: model(each("fn f{i}(x) { return x; }", n)),
    "modules": lambda n: each("module A{i} { fn forward(x) { return x; } }", n) + model(),
    "modules of the model": lambda n: model(each("module A{i} { fn forward(x) { return x; } }", n)),
    "instances": lambda n: "module A { fn forward(x) { return x; } }\n" + model(each("a{i} = A;", n)),
    "repeated": lambda n: "module A { fn forward(x) { return sin(x); } }\n" +
        model(f"a = repeat({n}) A;", "let y = a(x);"),
    "unknown modules": lambda n: model(each("a{i} = A{i};", n)),
    "arguments of the model": lambda n: model(head=f"M(a0 = 1, {each('a{i} = a{j} + 1', n, 1, ', ')})"),
    "arguments by place": lambda n: f"module A({each('a{i}', n, 0, ',')}) {{ fn forward(x) {{ return x; }} }}\n" +
        model(f"a = A({each('{i}', n, 0, ',')});"),
    "arguments by name": lambda n: f"module A({each('a{i}', n, 0, ',')}) {{ fn forward(x) {{ return x; }} }}\n" +
        model(f"a = A({each('a{i} = {i}', n, 0, ',')});"),
    "arguments of a function": lambda n: f"fn f({each('a{i}', n, 0, ',')}) {{ return a0; }}\n" +
        model(result=f"mean(f(x * w {', 1' * (n - 1)}))"),
    "arguments of the loss": lambda n: f"model M {{ {PARAM} fn loss({each('x{i}: f32[batch]', n, 0, ',')}) "
        "{ return mean(x0) * mean(w); } }",
    "parameters": lambda n: f"model M {{ {each('param p{i}: [8] = ones;', n)} fn loss(x: f32[batch, 8]) {{"
        f"let y0 = x * p0; {each('let y{i} = y{j} + p{i};', n, 1)} return mean(y{n - 1}); }} }}",
    "parameters named for files": lambda n:
        "model M { " + each('param p{i}: [8] = ones as "q{i}";', n) + "fn loss(x: f32[batch, 8]) {"
        f"let y0 = x * p0; {each('let y{i} = y{j} + p{i};', n, 1)} return mean(y{n - 1}); }} }}",
    "parameters without a use": lambda n: model(each("param p{i}: [8] = ones;", n)),
    "numbers by let": lambda n: model(statements="let y0 = 1;" + each("let y{i} = y{j} + 1;", n, 1)),
    "operations by let": lambda n: model(statements="let y0 = x * w;" + each("let y{i} = sin(y{j});", n, 1)),
    "one let in many branches": lambda n: model(statements=each("if 1 { let y{i} = x; }", n)),
    "one name by let": lambda n: model(statements=each("let y = x;", n)),
    "unknown names": lambda n: model(statements=each("let y{i} = unknown{i};", n)),
    "types": lambda n: model(statements=each("let y{i} = sum(fill(1, [1{i}, 2]) * 2);", n)),
    "branches": lambda n: model(each("if 0 { }", n), each("if 0 { }", n)),
    "a list": lambda n: model(statements=f"let a = [{each('{i}', n, 0, ',')}];"),
    "settings set twice": lambda n: model() + f"train M {{ {each('batch = 2;', n)} }}",
    "unknown settings": lambda n: model() + f"train M {{ {each('a{i} = 2;', n)} }}",
    "train blocks": lambda n: model() + each("train M { }", n),
    "unknown places": lambda n: model() + f"schedule M {{ recompute {each('A{i}.b', n, 0, ',')}; }}",
    "unknown units": lambda n: model() + f"schedule M {{ fsdp zero3 {{ unit {each('A{i}', n, 0, ',')}; }} }}",
    "places": lambda n: blocks(n, "recompute Block.a; keep Block.b; offload Block.c;"),
    "places by number": lambda n: blocks(n // 3, f"recompute {each('Block[{i}].a', n // 3, 0, ',')};"
                                         f"keep {each('Block[{i}].b', n // 3, 0, ',')};"),
    "places in two lists": lambda n: blocks(n, "recompute Block.a; keep Block.a;"),
    "units": lambda n: each("module A{i} { param w: [8] = ones; fn forward(x) { return x * w; } }", n) +
        f"model M {{ {each('a{i} = A{i};', n)} fn loss(x: f32[batch, 8]) {{ let y0 = x;"
        f"{each('let y{i} = a{j}(y{j});', n + 1, 1)} return mean(y{n}); }} }}"
        f"schedule M {{ fsdp zero3 {{ unit {each('A{i}', n, 0, ',')}; }} }}",
    "a long name": lambda n: model(statements=f"let {'y' * 20 * n} = x;", result=f"mean({'y' * 20 * n} * w)"),
    "a long unknown name": lambda n: model(result=f"mean({'y' * 20 * n} * w)"),
    "a long number": lambda n: model(result=f"mean(x * w * 0.{'9' * 20 * n})"),
    "brackets": lambda n: model(result=f"mean({'(' * n}x * w{')' * n})"),
    "signs": lambda n: model(result=f"mean({'-' * n}x * w)"),
    "terms": lambda n: model(result=f"mean(x * w {'+ 1' * n})"),
    "nested branches": lambda n: model(statements="if 1 {" * n + "}" * n),
    "else branches": lambda n: model(statements="if 0 { } else " * n + "{ }"),
    "nested modules": lambda n: each("module A{i} {", n) + "}" * n + model(),
    "empty lines": lambda n: "\n" * 20 * n + model(),
    "wrong characters": lambda n: model(statements="$ " * n),
    "words without sense": lambda n: "model M { " + "param " * n,
}


def ir(body, args="%a: f32[8]", result="%a", before=""):
    return f"stage tensor\n{before}\nfunc @f({args}) -> f32[8] {{\n{body}\n  return {result}\n}}\n"


HIR = {
    "functions": lambda n: each("func @f{i}(%a: f32[8]) -> f32[8] {\n  return %a\n}", n),
    "functions of one name": lambda n: each("func @f(%a: f32[8]) -> f32[8] {\n  return %a\n}", n),
    "operations": lambda n: ir("%0 = sin %a : f32[8]\n" + each("%{i} = sin %{j} : f32[8]", n, 1), result=f"%{n - 1}"),
    "operands that are not there": lambda n: ir(each("%{i} = sin %b{i} : f32[8]", n)),
    "operations that are not there": lambda n: ir(each("%{i} = b{i} %a : f32[8]", n)),
    "arguments": lambda n: ir("", args="%a: f32[8], " + each("%a{i}: f32[8]", n, 0, ", ")),
    "parameters": lambda n: ir("", before=each("param @p{i} : f32[8] {index = {i}, init = zeros}", n)),
    "types": lambda n: ir(each("%{i} = const {value = 1.0} : f32[1{i}]", n)),
    "numbers": lambda n: ir("", before=f"config @schedule {{sizes = [{each('{i}', n, 0, ', ')}]}}"),
    "a long name": lambda n: ir(f"%b{'b' * 20 * n} = sin %a : f32[8]"),
    "a long number": lambda n: ir(f"%0 = const {{value = 0.{'9' * 20 * n}}} : f32[8]"),
    "empty lines": lambda n: "\n" * 20 * n + ir(""),
}


def lives(n, end, longest, sizes):
    """A table of values with lives of up to `longest` before `end`, by a generator of its own."""
    state, rows = 1, ["id,lower,upper,size"]
    for i in range(n):
        draws = []
        for bound in end, longest, len(sizes):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            draws.append((state >> 33) % bound)
        rows.append(f"{i},{draws[0]},{min(end, draws[0] + 1 + draws[1])},{sizes[draws[2]]}")
    return "\n".join(rows) + "\n"


CSV = {
    "long lives": lambda n: lives(n, n // 3, n // 8, [1, 2, 3, 5, 7, 1100, 13, 3000, 100, 500]),
    "all overlap": lambda n: lives(n, 2 * n, 2 * n, range(1, 1000)),
    "short lives": lambda n: lives(n, 2 * n, 60, range(1, 4096)),
}


def count(tool, text, name):
    with open(name, "w") as f:
        f.write(text)
    r = subprocess.run([tool, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    if r.returncode:
        sys.exit(f"growth.py: {name}: status {r.returncode}\n{r.stderr[-2000:]}")
    return int(r.stdout), r.stderr


def main():
    tool, only, wrong = os.path.abspath(sys.argv[1]), sys.argv[2:], 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for kind, shapes in ("hd", HD), ("hir", HIR):
            for name, shape in shapes.items():
                if only and name not in only:
                    continue
                small, _ = count(tool, shape(SMALL), f"small.{kind}")
                large, said = count(tool, shape(LARGE), f"large.{kind}")
                bad = large > MOST * small or len(said) > 100000
                wrong += bad
                print(f"{'WRONG ' if bad else ''}.{kind}, {name}: {large / small:.2f} times the work, "
                      f"{large / LARGE:.0f} a piece; {said.splitlines()[0][:150] if said else 'no error'}")
        for name, shape in CSV.items():
            if only and name not in only:
                continue
            work, said = count(tool, shape(VALUES), "values.csv")
            bad = work > PACKING or said
            wrong += bool(bad)
            print(f"{'WRONG ' if bad else ''}.csv, {name}: {work:.2g} for {VALUES} values; {said or 'no error'}")
        os.chdir("/")
    if wrong:
        sys.exit(f"{wrong} shapes take more than {MOST} times the work for {LARGE // SMALL} times the text, "
                 f"or packing more than {PACKING:.2g}, or their errors more than 100000 bytes")


main()
