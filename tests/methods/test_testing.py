"""What `costar_cli.testing` promises: it passes a method that keeps the invariants and names the one that is broken."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from costar_cli.data import Panel, Queries
from costar_cli.data.registry import sources
from costar_cli.files import Artifact
from costar_cli.methods import METHODS, Method
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.shared.trained import TrainedModel, require_horizon
from costar_cli.testing import check_data_source, check_method


@dataclass(frozen=True, kw_only=True)
class Sum(TrainedModel):
    """Predicts the outcome at the origin plus what was given so far; `fault` breaks one rule."""

    fault: str = ""

    def rollout(self, panel: Panel, queries: Queries, **_: object) -> np.ndarray:
        if self.fault != "answers beyond the horizon":
            require_horizon(self.horizon, queries)
        at = np.minimum(queries.origin + (self.fault == "reads the next step"), panel.n_steps - 1)
        start_QY = panel.outcomes[queries.subject, at]
        given_QH = queries.plan.sum(axis=2).astype(np.float32) * np.arange(1, queries.plan.shape[2] + 1).sum()
        if queries.plan.shape[2] == 4:  # classes: the place of the one that is given
            given_QH = (queries.plan @ np.arange(4)).astype(np.float32)
        dose_QH = np.cumsum(given_QH[:, ::-1] if self.fault == "acts early" else given_QH, axis=1)
        answer_QHY = start_QY[:, None] + dose_QH[..., None]
        if self.fault == "depends on company":
            answer_QHY = answer_QHY - answer_QHY.mean()
        if self.fault == "reads padding":
            answer_QHY = answer_QHY + panel.n_steps
        if self.fault == "not a number":
            answer_QHY = np.log(answer_QHY - answer_QHY.max() - 1)
        return answer_QHY[None].astype(np.float32)


@dataclass(frozen=True)
class Summing:
    fault: str = ""

    def fit(self, task: FitTask) -> Fit:
        yield from ()
        noise = np.random.default_rng().random() if self.fault == "unseeded" else 0.0
        return Fitted({"nothing": torch.full((1, 1), noise)})

    def load(self, artifact: Artifact, device: torch.device | str = "cpu") -> Sum:
        return replace(Sum.from_artifact(artifact), fault=self.fault)


def method(fault: str = "") -> Method:
    return Method(name="sum", label="Sum", estimator=Summing(fault), closed_form=True, reads=("domain",))


def test_a_method_that_keeps_the_invariants_passes() -> None:
    check_method(method())


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("reads the next step", "nothing_after_the_origin_changes_a_prediction"),
        ("acts early", "a_treatment_changes_no_step_before_it_acts"),
        ("depends on company", "nothing_after_the_origin_changes_a_prediction"),
        ("reads padding", "padding_changes_no_prediction"),
        ("answers beyond the horizon", "short_plans_give_the_first_steps_and_long_ones_are_refused"),
        ("not a number", "the_history_changes_predictions"),
        ("unseeded", "the_same_seed_gives_the_same_model"),
    ],
)
def test_a_method_that_breaks_an_invariant_fails_with_the_name_of_the_check(fault: str, check: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(AssertionError) as raised:
        check_method(method(fault))
    assert check in raised.value.__notes__[0]


@pytest.mark.parametrize("name", ["ridge", "last-value", "crn-erm"])
def test_costars_own_methods_pass(name: str) -> None:
    check_method(METHODS[name])


def test_a_data_source_whose_truth_is_not_its_own_series_fails(reporter) -> None:
    tumor = sources()["tumor"]
    settings = tumor.settings(train=3, val=3, test=3, target_train=3, target_val=3, target_test=3, steps=8, horizon=2)

    def shifted(*args: Any) -> np.ndarray:
        from costar_cli.data.tumor.simulate import tumor_truth

        return tumor_truth(*args) + 1

    check_data_source(tumor, settings)
    with pytest.raises(AssertionError, match="truth of the treatments that were given"):
        check_data_source(replace(tumor, truth=shifted), settings)


def test_a_data_source_that_draws_without_its_seed_fails() -> None:
    linear = sources()["linear"]
    settings = [linear.settings(train=3, val=3, test=3, steps=8, horizon=2, seed=seed) for seed in (1, 2)]
    turns = iter(settings)

    def unseeded(_: object, reporter: object) -> object:
        return linear.simulate(next(turns), reporter)

    with pytest.raises(AssertionError, match="differ between two data sets of the same settings"):
        check_data_source(replace(linear, make=unseeded), settings[0])


@pytest.fixture
def plugin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    monkeypatch.syspath_prepend(str(request.config.rootpath / "examples" / "plugin"))
    yield
    for name in [name for name in sys.modules if name.startswith(("costar_garden", "test_garden"))]:
        del sys.modules[name]


def test_the_example_package_passes_its_own_checks(plugin: None) -> None:
    import test_garden

    test_garden.test_the_method_keeps_the_invariants()
    test_garden.test_the_data_set_is_complete_reproducible_and_true_to_itself()
    assert Path(test_garden.__file__).parent.name == "plugin"
