"""Outcomes that were not observed are part of histories, and no target of any method."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.config.models import EncoderConfig, FinetuneConfig
from costar_cli.data import Dataset, Panel, Part, Scaler
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods import METHODS
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.methods.recurrent.futures import has_residuals, known_position
from costar_cli.methods.recurrent.settings import GNetConfig
from costar_cli.methods.regression import ridge
from costar_cli.methods.regression.settings import RidgeConfig
from costar_cli.methods.shared.balancing import masked_mean, squared_error, target_weight
from costar_cli.methods.stack.settings import StackConfig
from costar_cli.training import Trained
from tests.methods.invariant_worlds import settings_of
from tests.methods.linear_worlds import fit, model_of, random_dataset, random_queries

LEARNT = (Part("source", "train"), Part("source", "val"))
VARIANTS = {"costar": {}, "costar, taught": {"decoder": "autoregressive"}}
NOT_HERE = ("costar", "chronos", "last-value", "mean", "seasonal-naive")  # under other choices, or nothing is learned
LEARNING = [*(name for name in METHODS if name not in NOT_HERE), *VARIANTS]


@cache
def world(n_covariates: int = 1) -> Dataset:
    """Two outcomes; of some subjects one, of others both were not observed at the last step, and some in between."""
    dataset = random_dataset((n_covariates, 2, 2, 1), one_hot=False, horizon=3, n=16)
    panels = dict(dataset.panels)
    for part in LEARNT:
        panel = panels[part].take(np.arange(16))
        mask = panel.observed_outcomes.copy()
        rows = np.arange(panel.n_subjects)
        mask[rows % 3 == 0, panel.length[rows % 3 == 0] - 1, 0] = False
        mask[rows % 4 == 0, panel.length[rows % 4 == 0] - 1] = False
        mask[rows % 5 == 0, 2, 1] = False
        panels[part] = replace(panel, outcome_observed=mask)
    return replace(dataset, panels=panels)


def last_steps(panel: Panel) -> np.ndarray:
    """The mask of last steps, which are in no history that is learned from."""
    return (np.arange(panel.n_steps) == panel.length[:, None] - 1)[..., None]


def changed(dataset: Dataset, *, observed: bool) -> Dataset:
    """Change outcomes of last steps: those that were observed, or what the others were filled with."""
    panels = dict(dataset.panels)
    for part in LEARNT:
        panel = panels[part]
        chosen = last_steps(panel) & (panel.observed_outcomes == observed)
        assert chosen.any()
        outcomes = np.where(chosen, panel.outcomes + np.float32(7), panel.outcomes)
        panels[part] = replace(panel, outcomes=outcomes)
    return replace(dataset, panels=panels)


def train(dataset: Dataset, method: str) -> Trained:
    settings = settings_of(method)
    if isinstance(settings, GNetConfig):
        settings = settings.model_copy(update={"holdout": 0.4})
    if isinstance(settings, StackConfig):  # its other parts are tested as what they are, methods
        settings = settings.model_copy(update={"parts": "last-value,ridge,msm"})
    config = FinetuneConfig(
        epochs=1,
        batch_size=8,
        hidden=8,
        seed=5,
        members=1,
        encoder=EncoderConfig(width=8, heads=2, clip_distance=4),
        **VARIANTS.get(method, {}),
    )
    return fit(dataset, method.partition(",")[0], settings, config=config)


def same(a: Trained, b: Trained) -> bool:
    arrays = all(np.array_equal(a.arrays[name], b.arrays[name]) for name in a.arrays)
    return arrays and a.meta["history"] == b.meta["history"]


@pytest.mark.parametrize("method", LEARNING)
def test_what_an_unobserved_target_was_filled_with_changes_nothing(method: str):
    before = train(world(), method)
    assert same(train(changed(world(), observed=False), method), before)
    assert not same(train(changed(world(), observed=True), method), before)


@pytest.mark.parametrize("method", ["gnet", "ct", "crn", "edct"])
def test_nor_where_there_are_no_covariates(method: str):
    """G-Net then keeps residuals of last steps."""
    before = train(world(0), method)
    assert same(train(changed(world(0), observed=False), method), before)
    assert not same(train(changed(world(0), observed=True), method), before)


@pytest.mark.parametrize("method", LEARNING)
def test_a_mask_that_finds_everything_observed_trains_as_none(method: str):
    whole, ones = dict(world().panels), dict(world().panels)
    for part, panel in world().panels.items():
        whole[part] = replace(panel, outcome_observed=None)
        ones[part] = replace(panel, outcome_observed=np.ones(panel.outcomes.shape, bool))
    assert same(train(replace(world(), panels=ones), method), train(replace(world(), panels=whole), method))


@given(st.integers(0, 2**16), st.integers(1, 4), st.floats(0.05, 1))
def test_the_mean_is_over_observed_targets_and_keeps_its_scale(seed: int, n_outcomes: int, share: float):
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.rand, generator=generator, dtype=torch.float64)
    predicted, true = draw(2, 5, 3, n_outcomes), draw(2, 5, 3, n_outcomes)
    active, observed = (draw(2, 5, 3) < 0.7).double(), (draw(2, 5, 3, n_outcomes) < share).double()
    found = masked_mean(squared_error(predicted, true, observed), target_weight(active, observed))
    for member in range(2):
        counted = (observed * active[..., None])[member] > 0
        errors = ((predicted - true)[member][counted]) ** 2
        expected = n_outcomes * float(errors.mean()) if len(errors) else 0.0
        assert float(found[member]) == pytest.approx(expected, rel=1e-9)
    ones = torch.ones_like(observed)
    assert torch.equal(squared_error(predicted, true, ones), squared_error(predicted, true))
    assert torch.equal(target_weight(active, ones), active)


def test_the_supervised_error_is_that_of_the_observed_answers():
    """A prediction of zero errs by the answer itself."""
    dataset = world()
    scaler = Scaler.fit(dataset.panels[LEARNT[0]], dataset.schema)
    parts = {part: PanelTensors.from_panel(dataset.panels[part], scaler, dtype=torch.float64) for part in LEARNT}
    stage = SupervisedStage(
        dataset.schema.dims,
        3,
        FinetuneConfig(hidden=8, step_weights="uniform"),
        EncoderConfig(width=8, heads=2),
        train=parts[LEARNT[0]],
        validation=parts[LEARNT[1]],
    )
    params = {name: torch.zeros(1, *value.shape).double() for name, value in stage.initial(0)[0].items()}
    rows = torch.arange(stage.n_validation)[None]
    loss, weight = stage.validation_loss(params, {}, rows, [])
    panel = dataset.panels[LEARNT[1]]
    answers = (panel.outcomes - scaler.outcomes[0]) / scaler.outcomes[1]
    squares = [
        answers[n, t + h + 1, o] ** 2
        for n in range(panel.n_subjects)
        for t in range(panel.length[n] - 1)
        for h in range(min(3, panel.length[n] - 1 - t))
        for o in range(2)
        if panel.observed_outcomes[n, t + h + 1, o]
    ]
    assert float(weight[0]) == pytest.approx(len(squares) / 2)
    assert float(loss[0]) == pytest.approx(2 * np.mean(squares), rel=1e-5)


def test_ridge_drops_the_rows_of_unobserved_answers():
    """Series whose last outcome nobody observed are fitted as if they ended one step earlier."""
    whole = random_dataset((1, 2, 2, 1), one_hot=False, horizon=2, n=60)
    panels = {part: panel.take(panel.length >= 4) for part, panel in whole.panels.items()}
    holes = {part: replace(p, outcome_observed=p.observed_outcomes & ~last_steps(p)) for part, p in panels.items()}
    shorter = {
        part: replace(
            panel,
            **{name: np.where(last_steps(panel), 0, getattr(panel, name)).astype(np.float32)
               for name in ("covariates", "treatments", "outcomes")},
            length=panel.length - 1,
        )
        for part, panel in panels.items()
    }  # fmt: skip
    test = panels[Part("source", "test")]
    queries = random_queries(test, 2)
    settings = RidgeConfig(window=2)
    found, expected = (
        model_of(fit(replace(whole, panels=p), "ridge", settings)).rollout(test, queries) for p in (holes, shorter)
    )
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("method", ["msm", "ridge"])
def test_the_rows_of_an_outcome_do_not_depend_on_what_was_observed_of_another(
    method: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ridge, "PENALTIES", (1e-3,))  # all outcomes share the one that is best
    whole = random_dataset((1, 2, 2, 1), one_hot=False, horizon=2, n=60)
    panels = dict(whole.panels)
    for part in LEARNT:
        mask = panels[part].observed_outcomes.copy()
        mask[..., 1] &= np.random.default_rng(0).random(mask.shape[:2]) < 0.7
        panels[part] = replace(panels[part], outcome_observed=mask)
    settings = RidgeConfig(window=1) if method == "ridge" else METHODS[method].default_settings()
    test = whole.panels[Part("source", "test")]
    found, expected = (
        model_of(fit(dataset, method, settings)).rollout(test, random_queries(test, 2))
        for dataset in (replace(whole, panels=panels), whole)
    )
    np.testing.assert_allclose(found[..., 0], expected[..., 0], rtol=1e-4)
    assert not np.allclose(found[..., 1], expected[..., 1], rtol=1e-3)


def test_the_residual_of_an_unobserved_outcome_is_that_of_another_step():
    panel = replace(PanelTensors.from_panel(world(0).panels[LEARNT[0]], _scaler(), dtype=torch.float64))
    observed = torch.zeros_like(panel.observed_NTY[:4])
    panel = panel.take(torch.arange(4))
    panel = replace(panel, length_N=torch.tensor([6, 6, 6, 3]))
    observed[0, :6], observed[1, 3], observed[2, :6, 0], observed[3, :3] = 1, 1, 1, 1
    observed[0, 4, 0] = 0
    panel = replace(panel, observed_NTY=observed)
    assert has_residuals(panel).tolist() == [True, True, False, True]
    position = known_position(panel)
    assert position[0, :5, 0].tolist() == [0, 1, 2, 2, 4]  # target y_4 is predicted at position 3
    assert position[0, :5, 1].tolist() == [0, 1, 2, 3, 4]
    assert position[1, :5, 0].tolist() == [2] * 5
    assert position[3, :2, 0].tolist() == [0, 1]


def _scaler() -> Scaler:
    return Scaler.fit(world(0).panels[LEARNT[0]], world(0).schema)
