#!/bin/sh
# What would have sold at another price? The verbs on the embedded retail panel, in ./m5-workspace.
#
# It takes a few minutes: three food items in ten stores to learn from, six household items to carry it to. Models of
# this size and training show how the pieces fit, not what the method can do. The Kaggle files of M5 take the same
# road: put `costar ingest m5 DIR` in the place of the first command, and leave out --truth, which only a simulator has.
set -eu

examples=$(cd "$(dirname "$0")" && pwd)
export COSTAR_WORKSPACE="${COSTAR_WORKSPACE:-m5-workspace}"
export COSTAR_PRESET=quick
subject=HOUSEHOLD_1_006@TX_3/2015 # an item in a store in a year: 23 units a week, 5 % dearer from week 38 on

say() { printf '\n$ %s\n' "$*"; "$@"; }

say costar simulate m5
say costar pretrain
say costar finetune
say costar finetune --domain target
say costar evaluate
say costar whatif --subject "$subject" --plan "$examples/plan-m5.json" --truth \
  --plot "$COSTAR_WORKSPACE/whatif.png" --overwrite

cat <<END

Plots are in $COSTAR_WORKSPACE/plots and $COSTAR_WORKSPACE/whatif.png. Try next:

  export COSTAR_WORKSPACE=$COSTAR_WORKSPACE
  costar simulate m5 --scale 0.01 --export m5-files --out again.h5     # the same world as the CSV files of M5
  costar ingest m5 m5-files --out ingested.h5                          # and back
  costar inspect $COSTAR_WORKSPACE/data.h5
END
