"""The row of what knows the simulator: where it stands, what it is compared with, and that it is no method."""

from dataclasses import replace

import evaluate_worlds as worlds
import numpy as np
import pytest

from costar_cli.config.models import EvaluateConfig, FinetuneConfig
from costar_cli.data import Dataset, Part
from costar_cli.data.icu.semi_synthetic import mimic_truth
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.data.queries import rolling_origin
from costar_cli.data.registry import limit_of
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.evaluation import limit as limit_module
from costar_cli.evaluation import run_evaluation
from costar_cli.evaluation.bootstrap import standard_error
from costar_cli.evaluation.metrics import SquaredErrors
from costar_cli.evaluation.report import EvaluationReport, read_evaluation, write_evaluation
from costar_cli.methods import METHODS
from costar_cli.reporting import NullReporter
from tests.datasets import m5_worlds, mimic_worlds
from tests.fits import fit_method, model_of

LABEL = "Best possible (knows the simulator)"
CONFIG = EvaluateConfig(bootstrap=0)


def candidate(data: Dataset, method: str, settings=None):
    model = model_of(fit_method(data, method, settings or METHODS[method].default_settings(), FinetuneConfig()))
    return worlds.Candidate(model, name=method)


@pytest.fixture(scope="module")
def data() -> Dataset:
    config = TumorConfig(train=60, val=20, test=30, target_train=5, target_val=5, target_test=30, steps=25, horizon=4)
    return replace(simulate_tumor(config, NullReporter()), digest="t" * 64)


@pytest.fixture(scope="module")
def report(data: Dataset) -> EvaluationReport:
    return run_evaluation(data, [candidate(data, "ridge"), candidate(data, "mixed")], CONFIG)


def test_every_setup_has_the_row_once_after_those_of_the_models(report):
    places = [(row.setup, row.basis) for row in report.rows]
    assert places == [
        (setup, basis) for setup in ("zero-shot", "supervised") for basis in ("ours", "ours", "naive", "limit")
    ]
    rows = [row for row in report.rows if row.basis == "limit"]
    assert {row.label for row in rows} == {LABEL} == {report.limit_label}
    assert [row.provenance for row in rows] == [None, None]


def test_no_method_is_better_than_the_bound_by_more_than_chance(report):
    for row in report.rows:
        limit = report.row(row.setup, LABEL)
        assert row.mean.average >= 0.97 * limit.mean.average
    for setup in ("zero-shot", "supervised"):
        assert report.row(setup, "ridge").mean.average > 1.05 * report.row(setup, LABEL).mean.average


def test_ratios_are_errors_divided_by_those_of_the_bound(report):
    document = report.to_json()
    for row, told, flat in zip(report.rows, document["rows"], report.to_rows(), strict=True):
        limit = report.row(row.setup, LABEL)
        expected = [own / best for own, best in zip(row.mean.steps, limit.mean.steps, strict=True)]
        assert told["ratio_to_limit"]["steps"] == pytest.approx(expected)
        assert told["ratio_to_limit"]["average"] == pytest.approx(row.mean.average / limit.mean.average)
        assert flat["ratio_to_limit"] == told["ratio_to_limit"]["average"]
    frame = report.to_frame()
    ridge = frame[(frame.model == "ridge") & (frame.setup == "zero-shot")]
    assert ridge.ratio_to_limit.iloc[-1] == report.ratio_to_limit(report.row("zero-shot", "ridge")).average
    assert len(ridge) == 5


def test_the_row_has_its_own_standard_error_over_subjects_and_others_have_none(report):
    document = report.to_json()
    for row, told, flat in zip(report.rows, document["rows"], report.to_rows(), strict=True):
        if row.basis != "limit":
            assert (row.se, told["se"], flat["avg_se"]) == (None, None, None)
            continue
        errors = report.errors_of(row.setup, LABEL)
        sums_NH, count_NH = errors.members[0].sum(axis=-1), errors.count
        rmse_H = np.sqrt(sums_NH.sum(axis=0) / count_NH.sum(axis=0))
        moved_NH = (sums_NH - count_NH * rmse_H**2) / (2 * count_NH.sum(axis=0) * rmse_H)
        unit = report.unit.factor
        assert row.se.steps == pytest.approx(unit * np.sqrt((moved_NH**2).sum(axis=0)))
        assert row.se.average == pytest.approx(unit * np.sqrt((moved_NH.mean(axis=1) ** 2).sum()))
        assert flat["avg_se"] == told["se"]["average"] == row.se.average
        assert f"{row.se.average:.3g} ({row.setup})" in report.about_ratio
    assert "which is a lower bound on average over subjects, not a method" in report.about_ratio
    frame = report.to_frame()
    assert set(frame.loc[frame["se"].notna(), "model"]) == {LABEL}


def test_the_standard_error_is_how_far_the_row_moves_with_the_subjects_that_are_drawn():
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        squares = (rng.normal(size=(60, 3)) * rng.gamma(4, 0.25, size=(60, 1))) ** 2  # subjects of unlike errors
        errors = SquaredErrors(squares[None, ..., None], squares[..., None], np.ones((60, 3), dtype=np.int64))
        found.append((10 * errors.rmse()[0].mean(), standard_error(errors, 10.0).average))
    average, se = np.array(found).T
    assert se.mean() == pytest.approx(average.std(ddof=1), rel=0.1)
    one = SquaredErrors(squares[None, :1, :, None], squares[:1, :, None], np.ones((1, 3), dtype=np.int64))
    assert standard_error(one, 1.0) is None


def test_the_bound_is_computed_once_for_a_file_and_is_the_same_again(data, report, monkeypatch):
    asked = []
    monkeypatch.setattr(limit_module, "score", lambda *a, **k: asked.append(a))
    again = run_evaluation(data, [candidate(data, "last-value")], CONFIG)
    assert not asked
    monkeypatch.undo()
    limit_module._scored.clear()
    anew = run_evaluation(data, [candidate(data, "last-value")], CONFIG)
    for made in (again, anew):
        assert made.row("zero-shot", LABEL).mean == report.row("zero-shot", LABEL).mean


def test_factual_queries_have_the_row_as_well(data):
    part = Part("target", "test")
    panel = data.panels[part]
    asked = replace(data, digest="", queries={part: {"rolling_origin": rolling_origin(panel, 4)}})
    report = run_evaluation(asked, [candidate(data, "last-value")], CONFIG)
    row = report.row("zero-shot", LABEL, "factual")
    assert row.mean.average < 0.6 * report.row("zero-shot", "last-value", "factual").mean.average


def test_data_without_a_truth_have_no_such_row(data):
    hidden = replace(data, truth={}, digest="u" * 64)
    report = run_evaluation(hidden, [candidate(data, "last-value")], CONFIG)
    assert {row.basis for row in report.rows} == {"ours"}
    assert report.limit_label is None
    assert [row["ratio_to_limit"] for row in report.to_json()["rows"]] == [None] * 2
    assert limit_of("my-table") is None


def test_it_is_no_method(report):
    assert LABEL not in {method.label for method in METHODS.values()}
    assert all(row.basis == "ours" for row, _ in report.losers())


def test_a_stored_evaluation_keeps_the_row_and_its_errors(report, tmp_path):
    path = tmp_path / "evaluation.h5"
    write_evaluation(path, report, parents={}, fingerprint="f", config={})
    found = read_evaluation(path)
    assert found.rows == report.rows
    assert found.errors_of("supervised", LABEL).rmse().shape == (1, 4)


def test_the_linear_systems_answers_are_expectations_so_that_its_bound_is_zero():
    config = LinearGaussianConfig(train=40, val=10, test=10, target_train=5, target_val=5, target_test=10, steps=12)
    linear = simulate_linear(config, NullReporter())
    report = run_evaluation(linear, [candidate(linear, "ridge")], CONFIG)
    row = report.row("zero-shot", LABEL)
    assert row.mean.steps == (0.0,) * 6
    assert report.ratio_to_limit(report.row("zero-shot", "ridge")).average is None


@pytest.mark.parametrize("world", [mimic_worlds.simulate, m5_worlds.dataset], ids=["ICU", "retail"])
def test_what_knows_the_hidden_state_is_called_so_and_is_below_every_method(world):
    data = world()
    report = run_evaluation(data, [candidate(data, "ridge")], CONFIG)
    assert report.limit_label == "Generator's mean (knows the hidden state)"
    rows = [row for row in report.rows if row.basis != "limit"]
    assert {(row.setup, row.truth) for row in rows} == {
        (row.setup, row.truth) for row in report.rows if row.basis == "limit"
    }
    assert all(report.ratio_to_limit(row).average > 1.1 for row in rows)


def test_an_older_file_of_icu_data_has_no_bound_and_answers_as_before():
    data = mimic_worlds.simulate()
    older = replace(
        data, truth={part: {k: v for k, v in t.items() if k != "systematic"} for part, t in data.truth.items()}
    )
    report = run_evaluation(older, [candidate(data, "last-value")], CONFIG)
    assert report.limit_label is None
    part = Part("target", "test")
    asked = part, 0, 2, np.zeros((3, 3))
    np.testing.assert_array_equal(mimic_truth(older, *asked), mimic_truth(data, *asked))


def test_a_truth_that_cannot_be_used_costs_the_row_and_not_the_evaluation(data, monkeypatch):
    broken = replace(limit_of("tumor"), predict=_fails)
    monkeypatch.setattr(limit_module, "limit_of", lambda name: broken)
    reporter = NullReporter()
    report = run_evaluation(replace(data, digest=""), [candidate(data, "last-value")], CONFIG, reporter=reporter)
    assert {row.basis for row in report.rows} == {"ours"}
    assert any(f"no row `{LABEL}` for target/test: the truth is odd" in warning for warning in reporter.warnings)


def _fails(*_):
    from costar_cli.errors import DataError

    raise DataError("the truth is odd")
