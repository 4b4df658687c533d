"""Calibrated bands in an evaluation: what is asked, what a report says, what is drawn and printed."""

from dataclasses import replace
from types import SimpleNamespace

import evaluate_worlds as worlds
import figure_checks
import numpy as np
import pytest

from costar_cli.cli.scores import show_bands
from costar_cli.config.models import EvaluateConfig, FinetuneConfig
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.errors import DataError
from costar_cli.evaluation import Candidate, EvaluationReport, read_evaluation, run_evaluation, write_evaluation
from costar_cli.evaluation.bands import groupings, some_of_each
from costar_cli.inference import calibration_of
from costar_cli.inference.conformal import GRID
from costar_cli.report.figures import evaluation as figures
from costar_cli.reporting import NullReporter
from costar_cli.reporting.output import Output
from tests.fits import fit_method, model_of

CONFIG = EvaluateConfig(bootstrap=0)


@pytest.fixture(scope="module")
def data():
    sizes = {"train": 150, "val": 120, "test": 120, "target_train": 2, "target_val": 2, "target_test": 60}
    return simulate_linear(LinearGaussianConfig(**sizes, steps=16, horizon=4, seed=4), NullReporter())


@pytest.fixture(scope="module")
def model(data):
    return model_of(fit_method(data, "ridge", None, FinetuneConfig(members=1)))


@pytest.fixture(scope="module")
def report(data, model):
    mixed = model_of(fit_method(data, "mixed", None, FinetuneConfig(members=1)))
    return run_evaluation(data, [Candidate(model), Candidate(mixed)], CONFIG)


def test_a_model_that_knows_the_law_covers_factual_outcomes_as_often_as_it_says(report):
    for setup in ("zero-shot", "supervised"):
        found = report.row(setup, "Ridge regression").factual
        for level, scores in found.calibration.items():
            assert scores.coverage.average == pytest.approx(float(level), abs=0.06)
            assert scores.coverage_lower.average < scores.coverage.average < scores.coverage_upper.average
        shares = list(found.details.reliability.values())
        assert shares == sorted(shares)
        assert sum(found.details.pit) == pytest.approx(1)


def test_bands_are_scored_on_outcomes_where_the_answers_are_expectations(report):
    """Bands of outcomes cover nearly every expectation, whatever their level."""
    found = report.row("supervised", "Mixed effects").calibration
    for level, scores in found.items():
        assert scores.coverage.average == pytest.approx(float(level), abs=0.08)


def test_errors_do_not_depend_on_whether_bands_are_scored(data, model, report):
    bare = run_evaluation(data, [Candidate(replace(model, record=replace(model.record, calibration=None)))], CONFIG)
    for ours in bare.rows:
        assert ours.mean == report.row(ours.setup, ours.label).mean
    assert bare.rows[0].calibration == {}
    assert bare.rows[0].band_tests == []


def test_documents_and_files_keep_what_was_found_and_old_ones_are_read(report, tmp_path):
    document = report.to_json()
    ours = next(row for row in document["rows"] if row["basis"] == "ours")
    assert set(ours["calibration"]) == {"0.5", "0.8", "0.9", "0.95"}
    for name in ("coverage", "width", "interval_score"):
        assert len(ours["calibration"]["0.9"][name]["steps"]) == 4
        assert ours["calibration"]["0.9"][name]["average"] > 0
    write_evaluation(tmp_path / "e.h5", report, parents={"dataset": "d" * 64}, fingerprint="f" * 64, config={})
    assert read_evaluation(tmp_path / "e.h5") == report
    for row in document["rows"]:
        for name in ("calibration", "bands", "factual"):
            del row[name]
    assert EvaluationReport.from_json(document).rows[0].mean == report.rows[0].mean


def test_tables_have_coverage_width_score_and_crps_of_every_row(report):
    ours, naive = (next(row for row in report.to_rows() if row["basis"] == basis) for basis in ("ours", "naive"))
    assert set(ours) == set(naive)
    for name in ("coverage_0.9", "width_0.5", "interval_score_0.95", "crps", "factual_coverage_0.8", "factual_crps"):
        assert isinstance(ours[name], float)
        assert naive[name] is None


def test_a_panel_is_encoded_once_for_errors_and_bands(data, model, monkeypatch):
    encoded = []
    encode = type(model).encode
    monkeypatch.setattr(type(model), "encode", lambda self, panel: encoded.append(1) or encode(self, panel))
    run_evaluation(data, [Candidate(model)], CONFIG, setups=["supervised"])
    assert len(encoded) == 1


def test_rows_are_drawn_from_every_subject_alike_and_always_the_same():
    subject = np.repeat([3, 5, 9], [1_000, 10, 200])
    rows = some_of_each(subject, 100)
    assert len(rows) <= 100
    assert np.array_equal(rows, np.unique(rows))
    assert [int((subject[rows] == n).sum()) for n in (3, 5, 9)] == [45, 10, 45]
    assert np.array_equal(rows, some_of_each(subject, 100))
    assert np.array_equal(some_of_each(subject, 2_000), np.arange(len(subject)))


def test_groups_are_quarters_of_the_level_and_of_the_treatments_so_far(data, model):
    panel = data.panel("source", "test")
    found = groupings(panel, model, calibration_of(model).facts)
    (_, level_NTY), (labels, treated_NTY) = found["level at the origin"], found["steps with treatment so far"]
    share = np.bincount(level_NTY.ravel()) / level_NTY.size
    assert share == pytest.approx([0.25] * 4, abs=0.01)
    assert (treated_NTY[:, 0] == 0).all()  # nothing was given before the first step
    n, t = 7, 9
    count = int(panel.treatments[n, :t].sum())
    low, _, high = labels[int(treated_NTY[n, t, 0])].partition(" to ")
    assert int(low.split()[0]) <= count <= (int(high) if high else 99)


def test_groups_together_have_all_answers(report):
    details = report.row("supervised", "Ridge regression").factual.details
    by = {group.by for group in details.groups}
    assert by == {"level at the origin", "steps with treatment so far"}
    for group in details.groups:
        assert group.subjects > 0
        assert group.rmse is None or group.rmse > 0


def test_the_terminal_says_how_bands_keep_their_levels(report, capsys):
    show_bands(Output("evaluate"), report)
    out = capsys.readouterr().out
    assert "Coverage of calibrated bands in percent of answers, weighted equally per subject" in out
    lines = [line for line in out.splitlines() if "Ridge regression" in line]
    assert [line.split()[:2] for line in lines] == [
        ["zero-shot", "counterfactual"], ["zero-shot", "factual"],
        ["supervised", "counterfactual"], ["supervised", "factual"],
    ]  # fmt: skip


def test_nothing_is_said_of_models_without_a_calibration(capsys):
    report = run_evaluation(worlds.dataset(), [worlds.candidate(worlds.oracle(worlds.dataset()))], CONFIG)
    show_bands(Output("evaluate"), report)
    assert capsys.readouterr().out == ""
    with pytest.raises(DataError, match="no model carries a calibration"):
        figures.plot_pit(report, SimpleNamespace())


def test_the_same_report_draws_the_same_picture(report, tmp_path):
    first, second = (figures.plot_pit(report, tmp_path / f"{i}.png").read_bytes() for i in range(2))
    assert first == second


@pytest.mark.parametrize("plot", [figures.plot_reliability, figures.plot_pit])
def test_nothing_overlaps_in_figures(report, plot, tmp_path, monkeypatch):
    drawn = figure_checks.Drawn(monkeypatch, figures)
    plot(report, tmp_path / "x.png")
    figure_checks.assert_readable(drawn.last)


@pytest.fixture(scope="module")
def few(data, model):
    """The same model, calibrated on six subjects: it has no 90 % band."""
    calibration = calibration_of(model)
    radius = np.where(GRID[:, None, None, None] > 6 / 7, np.inf, calibration.radius_LHYB)
    own = replace(calibration, radius_LHYB=radius, subjects=6)
    record = replace(model.record, calibration=own.to_meta())
    attached = {**model.attached, **replace(calibration, radius_LHYB=radius).to_arrays()}
    return run_evaluation(data, [Candidate(replace(model, record=record, attached=attached))], CONFIG)


def test_a_band_that_does_not_exist_covers_an_unknown_share(few, tmp_path, capsys):
    ours = few.row("supervised", "Ridge regression").factual
    assert {level: scores.coverage.average is None for level, scores in ours.calibration.items()} == {
        "0.5": False, "0.8": False, "0.9": True, "0.95": True,
    }  # fmt: skip
    assert set(ours.details.lights["practice"].coverage.values()) == {None}
    assert few.to_rows()[0]["coverage_0.9"] is None
    write_evaluation(tmp_path / "e.h5", few, parents={"dataset": "d" * 64}, fingerprint="f" * 64, config={})
    assert read_evaluation(tmp_path / "e.h5") == few
    show_bands(Output("evaluate"), few)
    shown = capsys.readouterr().out
    line = next(line.split() for line in shown.splitlines() if "Ridge regression" in line)
    assert line[-3:-1] == ["-", "-"]
    assert "-: no such band, for too few calibration subjects" in shown


def test_files_of_older_versions_tell_no_coverage_of_bands_that_do_not_exist(few):
    document = few.to_json()
    for row in document["rows"]:
        for levels in (row["calibration"], (row["factual"] or {}).get("calibration", {})):
            for scores in levels.values():
                if scores["width"]["average"] is None:
                    scores["coverage"] = {"steps": [1.0] * 4, "average": 1.0}
    assert EvaluationReport.from_json(document) == few


@pytest.mark.parametrize("plot", [figures.plot_reliability, figures.plot_pit])
def test_figures_leave_out_what_is_not_known_of_bands(few, plot, tmp_path, monkeypatch):
    drawn = figure_checks.Drawn(monkeypatch, figures)
    plot(few, tmp_path / "x.png")
    figure_checks.assert_readable(drawn.last)
    texts = {text.get_text() for axes in drawn.last.axes for text in axes.texts}
    ends = [max(line.get_xdata()) for axes in drawn.last.axes for line in axes.lines[1:]]
    assert ("unknown" in texts) is (plot is figures.plot_pit)
    assert set(ends) == ({0.85} if plot is figures.plot_reliability else set())
