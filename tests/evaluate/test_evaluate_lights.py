"""Errors by light in an evaluation: sums that are known beforehand, and a report that tells them."""

import numpy as np
import pytest

from costar_cli.cli.scores import show_light_scores
from costar_cli.config.models import EvaluateConfig, FinetuneConfig
from costar_cli.data import Dataset
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.evaluation import Candidate, EvaluationReport, read_evaluation, run_evaluation, write_evaluation
from costar_cli.evaluation.bands import add_ratings
from costar_cli.evaluation.calibrated import rating_summary
from costar_cli.inference import SupportRatings, calibration_of, facts_of
from costar_cli.reporting import NullReporter
from costar_cli.reporting.output import Output
from tests.fits import fit_method, model_of

FOLDER = "bands/lights/factual/sums"


@pytest.fixture(scope="module")
def data() -> Dataset:
    sizes = {"train": 120, "val": 60, "test": 40, "target_train": 2, "target_val": 2, "target_test": 40}
    return simulate_linear(LinearGaussianConfig(**sizes, gamma=6, steps=14, horizon=3, seed=4), NullReporter())


@pytest.fixture(scope="module")
def report(data: Dataset) -> EvaluationReport:
    model = model_of(fit_method(data, "ridge", None, FinetuneConfig(members=1)))
    return run_evaluation(data, [Candidate(model)], EvaluateConfig(bootstrap=0))


def test_sums_give_shares_errors_coverage_and_what_is_left_without_red():
    light = np.array([0, 0, 1, 2], dtype=np.int8).reshape(4, 1, 1)
    flat, nothing = light[..., 0], np.zeros((4, 1))
    lights = SupportRatings(light * 0, flat, flat, flat, light, nothing[..., None], nothing)
    squares, covered = np.array([1.0, 9.0, 16.0, 100.0]), np.array([True, False, True, False])
    counts = np.array([True, True, True, True])
    sums = {}
    for rows in (slice(0, 1), slice(1, 4)):
        part = SupportRatings(*(getattr(lights, name)[rows] for name in SupportRatings.__slots__))
        add_ratings(
            sums,
            FOLDER,
            1,
            np.arange(4)[rows],
            part,
            *(values[rows].reshape(-1, 1, 1) for values in (squares, covered, counts)),
        )
    found = rating_summary(sums, "factual", 2.0)
    assert found["precision"].share == {"green": 1.0, "amber": 0.0, "red": 0.0}
    assert found["precision"].rmse_by_light["amber"] is None
    support = found["support"]
    assert support.share == {"green": 0.5, "amber": 0.25, "red": 0.25}
    assert support.rmse_by_light == {"green": pytest.approx(2 * 5**0.5), "amber": 8.0, "red": 20.0}
    assert support.coverage == {"green": 0.5, "amber": 1.0, "red": 0.0}
    assert support.rmse == pytest.approx(2 * np.sqrt(126 / 4))
    assert support.rmse_without_red == pytest.approx(2 * np.sqrt(26 / 3))


def test_answers_that_are_not_scored_count_nowhere():
    by_outcome, by_step = np.zeros((2, 1, 1), np.int8), np.zeros((2, 1), np.int8)
    lights = SupportRatings(by_outcome, by_step, by_step, by_step, by_outcome, by_outcome + 0.0, by_step + 0.0)
    sums = {}
    counts = np.array([True, False]).reshape(2, 1, 1)
    add_ratings(sums, FOLDER, 1, np.arange(2), lights, np.array([4.0, np.nan]).reshape(2, 1, 1), counts, counts)
    assert rating_summary(sums, "factual", 1.0)["support"].answers == 1
    assert rating_summary(sums, "factual", 1.0)["support"].rmse == 2.0


def test_a_subject_that_is_asked_about_often_counts_once():
    """Nine answers about one subject, red and wrong, and one about another: each is half of what is told."""
    red = np.array([2] * 9 + [0], dtype=np.int8).reshape(10, 1, 1)
    flat, nothing = red[..., 0], np.zeros((10, 1))
    lights = SupportRatings(red, flat, flat, flat, red, nothing[..., None], nothing)
    sums = {}
    add_ratings(sums, FOLDER, 1, np.array([0] * 9 + [1]), lights, red * 2.0, red == 0, np.ones(red.shape, dtype=bool))
    found = rating_summary(sums, "factual", 1.0)["support"]
    assert found.answers == 10
    assert found.share == {"green": pytest.approx(0.5), "amber": 0.0, "red": pytest.approx(0.5)}
    assert found.rmse == pytest.approx(2**0.5)


def test_sets_that_serve_other_steps_add_up_and_steps_weigh_the_same():
    sums, squares = {}, (np.array([4.0]), np.array([np.nan, 16.0]))
    for square, count in zip(squares, ([True], [False, True]), strict=True):
        shape = 1, len(square), 1
        green, flat = np.zeros(shape, dtype=np.int8), np.zeros(shape[:2], dtype=np.int8)
        lights = SupportRatings(green, flat, flat, flat, green, green + 0.0, flat + 0.0)
        counts = np.reshape(count, shape)
        add_ratings(sums, FOLDER, 2, np.zeros(1, dtype=np.int64), lights, square.reshape(shape), counts, counts)
    found = rating_summary(sums, "factual", 1.0)["support"]
    assert (found.answers, found.share["green"], found.rmse) == (2, 1.0, pytest.approx(10**0.5))


def test_a_report_tells_lights_and_rare_plans_err_more(report: EvaluationReport, tmp_path):
    lights = report.row("supervised", "Ridge regression").bands.lights
    assert set(lights) == {"precision", "practice", "support"}
    precision = lights["precision"]  # a single member is not judged by its spread
    assert {*precision.share.values(), *precision.rmse_by_light.values(), precision.rmse} == {None}
    assert precision.answers == 0
    practice = lights["practice"]
    assert 0 < practice.share["red"] < 0.8
    assert practice.rmse_without_red < practice.rmse < practice.rmse_by_light["red"]
    write_evaluation(tmp_path / "e.h5", report, parents={"dataset": "d" * 64}, fingerprint="f", config={})
    assert read_evaluation(tmp_path / "e.h5").rows == report.rows


def test_a_model_without_bands_has_lights_of_practice_all_the_same(data: Dataset, tmp_path, capsys):
    trained = fit_method(data, "growth", None, FinetuneConfig(members=1, updates=2))
    model = model_of(trained)
    assert calibration_of(model) is None
    report = run_evaluation(data, [Candidate(model)], EvaluateConfig(bootstrap=0), setups=["supervised"])
    row = report.row("supervised", "Growth GRU")
    assert row.band_tests == []
    assert list(row.lights) == ["counterfactual", "factual"]
    practice = row.lights["counterfactual"]["practice"]
    assert 0 < practice.share["red"] < 0.8
    assert practice.coverage == {"green": None, "amber": None, "red": None}
    assert row.ensemble.average < practice.rmse < 2 * row.ensemble.average, "lights are about outcomes with their noise"
    write_evaluation(tmp_path / "e.h5", report, parents={"dataset": "d" * 64}, fingerprint="f", config={})
    assert read_evaluation(tmp_path / "e.h5").rows == report.rows
    show_light_scores(Output("evaluate"), report)
    assert sum("practice" in line for line in capsys.readouterr().out.splitlines()) == 2
    few_shot = fit_method(data, "growth", None, FinetuneConfig(members=1, updates=1), domain="target", start=model)
    assert facts_of(model_of(few_shot)) == facts_of(model)
    del trained.meta["practice"]["facts"]  # as in files of version 0.3.0
    assert facts_of(model_of(trained)) is None


def test_the_terminal_has_a_table_by_light(report: EvaluationReport, capsys: pytest.CaptureFixture[str]):
    show_light_scores(Output("evaluate"), report)
    shown = capsys.readouterr().out
    assert "Answers by support rating" in shown
    assert "the table above uses a different set of predictions than the scores" in shown.splitlines()[-1]
    assert sum("practice" in line and "Ridge regression" in line for line in shown.splitlines()) == 4
    precision = [line.split("precision")[1].split() for line in shown.splitlines() if "precision" in line]
    assert precision == [["not", "judged", *"-/-/-", *"-/-/-"]] * 4
