"""The mixed-effects growth model: its likelihood, what it recovers, its bands, and its laws."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from costar_cli.data import Panel, Part, Queries, Scaler, TreatmentEncoding, Variable
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.methods.mixed import likelihood
from costar_cli.methods.mixed.effects import Effects
from costar_cli.methods.mixed.law import Basis, Design, GrowthTransition, Series, carried
from costar_cli.methods.mixed.likelihood import (
    _exposures,
    _Loss,
    _summed,
    _trimmed,
    log_likelihood,
    maximise,
    start_values,
    usual_effect,
)
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.methods.shared.doses import dose_names, dose_table
from costar_cli.reporting import NullReporter
from tests.methods.linear_worlds import answer, linear_data
from tests.methods.mixed_worlds import (
    DECAY,
    MEANS,
    NOISE,
    SCHEMA,
    SPREAD,
    TEST,
    TRAIN,
    asked,
    changed,
    fit,
    fitted,
    grown,
    model,
    world,
)


def test_the_marginal_likelihood_is_the_density_of_all_responses_of_a_subject():
    """Effects integrated out, the responses of a subject are jointly normal."""
    panel = grown(6, 8, relative=True, seed=3)
    series = Series.of(
        replace(panel, length=np.array([8, 7, 6, 5, 3, 2])), Scaler.fit(panel, SCHEMA), SCHEMA.treatments
    )
    law = GrowthTransition.of(series, 0, relative=True, basis="both", linked=False)
    design = law.design(series, np.zeros(1), np.ones(1))
    effects = replace(start_values(design, carry_overs=2, hidden=3), decay=np.array([[0.4, 0.7], [0.8, 0.95]]))
    expected, phi_NTP = 0.0, design.columns(effects.decay)
    for phi_TP, response_T, counted_T, v_V in zip(
        phi_NTP, design.response_NT, design.counted_NT > 0, design.v_NV, strict=True
    ):
        chosen_MP = phi_TP[counted_T]
        spread_MZ = chosen_MP[:, : effects.n_random] @ effects.spread
        covariance = spread_MZ @ spread_MZ.T + effects.noise**2 * np.eye(len(chosen_MP))
        mean = chosen_MP @ effects.means(v_V[None])[0]
        expected += multivariate_normal(mean, covariance).logpdf(response_T[counted_T])
    expected -= design.log_scale_NT.sum()
    assert log_likelihood(design, effects) == pytest.approx(expected, rel=1e-9)


def any_design(kind: str = "even", **how: Any) -> Design:
    """Transitions of seven subjects, the last of them without any, that two doses, a link and two statics act on."""
    rng, n, steps = np.random.default_rng(0), 7, 6
    if "gaps" in kind:
        how = {"gap_NT": rng.uniform(0.3, 4, size=(n, steps)), "reversion": 0.9, **how}
    counted_NT = (np.arange(steps) < np.arange(n, 0, -1)[:, None] - 1).astype(float)
    response_NT = rng.normal(size=(n, steps))
    if "logit" in kind:
        how, response_NT = {"logit": True, **how}, (response_NT > 0).astype(float)
    level_NTB = np.stack([np.ones((n, steps)), rng.normal(size=(n, steps))], axis=-1)
    others = rng.normal(size=(n, steps, 1)), rng.random((n, steps, 2)), rng.normal(size=(n, 2))
    return replace(Design(level_NTB, *others, response_NT * counted_NT, counted_NT, np.zeros((n, steps))), **how)


@pytest.mark.parametrize("kind", ["even", "gaps", "logit", "logit, gaps"])
def test_slopes_of_the_likelihood_are_its_derivatives(kind: str):
    rng, design = np.random.default_rng(1), any_design(kind)
    shapes = {"mean": (7,), "hidden": (3, 2), "bias": (3,), "output": (6, 3), "spread": (6, 6)}
    effects = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    effects |= {"decay": rng.uniform(0.2, 0.8, size=(2, 2)), "variance": np.array(0.7)}
    parts = [_trimmed(design.take(rows)) for rows in (slice(0, 3), slice(3, 7))]
    _, slopes = _summed(parts, effects)
    for name, value in effects.items():
        for place in np.ndindex(value.shape):
            near = [value.copy(), value.copy()]
            step = 1e-5 * (value[place] if name == "decay" else 1)  # slopes are by logarithms of decays
            near[0][place], near[1][place] = value[place] + step, value[place] - step
            above, below = (_summed(parts, effects | {name: moved})[0] for moved in near)
            # nodes of a quadrature stand still where slopes are taken
            assert slopes[name][place] == pytest.approx(
                (above - below) / 2e-5, rel=1e-5, abs=2e-3 if design.logit else 1e-6
            )


def test_a_decay_next_to_the_reversion_changes_what_is_left_of_doses_alone():
    design = any_design(gap_NT=np.full((7, 6), 2.0), reversion=0.5)
    at, ahead = (_exposures(design, np.array([[0.5, decay]])) for decay in (0.5, 0.5 + 5e-8))
    np.testing.assert_allclose(ahead[0] - at[0], 1e-7 * at[1] * [0, 1], rtol=1e-2, atol=1e-12)


def random_start(design: Design) -> Effects:
    start = start_values(design, carry_overs=1, hidden=2)
    rng = np.random.default_rng(1)
    return replace(start, output=0.1 * rng.normal(size=start.output.shape))


@pytest.mark.parametrize("kind", ["full", "tied", "gaps", "diagonal", "first"])
def test_the_slope_of_the_loss_is_its_derivative(kind: str):
    rng, design = np.random.default_rng(2), any_design("logit" if kind == "first" else kind)
    if kind == "diagonal":
        design = replace(design, dose_NTL=rng.random((7, 6, 11)))
    start = random_start(design)
    loss = _Loss.of(design, start, [(0, 1)] if kind == "tied" else ())
    assert loss.space.spreading == (kind if kind in {"diagonal", "first"} else "full")
    vector = loss.space.pack(start) + 0.05 * rng.normal(size=len(loss.prior))
    _, slope = loss(vector)
    for place, step in enumerate(1e-6 * np.eye(len(vector))):
        derivative = (loss(vector + step)[0] - loss(vector - step)[0]) / 2e-6
        assert slope[place] == pytest.approx(derivative, rel=1e-4, abs=1e-3 if design.logit else 1e-5)


def test_a_step_that_leaves_nothing_of_the_precision_costs_much_and_is_no_end():
    design = any_design()
    loss = _Loss.of(design, start := random_start(design), ())
    begin = loss.space.pack(start)
    (first, _), n_decay = loss(begin), start.decay.size
    at = {name: loss.space.fill(**{name: 1.0}) > 0 for name in ("decay", "variance", "spread")}
    assert at["decay"].sum() == n_decay
    for name, far in (("decay", -800.0), ("decay", 800.0), ("variance", 400.0), ("spread", 1e200)):
        value, slope = loss(np.where(at[name], far, begin))
        assert np.isfinite(value)
        assert np.isfinite(slope).all()
    assert loss(np.where(at["variance"], 400.0, begin))[0] > first + 100


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "amounts"])
def test_the_law_and_its_parameters_are_recovered(relative):
    found = model(relative=relative)
    (law,), (effects,) = found.laws, found.effects
    assert law.relative == relative
    assert law.basis == ("log" if relative else "raw")
    unit = 1.0 if relative else 1 / law.sd
    assert effects.noise == pytest.approx(NOISE * unit, rel=0.05)
    assert effects.decay[0] == pytest.approx([DECAY, 0.0], abs=0.05)
    drug, ray = effects.mean[2:]
    assert [drug, ray] == pytest.approx([MEANS["drug"] * unit, MEANS["ray"] * unit], rel=0.15)
    sd_Z = np.sqrt(np.diag(effects.spread @ effects.spread.T))
    assert sd_Z[2:] == pytest.approx([SPREAD * unit] * 2, rel=0.25)
    assert found.record.facts["converged"] == [True]


def test_the_basis_is_chosen_by_the_likelihood_and_the_tumours_law_is_found():
    settings = {"train": 150, "val": 10, "test": 10, "target_train": 5, "target_val": 5, "target_test": 5, "steps": 40}
    dataset = simulate_tumor(TumorConfig(gamma=10.0, seed=3, **settings), NullReporter())
    found = fitted(dataset)
    (law,), (effects,) = found.laws, found.effects
    assert (law.relative, law.basis) == (True, "log")
    names = dose_names(dataset.schema.treatments)
    assert effects.decay[0, names.index("chemotherapy")] == pytest.approx(0.5, abs=0.03)  # spec TUMOR-4
    assert effects.decay[0, names.index("radiotherapy")] == pytest.approx(0, abs=0.03)
    assert effects.noise == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "amounts"])
def test_bands_equal_draws_of_effects_and_noise(relative):
    found, panel = model(relative=relative), world(relative=relative).panels[TEST]
    assert found.has_distribution
    queries = asked(panel, 5, seed=1, origin=12)
    predicted = found.predict_distribution(panel, queries)
    np.testing.assert_array_equal(predicted.mean, found.rollout(panel, queries))
    for noisy, expected in ((False, predicted.sd_parameter), (True, predicted.sd)):
        drawn = draws(found, panel, queries, noisy=noisy)
        np.testing.assert_allclose(drawn.std(axis=0), expected[0, ..., 0], rtol=0.06)
        np.testing.assert_allclose(drawn.mean(axis=0), predicted.mean[0, ..., 0], rtol=0.02, atol=0.01)


def draws(found: MixedModel, panel: Panel, queries: Queries, *, noisy: bool, n: int = 4_000) -> np.ndarray:
    """Outcomes `[n,Q,H]` of the one outcome, step by step, of effects drawn from their posterior."""
    rng = np.random.default_rng(0)
    (law,), (effects,) = found.laws, found.effects
    ((mean_QP, covariance_QZZ),) = found.posterior(panel, queries.subject, queries.origin)
    table, result = dose_table(found.schema.treatments), np.empty((n, len(queries), queries.horizon))
    for q in range(len(queries)):
        effects_nP = rng.multivariate_normal(mean_QP[q], covariance_QZZ[q], size=n)
        origin = int(queries.origin[q])
        past_TL = panel.treatments[queries.subject[q], :origin].astype(float) @ table
        y_n = np.full(n, float(panel.outcomes[queries.subject[q], origin, 0]))
        doses_TL = np.concatenate([past_TL, queries.plan[q] @ table])
        exposure_TJ = carried(doses_TL[None], effects.decay)[0]
        for h in range(queries.horizon):
            phi = [np.ones(n), *law.level(y_n, y_n), *(np.full(n, e) for e in exposure_TJ[origin + h])]
            growth_n = sum(column * effect for column, effect in zip(phi, effects_nP.T, strict=True))
            growth_n = growth_n + (effects.noise * rng.normal(size=n) if noisy else 0)
            y_n = y_n + law.scale(y_n, y_n) * growth_n
            result[:, q, h] = y_n
    return result


def test_bands_of_a_linear_system_with_covariates_equal_draws():
    data = linear_data(train=300, steps=12, horizon=4)
    found, panel = fitted(data), data.panels[TEST]
    assert found.laws[0].linked
    queries = Queries(np.arange(5, dtype=np.int32), np.full(5, 5, np.int16), np.ones((5, 4, 1), np.uint8))
    predicted = found.predict_distribution(panel, queries)
    law = data.truth  # the simulator's own noise: outcomes and covariates of sd 0.5 a step
    assert law is not None
    weights, transition, noise = np.array([0.8, 0.4]), np.array([[0.7, 0.2], [-0.1, 0.6]]), 0.5
    step = np.zeros((3, 3))
    step[:2, :2], step[2, :2], step[2, 2] = transition, weights, 0.5
    covariance, expected = np.zeros((3, 3)), []
    for _ in range(4):
        covariance = step @ covariance @ step.T + noise**2 * np.eye(3)
        expected.append(covariance[2, 2] ** 0.5)
    np.testing.assert_allclose(predicted.sd_noise[0, 0, :, 0], expected, rtol=0.06)


def test_covariates_that_mediate_are_forecast():
    """Holding them, or leaving them out, would miss what earlier treatment does through them."""
    data = linear_data(gamma=1.0, train=600, steps=12, horizon=4)
    panel, found = data.panels[Part("source", "val")], fitted(data)
    effect = answer(found, panel, origin=5, plan=[1] * 4) - answer(found, panel, origin=5, plan=[0] * 4)
    from simulators.linear_gaussian import LinearGaussian

    assert effect == pytest.approx(LinearGaussian().total_effect(4), rel=0.08)
    assert not fitted(data, covariates="none").laws[0].linked


def test_what_covers_90_percent_does_so_under_plans_that_nobody_followed():
    data = world()
    panel, found = grown(400, 30, relative=True, seed=77), model()
    queries = Queries(
        np.arange(400, dtype=np.int32), np.full(400, 20, np.int16), panel.treatments[:, 20:24].astype(np.uint8)
    )
    predicted = found.predict_distribution(panel, queries)
    away = np.abs(panel.outcomes[:, 21:25] - predicted.mean[0]) / predicted.sd[0]
    assert (away < 1.645).mean(axis=(0, 2)) == pytest.approx([0.9] * 4, abs=0.05)
    assert data.horizon == 4


def test_the_order_of_subjects_does_not_matter():
    data = world(n=60, steps=15)
    turned = replace(data, panels={**data.panels, TRAIN: data.panels[TRAIN].take(np.arange(60)[::-1])})
    panel, found = data.panels[TEST], [fitted(dataset) for dataset in (data, turned)]
    first, second = (one.rollout(panel, asked(panel, 40)) for one in found)
    np.testing.assert_allclose(first, second, rtol=2e-3)


def test_missing_outcomes_are_skipped_and_the_law_is_still_found():
    rng = np.random.default_rng(0)

    def holed(panel: Panel) -> Panel:
        seen = rng.random(panel.outcomes.shape) < 0.8
        return replace(panel, outcomes=np.where(seen, panel.outcomes, 99).astype(np.float32), outcome_observed=seen)

    found = fitted(changed(world(), holed))
    assert found.effects[0].decay[0] == pytest.approx([DECAY, 0.0], abs=0.05)
    assert found.effects[0].noise == pytest.approx(NOISE, rel=0.1)
    assert found.laws[0].high < 99


def test_few_shot_refits_both_domains_from_the_sources_solution():
    data = world()
    source = model()
    target = {part: panel for part, panel in world(n=60).panels.items() if part.domain == "target"}
    both = replace(data, panels={**data.panels, **target})
    few, fresh = (fit(both, start=start, domain="target") for start in (source, None))
    assert few.meta["laws"] == fresh.meta["laws"] == source.record.facts["laws"]
    if not few.meta["kept_source_members"]:
        np.testing.assert_allclose(few.meta["log_likelihood"], fresh.meta["log_likelihood"], rtol=1e-5)


def test_predictions_stay_within_what_source_train_showed():
    found, panel = model(), world().panels[TEST]
    high = found.laws[0].high
    queries = asked(panel, 50, seed=4)
    near = replace(panel, outcomes=np.full_like(panel.outcomes, high * 0.999))
    assert found.rollout(near, queries).max() <= high * (1 + 1e-6)
    beyond = replace(panel, outcomes=np.full_like(panel.outcomes, high * 2))
    assert found.rollout(beyond, queries).max() <= 2 * high * (1 + 1e-6)
    gone = replace(panel, outcomes=np.zeros_like(panel.outcomes))
    assert np.abs(found.rollout(gone, queries)).max() < 1e-6


def test_statics_beyond_those_learnt_from_say_no_more_than_the_last_one_there():
    rng = np.random.default_rng(0)

    def aged(panel: Panel) -> Panel:
        return replace(panel, statics=rng.uniform(20, 50, size=(panel.n_subjects, 1)).astype(np.float32))

    schema = SCHEMA.model_copy(update={"statics": (Variable(name="age", unit="years"),)})
    found = fitted(replace(changed(world(n=60, steps=12), aged), schema=schema))
    panel = aged(world(n=60, steps=12).panels[TEST])
    start = Queries(
        np.arange(20, dtype=np.int32), np.zeros(20, np.int16), np.eye(4, dtype=np.uint8)[None, :4].repeat(20, 0)
    )
    oldest, older = (found.rollout(replace(panel, statics=np.full_like(panel.statics, age)), start) for age in (50, 90))
    youngest = found.rollout(replace(panel, statics=np.full_like(panel.statics, 20)), start)
    np.testing.assert_allclose(older, oldest, rtol=0.01)
    assert np.abs(youngest - oldest).max() > 0


def test_factors_are_decoded_whether_treatments_are_classes_or_binary():
    classes = SCHEMA.treatments
    assert dose_table(classes).tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]
    binary = TreatmentEncoding(mode="multilabel", names=classes.names, levels=classes.levels)
    assert dose_table(binary).tolist() == [[1, 0], [0, 1]]
    price = TreatmentEncoding(
        mode="multiclass", names=("price",), levels=(("usual", "low", "high"),), classes=((0,), (1,), (2,))
    )
    assert dose_names(price) == ["price=low", "price=high"]
    assert dose_table(price).tolist() == [[0, 0], [1, 0], [0, 1]]


def test_what_was_learnt_is_told_in_words_and_units():
    rows = {row["what"]: row for row in model().record.learnt or ()}
    drug, ray = rows["drug, in the first day"], rows["ray, in the first day"]
    assert drug["typical"].startswith("-1")
    assert drug["typical"].endswith(" %")
    assert drug["carry_over"] == "half-life 1.4 days"
    assert ray["carry_over"] == "none"
    low, high = (float(end.removesuffix(" %")) for end in drug["subjects"].split(" to "))
    assert high - low == pytest.approx(100 * 2 * 1.645 * SPREAD, rel=0.3)
    assert rows["chance per day"]["typical"].startswith("sd 2")


@pytest.mark.parametrize(
    ("basis", "relative", "local"),
    [
        *((basis, relative, False) for basis in ("log", "raw", "both") for relative in (True, False)),
        ("raw", False, True),
    ],
)
def test_slopes_are_derivatives_of_levels(basis: Basis, relative, local):
    law = GrowthTransition(0, relative, basis, linked=False, mean=3.0, sd=2.0, low=0.0, high=9.0, local=local)
    y, usual, small = np.array([0.5, 2.0, 7.0]), np.array([1.0, 4.0, 0.2]), 1e-6
    levels = law.level(y + small, usual), law.level(y - small, usual)
    for slope, above, below in zip(law.slope(y, usual), *levels, strict=True):
        np.testing.assert_allclose(slope, (above - below) / (2 * small), rtol=1e-6)


def test_the_optimiser_ends_higher_than_it_starts():
    panel = grown(40, 12, relative=True, seed=5)
    series = Series.of(panel, Scaler.fit(panel, SCHEMA), SCHEMA.treatments)
    design = GrowthTransition.of(series, 0, relative=True, basis="log", linked=False).design(
        series, np.zeros(1), np.ones(1)
    )
    start = start_values(design, carry_overs=1, hidden=4)
    assert maximise(design, start, iterations=200).log_likelihood > log_likelihood(design, start) + 10


def test_very_many_subjects_are_added_up_in_parts_to_the_same_effects(monkeypatch: pytest.MonkeyPatch):
    panel = grown(60, 12, relative=True, seed=5)
    series = Series.of(panel, Scaler.fit(panel, SCHEMA), SCHEMA.treatments)
    design = GrowthTransition.of(series, 0, relative=True, basis="log", linked=False).design(
        series, np.zeros(1), np.ones(1)
    )
    start = start_values(design, carry_overs=1, hidden=0)
    whole, before = maximise(design, start, iterations=150), log_likelihood(design, start)
    sizes = {"MANY": 50, "AT_ONCE": 7, "FIRST": 20}
    for name, size in sizes.items():
        monkeypatch.setattr(likelihood, name, size)
    assert log_likelihood(design, start) == pytest.approx(before, rel=1e-12)
    found = maximise(design, start, iterations=150)
    assert found.log_likelihood == pytest.approx(whole.log_likelihood, abs=0.01)
    np.testing.assert_allclose(found.mean, whole.mean, atol=5e-3)


def doses_at_random(effects_L: np.ndarray, *, often: int) -> Design:
    """Amounts of unit noise after at most one of many doses, each given so often, in 20 series."""
    rng, doses = np.random.default_rng(0), len(effects_L)
    dose_ML = np.zeros((20 * (doses * often // 10), doses))
    dose_ML[rng.permutation(len(dose_ML))[: doses * often], np.tile(np.arange(doses), often)] = 1
    response_NT = (dose_ML @ effects_L + rng.normal(size=len(dose_ML))).reshape(20, -1)
    ones_NT, none = np.ones_like(response_NT), np.zeros((*response_NT.shape, 0))
    dose_NTL = dose_ML.reshape(*response_NT.shape, doses)
    return Design(ones_NT[..., None], none, dose_NTL, np.zeros((20, 0)), response_NT, ones_NT, np.zeros_like(ones_NT))


def test_the_usual_effect_is_the_sd_of_the_effects_of_doses():
    effects_L = np.random.default_rng(1).normal(scale=0.5, size=80)
    design = doses_at_random(effects_L, often=10)
    assert usual_effect(design, np.full((1, 80), 1e-6)) == pytest.approx(np.sqrt(np.mean(effects_L**2)), rel=0.2)


def test_rare_doses_have_effects_of_the_usual_size_and_common_ones_those_of_their_data():
    def effects(design: Design) -> tuple[np.ndarray, np.ndarray]:
        start = start_values(design, carry_overs=1, hidden=1)
        return start.mean[1:], maximise(design, start, iterations=100).means(np.zeros((1, 0)))[0, 1:]

    by_chance, found = effects(doses_at_random(np.zeros(20), often=2))
    assert np.linalg.norm(found) < 0.4 * np.linalg.norm(by_chance)
    _, found = effects(doses_at_random(np.full(2, 1.5), often=400))
    assert found == pytest.approx(1.5, abs=0.15)
