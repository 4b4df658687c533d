#!/bin/sh
# Visits, doses and deaths from a CSV to survival under plans: ingest, train, look at the hazards, evaluate, ask.
#
# Everything goes to ./deaths-workspace; it takes a minute. The table is invented (make_deaths_csv.py): the drug
# lowers a marker that kills, and is toxic itself.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
export COSTAR_WORKSPACE="${COSTAR_WORKSPACE:-deaths-workspace}"
mkdir -p "$COSTAR_WORKSPACE"

say() { printf '\n$ %s\n' "$*"; "$@"; }

python3 "$here/make_deaths_csv.py" > "$COSTAR_WORKSPACE/deaths.csv"
cat > "$COSTAR_WORKSPACE/plan.json" <<END
{"origin": 4,
 "plans": {"none": [{"repeat": {}, "times": 6}],
           "drug": [{"repeat": {"drug": 1}, "times": 6}]}}
END
say costar ingest table "$COSTAR_WORKSPACE/deaths.csv" --schema "$here/deaths.toml" --overwrite
say costar finetune --method ridge --overwrite
say costar inspect "$COSTAR_WORKSPACE/model-ridge.h5"
say costar evaluate --no-plots --overwrite
say costar whatif --subject P012 --plan "$COSTAR_WORKSPACE/plan.json" --plot "$COSTAR_WORKSPACE/whatif.png" --overwrite
