#!/usr/bin/env bash
# Attention with softcap or sinks on a GPU: what a step takes beside the same model without, in turns, and the same bits
# from captured graphs and direct launches. Needs heddlec and libheddle_rt.a (BUILD=build), a C compiler and a GPU.
#
#   tests/gpu/softcap.sh [OUT]    logs in OUT (default: $OUT/softcap, else build/gpu/softcap); STEPS=40, ROUNDS=2
# Some 2 minutes. One line a program and round; "FAIL" where it did not hold. Exit status 0: all held.
set -u
cd "$(dirname "$0")/../.."
out=${1:-${OUT:-build/gpu}/softcap}
mkdir -p "$out"
heddlec=${BUILD:-build}/bin/heddlec
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
fail() { printf '%-14s FAIL: %s\n' "$1" "$2"; bad=1; }
python3 - "$work" <<'P'
import sys
x, words = 1, bytearray()
for _ in range(1500000):  # a skewed distribution, so that the loss has something to learn
    x = (x * 6364136223846793005 + 1442695040888963407) % (1 << 64)
    words += int(32000 * ((x >> 40) / (1 << 24)) ** 3).to_bytes(2, "little")
open(sys.argv[1] + "/tokens.bin", "wb").write(words)

def put(name, text, *changes):
    for old, new in changes:
        if old not in text:
            sys.exit(f"{name}: the example has no {old!r}")
        text = text.replace(old, new)
    open(f"{sys.argv[1]}/{name}.hd", "w").write(text)

gpt2, llama3 = (open(f"examples/{n}/{n}.hd").read() for n in ("gpt2", "llama3"))
put("gpt2", gpt2)
put("gpt2-softcap", gpt2, ("dropout = drop), proj", "dropout = drop, softcap = 50.0), proj"))
put("gpt2-sink", gpt2, ("dropout = drop), proj", "dropout = drop, sink = sink), proj"),
    ("    fn forward(x) {\n      let q, k, v", "    param sink: [heads over tensor] = zeros;\n"
     "    fn forward(x) {\n      let q, k, v"))
put("llama3", llama3)
put("llama3-softcap", llama3, ("window = window)", "window = window, softcap = 50.0)"))
P
[ $? = 0 ] || exit 1
names="gpt2 gpt2-softcap gpt2-sink llama3 llama3-softcap"
for n in $names; do
  case $n in
  gpt2*) sets="train.batch=32" ;;
  *) sets="layers=16 dim=2048 heads=16 kv_heads=8 hidden=8192 seq=4096 train.batch=2" ;;
  esac
  "$heddlec" "$work/$n.hd" --target=cuda --arch="${ARCH:-sm_90}" $(printf -- '--set %s ' $sets) -o "$work/$n" \
    > "$out/$n.build" 2>&1 || fail "$n" "cannot build: $(head -1 "$out/$n.build")"
done
run() { # run NAME LOG ARGUMENT...
  timeout 120 "$work/$1" --data="$work/tokens.bin" --seed=7 --steps="${STEPS:-40}" --log-every=10 "${@:3}" > "$2" 2>&1
}
for round in $(seq "${ROUNDS:-2}"); do
  for n in $names; do
    run "$n" "$out/$n.$round.log" --digest="$work/$n.digest" || { fail "$n" "does not run"; continue; }
    printf '%-14s %s\n' "$n" "$(tail -1 "$out/$n.$round.log")"
  done
done
for n in gpt2-softcap gpt2-sink llama3-softcap; do
  run "$n" "$out/$n.direct.log" --no-graph --digest="$work/$n.direct" &&
    cmp -s "$work/$n.digest" "$work/$n.direct" || fail "$n" "other bits without graphs"
done
exit $bad
