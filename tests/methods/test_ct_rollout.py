"""Rollouts from cached prefixes: equal to passes over the whole sequence, blind to the future, whatever the batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data import Dataset, Panel, Part, Queries
from costar_cli.methods.shared.members import member_module
from costar_cli.methods.shared.microbatches import cores_for_microbatches
from costar_cli.methods.transformers import model as transformer_model
from costar_cli.methods.transformers.ct import CtModel
from costar_cli.methods.transformers.ct_network import CtNetwork
from costar_cli.methods.transformers.model import MOST_PLANS, TransformerModel, origin_batches
from tests.methods.ct_worlds import EXACT, ask, fit
from tests.methods.rnn_worlds import ward

PART = Part("source", "test")


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return ward()


@pytest.fixture(scope="module", params=["ct", "edct"])
def model(request, dataset) -> TransformerModel:
    return fit(request.param, dataset)[1]


@pytest.fixture
def panel(dataset) -> Panel:
    return dataset.panels[PART]


def naive(model: CtModel, panel: Panel, queries: Queries) -> np.ndarray:
    """Answer queries one by one, every step with a pass over the whole sequence (spec CT-7)."""
    seen = model.scaled(panel)
    dx, da, _, _ = model.schema.dims
    result = np.zeros((model.members, len(queries), queries.horizon, len(model.schema.outcomes)))
    for r in range(model.members):
        network = member_module(CtNetwork(model.schema.dims, model.settings.network), model.params, r)
        for q, (subject, origin) in enumerate(zip(queries.subject.tolist(), queries.origin.tolist(), strict=True)):
            steps = origin + queries.horizon
            history = torch.full((1, steps, seen.history_NTS.shape[2]), 77.0, dtype=seen.y_NTY.dtype)
            history[0, : origin + 1] = seen.history_NTS[subject, : origin + 1]
            plan = torch.zeros(1, steps, da, dtype=history.dtype)
            plan[0, origin:] = torch.from_numpy(queries.plan[q])
            history[0, origin + 1 :, dx : dx + da] = plan[0, origin:-1]
            hidden = (torch.arange(steps) > origin).to(history.dtype)[None]
            for h in range(queries.horizon):
                with torch.no_grad():
                    _, outcomes = network(history, seen.v_NV[subject][None], hidden, plan)
                result[r, q, h] = outcomes[0, origin + h]
                if origin + h + 1 < steps:
                    history[0, origin + h + 1, dx + da :] = outcomes[0, origin + h]
    return model.scaler.unscale_outcomes(result)


@pytest.mark.parametrize("runtime", [None, EXACT])
@pytest.mark.parametrize(("name", "kind"), [("ct", "ward"), ("ct-erm", "ward"), ("ct", "tumor")])
def test_cached_rollouts_equal_passes_over_the_whole_sequence(name, kind, runtime, tumor_dataset):
    data = ward() if kind == "ward" else tumor_dataset
    _, model = fit(name, data, runtime=runtime, epochs=1, members=1)
    panel = data.panels[PART]
    queries, sd = ask(data, panel, n=16), model.scaler.outcomes[1]
    # In either precision the answers are float32 in the units of the data.
    cached, whole = model.rollout(panel, queries), naive(model, panel, queries)
    np.testing.assert_allclose(cached / sd, whole / sd, rtol=1e-5, atol=1e-5)


def test_small_budgets_of_memory_change_no_prediction(model, dataset, panel, monkeypatch):
    queries = ask(dataset, panel)
    states, expected = model.encode(panel), model.rollout(panel, queries)
    np.testing.assert_allclose(model.answer(states, queries), expected, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(transformer_model, "CPU_ELEMENTS", 1_000)
    np.testing.assert_allclose(model.answer(states, queries), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.answer(states, queries, batch_size=3), expected, rtol=1e-4, atol=1e-4)
    with cores_for_microbatches(2):
        np.testing.assert_allclose(model.answer(states, queries), expected, rtol=1e-4, atol=1e-4)


def test_a_prefix_is_encoded_once_and_never_read_again(model, dataset, panel, monkeypatch):
    states = model.encode(panel)
    for module in {type(m) for state in states for m in state.__dict__.values() if isinstance(m, torch.nn.Module)}:
        monkeypatch.setattr(module, "forward", _refuse)
        monkeypatch.setattr(module, "trace" if hasattr(module, "trace") else "represent", _refuse, raising=False)
    queries = ask(dataset, panel)
    assert model.answer(states, queries).shape == (2, len(queries), dataset.horizon, 2)
    assert model.answer(states, queries.take(slice(0, 0))).shape == (2, 0, dataset.horizon, 2)


def _refuse(*_: object, **__: object) -> None:
    raise AssertionError("a pass over the sequence")


def test_the_history_before_the_origin_does_change_predictions(model, dataset, panel):
    queries = ask(dataset, panel)
    expected = model.rollout(panel, queries)
    for name in ("covariates", "outcomes", "statics"):
        changed = replace(panel, **{name: getattr(panel, name) + 3})
        assert np.abs(model.rollout(changed, queries) - expected).max(axis=(0, 2, 3)).min() > 1e-4, name


def test_representations_cover_every_subject_and_step(model, panel):
    assert model.represent(panel).shape == (2, panel.n_subjects, panel.n_steps, 6)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(1, 40)), min_size=1, max_size=12),
    st.integers(1, 60),
    st.randoms(use_true_random=False),
)
def test_batches_hold_every_query_and_little_else(histories, most, random):
    asked = [(subject, origin) for subject, origin, plans in histories for _ in range(plans)]
    random.shuffle(asked)
    subject, origin = (np.array(column) for column in zip(*asked, strict=True))
    queries = Queries(subject.astype(np.int32), origin.astype(np.int16), np.zeros((len(asked), 1, 1), np.uint8))
    rows = np.flatnonzero(subject > 0)
    answered = []
    for batch in origin_batches(queries, rows, lambda _, plans: most // plans):
        assert (queries.origin[batch.row_MG] == batch.origin).all()
        assert (queries.subject[batch.row_MG] == batch.subject_M[:, None]).all()
        histories_, plans = batch.row_MG.shape
        assert plans <= MOST_PLANS
        assert histories_ * plans <= max(most, plans)
        distinct = np.unique(batch.row_MG)
        assert 2 * len(distinct) > batch.row_MG.size
        answered.append(distinct)
    assert np.array_equal(np.sort(np.concatenate(answered)) if answered else np.array([], int), rows)
