#!/usr/bin/env bash
# costar in a CI job: every verb with --json, every exit code checked, the numbers read from the documents.
#
#     examples/ci.sh [FOLDER]
#
# FOLDER is where the JSON documents and the workspace go; without it they go to a temporary folder and are removed. The
# sizes are toy sizes, so that the job takes seconds: it shows the plumbing, not what the method can do. Any setting can
# be changed from outside, for example COSTAR_FINETUNE_EPOCHS=20. Stops with the exit code of the first verb that fails.
set -euo pipefail

examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ $# -gt 0 ]; then
  folder=$1
  mkdir -p "$folder"
else
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
export COSTAR_WORKSPACE="$folder/workspace"
export COSTAR_PRETRAIN_EPOCHS="${COSTAR_PRETRAIN_EPOCHS:-1}" COSTAR_PRETRAIN_MEMBERS="${COSTAR_PRETRAIN_MEMBERS:-2}"
export COSTAR_FINETUNE_EPOCHS="${COSTAR_FINETUNE_EPOCHS:-2}"
export COSTAR_EVALUATE_BOOTSTRAP="${COSTAR_EVALUATE_BOOTSTRAP:-100}"

# verb NAME WORDS...: run `costar WORDS... --json`, keep the document as NAME.json, stop at the first failure.
verb() {
  local name=$1 code=0
  shift
  costar "$@" --json --quiet > "$folder/$name.json" || code=$?
  if [ "$code" -ne 0 ]; then
    value "$name" 'd["error"]["problem"]' >&2
    exit "$code"
  fi
  printf '%-16s %s\n' "$name" "$(value "$name" 'd["status"]')"
}

# value NAME EXPRESSION: print a Python expression over the document d.
value() {
  python3 -c 'import json, sys; d = json.load(sys.stdin); print(eval(sys.argv[1]))' "$2" < "$folder/$1.json"
}

# check NAME EXPRESSION: stop unless the expression over the document d is true.
check() {
  if [ "$(value "$1" "bool($2)")" != True ]; then
    echo "$1: expected $2" >&2
    exit 1
  fi
}

verb simulate simulate tumor --gamma 10 --train 24 --val 8 --test 20 \
  --target-train 6 --target-val 6 --target-test 20 --steps 20
check simulate 'len(d["result"]["parts"]) == 6'

verb pretrain pretrain
verb finetune finetune
verb finetune-target finetune --domain target
# Gates, in % of V_max: `costar evaluate` exits with 10 where one fails, and so does this job.
verb evaluate evaluate --no-plots --fail-if 'zero-shot.costar.average > 100' --fail-if 'few-shot.costar.average > 100'
check evaluate '{row["setup"] for row in d["result"]["rows"]} == {"zero-shot", "few-shot", "supervised"}'
check evaluate 'all(gate["verdict"] == "passed" for gate in d["result"]["gates"])'

verb whatif whatif --subject 33 --plan "$examples/plan.json" --origin 2 --truth
check whatif 'all(row["truth"] is not None for row in d["result"]["estimates"])'

# The same inputs again: nothing is done twice.
verb pretrain-again pretrain
check pretrain-again 'd["status"] == "up_to_date"'

# What a pipeline hands on should be whole.
verb verify verify "$COSTAR_WORKSPACE/model.h5"

echo
value evaluate '"\n".join("%-11s %-42s %6.3f" % (row["setup"], row["label"] + ", " + row["basis"].split(",")[0],
  row["mean"]["average"]) for row in d["result"]["rows"])'
