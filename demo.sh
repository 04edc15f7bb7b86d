#!/usr/bin/env bash
# From a fresh machine to a trained model: installs, builds, compiles examples/tiny and trains it on this project's own
# text.
set -euo pipefail
cd "$(dirname "$0")"
. tests/install.sh
need_to_build
install_missing

echo "== building the compiler"
cmake -S . -B build -G Ninja >/dev/null
ninja -C build heddlec heddle-opt heddle_rt | tail -1

target=host
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then target=cuda; fi

echo "== text: this project's own files"
mkdir -p build/demo
git ls-files 2>/dev/null | grep -E '\.(c|h|def|l|y|md|hd|py|sh|txt)$' | sort > build/demo/files ||
  find . -path ./build -prune -o -regex '.*\.\(c\|h\|def\|md\|hd\|py\|sh\)' -print | sort > build/demo/files
awk 'NR % 10 != 0' build/demo/files | xargs -d '\n' cat > build/demo/train.txt
awk 'NR % 10 == 0' build/demo/files | xargs -d '\n' cat > build/demo/val.txt
wc -c build/demo/train.txt build/demo/val.txt | sed '$d'

echo "== compiling examples/tiny for $target"
build/bin/heddlec examples/tiny/tiny.hd --target=$target --set schedule.logits=on -o build/bin/tiny

echo "== training"
build/bin/tiny --data=build/demo/train.txt --val=build/demo/val.txt --steps="${STEPS:-300}" --log=build/demo/log.jsonl \
  --save=build/demo/checkpoint --overwrite --val-batches=all

python3 - <<'PY'
import json, math, collections
train = collections.Counter(open("build/demo/train.txt", "rb").read())
val = collections.Counter(open("build/demo/val.txt", "rb").read())
total = sum(train.values()) + 256
unigram = -sum(n * math.log((train[b] + 1) / total) for b, n in val.items()) / sum(val.values())
loss = [json.loads(l) for l in open("build/demo/log.jsonl") if "val_loss" in l][-1]["val_loss"]
print(f"all of val.txt: {loss:.3f} nats a byte; counting bytes alone (a unigram model) reaches {unigram:.3f}")
raise SystemExit(0 if loss < unigram - 0.3 else f"the model should be clearly below {unigram:.3f}")
PY

echo "== what it writes after \"static \""
build/bin/tiny --resume=build/demo/checkpoint --sample="static " --tokens=300 --temperature=0.8 --top-k=40

cat <<'TEXT'

What to try next:
  build/bin/tiny --data=build/demo/train.txt --steps=400 --resume=build/demo/checkpoint   go on, bit for bit
  build/bin/tiny --resume=build/demo/checkpoint --sample="int main" --temperature=0.5 --seed=2   another text
  build/bin/tiny --report                                                                what the plan holds, in bytes
  build/bin/heddlec examples/tiny/tiny.hd --emit=plan --print-ir-dir=build/demo/ir -o build/demo/plan.hir
                                                                                         every stage, a file each
  build/bin/heddlec examples/gpt2/gpt2.hd --target=cuda --emit=report                    will GPT-2 fit?
  build/bin/heddlec examples/tiny/tiny.hd --set layers=6 --set dim=192 -o build/bin/mine  your own size
  frontend/LANGUAGE.md                                                                   the language
TEXT
