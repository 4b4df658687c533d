"""Refutations pass an honest estimator, and find those that are broken in a known way."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from costar_cli.cli.refutation import Refits
from costar_cli.config.models import FinetuneConfig, RefuteConfig, RuntimeConfig
from costar_cli.data import Dataset, Panel, Part, Queries, Scaler
from costar_cli.data.record import ModelRecord
from costar_cli.data.windows import factual_windows
from costar_cli.errors import TrainingError
from costar_cli.evaluation.refute import Finding, Refutation, refute, verdict_of
from costar_cli.evaluation.worlds import (
    contrasts,
    dummy_outcome,
    effects,
    future_treatments,
    later_changes,
    placebo_treatment,
)
from costar_cli.reporting import NullReporter
from simulators.linear_gaussian import LinearGaussian
from tests.methods.linear_worlds import fit, linear_data, model_of, random_dataset

CONFIG = RefuteConfig(refits=4)
PASSES = dict.fromkeys(
    ["cheap refit", "placebo treatment", "random covariate", "dummy outcome", "random subsets", "future treatments"],
    "pass",
)


@dataclass(frozen=True)
class OneStep:
    """A linear law of one step, found by least squares and rolled along the plan: an honest estimator of LINEAR-1."""

    scaler: Scaler
    law_PS: np.ndarray
    members: int = 1
    horizon: int = 4

    @classmethod
    def fitted(cls, data: Dataset, seed: int = 0) -> "OneStep":
        panel = data.panel("source", "train")
        row, step = np.nonzero(np.arange(panel.n_steps) < panel.length[:, None] - 1)
        state = np.concatenate([panel.outcomes, panel.covariates], axis=2)
        known = np.concatenate([state, panel.treatments, np.ones((*state.shape[:2], 1))], axis=2)[row, step]
        law = np.linalg.lstsq(known, state[row, step + 1], rcond=None)[0]
        return cls(Scaler.fit(panel, data.schema), law)

    def rollout(self, panel: Panel, queries: Queries, **_: object) -> np.ndarray:
        state = np.concatenate([panel.outcomes, panel.covariates], axis=2)[queries.subject, queries.origin]
        answers = []
        for given in queries.plan.transpose(1, 0, 2):
            state = np.concatenate([state, given, np.ones((len(state), 1))], axis=1) @ self.law_PS
            answers.append(state[:, :1])
        return np.stack(answers, axis=1)[None].astype(np.float32)


@dataclass(frozen=True)
class Regardless(OneStep):
    """Reports an effect of -1 per treatment so far, whatever the data say."""

    def rollout(self, panel: Panel, queries: Queries, **_: object) -> np.ndarray:
        return -queries.plan.cumsum(axis=1, dtype=np.float32)[None]


@dataclass(frozen=True)
class ReadsWholePlan(OneStep):
    """Lets the plan's last step move the first answer."""

    def rollout(self, panel: Panel, queries: Queries, **_: object) -> np.ndarray:
        return super().rollout(panel, queries) + 0.1 * queries.plan[None, :, -1:]


@dataclass(frozen=True)
class ReadsColumn:
    """Lets one column of the plan's last step move the first answer, and finds no other effect."""

    column: int

    def rollout(self, panel: Panel, queries: Queries, **_: object) -> np.ndarray:
        moved = np.repeat(queries.plan[:, -1:, self.column], queries.horizon, axis=1)
        return moved[None, ..., None].astype(np.float32)


@dataclass(frozen=True)
class Peeks(OneStep):
    """Looks up what was observed after the origin."""

    def rollout(self, panel: Panel, queries: Queries, **_: object) -> np.ndarray:
        last = panel.n_steps - 1
        later = panel.outcomes[queries.subject, np.minimum(queries.origin + 1, last)]
        return super().rollout(panel, queries) + 0.2 * later[None, :, None]


@dataclass(frozen=True)
class Jumpy(OneStep):
    """Finds another effect with every seed."""

    @classmethod
    def fitted(cls, data: Dataset, seed: int = 0) -> "Jumpy":
        honest = OneStep.fitted(data)
        law = honest.law_PS.copy()
        law[-2] *= 1 + 2 * np.random.default_rng(seed).normal()
        return cls(honest.scaler, law)


@dataclass(frozen=True)
class Distracted(OneStep):
    """Believes in half the effect where there is one more covariate."""

    @classmethod
    def fitted(cls, data: Dataset, seed: int = 0) -> "Distracted":
        honest = OneStep.fitted(data)
        law = honest.law_PS.copy()
        law[-2] /= len(data.schema.covariates) - 1
        return cls(honest.scaler, law)


@cache
def data() -> Dataset:
    return linear_data(gamma=1.0, train=400, val=10, horizon=4)


def verdicts(fitted: Callable[[Dataset, int], object], model: object | None = None) -> dict[str, str]:
    model = model or fitted(data(), 0)
    found = refute(model, data(), fitted, CONFIG, seed=1, reporter=NullReporter(), label="it")
    return Refutation("it", "it", 4, tuple(found)).verdicts


def test_an_honest_estimator_passes():
    assert verdicts(OneStep.fitted) == PASSES


def test_an_effect_whatever_the_data_does_not_vanish_where_it_should():
    found = verdicts(Regardless.fitted)
    assert {test for test, verdict in found.items() if verdict == "fail"} == {"placebo treatment", "dummy outcome"}


@pytest.mark.parametrize("broken", [ReadsWholePlan, Peeks])
def test_what_reads_the_future_is_found(broken):
    assert verdicts(broken.fitted)["future treatments"] == "fail"


@pytest.mark.parametrize("one_hot", [False, True], ids=["second treatment", "level that is not the commonest"])
@pytest.mark.parametrize("column", range(3))
def test_a_leak_of_any_treatment_or_level_is_found(one_hot, column):
    world = random_dataset((1, 3, 1, 0), one_hot=one_hot)
    windows = factual_windows(world.panel("source", "test"), 4)
    asked = contrasts(world.panel("source", "train"), world.schema, 4)
    assert later_changes(ReadsColumn(column), windows, asked, np.ones(1))[0] == 1.0


def test_effects_that_jump_from_fit_to_fit_are_not_called_stable():
    assert verdicts(Jumpy.fitted)["random subsets"] == "fail"


@pytest.mark.parametrize(("sd", "verdict"), [(0.1, "pass"), (0.3, "inconclusive"), (0.5, "fail")])
def test_the_more_single_refits_scatter_the_worse_though_their_mean_is_right(sd, verdict):
    values = 1 + sd * np.resize([1.0, -1.0], 10) * 0.9**0.5
    found = Finding.of_refits("random subsets", "a", values, expected=1.0, margin=0.25)
    assert found.sd == pytest.approx(sd)
    assert found.of_spread().verdict == verdict


def test_effects_that_a_random_covariate_moves_are_found():
    found = verdicts(Distracted.fitted)
    assert (found["random covariate"], found["random subsets"]) == ("fail", "pass")


def test_a_refit_that_is_not_like_the_model_is_said():
    assert verdicts(OneStep.fitted, Regardless.fitted(data()))["cheap refit"] == "inconclusive"


def test_a_refit_that_fails_leaves_its_test_open_and_says_why():
    def fails_on_more_covariates(found: Dataset, seed: int) -> OneStep:
        if len(found.schema.covariates) > 2:
            raise TrainingError("it diverged")
        return OneStep.fitted(found)

    model = OneStep.fitted(data())
    found = refute(model, data(), fails_on_more_covariates, CONFIG, seed=1, reporter=NullReporter(), label="it")
    assert Refutation("", "", 4, tuple(found)).verdicts["random covariate"] == "inconclusive"
    assert any("it diverged" in finding.note for finding in found if finding.test == "random covariate")


def test_a_method_that_reads_a_whole_plan_at_once_gains_from_later_treatments():
    """Ridge regression is refitted from the settings in a model's file, as the command does."""
    world = linear_data(gamma=3.0, train=400, horizon=4)
    trained = fit(world, "ridge")
    refits = Refits.of(ModelRecord.read(trained.meta), CONFIG, RuntimeConfig(device="cpu"))
    found = refute(model_of(trained), world, refits, CONFIG, seed=1, reporter=NullReporter(), label="it")
    gain = next(finding for finding in found if finding.quantity == "gain as predictors")
    assert gain.verdict == "inconclusive"
    assert "reacts" in gain.note
    assert Refutation("", "", 4, tuple(found)).verdicts["random covariate"] == "pass"


@pytest.mark.slow
def test_the_mixed_model_passes_where_its_law_holds():
    world = linear_data(gamma=1.0, train=300, steps=20, horizon=6)
    trained = fit(world, "mixed")
    refits = Refits.of(ModelRecord.read(trained.meta), CONFIG, RuntimeConfig(device="cpu"))
    found = refute(model_of(trained), world, refits, CONFIG, seed=1, reporter=NullReporter(), label="it")
    assert Refutation("", "", 4, tuple(found)).verdicts == PASSES


def test_networks_are_refitted_with_one_member_and_few_updates():
    meta = {"method": "crn", "config": FinetuneConfig(members=5, epochs=100).model_dump(), "settings": {}}
    refits = Refits.of(ModelRecord.read(meta), CONFIG, RuntimeConfig(device="cpu"))
    assert (refits.plan.config.members, refits.plan.config.updates, refits.trains_networks) == (1, CONFIG.updates, True)


def test_placebos_keep_how_many_are_treated_at_each_step_and_who_decides():
    before = ragged().panel("source", "train")
    after = placebo_treatment(ragged(), np.random.default_rng(0)).panel("source", "train")
    assert (after.treatments.sum(axis=0) == before.treatments.sum(axis=0)).all()
    decided = np.arange(before.n_steps) < before.length[:, None] - 1
    assert (after.treatments[~decided] == before.treatments[~decided]).all()
    assert (after.treatments != before.treatments).any()


def test_a_dummy_outcome_is_another_subjects_as_long_as_both_have_steps():
    before = ragged().panel("source", "train")
    after = dummy_outcome(ragged(), np.random.default_rng(0)).panel("source", "train")
    assert (after.length <= before.length).all()
    assert not after.outcomes[~after.observed].any()
    series = {row.tobytes() for row in before.outcomes[:, :2]}
    assert all(row.tobytes() in series for row in after.outcomes[after.length > 1, :2])
    assert (after.outcomes[:, 0] != before.outcomes[:, 0]).any()


def test_future_treatments_do_not_tell_where_a_series_ends():
    world = future_treatments(ragged(one_hot=True), np.random.default_rng(0))
    panel = world.panel("source", "train")
    added = panel.covariates[..., -panel.treatments.shape[2] :]
    assert (added[panel.observed].sum(axis=-1) == 1).all()
    assert (added[:, 0] == panel.treatments[:, 4])[panel.length > 5].all()


@cache
def ragged(*, one_hot: bool = False) -> Dataset:
    return random_dataset((1, 3, 1, 0), one_hot=one_hot)


def test_only_treatments_that_somebody_was_given_are_asked_about():
    panel = ragged(one_hot=True).panel("source", "train")
    unseen = replace(panel, treatments=panel.treatments * np.array([1, 1, 0], dtype=np.float32))
    asked = contrasts(unseen, ragged(one_hot=True).schema, 4)
    assert [contrast.name for contrast in asked] == ["always price=level 1", "price=level 1 once"]
    assert asked[1].plan.tolist() == [[0, 1, 0], *[[1, 0, 0]] * 3]


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"), [(-0.1, 0.1, "pass"), (0.3, 0.5, "fail"), (-0.1, 0.3, "inconclusive")]
)
def test_an_interval_passes_within_the_margin_and_fails_outside(lower, upper, verdict):
    assert verdict_of(lower, upper, 0.2) == verdict


def test_findings_are_read_back_as_they_were_written():
    found = Finding.of_refits("a", "b", [0.1, 0.2, 0.15], expected=0.0, margin=0.5)
    refutation = Refutation("m", "mixed", 3, (found, Finding.without("c", "d", "why")), ("note",), {"refits": 3})
    assert Refutation.from_json(refutation.to_json()) == refutation


def test_effects_are_those_of_the_law():
    """The refit's own effect is the known one: always treating moves the outcome by the total effect (LINEAR-4)."""
    windows = factual_windows(data().panels[Part("source", "test")], 4)
    asked = contrasts(data().panel("source", "train"), data().schema, 4)
    model = SimpleNamespace(rollout=OneStep.fitted(linear_data(train=4000, horizon=4)).rollout)
    always, once = effects(model, windows, asked, np.ones(1))[:, 0]
    law = LinearGaussian()
    assert always == pytest.approx(law.total_effect(4).mean(), rel=0.03)
    assert once == pytest.approx(law.impulse_response(4).mean(), rel=0.1)
