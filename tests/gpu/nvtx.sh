#!/usr/bin/env bash
# NVTX ranges as a real profiler sees them: one step of examples/tiny on one GPU under Nsight Compute (ncu), every
# kernel with the range that it was launched in. Ranges are named after unit and action.
#
#   tests/gpu/nvtx.sh [OUT]     BUILD=build: where heddlec is. Needs ncu (part of the CUDA toolkit) and the right to
#                               profile.
set -u
cd "$(dirname "$0")/../.."
out=${1:-${OUT:-build}/nvtx}
mkdir -p "$out"
command -v ncu > /dev/null || { echo "ncu is not installed: nothing was seen"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HEDDLE_CACHE=${HEDDLE_CACHE:-$work/cache} HEDDLE_TUNE=0 # no products but the step's own
"$(realpath "${BUILD:-build}")/bin/heddlec" examples/tiny/tiny.hd --target=cuda --set train.compute=bf16 -o \
  "$work/tiny" || exit 1
head -c 200000 /dev/urandom | base64 > "$work/text.txt"
# compiles the kernels
"$work/tiny" --data="$work/text.txt" --steps=1 > "$out/warm.log" 2>&1 || { tail -3 "$out/warm.log"; exit 1; }
timeout 300 ncu --nvtx --csv --page raw --metrics gpu__time_duration.sum "$work/tiny" --data="$work/text.txt" \
  --steps=1 --no-graph > "$out/ncu.csv" 2> "$out/ncu.err" ||
  { echo "FAIL: ncu: $(tail -3 "$out/ncu.csv" "$out/ncu.err" | cut -c1-400)"; exit 1; }
python3 - "$out/ncu.csv" <<'P'
import collections, csv, re, sys
lines = [l for l in open(sys.argv[1]) if l.startswith('"')]
rows = list(csv.DictReader(lines))
column = next((c for c in (rows[0] if rows else {}) if "Push/Pop_Range" in c), None)
if not column:
    sys.exit(f"FAIL: {len(rows)} kernels, and no column of ranges: {list(rows[0])[:12] if rows else ''}")
kernels = [r for r in rows if r["ID"].isdigit()]
ranges = [m[1] if (m := re.search(r"<default domain>:([^:]*)", r[column])) else "" for r in kernels]
counts = collections.Counter(ranges)
for name, n in counts.most_common(60):
    print(f"{n:4d} kernels in range '{name}'" if name else f"{n:4d} kernels outside of any range")
units = {name.rsplit(" ", 1)[0] for name in counts if " " in name}
blocks = {u.split(".")[1] for u in units if u.startswith("blocks.")}
start = next((i for i, name in enumerate(ranges) if name), len(ranges))
loose = sum(not name for name in ranges[start:]) # behind the ones that libraries launch when they start
if len(blocks) < 2 or loose:
    sys.exit(f"FAIL: {loose} of the step's {len(ranges) - start} kernels are in no range; units: {sorted(units)}")
print(f"all {len(ranges) - start} kernels of the step are in ranges ({start} came before it), "
      f"of {len(units)} units: {', '.join(sorted(units))}")
P
