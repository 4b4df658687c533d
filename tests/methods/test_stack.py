"""Stacking: its parts, its distribution, and what it does when parts fail."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

import costar_cli as costar
from costar_cli.data import Part
from costar_cli.data.panel import join_panels
from costar_cli.data.record import ModelRecord
from costar_cli.data.windows import factual_windows
from costar_cli.errors import ArtifactError, DataError, MismatchError, Termination, UsageError
from costar_cli.files import Artifact
from costar_cli.inference.estimates import predictor
from costar_cli.methods import METHODS, stored
from costar_cli.methods.base import FitTask, FittedPart, Stage, StepLoss, adjusted
from costar_cli.methods.registry import THAT_ADJUST, Methods
from costar_cli.methods.shared.combining import Errors, Weighing, error_scales, weigh
from costar_cli.methods.shared.plan_weights import plan_weights
from costar_cli.methods.stack import method as stack_method
from costar_cli.methods.stack.model import StackModel
from costar_cli.methods.stack.settings import StackConfig
from costar_cli.training import Trained, loop
from tests.fits import artifact_of, fit_method, model_of
from tests.methods.invariant_worlds import world
from tests.methods.stack_worlds import ANCHORS, CONFIG, fit, stacked


@pytest.mark.parametrize("data", ["tumor", "linear", "ward"])
def test_a_stack_errs_no_more_on_validation_than_any_part(data: str) -> None:
    trained = stacked(data)
    dataset, stack = world(data), model_of(trained)
    windows = factual_windows(dataset.panel("source", "val"), dataset.horizon)
    assert windows is not None
    assert isinstance(stack, StackModel)
    train = dataset.panel("source", "train")
    scale, relative = error_scales(train, stack.scaler, windows)
    weights = plan_weights(train, windows, stack.scaler, dataset.schema.treatments).weight_QH
    assert relative == trained.meta["relative"]
    models = [*stack.parts.values(), stack]
    errors = Errors.of([m.rollout(windows.panel, windows.asked)[0] for m in models], windows, scale, weights)
    *parts, own = (errors.risk(errors.of_part(p))[0] for p in range(len(models)))
    # what does not adjust for reactions inside a plan is left for parts that do, where these err no more than chance
    effects_first = any(rule.endswith(THAT_ADJUST) for rule in trained.meta["rules"][0])
    best = [error for m, error in zip(models, parts, strict=False) if not effects_first or adjusted(m) == "all"]
    assert own <= min(best) * (1 + 1e-6)
    told = {row["method"]: row["error"] for row in trained.meta["leaderboard"]}
    assert [told[name] for name in stack.parts] == pytest.approx(parts)
    assert sum(row["weight"] for row in trained.meta["leaderboard"][:-1]) == pytest.approx(1)
    assert trained.meta["leaderboard"][-1]["method"] == "stack"


def test_a_part_of_a_stack_is_the_model_that_is_fitted_alone() -> None:
    dataset, stack = world("tumor"), model_of(stacked())
    assert isinstance(stack, StackModel)
    panel, queries = dataset.panel("target", "test"), dataset.queries[Part("target", "test")]["sequence"]
    for name in ("ridge", "mixed"):
        alone = fit_method(dataset, name, METHODS[name].default_settings(), CONFIG)
        assert np.array_equal(stack.parts[name].rollout(panel, queries), model_of(alone).rollout(panel, queries))


def test_a_stack_is_the_weighted_mean_of_its_parts_and_asks_none_without_weight() -> None:
    dataset, stack = world("tumor"), model_of(stacked())
    assert isinstance(stack, StackModel)
    panel, queries = dataset.panel("target", "test"), dataset.queries[Part("target", "test")]["sequence"]
    expected = sum(
        stack.weight_RPHY[:, i, None] * part.rollout(panel, queries) for i, part in enumerate(stack.parts.values())
    )
    np.testing.assert_allclose(stack.rollout(panel, queries), expected, rtol=1e-4)
    only = np.zeros_like(stack.weight_RPHY)
    only[:, 0] = 1
    alone = replace(stack, params={"weights": torch.from_numpy(only)})
    assert alone.answering == ["last-value"]
    assert alone.encode(panel).keys() == {"last-value"}


def test_a_mixture_of_distributions_has_the_variance_of_both_and_of_their_difference() -> None:
    dataset, stack = world("tumor"), model_of(stacked(parts="mixed"))
    assert isinstance(stack, StackModel)
    panel, queries = dataset.panel("target", "test"), dataset.queries[Part("target", "test")]["sequence"]
    assert stack.has_distribution
    one = stack.forecast(panel, queries, predictor(panel))
    mixed = stack.parts["mixed"]
    own = mixed.predict_distribution(panel, queries)
    np.testing.assert_allclose(np.sqrt(one.variance_QHY), own.sd[0], rtol=1e-5)
    half = np.full((1, 2, *stack.weight_RPHY.shape[2:]), 0.5)
    shifted = replace(mixed, scaler=replace(mixed.scaler, outcomes=mixed.scaler.outcomes + np.array([[5.0], [0.0]])))
    two = replace(stack, params={"weights": torch.from_numpy(half)}, parts={"mixed": mixed, "other": shifted})
    both, other = two.forecast(panel, queries, predictor(panel)), shifted.predict_distribution(panel, queries)
    np.testing.assert_allclose(both.members_RQHY, (own.mean + other.mean) / 2, rtol=1e-5)
    noise_QHY = both.variance_QHY - both.parameter_QHY
    np.testing.assert_allclose(noise_QHY, (own.sd_noise[0] ** 2 + other.sd_noise[0] ** 2) / 2, rtol=1e-4)
    between = ((own.mean - other.mean) / 2) ** 2
    within = (own.sd_parameter**2 + other.sd_parameter**2) / 2
    np.testing.assert_allclose(both.parameter_QHY, (within + between)[0], rtol=1e-3, atol=1e-6)


def test_a_stack_tells_no_distribution_where_a_part_with_weight_has_none() -> None:
    assert not model_of(stacked(parts="last-value,ridge")).has_distribution


def test_few_shot_adapts_every_part_and_never_errs_more_than_the_source_on_target_validation() -> None:
    dataset, source = world("tumor"), model_of(stacked())
    adapted = fit(dataset, parts="last-value", domain="target", start=source)  # the parts are the source's
    assert [part["method"] for part in adapted.meta["parts"]] == ANCHORS.split(",")
    kept = adapted.meta["kept_source_members"] == [1]
    model = model_of(adapted)
    panel, queries = dataset.panel("target", "test"), dataset.queries[Part("target", "test")]["sequence"]
    assert np.array_equal(model.rollout(panel, queries), source.rollout(panel, queries)) == kept
    windows = factual_windows(dataset.panel("target", "val"), dataset.horizon)
    assert windows is not None
    scale, _ = error_scales(dataset.panel("source", "train"), source.scaler, windows)
    both = join_panels([dataset.panel(domain, "train") for domain in ("source", "target")])
    weights = plan_weights(both, windows, source.scaler, dataset.schema.treatments).weight_QH
    answers = [m.rollout(windows.panel, windows.asked)[0] for m in (source, model)]
    errors = Errors.of(answers, windows, scale, weights)
    before, after = (errors.risk(errors.of_part(p))[0] for p in (0, 1))
    assert after <= before * (1 + 1e-6)
    assert set(adapted.meta["validation"]) >= {"source", "score"}


@cache
def stacked_network() -> Trained:
    return fit(world("tumor"), "crn-erm,ridge")


@pytest.mark.parametrize("factor", [1e-9, 1e9], ids=["moved", "kept"])
def test_few_shot_of_fewer_members_than_the_source_has_is_of_the_first_ones_and_tells_target_errors(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    better, dataset, source = factor < 1, world("tumor"), model_of(stacked_network())
    assert source.members == 2
    monkeypatch.setattr(stack_method, "weigh", lambda *given: judged(weigh(*given), factor))
    config = CONFIG.model_copy(update={"members": 1})
    few = fit_method(dataset, "stack", StackConfig(), config, domain="target", start=source)
    model, panel = model_of(few), dataset.panel("target", "test")
    queries = dataset.queries[Part("target", "test")]["sequence"]
    answer = model.rollout(panel, queries)
    assert model.members == len(answer) == 1
    assert [part.members for part in model.parts.values()] == [1, 1]
    *_, own, of_source = few.meta["leaderboard"]
    assert (own["method"], of_source["method"]) == ("stack", "source's stack")
    assert (own["weight"], of_source["weight"]) == ((1, 0) if better else (0, 1))
    assert of_source["error"] != stacked_network().meta["leaderboard"][-1]["error"]
    assert {row["method"] for row in few.meta["leaderboard"][:-2]} == {"crn-erm", "ridge"}
    if not better:
        np.testing.assert_array_equal(answer, source.rollout(panel, queries)[:1])
        assert sum(row["weight"] for row in few.meta["leaderboard"]) == 1
        assert len(few.meta["rules"]) == 1


def judged(weighing: Weighing, factor: float) -> Weighing:
    return replace(weighing, crossed_CHY=weighing.crossed_CHY * factor)


def damaged(**changes: object) -> Artifact:
    """Return the artifact of a stack with other arrays (`weights`) or members of its meta."""
    whole = artifact_of(stacked())
    weights = changes.pop("weights", None)
    arrays = whole.arrays if weights is None else {**whole.arrays, "params/weights": weights}
    return replace(whole, arrays=arrays, meta={**whole.meta, **changes})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda w: w[:, :1], "weights are .* instead of"),
        (lambda w: w[:, :, :1], "weights are .* instead of"),
        (lambda w: w[..., 0], "weights are .* instead of"),
        (lambda w: w[:0], "weights are .* instead of"),
        (lambda w: w * np.nan, "negative or not finite"),
        (lambda w: w + np.array([-2.0, 1, 1])[None, :, None, None], "negative or not finite"),
        (lambda w: w / 2, "do not sum to one"),
        (lambda w: np.repeat(w, 2, axis=0), None),
    ],
    ids=["parts", "steps", "axes", "empty", "nan", "negative", "sum", "more members than those of its parts"],
)
def test_weights_that_combine_nothing_are_refused(
    change: Callable[[np.ndarray], np.ndarray], problem: str | None
) -> None:
    artifact = damaged(weights=change(stacked().arrays["params/weights"]))
    if problem is None:
        assert stored.model_of(artifact).members == 2
        return
    with pytest.raises(ArtifactError, match="incomplete or damaged") as raised:
        stored.model_of(artifact)
    assert re.search(problem, str(raised.value.where))


def test_a_part_has_one_member_or_all() -> None:
    whole = artifact_of(stacked_network())
    weights = whole.arrays["params/weights"]
    with pytest.raises(ArtifactError, match="incomplete or damaged") as raised:
        stored.model_of(replace(whole, arrays={**whole.arrays, "params/weights": np.repeat(weights, 2, axis=0)}))
    assert "crn-erm has 2 members instead of 1 or 4" in str(raised.value.where)


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (
            ["last-value", "ridge", "magic"],
            "a part of the model is of method 'magic', which this version does not know",
        ),
        (["last-value", "ridge", "stack"], "a part of the model is of method stack, which is made of others itself"),
        (["last-value", "ridge", "ridge"], "two parts of the same method"),
        ([], "has no parts"),
        (["last-value", "ridge", None], "incomplete or damaged"),
    ],
)
def test_parts_of_a_file_that_cannot_be_are_refused_before_and_when_it_is_loaded(
    parts: list[str | None], problem: str
) -> None:
    whole = stacked().meta["parts"]
    listed = [{**part, "method": name} if name else 7 for name, part in zip(parts, whole, strict=False)]
    artifact = damaged(parts=listed)
    with pytest.raises(ArtifactError, match=problem):
        stored.model_of(artifact)
    with pytest.raises(ArtifactError, match=problem):
        METHODS["stack"].parts(None, ModelRecord.of(artifact))


def test_a_part_cannot_have_another_horizon_or_schema_than_its_stack() -> None:
    parts = [{**part, "horizon": 99, "schema": {}} for part in stacked().meta["parts"]]
    model = stored.model_of(damaged(parts=parts))
    assert isinstance(model, StackModel)
    assert {part.horizon for part in model.parts.values()} == {model.horizon}
    assert all(part.schema == model.schema for part in model.parts.values())


@pytest.mark.parametrize("error", [IndexError, AttributeError, RecursionError, RuntimeError, KeyError])
def test_whatever_fails_while_a_model_is_read_is_told_as_damage(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error("what")

    monkeypatch.setattr(type(METHODS["ridge"].loaded), "load", fail)
    with pytest.raises(ArtifactError, match="incomplete or damaged"):
        stored.model_of(artifact_of(stacked()))


def failing(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Exception]) -> None:
    """Let the fit of some parts fail."""
    fit_part = stack_method._fit_part

    def maybe(task, name, start):
        if name in wrong:
            raise wrong[name]
        return fit_part(task, name, start)

    monkeypatch.setattr(stack_method, "_fit_part", maybe)


def test_a_part_that_fails_is_named_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, {"mixed": DataError("nothing to learn"), "last-value": FloatingPointError("overflow")})
    trained = fit(world("tumor"))
    assert [part["method"] for part in trained.meta["parts"]] == ["ridge"]
    assert trained.meta["left_out"] == {"last-value": "overflow", "mixed": "nothing to learn"}
    assert "Mixed effects is left out of the stack: nothing to learn" in trained.meta["warnings"]


def test_a_network_that_diverges_in_its_second_stage_leaves_the_next_ones_their_run_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step, diverging = loop.training_step, [True]

    class Diverging:
        def __init__(self, stage: Stage) -> None:
            self.stage = stage

        def __getattr__(self, name: str) -> object:
            return getattr(self.stage, name)

        def loss(self, *given: object) -> StepLoss:
            loss_R, state = self.stage.loss(*given)
            return loss_R * torch.nan, state

    def diverge(stage, state, rows, runtime):
        if diverging[0] and "decoder" in stage.name:
            diverging[0] = False
            stage = Diverging(stage)
        return step(stage, state, rows, runtime)

    monkeypatch.setattr(loop, "training_step", diverge)
    trained = fit(world("tumor"), "crn,crn-erm,ridge", run_state=tmp_path / "run.h5")
    assert [part["method"] for part in trained.meta["parts"]] == ["crn-erm", "ridge"]
    assert trained.meta["left_out"].keys() == {"crn"}
    assert "not finite" in trained.meta["left_out"]["crn"]
    assert [stage["name"].partition(":")[0] for stage in trained.meta["stages"]] == ["crn-erm", "crn-erm"]


def test_a_stack_without_any_part_is_an_error_that_names_all(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, {name: DataError(f"no {name}") for name in ANCHORS.split(",")})
    with pytest.raises(DataError, match="no part of the stack could be fitted") as raised:
        fit(world("tumor"))
    assert list(raised.value.details) == [f"{name}: no {name}" for name in ANCHORS.split(",")]


def test_what_is_wrong_with_the_run_itself_is_not_taken_for_a_part_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, {"ridge": MismatchError("an interrupted run with other inputs")})
    with pytest.raises(MismatchError):
        fit(world("tumor"))


def test_no_part_is_begun_after_the_budget_and_the_first_always_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(step=45)  # each look at the clock is 45 seconds later
    monkeypatch.setattr(stack_method, "monotonic", lambda: next(clock))
    trained = fit(world("tumor"), minutes=3)
    assert [part["method"] for part in trained.meta["parts"]] == ["last-value", "ridge"]
    assert trained.meta["left_out"] == {"mixed": "no time was left for it"}
    assert "warnings" not in trained.meta or not any("left out" in text for text in trained.meta["warnings"])
    assert {row["method"]: row.get("seconds") for row in trained.meta["leaderboard"]}["ridge"] == 45
    assert all("seconds" not in row for row in stacked().meta["leaderboard"])


def test_a_part_that_takes_longer_than_what_is_left_is_stopped_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fit_part = stack_method._fit_part

    def endless(task: FitTask, name: str, start: StackModel | None) -> FittedPart:
        while name == "ridge":
            Termination.stop_if_signalled()  # as every step of a fit does
        return fit_part(task, name, start)

    monkeypatch.setattr(stack_method, "_fit_part", endless)
    trained = fit(world("tumor"), minutes=0.01)
    assert trained.meta["left_out"]["ridge"] == "no time was left for it"
    assert "last-value" in [part["method"] for part in trained.meta["parts"]]
    Termination.stop_if_signalled()  # the limit has ended with the part


@pytest.mark.parametrize(
    ("parts", "problem"),
    [("ridge,stack", "'stack' cannot be a part"), ("rigde", "unknown method: 'rigde'"), (" , ", "no part is named")],
)
def test_parts_that_cannot_be_are_refused(parts: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        fit(world("tumor"), parts=parts)


def test_the_short_list_is_the_registrys_and_takes_an_encoder_for_what_is_pretrained() -> None:
    methods = Methods()
    short = methods.short_list()
    assert short[0] == "last-value"
    assert set(methods.choose("closed-form", "", pretrained=True)) == {n for n in short if methods[n].closed_form}
    without = methods.choose("short-list", "", pretrained=False)
    assert methods.choose("short-list", "", pretrained=True) == short
    assert [name for name in short if name not in without] == [n for n in short if methods[n].pretrained]


def test_a_list_leaves_out_what_takes_minutes_on_wide_data_and_a_name_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, fit_part = world("linear"), stack_method._fit_part
    width = len(dataset.schema.outcomes) + len(dataset.schema.covariates)

    def quickly(task, name, start):
        if name in {"mean", "gcomp"}:
            return fit_part(task, name, start)
        raise DataError("not here")

    monkeypatch.setattr(stack_method, "_fit_part", quickly)
    for most, parts, takes in (
        (width, "closed-form", True),
        (width - 1, "closed-form", False),
        (1, "mean,gcomp", True),
    ):
        monkeypatch.setitem(METHODS._by_name, "gcomp", replace(METHODS["gcomp"], short_list_width=most))
        meta = fit(dataset, parts).meta
        assert ("gcomp" in {part["method"] for part in meta["parts"]}) == takes
        assert meta["left_out"].get("gcomp") == (None if takes else stack_method.TOO_WIDE)
        assert not any("Computation" in str(line) or "gcomp" in str(line) for line in meta.get("warnings", ()))


def test_few_shot_learns_who_is_treated_from_both_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, learnt = world("tumor"), []

    def noted(panel, *others):
        learnt.append(set(panel.subject_id))
        assert set(panel.subject_id[others[-1]]) == set(dataset.panel("target", "train").subject_id)
        return plan_weights(panel, *others)

    monkeypatch.setattr(stack_method, "plan_weights", noted)
    fit(dataset, domain="target", start=model_of(stacked()))
    assert learnt == [{i for domain in ("source", "target") for i in dataset.panel(domain, "train").subject_id}]


def test_the_python_api_names_parts_as_an_argument() -> None:
    model = costar.fit(world("linear"), "stack", parts="last-value,ridge")
    assert [part["method"] for part in model.artifact.meta["parts"]] == ["last-value", "ridge"]
    with pytest.raises(UsageError, match="unknown method: 'rigde'") as raised:
        costar.fit(world("linear"), "stack", parts="rigde")
    assert "did you mean `ridge`?" in str(raised.value.fix)
