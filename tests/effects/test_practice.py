"""How likely treatments were, as practice is estimated, in worlds in which their probabilities are known."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import costar_cli as costar
from costar_cli.data import Part
from costar_cli.effects import enrol
from costar_cli.effects.weights import Practice
from costar_cli.errors import UsageError
from tests.effect_worlds import WORLDS, EffectWorld, Regime

Floats = NDArray[np.float64]
TRAIN = Part("source", "train")


def practice_in(world: EffectWorld, n: int, seed: int, *, domain: bool = False) -> Practice:
    """Return practice of n subjects, perhaps with a column of two domains that nothing depends on."""
    extra_NE = np.random.default_rng(seed).integers(0, 2, (n, 1)).astype(float) if domain else None
    data = world.dataset(n, seed)
    trials, _ = enrol(data.schema, data.panels[TRAIN], world.steps, extra_NE=extra_NE)
    return Practice(trials, trials.folds(5, 0), known={}, boosting=True)


def few() -> Iterator[tuple[Floats, Floats]]:
    """Yield the probability of treatment as estimated and in truth, in samples of 150 subjects."""
    for seed in range(6):
        practice = practice_in(WORLDS["overlap"], 150, seed, domain=True)
        true_NTP = WORLDS["overlap"].draw(150, seed)[0]
        yield practice.given_probability_RJ[:, 1], true_NTP[practice.row_R, practice.step_R, 1]


def test_few_subjects_and_a_domain_make_no_treatment_all_but_certain() -> None:
    made, true = zip(*few(), strict=True)
    errors = [np.sqrt(((one - other) ** 2).mean()) for one, other in zip(made, true, strict=True)]
    assert np.mean(errors) < 0.07  # of probabilities from .31 to .69; .089 with a whole history from the start
    assert np.mean([one.min() for one in made]) > 0.18
    assert np.mean([one.max() for one in made]) < 0.82


@pytest.mark.parametrize("on", ["before", "last"])
def test_treatment_that_goes_by_what_was_before_is_predicted_by_it(on: str) -> None:
    def update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        x_N = 0.5 * x_NX[:, 0] - 0.3 * (a_NA[:, 0] - 0.5) + 0.35 * rng.uniform(-1, 1, len(y_N))
        past_N = 1.2 * x_NX[:, 0] if on == "before" else 2 * a_NA[:, 0] - 1
        return np.column_stack([x_N, expit(0.3 * x_N + past_N)]), 0.5 * y_N + x_N

    world = replace(WORLDS["overlap"], update=update)
    practice = practice_in(world, 1500, 1)
    later_R = practice.step_R > 0
    true_R = world.draw(1500, 1)[0][practice.row_R, practice.step_R, 1][later_R]
    made_R = practice.given_probability_RJ[later_R, 1]
    assert np.sqrt(((made_R - true_R) ** 2).mean()) < 0.35 * true_R.std()


def _tablets(x_NX: Floats, y_N: Floats, last_NA: Floats, rng: np.random.Generator) -> Floats:
    """Return 0, 1 or 2 tablets, the more the higher x is."""
    return (rng.random(len(y_N)) < expit(0.5 * x_NX[:, 0]))[:, None] + 1.0 * (rng.random(len(y_N)) < 0.5)[:, None]


TABLETS = replace(
    WORLDS["doses"], steps=2, treat=_tablets,
    regimes={"none": Regime({"repeat": {}}, lambda x, y, a: 0 * a),
             "two": Regime({"repeat": {"dose": 2}}, lambda x, y, a: 0 * a + 2),
             "one more": Regime({"rule": "dose = natural dose + 1 if natural dose < 2"}, lambda x, y, a: a + (a < 2))},
    reference="none",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")
@pytest.mark.parametrize("grace", [0, 1])
def test_doses_of_few_values_are_weighed_by_the_probability_of_each(grace: int) -> None:
    plans = {"plans": {name: regime.steps(2) for name, regime in TABLETS.regimes.items()}}
    options = {"estimator": "ipw", "learner": "regression", "grace": grace}
    report = costar.estimate_effects(TABLETS.dataset(3000, 1), plans, **options)
    rows = {row["plan"]: row for row in report.rows if row["quantity"] == "mean" and row["step"] == 2}
    given_N = TABLETS.draw(3000, 1)[2][:, 1, 0]
    for weights, never in zip(report.effects.weights, (given_N > 0, given_N < 2, given_N == 0), strict=True):
        assert (weights.ratio_MK[never, 1] == 0).all()  # what a plan never gives weighs nothing
    for plan, regime in TABLETS.regimes.items():
        first = TABLETS.draw(200_000, 5)[2][:, 0] if grace else np.zeros(0)

        def decide(x: Floats, y: Floats, a: Floats, regime: Regime = regime, first: Floats = first) -> Floats:
            waits = np.array_equal(a, first) * (a == 0)  # at the first decision who would have none waits
            return np.where(waits, 0.0, regime.decide(x, y, a))

        truth = TABLETS.draw(200_000, 5, decide)[1][:, -1].mean()
        assert abs(rows[plan]["estimate"] - truth) < 3 * rows[plan]["se"] < 0.25, plan


def _infusion(x_NX: Floats, y_N: Floats, last_NA: Floats, rng: np.random.Generator) -> Floats:
    """Return no dose, 2, or any from 1 to 5: the higher x is, the more often one, and the higher."""
    any_N = np.clip(2.5 + 0.7 * x_NX[:, 0] + rng.normal(size=len(y_N)), 1, 5)
    dose_N = np.where(rng.random(len(y_N)) < 0.5, 2.0, any_N)
    return np.where(rng.random(len(y_N)) < expit(0.6 * x_NX[:, 0]), dose_N, 0.0)[:, None]


INFUSION = replace(
    TABLETS, treat=_infusion,
    regimes={name: TABLETS.regimes[name] for name in ("none", "two")} | {
        "two if high": Regime({"rule": "dose = 2 if x > 0"}, lambda x, y, a: 2.0 * (x[:, :1] > 0))},
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")
@pytest.mark.parametrize(("protocol", "grace"), [("per-protocol", 1), ("intention-to-treat", 0)])
def test_fixed_plans_of_any_doses_give_weight_to_their_doses_alone(protocol: str, grace: int) -> None:
    plans = {"plans": {name: regime.steps(2) for name, regime in INFUSION.regimes.items()}}
    options = {"estimator": "ipw", "learner": "regression", "grace": grace, "protocol": protocol}
    report = costar.estimate_effects(INFUSION.dataset(4000, 1), plans, **options)
    rows = {row["plan"]: row for row in report.rows if row["quantity"] == "mean" and row["step"] == 2}
    first_N = INFUSION.draw(4000, 1)[2][:, 0, 0]
    for weights, may in zip(report.effects.weights, ([0.0], [2.0], [0.0, 2.0]), strict=True):
        other = ~np.isin(first_N, [*may, *[0.0] * grace])
        assert (weights.ratio_MK[other, 0] == 0).all()  # what a plan never gives weighs nothing
    natural = INFUSION.draw(200_000, 5)[2][:, 0]
    for plan, regime in INFUSION.regimes.items():

        def decide(x: Floats, y: Floats, a: Floats, regime: Regime = regime) -> Floats:
            if np.array_equal(a, natural):  # the first decision: with grace, who would have none waits
                return np.where((a == 0) & (grace > 0), 0.0, regime.decide(x, y, a))
            return regime.decide(x, y, a) if grace else a

        truth = INFUSION.draw(200_000, 5, decide)[1][:, -1].mean()
        assert abs(rows[plan]["estimate"] - truth) < 3 * rows[plan]["se"] < 0.3, plan


@pytest.mark.parametrize(("protocol", "grace", "step"), [("per-protocol", 1, 2), ("intention-to-treat", 0, 1)])
def test_a_dose_that_nobody_has_is_refused(protocol: str, grace: int, step: int) -> None:
    plan = {"repeat": {"dose": 3}, "times": 2}
    with pytest.raises(UsageError, match=f"nobody follows plan 'plan' through step {step}"):
        costar.estimate_effects(INFUSION.dataset(500, 1), plan, learner="regression", grace=grace, protocol=protocol)
