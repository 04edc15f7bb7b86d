#!/usr/bin/env python3
"""Pages of timelines: a predicted one (heddlec --emit=timeline) and measured ones (a program's --timeline). Their data
hold together, they name nothing outside themselves, and in a browser without a head they draw every bar without an
error: a bar is found by its text and hit where it is drawn, wheel and keys work, and 20,000 actions are drawn within
SECONDS. Without a browser (chromium, or the one in $CHROMIUM) that part is left out, and the test is skipped with exit
status 77 after the rest has passed.

usage: timeline.py HEDDLEC ROOT [PICTURES]     PICTURES: a folder for pictures of the pages, light and dark
"""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SECONDS = 1.5  # a frame with 20,000 actions, drawn by the processor alone on a machine that is busy with other tests
SMALL = ["layers=2", "dim=32", "heads=2", "seq=16", "train.batch=2"]
RANKS = ["schedule.mesh.shard=2", "schedule.fsdp=zero3", "schedule.fsdp.unit=Block"]
DATA = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.S)


def check(condition, *what):
    if not condition:
        sys.exit("FAIL: " + " ".join(map(str, what)))


def run(*command, status=0, cwd=None):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, timeout=600)
    check(done.returncode == status, *command, f"\nexit {done.returncode}\n", done.stderr[-2000:])
    return done.stdout + done.stderr


def sets(settings):
    return [word for s in settings for word in ("--set", s)]


def check_data(page, lanes, runs):
    """What the page says of itself, taken as the script takes it."""
    text = page.read_text()
    check(not re.search(r"""(?:src|href)\s*=|https?://|@import|url\(""", DATA.sub("", text)), page, "names other files")
    data = json.loads(DATA.search(text).group(1))
    plan = data["plan"]
    check(len(data["lanes"]) == lanes, page, "lanes", data["lanes"])
    starts = [data["runs"][i:i + 3] for i in range(0, len(data["runs"]), 3)]
    check(len(starts) == runs, page, "runs", starts)
    spans = [data["spans"][i:i + 5] for i in range(0, len(data["spans"]), 5)]
    check(len(spans) > 20 and data["version"] == 1, page, "has few bars")
    ends = {}
    for lane, run_, action, start, length in sorted(spans, key=lambda s: (s[0], s[3])):
        function = plan["functions"][starts[run_][0]]
        check(0 <= action < len(function["actions"]) / 7 and lane < lanes, page, "action", action)
        check(starts[run_][1] - 1 <= start and start + length <= starts[run_][2] + 1, page, "a bar outside of its run")
        check(start >= ends.get(lane, 0) - 1 and length >= 0, page, "bars that overlap on lane", lane)
        ends[lane] = start + length
    most = max(f["actions"][i + 6] for f in plan["functions"] for i in range(0, len(f["actions"]), 7))
    check(plan["persistent"] + most <= plan["arena"] <= 1.05 * (plan["persistent"] + most), page, "peak of memory")
    held = sum(plan["peak"]["holders"][0::4])
    check(held == most, page, "what is live at the peak adds up to", held, "not", most)
    return data, len(spans)


def browser():
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome"):
        if name and shutil.which(name):
            return shutil.which(name)
    return None


def look(chromium, folder, page, *more, at="", output=None):
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1400,800",
               f"--user-data-dir={folder}/browser", *more, f"file://{page}{at}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    check(done.returncode == 0, page, "the browser failed:", done.stderr[-800:])
    return done.stdout


def check_page(chromium, folder, page, bars, pictures):
    dom = look(chromium, folder, page, "--virtual-time-budget=60000", "--dump-dom", at="#selftest")
    found = re.search(r'<pre id="selftest"[^>]*>(.*?)</pre>', dom, re.S)
    check(found, page, "did not run its test:", dom[-600:])
    r = json.loads(html.unescape(found.group(1)))
    check(r["errors"] == [], page, "errors of the script:", r["errors"])
    check(r["actions"] == r["drawn"] == bars, page, "bars:", bars, "drawn:", r["drawn"])
    check(r["found"] > 0 and r["hit"] and r["told"], page, "a bar is not found by its text:", r)
    check(r["zoomed"] and r["all"] and not r["overflow"] and r["frames"] > 0, page, r)
    check(max(r["ms20000"], r["ms20000zoomed"]) < 1e3 * SECONDS, page, "20,000 actions take", r["ms20000"], "ms")
    for theme in ("light", "dark") if pictures else ():
        look(chromium, folder, page, f"--screenshot={pictures}/{page.stem}-{theme}.png", at=f"#{theme}")
    return r["ms20000"]


def main():
    heddlec, root = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    pictures = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
    tiny, pages = root / "examples/tiny/tiny.hd", []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder).resolve()
        (folder / "train.txt").write_text((root / "README.md").read_text())
        page = folder / "predicted.html"
        run(heddlec, root / "examples/gpt2/gpt2.hd", "--target=cuda", "--emit=timeline", "-o", page,
            *sets(RANKS + ["layers=4", "train.accumulate=3", "schedule.mesh.shard=8"]))
        pages.append((page, *check_data(page, 3, 3)))
        check(run(heddlec, tiny, "--emit=timeline", status=1).count("there is no device table") == 1, "host timelines")
        for name, ranks, settings in (("one", 1, ["train.accumulate=3"]), ("two", 2, RANKS + ["train.accumulate=2"])):
            run(heddlec, tiny, "-o", folder / name, *sets(SMALL + settings))
            page = folder / f"{name}.html"
            run(folder / name, f"--ranks={ranks}", "--data=train.txt", "--steps=2", f"--timeline={page.name}",
                cwd=folder)
            data, bars = check_data(page, 3 * ranks if ranks > 1 else 1, {"one": 4, "two": 4}[name])
            check(data["kind"] == "measured", page)
            pages.append((page, data, bars))
        said = run(folder / "one", "--data=train.txt", "--steps=1", "--timeline=/nowhere/t.html", status=1, cwd=folder)
        check("--timeline: cannot write /nowhere/t.html" in said, said)
        chromium = browser()
        if not chromium:
            print("skipped: no chromium to look at pages with; the data of the pages are right")
            return 77
        for page, _, bars in pages:
            ms = check_page(chromium, folder, page, bars, pictures)
            print(f"{page.name}: {bars} bars, 20,000 drawn in {ms:.0f} ms")
    return 0


sys.exit(main())
