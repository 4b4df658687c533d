"""Which differences between plans have a level, and whether those that do keep it (spec BAND-7)."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import costar_cli as costar
from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Part, Queries
from costar_cli.data.registry import truth_of
from costar_cli.inference import calibration_of, differences, draws, estimate, has_range, range_of
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.methods.stack.model import StackModel
from tests.fits import fit_method, model_of
from tests.methods.invariant_worlds import world

TEST = Part("source", "test")


@cache
def tumours() -> Dataset:
    return costar.simulate(
        "tumor", gamma=5.0, seed=3, train=400, val=150, test=150, target_train=2, target_val=2, target_test=2
    )


def two_plans(data: Dataset) -> tuple[Queries, np.ndarray]:
    """Return never treating and a random plan of each test subject, and the true difference `[M,H,Y]`."""
    panel, rng = data.panels[TEST], np.random.default_rng(0)
    origin_N = panel.length // 2
    rows = np.flatnonzero(panel.outcomes[np.arange(panel.n_subjects), origin_N, 0] > 1.0)
    values = rng.integers(0, 2, (len(rows), data.horizon, 2))
    values = np.concatenate([np.zeros_like(values), values])
    subject, origin = np.tile(rows, 2), np.tile(origin_N[rows], 2)
    plan = data.schema.treatments.encode(values).astype(np.uint8)
    queries = Queries(subject.astype(np.int32), origin.astype(np.int16), plan)
    answer = truth_of(data.name)
    assert answer is not None
    truth_QHY = np.reshape(answer(data, TEST, subject, origin, values), (len(subject), data.horizon, 1))
    return queries, truth_QHY[len(rows) :] - truth_QHY[: len(rows)]


def test_differences_of_the_mixed_model_keep_their_level_on_tumours() -> None:
    data = tumours()
    model = costar.fit(data, "mixed").fitted
    queries, truth_MHY = two_plans(data)
    found, count = estimate(model, data.panels[TEST], queries), len(truth_MHY)
    drawn_SQHY, of_M = draws(model, data.panels[TEST], queries), np.arange(count)
    calibration = calibration_of(model)
    assert calibration is not None
    assert model.is_joint
    assert not has_range(model)
    between = differences(drawn_SQHY, found, of_M + count, of_M)
    levels = (0.5, 0.8, 0.9, 0.95)
    bands = calibration.bands(between, levels, clip=False)
    covered = (bands.lower_LQHY <= truth_MHY) & (truth_MHY <= bands.upper_LQHY)
    assert covered.mean(axis=(1, 2, 3)) == pytest.approx(levels, abs=0.06)  # 49 subjects: 1.5 standard errors
    assert covered.mean(axis=(1, 3)) == pytest.approx(
        np.repeat(levels, data.horizon).reshape(4, -1), abs=0.21
    )  # 3, of 24 cells


def fitted(method: str, **settings: Any) -> FittedModel:
    kind = METHODS[method].settings_class
    return model_of(fit_method(world("linear"), method, kind(**settings) if kind else None, FinetuneConfig(epochs=1)))


@pytest.mark.parametrize(
    ("method", "settings", "joint"),
    [
        ("mixed", {"iterations": 15}, True),
        ("ridge", {}, False),
        ("stack", {"parts": "last-value,mixed"}, False),
        ("stack", {"parts": "ridge,msm"}, False),
    ],
)
def test_a_level_of_differences_needs_a_joint_distribution_of_all_parts(
    method: str, settings: dict[str, Any], *, joint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fitted(method, **settings)
    monkeypatch.setattr(StackModel, "answering", property(lambda self: list(self.parts)))  # none without weight
    assert model.is_joint is joint
    assert not has_range(model)  # one member is no range


@pytest.mark.parametrize(("joint", "tells", "expected"), [
    (False, True, True),  # networks, also in a stack beside a closed form, whose draws are not members alone
    (False, False, False),  # copies of a closed form
    (True, True, False),
])  # fmt: skip
def test_members_have_a_range_unless_they_are_copies(joint: bool, tells: bool, expected: bool) -> None:  # noqa: FBT001
    record = SimpleNamespace(calibration={"radius": 1})
    model = SimpleNamespace(record=record, is_joint=joint, tells_differences=tells, draws_are_members=False, members=3)
    assert has_range(model) is expected


def test_a_range_is_that_of_at_least_three_members_and_holds_the_estimate() -> None:
    member_RM = np.array([[1.0, -2.0], [3.0, 0.5], [2.0, 0.0]])
    low_M, high_M = range_of(member_RM, np.array([2.0, 0.7]))
    assert (low_M.tolist(), high_M.tolist()) == ([1.0, -2.0], [3.0, 0.7])
    assert np.isnan(range_of(member_RM[:2], np.array([2.0, 0.7]))).all()
