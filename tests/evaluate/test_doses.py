"""Data with doses: quantiles by time since the last dose, and residuals, of laws that are right and of wrong ones."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri

import costar_cli as costar
from costar_cli.data import Panel, PanelSchema, Queries, TreatmentEncoding, Variable
from costar_cli.data.dose import Dose
from costar_cli.evaluation import EvaluationReport
from costar_cli.evaluation.doses import DoseCheck, bins_of, dose_checks, dose_columns, draws, has_doses, likeness
from costar_cli.evaluation.sums import LEVELS
from costar_cli.inference import Bands
from costar_cli.report.figures.doses import plot_predictive_check, plot_residuals
from costar_cli.reporting import NullReporter
from tests.cli.cli_world import REPOSITORY

NAMES = {"setup": "supervised", "label": "m", "test": "source/test"}
DOSE = Dose(name="drug", unit="mg", low=0, high=4)
OUTCOME = Variable(name="level", unit="mg/L")


def schema_of(*doses: Dose, step: str = "4 hours") -> PanelSchema:
    encoding = TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=doses)
    return PanelSchema(treatments=encoding, outcomes=(OUTCOME,), step=step)


def panel_of(schema: PanelSchema, values_NTA: list[list[list[float]]]) -> Panel:
    given = np.array(values_NTA)
    subjects, steps = given.shape[:2]
    return Panel(
        covariates=np.zeros((subjects, steps, 0), np.float32),
        treatments=schema.treatments.encode(given),
        outcomes=np.zeros((subjects, steps, 1), np.float32),
        statics=np.zeros((subjects, 0), np.float32),
        length=np.full(subjects, steps),
        subject_id=np.arange(subjects),
    )


def course(law: float, *, spread: float = 1.0, shared: float = 0.0, seed: int = 3, steps: int = 3) -> dict:
    """Columns of a course where a dose of 2 or 4 adds as much, half of which is left each hour; `law` says how much.

    A share `law` of the truth is what the model predicts; the rest is its mean. Errors have a standard deviation of
    one, of which each subject has a part of its own; bands are normal, `spread` times as wide as they should be.
    """
    rng, subjects = np.random.default_rng(seed), 60
    count = subjects * 12
    since = rng.choice([1.0, 2.0, 3.0, 4.0], (count, steps))
    dose = rng.choice([2.0, 4.0], (count, steps))
    subject = np.repeat(np.arange(subjects), 12)
    truth = 10 + 4 * dose * 0.5**since
    own = np.sqrt(shared) * rng.standard_normal(subjects)[subject][:, None]
    observed = truth + own + np.sqrt(1 - shared) * rng.standard_normal((count, steps))
    predicted = law * truth + (1 - law) * truth.mean()
    half = spread * ndtri((1 + np.array(LEVELS)) / 2)
    return {
        "subject": subject, "unit": subject, "origin": np.tile(np.arange(12) * steps, subjects),
        "observed": observed[..., None], "seen": np.ones((count, steps, 1), bool), "predicted": predicted[..., None],
        "weight": np.ones((count, steps)), "since": since, "dose": dose,
        "lower": predicted[..., None, None] - half, "upper": predicted[..., None, None] + half,
    }  # fmt: skip


def check(**options: float) -> DoseCheck:
    (found,) = dose_checks(course(**options), schema_of(DOSE), level=0.95, **NAMES)
    return found


@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_the_quantiles_of_a_right_law_are_where_it_expects_them(shared: float) -> None:
    counts = [check(law=1.0, shared=shared, seed=seed).inside for seed in range(12)]
    assert 0.88 <= sum(inside for inside, _ in counts) / sum(every for _, every in counts) <= 0.99
    found = check(law=1.0, shared=shared)
    assert found.axis_label == "steps of 4 hours since the last dose"
    assert [one.at for one in found.bins] == [1, 2, 3, 4]
    for one in found.bins:
        assert one.quantiles[1].predicted == pytest.approx(10 + 12 * 0.5**one.at, abs=0.5)


def test_a_law_without_the_dose_or_with_wrong_spread_is_found_out() -> None:
    assert check(law=0.0).inside[0] <= 5
    for spread in (0.6, 1.6):  # the median is right, the others are not
        found = check(law=1.0, spread=spread)
        assert all(one.lower <= one.observed <= one.upper for one in (bin_.quantiles[1] for bin_ in found.bins))
        assert not any(one.lower <= one.observed <= one.upper for bin_ in found.bins for one in bin_.quantiles[::2])


def test_limits_are_wider_where_errors_of_a_subject_are_alike() -> None:
    one, other = check(law=1.0), check(law=1.0, shared=0.5)
    widths = [np.mean([b.quantiles[1].upper - b.quantiles[1].lower for b in found.bins]) for found in (one, other)]
    assert widths[1] > 1.5 * widths[0]


def test_residuals_are_in_half_widths_of_the_band() -> None:
    made = course(law=1.0)
    predicted, half = made["predicted"], made["upper"][..., LEVELS.index(0.9)] - made["predicted"]
    sign = np.where(np.arange(made["observed"].size).reshape(made["observed"].shape) % 2, 1.5, -0.5)
    made["observed"] = predicted + sign * half
    made["lower"] = predicted[..., None] + 2 * (made["lower"] - predicted[..., None])  # twice as far below
    (found,) = dose_checks(made, schema_of(DOSE), level=0.95, **NAMES)
    assert {round(residual, 3) for *_, residual in found.points} == {1.5, -0.25}
    for beside, places in {"dose": [2, 4], "since_dose": [1, 2, 3, 4]}.items():
        own = [one for one in found.residuals if one.beside == beside]
        assert [one.at for one in own] == places
        for one in own:
            assert one.inside == pytest.approx(0.5, abs=0.1)
            assert one.quantiles[0] == pytest.approx(-0.25, abs=0.01)
            assert one.quantiles[2] == pytest.approx(1.5, abs=0.01)
    by_prediction = [one for one in found.residuals if one.beside == "prediction"]
    assert 5 <= len(by_prediction) <= 8
    assert [one.low for one in by_prediction] == sorted(one.low for one in by_prediction)


def test_what_has_no_band_no_dose_before_it_or_no_value_does_not_count() -> None:
    made = course(law=1.0)
    made["seen"][:100], made["since"][100:200], made["lower"][200:300] = False, np.nan, -np.inf
    (found,) = dose_checks(made, schema_of(DOSE), level=0.95, **NAMES)
    assert found.answers == 3 * (720 - 300)
    made["seen"][5:] = False
    assert not list(dose_checks(made, schema_of(DOSE), level=0.95, **NAMES))


def test_doses_at_every_step_are_checked_along_the_series() -> None:
    made = course(law=1.0)
    made["since"][:] = 1.0
    (found,) = dose_checks(made, schema_of(DOSE), level=0.95, **NAMES)
    assert found.axis == "series"
    assert found.axis_label == "step of the series"
    assert len(found.bins) == 8


def test_time_since_the_last_dose_of_steps_and_of_visits() -> None:
    windows = Queries(
        subject=np.zeros(2, np.int32), origin=np.array([0, 2], np.int16), plan=np.zeros((2, 2, 1), np.float32)
    )
    bands = Bands(LEVELS, *(np.zeros((len(LEVELS), 2, 2, 1)) for _ in range(2)))
    plain = schema_of(DOSE, DOSE.model_copy(update={"name": "other"}))
    given = panel_of(plain, [[[0, 0], [3, 0], [0, 0], [0, 1], [4, 4]]])
    made = dose_columns(plain, given, windows, bands)
    assert made["since"].tolist() == [[pytest.approx(np.nan, nan_ok=True), 1], [2, 1]], "own doses act later"
    assert made["dose"][1].tolist() == [3, 0], "of the first drug"
    assert made["lower"].shape == (2, 2, 1, len(LEVELS))
    gap = Dose(name="elapsed", unit="hour", low=1, high=9, elapsed=4.0)
    visits = schema_of(DOSE, gap)
    given = panel_of(visits, [[[2, 1.5], [0, 4], [0, 2], [1, 7], [0, 0]]])
    assert dose_columns(visits, given, windows, bands)["since"].tolist() == [[1.5, 5.5], [7.5, 7]]
    assert has_doses(visits)
    assert not has_doses(schema_of(gap))


def test_bins_are_values_where_these_are_few_and_else_as_many_answers_each() -> None:
    assert [len(rows) for rows in bins_of(np.repeat([1.0, 5.0], [30, 90]))] == [30, 90]
    rng = np.random.default_rng(0)
    assert {len(rows) for rows in bins_of(rng.random(800))} == {100}
    assert [len(rows) for rows in bins_of(rng.random(30))] == [30]
    assert bins_of(np.zeros(0)) == []


def test_draws_have_the_quantiles_of_the_bands_and_likeness_is_that_of_errors() -> None:
    half = ndtri((1 + np.array(LEVELS)) / 2)
    lower, upper = (np.tile(5 + sign * half, (400, 1)) for sign in (-1, 1))
    lower[:, -2:], upper[:, -2:] = -np.inf, np.inf  # too few calibration subjects
    rng = np.random.default_rng(0)
    drawn = draws(rng.normal(5, 1, 400), np.arange(400), lower, upper)
    assert np.quantile(drawn, [0.1, 0.5, 0.9]) == pytest.approx(5 + ndtri([0.1, 0.5, 0.9]), abs=0.02)
    assert np.isfinite(drawn).all()
    unit = np.repeat(np.arange(200), 10)
    for share in (0.0, 0.4):
        z = np.sqrt(share) * rng.standard_normal(200)[unit] + np.sqrt(1 - share) * rng.standard_normal(2000)
        assert likeness(z, unit) == pytest.approx(share, abs=0.08)
    assert likeness(np.ones(5), np.arange(5)) == 0.0


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> EvaluationReport:
    """Return the evaluation of the theophylline-like example: a law of doses that decay, and the mean so far."""
    path = tmp_path_factory.mktemp("theophylline") / "theophylline.csv"
    make = runpy.run_path(str(REPOSITORY / "examples" / "own-data" / "make_theophylline.py"))["main"]
    make(path)
    quiet = NullReporter()
    dataset = costar.ingest("nonmem", path, horizon=3, progress=quiet, table='columns.DV.unit = "mg/L"')
    models = [costar.fit(dataset, method, progress=quiet) for method in ("mixed", "mean")]
    return costar.evaluate_models(models, dataset, bootstrap=0, progress=quiet)


def test_on_theophylline_the_law_of_doses_passes_and_the_mean_does_not(report: EvaluationReport) -> None:
    found = {one.label: one for one in report.doses}
    inside = {label: one.inside[0] / one.inside[1] for label, one in found.items()}
    assert inside["Mixed effects"] >= 0.9
    assert inside["Mean so far"] <= 0.5
    law = [one for one in found["Mixed effects"].residuals if one.beside == "since_dose"]
    mean = [one for one in found["Mean so far"].residuals if one.beside == "since_dose"]
    assert all(abs(one.quantiles[1]) < 0.4 for one in law)
    assert mean[0].quantiles[2] > 1
    assert mean[-1].quantiles[1] < 0
    assert found["Mixed effects"].axis_label == "hours since the last dose"


def test_the_report_keeps_the_numbers_and_draws_them(report: EvaluationReport, tmp_path: Path) -> None:
    document = json.loads(json.dumps(report.to_json()))
    assert EvaluationReport.from_json(document).doses == report.doses
    assert document["doses"][0]["bins"][0]["quantiles"][1]["quantile"] == 0.5
    del document["doses"]
    assert EvaluationReport.from_json(document).doses == ()
    for plot in (plot_predictive_check, plot_residuals):
        first, second = (plot(report, tmp_path / f"{i}.png").read_bytes() for i in range(2))
        assert first == second
        assert len(first) > 20_000
    with pytest.raises(costar.CostarError, match="no model with bands"):
        plot_predictive_check(EvaluationReport.from_json(document), tmp_path / "none.png")
