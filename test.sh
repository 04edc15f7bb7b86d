#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test: the quick ones under the address and undefined-behaviour
# sanitizers; what has threads under the thread sanitizer; the fuzzers, with the inputs of one seed, or at random for
# SECONDS_EACH where that is set; in an optimised build the slow ones and what the sanitizers left out. Quiet unless
# something fails. Logs are in build/log.
#
# What takes long by nature runs in part: each day another seventh of it. HEDDLE_TEST_PART=1 to 7 has another part run,
# HEDDLE_TEST_PART=all all of them (tests/README.md says which tests have parts).
set -euo pipefail
cd "$(dirname "$0")"
. tests/install.sh
need_to_build
need 'command -v g++' g++
need 'command -v clang' clang
need 'command -v tcc' tcc libtcc-dev
need 'ls /usr/lib/{llvm-*/lib/,}clang/*/lib/linux/libclang_rt.fuzzer-*.a 2>/dev/null | grep -q .' libclang-rt-14-dev
need 'ls /usr/lib/llvm-*/bin/FileCheck | grep -q .' llvm-14-tools
need 'python3 -m pip --version' python3-pip
install_missing

jobs=$(nproc)
at_once=$((jobs + 2)) # tests: some mostly wait for others' silence
day=$(date -u +%F)
export HEDDLE_TEST_PART=${HEDDLE_TEST_PART:-$(($(date -u -d "$day" +%s) / 86400 % 7 + 1))} # the only look at the date
echo "== HEDDLE_TEST_PART=$HEDDLE_TEST_PART (on $day): which of seven parts of the longest tests runs"
mkdir -p build/log

# step NAME COMMAND...: runs it with its output in a log; shows the log's end when it fails.
step() {
  local name=$1 log
  shift
  log=build/log/${name// /-}.log
  echo "== $name"
  if ! "$@" >"$log" 2>&1; then
    echo "$name failed; the end of $log:" >&2
    tail -60 "$log" >&2
    exit 1
  fi
}

build() { # PRESET [TARGET...]
  cmake --preset "$1" && ninja -C "$(preset_folder "$1")" -j"$jobs" "${@:2}"
}

preset_folder() { if [ "$1" = release ]; then echo build; else echo "build/$1"; fi; }

# CUDA text is compiled for real even where there is no GPU: NVRTC needs none. The toolkit's is used when there is one.
nvrtc() {
  ls /usr/local/cuda*/lib64/libnvrtc.so* >/dev/null 2>&1 && return 0
  ls build/nvrtc/nvidia/*/lib/libnvrtc.so* >/dev/null 2>&1 && return 0
  python3 -m pip install --quiet --disable-pip-version-check --target build/nvrtc nvidia-cuda-nvrtc==13.0.88 ||
    echo "no NVRTC: the tests that compile CUDA text are skipped"
}

# Pages of timelines are looked at in a browser. Without one that part of a test is skipped.
browser() {
  need 'command -v chromium || command -v google-chrome' chromium
  install_missing || echo "no chromium: pages of timelines are not looked at"
  missing=()
}

# beside COMMAND...: starts it as a group of processes, which ends where this script fails. `running` has the groups.
running=()
beside() {
  set -m
  "$@" &
  set +m
  running+=($!)
}
trap 'for group in "${running[@]}"; do kill -- "-$group" 2>/dev/null || true; done' EXIT

downloads() {
  step "nvrtc" nvrtc
  step "browser" browser
}
beside downloads
step "build release" build release
step "build with sanitizers" build asan
wait "${running[0]}"

# The names of a folder's tests, as ctest lists them with these options.
names() { ctest --test-dir "$1" -N "${@:2}" | sed -n 's/^ *Test *#[0-9]*: //p' | sort; }

# seventh: of the lines of its input, those of the part that runs.
seventh() {
  if [ "$HEDDLE_TEST_PART" = all ]; then cat; else awk -v part="$HEDDLE_TEST_PART" '(NR - part) % 7 == 0'; fi
}

# With sanitizers: the quick tests, and of those labelled `weekly` each seventh. The rest is for the optimised build.
sanitized=$({ names build/asan -L quick -LE weekly; names build/asan -L weekly | seventh; } | sort)
done_before=$(comm -23 <(echo "$sanitized") <(names build -L both) | paste -sd'|')
[ -n "$done_before" ] || { echo "no test has run with sanitizers" >&2; exit 1; }
# In the optimised build all the others, and of those labelled `turn` each seventh.
turns=$(names build -L turn)
not_today=$(comm -23 <(echo "$turns") <(seventh <<<"$turns") | paste -sd'|')

# The fuzzers of the compiler need one half of the sources, those of the runtime the other. Each day one half is built,
# and both where fuzzing is at random.
fuzzers="fuzz_hir fuzz_hd fuzz_plan"
of_runtime="fuzz_st fuzz_hub fuzz_cache fuzz_data fuzz_frames fuzz_manifest"
if [ "$HEDDLE_TEST_PART" = all ] || [ -n "${SECONDS_EACH:-}" ]; then fuzzers="$fuzzers $of_runtime"
elif [ $((HEDDLE_TEST_PART % 2)) = 0 ]; then fuzzers=$of_runtime; fi

# Three rows of tests. The third begins when one of the others has ended, so that no core waits for a row's last test.
quick() {
  step "quick tests with sanitizers" ctest --test-dir build/asan -R "^($(paste -sd'|' <<<"$sanitized"))\$" \
    -j"$at_once" --output-on-failure
}
races_and_fuzz() {
  step "build with the thread sanitizer" build tsan
  step "races" ctest --test-dir build/tsan -j"$jobs" --output-on-failure
  step "build fuzzers" build fuzz $fuzzers
  cmake -Dseconds="${SECONDS_EACH:-0}" build/fuzz >/dev/null
  step "fuzz" ctest --test-dir build/fuzz -R "^($(tr ' ' '|' <<<"$fuzzers"))\$" -j"$jobs" --output-on-failure
}
rest() {
  echo "== all other tests"
  ctest --test-dir build -E "^($done_before${not_today:+|$not_today})\$" -j"$at_once" --output-on-failure \
    --no-label-summary >build/log/rest.log 2>&1
}

running=()
beside quick
beside races_and_fuzz
wait -n "${running[@]}"
failed=0
rest || failed=1
for group in "${running[@]}"; do wait "$group"; done
running=()
cd build/log
python3 ../../tests/slowest.py quick-tests-with-sanitizers.log races.log fuzz.log <rest.log
exit $failed
