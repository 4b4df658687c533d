"""Bad input to the mixed-effects growth model: a warning or an error by name, and finite answers."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Dataset, Panel, Part, Queries
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.methods.shared.doses import dose_table
from costar_cli.training import Trained
from tests.fits import model_of
from tests.methods.linear_worlds import random_dataset
from tests.methods.mixed_worlds import (
    SCHEMA,
    TEST,
    TRAIN,
    asked,
    changed,
    fit,
    grown,
    world,
)


def warnings_of(trained: Trained) -> str:
    return " | ".join(trained.meta.get("warnings", []))


def finite(trained: Trained, dataset: Dataset, *, n: int = 30) -> MixedModel:
    found, panel = model_of(trained), dataset.panels[TEST]
    assert isinstance(found, MixedModel)
    predicted = found.predict_distribution(panel, asked(panel, n, horizon=dataset.horizon))
    for values in (predicted.mean, predicted.sd_parameter, predicted.sd_noise):
        assert np.isfinite(values).all()
    return found


def test_zeros_that_are_no_end_rule_out_relative_growth_and_are_named():
    def interrupted(panel: Panel) -> Panel:
        rng = np.random.default_rng(0)
        around_five = rng.normal(5, 1, size=panel.outcomes.shape).clip(min=1) * (rng.random(panel.outcomes.shape) < 0.9)
        return replace(panel, outcomes=around_five.astype(np.float32))

    data = changed(world(n=60, steps=12), interrupted)
    trained = fit(data, iterations=20)
    assert "outcome 'size' is never negative and comes back from" in warnings_of(trained)
    law = finite(trained, data).laws[0]
    assert (law.relative, law.local) == (False, False)


def sold(n: int, steps: int, seed: int) -> Panel:
    """Counts around a level that differs a hundredfold between items; a drug adds a third of it."""
    rng, panel = np.random.default_rng(seed), grown(n, steps, relative=True, seed=seed)
    level_N = np.exp(rng.normal(1.5, 1.5, size=n))
    drug_NT = (panel.treatments @ dose_table(SCHEMA.treatments))[..., 0]
    rate_NT = level_N[:, None] * np.pad(1 + drug_NT[:, :-1] / 3, ((0, 0), (1, 0)), constant_values=1)
    return replace(panel, outcomes=rng.poisson(rate_NT)[..., None].astype(np.float32))


def test_counts_are_modelled_in_the_usual_size_of_each_subject():
    data = Dataset("sold", SCHEMA, 4, {part: sold(60, 20, i) for i, part in enumerate(Part.all())})
    trained = fit(data)
    found = finite(trained, data)
    assert found.laws[0].local
    assert "comes back from" not in warnings_of(trained)
    panel = data.panels[TEST]
    n, by_size = panel.n_subjects, panel.outcomes.mean(axis=(1, 2)).argsort()
    plans = np.eye(4, dtype=np.uint8)[[[0, 0], [1, 1]]].repeat(n, axis=0)
    queries = Queries(np.tile(by_size, 2).astype(np.int32), np.full(2 * n, 18, np.int16), plans)
    without_N, with_N = found.rollout(panel, queries)[0, :, 0, 0].reshape(2, n)
    for some in (slice(n // 2), slice(n // 2, None)):
        assert with_N[some].sum() / without_N[some].sum() == pytest.approx(4 / 3, abs=0.2)
    sd_N = found.predict_distribution(panel, queries).sd[0, :n, 0, 0]
    assert sd_N[-3:].mean() > 5 * sd_N[:3].mean()


def test_a_single_zero_at_the_end_is_learned_around():
    def extinct(panel: Panel) -> Panel:
        outcomes = panel.outcomes.copy()
        outcomes[0, 8:] = 0
        return replace(panel, outcomes=outcomes)

    data = changed(world(n=60, steps=12), extinct)
    trained = fit(data, iterations=20)
    assert finite(trained, data).laws[0].relative
    assert "zeros" not in warnings_of(trained)


def test_a_treatment_that_nobody_was_given_has_no_effect_on_average_and_a_wide_band():
    def never(panel: Panel) -> Panel:
        dose = panel.treatments @ dose_table(SCHEMA.treatments)
        return replace(panel, treatments=np.eye(4, dtype=np.float32)[dose[..., 0].astype(int)])

    data = changed(world(n=60, steps=12), never)
    trained = fit(data)
    assert "no training subject was given 'ray'" in warnings_of(trained)
    found, panel = finite(trained, data), data.panels[TEST]
    plans = np.zeros((2, 1, 4), np.uint8)
    plans[0, 0, 0] = plans[1, 0, 2] = 1  # nothing, or the unknown treatment
    predicted = found.predict_distribution(panel, Queries(np.zeros(2, np.int32), np.array([6, 6], np.int16), plans))
    nothing, unknown = predicted.sd[0, :, 0, 0]
    assert predicted.mean[0, 0] == pytest.approx(predicted.mean[0, 1], rel=1e-3)
    assert unknown > 2 * nothing


def test_treatments_that_are_always_given_together_share_their_effect_and_one_alone_has_a_wide_band():
    data = world(n=60, steps=12, together=True)
    trained = fit(data)
    assert "'drug', 'ray' were always given together before an observed step" in warnings_of(trained)
    found, panel = finite(trained, data), data.panels[TEST]
    rows, plans = np.arange(panel.n_subjects, dtype=np.int32).repeat(4), np.eye(4, dtype=np.uint8)[:, None]
    asked_of_all = Queries(rows, np.full(len(rows), 6, np.int16), np.tile(plans, (panel.n_subjects, 1, 1)))
    predicted = found.predict_distribution(panel, asked_of_all)
    mean_N4, sd_N4 = (values[0, :, 0, 0].reshape(-1, 4) for values in (predicted.mean, predicted.sd))
    nothing, drug, ray, both = mean_N4.T
    assert np.mean(drug / ray) == pytest.approx(1, abs=0.05)
    np.testing.assert_allclose(drug + ray - nothing, both, rtol=0.01)  # what is known is their sum
    assert (sd_N4[:, 1:3] > 1.5 * sd_N4[:, [0, 3]].max(axis=1, keepdims=True)).all()
    assert (sd_N4[:, 1:3] < mean_N4[:, :1]).all()


def test_subjects_of_one_step_are_no_hindrance_in_training_or_answers():
    def short(panel: Panel) -> Panel:
        length = np.where(np.arange(panel.n_subjects) % 3 == 0, 1, panel.length)
        there = (np.arange(panel.n_steps) < length[:, None])[..., None]
        return replace(panel, length=length, outcomes=panel.outcomes * there, treatments=panel.treatments * there)

    data = changed(world(n=60, steps=12), short)
    found, panel = finite(fit(data), data), data.panels[TEST]
    start = Queries(np.zeros(1, np.int32), np.zeros(1, np.int16), np.eye(4, dtype=np.uint8)[None, :2])
    predicted = found.predict_distribution(panel, start)
    later = found.predict_distribution(
        panel, replace(start, subject=np.ones(1, np.int32), origin=np.array([9], np.int16))
    )
    share = [p.sd_parameter[0, 0, 0, 0] / p.mean[0, 0, 0, 0] for p in (predicted, later)]
    assert share[0] > 1.5 * share[1]  # nothing is known of a subject without a step


def test_few_subjects_are_said_to_leave_the_spread_a_guess():
    data = world(n=60, steps=12)
    data = replace(data, panels={**data.panels, TRAIN: data.panels[TRAIN].take(np.arange(3))})
    trained = fit(data)
    assert "only 3 subjects have two or more steps of 'size'" in warnings_of(trained)
    finite(trained, data)
    alone = replace(data, panels={**data.panels, TRAIN: data.panels[TRAIN].take(np.arange(1))})
    assert "only 1 subject has two or more steps of 'size'" in warnings_of(fit(alone))


def test_a_likelihood_that_does_not_converge_says_so():
    trained = fit(world(n=60, steps=12), iterations=2)
    assert "the likelihood of 'size' did not converge in 2 iterations" in warnings_of(trained)
    assert trained.meta["converged"] == [False]


def test_negative_outcomes_many_treatments_and_two_carry_overs_are_answered():
    data = random_dataset((2, 7, 2, 1), one_hot=False, horizon=3, n=50)
    data = changed(data, lambda p: replace(p, outcomes=-p.outcomes))
    found = finite(fit(data, carry_overs=2, iterations=40), data)
    assert found.effects[0].n_random == 2 + 14
    assert np.count_nonzero(found.effects[0].spread) == 16  # so many effects are independent of each other
