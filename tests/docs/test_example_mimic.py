"""The ICU example runs, and its plans are about treatments that the data set has."""

import json
from pathlib import Path

import pytest

from costar_cli.data.icu.semi_synthetic import MIMIC_SCHEMA
from costar_cli.plans import read_plans
from tests.docs.test_examples_run import Script

SMALL = {
    "COSTAR_SIMULATE_MIMIC_STAYS": "250",
    "COSTAR_SIMULATE_MIMIC_HOURS": "28",
    "COSTAR_PRETRAIN_EPOCHS": "1",
    "COSTAR_PRETRAIN_MEMBERS": "1",
    "COSTAR_FINETUNE_MEMBERS": "1",
    "COSTAR_FINETUNE_EPOCHS": "1",
    "COSTAR_FINETUNE_BATCH_SIZE": "8",
}


@pytest.mark.slow
def test_the_script_goes_from_stays_to_a_what_if_with_truth(
    tmp_path: Path, repository: Path, run_script: Script
) -> None:
    done = run_script("mimic.sh", cwd=tmp_path, **SMALL)
    assert done.returncode == 0, done.stderr
    assert "250 stays, " in done.stderr
    assert "zero-shot" in done.stdout
    assert "few-shot" in done.stdout
    assert "subject 113 (source/" in done.stdout
    for name in json.loads((repository / "examples" / "plan-mimic.json").read_text())["plans"]:
        assert name in done.stdout
    assert "y2, by " in done.stdout
    assert "truth" in done.stdout
    assert (tmp_path / "mimic-workspace" / "whatif.png").exists()


def test_the_plans_name_treatments_of_the_data_set(repository: Path) -> None:
    plans = read_plans(repository / "examples" / "plan-mimic.json", MIMIC_SCHEMA.treatments, horizon=6)
    assert plans.origin == 20
    given = {plan.name: MIMIC_SCHEMA.treatments.describe(plan.values[0]) for plan in plans.plans}
    assert given == {"nothing": "none", "t1 now": "t1", "t2 for three hours": "t2", "all, once": "t1+t2+t3"}
