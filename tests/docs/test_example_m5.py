"""The retail example runs, and its plans name price changes that the data set has."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from costar_cli.data.retail.sequences import class_encoding
from costar_cli.plans import read_plans
from simulators.retail import PRICE_EDGES
from tests.docs.test_examples_run import Script

SMALL = {
    "COSTAR_SIMULATE_M5_TRAIN_ITEMS": "1",
    "COSTAR_SIMULATE_M5_TEST_ITEMS": "1",
    "COSTAR_SIMULATE_M5_ORIGINS": "1",
    **{f"COSTAR_{stage}_ENCODER_{size}": n for stage in ("PRETRAIN", "FINETUNE")
       for size, n in (("WIDTH", "4"), ("LAYERS", "1"))},
    "COSTAR_PRETRAIN_EPOCHS": "1", "COSTAR_PRETRAIN_MEMBERS": "1",
    "COSTAR_FINETUNE_EPOCHS": "1", "COSTAR_FINETUNE_MEMBERS": "1", "COSTAR_EVALUATE_BOOTSTRAP": "50",
}  # fmt: skip


@pytest.mark.timeout(600)  # a larger panel than those of other tests
@pytest.mark.slow  # the same verbs run on a smaller panel in tests/cli/test_cli_m5.py
def test_the_script_goes_from_a_catalogue_to_a_what_if_with_truth(
    tmp_path: Path, repository: Path, run_script: Script
) -> None:
    done = run_script("m5.sh", cwd=tmp_path, **SMALL)
    assert done.returncode == 0, done.stderr
    assert "counterfactual" in done.stdout
    assert "zero-shot" in done.stdout
    assert "few-shot" in done.stdout
    assert "Subject HOUSEHOLD_1_006@TX_3/2015 on week" in done.stdout
    for name in json.loads((repository / "examples" / "plan-m5.json").read_text())["plans"]:
        assert re.search(rf"^{name} ", done.stdout, re.MULTILINE)
    assert (tmp_path / "m5-workspace" / "whatif.png").exists()


def test_the_plans_name_price_changes_of_the_data_set(repository: Path) -> None:
    encoding = class_encoding(np.array(PRICE_EDGES))
    plans = read_plans(repository / "examples" / "plan-m5.json", encoding, horizon=6)
    assert plans.origin == 37
    given = {plan.name: plan.values[:, 0].tolist() for plan in plans.plans}
    assert given == {"raise": [11] * 6, "keep": [0] * 6, "cut": [2, 2, 2, 0, 0, 0]}
