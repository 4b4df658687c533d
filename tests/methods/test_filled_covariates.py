"""Covariates that were filled are part of histories, and nobody learns from them how covariates change."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, Part, Queries, Scaler
from costar_cli.data.panel import join_panels
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.data.table.export import dataset_to_frame
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods import METHODS
from costar_cli.methods.mixed.covariates import fit_covariates
from costar_cli.methods.mixed.law import Series
from costar_cli.methods.mixed.model import MixedModel
from tests.feedback_worlds import LINEAR
from tests.fits import fit_method, model_of
from tests.methods.linear_worlds import random_dataset
from tests.methods.mixed_worlds import fitted
from tests.methods.test_unobserved_outcomes import LEARNING, LEARNT, last_steps, same, train

ROWS, STEPS, SUBJECTS = 4, 3, 1000


def with_last_rows(panel: Panel, fill: float | None = None) -> Panel:
    """End-of-follow-up rows: the outcome alone, the covariate carried forward or filled with a number."""
    last, before = last_steps(panel), np.maximum(panel.length - 2, 0)
    carried = panel.covariates[np.arange(panel.n_subjects), before][:, None]
    covariates = np.where(last, carried if fill is None else np.float32(fill), panel.covariates)
    return replace(panel, covariates=covariates, covariate_observed=panel.observed_covariates & ~last)


def with_holes(panel: Panel) -> Panel:
    """Two in five values are missing, and carried forward; the first becomes 0."""
    seen = np.random.default_rng(0).random(panel.covariates.shape) < 0.6
    covariates = panel.covariates * (seen | (np.arange(panel.n_steps) > 0)[:, None])
    for step in range(1, panel.n_steps):
        covariates[:, step] = np.where(seen[:, step], covariates[:, step], covariates[:, step - 1])
    return replace(panel, covariates=covariates, covariate_observed=seen)


def of_world(change: Callable[[Panel], Panel]) -> Dataset:
    data = LINEAR.dataset(n=1000, rows=ROWS, horizon=STEPS)
    return replace(data, panels={part: change(panel) for part, panel in data.panels.items()})


def forgotten(panel: Panel) -> Panel:
    return replace(panel, covariate_observed=None)


def effect(data: Dataset, method: str) -> float:
    """By how much always treating moves the last outcome against never treating, on average."""
    config = FinetuneConfig(epochs=40, patience=40, members=1)
    model = model_of(fit_method(data, method, METHODS[method].default_settings(), config))
    panel = LINEAR.panel(SUBJECTS, 2, seed=777)
    subject_N, origin_N = np.arange(SUBJECTS, dtype=np.int32), np.ones(SUBJECTS, np.int16)
    always, never = (
        model.rollout(panel, Queries(subject_N, origin_N, np.full((SUBJECTS, STEPS, 1), given, np.uint8)))
        for given in (1, 0)
    )
    return float((always - never)[..., -1, 0].mean())


@cache
def true_effect() -> float:
    return float((LINEAR.mean_under([1] * STEPS, origin=1) - LINEAR.mean_under([0] * STEPS, origin=1))[-1])


@pytest.mark.parametrize("change", [with_last_rows, with_holes])
def test_effects_through_covariates_are_those_of_observed_transitions(change: Callable[[Panel], Panel]) -> None:
    """A carried value does not react to treatment: learned from, it made effects 7 to 10 % too small here."""
    data = of_world(change)
    careless = replace(data, panels={part: forgotten(panel) for part, panel in data.panels.items()})
    assert effect(data, "mixed") == pytest.approx(true_effect(), rel=0.06)
    assert abs(effect(careless, "mixed")) < 0.965 * abs(true_effect())


def test_effects_through_covariates_that_are_all_observed_are_the_true_ones() -> None:
    assert effect(of_world(lambda panel: panel), "mixed") == pytest.approx(true_effect(), rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gnet", "growth"])
def test_networks_that_roll_covariates_out_learn_from_those_observed(method: str) -> None:
    data = of_world(with_holes)
    careless = replace(data, panels={part: forgotten(panel) for part, panel in data.panels.items()})
    found, without = effect(data, method), effect(careless, method)
    assert abs(found - true_effect()) < abs(without - true_effect())


def mixed_world(fill: float) -> Dataset:
    dataset = random_dataset((1, 2, 2, 1), one_hot=False, horizon=3, n=16)
    panels = dict(dataset.panels)
    panels |= {part: with_last_rows(panels[part].take(np.arange(16)), fill) for part in LEARNT}
    return replace(dataset, panels=panels)


@pytest.mark.parametrize("method", LEARNING)
def test_what_covariates_of_a_last_row_were_filled_with_changes_nothing(method: str) -> None:
    """A last row is in no history that is learned from."""
    assert same(train(mixed_world(5.0), method), train(mixed_world(-3.0), method))


def test_covariates_observed_at_different_steps_have_equations_of_their_own() -> None:
    """The first is measured at every step, the second at the first half of them; both follow the same law."""
    rng, n, steps = np.random.default_rng(0), 400, 8
    x_NTX = rng.normal(size=(n, steps, 2))
    for t in range(1, steps):
        x_NTX[:, t] = 0.7 * x_NTX[:, t - 1] + 0.5 * rng.normal(size=(n, 2))
    data = LINEAR.dataset(n=n, rows=steps)
    panel = replace(data.panels[Part("source", "train")], covariates=x_NTX.astype(np.float32))
    seen = np.ones(x_NTX.shape, bool)
    seen[:, steps // 2 :, 1] = False
    panel.covariates[:, steps // 2 :, 1] = panel.covariates[:, [steps // 2 - 1], 1]
    scaler, found = Scaler(*(np.repeat([[0.0], [1.0]], width, axis=1) for width in (2, 1, 0))), []
    for mask in (seen, None):
        series = Series.of(replace(panel, covariate_observed=mask), scaler, data.schema.treatments)
        found.append(fit_covariates(series, series.y_NTY, series.dose_NTL, series))
    own, careless = found
    assert np.diag(own.weight[1:3]) == pytest.approx([-0.3, -0.3], abs=0.05)
    assert abs(careless.weight[2, 1] + 0.3) > 0.1
    assert np.diag(own.residual) == pytest.approx([0.25, 0.25], rel=0.1)
    np.testing.assert_allclose(own.weight[:, 0], careless.weight[:, 0], atol=0.02)


def test_a_covariate_that_was_never_observed_is_no_hindrance() -> None:
    data = LINEAR.dataset(n=60, rows=5, horizon=3)

    def blank(panel: Panel) -> Panel:
        return replace(panel, covariate_observed=np.zeros(panel.covariates.shape, bool))

    model = fitted(replace(data, panels={part: blank(panel) for part, panel in data.panels.items()}))
    assert isinstance(model, MixedModel)
    tensors = PanelTensors.from_panel(blank(data.panels[Part("source", "test")]), model.scaler)
    assert tensors.seen_NTX is not None
    assert not tensors.seen_NTX.any()


def test_panels_files_and_tables_keep_which_covariates_were_observed(tmp_path: Path) -> None:
    data = of_world(with_holes)
    write_dataset(tmp_path / "data.h5", data)
    again = read_dataset(tmp_path / "data.h5")
    panel = data.panels[Part("source", "train")]
    seen = panel.covariate_observed
    assert seen is not None
    assert np.array_equal(again.panels[Part("source", "train")].observed_covariates, seen)
    rows = np.array([3, 1])
    assert np.array_equal(panel.take(rows).observed_covariates, seen[rows])
    assert np.array_equal(panel.until(2).observed_covariates, seen[:, :2])
    both = join_panels([panel.until(2), LINEAR.panel(5, 3, seed=1)])
    assert np.array_equal(both.observed_covariates[: panel.n_subjects, :2], seen[:, :2])
    assert both.observed_covariates[panel.n_subjects :].all()
    table = dataset_to_frame(data).filter(domain="source", split="train")
    carried = ~seen & (seen.cumsum(axis=1) > 0)  # a first value is written: nothing before it stands for it
    assert table["x"].null_count() == carried.sum() > 0


def test_standardisation_is_learned_from_observed_covariates() -> None:
    panel = LINEAR.panel(50, 5, seed=0)
    seen = panel.observed_covariates.copy()
    seen[::2, 1] = False
    mangled = replace(panel, covariates=np.where(seen, panel.covariates, np.float32(1e6)), covariate_observed=seen)
    found = Scaler.fit(mangled, LINEAR.schema).covariates
    known = panel.covariates[:, :-1][seen[:, :-1]].astype(np.float64)
    assert found[:, 0].tolist() == pytest.approx([known.mean(), known.std()])
