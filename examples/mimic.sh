#!/bin/sh
# From young ICU patients to old ones: the verbs on the embedded ICU cohort, in ./mimic-workspace.
#
# It takes about three minutes on two cores. Outcomes and treatments are simulated, so every what-if has a known answer;
# models of this size and training show how the pieces fit, not what the method can do. With access to MIMIC-III, give
# `--mimic-extract all_hourly_data.h5` to the first command, or read what was really given with `costar ingest mimic`.
set -eu

examples=$(cd "$(dirname "$0")" && pwd)
export COSTAR_WORKSPACE="${COSTAR_WORKSPACE:-mimic-workspace}"
export COSTAR_PRESET=quick
subject=113 # a test patient of the source, 36 hours

say() { printf '\n$ %s\n' "$*"; "$@"; }

say costar simulate mimic
say costar pretrain
say costar finetune
say costar finetune --domain target
say costar evaluate
say costar whatif --subject "$subject" --plan "$examples/plan-mimic.json" --truth \
  --plot "$COSTAR_WORKSPACE/whatif.png" --overwrite

cat <<END

Plots are in $COSTAR_WORKSPACE/plots and $COSTAR_WORKSPACE/whatif.png. Try next:

  export COSTAR_WORKSPACE=$COSTAR_WORKSPACE
  costar inspect $COSTAR_WORKSPACE/data.h5                                  # who was left out, and why
  costar simulate mimic --stays 300 --export-extract stays.h5 --out small.h5  # the cohort as a MIMIC-Extract file
  costar ingest mimic stays.h5 --out factual.h5                             # and what was given and measured in it
END
