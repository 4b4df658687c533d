"""The invariants of docs/concepts.md about predictions, for every method and variant on three kinds of data."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costar_cli.artifact import Artifact, write_artifact
from costar_cli.errors import ArtifactError, UsageError
from costar_cli.methods import load_model
from costar_cli.methods.base import EncodesOnce
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.stored import model_of
from tests.methods.invariant_worlds import (
    NAMES,
    Case,
    as_model,
    close,
    padded,
    registered,
    trained,
    without_compiler,
    world,
    worlds_of,
)

__all__ = ["without_compiler"]

PLAN_BLIND = {"last-value", "mean", "seasonal-naive"}  # whatever the plan, it answers the same
NOTHING_TO_ENCODE = PLAN_BLIND
MAY_FIND_NO_EFFECT = {("boosting", "ward")}  # the ward has no law, and a tree asks about what helps alone


@pytest.fixture(scope="module", params=[(data, name) for name in NAMES for data in worlds_of(name)], ids="-".join)
def case(request) -> Case:
    data, method = request.param
    dataset = world(data)
    model = as_model(method, trained(method, data))
    one_hot = dataset.schema.treatments.mode == "multiclass"
    return Case(method, data, model, dataset.panel("target", "test"), one_hot)


def test_nothing_after_the_origin_changes_a_prediction(case: Case) -> None:
    queries, rng = case.ask(), np.random.default_rng(1)
    expected = case.answer(queries)
    for row in range(0, len(queries), 5):
        one = queries.take(slice(row, row + 1))
        subject, origin = int(one.subject[0]), int(one.origin[0])
        after = slice(origin + 1, None)
        outcomes, covariates = case.panel.outcomes.copy(), case.panel.covariates.copy()
        seen = case.panel.observed_outcomes.copy()
        seen[subject, after] ^= True
        for series in (outcomes, covariates):
            series[subject, after] = rng.normal(size=series[subject, after].shape) * 100
        treatments, length = case.panel.treatments.copy(), case.panel.length.copy()
        treatments[subject, origin:] = case.treatments(rng, case.panel.n_steps - origin)
        changed = replace(
            case.panel, outcomes=outcomes, covariates=covariates, treatments=treatments, outcome_observed=seen
        )
        length[subject] = origin + 1
        for panel in (changed, replace(changed, length=length)):
            close(case.answer(one, panel), expected[:, row : row + 1])


def test_the_history_before_the_origin_does_change_predictions(case: Case) -> None:
    queries = case.ask()
    changed = replace(case.panel, outcomes=case.panel.outcomes + case.panel.outcomes.std())
    difference = np.abs(case.answer(queries) - case.answer(queries, changed))
    assert difference.max(axis=(0, 2, 3)).min() > 1e-6


def test_a_treatment_changes_no_step_before_it_acts(case: Case) -> None:
    queries = case.ask()
    expected = case.answer(queries)
    for step in range(case.model.horizon):
        plan = queries.plan.copy()
        plan[:, step] = case.other(plan[:, step])
        changed = case.answer(replace(queries, plan=plan))
        close(changed[:, :, :step], expected[:, :, :step], rtol=1e-5)
        acts = (np.abs(changed - expected) > 1e-6 * np.abs(expected).max()).any(axis=(0, 1, 3))
        if (case.name, case.data) not in MAY_FIND_NO_EFFECT:
            assert acts[step:].all() == (case.name not in PLAN_BLIND)


def test_padding_changes_no_prediction(case: Case) -> None:
    queries = case.ask()
    close(case.answer(queries, padded(case.panel)), case.answer(queries))


def test_what_was_observed_and_what_was_filled_are_the_same_history(case: Case) -> None:
    queries = case.ask()
    everything = replace(case.panel, outcome_observed=None)
    assert (everything.outcome_observed is not case.panel.outcome_observed) == (case.data == "ward")
    assert np.array_equal(case.answer(queries, everything), case.answer(queries))


def test_a_panel_encoded_once_answers_any_queries_as_a_rollout_does(case: Case) -> None:
    model, queries = case.model, case.ask()
    assert isinstance(model, EncodesOnce) == (case.name not in NOTHING_TO_ENCODE)
    if not isinstance(model, EncodesOnce):
        return
    states = model.encode(case.panel)
    first = model.answer(states, queries)
    close(first, case.answer(queries))
    close(model.answer(states, case.ask(seed=1), batch_size=5), case.answer(case.ask(seed=1)))
    assert np.array_equal(model.answer(states, queries), first)
    subjects, local = np.unique(queries.subject, return_inverse=True)
    some = model.encode(case.panel.take(subjects[::-1]))
    close(model.answer(some, replace(queries, subject=(len(subjects) - 1 - local).astype(np.int32))), first)


def test_answers_do_not_depend_on_company_or_batch_size(case: Case) -> None:
    queries = case.ask()
    expected = case.answer(queries)
    close(case.model.rollout(case.panel, queries, batch_size=3), expected)
    alone = np.concatenate([case.answer(queries.take(slice(i, i + 1))) for i in range(5)], axis=1)
    close(alone, expected[:, :5])


def test_short_plans_give_the_first_steps_and_long_ones_are_refused(case: Case) -> None:
    queries = case.ask()
    close(case.answer(replace(queries, plan=queries.plan[:, :2])), case.answer(queries)[:, :, :2])
    with pytest.raises(UsageError, match="horizon"):
        case.answer(replace(queries, plan=np.concatenate([queries.plan, queries.plan], axis=1)))


def test_predictions_are_finite_and_come_for_every_member_query_step_and_outcome(case: Case) -> None:
    queries = case.ask()
    answered = case.answer(queries)
    members = 1 if registered(case.name).closed_form else 2
    assert answered.shape == (members, len(queries), case.model.horizon, case.panel.outcomes.shape[-1])
    assert case.model.members == members
    assert np.isfinite(answered).all()


def test_a_stored_model_answers_like_the_one_that_was_stored(case: Case, tmp_path: Path) -> None:
    content = trained(case.name, case.data)
    write_artifact(
        tmp_path / "model.h5", kind="model", arrays=content.arrays, meta=content.meta, parents=content.parents
    )
    loaded = load_model(tmp_path / "model.h5")
    assert loaded.method == registered(case.name).name
    assert np.array_equal(loaded.rollout(case.panel, case.ask()), case.answer(case.ask()))


def test_representations_cover_every_subject_and_step() -> None:
    model, panel = as_model("costar", trained("costar", "tumor")), world("tumor").panel("target", "test")
    assert isinstance(model, CostarModel)
    assert model.represent(panel).shape == (2, panel.n_subjects, panel.n_steps, 8)


@pytest.mark.parametrize(
    "name",
    [
        "costar",
        "costar, structured",
        "crn",
        "crn, structured",
        "ct",
        "ct, structured",
        "edct",
        "gnet",
        "growth",
        "rmsn",
    ],
)
def test_a_file_whose_parameters_are_not_those_of_its_settings_is_refused(name: str) -> None:
    made = trained(name, "tumor")
    needed = tuple(f"params/{prefix}" for prefix in as_model(name, made).networks())
    first = next(key for key in made.arrays if key.startswith(needed))
    values = made.arrays[first]
    for other in (values[..., :-1], values[None], values.astype(np.int64), None):
        arrays = {**made.arrays, first: other}
        artifact = Artifact("model", {key: array for key, array in arrays.items() if array is not None}, made.meta)
        with pytest.raises(ArtifactError, match="incomplete or damaged") as raised:
            model_of(artifact)
        assert first.removeprefix("params/") in str(raised.value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("ridge", "ward"),
        ("msm", "ward"),
        ("mixed", "ward"),
        ("mixed", "tumor"),
        ("boosting", "tumor"),
        ("seasonal-naive", "tumor"),
    ],
)
def test_a_file_of_a_closed_form_with_any_array_of_another_shape_is_refused(name: str, data: str) -> None:
    made = trained(name, data)
    model_of(Artifact("model", made.arrays, made.meta))
    for key, values in made.arrays.items():
        if not key.startswith("params/"):
            continue
        for other in (values[..., :-1], values[None], values.astype(np.bool_), None):
            if (other is None and key.startswith("params/columns.")) or key.endswith(".open"):
                continue  # files of older versions lack them
            arrays = {k: v for k, v in {**made.arrays, key: other}.items() if v is not None}
            with pytest.raises(ArtifactError, match="incomplete or damaged"):
                model_of(Artifact("model", arrays, made.meta))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_whose_scaler_holds_no_means_and_sds_is_refused(name: str) -> None:
    made = trained(name, "tumor")
    moments = made.arrays["scaler/outcomes"]
    for other in (moments.astype("<U4"), moments[:1], moments * np.nan, moments * [[1.0], [0.0]], moments > 0):
        arrays = {**made.arrays, "scaler/outcomes": other}
        with pytest.raises(ArtifactError, match="incomplete or damaged"):
            model_of(Artifact("model", arrays, made.meta))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ridge", {"window": 10**9}),
        ("ridge", {"horizon": 10**6}),
        ("msm", {"plan": "other"}),
        ("mixed", {"laws": [{"outcome": 0}]}),
        ("mixed", {"laws": []}),
    ],
)
def test_a_file_of_a_closed_form_with_other_facts_than_its_arrays_is_refused(
    name: str, change: dict[str, object]
) -> None:
    made = trained(name, "tumor")
    with pytest.raises(ArtifactError, match="incomplete or damaged"):
        model_of(Artifact("model", made.arrays, {**made.meta, **change}))
