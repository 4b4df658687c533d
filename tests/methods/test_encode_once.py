"""Encode once, answer many: shared histories and plans change no prediction, and scoring encodes each subject once."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from benchmarks.cohort import untrained_model
from costar_cli.data import Dataset, Panel, Part, Queries
from costar_cli.errors import UsageError
from costar_cli.evaluation.score import TestPart, score
from costar_cli.methods.costar import model as costar_model
from costar_cli.methods.costar.decoding import CostarStates
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.costar.predictor import OutcomePredictor
from costar_cli.methods.shared.distinct import distinct_rows, runs
from costar_cli.methods.shared.microbatches import cores_for_microbatches
from costar_cli.reporting import NullReporter

PART = Part("target", "test")


@pytest.fixture(scope="module")
def model(tumor_dataset: Dataset) -> CostarModel:
    return untrained_model(tumor_dataset, members=2)


def reference(model: CostarModel, states: CostarStates, queries: Queries) -> np.ndarray:
    """Predict with the head's plain forward pass, each query from its own history and plan."""
    at = torch.from_numpy(queries.subject.astype(np.int64)), torch.from_numpy(queries.origin.astype(np.int64))
    plan = torch.from_numpy(queries.plan).to(states.z_RNTD)
    with torch.no_grad():
        scaled = torch.stack([model._heads[r](states.z_RNTD[r][at], plan) for r in range(model.members)])
    return model.scaler.unscale_outcomes(scaled.numpy())


@pytest.mark.parametrize("name", ["one_step", "sequence"])
@pytest.mark.parametrize(("threads", "batch_size", "elements"), [(1, 16_384, 2**19), (2, 50, 500), (2, 7, 1)])
def test_shared_histories_and_plans_change_no_prediction(
    model, tumor_dataset, monkeypatch, name, threads, batch_size, elements
):
    monkeypatch.setattr(costar_model, "CPU_ELEMENTS", elements)
    panel, queries = tumor_dataset.panels[PART], tumor_dataset.queries[PART][name].take(slice(0, 400))
    queries = queries.take(np.random.default_rng(0).permutation(len(queries)))
    states = model.encode(panel)
    with cores_for_microbatches(threads):
        answered = model.answer(states, queries, batch_size=batch_size)
    sd = float(model.scaler.outcomes[1][0])
    np.testing.assert_allclose(answered / sd, reference(model, states, queries) / sd, rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.rollout(panel, queries), answered, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("last", [False, True])
def test_subjects_asked_about_at_one_origin_are_encoded_there_alone(model, tumor_dataset, last):
    panel = tumor_dataset.panels[PART]
    origin_N = panel.length - 1 if last else np.minimum(2, panel.length - 1)
    subject = np.repeat(np.arange(panel.n_subjects), 2).astype(np.int32)
    plan = np.eye(4, dtype=np.uint8)[np.random.default_rng(2).integers(0, 4, (len(subject), 3))]
    queries = Queries(subject, origin_N[subject].astype(np.int16), plan)
    states, asked = model.encode_asked(panel, queries)
    assert states.z_RNTD.shape[2] == 1
    assert not asked.origin.any()
    np.testing.assert_allclose(
        model.rollout(panel, queries), model.answer(model.encode(panel), queries), rtol=1e-4, atol=1e-4
    )
    mixed = replace(queries, origin=np.where(np.arange(len(subject)) == 0, 0, queries.origin).astype(np.int16))
    assert model.encode_asked(panel, mixed)[0].z_RNTD.shape[2] == panel.n_steps


def test_halves_of_the_head_add_up_exactly_in_double_precision():
    torch.manual_seed(0)
    head = OutcomePredictor(3, 2, width=8, horizon=4, hidden=16).double().requires_grad_(False)
    z, plans = torch.randn(5, 8, dtype=torch.float64) * 3, torch.randn(6, 3, 3, dtype=torch.float64) * 3
    histories, which = torch.randint(5, (40,)), torch.randint(6, (40,))
    parts = torch.cat(list(head.pairs(z, plans, histories, which, rows=7)))
    torch.testing.assert_close(parts, head(z[histories], plans[which]), rtol=1e-12, atol=1e-12)


def test_no_queries_get_no_answers(model, tumor_dataset):
    queries = tumor_dataset.queries[PART]["sequence"].take(slice(0, 0))
    states = model.encode(tumor_dataset.panels[PART])
    assert model.answer(states, queries).shape == (2, 0, queries.horizon, 1)


def test_answers_refuse_plans_beyond_the_horizon(model, tumor_dataset):
    queries = tumor_dataset.queries[PART]["sequence"].take(slice(0, 3))
    longer = Queries(queries.subject, queries.origin, np.repeat(queries.plan, 2, axis=1))
    with pytest.raises(UsageError, match="longer than the model's horizon"):
        model.answer(model.encode(tumor_dataset.panels[PART]), longer)


@given(npst.arrays(np.uint8, npst.array_shapes(min_dims=2, max_dims=2, max_side=20), elements=st.integers(0, 2)))
def test_distinct_rows_rebuild_the_rows(rows):
    first, which = distinct_rows(rows)
    assert np.array_equal(rows[first][which], rows)
    assert len(first) == len({row.tobytes() for row in rows})


def test_rows_that_share_a_hash_are_told_apart(monkeypatch):
    class Ones:
        def integers(self, *_args, size, dtype):
            return np.zeros(size, dtype=dtype)  # times 2 plus 1: every word counts the same

    monkeypatch.setattr(np.random, "default_rng", lambda _seed: Ones())
    rows = np.zeros((2, 16), dtype=np.uint8)
    rows[0, 0] = rows[1, 8] = 1
    first, which = distinct_rows(rows)
    assert np.array_equal(rows[first][which], rows)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_runs_join_equal_neighbours_only(pairs):
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    first, which = runs(*columns)
    assert [pairs[i] for i in first[which]] == pairs
    assert len(first) == sum(a != b for a, b in pairwise(pairs)) + bool(pairs)


@dataclass(frozen=True)
class Watched(CostarModel):
    encoded: list[int] = field(default_factory=list)

    def encode(self, panel: Panel) -> CostarStates:
        self.encoded.extend(panel.subject_id.tolist())
        return super().encode(panel)

    def rollout(self, *_: object, **__: object) -> np.ndarray:
        raise AssertionError("scoring asks `answer`")


@pytest.mark.parametrize("chunk_bytes", [1, 20_000, 2**27])
def test_scoring_encodes_each_subject_once_for_all_query_sets(model, tumor_dataset, chunk_bytes):
    panel, sets = tumor_dataset.panels[PART], tumor_dataset.queries[PART]
    part = TestPart.of(panel, sets, tumor_dataset.horizon)
    watched = Watched(**{name: getattr(model, name) for name in model.__dataclass_fields__})
    with NullReporter().task("score") as task:
        options = {"denominator_Y": np.ones(1), "batch_size": 1000, "task": task}
        errors = score(watched, part, chunk_bytes=chunk_bytes, **options)["counterfactual"]
    assert watched.encoded == panel.subject_id.tolist()
    expected = np.zeros((panel.n_subjects, tumor_dataset.horizon))
    for name, steps in part.serving["counterfactual"].items():
        predicted = model.rollout(panel, replace(sets[name], outcomes=None, scored=None))[0, ..., 0].astype(float)
        squared = (predicted - sets[name].outcomes[..., 0]) ** 2 * (sets[name].scored & steps)
        np.add.at(expected[:, : sets[name].horizon], sets[name].subject, squared)
    np.testing.assert_allclose(errors.members[0, :, :, 0], expected, rtol=1e-4)
