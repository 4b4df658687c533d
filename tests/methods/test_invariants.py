"""The invariants of docs/concepts.md about predictions, for every method and variant on two kinds of data."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from costar_cli.errors import ArtifactError
from costar_cli.files import Artifact, write_artifact
from costar_cli.methods import load_model
from costar_cli.methods.base import FittedModel
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.stored import model_of
from costar_cli.testing import PREDICTION_CHECKS, MethodCase
from tests.methods.invariant_worlds import (
    NAMES,
    Case,
    as_model,
    fake_chronos,
    registered,
    trained,
    without_compiler,
    world,
)

__all__ = ["fake_chronos", "without_compiler"]

PLAN_BLIND = {"last-value", "mean", "seasonal-naive"}  # whatever the plan, it answers the same
NOTHING_TO_ENCODE = {*PLAN_BLIND, "chronos"}
MAY_FIND_NO_EFFECT = {("boosting", "small ward")}  # the ward has no law, and a tree asks about what helps alone


@pytest.fixture(
    scope="module", params=[(data, name) for name in NAMES for data in ("tumor", "small ward")], ids="-".join
)
def case(request) -> Case:
    data, method = request.param
    dataset = world(data)
    model = as_model(method, trained(method, data))
    one_hot = dataset.schema.treatments.mode == "multiclass"
    return Case(method, model, dataset.panel("target", "test"), one_hot, data)


@pytest.mark.parametrize("check", PREDICTION_CHECKS, ids=lambda check: check.__name__)
def test_answers_keep_the_invariants(check: Callable[[MethodCase], None], case: Case) -> None:
    check(case)


def test_a_treatment_changes_the_steps_after_it(case: Case) -> None:
    for step, expected, changed in case.with_another_treatment():
        acts = (np.abs(changed - expected) > 1e-6 * np.abs(expected).max()).any(axis=(0, 1, 3))
        if (case.name, case.data) not in MAY_FIND_NO_EFFECT:
            assert acts[step:].all() == (case.name not in PLAN_BLIND)


def test_what_encodes_a_history_once_says_so(case: Case) -> None:
    assert (type(case.model).encode is not FittedModel.encode) == (case.name not in NOTHING_TO_ENCODE)


def test_there_are_as_many_members_as_asked_for(case: Case) -> None:
    assert case.model.members == (1 if registered(case.name).closed_form else 2)


def test_a_stored_model_answers_like_the_one_that_was_stored(case: Case, tmp_path: Path) -> None:
    content = trained(case.name, case.data)
    write_artifact(
        tmp_path / "model.h5", kind="model", arrays=content.arrays, meta=content.meta, parents=content.parents
    )
    loaded = load_model(tmp_path / "model.h5")
    assert loaded.method == registered(case.name).name
    assert np.array_equal(loaded.rollout(case.panel, case.ask()), case.expected)


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
        ("ridge", "small ward"),
        ("msm", "small ward"),
        ("mixed", "small ward"),
        ("mixed", "tumor"),
        ("boosting", "tumor"),
        ("gcomp", "small ward"),
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
            if other is not None and (other.shape, other.dtype) == (values.shape, values.dtype):
                continue  # nothing can be cut from what is empty
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
