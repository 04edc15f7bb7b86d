# lit configuration. Run by ctest, or by hand: `lit tests/lit [--param build=build/asan]`.
import glob
import inspect
import os
import re
import shutil
import subprocess
import sys

import lit.formats

config.name = "heddle"
# RUN lines are for the shell of the system, which lit 23 gives to those alone who ask twice.
shell = ("execute_external", "force_execute_external")
known = inspect.signature(lit.formats.ShTest.__init__).parameters
config.test_format = lit.formats.ShTest(**{word: True for word in shell if word in known})
config.suffixes = [".hir", ".hd", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)

root = os.path.dirname(os.path.dirname(config.test_source_root))
build = os.path.abspath(lit_config.params.get("build", os.path.join(root, "build")))
config.test_exec_root = os.path.join(build, "tests", "lit")
tools = os.path.join(build, "bin")

llvm = lit_config.params.get("llvm")
if not llvm:
    found = sorted(glob.glob("/usr/lib/llvm-*/bin/FileCheck"))
    llvm = os.path.dirname(found[-1] if found else shutil.which("FileCheck") or "")
config.environment["PATH"] = os.pathsep.join([tools, llvm, os.environ["PATH"]])
config.environment["FILECHECK_OPTS"] = "--enable-var-scope"
config.environment["ASAN_OPTIONS"] = "detect_leaks=0"
config.environment["UBSAN_OPTIONS"] = "print_stacktrace=1"
for name in ("HOME", "CC", "CUDA_HOME", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "HEDDLE_TEST_PART"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
quick_cc = os.path.join(build, "quick-cc")  # tests/CMakeLists.txt
if os.path.exists(quick_cc):
    config.environment.setdefault("CC", quick_cc)

config.substitutions.append(("%root", root))
config.substitutions.append(("%examples", os.path.join(root, "examples")))
config.substitutions.append(("%build", build))
config.substitutions.append(("%python", sys.executable))

# With sanitizers CUDA text is made, but NVRTC is not called: the text is the same without them, and NVRTC is not ours.
# A test whose time goes into searches for plans says UNSUPPORTED: sanitized. `rest` runs both kinds and nothing else.
CALL = r"nvrtc-check --arch=\w+ --no-spills -\s*(?:\|.*)?$"
sanitized, rest = (lit_config.params.get(name, "0") != "0" for name in ("sanitized", "rest"))
if sanitized:
    config.available_features.add("sanitized")
    config.substitutions.append((CALL, "cat > %t.text"))


def says(path, pattern):
    with open(path, encoding="utf-8", errors="replace") as f:
        return re.search(pattern, f.read(), re.M)


# With HEDDLE_TEST_PART=N each seventh file runs with sanitizers, and `rest` runs the others in the optimised build, where
# the tools verify after each pass as those with sanitizers do. Files that take long by nature say `LONG: 9 s of ...`: they
# are for `rest` alone, and a seventh of them runs. Of the files that call NVRTC a seventh does so, in `rest`; the others
# run with sanitizers.
sys.path.append(os.path.join(root, "tests", "run"))
import part
if sanitized or rest:
    paths = sorted(p for s in config.suffixes for p in glob.glob(f"{config.test_source_root}/**/*{s}", recursive=True)
                   if f"{os.sep}Inputs{os.sep}" not in p)
    long_ones = [p for p in paths if says(p, r"^(?:// )?LONG: \d+ s of ")]
    for_rest = [p for p in paths if says(p, "UNSUPPORTED: sanitized") and p not in long_ones]
    calls = [p for p in paths if says(p, "RUN:.*" + CALL) and p not in (*for_rest, *long_ones)]
    for_both = [p for p in paths if p not in (*for_rest, *calls, *long_ones)]
    chosen = {*part.of(for_both), *calls} - {*part.of(calls)}
    if rest:
        chosen = {*paths} - chosen - {*calls, *long_ones} | {*part.of(calls), *part.of(long_ones)}
        config.substitutions.append((r"(?<![\w/.(-])(heddlec|heddle-opt)(?= (?!--narrow))", r"\1 --verify-each"))
    lit_config.note(f"{len(chosen)} of {len(paths)} files; {part.told()}")

    found = lit.formats.ShTest.getTestsInDirectory  # workers get the format itself: a class of this file is not theirs
    lit.formats.ShTest.getTestsInDirectory = lambda *args: (t for t in found(*args) if t.getSourcePath() in chosen)

# Features a test may ask for with REQUIRES.
for tool in ("heddlec", "heddle-opt", "heddle-translate", "nvrtc-check"):
    if os.path.exists(os.path.join(tools, tool)):
        config.available_features.add(tool)
try:
    if subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=20).stdout.startswith(b"GPU"):
        config.available_features.add("gpu")
except (OSError, subprocess.TimeoutExpired):
    pass
nvrtc = glob.glob("/usr/local/cuda*/lib64/libnvrtc.so*")
nvrtc += glob.glob(os.path.join(root, "build", "nvrtc", "nvidia", "*", "lib", "libnvrtc.so*"))
if nvrtc:
    config.available_features.add("nvrtc")
