#!/usr/bin/env python3
"""Every message a user can get has a test: for each message in the sources, a stretch of its text between %s and %d
must occur in some file under tests/. Usage: diagnostics.py ROOT [--list]

Messages are the string literals in calls of the functions named in CALLS, and literals that type rules return.
"""
import os
import re
import sys

FOLDERS = ("ir", "frontend", "passes", "codegen")
# calls whose first string literal is a message
CALLS = re.compile(r"\b(hd_hub_wrong|hd_plan_wrong|hd_plan_unproved|hd_error|hd_note|hd_front_error|hd_parse_error|"
                   r"hd_diag_add|FAIL|WRONG|wrong|hd_args_bad|error_at|fail_at|complain)\s*\(")
RETURNS = re.compile(r'^\s*(?:if .*)?return "', re.M)  # type rules
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
CONVERSION = re.compile(r"%[-+ #0]*\d*(?:\.\d+|\.\*)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z%]")
SHORTEST = 8  # a stretch shorter than this proves nothing
# Diagnostics that no test can reach: the machine's own failures.
UNTESTABLE = ("out of memory", "cannot start the C compiler")


def arguments_end(text, start):
    """The position of the parenthesis that closes the one before `start`, outside literals."""
    depth, i = 1, start
    while i < len(text) and depth:
        c = text[i]
        if c == '"':
            i = LITERAL.match(text, i).end() - 1
        elif c == "'":
            i += 2 if text[i + 1] == "\\" else 1
            i += 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        i += 1
    return i


def joined_literals(text):
    """Groups of adjacent literals, each joined to one text."""
    groups, end = [], None
    for m in LITERAL.finditer(text):
        if end is not None and not text[end : m.start()].strip():
            groups[-1] += m.group(1)
        else:
            groups.append(m.group(1))
        end = m.end()
    return groups


def strip_comments(text):
    """Blanks // comments, which may hold quotes, without moving anything."""
    out = []
    for line in text.split("\n"):
        i, quoted = 0, False
        while i < len(line):
            if line[i] == "\\" and quoted:
                i += 2
                continue
            if line[i] == '"' and not (not quoted and line[i - 1 : i + 2] == "'\"'"):
                quoted = not quoted
            if not quoted and line[i : i + 2] == "//":
                line = line[:i]
                break
            i += 1
        out.append(line)
    return "\n".join(out)


def messages(root):
    for folder in FOLDERS:
        for where, folders, files in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(files):
                if not name.endswith((".c", ".y", ".l", ".h")):
                    continue
                path = os.path.join(where, name)
                text = strip_comments(open(path, encoding="utf-8").read())
                for m in CALLS.finditer(text):
                    before = text[text.rfind("\n", 0, m.start()) + 1 : m.start()].lstrip()
                    if before.startswith(("#define", "static", "void", "bool", "int", "_Noreturn")):
                        continue  # the function itself
                    groups = joined_literals(text[m.end() : arguments_end(text, m.end())])
                    if groups:
                        chosen = max(groups, key=len) if "?" in text[m.end() : m.end() + 60] else pick(groups)
                        yield path, text.count("\n", 0, m.start()) + 1, chosen
                if name in ("type_rules.c", "type_rules.h", "type_storage.c"):
                    for m in RETURNS.finditer(text):
                        literal = LITERAL.search(text, m.start())
                        yield path, text.count("\n", 0, m.start()) + 1, literal.group(1)


def pick(groups):
    """The format is the first literal that reads like a sentence."""
    for g in groups:
        if " " in g and len(g) >= SHORTEST:
            return g
    return groups[0]


def literal_parts(message):
    text = CONVERSION.sub(lambda m: "%" if m.group(0) == "%%" else "\0", message)
    for escaped, plain in (('\\"', '"'), ("\\n", "\n"), ("\\\\", "\\")):
        text = text.replace(escaped, plain)
    return text.split("\0")


def shown(parts, tests):
    """A test holds a long stretch of the message, or two short ones with a value between them."""
    for p in parts:
        if len(p.strip(" '\n:;,()")) >= SHORTEST and p.strip(" '\n:;,()") in tests:
            return True
    for left, right in zip(parts, parts[1:]):
        left = left[-20:].lstrip()
        for end in (right[:1], right[:6].rstrip()):
            shown_as = re.escape(left) + r"[^\n]{1,60}?" + re.escape(end)
            if len(left) + len(end) >= SHORTEST - 2 and re.search(shown_as, tests):
                return True
    return False


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    corpus = []
    for where, folders, files in os.walk(os.path.join(root, "tests")):
        folders.sort()
        corpus += [open(os.path.join(where, f), encoding="utf-8", errors="replace").read() for f in sorted(files)
                   if not f.endswith((".py", ".cmake"))]
    tests = "\n".join(corpus)
    total = untested = 0
    for path, line, message in messages(root):
        parts = literal_parts(message)
        if sum(len(p.strip()) for p in parts) <= SHORTEST - 2 or any(u in message for u in UNTESTABLE):
            continue
        total += 1
        tested = shown(parts, tests)
        if "--list" in sys.argv:
            print(f"{'  ' if tested else '! '}{path}:{line}: {message}")
        elif not tested:
            print(f"{path}:{line}: no test shows this message: {message}")
        untested += not tested
    print(f"{total} messages, {untested} without a test")
    return 1 if untested or total < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
