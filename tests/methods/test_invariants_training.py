"""The invariants of docs/concepts.md about training, for every method and variant."""

import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from costar_cli.config.models import EncoderConfig
from costar_cli.data import Dataset, Part
from costar_cli.methods import METHODS
from costar_cli.testing import members_trained_together_equal_members_trained_apart, padded
from costar_cli.training import Trained, loop
from tests.methods.invariant_worlds import (
    EXACT,
    NAMES,
    SIZES,
    as_model,
    counted,
    fake_chronos,
    fit,
    registered,
    trained,
    without_compiler,
    world,
)
from tests.train.worlds import run_pretrain

__all__ = ["fake_chronos", "without_compiler"]

# Variants train as their methods do, but for the decoder that is the default: they take their time elsewhere.
SLOW = [name for name in NAMES if name not in METHODS and name != "costar, structured"]


@pytest.fixture(scope="module", params=[pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in NAMES])
def method(request) -> str:
    return request.param


def test_same_seed_gives_the_same_predictions_and_another_seed_others(method: str) -> None:
    dataset = world("tumor")
    first, steps = counted(method, "tumor")
    panel, queries = dataset.panel("target", "test"), dataset.queries[Part("target", "test")]["sequence"]
    answers = as_model(method, first).rollout(panel, queries)
    again = fit(method, dataset, seed=6 if steps else 5)
    if steps:  # the same seed: a fit that is interrupted (below) has the weights of this one to the last bit
        assert not np.array_equal(as_model(method, again).rollout(panel, queries), answers)
        return
    assert first.meta == again.meta
    assert all(np.array_equal(first.arrays[name], again.arrays[name]) for name in first.arrays)
    assert np.array_equal(as_model(method, again).rollout(panel, queries), answers)


def test_members_trained_together_equal_members_trained_apart(method: str) -> None:
    members_trained_together_equal_members_trained_apart(partial(fit, method, world("small ward")))


def test_members_differ(method: str) -> None:
    params = [values for name, values in trained(method, "small ward").arrays.items() if name.startswith("params/")]
    if not registered(method).closed_form:
        assert {len(values) for values in params} == {2}
        assert any(not np.array_equal(*values) for values in params)


def longer(dataset: Dataset) -> Dataset:
    """The data set with more padding where it is learned from and selected on."""
    parts = {part: padded(panel) for part, panel in dataset.panels.items() if part.split != "test"}
    return replace(dataset, panels={**dataset.panels, **parts})


@pytest.mark.parametrize("observed", ["some", "all"])
def test_padding_changes_no_trained_weight(method: str, observed: str) -> None:
    """Masks of dropout are drawn for padded steps, too: without dropout, weights differ by rounding alone.

    A mask of what was observed hides padded targets, too: also without it.
    """
    data = world("small ward") if observed == "some" else without_holes(world("small ward"))
    usual, more = (
        fit(method, dataset, runtime=EXACT, dropout=False, epochs=1, members=1) for dataset in (data, longer(data))
    )
    same_weights(usual, more)


@pytest.mark.parametrize(
    ("architecture", "choice"),
    [
        *((architecture, {}) for architecture in ("costar", "vt", "vt_relative", "ct")),
        *(("costar", choice) for choice in ({"ssl_loss": "spectral"}, {"components": False})),
    ],
    ids=str,
)
def test_padding_changes_no_weight_of_a_pretrained_encoder(architecture: str, choice: dict, tmp_path: Path) -> None:
    """As above, and without augmentation, whose jitter is drawn for padded steps."""
    encoder = EncoderConfig(architecture=architecture, width=8, heads=2, clip_distance=4, dropout=0)
    usual, more = (
        run_pretrain(
            dataset,
            folder(tmp_path, name),
            EXACT,
            encoder=encoder,
            augment_probability=0,
            epochs=1,
            members=1,
            **choice,
        )
        for name, dataset in (("usual", world("small ward")), ("more", longer(world("small ward"))))
    )
    same_weights(usual, more)


def without_holes(dataset: Dataset) -> Dataset:
    panels = {part: replace(panel, outcome_observed=None) for part, panel in dataset.panels.items()}
    return replace(dataset, panels=panels)


def same_weights(usual: Trained, more: Trained) -> None:
    assert usual.arrays.keys() == more.arrays.keys()
    for name, values in usual.arrays.items():
        np.testing.assert_allclose(more.arrays[name], values, rtol=1e-5, atol=1e-7, err_msg=name)


def folder(path: Path, name: str) -> Path:
    (path / name).mkdir()
    return path / name


def interrupt_training(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Send Ctrl-C in a training step."""
    taken, step = [0], loop.training_step

    def counted_step(*args: object) -> object:
        taken[0] += 1
        if taken[0] == at:
            signal.raise_signal(signal.SIGINT)
        return step(*args)

    monkeypatch.setattr(loop, "training_step", counted_step)


def test_a_fit_that_is_interrupted_twice_continues_to_the_same_weights(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, (whole, steps) = world("tumor"), counted(method, "tumor")
    assert (steps == 0) == (whole.meta["stages"] == [])
    if not steps:
        return  # fits in closed form have nothing to continue
    early, late = max(1, int(0.35 * steps)), int(0.85 * steps)
    for at in (early, max(1, late - early)):  # the step in which a signal comes is finished and saved
        interrupt_training(monkeypatch, at=at)
        with pytest.raises(KeyboardInterrupt):
            fit(method, dataset, tmp_path / "cut")
        monkeypatch.undo()
    continued = fit(method, dataset, tmp_path / "cut")
    assert whole.meta == continued.meta
    assert all(np.array_equal(whole.arrays[name], continued.arrays[name]) for name in whole.arrays)


def test_few_shot_starts_from_the_source_model_and_leaves_it_alone(method: str) -> None:
    dataset, source = world("tumor"), trained(method, "tumor")
    model, panel = as_model(method, source), dataset.panel("target", "test")
    queries = dataset.queries[Part("target", "test")]["sequence"].take(slice(0, 50))
    before = model.rollout(panel, queries)
    target = fit(method, dataset, domain="target", start=model, epochs=1)
    assert np.array_equal(model.rollout(panel, queries), before)
    assert target.meta["trained_on"] == {"source/train": SIZES["train"], "target/train": SIZES["target_train"]}
    assert target.meta["domain"] == "target"
    scalers = [name for name in target.arrays if name.startswith("scaler/")]
    assert all(np.array_equal(target.arrays[name], source.arrays[name]) for name in scalers)
    adapted = as_model(method, target).rollout(panel, queries)
    assert adapted.shape == before.shape
    assert np.isfinite(adapted).all()
