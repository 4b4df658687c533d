"""Networks that learned from stretches of long series look back one stretch, in training and in answers."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Dataset, Panel, Queries
from costar_cli.data.queries import rolling_origin
from costar_cli.data.truncated import STRETCH
from costar_cli.methods.base import FittedModel
from costar_cli.methods.costar import pretraining
from tests.methods.invariant_worlds import as_model, fit, world
from tests.train.worlds import pretrain_stage

HALF = STRETCH // 2
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("ct", "edct", "growth", "rmsn", "gnet")]
METHODS = ["costar", "crn", *SLOW]
ATTENTIVE = {"costar", "ct", "edct"}  # recurrent networks forget steps that are so long ago


def lengthened(panel: Panel, times: int) -> Panel:
    """The panel with each series behind itself, so many times."""
    names = ("covariates", "treatments", "outcomes")
    series = {name: np.tile(getattr(panel, name), (1, times, 1)) for name in names}
    return replace(panel, **series, length=np.full(panel.n_subjects, panel.n_steps * times))


@pytest.fixture(scope="module")
def long_world() -> Dataset:
    linear = world("linear")
    return replace(linear, panels={part: lengthened(panel, 13) for part, panel in linear.panels.items()}, queries={})


@pytest.fixture(scope="module", params=METHODS)
def long_model(request, long_world: Dataset) -> FittedModel:
    return as_model(request.param, fit(request.param, long_world, epochs=1, updates=1, members=1))


def at_origins(panel: Panel, origins: list[int]) -> Queries:
    every = rolling_origin(panel, 3)
    assert every is not None
    return replace(every.take(np.isin(every.origin, origins)), outcomes=None, scored=None)


def test_answers_see_one_stretch_and_no_more(long_model: FittedModel, long_world: Dataset) -> None:
    panel, origins = long_world.panel("target", "test"), [5, STRETCH - 1, STRETCH, STRETCH + 10]
    queries = at_origins(panel, origins)
    expected, sd = long_model.rollout(panel, queries), float(long_model.scaler.outcomes[1][0])
    begins = {origin: max(0, origin // HALF - 1) * HALF for origin in origins}
    for origin, begin in begins.items():
        some = queries.take(queries.origin == origin)
        earlier = panel.outcomes.copy()
        earlier[:, :begin] = 1e3
        changed = long_model.rollout(replace(panel, outcomes=earlier), some)
        np.testing.assert_allclose(changed / sd, expected[:, queries.origin == origin] / sd, rtol=0, atol=1e-5)
        earlier[:, begin] += 5
        assert long_model.method not in ATTENTIVE or not np.allclose(
            long_model.rollout(replace(panel, outcomes=earlier), some), changed, rtol=0, atol=1e-9
        )
    answered = long_model.answer(long_model.encode(panel), queries)
    np.testing.assert_allclose(answered / sd, expected / sd, rtol=0, atol=1e-5)


def test_files_of_models_and_encoders_say_that_they_learned_from_stretches(long_model: FittedModel) -> None:
    assert long_model.record.stretch == STRETCH
    assert long_model.trained_on == {"source/train": 16}


def test_large_batches_contrast_a_random_part_of_their_positions(
    tumor_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining, "LARGEST", {"train": 20, "validation": 10**9})
    monkeypatch.setattr(pretraining, "CAP", 16)
    stage = pretrain_stage(tumor_dataset)
    assert stage.reference() == pytest.approx(8 * np.log(16))
    assert stage.reference(validation=True) > stage.reference()
