"""The card of a model: what its file and the files beside it say, and that it stands alone."""

import copy
from dataclasses import replace

import pytest

from costar_cli.config.models import EvaluateConfig
from costar_cli.data.report import DataReport, describe_dataset
from costar_cli.evaluation import Candidate, EvaluationReport, run_evaluation
from costar_cli.evaluation.calibrated import LevelScores
from costar_cli.evaluation.metrics import PerStep
from costar_cli.report.pages.card import model_card
from tests.methods.linear_worlds import fit, linear_data, model_of
from tests.pages.reading import read_alone

DIGEST = "a" * 64
EVIL = '<script>alert(1)</script>"&\x1b[31m{{ 7 * 7 }}'


@pytest.fixture(scope="module")
def known() -> tuple[dict, DataReport, EvaluationReport]:
    """What is known of a ridge regression on a linear system: its file, its data, its scores."""
    data = linear_data(gamma=4)
    trained = fit(data, "ridge")
    report = run_evaluation(data, [Candidate(model_of(trained, digest=DIGEST))], EvaluateConfig(bootstrap=50))
    content = {"digest": DIGEST, "meta": trained.meta, "parents": {"dataset": "d" * 64}, "versions": {"numpy": "2"}}
    return content, describe_dataset(data), report


def test_the_card_has_scores_with_intervals_calibration_shift_and_lineage(known) -> None:
    content, data, report = known
    reader = read_alone(model_card(content, data, {"e" * 64: report}))
    row = next(row for row in report.rows if row.basis == "ours")
    for words in (
        f"{row.mean.average:.4g}", f"{row.lower.average:.4g} to {row.upper.average:.4g}", "Last value carried forward",
        f"Calibrated on {content['meta']['calibration']['subjects']} source subjects", "Shift from source to target",
        "Intended use", "Misuse", "Known limits", DIGEST, "d" * 64, "e" * 64, "closed form",
    ):  # fmt: skip
        assert words in reader.text, words
    assert f"{row.calibration['0.9'].coverage.average:.1%}" in reader.text
    assert model_card(content, data, {}) == model_card(content, data, {})


def test_what_a_band_that_does_not_exist_covers_is_unknown(known) -> None:
    content, data, report = known
    none = PerStep((None,) * report.horizon, None)
    calibration = {"0.9": LevelScores(*[none] * 5)}
    rows = [replace(row, calibration=calibration) if row.basis == "ours" else row for row in report.rows]
    text = read_alone(model_card(content, data, {"e" * 64: replace(report, rows=tuple(rows))})).text
    assert "90%" in text
    assert "Unknown: too few calibration subjects" in text


def test_large_counts_have_separators(known) -> None:
    content, _, _ = known
    many = copy.deepcopy(content)
    many["meta"]["validation"]["windows"] = 1620
    assert "from 1,620 origins" in read_alone(model_card(many, None, {})).text


def test_shares_of_practice_are_percent_and_single_things_singular(known) -> None:
    content, _, _ = known
    one = copy.deepcopy(content)
    row = {"treatment": "drug", "expected": 0.0139, "observed": 0.25, "decisions": 72}
    one["meta"] |= {"practice": {"reliability": [row]}, "trained_on": {"source/train": 1}}
    one["meta"]["schema"]["statics"] = [{"name": "age"}]
    one["meta"]["schema"]["covariates"] = []
    text = read_alone(model_card(one, None, {})).text
    for words in ("1.4 %", "25.0 %", "0 covariates and 1 static feature", "source/train: 1 subject"):
        assert words in text, words
    assert "0.0139" not in text
    assert "1 subjects" not in text


def test_what_is_not_there_is_said_to_be_missing(known) -> None:
    content, _, _ = known
    meta = {key: value for key, value in content["meta"].items() if key not in ("calibration", "support", "practice")}
    text = read_alone(model_card({**content, "meta": meta}, None, {})).text
    for words in ("not in the folder of this file", "costar evaluate makes one", "shows no bands", "Not scored",
                  "No bands", "does not record which treatments"):  # fmt: skip
        assert words in text, words


def test_doubts_of_the_file_are_limits_and_its_texts_are_texts(known) -> None:
    content, data, report = known
    evil = copy.deepcopy(content)
    evil["meta"] |= {"warnings": [EVIL], "dataset_name": EVIL, "method": EVIL, "stopped_by_budget": [EVIL]}
    evil["meta"]["schema"]["outcomes"][0]["name"] = EVIL.replace("\x1b", "")
    evil["versions"] = {EVIL: EVIL}
    reader = read_alone(model_card(evil, data, {"e" * 64: report}))
    assert "script" not in reader.tags
    assert "<script>alert(1)</script>" in reader.text
    assert "{{ 7 * 7 }}" in reader.text
    assert "\x1b" not in reader.text


def test_a_file_that_describes_nothing_is_refused(known) -> None:
    content, _, _ = known
    with pytest.raises(ValueError, match="PanelSchema"):
        model_card({**content, "meta": {"method": "ridge"}}, None, {})
