"""Where the text of a module can be made wrong: single edits of CUDA text, by kind (mutants.py runs them).

Left out, since kernels on the CPU cannot show them: wgmma.fence, fences of memory, __launch_bounds__.
"""
import collections
import re

from compile import closing, split

# kind: names of the functions whose calls are taken out
CALLS = {
    "barrier": "__syncthreads|__syncwarp|att_meet|meet|att_team|att_pass",
    "await": "att_await|gw_await|await",
    "arrival": "att_arrive|att_arrive_copied|gw_arrive|release",
    "copies": "att_wait|copies_wait|att_commit|copies_commit|gw_left|gw_close",
    "wgmma": "att_finish|att_submit|gw_finish|gw_submit",
    "fence": "att_seen",
}
# kind: pattern, replacement
TEXTS = {
    "copies": [(r"(?<=att_wait<)\d(?=>)", lambda m: str(int(m.group()) + 1)),
               (r"(?<=copies_wait<)\d(?=>)", lambda m: str(int(m.group()) + 1)),
               (r'(?<="n"\()held - 1(?=\))', "held")],
    "wgmma": [(r"(?<=att_finish<)\d(?=>)", lambda m: str(int(m.group()) + 1))],
    "compare": [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > ")],
    "plus_one": [(r" \+ 1\b(?![.\d])", ""), (r" - 1\b(?![.\d])", "")],
    "offset": [(r"(?<= \+ )([2-9]|\d{2,5})\b(?![.\d])", lambda m: str(int(m.group()) // 2))],
    "accumulate": [("add, 0, 0;", "add, 1, 0;"), (", 1, 1, 1, 0, ", ", 0, 1, 1, 0, "),
                   (r"add, %\d+, 0;", "add, 1, 0;")],
    "swizzle": [(r" \^ [\w ()%]+<< 4", " "), (r"(?<=c % 8) \^ r % 8", ""), (r" \^ (?!1\b)[\w.]+(?: % \d+)?", "")],
    "lanes": [(r"(?<= & )(31|3|7|127)\b", lambda m: str(int(m.group()) // 2)),
              (r"(?<=% )(32|4|8)\b", lambda m: str(int(m.group()) // 2)),
              (r"(?<=, )(1|2|4|8|16)(?=\))", lambda m: str(int(m.group()) * 2 % 31))],
    "random": [(r"\bword >> 16(?=\))", lambda m: "0x8000u"), (r"\bparam\[1\]", lambda m: "param[0]"),
               (r"\bk0, k1(?=, \(unsigned\)n)", lambda m: "k1, k0"), (r"(?<=, )step(?=\))", lambda m: "0u"),
               (r" \^ UP_KEY\b", lambda m: "")],
    "minmax": [(r"\bfmaxf\(", "fminf("), (r"\bfminf\(", "fmaxf("), (r"\bmax\(", "min("), (r"\bmin\(", "max(")],
}
ONLY_IN = {"lanes": r"threadIdx|lane|\bl\b|__shfl"}
Site = collections.namedtuple("Site", "function kind number at old new line")


def without_comments(text):
    """The same length; in place of comments, and of lines for the preprocessor, blanks."""
    def blank(m):
        return m.group() if m.group()[0] == '"' else re.sub(r"[^\n]", " ", m.group())
    return re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|^#[^\n]*(?:\\\n[^\n]*)*', blank, text, flags=re.S | re.M)


def functions(plain):
    """(name, start, end) of functions and structs that begin in the first column."""
    for m in re.finditer(r"^(?=[a-zA-Z_])[^;{}]*\{", plain, re.M):
        head = re.sub(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)", "", m.group())
        found = re.search(r"\bstruct (\w+)", head) or re.search(r"(\w+)\s*\(", head)
        if found and not head.startswith("namespace") and not re.match(r'extern "C" \{', head):
            yield found.group(1), m.start(), closing(plain, m.end() - 1)


def calls(body):
    for kind, names in CALLS.items():
        for m in re.finditer(rf"(?<![\w.])(?:{names})(?:<[^<>;]*>)?\(", body):
            end = closing(body, m.end() - 1)
            if body[end:end + 1] != ";":  # a declaration, or part of an expression
                continue
            yield kind, m.start(), body[m.start():end], "(void)0"
            args = split(body[m.end():end - 1], ",")
            if m.group() == "att_await(" and len(args) == 2:
                yield "parity", end - 1 - len(args[1]), args[1], f" (({args[1].strip()}) ^ 1)"
    for m in re.finditer(r"\basm volatile\(", body):
        end = closing(body, m.end() - 1)
        kind = {"bar.": "barrier", "cp.async.wait": "copies", "mbarrier.arrive.expect": "arrival",
                "fence.proxy": "fence"}
        for name, of in kind.items():
            if body[m.end():].startswith('"' + name):
                yield of, m.start(), body[m.start():end], "(void)0"


def texts(body):
    for kind, rows in TEXTS.items():
        for pattern, new in rows:
            for m in re.finditer(pattern, body):
                start = body.rfind("\n", 0, m.start()) + 1
                line = body[start:body.find("\n", m.end())]
                to = m.expand(new) if isinstance(new, str) else new(m)
                if to != m.group() and re.search(ONLY_IN.get(kind, ""), line) and "template <" not in line:
                    yield kind, m.start(), m.group(), to


def sites(text):
    """Of a module's text, in order: each edit, numbered among those of its kind and function. What a template has once
    for all its kernels (#ifndef) the compiler reads at its first place."""
    plain, count, read = without_comments(text), collections.Counter(), set()
    for name, start, end in functions(plain):
        body = plain[start:end]
        if body in read and f"#define {name} " not in text:
            continue
        read.add(body)
        for kind, at, old, new in sorted([*calls(body), *texts(body)], key=lambda s: (s[1], s[0])):
            count[name, kind] += 1
            from_ = text.rfind("\n", 0, start + at) + 1
            line = text[from_:text.find("\n", start + at)].strip()
            yield Site(name, kind, count[name, kind], start + at, text[start + at:start + at + len(old)], new, line)


def numbered(text):
    """The same edits; a template that the text has again has its numbers again."""
    plain, every, first = without_comments(text), list(sites(text)), {}
    for _, start, end in functions(plain):
        mine = [site for site in every if start <= site.at < end]
        for site, like in zip(mine, first.setdefault(plain[start:end], mine)):
            yield site._replace(number=like.number)
