"""Joint draws: what plans of a subject share, and how uncertain differences between them are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Queries
from costar_cli.data.windows import factual_windows
from costar_cli.inference import cached_predictor, differences, draws, estimate
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel, PredictiveDistribution
from tests.fits import fit_method, model_of
from tests.methods.invariant_worlds import world
from tests.whatif.whatif_worlds import TUMOR, LinearModel

N = 4_000


def fitted(method: str, data: str = "linear", **settings: Any) -> FittedModel:
    kind = METHODS[method].settings_class
    return model_of(fit_method(world(data), method, kind(**settings) if kind else None, FinetuneConfig(epochs=1)))


def two_plans(data: str = "linear") -> tuple[Any, Queries]:
    """Three subjects, each under its own plan and under none."""
    dataset = world(data)
    windows = factual_windows(dataset.panel("source", "test"), dataset.horizon, most=3)
    asked = windows.asked.take(np.array([0, 0, 1, 1, 2, 2]))
    plan = asked.plan.copy()
    plan[0::2, 1:] = dataset.schema.treatments.encode(np.zeros((1, 1, len(dataset.schema.treatments.names)), dtype=int))
    plan[1::2, 1:] = dataset.schema.treatments.encode(np.ones((1, 1, len(dataset.schema.treatments.names)), dtype=int))
    return windows.panel, replace(asked, plan=plan)


@pytest.mark.parametrize("data", ["linear", "ward"])
def test_draws_of_the_mixed_model_have_its_mean_and_standard_deviation(data: str) -> None:
    model, (panel, queries) = fitted("mixed", data, iterations=15), two_plans(data)
    drawn_SQHY, found = draws(model, panel, queries, N), estimate(model, panel, queries)
    error = drawn_SQHY.mean(axis=0)[:, 0] - found.mean_QHY[:, 0]
    assert np.abs(error / found.sd_QHY[:, 0]).max() < 0.1
    assert drawn_SQHY.std(axis=0)[:, 0] == pytest.approx(found.sd_QHY[:, 0], rel=0.2)  # bounds cut some draws


def test_plans_that_are_the_same_so_far_differ_by_nothing_and_share_chance_after() -> None:
    model, (panel, queries) = fitted("mixed", iterations=15), two_plans()
    drawn_SQHY, found = draws(model, panel, queries, 500), estimate(model, panel, queries)
    of, minus = np.array([1, 3, 5]), np.array([0, 2, 4])
    apart = differences(drawn_SQHY, found, of, minus)
    assert apart.sd_QHY[:, 0].max() < 1e-9
    independent = np.hypot(found.sd_QHY[of], found.sd_QHY[minus])
    assert (apart.sd_QHY[:, 1:] < 0.7 * independent[:, 1:]).all()
    assert apart.mean_QHY == pytest.approx(found.mean_QHY[of] - found.mean_QHY[minus])


def test_the_same_seed_draws_the_same() -> None:
    model, (panel, queries) = fitted("mixed", iterations=15), two_plans()
    one, again, other = (draws(model, panel, queries, 5, seed) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()


@pytest.mark.parametrize("parts", ["last-value,mixed", "ridge,msm"])
def test_a_subject_asked_about_alone_among_others_has_the_chance_that_it_has_with_them(parts: str) -> None:
    model, (panel, queries) = fitted("stack", parts=parts), two_plans()
    together, one = draws(model, panel, queries, 50), queries.take(np.array([4, 5]))
    assert draws(model, panel, one, 50, among=queries.subject) == pytest.approx(together[:, 4:])


def test_draws_of_a_stack_are_its_parts_in_proportion_to_their_weights() -> None:
    model, (panel, queries) = fitted("stack", parts="last-value,mixed"), two_plans()
    drawn_SQHY, found = draws(model, panel, queries, N), estimate(model, panel, queries)
    assert drawn_SQHY.mean(axis=0) == pytest.approx(found.mean_QHY, abs=0.1 * found.sd_QHY.max())
    assert drawn_SQHY.std(axis=0) == pytest.approx(found.sd_QHY, rel=0.15)


def test_a_single_black_box_tells_nothing_of_differences() -> None:
    assert not fitted("ridge").tells_differences
    assert fitted("mixed", iterations=15).tells_differences


@pytest.mark.parametrize("members", [3, 5])
def test_draws_of_an_ensemble_have_its_standard_deviation(members: int) -> None:
    """BAND-1 divides by R - 1; drawing the members in turn alone would give the sd with divisor R."""
    panel, queries = two_plans()
    mean_RQHY = np.random.default_rng(0).normal(size=(members, len(queries), queries.horizon, 1))
    mean_RQHY += 1e-3 - mean_RQHY.mean(axis=0)  # near zero: what is added in proportion to the level is next to nothing
    known = PredictiveDistribution(mean_RQHY, np.zeros_like(mean_RQHY), np.zeros_like(mean_RQHY))
    closed_form = LinearModel(TUMOR, calibrated=False)
    closed_form.predict_distribution = lambda panel, queries, summed_Y=None: known  # type: ignore[method-assign]
    black_box = LinearModel(TUMOR, calibrated=False)
    black_box.rollout = lambda panel, queries: mean_RQHY  # type: ignore[method-assign]
    for model in (black_box, closed_form):
        drawn_SQHY = draws(model, panel, queries, 60 * members)
        assert drawn_SQHY.std(axis=0) == pytest.approx(mean_RQHY.std(axis=0, ddof=1), rel=0.03)
        assert drawn_SQHY.mean(axis=0) == pytest.approx(mean_RQHY.mean(axis=0), abs=0.03)


def test_a_part_of_a_stack_that_estimates_have_asked_is_not_asked_again_for_draws(monkeypatch) -> None:
    panel, queries = two_plans()
    model = fitted("stack", parts="ridge,msm")
    calls: list[str] = []
    for part in model.parts.values():
        monkeypatch.setattr(type(part), "rollout", _counted(type(part).rollout, calls))
    ask = cached_predictor(panel)
    found, drawn_SQHY = estimate(model, panel, queries, ask=ask), draws(model, panel, queries, 50, ask=ask)
    assert len(calls) == len(set(calls)) == len(model.answering)
    assert np.array_equal(drawn_SQHY, draws(model, panel, queries, 50))
    assert np.array_equal(found.mean_QHY, estimate(model, panel, queries).mean_QHY)


def _counted(rollout: Any, calls: list[str]) -> Any:
    def counted(self: FittedModel, *args: Any, **kwargs: Any) -> Any:
        calls.append(self.method)
        return rollout(self, *args, **kwargs)

    return counted
