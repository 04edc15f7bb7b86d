# What the scripts of two GPUs share. Sourced in the root folder, with $1: the build folder; `bad` is 1 after a failure.
build=$(realpath "${1:-build}")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
python3 - "$tmp" <<'P'
import array, random, sys
draw = random.Random(0)
for name, kind, vocab, n in (("large", "I", 50257, 1 << 19), ("small", "H", 500, 1 << 16)):
    with open(f"{sys.argv[1]}/{name}", "wb") as f:
        f.write(array.array(kind, (draw.randrange(vocab) for _ in range(n))).tobytes())
P
# program NAME EXAMPLE SETTING...: examples/EXAMPLE/EXAMPLE.hd, or EXAMPLE is a folder and a file, moe/olmoe
program() {
  local name=$1 example=$2 sets=() s
  shift 2
  [ -f "examples/$example.hd" ] || example=$example/$example
  for s in "$@"; do sets+=(--set "$s"); done
  timeout 100 "$build/bin/heddlec" "examples/$example.hd" --target=cuda "${sets[@]}" -o "$tmp/$name" || bad=1
}
train() { # NAME RANKS OPTION...
  local name=$1 ranks=$2
  shift 2
  timeout 120 "$tmp/$name" --ranks="$ranks" "$@" > /dev/null 2> "$tmp/log" || { tail -5 "$tmp/log"; bad=1; }
}
large() { # NAME: the step of a large program on two GPUs
  train "$1" 2 --data="$tmp/large" --format=u32 --steps=16 --log="$tmp/$1.jsonl"
  python3 - "$tmp/$1.jsonl" "$1" <<'P' || bad=1
import json, statistics, sys
rows = [r for r in map(json.loads, open(sys.argv[1])) if "seconds" in r]
print(f"{sys.argv[2]}: {1e3 * statistics.median(r['seconds'] for r in rows[5:]):.2f} ms a step")
P
}
near() { # ONE TWO: the losses of two digests of 12 steps in f32 are within 1e-6
  python3 - "$tmp/$1.digest" "$tmp/$2.digest" <<'P' || bad=1
import sys
one, two = ([float.fromhex(x.split()[1]) for x in open(p) if not x.startswith("param")] for p in sys.argv[1:3])
far = max(abs(a - b) / a for a, b in zip(one, two))
print(f"losses in f32, 2 GPUs beside 1: at most {far:.1e} away")
sys.exit(far > 1e-6 or len(one) != 12)
P
}
