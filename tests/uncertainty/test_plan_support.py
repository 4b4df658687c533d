"""Lights: odd plans and uncertain subjects light up, usual ones do not; damaged files are refused (SUPPORT-4 to 7)."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from costar_cli.data import Dataset, Panel, Queries
from costar_cli.data.record import ModelRecord
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.data.windows import factual_windows
from costar_cli.errors import ArtifactError
from costar_cli.inference import NOT_JUDGED, SupportRatings, estimate, support_of
from costar_cli.methods.base import FittedModel
from costar_cli.reporting import NullReporter
from costar_cli.training import Trained
from tests.methods.linear_worlds import fit, linear_data, model_of

CHEMO, RADIO = 1, 2  # columns of the tumour's classes


@pytest.fixture(scope="module")
def tumors() -> Dataset:
    sizes = {"train": 150, "val": 60, "test": 60, "target_train": 2, "target_val": 2, "target_test": 2}
    return simulate_tumor(TumorConfig(gamma=10, steps=30, **sizes), NullReporter())


@pytest.fixture(scope="module")
def ridge(tumors: Dataset) -> Trained:
    return fit(tumors, "ridge")


def lights_of(model: FittedModel, panel: Panel, queries: Queries) -> SupportRatings:
    support = support_of(model)
    assert support is not None
    return support.ratings(panel, queries, estimate(model, panel, queries))


def same_plan(panel: Panel, column: int, *, origin: int, width: int, steps: int) -> Queries:
    rows = np.flatnonzero(panel.length > origin)
    plan = np.tile(np.eye(width, dtype=np.uint8)[column], (len(rows), steps, 1))
    return Queries(rows.astype(np.int32), np.full(len(rows), origin, np.int16), plan)


def test_what_subjects_were_given_is_usual(tumors: Dataset, ridge: Trained) -> None:
    windows = factual_windows(tumors.panel("source", "test"), 6)
    practice_QH = lights_of(model_of(ridge), windows.panel, windows.asked).practice_QH
    alive_Q = windows.panel.outcomes[windows.queries.subject, windows.queries.origin, 0] > 1.0
    assert (practice_QH[alive_Q] > 0).mean() < 0.15
    assert (practice_QH[alive_Q] > 1).mean() < 0.05


def test_six_days_of_chemotherapy_in_a_row_light_up(tumors: Dataset, ridge: Trained) -> None:
    panel = tumors.panel("source", "test")
    queries = same_plan(panel, CHEMO, origin=12, width=4, steps=6)
    small_Q = panel.outcomes[queries.subject, 12, 0] < 30
    ratings = lights_of(model_of(ridge), panel, queries)
    assert (ratings.rating_QHY[small_Q, -1] > 0).mean() > 0.9
    assert (ratings.rating_QHY[small_Q, -1] == 2).mean() > 0.75
    assert (ratings.rating_QHY[small_Q, 0] == 2).mean() < 0.5, "a single day is not as rare"
    nothing = lights_of(model_of(ridge), panel, same_plan(panel, 0, origin=12, width=4, steps=6))
    assert (nothing.rating_QHY[small_Q, -1] == 0).mean() > 0.9


@pytest.mark.parametrize("precise", [True, False])
def test_what_no_training_subject_was_given_is_red_from_then_on(
    ridge: Trained, tumors: Dataset, *, precise: bool
) -> None:
    model, panel = model_of(ridge), tumors.panel("source", "test")
    support, queries = support_of(model), same_plan(panel, 0, origin=12, width=4, steps=6)
    assert support.given == model.record.support
    queries.plan[:, 3] = np.eye(4)[CHEMO]
    support = replace(support, precise=precise)
    usual = support.ratings(panel, queries, estimates := estimate(model, panel, queries))
    never = replace(support.given, seen=frozenset({(0, 0), (1, 1)}))
    ratings = replace(support, given=never).ratings(panel, queries, estimates)
    for found in (ratings.rating_QHY[..., 0], ratings.practice_QH, ratings.unsupported_QHY[..., 0] * 2):
        assert (found[:, 3:] == 2).all()
    np.testing.assert_array_equal(ratings.rating_QHY[:, :3], usual.rating_QHY[:, :3])
    assert (usual.rating_QHY[:, 3] < 2).any()


def test_practice_warns_where_a_method_knows_how_precise_it_is(ridge: Trained, tumors: Dataset) -> None:
    model, panel = model_of(ridge), tumors.panel("source", "test")
    queries = same_plan(panel, CHEMO, origin=12, width=4, steps=6)
    support, estimates = support_of(model), estimate(model, panel, queries)
    ratings = replace(support, precise=True).ratings(panel, queries, estimates)
    assert ratings.practice_QH.max() == 2
    assert ratings.rating_QHY.max() == 1
    ratings = replace(support, precise=False).ratings(panel, queries, estimates)
    np.testing.assert_array_equal(ratings.rating_QHY[..., 0], ratings.practice_QH)


def test_a_single_member_is_not_judged_by_its_spread(ridge: Trained, tumors: Dataset) -> None:
    model, panel = model_of(ridge), tumors.panel("source", "test")
    support, queries = support_of(model), same_plan(panel, CHEMO, origin=12, width=4, steps=6)
    assert np.isinf(support.limits.spread_LHY).all()
    assert not support.judges_precision
    ratings = support.ratings(panel, queries, estimate(model, panel, queries))
    assert (ratings.precision_QHY == NOT_JUDGED).all()
    assert ratings.rating_QHY.min() >= 0
    np.testing.assert_array_equal(ratings.rating_QHY[..., 0], ratings.practice_QH)


@pytest.mark.slow
def test_the_mixed_model_is_judged_by_its_spread(tumors: Dataset) -> None:
    support = support_of(model_of(fit(tumors, "mixed")))
    assert support.precise
    assert np.isfinite(support.limits.spread_LHY).all()
    assert support.judges_precision


def test_a_wider_spread_is_never_a_better_light(tumors: Dataset, ridge: Trained) -> None:
    model, windows = model_of(ridge), factual_windows(tumors.panel("source", "test"), 6)
    support, found = support_of(model), estimate(model, windows.panel, windows.asked)
    limits = replace(support.limits, spread_LHY=np.array([[[0.5]] * 6, [[1.0]] * 6]))
    support = replace(support, limits=limits)
    marks = []
    for spread in (0.4, 0.7, 2.0):
        sd_QHY = np.broadcast_to(spread * found.unit_QY[:, None], found.sd_QHY.shape)
        marks.append(support.ratings(windows.panel, windows.asked, replace(found, sd_QHY=sd_QHY)).precision_QHY)
    assert [int(mark.min()) for mark in marks] == [int(mark.max()) for mark in marks] == [0, 1, 2]


def test_expected_and_observed_treatment_of_held_out_subjects_are_recorded() -> None:
    rows = fit(linear_data(val=200), "ridge").meta["practice"]["reliability"]
    assert sum(row["decisions"] for row in rows) > 1000
    assert all(abs(row["expected"] - row["observed"]) < 0.15 for row in rows)
    assert max(row["expected"] for row in rows) - min(row["expected"] for row in rows) > 0.3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("coef", lambda a: a[:, 1:]),
        ("intercept", lambda a: a * np.nan),
        ("spread", lambda a: -a),
        ("rarest", lambda a: a[::-1]),
        ("course", lambda a: a[:, :2]),
    ],
)
def test_damaged_arrays_are_refused(ridge: Trained, name: str, change) -> None:
    key = f"practice/{name}"
    broken = replace(ridge, arrays={**ridge.arrays, key: change(ridge.arrays[key])})
    model = model_of(broken)
    with pytest.raises(ArtifactError, match="practice is damaged"):
        support_of(model)


def test_a_model_made_before_there_were_lights_has_none() -> None:
    assert support_of(SimpleNamespace(record=ModelRecord(), attached={})) is None
