#!/usr/bin/env bash
# Small programs on one GPU. First each runs with a guard (heddlec --guard) under --check, which finds what an action
# writes beyond its values: the arena is one allocation to every other tool. The digest has to be that of the program
# without a guard. Then each runs under the four tools of compute-sanitizer: memcheck, initcheck, synccheck and
# racecheck. Attention runs on the program's own kernels there: cuDNN's do not get through synccheck. Of racecheck only
# what names a kernel of the program counts, since cuBLAS synchronises in ways that it does not see. Nor does it see
# that an mbarrier orders a bulk copy into shared memory and a later store to the same place: reports of the wgmma
# kernels of attention are numbered apart and are no failure. One line a program and tool, "FAIL" where something was
# found; the whole reports are in OUT.
#
#   tests/gpu/sanitize.sh [OUT] [NAME...]    BUILD=build: where heddlec is. SANITIZER=compute-sanitizer: the tool, which
#                                            comes with the CUDA toolkit. Exit 77: it is not installed, and nothing was
#                                            found without it.
set -u
cd "$(dirname "$0")/../.."
out=${1:-${OUT:-build}/sanitize}
shift $(($# < 1 ? $# : 1))
sanitizer=${SANITIZER:-compute-sanitizer}
heddlec=$(realpath "${BUILD:-build}")/bin/heddlec
tools="memcheck initcheck synccheck racecheck"
command -v "$sanitizer" > /dev/null || { echo "$sanitizer is not installed: only guards are looked at"; tools=; }
mkdir -p "$out"
export HEDDLE_CACHE=${HEDDLE_CACHE:-$(realpath "$out")/cache} HEDDLE_TUNE=0 # timing under a tool says nothing
for i in $(seq 2000); do echo "line $i of a text that is long enough for some steps"; done > "$out/text.txt"
bad=0

# races PROGRAM_TEXT REPORT: how many hazards of racecheck name a kernel of the program, and how many of these one that
# mbarriers order
races() {
  python3 - "$1" "$2" <<'P'
import re, sys
text = open(sys.argv[1], errors="replace").read()
own = set(re.findall(r"__global__[^;{]*?\b(\w+)\([^()]*\)\s*\{", text))
own |= {name for macro, name in re.findall(r"#define (\w+) (\w+)", text) if macro in own}  # names of templates' kernels
if not own:
    sys.exit("no kernel was found in the program's text")
reports = re.split(r"(?m)^=+ (?=Error|Warning)", open(sys.argv[2], errors="replace").read())[1:]
named = [[k for k in own if re.search(rf"\b{k}\b", r)] for r in reports]
ordered = sum(bool(n) and all(k.startswith(("attention_hopper", "attention_ordered")) for k in n) for n in named)
print(sum(map(bool, named)) - ordered, ordered)
P
}

check() { # NAME TOOL
  local report=$out/$1.$2.txt summary n ordered=0
  # A call that the runtime makes to be refused, such as asking for the parameter after a kernel's last, is no error.
  # Kernels on wgmma take more barriers than racecheck follows by default; synccheck reports every kernel with them.
  local more=()
  case $2 in
    memcheck) more=(--report-api-errors=no);;
    racecheck) more=(--num-cuda-barriers=65536);;
  esac
  HEDDLE_ATTENTION=kernel timeout 900 "$sanitizer" --tool="$2" --print-limit=1000 "${more[@]}" \
    "$out/$1" --data="$out/text.txt" --steps=2 --no-graph > "$report" 2>&1
  local status=$?
  summary=$(grep -oE '(ERROR|RACECHECK) SUMMARY: .*' "$report" | tail -1)
  if [ -z "$summary" ] || { [ $status != 0 ] && ! grep -q 'step 2' "$report"; }; then
    echo "$1 $2: FAIL: the tool or the program did not finish (exit $status), see $report"
    bad=1
    return
  fi
  n=$(grep -oE '[0-9]+ (error|hazard)' <<< "$summary" | head -1 | grep -oE '[0-9]+')
  [ "$2" = racecheck ] && read -r n ordered <<< "$(races "$out/$1.cu" "$report")"
  if [ "$n" = 0 ] && [ "${ordered:-0}" != 0 ]; then
    echo "$1 $2: nothing found but $ordered reports of kernels that mbarriers order ($summary)"
  elif [ "$n" = 0 ]; then echo "$1 $2: nothing found ($summary)"
  else
    echo "$1 $2: FAIL: $summary, see $report: $(grep -m1 -E '^=+ (Error|Warning|Program|Barrier|Divergent)' "$report")"
    bad=1
  fi
}

# Compiles a program, and the same with a guard.
build() { # NAME SOURCE OPTIONS...
  local name=$1 source=$2
  shift 2
  "$heddlec" "$source" --target=cuda "$@" -o "$out/$name" && "$heddlec" "$source" --target=cuda "$@" --emit=cuda \
    -o "$out/$name.cu" && "$heddlec" "$source" --target=cuda "$@" --guard -o "$out/$name.guarded"
}

guarded() { # NAME
  local report=$out/$1.guard.txt status
  rm -f "$out/$1".*digest
  timeout 900 "$out/$1" --data="$out/text.txt" --steps=3 --digest="$out/$1.digest" > "$report" 2>&1 &&
    timeout 900 "$out/$1.guarded" --data="$out/text.txt" --steps=3 --check --digest="$out/$1.guarded.digest" \
      >> "$report" 2>&1
  status=$?
  if [ $status != 0 ]; then
    echo "$1 guard: FAIL: $(grep -m1 '^error: ' "$report" || echo "exit $status"), see $report"
    bad=1
  elif ! cmp -s "$out/$1.digest" "$out/$1.guarded.digest"; then
    echo "$1 guard: FAIL: the digest differs from that without a guard: $out/$1.digest, $out/$1.guarded.digest"
    bad=1
  else echo "$1 guard: nothing found, and the digest is that without a guard"
  fi
}

# name, source, settings
while read -r name source settings; do
  [ -n "$name" ] || continue
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  sets=(); for s in $settings; do sets+=(--set "$s"); done
  if ! build "$name" "$source" "${sets[@]}"; then
    echo "$name: FAIL: cannot be compiled"
    bad=1
    continue
  fi
  guarded "$name"
  for tool in $tools; do check "$name" "$tool"; done
done <<'T'
tiny examples/tiny/tiny.hd layers=1 train.batch=2
tiny-bf16 examples/tiny/tiny.hd layers=1 train.batch=2 train.compute=bf16
tiny-heads64 examples/tiny/tiny.hd layers=1 heads=2 train.batch=2 train.compute=bf16
tiny-accumulate examples/tiny/tiny.hd layers=1 train.batch=2 train.accumulate=2
tiny-offload examples/tiny/tiny.hd layers=2 train.batch=2 schedule.offload=Block schedule.margin=0 schedule.min_size=0
bigram tests/lit/tools/Inputs/bigram.hd train.batch=4
T
[ $bad = 0 ] && [ -z "$tools" ] && exit 77
exit $bad
