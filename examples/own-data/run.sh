#!/bin/sh
# A table of your own from beginning to end, with the small one beside this script: ingest, look, train, evaluate, ask.
#
# Everything goes to ./own-data-workspace; it takes about a minute. The table is invented (make_small_csv.py), and 66
# patients to learn from are few: it shows how the pieces fit, not what the method can do.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
export COSTAR_WORKSPACE="${COSTAR_WORKSPACE:-own-data-workspace}"
export COSTAR_PRESET=quick
export COSTAR_PRETRAIN_EPOCHS="${COSTAR_PRETRAIN_EPOCHS:-20}"
export COSTAR_FINETUNE_EPOCHS="${COSTAR_FINETUNE_EPOCHS:-60}" COSTAR_FINETUNE_BATCH_SIZE=16
patient=S-012 # a test patient of the southern hospital

say() { printf '\n$ %s\n' "$*"; "$@"; }

say costar ingest table "$here/small.csv" --schema "$here/schema.toml"
say costar inspect "$COSTAR_WORKSPACE/data.h5" --report -
say costar inspect "$COSTAR_WORKSPACE/data.h5" --report "$COSTAR_WORKSPACE/report.html" --overwrite
say costar pretrain
say costar finetune
say costar finetune --domain target
say costar evaluate
say costar ingest table "$here/new-patients.csv" --like "$COSTAR_WORKSPACE/model.h5"
say costar whatif --subjects all --plan "$here/plan-own.json" --data "$COSTAR_WORKSPACE/new.h5" --csv "$COSTAR_WORKSPACE/new.csv" --overwrite
say costar whatif --subject "$patient" --plan "$here/plan-own.json" --plot "$COSTAR_WORKSPACE/whatif.png" --overwrite

cat <<END

The report is $COSTAR_WORKSPACE/report.html, plots are in $COSTAR_WORKSPACE/plots and $COSTAR_WORKSPACE/whatif.png.
Try next:

  costar ingest table $here/small.csv --init --out guessed.toml    # what costar guesses of the same table
  costar inspect $COSTAR_WORKSPACE/data.h5 --export tables          # the data set as tables again
END
