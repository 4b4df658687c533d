#!/usr/bin/env bash
# A benchmark in a script: run it, let it continue if it was interrupted, read the tables from the JSON document.
#
#     examples/benchmark.sh [FOLDER]
#
# FOLDER keeps the benchmark; without it, a temporary folder is used and removed. The sizes are toy sizes: a minute. Any
# setting can be changed from outside, for example COSTAR_BENCHMARK_METHODS=all COSTAR_SIMULATE_TUMOR_TRAIN=1000.
set -euo pipefail

if [ $# -gt 0 ]; then
  folder=$1
  mkdir -p "$folder"
else
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
export COSTAR_BENCHMARK_METHODS="${COSTAR_BENCHMARK_METHODS:-costar,ridge,last-value}"
export COSTAR_SIMULATE_TUMOR_TRAIN="${COSTAR_SIMULATE_TUMOR_TRAIN:-24}" COSTAR_SIMULATE_TUMOR_VAL="${COSTAR_SIMULATE_TUMOR_VAL:-8}"
export COSTAR_SIMULATE_TUMOR_TEST="${COSTAR_SIMULATE_TUMOR_TEST:-8}" COSTAR_SIMULATE_TUMOR_TARGET_TEST="${COSTAR_SIMULATE_TUMOR_TARGET_TEST:-8}"
export COSTAR_SIMULATE_TUMOR_TARGET_TRAIN="${COSTAR_SIMULATE_TUMOR_TARGET_TRAIN:-8}" COSTAR_SIMULATE_TUMOR_TARGET_VAL="${COSTAR_SIMULATE_TUMOR_TARGET_VAL:-8}"
export COSTAR_PRETRAIN_EPOCHS="${COSTAR_PRETRAIN_EPOCHS:-1}" COSTAR_FINETUNE_EPOCHS="${COSTAR_FINETUNE_EPOCHS:-2}"
export COSTAR_EVALUATE_BOOTSTRAP="${COSTAR_EVALUATE_BOOTSTRAP:-200}"

# bench WORDS...: the benchmark. Cells that failed are in the document, too; 130 would be Ctrl-C.
bench() {
  costar benchmark tumor --preset quick --members 2 --folder "$folder/tumor" --quiet "$@"
}

bench --list
bench --json > "$folder/benchmark.json" || echo "some cells failed with $?: the same command tries them again" >&2

python3 - "$folder/benchmark.json" <<'END'
import json, sys

result = json.load(open(sys.argv[1]))["result"]
for table in result["tables"]:
    tests = {row["name"]: row for row in table["comparisons"]}
    for row in table["rows"]:
        p = tests.get(row["name"], {}).get("p_holm")
        note = "" if p is None else f"  p (Holm) {p:.3f}"
        print(f"{table['setup']:11} {row['label']:28} {row['mean']['average']:8.3f}{note}")
for failure in result["failures"]:
    print("failed:", failure["what"], failure["error"]["problem"])
END

# Nothing is made twice, and more can be asked for later.
bench --json --no-plots > "$folder/again.json"
python3 -c 'import json, sys; print(json.load(sys.stdin)["status"])' < "$folder/again.json"
