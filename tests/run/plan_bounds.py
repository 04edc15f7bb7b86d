"""Counts from the text of a plan how many units are kept beside one that is gathered, or wait beside a gradient that
begins. It shares nothing with verify-plan, whose invariants V13 and V14 it checks. For plans in which each unit is one
bucket."""
import collections
import re

LINE = re.compile(r"^ +\[(\w+)\] (?:(%[\w, %]+) = )?(\w+)(.*)$")


class Life:
    def __init__(self, begin):
        self.begin, self.use, self.write, self.ops = begin, None, -1, []


def counted(text, kind):
    """Transient buffers of the class, but for gradients that wait for the optimizer."""
    stay = set(re.findall(r"^bucket .*\bgradient = @([\w.]+)", text, re.M))
    found = re.findall(rf"^buffer @([\w.]+) .*class = {kind}\b.*transient", text, re.M)
    return set(found) - stay


def functions(text):
    for body in re.findall(r"^func @[^\n]*\n(.*?)^}", text, re.M | re.S):
        yield [m for m in map(LINE.match, body.splitlines()) if m]


def accesses(op, rest, homes):
    """(buffer, whether it is written), reads first."""
    rest = re.sub(r" loc\(.*$", "", rest)
    said = re.sub(r"after = \[[^]]*\]", "", rest)
    reads = [homes[v] for v in re.findall(r"%\w+", said) if v in homes] + re.findall(r"\bbuffer = @([\w.]+)", said)
    writes = re.findall(r"\b(?:into|life) = @([\w.]+)", said)
    return [(b, False) for b in reads] + [(b, True) for b in writes]


def lives_of(ops, buffers):
    """Of a function: lives in the order in which they begin; by op: how far it has seen each stream; places."""
    homes, lives, events, now = {}, {}, {}, collections.defaultdict(dict)
    seen, place = [], []
    for i, m in enumerate(ops):
        stream, results, op, rest = m.groups()
        if op in ("record", "wait"):
            event = int(re.search(r"event = (\d+)", rest)[1])
        if op == "wait" and event in events:
            at = events[event]
            for s, n in [*seen[at].items(), (ops[at][1], place[at])]:
                now[stream][s] = max(now[stream].get(s, 0), n)
        seen.append(dict(now[stream]))
        now[stream][stream] = now[stream].get(stream, 0) + 1
        place.append(now[stream][stream])
        if op == "record":
            events[event] = i
        if op == "view":
            homes[results] = re.search(r"buffer = @([\w.]+)", rest)[1]
            continue
        if op == "reshape":
            source = re.search(r"%\w+", rest)[0]
            if source in homes:
                homes[results] = homes[source]
            continue
        for b, write in accesses(op, rest, homes):
            if b not in buffers:
                continue
            life = lives.setdefault(b, Life(i))
            life.ops.append(i)
            if write:
                life.write = i
            elif life.use is None:
                life.use = i
    return list(lives.values()), seen, place


def most(text, setting):
    """The largest number that `prefetch`, or live_grads - 1, has to allow."""
    gathered = setting == "prefetch"
    buffers, worst = counted(text, "weights" if gathered else "gradients"), 0
    for ops in functions(text):
        lives, seen, place = lives_of(ops, buffers)
        for k, by in enumerate(lives):
            until = by.use if gathered else by.begin
            if until is None:
                continue
            gone = lambda i: place[i] <= seen[by.begin].get(ops[i][1], 0)
            kept = [x for x in lives[:k] if not all(map(gone, x.ops))]
            worst = max(worst, sum((x.ops[-1] if gathered else x.write) < until for x in kept))
    return worst
