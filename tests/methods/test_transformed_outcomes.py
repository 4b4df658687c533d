"""Outcomes that models learn as logarithms or differences, and answer in the units of the data (spec PANEL-18)."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from costar_cli import fit, pretrain
from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, PanelSchema, Part, Queries, TreatmentEncoding, Variable, as_plans
from costar_cli.data.queries import rolling_origin
from costar_cli.data.transforms import OutcomeTransforms
from costar_cli.errors import DataError, MismatchError
from costar_cli.files import read_artifact, write_artifact
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel, PredictiveDistribution
from costar_cli.methods.shared.transformed import TransformedModel, on_transforms
from costar_cli.methods.stack.settings import StackConfig
from costar_cli.questions.averages import kind_of
from tests.codes import said
from tests.fits import fit_method, model_of

EFFECT = 0.5  # of a promotion on the logarithm of the next step's sales
TRAIN, VAL, TEST = (Part("source", split) for split in ("train", "val", "test"))
KINDS = ("log", "log1p", "difference")


def schema(kind: str | None) -> PanelSchema:
    return PanelSchema(
        outcomes=(Variable(name="sales", unit="EUR", transform=kind),),
        treatments=TreatmentEncoding(mode="multilabel", names=("promotion",), levels=(("off", "on"),)),
    )


def sales(n: int, seed: int, first_id: int, plan_H: list[int] | None = None, steps: int = 12) -> Panel:
    """Sales that a promotion multiplies, of shops of very different size; with a plan, its means from step 8 on."""
    rng = np.random.default_rng(seed)
    base_N, promoted_NT = rng.normal(4, 1, n), (rng.random((n, steps)) < 0.4).astype(float)
    if plan_H is not None:
        promoted_NT[:, 7 : 7 + len(plan_H)] = plan_H
    state_N, log_NT = np.zeros(n), np.empty((n, steps))
    for t in range(steps):
        state_N = 0.5 * state_N + rng.normal(0, 0.2, n)
        log_NT[:, t] = base_N + state_N + (EFFECT * promoted_NT[:, t - 1] if t else 0)
    return Panel(
        covariates=np.zeros((n, steps, 0), np.float32),
        treatments=promoted_NT[..., None].astype(np.float32),
        outcomes=np.exp(log_NT)[..., None].astype(np.float32),
        statics=np.zeros((n, 0), np.float32),
        length=np.full(n, steps),
        subject_id=np.arange(first_id, first_id + n),
    )


@cache
def world(kind: str | None) -> Dataset:
    panels = {TRAIN: sales(80, 1, 0), VAL: sales(20, 2, 1_000), TEST: sales(40, 3, 2_000)}
    return Dataset(name="sales", schema=schema(kind), horizon=3, panels=panels)


@cache
def model(method: str, kind: str | None, **settings: Any) -> FittedModel:
    own = METHODS[method].settings_class
    config = FinetuneConfig(epochs=1)
    return model_of(fit_method(world(kind), method, own(**settings) if own else None, config))


def asked(panel: Panel, plan_H: list[int], origin: int = 7) -> Queries:
    n = panel.n_subjects
    plan_QHA = np.tile(np.array(plan_H, dtype=np.uint8)[None, :, None], (n, 1, 1))
    return Queries(np.arange(n, dtype=np.int32), np.full(n, origin, np.int16), as_plans(plan_QHA))


POSITIVE = st.floats(0.0625, 1e4, width=32)


@given(st.sampled_from(KINDS), arrays(np.float32, (3, 7, 1), elements=POSITIVE), st.integers(0, 5))
def test_a_transform_that_is_undone_from_any_origin_gives_the_series(kind: str, outcomes: np.ndarray, origin: int):
    panel = replace(sales(3, 0, 0, steps=7), outcomes=outcomes)
    transforms = OutcomeTransforms.fit(panel, schema(kind))
    assert transforms is not None
    learned = transforms.panel(panel).outcomes.astype(np.float64)
    undone = transforms.undo(learned[:, origin + 1 :], outcomes[:, origin])
    np.testing.assert_allclose(undone, outcomes[:, origin + 1 :], rtol=2e-4, atol=0.02)
    level = outcomes[:, origin].astype(np.float64)
    for h, step in enumerate(range(origin, 7)):
        level = transforms.undo_step(learned[:, step], level, first=h == 0)
        np.testing.assert_allclose(level, outcomes[:, step], rtol=2e-4, atol=0.02)


@given(st.sampled_from(KINDS), st.integers(1, 6))
def test_what_comes_later_or_is_padding_changes_no_transformed_step(kind: str, known: int):
    panel = sales(3, 0, 0, steps=7)
    transforms = OutcomeTransforms.fit(panel, schema(kind))
    assert transforms is not None
    short = replace(panel, length=np.full(3, known), outcomes=panel.outcomes * (np.arange(7) < known)[:, None])
    whole, cut = transforms.panel(panel), transforms.panel(short)
    np.testing.assert_array_equal(whole.outcomes[:, :known], cut.outcomes[:, :known])
    assert not cut.outcomes[:, known:].any()
    assert cut.observed_outcomes[:, :known].all() == (kind != "difference")


def test_a_difference_was_observed_where_both_of_its_steps_were():
    panel, seen = sales(2, 0, 0, steps=5), np.ones((2, 5, 1), dtype=bool)
    seen[0, 2] = False
    transforms = OutcomeTransforms.fit(panel, schema("difference"))
    assert transforms is not None
    learned = transforms.panel(replace(panel, outcome_observed=seen)).observed_outcomes[..., 0]
    assert learned.tolist() == [[False, True, False, False, True], [False, True, True, True, True]]


@pytest.mark.parametrize("sd", [0.0, -1.0, np.nan])
def test_a_file_whose_transform_has_no_positive_sd_is_damaged(sd: float):
    arrays = OutcomeTransforms(schema("log"), np.array([1.0]), np.array([[0.0], [sd]])).to_arrays()
    with pytest.raises(ValueError, match="the transform of outcomes"):
        OutcomeTransforms.of_arrays(arrays, schema("log"))


def test_moments_of_logarithms_are_those_of_drawn_outcomes():
    transforms = OutcomeTransforms(schema("log1p"), np.array([1.0]), np.array([[0.0], [1.0]]))
    mean, parameter, noise = (np.full((1, 1, 1, 1), value) for value in (0.5, 0.3, 0.4))
    made = transforms.undo_sums(mean, parameter, noise, np.zeros((1, 1)))
    normal = np.random.default_rng(0).normal(0.5, 0.5, (200_000, 1, 1, 1))
    drawn = transforms.undo(normal, np.zeros((1, 1)))
    assert made[0].item() == pytest.approx(drawn.mean(), rel=0.01)
    assert np.hypot(made[1], made[2]).item() == pytest.approx(drawn.std(), rel=0.02)
    assert (made[2] / made[1]).item() == pytest.approx(4 / 3)


@pytest.mark.parametrize("method", ["ridge", "mixed"])
def test_where_effects_multiply_logarithms_predict_better(method: str):
    def rmse(kind: str | None) -> float:
        panel = world(kind).panels[TEST]
        queries = rolling_origin(panel, 3)
        assert queries is not None
        assert queries.outcomes is not None
        error = model(method, kind).rollout(panel, queries).mean(axis=0) - queries.outcomes
        return float(np.sqrt((error**2).mean()))

    assert rmse("log") < 0.95 * rmse(None)


def test_the_effect_of_a_treatment_is_the_known_factor_for_large_and_small_shops():
    panel = world("log").panels[TEST]
    with_, without = (model("mixed", "log").rollout(panel, asked(panel, plan))[0, :, 0, 0] for plan in ([1], [0]))
    assert np.log(with_ / without).mean() == pytest.approx(EFFECT, abs=0.05)
    assert np.log(with_ / without).std() < 0.05


def test_where_a_model_draws_its_estimate_is_the_mean_and_otherwise_the_median():
    """The truth is simulated: shops of the same history and plan, many times over."""
    panel, mixed = world("log").panels[TEST], model("mixed", "log")
    drawn = mixed.draw_outcomes(panel, asked(panel, [1, 0]), 2_000, 0)
    estimate = mixed.rollout(panel, asked(panel, [1, 0]))[0]
    np.testing.assert_allclose(drawn.mean(axis=0), estimate, rtol=0.04)
    assert (np.median(drawn, axis=0) < estimate).mean() > 0.9
    assert on_transforms(mixed)[0].text.endswith("estimates are means")
    assert kind_of(mixed) == kind_of(model("mixed", None))  # draws of both have what training leaves open
    assert "estimates are medians" in said(on_transforms(model("ridge", "log")), "learned-transformed")
    assert not on_transforms(model("ridge", None))


@pytest.mark.parametrize("kind", KINDS)
def test_a_models_moments_are_those_of_its_draws(kind: str):
    panel, mixed = world(kind).panels[TEST], model("mixed", kind)
    assert mixed.has_distribution
    assert mixed.draws_courses
    queries = asked(panel, [1, 0, 1])
    drawn, said = mixed.draw_outcomes(panel, queries, 3_000, 1), mixed.predict_distribution(panel, queries)
    assert isinstance(said, PredictiveDistribution)
    np.testing.assert_allclose(said.mean, mixed.rollout(panel, queries), rtol=1e-5)
    ratio = drawn.std(axis=0) / said.sd[0]
    assert np.abs(np.median(ratio, axis=0) - 1).max() < 0.15


def test_a_plan_is_drawn_alike_as_a_rule_that_reads_outcomes_in_their_unit():
    for kind in KINDS:
        panel, mixed = world(kind).panels[TEST], model("mixed", kind)
        queries, told = asked(panel, [1, 0, 1]), []

        def decide(h: int, outcomes: np.ndarray, told: list = told, queries: Queries = queries) -> np.ndarray:
            told.append(outcomes)
            return np.tile(queries.plan[:, h].astype(float), (3, 1))

        drawn = mixed.draw_courses(panel, queries.subject, queries.origin, decide, steps=3, n=3, seed=4)
        np.testing.assert_allclose(drawn, mixed.draw_outcomes(panel, queries, 3, 4), rtol=1e-5)
        np.testing.assert_allclose(told[0].reshape(3, -1)[0], panel.outcomes[:, 7, 0], rtol=1e-5)
        np.testing.assert_allclose(told[2].reshape(3, -1), drawn[:, :, 1, 0], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["ridge", "mixed"])
def test_transformed_models_see_no_future_and_encode_once(method: str, kind: str):
    panel, fitted = world(kind).panels[TEST], model(method, kind)
    queries = asked(panel, [1, 0, 1])
    answer = fitted.rollout(panel, queries)
    later = panel.outcomes.copy()
    later[:, 8:] *= 3
    np.testing.assert_array_equal(fitted.rollout(replace(panel, outcomes=later), queries), answer)
    np.testing.assert_allclose(fitted.answer(fitted.encode(panel), queries), answer, rtol=1e-5)


def test_a_models_file_holds_its_transform(tmp_path: Path):
    trained = fit_method(world("log"), "ridge", None, FinetuneConfig(epochs=1))
    path = tmp_path / "model.h5"
    write_artifact(path, kind="model", arrays=trained.arrays, meta=trained.meta, parents=trained.parents)
    panel = world("log").panels[TEST]
    again = METHODS["ridge"].load(read_artifact(path))
    assert again.schema == world("log").schema
    np.testing.assert_array_equal(
        again.rollout(panel, asked(panel, [1])), model_of(trained).rollout(panel, asked(panel, [1]))
    )


def test_a_stack_combines_parts_in_the_units_of_the_data():
    stack = model_of(
        fit_method(world("log"), "stack", StackConfig(parts="ridge,last-value,mixed"), FinetuneConfig(epochs=1))
    )
    panel = world("log").panels[TEST]
    parts = stack.parts
    assert isinstance(parts["ridge"], TransformedModel)
    assert not isinstance(parts["last-value"], TransformedModel)
    queries = asked(panel, [1, 0, 1])
    answers = np.stack([parts[name].rollout(panel, queries)[0] for name in stack.answering])
    answer = stack.rollout(panel, queries)[0]
    assert (answer >= answers.min(axis=0) - 1e-3).all()
    assert (answer <= answers.max(axis=0) + 1e-3).all()


@pytest.mark.parametrize("method", ["crn", "growth", "costar"])
def test_networks_learn_transformed_outcomes_and_go_on_from_a_transformed_model(method: str):
    torch.manual_seed(0)
    panel = world("log").panels[TEST]
    dataset = replace(world("log"), panels={**world("log").panels, Part("target", "train"): sales(10, 5, 5_000),
                                            Part("target", "val"): sales(5, 6, 6_000)})  # fmt: skip
    config = FinetuneConfig(epochs=1)
    own = METHODS[method].default_settings()
    source = model_of(fit_method(dataset, method, own, config))
    assert isinstance(source, TransformedModel)
    target = model_of(fit_method(dataset, method, own, config, domain="target", start=source))
    for fitted in (source, target):
        answer = fitted.rollout(panel, asked(panel, [1, 0, 1]))
        assert (answer > 0).all()
        ratio = answer[0, :, 0, 0] / panel.outcomes[:, 7, 0]
        assert 0.02 < np.median(ratio) < 50
    assert target.transforms.center_Y == source.transforms.center_Y


def test_an_outcome_without_a_logarithm_is_refused_by_its_place():
    panel = sales(3, 0, 0, steps=5)
    outcomes = panel.outcomes.copy()
    outcomes[1, 3] = 0
    with pytest.raises(DataError, match="outcome 'sales' has 1 value without a log") as caught:
        model("ridge", "log").rollout(replace(panel, outcomes=outcomes), asked(panel, [1], origin=3))
    assert "step 3 of subject 1" in str(caught.value.where)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")  # an epoch is too few
def test_an_encoder_learns_transformed_outcomes_and_a_model_starts_from_it():
    encoder = pretrain(world("log"), preset="quick", epochs=1, members=1)
    assert "transform/center" in encoder.artifact.arrays
    started = fit(world("log"), start=encoder, preset="quick", epochs=1).fitted
    assert isinstance(started, TransformedModel)
    panel = world("log").panels[TEST]
    assert (started.rollout(panel, asked(panel, [1, 0])) > 0).all()


def test_a_model_is_not_adapted_to_outcomes_that_are_transformed_otherwise():
    plain = world(None)
    target = {Part("target", "train"): sales(10, 5, 5_000), Part("target", "val"): sales(5, 6, 6_000)}
    dataset = replace(plain, panels={**plain.panels, **target})
    with pytest.raises(MismatchError, match="incompatible") as caught:
        fit_method(dataset, "ridge", None, FinetuneConfig(epochs=1), domain="target", start=model("ridge", "log"))
    assert any("transform of outcome sales" in line for line in caught.value.details)
