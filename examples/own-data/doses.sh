#!/bin/sh
# A treatment that is a number: ingest a table of doses, fit a model in seconds, draw the dose-response curve of a patient.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
export COSTAR_WORKSPACE="${COSTAR_WORKSPACE:-doses-workspace}"
mkdir -p "$COSTAR_WORKSPACE"

say() { printf '\n$ %s\n' "$*"; "$@"; }

"${PYTHON:-python3}" "$here/make_doses_csv.py" "$COSTAR_WORKSPACE/doses.csv"
say costar ingest table "$COSTAR_WORKSPACE/doses.csv" --schema "$here/doses.toml"
say costar finetune --method ridge
say costar whatif --subject P-007 --sweep "insulin 0:12:2" --plot "$COSTAR_WORKSPACE/curve.png" --overwrite
