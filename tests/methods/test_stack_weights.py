"""Stacking: the weights of its parts, and those of the windows by which they are told."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Panel, Scaler
from costar_cli.data.panel import join_panels
from costar_cli.data.windows import factual_windows
from costar_cli.methods.shared import plan_weights as stack_plan_weights
from costar_cli.methods.shared.combining import Errors, convex, weigh
from costar_cli.methods.shared.plan_weights import PlanWeights, plan_weights, tempered
from tests.methods.invariant_worlds import world
from tests.methods.stack_worlds import fit, stacked


def random_gram(parts: int, seed: int = 0) -> np.ndarray:
    errors = np.random.default_rng(seed).normal(size=(40, parts)) * np.arange(1, parts + 1)
    return errors.T @ errors


def test_convex_weights_are_the_best_of_the_simplex() -> None:
    for seed in range(20):
        gram, rng = random_gram(4, seed), np.random.default_rng(seed)
        found = convex(gram)
        assert found.min() >= 0
        assert found.sum() == pytest.approx(1)
        others = rng.dirichlet(np.ones(4) / 2, size=2_000)
        assert found @ gram @ found <= np.einsum("mp,pq,mq->m", others, gram, others).min() * (1 + 1e-9)


def test_convex_weights_know_perfect_parts_equal_parts_and_errors_of_any_size() -> None:
    assert convex(np.diag([2.0, 0.0, 1.0])).tolist() == [0, 1, 0]
    equal = convex(np.ones((2, 2)))
    assert equal.sum() == pytest.approx(1)
    tiny, huge = convex(random_gram(3) * 1e-200), convex(random_gram(3) * 1e200)
    np.testing.assert_allclose(tiny, huge, rtol=1e-6)
    np.testing.assert_allclose(convex(np.diag([1e-12, 1.0, 1e20])), [1, 1e-12, 1e-32], rtol=1e-6, atol=1e-20)


def of_errors(errors_PCH: np.ndarray) -> Errors:
    """Errors of parts on one window per cluster, of one outcome."""
    gram = np.einsum("pch,qch->chpq", errors_PCH, errors_PCH)[:, :, None]
    return Errors(gram, np.ones((*errors_PCH.shape[1:], 1)))


def test_independent_errors_are_mixed_and_the_mixture_errs_less_on_other_clusters() -> None:
    rng = np.random.default_rng(1)
    errors = of_errors(rng.normal(size=(2, 200, 3)))
    weighing = weigh(errors)
    assert weighing.rules[0] != "one part"
    assert np.abs(weighing.weight_PHY - 0.5).max() < 0.15
    assert errors.risk(weighing.crossed_CHY)[0] < 0.8 * min(errors.risk(errors.of_part(p))[0] for p in (0, 1))
    assert errors.risk(errors.of_part(0))[1] == pytest.approx(1 / np.sqrt(2 * 600), rel=0.2)


def test_a_part_that_errs_least_stands_alone_where_mixing_only_fits_noise() -> None:
    rng = np.random.default_rng(2)
    best = rng.normal(size=(12, 2))
    alike = np.stack([best, *(best * 1.01 + 0.02 * rng.normal(size=best.shape) for _ in range(5))])
    weighing = weigh(of_errors(alike))
    assert weighing.rules == ("one part",)
    assert weighing.weight_PHY[0].tolist() == [[1], [1]]


def test_an_anchor_is_left_only_for_errors_that_are_less_by_more_than_chance() -> None:
    anchor = np.random.default_rng(4).choice([-1.0, 1.0], size=(50, 3))
    for ratios, chosen in (((0.8, 1.15), 0), ((0.5, 0.6), 1)):  # by turns, of the clusters
        other = anchor * np.tile(ratios, 25)[:, None]
        errors = of_errors(np.stack([anchor, other, 3 * anchor]))
        assert weigh(errors).weight_PHY[1].min() == 1
        guarded = weigh(errors, anchors=[0, 2])
        assert guarded.rules == ("one part",)
        assert guarded.weight_PHY[chosen].min() == 1
        assert errors.risk(guarded.crossed_CHY) == errors.risk(errors.of_part(chosen))


def test_what_is_not_allowed_has_no_weight_by_no_rule() -> None:
    rng = np.random.default_rng(5)
    best = 0.5 * rng.normal(size=(40, 2))
    errors = of_errors(np.stack([best, 2 * best, rng.normal(size=best.shape), -rng.normal(size=best.shape)]))
    assert weigh(errors).weight_PHY[0].min() > 0.5
    without = np.array([[False], [True], [True], [True]])
    for anchors, adjusting in (((), ()), ((0, 2), ()), ((0,), (0, 3))):
        weight_PHY = weigh(errors, None, anchors, adjusting, without).weight_PHY
        assert weight_PHY[0].max() == 0
        assert weight_PHY.sum(axis=0) == pytest.approx(1)
    prior = np.zeros((4, 2, 1))
    prior[0] = 1
    assert weigh(errors, prior, allowed_PY=without).weight_PHY[0].max() == 0
    single = weigh(errors, None, (0,), (0,), np.array([[False], [False], [True], [False]]))
    assert single.weight_PHY[2].min() == 1
    assert single.crossed_CHY == pytest.approx(errors.of_part(2))


def test_one_cluster_or_two_give_weights_without_a_warning() -> None:
    for clusters in (1, 2):
        errors = of_errors(np.random.default_rng(3).normal(size=(2, clusters, 2)))
        assert weigh(errors).weight_PHY.sum(axis=0) == pytest.approx(1)
        assert np.isnan(errors.risk(errors.of_part(0))[1]) == (clusters == 1)


def test_steps_have_weights_of_their_own_where_the_best_part_changes() -> None:
    rng = np.random.default_rng(4)
    size = np.array([[0.2, 3.0], [3.0, 0.2]])[:, None]
    weighing = weigh(of_errors(rng.normal(size=(2, 300, 2)) * size))
    assert weighing.rules == ("a mixture per step",)
    first, second = weighing.weight_PHY[0, :, 0]
    assert first > 0.7
    assert second < 0.3


def reactive(subjects: int, seed: int) -> Panel:
    """A random walk without any effect of treatment, which is given where the last outcome is high."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(subjects, 12, 1)).cumsum(axis=1).astype(np.float32)
    given = (y + rng.normal(size=y.shape) > 0).astype(np.uint8)
    length, ids = np.full(subjects, 12), np.arange(subjects) + 1_000 * seed
    return Panel(np.zeros((subjects, 12, 0), np.float32), given, y, np.zeros((subjects, 0), np.float32), length, ids)


def test_windows_of_plans_do_not_reward_reading_reactions_as_news(make_reactive: Callable[[int], Panel]) -> None:
    """Later treatments foretell a random walk as it was observed, and say nothing of it under a plan."""
    train, validation = make_reactive(0), make_reactive(1)
    windows = factual_windows(validation, 4)
    assert windows is not None
    assert windows.queries.outcomes is not None
    encoding = world("linear").schema.treatments
    scaler = Scaler(*(np.stack([np.zeros(n), np.ones(n)]) for n in (0, 1, 0)))
    weights = plan_weights(train, windows, scaler, encoding).weight_QH
    news_Q = windows.queries.plan[:, 1:, 0].mean(axis=1) - windows.queries.plan[:, 0, 0]
    change_Q = (
        windows.queries.outcomes[:, -1, 0] - windows.panel.outcomes[windows.queries.subject, windows.queries.origin, 0]
    )
    observed = np.corrcoef(news_Q, change_Q)[0, 1]
    w = weights[:, -1] / weights[:, -1].sum()
    dn, dc = news_Q - w @ news_Q, change_Q - w @ change_Q
    planned = (w @ (dn * dc)) / np.sqrt((w @ dn**2) * (w @ dc**2))
    assert observed > 0.3
    assert abs(planned) < 0.6 * observed
    assert weights.mean(axis=0) == pytest.approx(1)
    assert np.ptp(weights[:, 0]) == 0


@pytest.fixture
def make_reactive() -> Callable[[int], Panel]:
    return lambda seed: reactive(300, seed)


def test_tempered_weights_are_worth_a_share_of_the_windows_and_keep_their_order() -> None:
    log = np.random.default_rng(0).normal(size=500) * 8
    weight, _ = tempered(log)
    assert weight.sum() ** 2 / (weight**2).sum() >= 0.3 * 500
    assert weight.mean() == pytest.approx(1)
    assert np.array_equal(np.argsort(weight), np.argsort(log))
    assert np.array_equal(tempered(np.zeros(4))[0], np.ones(4))


def test_weights_of_windows_tell_their_power_and_what_they_are_worth() -> None:
    told = stacked("linear").meta["window_weights"]
    steps = world("linear").horizon
    assert [len(values) for values in told.values()] == [steps] * 3
    assert (told["power"][0], told["effective_share"][0]) == (1, 1)
    assert min(told["effective_share"]) >= 0.3
    log = np.random.default_rng(0).normal(size=(500, 2)) * [0, 30]
    weights = PlanWeights.of(log, [True, True])
    assert weights.power_H[0] == 1
    assert weights.power_H[1] < 0.5
    (doubt,) = weights.warnings()
    assert "(step 2)" in doubt
    assert "lean towards those of what was observed" in doubt
    assert PlanWeights.of(0 * log, [True, True]).warnings() == []


def test_models_of_treatments_that_do_not_converge_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_plan_weights, "ITERATIONS", 1)
    trained = fit(world("linear"), "last-value,ridge")
    assert trained.meta["window_weights"]["converged"][1:] == [False] * (world("linear").horizon - 1)
    assert any("did not converge" in warning for warning in trained.meta["warnings"])


def test_models_of_treatments_know_which_subjects_are_of_the_windows_domain(
    make_reactive: Callable[[int], Panel],
) -> None:
    """Two domains toss coins of their own: nothing reacts to anything, so that all windows count alike."""
    rng, panels = np.random.default_rng(0), [make_reactive(0), make_reactive(1)]
    own, other = (
        replace(panel, treatments=(rng.random(panel.treatments.shape) < share).astype(np.uint8))
        for panel, share in zip(panels, (0.8, 0.2), strict=True)
    )
    windows = factual_windows(own, 4)
    assert windows is not None
    scaler = Scaler(*(np.stack([np.zeros(n), np.ones(n)]) for n in (0, 1, 0)))
    encoding, both = world("linear").schema.treatments, join_panels([own, other])
    is_own = np.arange(both.n_subjects) < own.n_subjects
    told, untold = (plan_weights(both, windows, scaler, encoding, flags).weight_QH[:, -1] for flags in (is_own, None))
    assert told.std() < 0.3
    assert untold.std() > 2 * told.std()
