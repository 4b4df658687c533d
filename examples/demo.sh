#!/bin/sh
# The five verbs on a small tumour cohort, in ./demo-workspace. Run by `make demo`; takes some five minutes.
#
# These models are far too small and too briefly trained to be believed: the demo shows how the pieces fit.
set -eu

examples=$(cd "$(dirname "$0")" && pwd)
export COSTAR_WORKSPACE="${COSTAR_WORKSPACE:-demo-workspace}"
export COSTAR_PRESET=quick
subject=424 # a test patient of the source: ids 0 to 499 are the source's, 500 to 759 the target's

say() { printf '\n$ %s\n' "$*"; "$@"; }

say costar simulate tumor --gamma 10
say costar pretrain
say costar finetune
say costar finetune --domain target
say costar evaluate
say costar whatif --subject "$subject" --plan "$examples/plan.json" --truth --plot "$COSTAR_WORKSPACE/whatif.png" --overwrite

cat <<END

Plots are in $COSTAR_WORKSPACE/plots and $COSTAR_WORKSPACE/whatif.png. Try next:

  export COSTAR_WORKSPACE=$COSTAR_WORKSPACE COSTAR_PRESET=$COSTAR_PRESET PATH=$(dirname "$(command -v costar)"):\$PATH
  costar whatif --subject 3 --plan $examples/plan.json --json
  costar inspect $COSTAR_WORKSPACE/model.h5
  costar finetune --from scratch && costar evaluate --overwrite    # what does pretraining bring?
  costar --help
END
