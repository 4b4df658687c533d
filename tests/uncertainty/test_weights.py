"""Bands for plans under another policy: weights, what they leave, what a file keeps of them (spec BAND-8)."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data.windows import factual_windows
from costar_cli.errors import ArtifactError, UsageError
from costar_cli.inference import Calibration, calibration_of, estimate
from costar_cli.inference.conformal import GRID, effective, radii
from costar_cli.inference.weights import weights_of
from costar_cli.plans import TreatmentPlan, parse_plans
from costar_cli.questions import estimate_outcomes
from costar_cli.questions.widen import widened
from tests.codes import codes, said
from tests.methods.linear_worlds import fit, linear_data, model_of

LEVEL = np.array([0.9])


@pytest.fixture(scope="module")
def ridge():
    return fit(linear_data(), "ridge")


def test_weights_cover_another_policy_where_the_error_depends_on_the_treatment() -> None:
    """Practice treats a tenth; the policy that is asked about a half. Treated ones err three times as much."""
    rng = np.random.default_rng(0)
    plain, weighted = [], []
    for _ in range(100):
        unit_M = np.repeat(np.arange(150), 4)
        rare_M, asked_M = rng.random(600) < 0.1, rng.random(600) < 0.5
        score_M = np.abs(rng.normal(size=600)) * np.where(rare_M, 3.0, 1.0)
        truth_M = np.abs(rng.normal(size=600)) * np.where(asked_M, 3.0, 1.0)
        weight_M = weights_of(-np.log(np.where(rare_M, 0.1, 0.9)))
        plain.append((truth_M <= radii(score_M, unit_M, LEVEL)).mean())
        weighted.append((truth_M <= radii(score_M, unit_M, LEVEL, weight_M)).mean())
    assert np.mean(plain) < 0.82
    assert 0.89 < np.mean(weighted) < 0.93


def test_weights_are_cut_and_leave_fewer_subjects() -> None:
    log_M = np.random.default_rng(0).normal(scale=3.0, size=2_000)
    weight_M, unit_M = weights_of(log_M), np.repeat(np.arange(200), 10)
    assert weight_M.mean() == pytest.approx(1.0)
    assert (weight_M == weight_M.max()).sum() == 20
    uncut_M = np.exp(log_M)
    assert effective(unit_M, uncut_M) < effective(unit_M, weight_M) < 200
    assert effective(unit_M, weights_of(np.zeros(2_000))) == effective(unit_M) == 200
    assert (radii(log_M, unit_M, GRID, np.ones(2_000)) == radii(log_M, unit_M)).all()
    assert len(weights_of(np.empty(0))) == 0
    assert np.isfinite(weights_of(np.append(np.zeros(199), 5_000.0))).all(), "one window beyond all others"


def test_one_heavy_subject_makes_bands_infinite() -> None:
    """The subject beyond all others weighs as much as the heaviest."""
    weight_M = np.append(np.ones(99), 50.0)
    assert np.isinf(radii(np.arange(100.0), np.arange(100), LEVEL, weight_M)[0])
    assert np.isfinite(radii(np.arange(100.0), np.arange(100), LEVEL)[0])


def test_a_fit_keeps_bands_for_plans_that_are_nowhere_narrower(ridge) -> None:
    calibration = calibration_of(model_of(ridge))
    plans = calibration.plans
    assert (plans.radius_LHYB >= calibration.radius_LHYB).all()
    wider = np.isfinite(plans.radius_LHYB) & (plans.radius_LHYB > calibration.radius_LHYB)
    assert wider.any()
    assert (plans.effective_HYB <= calibration.units_HYB + 1e-3).all()
    assert (np.diff(plans.effective_HYB[:, 0, 0]) < 0).any(), "longer plans leave fewer"
    shape = calibration.radius_LHYB.shape[1:3]
    again = Calibration.read(calibration.to_meta(), calibration.to_arrays(), shape)
    assert (again.plans.radius_LHYB == plans.radius_LHYB).all()


def test_damaged_weighted_quantiles_are_refused_and_older_files_have_none(ridge) -> None:
    names = ("calibration/plans_radius", "calibration/plans_effective")
    for name, broken in ((names[0], ridge.arrays[names[0]][::-1]), (names[1], -1 - ridge.arrays[names[1]])):
        with pytest.raises(ArtifactError, match="calibration"):
            calibration_of(model_of(replace(ridge, arrays={**ridge.arrays, name: broken})))
    older = replace(ridge, arrays={key: v for key, v in ridge.arrays.items() if key not in names})
    calibration = calibration_of(model_of(older))
    assert calibration.plans is None
    with pytest.raises(UsageError, match="policy that was followed only"):
        widened("ridge", calibration, None, ())


def test_fewer_than_thirty_subjects_at_a_step_that_is_asked_about_are_refused(ridge) -> None:
    data, model = linear_data(), model_of(ridge)
    calibration = calibration_of(model)
    left = np.full_like(calibration.plans.effective_HYB, 30.0)
    left[2:] = 29.0
    calibration = replace(calibration, plans=replace(calibration.plans, effective_HYB=left))
    panel = data.panel("source", "test")
    found = estimate(model, panel, factual_windows(panel, model.horizon).asked)
    short, long = (TreatmentPlan("none", np.zeros((steps, 1), dtype=np.int64)) for steps in (2, 3))
    wide, subjects = widened("ridge", calibration, found.take(slice(1), 2), [short])
    assert subjects == (30.0, 30.0)
    assert (wide.radius_LHYB == calibration.plans.radius_LHYB).all()
    with pytest.raises(
        UsageError, match=r"only about 29 effective subjects remain at step 3 .*, and at least 30 are"
    ) as raised:
        widened("ridge", calibration, found.take(slice(2), 3), [short, long])
    assert "at most 2 steps" in str(raised.value.fix)
    with pytest.raises(UsageError, match="calibrated on 22 subjects, and at least 30 are needed"):
        widened("ridge", replace(calibration, subjects=22), found.take(slice(2), 3), [short, long])


def test_a_question_is_answered_with_wider_bands_that_say_what_they_rest_on(ridge) -> None:
    data, left = linear_data(), np.full_like(ridge.arrays["calibration/plans_effective"], 44.0)
    models = {"ridge": model_of(replace(ridge, arrays={**ridge.arrays, "calibration/plans_effective": left}))}
    request = parse_plans('{"plans": {"none": [{}, {}]}}', data.schema.treatments, horizon=2)
    subject = data.panel("source", "test").names[0]
    plain, wide = (estimate_outcomes(data, models, request, subject=subject, origin=5, widen=w) for w in (False, True))
    width = [[row["upper"] - row["lower"] for row in report.to_rows()] for report in (plain, wide)]
    assert (np.array(width[1]) >= width[0]).all()
    assert sum(width[1]) > sum(width[0])
    facts = [report.model_facts()["ridge"]["effective_subjects"] for report in (plain, wide)]
    assert facts == [None, [44.0, 44.0]]
    assert "leaves as much as 44, 44 subjects by" in said(wide.diagnostics, "bands-widened")
    assert "bands-widened" not in codes(plain.diagnostics)
